// SPDX-License-Identifier: GPL-2.0-or-later
// Store: the slot allocator against a model that fits on one screen, and what happens to broken, foreign, newer and full files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "own_mount.h"

#include <glob.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/strv.h"
#include "state/store.h"

#ifdef __SANITIZE_ADDRESS__
#define MODEL_OPERATIONS 100000
#else
#define MODEL_OPERATIONS 1000000
#endif

static char dir[] = "/tmp/test-store-XXXXXX";
static char db_path[64];

static int fresh_dir(void **state) {
        strcpy(dir + strlen(dir) - 6, "XXXXXX");
        assert_non_null(mkdtemp(dir));
        snprintf(db_path, sizeof(db_path), "%s/state.db", dir);
        return 0;
}

static int drop_dir(void **state) {
        return io_remove_tree(AT_FDCWD, dir);
}

static Store *open_store(const char *path, int outcome) {
        _cleanup_error_ Error e = ERROR_NULL;
        Store *s = NULL;
        int r = store_open(path, &s, &e);

        if (r != outcome)
                fail_msg("store_open: %d, wanted %d: %s", r, outcome, error_message(&e, r));
        return s;
}

// ---- the model: for each slot its state and when it was released ----

typedef enum { NEVER, RELEASED, LIVE, RETIRED } ModelState;
typedef struct Model {
        ModelState state[SLOT_MAX + 1];
        uint64_t released[SLOT_MAX + 1], clock;
        uint16_t lists[4][SLOT_MAX]; // slots by state, for picking at random
        size_t n[4];
} Model;

static uint64_t rng_state = 0x9e3779b97f4a7c15;
static uint64_t rng(uint64_t below) {
        rng_state ^= rng_state << 13;
        rng_state ^= rng_state >> 7;
        rng_state ^= rng_state << 17;
        return rng_state % below;
}

static void model_move(Model *m, uint16_t slot, ModelState to) {
        ModelState from = m->state[slot];

        for (size_t i = 0; i < m->n[from]; i++)
                if (m->lists[from][i] == slot) {
                        m->lists[from][i] = m->lists[from][--m->n[from]];
                        break;
                }
        m->state[slot] = to;
        m->lists[to][m->n[to]++] = slot;
        if (to == RELEASED)
                m->released[slot] = ++m->clock;
}

static uint16_t model_next(const Model *m) {
        uint16_t best = 0;

        for (uint16_t s = 1; s <= SLOT_MAX; s++)
                if (m->state[s] == NEVER)
                        return s;
        for (uint16_t s = 1; s <= SLOT_MAX; s++)
                if (m->state[s] == RELEASED && (!best || m->released[s] < m->released[best]))
                        best = s;
        return best;
}

static void model_add(Model *m, Store *s, uint64_t i) {
        _cleanup_error_ Error e = ERROR_NULL;
        StoreInstance instance = {.created = i};
        uint16_t wants = model_next(m);
        int r;

        snprintf(instance.name, sizeof(instance.name), "i%u", wants);
        r = store_instance_add(s, &instance, &e);
        if (!wants) {
                assert_int_equal(e.code, ERR_QUOTA);
                return;
        }
        if (r != 0 || instance.slot != wants)
                fail_msg("operation %llu: slot %u, the model says %u: %s", (unsigned long long) i, instance.slot, wants,
                         error_message(&e, r));
        model_move(m, wants, LIVE);
}

static void model_retire(Model *m, Store *s) {
        char name[33];
        uint16_t slot;

        if (!m->n[LIVE])
                return;
        slot = m->lists[LIVE][rng(m->n[LIVE])];
        snprintf(name, sizeof(name), "i%u", slot);
        assert_int_equal(store_instance_retire(s, name, NULL), 0);
        model_move(m, slot, RETIRED);
}

static void model_release(Model *m, Store *s) {
        uint16_t slot;

        if (rng(8) == 0) { // of a slot in any state: refused unless it is retired
                slot = 1 + (uint16_t) rng(SLOT_MAX);
                assert_int_equal(store_slot_release(s, slot, NULL) == 0, m->state[slot] == RETIRED);
                if (m->state[slot] == RETIRED)
                        model_move(m, slot, RELEASED);
        } else if (m->n[RETIRED]) {
                slot = m->lists[RETIRED][rng(m->n[RETIRED])];
                assert_int_equal(store_slot_release(s, slot, NULL), 0);
                model_move(m, slot, RELEASED);
        }
}

static void model_compare(const Model *m, Store *s) {
        _cleanup_free_ StoreInstance *live = NULL;
        _cleanup_free_ uint16_t *retired = NULL;
        size_t n_live, n_retired;

        assert_int_equal(store_instance_list(s, &live, &n_live, NULL), 0);
        assert_int_equal(store_slot_retired(s, &retired, &n_retired, NULL), 0);
        assert_int_equal(n_live, m->n[LIVE]);
        assert_int_equal(n_retired, m->n[RETIRED]);
        for (size_t i = 0; i < n_live; i++)
                assert_int_equal(m->state[live[i].slot], LIVE);
        for (size_t i = 0; i < n_retired; i++)
                assert_int_equal(m->state[retired[i]], RETIRED);
}

static void test_slots_against_model(void **state) {
        _cleanup_(store_closep) Store *s = open_store(":memory:", STORE_CREATED);
        _cleanup_free_ Model *m = calloc(1, sizeof(Model));

        for (uint16_t slot = 1; slot <= SLOT_MAX; slot++)
                m->lists[NEVER][m->n[NEVER]++] = slot;
        for (uint64_t i = 0; i < MODEL_OPERATIONS; i++) {
                // Seasons of growth and of shrinking, so that exhaustion and emptiness both come often.
                uint64_t dice = rng(10), adds = (i / 8192) % 2 ? 6 : 2;
                if (dice < adds)
                        model_add(m, s, i);
                else if (dice < adds + (10 - adds) / 2)
                        model_retire(m, s);
                else
                        model_release(m, s);
                if (i % 10000 == 0)
                        model_compare(m, s);
        }
        model_compare(m, s);
        assert_int_equal(m->n[NEVER], 0); // it was full at least once
}

// ---- instances, warnings, values ----

static void test_instances(void **state) {
        Store *s = open_store(db_path, STORE_CREATED);
        _cleanup_error_ Error e = ERROR_NULL;
        StoreInstance a = {.name = "alpha", .created = 5, .template_digest = "abc"}, b = {.name = "beta"}, bad = {.name = "A\n"};
        _cleanup_free_ StoreInstance *list = NULL;
        size_t n;

        assert_int_equal(store_instance_add(s, &a, NULL), 0);
        assert_int_equal(a.slot, 1);
        assert_int_equal(store_instance_add(s, &a, &e), -EEXIST);
        assert_string_equal(e.message, "instance alpha exists");
        assert_int_equal(store_instance_add(s, &bad, NULL), -EINVAL);
        b.slot = 1;
        assert_int_equal(store_instance_restore(s, &b, NULL), -ESTALE);
        b.slot = 40;
        assert_int_equal(store_instance_restore(s, &b, NULL), 0);
        b.slot = 0;
        assert_int_equal(store_instance_restore(s, &b, NULL), -EINVAL);
        a.generation = 7;
        a.wanted = true;
        assert_int_equal(store_instance_update(s, &a, NULL), 0);
        assert_int_equal(store_instance_update(s, &bad, NULL), -ENOENT);
        assert_int_equal(store_slot_retire(s, 1, NULL), -ESTALE);
        assert_int_equal(store_slot_retire(s, 2, NULL), 0);
        assert_int_equal(store_slot_retire(s, 2, NULL), 0);
        assert_int_equal(store_instance_retire(s, "gamma", NULL), -ENOENT);
        store_close(s);
        s = open_store(db_path, STORE_CREATED); // until the rebuild is reported done
        assert_int_equal(store_rebuild_done(s, NULL), 0);
        store_close(s);
        s = open_store(db_path, STORE_OPENED);
        assert_int_equal(store_instance_list(s, &list, &n, NULL), 0);
        assert_int_equal(n, 2);
        assert_string_equal(list[0].name, "alpha");
        assert_true(list[0].wanted && list[0].generation == 7 && list[0].created == 5 && list[0].slot == 1);
        assert_string_equal(list[0].template_digest, "abc");
        assert_int_equal(list[1].slot, 40);
        snprintf(b.name, sizeof(b.name), "delta");
        assert_int_equal(store_instance_add(s, &b, NULL), 0);
        assert_int_equal(b.slot, 3); // 2 is retired
        store_close(s);
}

static void test_warnings(void **state) {
        _cleanup_(store_closep) Store *s = open_store(":memory:", STORE_CREATED);
        _cleanup_free_ char *text = malloc(5000);
        StoreWarning *w;
        size_t n;

        memset(text, 'x', 4999);
        text[4999] = 0;
        memcpy(text, "\x1b[31m\xff", 6);
        assert_int_equal(store_warning_note(s, "table-lost", "host", "one", NULL), 0);
        assert_int_equal(store_warning_note(s, "table-lost", "host", "two", NULL), 0);
        assert_int_equal(store_warning_note(s, "table-lost", "a", text, NULL), 0);
        assert_int_equal(store_warning_note(s, "Bad kind", "a", "x", NULL), -EINVAL);
        assert_int_equal(store_warning_note(s, "k", "../a", "x", NULL), -EINVAL);
        assert_int_equal(store_warning_list(s, &w, &n, NULL), 0);
        assert_int_equal(n, 2);
        assert_string_equal(w[0].text, "two");
        assert_true(w[0].count == 2 && w[0].first_seen > 0 && w[0].last_seen >= w[0].first_seen);
        assert_int_equal(strncmp(w[1].text, "\\x1b[31m\\xff", 12), 0);
        assert_int_equal(strlen(w[1].text), 1024);
        store_warnings_free(w, n);
        assert_int_equal(store_warning_clear(s, "table-lost", "a", NULL), 0);
        assert_int_equal(store_warning_clear(s, "table-lost", "a", NULL), 0); // already so
        assert_int_equal(store_warning_clear(s, "table-lost", NULL, NULL), 0);
        assert_int_equal(store_warning_list(s, &w, &n, NULL), 0);
        assert_int_equal(n, 0);
        store_warnings_free(w, n);
}

static void test_values(void **state) {
        _cleanup_(store_closep) Store *s = open_store(":memory:", STORE_CREATED);
        _cleanup_free_ char *value = NULL;
        _cleanup_strv_ char **keys = NULL;

        assert_int_equal(store_value_set(s, "cmd/a/1", "x", NULL), 0);
        assert_int_equal(store_value_set(s, "cmd/a/2", "y", NULL), 0);
        assert_int_equal(store_value_set(s, "cmd/b", "", NULL), 0);
        assert_int_equal(store_value_set(s, "cmd/a/1", "it's \"new\"", NULL), 0);
        assert_int_equal(store_value_set(s, "bad key", "y", NULL), -EINVAL);
        assert_int_equal(store_value_set(s, "k", "\xff", NULL), -EINVAL);
        assert_int_equal(store_value_get(s, "cmd/a/1", &value, NULL), 0);
        assert_string_equal(value, "it's \"new\"");
        assert_int_equal(store_value_list(s, "cmd/a", &keys, NULL), 0);
        assert_int_equal(strv_length(keys), 2);
        assert_int_equal(store_value_set(s, "cmd/a/1", NULL, NULL), 0);
        free(TAKE_PTR(value));
        assert_int_equal(store_value_get(s, "cmd/a/1", &value, NULL), -ENOENT);
}

static void test_condemned(void **state) {
        _cleanup_(store_closep) Store *s = open_store(":memory:", STORE_CREATED);
        StoreInstance a = {.name = "a"};

        assert_false(store_instance_is_condemned(s, "a"));
        assert_int_equal(store_instance_add(s, &a, NULL), 0);
        assert_true(store_instance_is_condemned(s, "a")); // until its file is there
        assert_int_equal(store_instance_pardon(s, "a", NULL), 0);
        assert_int_equal(store_instance_pardon(s, "a", NULL), 0); // already so
        assert_false(store_instance_is_condemned(s, "a"));
        assert_int_equal(store_instance_condemn(s, "a", NULL), 0);
        assert_true(store_instance_is_condemned(s, "a"));
        assert_false(store_instance_is_condemned(s, "b"));
        assert_int_equal(store_instance_retire(s, "a", NULL), 0);
        assert_false(store_instance_is_condemned(s, "a")); // the next one of this name begins anew
}

// ---- files that are not as we left them ----

static void count_aside(size_t wanted) {
        char pattern[96];
        glob_t g;

        snprintf(pattern, sizeof(pattern), "%s.corrupt-*Z", db_path);
        assert_int_equal(glob(pattern, 0, NULL, &g) == 0 ? g.gl_pathc : 0, wanted);
        globfree(&g);
}

static void run_sql(const char *sql) {
        sqlite3 *db;

        assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void overwrite(off_t offset, size_t size) {
        _cleanup_close_ int fd = open(db_path, O_WRONLY | O_CLOEXEC);
        char junk[4096];

        memset(junk, 0xa5, sizeof(junk));
        assert_int_equal(pwrite(fd, junk, size, offset), (ssize_t) size);
}

static void test_corrupt(void **state) {
        static const struct {
                const char *what;
                off_t offset; // -1: SQL instead
                size_t size;
                const char *sql;
        } damage[] = {
                {"header", 0, 64, NULL},
                {"schema page", 100, 1000, NULL},
                {"a later page", 4096 * 2, 4096, NULL},
                {"a missing table", -1, 0, "DROP TABLE value"},
                {"another program's", -1, 0, "PRAGMA application_id = 1"},
        };

        for (size_t i = 0; i < ELEMENTS(damage); i++) {
                StoreInstance a = {.name = "a"};
                Store *s;

                fresh_dir(state);
                s = open_store(db_path, STORE_CREATED);
                assert_int_equal(store_instance_add(s, &a, NULL), 0);
                assert_int_equal(store_rebuild_done(s, NULL), 0);
                store_close(s);
                if (damage[i].sql)
                        run_sql(damage[i].sql);
                else
                        overwrite(damage[i].offset, damage[i].size);
                s = open_store(db_path, STORE_REBUILT);
                assert_int_equal(store_instance_restore(s, &a, NULL), 0);
                store_close(s);
                count_aside(1);
                store_close(open_store(db_path, STORE_REBUILT)); // still due, but nothing more is moved
                count_aside(1);
                drop_dir(state);
        }
}

// Sealed values are among what is replaced and removed.
static void test_nothing_of_before(void **state) {
        char value[600];
        _cleanup_free_ char *text = NULL;
        Store *s = open_store(db_path, STORE_CREATED);
        size_t size;

        for (int i = 0; i < 40; i++) {
                char key[16];
                (void) snprintf(key, sizeof(key), "k%d", i);
                memset(value, 'v', sizeof(value));
                memcpy(value, "of-before", 9);
                value[sizeof(value) - 1] = 0;
                assert_int_equal(store_value_keep(s, key, value, NULL), 0);
                assert_int_equal(store_value_keep(s, key, i % 2 ? NULL : "of-now", NULL), 0);
        }
        store_close(s);
        assert_int_equal(io_read_file(AT_FDCWD, db_path, 1 << 22, &text, &size), 0);
        assert_non_null(memmem(text, size, "of-now", 6));
        assert_null(memmem(text, size, "of-before", 9));
        assert_null(memmem(text, size, "vvvvvvvv", 8));
}

static void test_newer_and_odd(void **state) {
        _cleanup_error_ Error e = ERROR_NULL, e2 = ERROR_NULL, e3 = ERROR_NULL;
        Store *s = NULL, *second = NULL;
        struct stat st;

        store_close(open_store(db_path, STORE_CREATED));
        s = open_store(db_path, STORE_CREATED);
        assert_int_equal(store_open(db_path, &second, &e3), -EBUSY);
        assert_non_null(strstr(e3.message, "is a second hostd running?"));
        s = store_close(s);
        assert_int_equal(stat(db_path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        run_sql("PRAGMA user_version = 99");
        assert_int_equal(store_open(db_path, &s, &e), -ESTALE);
        assert_non_null(strstr(e.message, "has schema 99 and this hostd knows only"));
        count_aside(0);
        assert_int_equal(unlink(db_path), 0);
        assert_int_equal(symlink("elsewhere", db_path), 0);
        assert_true(store_open(db_path, &s, &e2) < 0);
        assert_null(s);
}

// In a child with a file system of 512 KiB of its own.
static int fill_disk(void) {
        Store *s = NULL;
        Error e = ERROR_NULL;
        char *value = NULL;
        _cleanup_free_ char *big = malloc(60001);
        char key[64];
        int r = 0, n = 0, fd;

        memset(big, 'v', 60000);
        big[60000] = 0;
        if (store_open(db_path, &s, NULL) < 0)
                return 10;
        for (; r == 0 && n < 100; n++) {
                snprintf(key, sizeof(key), "k%d", n);
                r = store_value_set(s, key, big, &e);
        }
        if (r != -EDQUOT || e.code != ERR_QUOTA || !strstr(e.message, "full") || n < 2)
                return 11;
        if (store_value_get(s, "k0", &value, NULL) < 0 || strcmp(value, big) != 0)
                return 12; // the old state
        store_close(s);
        if (store_open(db_path, &s, NULL) != STORE_CREATED)
                return 13; // nothing broken
        for (int i = 0; i < n - 1; i++) {
                snprintf(key, sizeof(key), "k%d", i);
                free(TAKE_PTR(value));
                if (store_value_get(s, key, &value, NULL) < 0)
                        return 14;
        }
        free(TAKE_PTR(value));
        error_done(&e);
        store_close(s);
        // Not a byte left: the daemon must come up all the same.
        snprintf(key, sizeof(key), "%s/ballast", dir);
        fd = open(key, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        while (write(fd, big, 4096) > 0)
                ;
        close(fd);
        if (store_open(db_path, &s, NULL) != STORE_CREATED || store_value_get(s, "k0", &value, NULL) < 0)
                return 15;
        if (store_value_set(s, "more", big, NULL) != -EDQUOT)
                return 16;
        free(value);
        store_close(s);
        return 0;
}

// A size limit or a quota is no ENOSPC, but means the same to the caller.
static void test_size_limit(void **state) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                struct rlimit limit = {150000, 150000};
                Error e = ERROR_NULL;
                Store *s = NULL;
                char text[4001];
                int r = 0;

                memset(text, 'v', 4000);
                text[4000] = 0;
                (void) signal(SIGXFSZ, SIG_IGN);
                if (store_open(db_path, &s, NULL) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0)
                        _exit(1);
                for (int i = 0; r == 0 && i < 1000; i++)
                        r = store_value_set(s, i % 2 ? "a" : "b", text, &e);
                for (int i = 0; r == 0 && i < 1000; i++) {
                        char key[16];
                        snprintf(key, sizeof(key), "k%d", i);
                        r = store_value_set(s, key, text, &e);
                }
                _exit(e.code == ERR_QUOTA ? 0 : 2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_disk_full(void **state) {
        test_with_mount(&(OwnMount) {"tmpfs", dir, "tmpfs", 0, "size=512k"}, fill_disk);
}

#define FILE_TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh_dir, drop_dir)

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_slots_against_model),
                FILE_TEST(test_instances),
                cmocka_unit_test(test_warnings),
                cmocka_unit_test(test_values),
                cmocka_unit_test(test_condemned),
                cmocka_unit_test(test_corrupt),
                FILE_TEST(test_nothing_of_before),
                FILE_TEST(test_newer_and_odd),
                FILE_TEST(test_size_limit),
                FILE_TEST(test_disk_full),
        };
        return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Secrets at rest: what is sealed opens with its key, under its name and version, and otherwise not; no byte of a value is in any file;
// bindings hold nothing that a validator refuses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/strv.h"
#include "secret/binding.h"
#include "secret/ended.h"
#include "secret/mint.h"

#define TEXT "correct-horse-battery-staple"

typedef struct World {
        char directory[64], credentials[80];
        int fd;
        Store *store;
        Vault vault;
} World;

static int setup(void **state) {
        World *w = calloc(1, sizeof(*w));
        _cleanup_free_ char *db = NULL;

        snprintf(w->directory, sizeof(w->directory), "/tmp/hostd-test-secret.XXXXXX");
        assert_non_null(mkdtemp(w->directory));
        snprintf(w->credentials, sizeof(w->credentials), "%s/credentials", w->directory);
        assert_int_equal(mkdir(w->credentials, 0700), 0);
        w->fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(asprintf(&db, "%s/state.db", w->directory) > 0);
        assert_true(store_open(db, &w->store, NULL) >= 0);
        assert_int_equal(seal_open(w->fd, NULL, &w->vault.seal, NULL), 0);
        w->vault.store = w->store;
        *state = w;
        return 0;
}

static int teardown(void **state) {
        World *w = *state;

        seal_free(w->vault.seal);
        store_close(w->store);
        close(w->fd);
        assert_int_equal(io_remove_tree(AT_FDCWD, w->directory), 0);
        free(w);
        return 0;
}

static Value *value_of(const char *text) {
        Value *value = NULL;

        assert_int_equal(value_new(strlen(text), &value), 0);
        memcpy(value->data, text, strlen(text));
        return value;
}

static void reopen(World *w, const char *credentials) {
        w->vault.seal = seal_free(w->vault.seal);
        assert_int_equal(seal_open(w->fd, credentials, &w->vault.seal, NULL), 0);
}

static void refused(int r, const Error *err, ErrorCode code) {
        assert_true(r < 0);
        if (err->code != code)
                fail_msg("code %d instead of %d: %s", err->code, code, error_message(err, r));
        assert_null(strstr(err->message, TEXT));
}

static void test_seal_opens_what_it_sealed(void **state) {
        _cleanup_(value_freep) Value *value = value_of(TEXT), *opened = NULL;
        _cleanup_free_ char *one = NULL, *two = NULL;
        World *w = *state;

        assert_int_equal(seal_encrypt(w->vault.seal, "a/b", value, &one, NULL), 0);
        assert_int_equal(seal_encrypt(w->vault.seal, "a/b", value, &two, NULL), 0);
        assert_string_not_equal(one, two);
        assert_null(strstr(one, TEXT));
        reopen(w, NULL); // the key is on disk
        assert_int_equal(seal_decrypt(w->vault.seal, "a/b", one, &opened, NULL), 0);
        assert_int_equal(opened->size, strlen(TEXT));
        assert_string_equal((char *) opened->data, TEXT);
}

static void test_seal_refuses_what_was_changed(void **state) {
        static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        _cleanup_(value_freep) Value *value = value_of(TEXT);
        _cleanup_free_ char *text = NULL;
        World *w = *state;

        assert_int_equal(seal_encrypt(w->vault.seal, "secret/x/1", value, &text, NULL), 0);
        for (size_t i = 0; i <= strlen(text); i++) { // each character, and last of all none
                _cleanup_(value_freep) Value *opened = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                char *at = strchr(alphabet, text[i]), before = text[i];
                if (before == '=')
                        continue;
                if (before)
                        text[i] = at[1] ? at[1] : 'A';
                int r = seal_decrypt(w->vault.seal, before ? "secret/x/1" : "secret/x/2", text, &opened, &err);
                refused(r, &err, ERR_CONFLICT);
                assert_null(opened);
                text[i] = before;
        }
        for (size_t n = 0; n < strlen(text); n += 3) { // and shorter ones
                _cleanup_(value_freep) Value *opened = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_free_ char *cut = strndup(text, n);
                refused(seal_decrypt(w->vault.seal, "secret/x/1", cut, &opened, &err), &err, ERR_CONFLICT);
        }
}

static void test_key_file_is_ours_alone(void **state) {
        World *w = *state;
        struct stat st;

        assert_int_equal(fstatat(w->fd, SEAL_KEY_FILE, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_size, 32);
        static const struct { mode_t mode; off_t size; ErrorCode code; } cases[] = {{0640, 32, ERR_DENIED}, {0604, 32, ERR_DENIED}, {0600, 31, ERR_CONFLICT}, {0600, 33, ERR_CONFLICT}};
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_(seal_freep) Seal *seal = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                assert_int_equal(fchmodat(w->fd, SEAL_KEY_FILE, cases[i].mode, 0), 0);
                _cleanup_close_ int fd = openat(w->fd, SEAL_KEY_FILE, O_WRONLY | O_CLOEXEC);
                assert_int_equal(ftruncate(fd, cases[i].size), 0);
                refused(seal_open(w->fd, NULL, &seal, &err), &err, cases[i].code);
        }
}

static void test_credential_seals_and_file_still_opens(void **state) {
        _cleanup_(value_freep) Value *value = value_of(TEXT), *opened = NULL, *again = NULL, *lost = NULL;
        _cleanup_free_ char *by_file = NULL, *by_credential = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        World *w = *state;
        unsigned char key[32];

        memset(key, 7, sizeof(key));
        assert_int_equal(seal_encrypt(w->vault.seal, "a", value, &by_file, NULL), 0);
        _cleanup_close_ int dir = open(w->credentials, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(io_write_atomic(dir, SEAL_CREDENTIAL, key, sizeof(key), 0400), 0);
        reopen(w, w->credentials);
        assert_int_equal(seal_encrypt(w->vault.seal, "a", value, &by_credential, NULL), 0);
        assert_int_equal(seal_decrypt(w->vault.seal, "a", by_file, &opened, NULL), 0);
        assert_int_equal(unlinkat(w->fd, SEAL_KEY_FILE, 0), 0);
        reopen(w, w->credentials); // makes no file of its own
        assert_int_equal(faccessat(w->fd, SEAL_KEY_FILE, F_OK, 0), -1);
        assert_int_equal(seal_decrypt(w->vault.seal, "a", by_credential, &again, NULL), 0);
        assert_string_equal((char *) again->data, TEXT);
        refused(seal_decrypt(w->vault.seal, "a", by_file, &lost, &err), &err, ERR_CONFLICT);
        assert_non_null(strstr(err.message, "another key"));
}

static void test_children_find_nothing(void **state) {
        _cleanup_(value_freep) Value *value = value_of(TEXT);
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(memcmp(value->data, TEXT, strlen(TEXT)) == 0 ? 1 : value->data[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_string_equal((char *) value->data, TEXT);
}

static void no_file_has(const char *directory, const char *text) {
        char *const argv[] = {"/usr/bin/env", "grep", "-rlaF", "--", (char *) text, (char *) directory, NULL};
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                execv(argv[0], argv);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WEXITSTATUS(status), 1); // grep: nothing was found
}

static void test_secret_life(void **state) {
        _cleanup_(value_freep) Value *one = value_of(TEXT), *two = value_of(TEXT "-2"), *got = NULL, *gone = NULL, *empty = value_of("");
        World *w = *state;
        Secret secret, *list = NULL;
        size_t n = 0;

        {
                _cleanup_error_ Error a = ERROR_NULL, b = ERROR_NULL, c = ERROR_NULL, d = ERROR_NULL;
                refused(secret_rotate(&w->vault, "token", one, &a), &a, ERR_NOT_FOUND);
                refused(secret_add(&w->vault, "token", empty, &b), &b, ERR_INVALID);
                refused(secret_add(&w->vault, "To ken", one, &c), &c, ERR_INVALID);
                assert_int_equal(secret_add(&w->vault, "token", one, NULL), 0);
                refused(secret_add(&w->vault, "token", two, &d), &d, ERR_EXISTS);
        }
        assert_int_equal(secret_get(&w->vault, "token", &secret, NULL), 0);
        assert_int_equal(secret.version, 1);
        assert_true(secret.created > 0 && secret.rotated == secret.created);
        assert_int_equal(secret_rotate(&w->vault, "token", two, NULL), 0);
        assert_int_equal(secret_value(&w->vault, "token", &got, NULL), 0);
        assert_string_equal((char *) got->data, TEXT "-2");
        assert_int_equal(secret_list(&w->vault, &list, &n, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(list[0].version, 2);
        free(list);
        no_file_has(w->directory, TEXT);
        assert_int_equal(secret_remove(&w->vault, "token", NULL), 0);
        assert_int_equal(secret_remove(&w->vault, "token", NULL), 0);
        _cleanup_error_ Error e = ERROR_NULL;
        refused(secret_value(&w->vault, "token", &gone, &e), &e, ERR_NOT_FOUND);
}

// A record under another name, or an older version's sealed text in a newer record, does not open.
static void test_records_do_not_change_places(void **state) {
        _cleanup_(value_freep) Value *value = value_of(TEXT), *got = NULL, *stale = NULL;
        _cleanup_free_ char *first = NULL, *moved = NULL;
        _cleanup_error_ Error a = ERROR_NULL, b = ERROR_NULL;
        World *w = *state;
        char *version;

        assert_int_equal(secret_add(&w->vault, "token", value, NULL), 0);
        assert_int_equal(store_value_get(w->store, "secret/token", &first, NULL), 0);
        assert_int_equal(store_value_set(w->store, "secret/other", first, NULL), 0);
        refused(secret_value(&w->vault, "other", &got, &a), &a, ERR_CONFLICT);
        moved = strdup(first);
        version = strstr(moved, "\"version\":1");
        assert_non_null(version);
        version[10] = '2';
        assert_int_equal(store_value_set(w->store, "secret/token", moved, NULL), 0);
        refused(secret_value(&w->vault, "token", &stale, &b), &b, ERR_CONFLICT);
}

static Binding *binding_of(BindingPlace place, const char *field) {
        Binding *b = calloc(1, sizeof(Binding));

        snprintf(b->secret, sizeof(b->secret), "token");
        snprintf(b->instance, sizeof(b->instance), "one");
        b->host = strdup("api.example.com");
        b->port = 443;
        b->place = place;
        b->field = field ? strdup(field) : NULL;
        return b;
}

static void test_binding_comes_back_as_it_was(void **state) {
        _cleanup_(binding_freep) Binding *b = binding_of(BINDING_HEADER, "Authorization");
        World *w = *state;
        Binding **list = NULL;
        unsigned damaged = 0;
        size_t n = 0;

        assert_int_equal(strv_append(&b->methods, "GET"), 0);
        assert_int_equal(strv_append(&b->paths, "/v1/"), 0);
        b->until = clock_realtime() + USEC_PER_SEC;
        assert_int_equal(binding_add(&w->vault, b, NULL, 0, NULL), 0);
        assert_int_equal(strlen(b->placeholder), strlen(BINDING_PLACEHOLDER) + 32);
        assert_int_equal(store_value_set(w->store, "binding/0123456789abcdef", "{\"host\":\"api.example.com\"}", NULL), 0);
        assert_int_equal(store_value_set(w->store, "binding/0123456789abcdee", "no json", NULL), 0);
        assert_int_equal(store_value_set(w->store, "binding/0123456789abcded", "{\"paths\":[1]}", NULL), 0);
        assert_int_equal(binding_list(&w->vault, &list, &n, &damaged, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(damaged, 3);
        json_t *one = binding_to_json(b), *two = binding_to_json(list[0]);
        assert_true(json_equal(one, two));
        json_decref(one);
        json_decref(two);
        assert_false(binding_is_over(list[0], b->until - 1));
        assert_true(binding_is_over(list[0], b->until));
        bindings_free(list, n);
        assert_int_equal(binding_remove(&w->vault, b->id, NULL), 0);
}

// Each field with what would break out of a configuration, a header or a request.
static void test_binding_refuses(void **state) {
        static const char *const hosts[] = {"", "localhost", "API.example.com", "api.example.com.", "*.example.com", "10.0.0.1", "a..example.com", "-a.example.com",
                                            "a b.example.com", "a.example.com\n", "a.example.com'", "a\".example.com", "a%[x].example.com", "\xc3\xa9.example.com"};
        static const char *const headers[] = {"", "Host", "content-length", "Transfer-Encoding", "x y", "x:y", "x\r\ny", "x%[env(A)]", "x\"", "x'", "x{", "x#", "x\\", "-x", "1x"};
        static const char *const queries[] = {"", "a&b", "a=b", "a b", "a%20", "a#", "a\"", "a'", "a(b", "a$", "a,b"};
        static const char *const paths[] = {"", "v1", "/a//b", "/../a", "/./a", "/.git", "/a b", "/a?b", "/a%2f", "/a\"", "/a'", "/a\\b", "/a;b", "/a\n", "/a{b}", "/a#b"};
        static const char *const methods[] = {"", "get", "GET POST", "G\"", "PATCH'"};
        const struct { const char *const *list; size_t n; } tables[] = {
                {hosts, ELEMENTS(hosts)}, {headers, ELEMENTS(headers)}, {queries, ELEMENTS(queries)}, {paths, ELEMENTS(paths)}, {methods, ELEMENTS(methods)}};
        World *w = *state;

        for (size_t t = 0; t < ELEMENTS(tables); t++)
                for (size_t i = 0; i < tables[t].n; i++) {
                        _cleanup_(binding_freep) Binding *b = binding_of(t == 2 ? BINDING_QUERY : BINDING_HEADER, t == 1 || t == 2 ? tables[t].list[i] : "X-Key");
                        _cleanup_error_ Error err = ERROR_NULL;
                        if (t == 0) {
                                free(b->host);
                                b->host = strdup(hosts[i]);
                        } else if (t == 3)
                                assert_int_equal(strv_append(&b->paths, paths[i]), 0);
                        else if (t == 4)
                                assert_int_equal(strv_append(&b->methods, methods[i]), 0);
                        if (binding_add(&w->vault, b, NULL, 0, &err) >= 0)
                                fail_msg("table %zu: \"%s\" was taken", t, tables[t].list[i]);
                        assert_int_equal(err.code, ERR_INVALID);
                }
        _cleanup_(binding_freep) Binding *inject = binding_of(BINDING_QUERY, "key"), *user = binding_of(BINDING_BASIC, NULL), *nobody = binding_of(BINDING_BASIC, NULL),
                                         *word = binding_of(BINDING_HEADER, "X-Key"), *port = binding_of(BINDING_HEADER, "X-Key");
        inject->inject = true;
        user->user = strdup("me");
        nobody->inject = true;
        word->word = strdup("Bearer");
        port->port = 0;
        Binding *wrong[] = {inject, user, nobody, word, port};
        for (size_t i = 0; i < ELEMENTS(wrong); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                refused(binding_add(&w->vault, wrong[i], NULL, 0, &err), &err, ERR_INVALID);
        }
}

static Binding *file_of(uint32_t owner) {
        Binding *b = binding_of(BINDING_FILE, NULL);

        free(TAKE_PTR(b->host));
        b->port = 0;
        b->owner = owner;
        return b;
}

static void test_binding_file(void **state) {
        _cleanup_(binding_freep) Binding *b = file_of(1000), *again = file_of(0), *host = binding_of(BINDING_FILE, NULL), *port = file_of(0), *inject = file_of(0),
                                         *path = file_of(0), *owner = file_of(BINDING_OWNER_MAX + 1), *wire = binding_of(BINDING_BASIC, NULL);
        _cleanup_(value_freep) Value *lines = value_of("-----BEGIN\nkey\n\xff\n");
        Binding **list = NULL, *wrong[] = {host, port, inject, path, owner, wire};
        World *w = *state;
        unsigned damaged;
        size_t n = 0;

        assert_int_equal(binding_add(&w->vault, b, NULL, 0, NULL), 0);
        assert_string_equal(b->placeholder, "");
        assert_int_equal(binding_check_value(b, lines, NULL), 0);
        assert_int_equal(binding_list(&w->vault, &list, &n, &damaged, NULL), 0);
        assert_int_equal(n, 1);
        json_t *one = binding_to_json(b), *two = binding_to_json(list[0]);
        assert_true(json_equal(one, two));
        assert_int_equal(list[0]->owner, 1000);
        json_decref(one);
        json_decref(two);
        {
                _cleanup_error_ Error err = ERROR_NULL;
                refused(binding_add(&w->vault, again, list, n, &err), &err, ERR_EXISTS); // one path
        }
        assert_false(binding_clashes(b, wire));
        bindings_free(list, n);
        port->port = 443;
        inject->inject = true;
        assert_int_equal(strv_append(&path->paths, "/v1"), 0);
        wire->owner = 1;
        for (size_t i = 0; i < ELEMENTS(wrong); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                refused(binding_add(&w->vault, wrong[i], NULL, 0, &err), &err, ERR_INVALID);
        }
        free(TAKE_PTR(wire->host));
        wire->owner = 0;
        _cleanup_error_ Error err = ERROR_NULL;
        refused(binding_add(&w->vault, wire, NULL, 0, &err), &err, ERR_INVALID); // a host is asked for in words
        assert_string_equal(err.field, "host");
        assert_int_equal(binding_remove(&w->vault, b->id, NULL), 0);
}

static void test_mint_records(void **state) {
        Mint mint = {.secret = "token", .user = "nobody", .life = 3600 * USEC_PER_SEC, .ends = 1000 * USEC_PER_SEC}, *list = NULL;
        World *w = *state;
        unsigned damaged;
        size_t n = 0;

        mint.command = strdup("/usr/bin/mint");
        assert_int_equal(mint_check(&mint, NULL), 0);
        assert_int_equal(mint_keep(&w->vault, &mint, NULL), 0);
        assert_int_equal(store_value_set(w->store, "mint/broken", "{}", NULL), 0);
        assert_int_equal(store_value_set(w->store, "mint/relative", "{\"command\":\"mint\",\"user\":\"nobody\",\"life\":3600000000,\"ends\":0}", NULL), 0);
        assert_int_equal(mint_list(&w->vault, &list, &n, &damaged, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(damaged, 2);
        assert_string_equal(list[0].secret, "token");
        assert_string_equal(list[0].command, "/usr/bin/mint");
        assert_true(list[0].life == mint.life && list[0].ends == mint.ends);
        assert_true(mint_renew_at(&mint) == mint.ends - 900 * USEC_PER_SEC);
        mint_done(&list[0]);
        free(list);
        assert_int_equal(mint_remove(&w->vault, "token", NULL), 0);
        mint.life = MINT_LIFE_MAX + 1;
        _cleanup_error_ Error err = ERROR_NULL;
        refused(mint_check(&mint, &err), &err, ERR_INVALID);
        mint_done(&mint);
}

static void test_binding_values(void **state) {
        static const char *const bad[] = {"a\nb", "a\r", "\tb", " a", "a ", "\x7f", "\xc3\xa9", "a\r\nX: y"};
        _cleanup_(binding_freep) Binding *b = binding_of(BINDING_HEADER, "X-Key");
        _cleanup_(value_freep) Value *good = value_of("Token with \"quotes\", %[x] and ; \\ #"), *big = NULL;
        _cleanup_error_ Error e = ERROR_NULL;

        assert_int_equal(binding_check_value(b, good, NULL), 0);
        for (size_t i = 0; i < ELEMENTS(bad); i++) {
                _cleanup_(value_freep) Value *value = value_of(bad[i]);
                _cleanup_error_ Error err = ERROR_NULL;
                refused(binding_check_value(b, value, &err), &err, ERR_INVALID);
        }
        assert_int_equal(value_new(BINDING_VALUE_MAX + 1, &big), 0);
        memset(big->data, 'a', big->size);
        refused(binding_check_value(b, big, &e), &e, ERR_INVALID);
}

static void test_binding_clashes(void **state) {
        _cleanup_(binding_freep) Binding *ph = binding_of(BINDING_HEADER, "Authorization"), *basic = binding_of(BINDING_BASIC, NULL), *other = binding_of(BINDING_HEADER, "X-Key"),
                                         *query = binding_of(BINDING_QUERY, "Authorization"), *inject = binding_of(BINDING_HEADER, "authorization");
        _cleanup_error_ Error err = ERROR_NULL;
        World *w = *state;

        inject->inject = true;
        assert_false(binding_clashes(ph, basic));
        assert_true(binding_clashes(ph, inject));
        assert_true(binding_clashes(inject, basic));
        assert_false(binding_clashes(inject, other));
        assert_false(binding_clashes(inject, query));
        refused(binding_add(&w->vault, inject, &ph, 1, &err), &err, ERR_CONFLICT);
        inject->port = 8443;
        assert_int_equal(binding_add(&w->vault, inject, &ph, 1, NULL), 0);
        assert_int_equal(inject->placeholder[0], 0);
}

// What one place says is enough, whichever; what is no id is nobody's.
static void test_ended(void **state) {
        static const char a[] = "0123456789abcdef", b[] = "fedcba9876543210";
        char path[] = "/tmp/hostd-test-ended.XXXXXX";
        int directories[2], none[2] = {-EBADF, -EBADF};
        Ended *ended = NULL;
        char id[17];

        assert_non_null(mkdtemp(path));
        directories[0] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(directories[0], "run", 0700), 0);
        directories[1] = openat(directories[0], "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(ended_open(none, &ended) < 0);
        assert_int_equal(ended_open(directories, &ended), 0);
        assert_false(ended_has(ended, a));
        assert_false(ended_has(ended, "                "));
        assert_true(ended_add(ended, "") < 0 && ended_add(ended, "0123456789ABCDEF") < 0 && ended_add(ended, "                ") < 0);
        assert_true(ended_add(ended, a) == 0 && ended_add(ended, a) == 0 && ended_add(ended, b) == 0);
        ended = ended_free(ended);
        for (int place = 0; place < 2; place++) { // each of them gone in turn
                assert_int_equal(unlinkat(directories[place], ENDED_FILE, 0), 0);
                assert_int_equal(ended_open(directories, &ended), 0);
                assert_true(ended_has(ended, a) && ended_has(ended, b) && !ended_has(ended, "0000000000000000"));
                ended = ended_free(ended);
        }
        assert_int_equal(ended_open(directories, &ended), 0);
        ended_remove(ended, a);
        ended_remove(ended, a);
        ended = ended_free(ended);
        assert_int_equal(ended_open((int[]) {directories[0], -EBADF}, &ended), 0);
        assert_true(!ended_has(ended, a) && ended_has(ended, b));
        for (unsigned i = 1; i < ENDED_MAX; i++) {
                snprintf(id, sizeof(id), "%016x", i);
                assert_int_equal(ended_add(ended, id), 0);
        }
        assert_int_equal(ended_add(ended, a), -ENOSPC);
        ended_remove(ended, b);
        assert_int_equal(ended_add(ended, a), 0);
        ended = ended_free(ended);
        assert_int_equal(io_write_atomic(directories[0], ENDED_FILE, "not what it was\n", 16, 0600), 0);
        assert_int_equal(unlinkat(directories[1], ENDED_FILE, 0), 0);
        assert_int_equal(ended_open(directories, &ended), 0);
        assert_false(ended_has(ended, a));
        ended = ended_free(ended);
        (void) close(directories[0]);
        (void) close(directories[1]);
        (void) io_remove_tree(AT_FDCWD, path);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ended),
                cmocka_unit_test_setup_teardown(test_seal_opens_what_it_sealed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_seal_refuses_what_was_changed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_key_file_is_ours_alone, setup, teardown),
                cmocka_unit_test_setup_teardown(test_credential_seals_and_file_still_opens, setup, teardown),
                cmocka_unit_test_setup_teardown(test_children_find_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(test_secret_life, setup, teardown),
                cmocka_unit_test_setup_teardown(test_records_do_not_change_places, setup, teardown),
                cmocka_unit_test_setup_teardown(test_binding_comes_back_as_it_was, setup, teardown),
                cmocka_unit_test_setup_teardown(test_binding_refuses, setup, teardown),
                cmocka_unit_test_setup_teardown(test_binding_file, setup, teardown),
                cmocka_unit_test_setup_teardown(test_mint_records, setup, teardown),
                cmocka_unit_test_setup_teardown(test_binding_values, setup, teardown),
                cmocka_unit_test_setup_teardown(test_binding_clashes, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Lists of files as streams: order, depth, searches, what cannot be read, and streams that a hostile guest could write.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/tree_list.h"

static int scratch;
static char scratch_path[64];

static int setup(void **state) {
        (void) snprintf(scratch_path, sizeof(scratch_path), "/tmp/hostd-tree-list.XXXXXX");
        assert_non_null(mkdtemp(scratch_path));
        scratch = open(scratch_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(scratch >= 0);
        assert_int_equal(io_mkdir_p(scratch, "t/b/c/d", 0755), 0);
        assert_int_equal(io_mkdir_p(scratch, "t/a", 0755), 0);
        assert_int_equal(io_write_atomic(scratch, "t/a/one.c", "12345", 5, 0640), 0);
        assert_int_equal(io_write_atomic(scratch, "t/b/c/d/two.c", "", 0, 0600), 0);
        assert_int_equal(io_write_atomic(scratch, "t/b/x\n\033[1m", "", 0, 0600), 0);
        assert_int_equal(symlinkat("../../t", scratch, "t/b/round.c"), 0);
        assert_int_equal(mkfifoat(scratch, "t/fifo", 0644), 0);
        return 0;
}

static int teardown(void **state) {
        (void) close(scratch);
        return io_remove_tree(AT_FDCWD, scratch_path);
}

typedef struct Got {
        char text[4096]; // paths, each with a newline escaped, and a space behind
        TreeEntry last;
} Got;

static int got_entry(const TreeEntry *entry, void *userdata) {
        Got *got = userdata;
        size_t n = strlen(got->text);

        (void) snprintf(got->text + n, sizeof(got->text) - n, "%s ", strchr(entry->path, '\n') ? "NEWLINE" : entry->path);
        got->last = *entry;
        return 0;
}

static int list(const char *name, const TreeListOptions *options, TreeListing *listing, Got *got) {
        _cleanup_close_ int fd = memfd_create("list", MFD_CLOEXEC);
        int r;

        *got = (Got) {0};
        *listing = (TreeListing) {.fn = got_entry, .userdata = got};
        r = tree_list(scratch, name, fd, options, NULL);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        if (r >= 0)
                assert_int_equal(tree_listing_read(listing, fd, NULL), 0);
        return r;
}

static void test_depth(void **state) {
        static const struct {
                unsigned depth;
                const char *paths;
        } cases[] = {
                {0, "a b fifo "},
                {1, "a b fifo "},
                {2, "a a/one.c b b/c b/round.c NEWLINE fifo "},
                {3, "a a/one.c b b/c b/c/d b/round.c NEWLINE fifo "},
                {64, "a a/one.c b b/c b/c/d b/c/d/two.c b/round.c NEWLINE fifo "},
                {1000, "a a/one.c b b/c b/c/d b/c/d/two.c b/round.c NEWLINE fifo "},
        };
        TreeListing listing;
        Got got;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                assert_int_equal(list("t", &(TreeListOptions) {.depth = cases[i].depth}, &listing, &got), 0);
                assert_string_equal(got.text, cases[i].paths);
                assert_false(listing.cut);
                assert_int_equal(listing.unread, 0);
        }
        assert_int_equal(list("t", &(TreeListOptions) {.depth = 9, .limits.max_entries = 5}, &listing, &got), -EDQUOT);
        assert_int_equal(list("t", &(TreeListOptions) {.depth = 9, .limits.max_depth = 2}, &listing, &got), 0);
        assert_string_equal(got.text, cases[2].paths);
        assert_int_equal(list("none", NULL, &listing, &got), -ENOENT);
}

static void test_one(void **state) {
        TreeListing listing;
        struct stat st;
        Got got;

        assert_int_equal(fstatat(scratch, "t/a/one.c", &st, 0), 0);
        assert_int_equal(list("t/a/one.c", &(TreeListOptions) {.self = true}, &listing, &got), 0);
        assert_string_equal(got.text, ". ");
        assert_int_equal(got.last.type, TREE_FILE);
        assert_int_equal(got.last.mode, S_IFREG | 0640);
        assert_int_equal(got.last.size, 5);
        assert_int_equal(got.last.links, 1);
        assert_int_equal(got.last.mtime_sec, st.st_mtim.tv_sec);
        assert_true(got.last.btime_sec == 0 || (got.last.btime_sec <= got.last.mtime_sec && got.last.btime_sec > got.last.mtime_sec - 100));
        assert_int_equal(list("t/b/round.c", &(TreeListOptions) {.self = true}, &listing, &got), 0);
        assert_int_equal(got.last.type, TREE_LINK);
        assert_string_equal(got.last.target, "../../t");
        assert_int_equal(list("t/fifo", &(TreeListOptions) {.self = true}, &listing, &got), 0);
        assert_int_equal(got.last.type, TREE_OTHER);
        assert_int_equal(list("t", &(TreeListOptions) {.self = true}, &listing, &got), 0);
        assert_int_equal(got.last.type, TREE_DIR);
        assert_int_equal(list("t/a/one.c", NULL, &listing, &got), 0); // a list of a file is that file
        assert_string_equal(got.text, "t/a/one.c ");
        assert_int_equal(list("t/x", &(TreeListOptions) {.self = true}, &listing, &got), -ENOENT);
}

static void test_search(void **state) {
        static const struct {
                const char *pattern;
                uint64_t max;
                const char *paths;
                bool cut;
        } cases[] = {
                {"*.c", 0, "a/one.c b/c/d/two.c b/round.c ", false},
                {"**", 0, "a/one.c b/c/d/two.c b/round.c NEWLINE fifo ", false},
                {"?ne.c", 0, "a/one.c ", false},
                {"[ot]*o*.c", 0, "b/c/d/two.c ", false},
                {"b", 0, "", false}, // a directory
                {"a/*", 0, "", false},
                {"*.c", 2, "a/one.c b/c/d/two.c ", true},
                {"*.c", 3, "a/one.c b/c/d/two.c b/round.c ", false},
        };
        TreeListing listing;
        Got got;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                assert_int_equal(list("t", &(TreeListOptions) {.pattern = cases[i].pattern, .max_matches = cases[i].max}, &listing, &got), 0);
                assert_string_equal(got.text, cases[i].paths);
                assert_int_equal(listing.cut, cases[i].cut);
        }
        assert_int_equal(list("t/a/one.c", &(TreeListOptions) {.pattern = "*.c"}, &listing, &got), 0);
        assert_string_equal(got.text, ". ");
        assert_int_equal(list("t/a/one.c", &(TreeListOptions) {.pattern = "two*"}, &listing, &got), 0);
        assert_string_equal(got.text, "");
        assert_int_equal(list("t", &(TreeListOptions) {.pattern = "*.c", .limits.max_entries = 4}, &listing, &got), 0);
        assert_true(listing.cut);
        assert_int_equal(list("t", &(TreeListOptions) {.pattern = "*.c", .limits.max_depth = 2}, &listing, &got), 0);
        assert_string_equal(got.text, "a/one.c b/round.c ");
        assert_int_equal(listing.unread, 1); // b/c, which nobody looked into
}

static void test_unreadable(void **state) {
        TreeListing listing;
        Got got;

        if (geteuid() == 0)
                assert_int_equal(seteuid(65534), 0);
        else
                assert_int_equal(fchmodat(scratch, "t/b/c", 0, 0), 0);
        // As nobody, all of it is as closed as its top is.
        int r = list("t", &(TreeListOptions) {.depth = 9}, &listing, &got);
        if (getuid() == 0) {
                assert_int_equal(r, -EACCES);
                assert_int_equal(seteuid(0), 0);
                assert_int_equal(fchmod(scratch, 0755), 0);
                assert_int_equal(fchmodat(scratch, "t/b/c", 0700, 0), 0);
                assert_int_equal(seteuid(65534), 0);
                r = list("t", &(TreeListOptions) {.depth = 9}, &listing, &got);
                assert_int_equal(seteuid(0), 0);
        }
        assert_int_equal(fchmodat(scratch, "t/b/c", 0755, 0), 0);
        assert_int_equal(r, 0);
        assert_string_equal(got.text, "a a/one.c b b/c b/round.c NEWLINE fifo ");
        assert_int_equal(listing.unread, 1);
}

static void test_many(void **state) {
        TreeListing listing;
        char name[32];
        Got got;

        assert_int_equal(mkdirat(scratch, "many", 0755), 0);
        for (int i = 0; i < 20000; i++) {
                (void) snprintf(name, sizeof(name), "many/%05d", i);
                int fd = openat(scratch, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                assert_true(fd >= 0);
                (void) close(fd);
        }
        assert_int_equal(list("many", &(TreeListOptions) {.pattern = "1999?"}, &listing, &got), 0);
        assert_string_equal(got.text, "19990 19991 19992 19993 19994 19995 19996 19997 19998 19999 ");
        assert_int_equal(list("many", &(TreeListOptions) {.limits.max_entries = 19999}, &listing, &got), -EDQUOT);
        assert_int_equal(list("many", NULL, &listing, &got), 0);
        assert_string_equal(got.last.path, "19999");
}

// One record and an end, as somebody could send them.
static int read_record(const char *magic, const TreeEntry *entry, bool info, TreeListing *listing) {
        _cleanup_close_ int fd = memfd_create("record", MFD_CLOEXEC);
        uint8_t buf[2 * TREE_WIRE_MAX];
        TreeEntry end = {.type = TREE_END, .size = 1, .count = 7, .change = listing->cut ? TREE_CHANGES_CUT : 0};
        size_t n = tree_encode_entry(entry, info, buf);

        n += tree_encode_entry(&end, info, buf + n);
        assert_int_equal(write(fd, magic, TREE_MAGIC_SIZE), TREE_MAGIC_SIZE);
        assert_int_equal(write(fd, buf, n), (ssize_t) n);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        return tree_listing_read(listing, fd, NULL);
}

static void test_hostile(void **state) {
        static const TreeEntry good = {.type = TREE_FILE, .mode = S_IFREG | 0644, .path = "a/b", .links = 2, .count = 3, .btime_sec = 4, .btime_nsec = 5};
        Got got = {0};
        TreeListing listing = {.fn = got_entry, .userdata = &got};
        static const char *const paths[] = {"", "/a", "a//b", "../a", "a/..", "a/./b"};
        TreeEntry bad = good;

        assert_int_equal(read_record(TREE_MAGIC_INFO, &good, true, &listing), 0);
        assert_true(got.last.links == 2 && got.last.count == 3 && got.last.btime_sec == 4 && got.last.btime_nsec == 5);
        assert_true(!listing.cut && listing.unread == 7);
        listing.cut = true;
        assert_int_equal(read_record(TREE_MAGIC_INFO, &good, true, &listing), 0);
        assert_true(listing.cut);
        listing.cut = false;
        // An older helper's: no slash, nothing more behind a record.
        assert_int_equal(read_record(TREE_MAGIC, &good, false, &listing), -EBADMSG);
        (void) strcpy(bad.path, "b");
        assert_int_equal(read_record(TREE_MAGIC, &bad, false, &listing), 0);
        assert_true(got.last.links == 0 && got.last.btime_sec == 0);
        assert_int_equal(read_record("hostdin2", &good, true, &listing), -EBADMSG);
        for (size_t i = 0; i < ELEMENTS(paths); i++) {
                bad = good;
                (void) strcpy(bad.path, paths[i]);
                assert_int_equal(read_record(TREE_MAGIC_INFO, &bad, true, &listing), -EBADMSG);
        }
        bad = good;
        bad.btime_nsec = 1000000000;
        assert_int_equal(read_record(TREE_MAGIC_INFO, &bad, true, &listing), -EBADMSG);
        bad = good;
        bad.change = 'C';
        assert_int_equal(read_record(TREE_MAGIC_INFO, &bad, true, &listing), -EBADMSG); // nobody watches
        listing.events = true;
        assert_int_equal(read_record(TREE_MAGIC_INFO, &bad, true, &listing), 0);
        assert_int_equal(read_record(TREE_MAGIC_INFO, &good, true, &listing), -EBADMSG); // an event of no kind
        bad.change = 'x';
        assert_int_equal(read_record(TREE_MAGIC_INFO, &bad, true, &listing), -EBADMSG);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_depth, setup, teardown),   cmocka_unit_test_setup_teardown(test_one, setup, teardown),
                cmocka_unit_test_setup_teardown(test_search, setup, teardown),  cmocka_unit_test_setup_teardown(test_unreadable, setup, teardown),
                cmocka_unit_test_setup_teardown(test_many, setup, teardown),    cmocka_unit_test(test_hostile),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

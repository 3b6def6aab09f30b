// SPDX-License-Identifier: GPL-2.0-or-later
// Trees as streams: round trips, and streams that a hostile guest could write.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/tree_list.h"

typedef struct Scratch {
        char path[64];
        int fd;
} Scratch;

static int scratch_setup(void **state) {
        Scratch *s = calloc(1, sizeof(*s));

        (void) snprintf(s->path, sizeof(s->path), "/tmp/hostd-tree.XXXXXX");
        assert_non_null(mkdtemp(s->path));
        s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(s->fd >= 0);
        *state = s;
        return 0;
}

static int scratch_teardown(void **state) {
        Scratch *s = *state;

        (void) close(s->fd);
        assert_int_equal(io_remove_tree(AT_FDCWD, s->path), 0);
        free(s);
        return 0;
}

static int stream_new(void) {
        int fd = memfd_create("tree", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static int put_file(int dir, const char *name, const char *text, mode_t mode) {
        return io_write_atomic(dir, name, text, strlen(text), mode);
}

static void assert_file(int dir, const char *path, const char *text, mode_t mode) {
        _cleanup_free_ char *got = NULL;
        struct stat st;

        assert_int_equal(io_read_file(dir, path, 1 << 20, &got, NULL), 0);
        assert_string_equal(got, text);
        assert_int_equal(fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(st.st_mode & 07777, mode);
}

// As one who is less trusted than whoever removes might make it.
static void test_removal_has_a_depth(void **state) {
        Scratch *s = *state;
        int r = 0, top = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), at = top;

        for (unsigned i = 0; i < 2000; i++) {
                int next;
                assert_int_equal(mkdirat(at, "d", 0755), 0);
                next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                (void) close(at);
                at = next;
        }
        (void) close(at);
        assert_int_equal(put_file(s->fd, "d/file", "x", 0600), 0);
        assert_int_equal(io_remove_tree(s->fd, "d"), -ELOOP);
        assert_int_equal(faccessat(s->fd, "d/file", F_OK, 0), -1); // what can go is gone
        assert_int_equal(faccessat(s->fd, "d/d", F_OK, 0), 0);
        for (unsigned i = 0; i < 2000 && (r = io_remove_tree(s->fd, "d")) == -ELOOP; i++) { // from below, as a person would
                int deep = openat(s->fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                for (unsigned k = 0; k < 100; k++) {
                        int next = openat(deep, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                        (void) close(deep);
                        assert_true((deep = next) >= 0);
                }
                assert_int_equal(renameat(deep, "d", s->fd, "rest"), 0);
                (void) close(deep);
                assert_int_equal(io_remove_tree(s->fd, "d"), 0);
                assert_int_equal(renameat(s->fd, "rest", s->fd, "d"), 0);
        }
        assert_int_equal(r, 0);
        assert_int_equal(faccessat(s->fd, "d", F_OK, 0), -1);
}

static void test_round_trip(void **state) {
        Scratch *s = *state;
        _cleanup_close_ int stream = stream_new();
        TreeOptions options = {.name = "copy"};
        struct stat st;
        char target[64] = "";
        mode_t closed = geteuid() == 0 ? 0500 : 0700;

        assert_int_equal(io_mkdir_p(s->fd, "src/a/b", 0755), 0);
        assert_int_equal(put_file(s->fd, "src/a/b/file", "hello", 0640), 0);
        assert_int_equal(put_file(s->fd, "src/empty", "", 04755), 0);
        assert_int_equal(symlinkat("../../etc/passwd", s->fd, "src/a/link"), 0);
        assert_int_equal(mkfifoat(s->fd, "src/fifo", 0600), 0);
        // A directory that its owner may not write is merged into by root only.
        assert_int_equal(fchmodat(s->fd, "src/a/b", closed, 0), 0);
        assert_int_equal(utimensat(s->fd, "src/a/b/file", (struct timespec[2]) {{7, 8}, {12345, 678}}, 0), 0);
        assert_int_equal(tree_pack(s->fd, "src", stream, NULL, NULL), 1); // the fifo stays behind
        for (int round = 0; round < 2; round++) { // the second one merges
                assert_int_equal(lseek(stream, 0, SEEK_SET), 0);
                assert_int_equal(tree_unpack(s->fd, stream, &options, NULL), 0);
        }
        assert_file(s->fd, "copy/a/b/file", "hello", 0640);
        assert_file(s->fd, "copy/empty", "", 04755);
        assert_int_equal(fstatat(s->fd, "copy/a/b/file", &st, 0), 0);
        assert_int_equal(st.st_mtim.tv_sec, 12345);
        assert_int_equal(st.st_mtim.tv_nsec, 678);
        assert_int_equal(fstatat(s->fd, "copy/a/b", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, closed);
        assert_true(readlinkat(s->fd, "copy/a/link", target, sizeof(target) - 1) > 0);
        assert_string_equal(target, "../../etc/passwd");

        options = (TreeOptions) {.name = "safe", .drop_special = true};
        assert_int_equal(lseek(stream, 0, SEEK_SET), 0);
        assert_int_equal(tree_unpack(s->fd, stream, &options, NULL), 0);
        assert_file(s->fd, "safe/empty", "", 0755);
}

static void test_single_file_and_dot(void **state) {
        Scratch *s = *state;
        _cleanup_close_ int stream = stream_new(), dir = -EBADF;

        assert_int_equal(put_file(s->fd, "one", "1", 0600), 0);
        assert_int_equal(tree_pack(s->fd, "one", stream, NULL, NULL), 0);
        assert_int_equal(lseek(stream, 0, SEEK_SET), 0);
        assert_int_equal(tree_unpack(s->fd, stream, &(TreeOptions) {.name = "two"}, NULL), 0);
        assert_file(s->fd, "two", "1", 0600);

        _cleanup_close_ int second = stream_new();
        assert_int_equal(io_mkdir_p(s->fd, "d/e", 0755), 0);
        assert_int_equal(mkdirat(s->fd, "into", 0700), 0);
        dir = openat(s->fd, "into", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(tree_pack(s->fd, "d", second, NULL, NULL), 0);
        assert_int_equal(lseek(second, 0, SEEK_SET), 0);
        assert_int_equal(tree_unpack(dir, second, &(TreeOptions) {.name = "."}, NULL), 0);
        assert_int_equal(faccessat(s->fd, "into/e", F_OK, 0), 0);
        static const char *const bad[] = {"", "..", "a/b", "/", "a/"};
        for (size_t i = 0; i < ELEMENTS(bad); i++)
                assert_true(tree_unpack(dir, second, &(TreeOptions) {.name = bad[i]}, NULL) < 0);
        // Neither a link nor a fifo is a root.
        assert_int_equal(symlinkat("one", s->fd, "ln"), 0);
        assert_int_equal(mkfifoat(s->fd, "ff", 0600), 0);
        assert_true(tree_pack(s->fd, "ln", second, NULL, NULL) < 0);
        assert_true(tree_pack(s->fd, "ff", second, NULL, NULL) < 0);
}

typedef struct Row {
        TreeType type;
        const char *path, *target;
        uint32_t mode;
} Row;
#define ROWS_MAX 4

static int stream_of(const Row *rows, uint64_t end) {
        TreeEntry *e = calloc(1, sizeof(*e));
        int fd = stream_new();

        assert_int_equal(io_write_all(fd, TREE_MAGIC, TREE_MAGIC_SIZE), 0);
        for (size_t i = 0; i < ROWS_MAX && rows[i].path; i++) {
                *e = (TreeEntry) {.type = rows[i].type, .mode = rows[i].mode ?: 0755};
                (void) snprintf(e->path, sizeof(e->path), "%s", rows[i].path);
                (void) snprintf(e->target, sizeof(e->target), "%s", rows[i].target ?: "");
                assert_int_equal(tree_write_entry(fd, e), 0);
                if (rows[i].type == TREE_FILE)
                        assert_int_equal(io_write_all(fd, "\4\0\0\0evil\0\0\0\0", 12), 0);
        }
        *e = (TreeEntry) {.type = TREE_END, .size = end};
        assert_int_equal(tree_write_entry(fd, e), 0);
        free(e);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        return fd;
}

static void test_hostile(void **state) {
        Scratch *s = *state;
        static const Row root = {TREE_DIR, "."};
        static const struct {
                Row rows[ROWS_MAX];
                uint64_t end;
        } cases[] = {
                {{{TREE_FILE, "a"}}, 1},
                {{root, {TREE_FILE, "/etc/x"}}, 2},
                {{root, {TREE_FILE, "../x"}}, 2},
                {{root, {TREE_FILE, "a/../../x"}}, 2},
                {{root, {TREE_FILE, ""}}, 2},
                {{root, {TREE_FILE, "a//b"}}, 2},
                {{root, {TREE_FILE, "a/"}}, 2},
                {{root, {TREE_FILE, "./a"}}, 2},
                {{root, {TREE_FILE, "."}}, 2},
                {{root, {TREE_OTHER, "dev"}}, 2},
                {{root, {TREE_LINK, "l"}}, 2},                                          // no target
                {{root, {TREE_DIR, "d", "t"}}, 2},                                      // a target without a link
                {{root, {TREE_FILE, "d", NULL, 0100644}}, 2},                           // type bits in a mode
                {{root, {TREE_LINK, "l", "/"}, {TREE_FILE, "l"}}, 3},                   // duplicate over a link
                {{root, {TREE_LINK, "l", "/"}, {TREE_DIR, "l"}}, 3},
                {{root, {TREE_LINK, "l", ".."}, {TREE_FILE, "l/x"}}, 3},                // through a link
                {{root, {TREE_DIR, "d"}, {TREE_FILE, "d"}}, 3},
                {{root, {TREE_FILE, "missing/x"}}, 2},
                {{{TREE_FILE, "."}, {TREE_FILE, "x"}}, 2},                              // below a file
                {{{TREE_LINK, ".", "/"}}, 1},
                {{root}, 7},                                                            // cut or padded
        };

        assert_int_equal(mkdirat(s->fd, "jail", 0755), 0);
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_close_ int fd = stream_of(cases[i].rows, cases[i].end);
                _cleanup_close_ int jail = openat(s->fd, "jail", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                _cleanup_error_ Error err = ERROR_NULL;
                int r = tree_unpack(jail, fd, &(TreeOptions) {.name = "t"}, &err);
                if (r >= 0 || !err.message)
                        fail_msg("case %zu was accepted", i);
                assert_int_not_equal(faccessat(s->fd, "x", F_OK, 0), 0);
                assert_int_not_equal(faccessat(s->fd, "jail/x", F_OK, 0), 0);
                assert_int_equal(io_remove_tree(jail, "t"), 0);
        }
}

static void test_existing_link(void **state) {
        Scratch *s = *state;
        static const Row rows[ROWS_MAX] = {{TREE_DIR, "."}, {TREE_FILE, "f"}};
        _cleanup_close_ int fd = stream_of(rows, 2);

        // A link where the root or a file should be is never written through.
        assert_int_equal(mkdirat(s->fd, "outside", 0755), 0);
        assert_int_equal(symlinkat("outside", s->fd, "t"), 0);
        assert_true(tree_unpack(s->fd, fd, &(TreeOptions) {.name = "t"}, NULL) < 0);
        assert_int_equal(unlinkat(s->fd, "t", 0), 0);
        assert_int_equal(mkdirat(s->fd, "t", 0755), 0);
        assert_int_equal(put_file(s->fd, "victim", "safe", 0644), 0);
        assert_int_equal(symlinkat("../victim", s->fd, "t/f"), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_true(tree_unpack(s->fd, fd, &(TreeOptions) {.name = "t"}, NULL) < 0);
        assert_file(s->fd, "victim", "safe", 0644);
        assert_int_not_equal(faccessat(s->fd, "outside/f", F_OK, 0), 0);
}

static void test_limits(void **state) {
        Scratch *s = *state;
        static const Row rows[ROWS_MAX] = {{TREE_DIR, "."}, {TREE_FILE, "a"}, {TREE_FILE, "b"}};
        static const TreeLimits tight[] = {{.max_entries = 2}, {.max_bytes = 7}};

        for (size_t i = 0; i < ELEMENTS(tight); i++) {
                _cleanup_close_ int fd = stream_of(rows, 3), out = stream_new();
                assert_int_equal(tree_unpack(s->fd, fd, &(TreeOptions) {.name = "t", .limits = tight[i]}, NULL), -EDQUOT);
                (void) put_file(s->fd, "t/a", "eviL", 0644);
                (void) put_file(s->fd, "t/b", "evil", 0644);
                assert_int_equal(tree_pack(s->fd, "t", out, &tight[i], NULL), -EDQUOT);
                assert_int_equal(io_remove_tree(s->fd, "t"), 0);
        }
        _cleanup_close_ int out = stream_new();
        assert_int_equal(io_mkdir_p(s->fd, "deep/1/2/3", 0755), 0);
        assert_int_equal(tree_pack(s->fd, "deep", out, &(TreeLimits) {.max_depth = 3}, NULL), -EDQUOT);
}

static void test_cut(void **state) {
        Scratch *s = *state;
        static const Row rows[ROWS_MAX] = {{TREE_DIR, "."}, {TREE_FILE, "a"}, {TREE_LINK, "l", "x"}};
        _cleanup_close_ int whole = stream_of(rows, 3);
        struct stat st;

        assert_int_equal(fstat(whole, &st), 0);
        for (off_t size = 0; size < st.st_size; size++) {
                _cleanup_close_ int fd = stream_of(rows, 3);
                assert_int_equal(ftruncate(fd, size), 0);
                assert_int_equal(tree_unpack(s->fd, fd, &(TreeOptions) {.name = "t"}, NULL), -EBADMSG);
        }
}

// One file of unknown size: whole or an error, whatever is missing or too much.
static void test_stream(void **state) {
        static const Row two[ROWS_MAX] = {{TREE_DIR, "."}, {TREE_FILE, "a"}};
        Scratch *s = *state;
        _cleanup_close_ int stream = stream_new(), out = stream_new(), in = stream_new(), tree = stream_of(two, 2);
        struct stat st;
        char got[8];

        assert_int_equal(write(in, "content", 7), 7);
        assert_int_equal(lseek(in, 0, SEEK_SET), 0);
        assert_int_equal(tree_pack_stream(in, "in", stream, NULL), 0);
        assert_int_equal(lseek(stream, 0, SEEK_SET), 0);
        assert_int_equal(tree_unpack_stream(stream, out, NULL), 0);
        assert_int_equal(pread(out, got, sizeof(got), 0), 7);
        assert_memory_equal(got, "content", 7);
        assert_int_equal(tree_unpack_stream(tree, out, NULL), -EBADMSG);
        assert_int_equal(fstat(stream, &st), 0);
        for (off_t size = st.st_size - 1; size >= 0; size--) {
                assert_int_equal(ftruncate(stream, size), 0);
                assert_int_equal(lseek(stream, 0, SEEK_SET), 0);
                assert_int_equal(tree_unpack_stream(stream, out, NULL), -EBADMSG);
        }
        assert_true(tree_pack_stream(s->fd, "dir", stream, NULL) < 0);
}

static void test_keep_owner(void **state) {
        static const Row rows[ROWS_MAX] = {{TREE_DIR, "."}, {TREE_FILE, "f"}};
        Scratch *s = *state;
        struct stat st;

        if (geteuid() != 0)
                skip();
        assert_int_equal(mkdirat(s->fd, "t", 0755), 0);
        for (int i = 0; i < 2; i++) {
                _cleanup_close_ int fd = stream_of(rows, 2);
                assert_int_equal(put_file(s->fd, "t/f", "old", 0644), 0);
                assert_int_equal(fchownat(s->fd, "t/f", 7, 8, 0), 0);
                assert_int_equal(tree_unpack(s->fd, fd, &(TreeOptions) {.name = "t", .keep_owner = i == 1}, NULL), 0);
                assert_int_equal(fstatat(s->fd, "t/f", &st, 0), 0);
                assert_int_equal(st.st_uid, i == 1 ? 7 : 0);
                assert_int_equal(st.st_gid, i == 1 ? 8 : getegid());
        }
}

static int list_row(const TreeEntry *entry, void *userdata);

// A name that is no name of a user, and names where none belong.
static void test_names(void **state) {
        static const struct {
                const char *owner;
                int list, tree;
        } cases[] = {{"", 0, 0}, {"agent", 0, -EBADMSG}, {"a b", -EBADMSG, -EBADMSG}, {"\033[1m", -EBADMSG, -EBADMSG}, {"\xc3\xa4", -EBADMSG, -EBADMSG}};
        Scratch *s = *state;

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_close_ int fd = stream_new();
                TreeEntry dir = {.type = TREE_DIR, .path = ".", .mode = 0755}, end = {.type = TREE_END, .size = 1};
                unsigned seen = 0;
                (void) snprintf(dir.owner, sizeof(dir.owner), "%s", cases[i].owner);
                assert_int_equal(write(fd, TREE_MAGIC, TREE_MAGIC_SIZE), TREE_MAGIC_SIZE);
                assert_int_equal(tree_write_entry(fd, &dir), 0);
                assert_int_equal(tree_write_entry(fd, &end), 0);
                assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
                assert_int_equal(tree_listing_read(&(TreeListing) {.fn = list_row, .userdata = &seen}, fd, NULL), cases[i].list);
                assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
                assert_int_equal(tree_unpack(s->fd, fd, &(TreeOptions) {.name = "t"}, NULL), cases[i].tree);
        }
}

static int list_row(const TreeEntry *entry, void *userdata) {
        unsigned *seen = userdata;

        if (strcmp(entry->path, "file") == 0 && S_ISREG(entry->mode) && entry->size == 5)
                *seen |= 1;
        if (strcmp(entry->path, "link") == 0 && S_ISLNK(entry->mode) && strcmp(entry->target, "to") == 0)
                *seen |= 2;
        if (strcmp(entry->path, "fifo") == 0 && S_ISFIFO(entry->mode))
                *seen |= 4;
        if (strcmp(entry->path, "file") == 0 && strcmp(entry->owner, "me") == 0 && strcmp(entry->group, "us") == 0)
                *seen |= 16;
        if (strcmp(entry->path, "new\nline") == 0 && S_ISDIR(entry->mode))
                *seen |= 8;
        return 0;
}

static void list_fill(TreeEntry *entry, void *userdata) {
        (void) snprintf(entry->owner, sizeof(entry->owner), "%s", (const char *) userdata);
        (void) snprintf(entry->group, sizeof(entry->group), "us");
}

static void test_list(void **state) {
        Scratch *s = *state;
        unsigned seen = 0;
        _cleanup_close_ int out = stream_new();

        assert_int_equal(io_mkdir_p(s->fd, "dir/new\nline", 0755), 0);
        assert_int_equal(put_file(s->fd, "dir/file", "hello", 0644), 0);
        assert_int_equal(symlinkat("to", s->fd, "dir/link"), 0);
        assert_int_equal(mkfifoat(s->fd, "dir/fifo", 0644), 0);
        assert_int_equal(tree_list(s->fd, "dir", out, &(TreeListOptions) {.fill = list_fill, .userdata = (char *) "me"}, NULL), 0);
        assert_int_equal(lseek(out, 0, SEEK_SET), 0);
        assert_int_equal(tree_listing_read(&(TreeListing) {.fn = list_row, .userdata = &seen}, out, NULL), 0);
        assert_int_equal(seen, 31);
        _cleanup_close_ int other = stream_new();
        assert_int_equal(tree_list(s->fd, "dir", other, &(TreeListOptions) {.limits.max_entries = 2}, NULL), -EDQUOT);
}

static void test_path_valid(void **state) {
        static const char *const good[] = {"a", "a/b", "...", ".hidden", "a b", "\xff\xfe", "..a"};
        static const char *const bad[] = {"", ".", "..", "/", "/a", "a/", "a//b", "a/./b", "a/..", "../a"};

        (void) state;
        for (size_t i = 0; i < ELEMENTS(good); i++)
                assert_true(tree_path_valid(good[i], strlen(good[i]), false));
        for (size_t i = 0; i < ELEMENTS(bad); i++)
                assert_false(tree_path_valid(bad[i], strlen(bad[i]), false));
        assert_true(tree_path_valid(".", 1, true));
        assert_false(tree_path_valid("a\0b", 3, false));
        char *longest = malloc(5000);
        memset(longest, 'a', 5000);
        for (size_t i = 200; i < 5000; i += 200)
                longest[i] = '/';
        assert_true(tree_path_valid(longest, 4095, false));
        assert_false(tree_path_valid(longest, 4096, false));
        memset(longest, 'a', 300);
        assert_false(tree_path_valid(longest, 256, false));
        free(longest);
}

#define SCRATCH_TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

static void test_reader_gone(void **state) {
        int in[2], out[2];

        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        assert_int_equal(write(in[1], "x", 1), 1);
        assert_true(tree_stream_is_read(in[0], out[1]));
        (void) close_fd(out[0]);
        assert_false(tree_stream_is_read(in[0], out[1])); // also where there is something to read
        assert_int_equal(read(in[0], &(char) {0}, 1), 1);
        assert_false(tree_stream_is_read(in[0], out[1])); // and it does not wait for more
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(in[i]);
        (void) close_fd(out[1]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                SCRATCH_TEST(test_removal_has_a_depth), SCRATCH_TEST(test_round_trip), SCRATCH_TEST(test_single_file_and_dot), SCRATCH_TEST(test_hostile),
                SCRATCH_TEST(test_existing_link), SCRATCH_TEST(test_limits),              SCRATCH_TEST(test_cut),
                SCRATCH_TEST(test_stream),        SCRATCH_TEST(test_keep_owner),          SCRATCH_TEST(test_names),
                SCRATCH_TEST(test_list),          cmocka_unit_test(test_path_valid), cmocka_unit_test(test_reader_gone),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

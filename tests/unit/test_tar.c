// SPDX-License-Identifier: GPL-2.0-or-later
// Trees to tar and back, what tar(1) makes of them, and tars that are refused.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/tree_tar.h"
#include "guest/tree_tar_format.h"

static int scratch;
static char scratch_path[64], long_name[201], long_target[301];

static int setup(void **state) {
        (void) snprintf(scratch_path, sizeof(scratch_path), "/tmp/hostd-tar.XXXXXX");
        assert_non_null(mkdtemp(scratch_path));
        scratch = open(scratch_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(scratch >= 0);
        memset(long_name, 'n', sizeof(long_name) - 1);
        memset(long_target, 't', sizeof(long_target) - 1);
        return 0;
}

static int teardown(void **state) {
        (void) close(scratch);
        return io_remove_tree(AT_FDCWD, scratch_path);
}

static int stream_new(void) {
        int fd = memfd_create("tar", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static void rewind_fd(int fd) {
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
}

static void put(const char *path, const char *text, mode_t mode) {
        assert_int_equal(io_write_atomic(scratch, path, text, strlen(text), mode), 0);
}

static bool has(const char *path, const char *text, mode_t mode) {
        _cleanup_free_ char *got = NULL;
        struct stat st;

        return io_read_file(scratch, path, 1 << 20, &got, NULL) == 0 && strcmp(got, text) == 0 && fstatat(scratch, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
               (st.st_mode & 07777) == mode;
}

static void make_tree(void) {
        char path[512];

        assert_int_equal(io_mkdir_p(scratch, "in/d/e", 0755), 0);
        put("in/d/e/f", "text", 0640);
        put("in/empty", "", 0600);
        put("in/new\nline \xff", "n", 0644);
        (void) snprintf(path, sizeof(path), "in/%s", long_name);
        put(path, "long", 0644);
        assert_int_equal(symlinkat(long_target, scratch, "in/d/far"), 0);
        assert_int_equal(symlinkat("e/f", scratch, "in/d/near"), 0);
        assert_int_equal(fchmodat(scratch, "in/d/e", 0711, 0), 0);
}

static void assert_tree(const char *top) {
        char path[512], target[512];
        struct stat st;

        (void) snprintf(path, sizeof(path), "%s/d/e/f", top);
        assert_true(has(path, "text", 0640));
        (void) snprintf(path, sizeof(path), "%s/empty", top);
        assert_true(has(path, "", 0600));
        (void) snprintf(path, sizeof(path), "%s/new\nline \xff", top);
        assert_true(has(path, "n", 0644));
        (void) snprintf(path, sizeof(path), "%s/%s", top, long_name);
        assert_true(has(path, "long", 0644));
        (void) snprintf(path, sizeof(path), "%s/d/far", top);
        assert_int_equal(readlinkat(scratch, path, target, sizeof(target)), 300);
        assert_memory_equal(target, long_target, 300);
        (void) snprintf(path, sizeof(path), "%s/d/e", top);
        assert_int_equal(fstatat(scratch, path, &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0711);
}

// tar(1) with a tar as its standard input or output.
static int tar_program(const char *options, const char *dir, int tar) {
        char command[256];
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                (void) snprintf(command, sizeof(command), "mkdir -p %s/%s && tar -C %s/%s %s", scratch_path, dir, scratch_path, dir, options);
                (void) dup2(tar, options[1] == 'x' ? 0 : 1);
                execl("/bin/sh", "sh", "-c", command, NULL);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static void test_both_ways(void **state) {
        _cleanup_close_ int tree = stream_new(), tar = stream_new(), again = stream_new();

        make_tree();
        assert_int_equal(tree_pack(scratch, "in", tree, NULL, NULL), 0);
        rewind_fd(tree);
        assert_int_equal(tree_to_tar(tree, tar, "x", NULL), 0);
        assert_int_equal(lseek(tar, 0, SEEK_END) % TAR_BLOCK, 0);
        rewind_fd(tar);
        assert_int_equal(tree_from_tar(tar, again, NULL), 0);
        rewind_fd(again);
        assert_int_equal(tree_unpack(scratch, again, &(TreeOptions) {.name = "out"}, NULL), 0);
        assert_tree("out");
        rewind_fd(tar);
        assert_int_equal(tar_program("-xpf - --warning=all", "theirs", tar), 0);
        assert_tree("theirs");
}

// What tar(1) makes, in each of its formats, is read.
static void test_theirs(void **state) {
        static const char *const formats[] = {"gnu", "pax", "posix", "oldgnu"};

        make_tree();
        for (size_t i = 0; i < ELEMENTS(formats); i++) {
                _cleanup_close_ int tar = stream_new(), tree = stream_new();
                char options[64];
                (void) snprintf(options, sizeof(options), "-cf - --format=%s .", formats[i]);
                assert_int_equal(tar_program(options, "in", tar), 0);
                rewind_fd(tar);
                assert_int_equal(tree_from_tar(tar, tree, NULL), 0);
                rewind_fd(tree);
                assert_int_equal(tree_unpack(scratch, tree, &(TreeOptions) {.name = formats[i]}, NULL), 0);
                assert_tree(formats[i]);
        }
        // Without directories of their own, and a pipe that is left out.
        _cleanup_close_ int tar = stream_new(), tree = stream_new();
        assert_int_equal(mkfifoat(scratch, "in/pipe", 0600), 0);
        assert_int_equal(tar_program("-cf - d/e/f pipe empty d/near", "in", tar), 0);
        rewind_fd(tar);
        assert_int_equal(tree_from_tar(tar, tree, NULL), 1);
        rewind_fd(tree);
        assert_int_equal(tree_unpack(scratch, tree, &(TreeOptions) {.name = "some"}, NULL), 0);
        assert_true(has("some/d/e/f", "text", 0640));
        assert_true(has("some/empty", "", 0600));
}

static int from_blocks(const TarHeader *headers, size_t n, Error *err) {
        _cleanup_close_ int tar = stream_new(), tree = stream_new();
        static const char end[2 * TAR_BLOCK];

        assert_int_equal(write(tar, headers, n * TAR_BLOCK), (ssize_t) (n * TAR_BLOCK));
        assert_int_equal(write(tar, end, sizeof(end)), (ssize_t) sizeof(end));
        rewind_fd(tar);
        return tree_from_tar(tar, tree, err);
}

static TarHeader header(const char *name, char type, const char *link, const char *size) {
        TarHeader h = {.mode = "0000644", .uid = "0000000", .gid = "0000000", .mtime = "00000000000", .type = type, .magic = "ustar", .version = {'0', '0'}};

        memcpy(h.name, name, strnlen(name, sizeof(h.name)));
        memcpy(h.link, link, strnlen(link, sizeof(h.link)));
        memcpy(h.size, size, strnlen(size, sizeof(h.size)));
        tar_checksum_set(&h);
        return h;
}

static void test_refused(void **state) {
        static const struct {
                const char *name, *link, *size;
                char type;
                const char *why; // NULL: it is taken
        } cases[] = {
                {"a", "", "00000000000", '0', NULL},
                {"./a", "", "0", '0', NULL},
                {"a/b/", "", "", '5', NULL},
                {"l", "/etc/shadow", "0", '2', NULL}, // a link is a link
                {"/etc/passwd", "", "0", '0', "absolute"},
                {"../a", "", "0", '0', "\"..\""},
                {"a/../b", "", "0", '0', "\"..\""},
                {"a//b", "", "0", '0', "path"},
                {"", "", "0", '0', NULL}, // the root, which is there already
                {"/", "", "0", '5', "absolute"},
                {"h", "a", "0", '1', "hard link"},
                {"s", "", "0", 'S', "sparse"},
                {"l", "", "0", '2', "nowhere"},
                {"a", "", "9", '0', "malformed"},
                {"a", "", "x", '0', "malformed"},
                {"a", "", "00000002000", '0', "too early"}, // 1024 bytes, which the end is taken for, and then there is none
                {"x", "", "77777777777", 'x', "too long"},
                {"dev", "", "0", '3', NULL},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                TarHeader h = header(cases[i].name, cases[i].type, cases[i].link, cases[i].size);
                _cleanup_error_ Error err = ERROR_NULL;
                int r = from_blocks(&h, 1, &err);
                if (cases[i].why) {
                        assert_int_equal(r, -EBADMSG);
                        assert_non_null(strstr(err.message, cases[i].why));
                } else
                        assert_true(r >= 0);
        }
        TarHeader bad = header("a", '0', "", "0");
        bad.name[0] = 'b';
        assert_int_equal(from_blocks(&bad, 1, NULL), -EBADMSG);
        // The empty one is an empty directory; without its end it was cut.
        assert_int_equal(from_blocks(NULL, 0, NULL), 0);
        _cleanup_close_ int tar = stream_new(), tree = stream_new();
        bad = header("a", '0', "", "0");
        assert_int_equal(write(tar, &bad, sizeof(bad)), (ssize_t) sizeof(bad));
        rewind_fd(tar);
        assert_int_equal(tree_from_tar(tar, tree, NULL), -EBADMSG);
}

// A tree whose file had more, or less, than it said first.
static void test_changed(void **state) {
        static const uint64_t sizes[] = {2, 700, 0};

        for (size_t i = 0; i < ELEMENTS(sizes); i++) {
                _cleanup_close_ int tree = stream_new(), tar = stream_new(), again = stream_new();
                TreeEntry entries[] = {{.type = TREE_DIR, .mode = 0755, .path = "."}, {.type = TREE_FILE, .mode = 0644, .path = "f", .size = sizes[i]}, {.type = TREE_END, .size = 2}};
                struct stat st;
                assert_int_equal(write(tree, TREE_MAGIC, TREE_MAGIC_SIZE), TREE_MAGIC_SIZE);
                assert_int_equal(tree_write_entry(tree, &entries[0]), 0);
                assert_int_equal(tree_write_entry(tree, &entries[1]), 0);
                assert_int_equal(write(tree, "\5\0\0\0hello\0\0\0\0", 13), 13);
                assert_int_equal(tree_write_entry(tree, &entries[2]), 0);
                rewind_fd(tree);
                assert_int_equal(tree_to_tar(tree, tar, "x", NULL), 1);
                rewind_fd(tar);
                assert_int_equal(tree_from_tar(tar, again, NULL), 0);
                rewind_fd(again);
                assert_int_equal(tree_unpack(scratch, again, &(TreeOptions) {.name = "t"}, NULL), 0);
                assert_int_equal(fstatat(scratch, "t/f", &st, 0), 0);
                assert_int_equal(st.st_size, sizes[i]);
        }
}

// What would be written through a link, or in the place of what is still to be filled, by who unpacks the tar. And no set-uid programs.
static void test_places(void **state) {
        static const struct {
                const char *what;
                bool good;
                struct {
                        TreeType type;
                        const char *path;
                } entries[5];
        } cases[] = {
                {"in order", true, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_LINK, "a/l"}, {TREE_DIR, "a/b"}, {TREE_FILE, "a/f"}}},
                {"back at the top", true, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_DIR, "a/b"}, {TREE_FILE, "f"}, {TREE_LINK, "ab"}}},
                {"below a link", false, {{TREE_DIR, "."}, {TREE_LINK, "a"}, {TREE_FILE, "a/passwd"}}},
                {"below a link below", false, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_LINK, "a/b"}, {TREE_FILE, "a/b/c"}}},
                {"a directory where a link was", false, {{TREE_DIR, "."}, {TREE_LINK, "a"}, {TREE_DIR, "a"}}},
                {"a file where a link was", false, {{TREE_DIR, "."}, {TREE_LINK, "a"}, {TREE_FILE, "a"}}},
                {"a link where a directory is open", false, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_LINK, "a"}}},
                {"and one above", false, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_DIR, "a/b"}, {TREE_LINK, "a"}}},
                {"a link, and the directory again", false, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_DIR, "b"}, {TREE_LINK, "a"}, {TREE_DIR, "a"}}},
                {"in a directory that is closed", false, {{TREE_DIR, "."}, {TREE_DIR, "a"}, {TREE_DIR, "b"}, {TREE_FILE, "a/x"}}},
                {"in none", false, {{TREE_DIR, "."}, {TREE_FILE, "a/x"}}},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_close_ int tree = stream_new(), tar = stream_new();
                _cleanup_error_ Error err = ERROR_NULL;
                TarHeader h;
                int r;
                size_t n = 0;
                assert_int_equal(write(tree, TREE_MAGIC, TREE_MAGIC_SIZE), TREE_MAGIC_SIZE);
                for (; n < ELEMENTS(cases[i].entries) && cases[i].entries[n].path; n++) {
                        TreeEntry entry = {.type = cases[i].entries[n].type, .mode = 07755};
                        (void) snprintf(entry.path, sizeof(entry.path), "%s", cases[i].entries[n].path);
                        if (entry.type == TREE_LINK)
                                (void) snprintf(entry.target, sizeof(entry.target), "/etc");
                        assert_int_equal(tree_write_entry(tree, &entry), 0);
                        if (entry.type == TREE_FILE)
                                assert_int_equal(write(tree, "\0\0\0\0", 4), 4);
                }
                assert_int_equal(tree_write_entry(tree, &(TreeEntry) {.type = TREE_END, .size = n}), 0);
                rewind_fd(tree);
                r = tree_to_tar(tree, tar, "x", &err);
                if ((r == 0) != cases[i].good)
                        fail_msg("%s: %d, %s", cases[i].what, r, error_message(&err, r));
                rewind_fd(tar);
                assert_int_equal(read(tar, &h, sizeof(h)), sizeof(h));
                assert_memory_equal(h.mode, "0000755", 7);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_both_ways, setup, teardown), cmocka_unit_test_setup_teardown(test_theirs, setup, teardown),
                cmocka_unit_test(test_refused), cmocka_unit_test_setup_teardown(test_changed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

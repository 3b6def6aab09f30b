// SPDX-License-Identifier: GPL-2.0-or-later
// Hostile archives: each row is one archive of a few entries, written by libarchive, and what is said about it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <archive.h>
#include <archive_entry.h>
#include <cmocka.h>

#include "base/io.h"
#include "build/root.h"
#include "build/unpack.h"

typedef struct Entry {
        char type; // f file, d directory, l symlink, h hard link, c b p devices and fifo
        const char *path, *target;
        int64_t size;
        int64_t uid;
} Entry;

static const int entry_types[128] = {['f'] = AE_IFREG, ['d'] = AE_IFDIR, ['l'] = AE_IFLNK, ['h'] = AE_IFREG,
                                     ['c'] = AE_IFCHR, ['b'] = AE_IFBLK, ['p'] = AE_IFIFO};

static int make_archive(const Entry *entries, size_t n, int (*filter)(struct archive *)) {
        static const char zeros[65536];
        int fd = memfd_create("archive", MFD_CLOEXEC);
        struct archive *a = archive_write_new();

        assert_true(fd >= 0 && a);
        (void) archive_write_set_format_pax_restricted(a);
        if (filter)
                assert_int_equal(filter(a), ARCHIVE_OK);
        assert_int_equal(archive_write_open_fd(a, fd), ARCHIVE_OK);
        for (size_t i = 0; i < n && entries[i].path; i++) {
                struct archive_entry *e = archive_entry_new();
                archive_entry_set_pathname(e, entries[i].path);
                archive_entry_set_filetype(e, (unsigned) entry_types[(int) entries[i].type]);
                archive_entry_set_perm(e, 0755);
                // The test needs no root: what it unpacks is its own.
                archive_entry_set_uid(e, entries[i].uid ?: (int64_t) getuid());
                archive_entry_set_gid(e, (int64_t) getgid());
                if (entries[i].type == 'l')
                        archive_entry_set_symlink(e, entries[i].target);
                if (entries[i].type == 'h')
                        archive_entry_set_hardlink(e, entries[i].target);
                archive_entry_set_size(e, entries[i].size);
                assert_true(archive_write_header(a, e) >= ARCHIVE_WARN);
                for (int64_t left = entries[i].size; left > 0; left -= sizeof(zeros))
                        assert_true(archive_write_data(a, zeros, (size_t) MIN2(left, (int64_t) sizeof(zeros))) > 0);
                archive_entry_free(e);
        }
        assert_int_equal(archive_write_free(a), ARCHIVE_OK);
        assert_true(lseek(fd, 0, SEEK_SET) == 0);
        return fd;
}

typedef struct Scratch {
        char path[64];
        int fd;
} Scratch;

static void scratch_open(Scratch *s) {
        (void) snprintf(s->path, sizeof(s->path), "/tmp/hostd-test-unpack-XXXXXX");
        assert_non_null(mkdtemp(s->path));
        assert_int_equal(io_mkdir_p(AT_FDCWD, s->path, 0700), 0);
        char root[80];
        (void) snprintf(root, sizeof(root), "%s/root", s->path);
        assert_int_equal(mkdir(root, 0700), 0);
        s->fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(s->fd >= 0);
}

static void scratch_close(Scratch *s) {
        (void) close_fd(s->fd);
        assert_int_equal(io_remove_tree(AT_FDCWD, s->path), 0);
}

static char long_name[300], deep_path[600];

static void test_hostile(void **state) {
        static const struct {
                Entry entries[4];
                const char *message; // NULL: accepted
        } rows[] = {
                {{{'f', "/etc/x"}}, "absolute path"},
                {{{'f', "../x"}}, "\"..\" in its path"},
                {{{'f', "a/../../x"}}, "\"..\" in its path"},
                {{{'d', "a/.."}}, "\"..\" in its path"},
                {{{'l', "a", "../x"}}, "leads out of the root"},
                {{{'l', "a/b", "../../x"}}, "leads out of the root"},
                {{{'l', "a/b", "../x"}}, NULL},
                {{{'l', "a", "/../../etc"}}, "leads out of the root"},
                {{{'l', "a", "/etc/passwd"}}, NULL},
                {{{'l', "a", "/"}, {'f', "a/tmp/x"}}, "behind a link"},
                {{{'l', "a", "b"}, {'d', "b"}, {'f', "a/x"}}, "behind a link"},
                {{{'l', "a", "b"}, {'f', "a"}}, "comes twice"},
                {{{'l', "a", "/tmp"}, {'d', "a"}}, "where a link"},
                {{{'f', "a"}, {'f', "a"}}, "comes twice"},
                {{{'f', "a"}, {'l', "a", "b"}}, "comes twice"},
                {{{'f', "a"}, {'f', "a/b"}}, "behind a link or a file"},
                {{{'d', "a"}, {'d', "a"}}, NULL},
                {{{'h', "a", "/etc/passwd"}}, "leads out"},
                {{{'h', "a", "../x"}}, "leads out"},
                {{{'h', "a", "none"}}, "is no file"},
                {{{'l', "l", "/etc/passwd"}, {'h', "a", "l"}}, "is no file"},
                {{{'l', "l", "/etc"}, {'h', "a", "l/passwd"}}, "behind a link"},
                {{{'f', "f"}, {'h', "a", "f"}}, NULL},
                {{{'c', "dev/null"}}, "device node"},
                {{{'b', "sda"}}, "device node"},
                {{{'p', "fifo"}}, "fifo"},
                {{{'l', ".", "/etc"}}, "root something else"},
                {{{'f', "a", NULL, 0, 70000}}, "beyond 65535"},
                {{{'f', long_name}}, "too long"},
                {{{'d', deep_path}}, "too deep"},
                {{{'d', "./a/./b/"}, {'f', "./a//b/c"}}, NULL},
        };
        UnpackLimits limits = UNPACK_LIMITS_DEFAULT;

        memset(long_name, 'x', 290);
        for (size_t i = 0; i < 290; i++)
                memcpy(deep_path + 2 * i, "d/", 2);
        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_close_ int fd = make_archive(rows[i].entries, 4, NULL);
                Scratch s;
                scratch_open(&s);
                int r = unpack_tar(fd, s.fd, &limits, NULL, &err);
                bool right = rows[i].message ? r < 0 && strstr(error_message(&err, r), rows[i].message) : r >= 0;
                if (!right)
                        fail_msg("row %zu: %d \"%s\"", i, r, r < 0 ? error_message(&err, r) : "accepted");
                scratch_close(&s);
        }
}

static void expect(const Entry *entries, size_t n, int (*filter)(struct archive *), const UnpackLimits *limits, const char *message) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_close_ int fd = make_archive(entries, n, filter);
        Scratch s;

        scratch_open(&s);
        int r = unpack_tar(fd, s.fd, limits, NULL, &err);
        if (message ? r >= 0 || !strstr(error_message(&err, r), message) : r < 0)
                fail_msg("\"%s\": %d %s", message ?: "", r, error_message(&err, r));
        scratch_close(&s);
}

static void test_limits(void **state) {
        const Entry three[] = {{'f', "a", NULL, 1000}, {'f', "b", NULL, 1000}, {'f', "c", NULL, 1000}};
        const Entry bomb[] = {{'f', "a", NULL, 4 << 20}};
        UnpackLimits limits = UNPACK_LIMITS_DEFAULT;

        expect(three, 3, NULL, &limits, NULL);
        limits.entries = 2;
        expect(three, 3, NULL, &limits, "one entry too many");
        limits = UNPACK_LIMITS_DEFAULT;
        limits.bytes = 2500;
        expect(three, 3, NULL, &limits, "limit on unpacked bytes");
        limits = UNPACK_LIMITS_DEFAULT;
        limits.ratio_above = 1 << 20;
        expect(bomb, 1, NULL, &limits, NULL);
        expect(bomb, 1, archive_write_add_filter_gzip, &limits, "bomb");
        expect(bomb, 1, archive_write_add_filter_xz, &limits, "bomb");
        expect(bomb, 1, archive_write_add_filter_zstd, &limits, "bomb");
        limits.ratio_above = UINT64_MAX;
        expect(bomb, 1, archive_write_add_filter_zstd, &limits, NULL);
        expect(bomb, 1, archive_write_add_filter_bzip2, &limits, "no tar archive");
}

static void test_roots(void **state) {
        static const struct {
                Entry entries[4];
                const char *message;
        } rows[] = {
                {{{'d', "etc"}, {'f', "sbin/init"}}, NULL},
                {{{'l', "sbin", "usr/sbin"}, {'f', "usr/sbin/init"}}, NULL},
                {{{'d', "etc"}}, "no executable /sbin/init"},
                {{{'l', "sbin/init", "/lib/nothing"}}, "no executable /sbin/init"},
                {{{'f', "sbin/init"}, {'l', "dev", "/"}}, "/dev is no directory but a link"},
                {{{'f', "sbin/init"}, {'l', "proc", "tmp"}}, "/proc is no directory but a link"},
                {{{'f', "sbin/init"}, {'f', "sys"}}, "/sys is no directory"},
                {{{'f', "sbin/init"}, {'l', "etc", "/etc"}}, "/etc is no directory but a link"},
        };
        UnpackLimits limits = UNPACK_LIMITS_DEFAULT;

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                _cleanup_error_ Error err = ERROR_NULL;
                _cleanup_close_ int fd = make_archive(rows[i].entries, 4, NULL);
                Scratch s;
                scratch_open(&s);
                assert_int_equal(unpack_tar(fd, s.fd, &limits, NULL, NULL), 0);
                int r = root_check(s.fd, &err);
                if (rows[i].message ? r >= 0 || !strstr(error_message(&err, r), rows[i].message) : r < 0)
                        fail_msg("row %zu: %d %s", i, r, error_message(&err, r));
                scratch_close(&s);
        }
}

// A tree becomes a stream and a tree again.
static void test_directory(void **state) {
        const Entry tree[] = {{'d', "etc"}, {'f', "etc/a", NULL, 10}, {'h', "etc/b", "etc/a"}, {'l', "l", "etc/a"}};
        UnpackLimits limits = UNPACK_LIMITS_DEFAULT;
        _cleanup_close_ int fd = make_archive(tree, 4, NULL), stream = memfd_create("stream", MFD_CLOEXEC);
        struct stat a, b;
        Scratch from, to;

        scratch_open(&from);
        scratch_open(&to);
        assert_int_equal(unpack_tar(fd, from.fd, &limits, NULL, NULL), 0);
        assert_int_equal(unpack_pack_directory(from.fd, stream, NULL), 0);
        assert_true(lseek(stream, 0, SEEK_SET) == 0);
        assert_int_equal(unpack_tar(stream, to.fd, &limits, NULL, NULL), 0);
        assert_int_equal(fstatat(to.fd, "etc/a", &a, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(fstatat(to.fd, "etc/b", &b, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(a.st_ino, b.st_ino);
        assert_int_equal(a.st_size, 10);
        assert_int_equal(fstatat(to.fd, "l", &b, AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISLNK(b.st_mode));
        scratch_close(&from);
        scratch_close(&to);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile), cmocka_unit_test(test_limits),
                                           cmocka_unit_test(test_roots), cmocka_unit_test(test_directory)};
        return cmocka_run_group_tests(tests, NULL, NULL);
}

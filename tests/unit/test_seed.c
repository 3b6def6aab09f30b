// SPDX-License-Identifier: GPL-2.0-or-later
// Seeds: those that ship are valid, come once, and never over what an operator made of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "core/seed.h"
#include "model/desired.h"

static void test_seeds(void **state) {
        static const char *const wanted[] = {"apis", "doh", "git", "internal", "llm", "web", "webhooks"};
        char top[] = "/tmp/test_seed.XXXXXX";
        _cleanup_free_ char *from = NULL, *etc = NULL, *file = NULL, *text = NULL;
        _cleanup_(desired_freep) Desired *desired = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        assert_non_null(mkdtemp(top));
        assert_true(asprintf(&from, "%s/categories", getenv("srcdir") ?: ".") > 0 && asprintf(&etc, "%s/etc", top) > 0);
        assert_int_equal(setenv("HOSTD_CATEGORYDIR", from, 1), 0);
        if (seed_categories(etc, &err) < 0)
                fail_msg("%s", error_message(&err, 0));
        fd = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        if (desired_load(fd, &desired, &err) < 0)
                fail_msg("%s", error_message(&err, 0));
        assert_int_equal(desired->n_categories, ELEMENTS(wanted));
        for (size_t i = 0; i < ELEMENTS(wanted); i++)
                assert_string_equal(desired->categories[i]->name, wanted[i]);
        assert_string_equal(desired_find_category(desired, "web")->entries[0], "*");
        assert_int_equal(fstatat(fd, "categories.d/git.conf", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0644);
        assert_int_equal(faccessat(fd, "categories.d/Makefile.inc", F_OK, 0), -1);
        // the operator's
        assert_int_equal(unlinkat(fd, "categories.d/llm.conf", 0), 0);
        assert_int_equal(io_write_atomic(fd, "categories.d/git.conf", "git.example.org\n", 16, 0644), 0);
        assert_int_equal(seed_categories(etc, NULL), 0);
        assert_int_equal(faccessat(fd, "categories.d/llm.conf", F_OK, 0), -1);
        assert_int_equal(io_read_file(fd, "categories.d/git.conf", 100, &text, NULL), 0);
        assert_string_equal(text, "git.example.org\n");
        // a crash in the middle of it; and nothing that ships
        assert_int_equal(renameat(fd, "categories.d", fd, ".categories.d.new"), 0);
        assert_int_equal(seed_categories(etc, NULL), 0);
        assert_int_equal(faccessat(fd, "categories.d/llm.conf", F_OK, 0), 0);
        assert_int_equal(io_remove_tree(fd, "categories.d"), 0);
        assert_int_equal(setenv("HOSTD_CATEGORYDIR", "/nonexistent", 1), 0);
        assert_int_equal(seed_categories(etc, NULL), 0);
        assert_int_equal(faccessat(fd, "categories.d", F_OK, 0), -1);
        assert_int_equal(io_remove_tree(AT_FDCWD, top), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}

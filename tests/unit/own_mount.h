// SPDX-License-Identifier: GPL-2.0-or-later
// A test in a mount namespace of its own, with one mount more than the machine has: a small disk, or something in a program's place.
// To be included after cmocka.h.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct OwnMount {
        const char *source, *target, *type;
        unsigned long flags;
        const char *options;
} OwnMount;

// In a child; `fn` returns 0 if all is well, else a number of its own. Skips where nothing may be mounted.
static inline void test_with_mount(const OwnMount *m, int (*fn)(void)) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                    mount(m->source, m->target, m->type, m->flags, m->options) < 0)
                        _exit(77);
                _exit(fn());
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
                print_message("SKIP: nothing can be mounted here\n");
                skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
}

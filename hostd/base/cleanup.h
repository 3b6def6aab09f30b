// SPDX-License-Identifier: GPL-2.0-or-later
// Scope-exit ownership: each owning local names its destructor once, and TAKE_* hands the value over.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _printf_(fmt, first) __attribute__((format(printf, fmt, first)))
#define _unused_ __attribute__((unused))

#define ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))
#define MIN2(a, b) ((a) < (b) ? (a) : (b))
#define MAX2(a, b) ((a) > (b) ? (a) : (b))

#define TAKE_PTR(ptr)                         \
        ({                                    \
                __typeof__(ptr) _p = (ptr);   \
                (ptr) = NULL;                 \
                _p;                           \
        })

#define TAKE_FD(fd)                 \
        ({                          \
                int _f = (fd);      \
                (fd) = -EBADF;      \
                _f;                 \
        })

// Declares x_freep() for a destructor `type *fn(type *)` or `void fn(type *)`.
#define DEFINE_CLEANUP(type, fn)                                      \
        static inline _unused_ void fn##p(type **p) {                 \
                if (*p)                                               \
                        fn(*p);                                       \
                *p = NULL;                                            \
        }

static inline void freep(void *p) {
        free(*(void **) p);
}

static inline _unused_ int close_fd(int fd) {
        // Keeps errno: closing is what happens on the way out of an error.
        int saved = errno;
        if (fd >= 0)
                (void) close(fd);
        errno = saved;
        return -EBADF;
}

static inline _unused_ void closep(int *fd) {
        *fd = close_fd(*fd);
}

static inline _unused_ void fclosep(FILE **f) {
        if (*f)
                (void) fclose(*f);
        *f = NULL;
}

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)

// SPDX-License-Identifier: GPL-2.0-or-later
// Git: runs /usr/bin/git on one repository and nothing else. Internal to ConfDir.
//
// The argument vector, the environment and the configuration are fixed here: no hooks, no signing, no file system monitor, no
// system or user configuration, no terminal, no pager. Callers add a subcommand and arguments that they have checked.
#pragma once

#include <stdbool.h>

#include "base/error.h"

typedef struct Git {
        const char *path;  // work tree, absolute; borrowed
        const char *index; // another index file than the repository's, or NULL; borrowed
} Git;

#define GIT_OUTPUT_MAX (8u << 20)

// Blocks. `arguments` is NULL-terminated. Returns git's exit status or a negative errno; only the latter fills err. `ret_output` may
// be NULL; longer output than GIT_OUTPUT_MAX is -EFBIG. Death by a signal is -EINTR.
int git_run(const Git *git, const char *const *arguments, char **ret_output, Error *err);
// As git_run(), but a status other than 0 is an error with what git said.
int git_check(const Git *git, const char *const *arguments, char **ret_output, Error *err);
#define GIT_ARGUMENTS(...) ((const char *const[]) {__VA_ARGS__, NULL})
bool git_is_installed(void);
// As git_check(), with `input` on standard input; `ret` (may be NULL) gets all the output, a NUL behind it that is not counted. What
// is longer than GIT_INPUT_MAX is -EFBIG. For git's own batch languages, whose texts are not answers to anybody.
#define GIT_INPUT_MAX (256u << 20)
typedef struct GitText {
        char *data; // owned
        size_t size;
} GitText;
int git_filter(const Git *git, const char *const *arguments, const GitText *input, GitText *ret, Error *err);

// SPDX-License-Identifier: GPL-2.0-or-later
// Running hostctl ($HOSTCTL, else ./hostctl) against the fake hostd, with files below fake_dir for its streams.
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "fake_hostd.h"

typedef struct Outcome {
        int status; // 1000 and the number for a signal
        char *out, *err;
        size_t out_size;
} Outcome;
void outcome_done(Outcome *outcome);
#define _cleanup_outcome_ _cleanup_(outcome_done)

// `words` are split at blanks, so no word has one; `input` is a file below fake_dir, NULL: /dev/null.
Outcome run_input(const char *input, const char *words);
#define run(words) run_input(NULL, words)
void run_ok(const char *format, ...) _printf_(1, 2);
// The exit status, all of standard output (NULL: whatever) and a piece of standard error.
void expect(const char *words, int status, const char *out, const char *err);

pid_t spawn(char *const *argv, int in, int out, int err);
int wait_status(pid_t pid);
int scratch(const char *name, int flags); // a file below fake_dir
char *content(const char *name, size_t *ret_size);
void wait_for(const char *name, const char *text); // until the file has it
void script(const char *name, const char *text);
// The words that have the instance run a script: "exec one OPTIONS sh DIR/NAME".
char *exec_script(const char *options, const char *name, const char *text);

// SPDX-License-Identifier: GPL-2.0-or-later
// File verbs of hostctl, inside: a call with one pipe.
#pragma once

#include "cli/cli.h"

typedef struct FileTransfer {
        Cli *cli;
        const Args *args;
        bool recursive;
        bool tar; // recursive, and on our side it is a tar
        json_t *parameters; // of this one call
} FileTransfer;

// Sends the call with one end of a new pipe and returns ours.
int file_transfer_start(FileTransfer *t, bool push, int *ret_fd, Error *err);
// hostd's sentence is better than ours (`local`) where both failed.
int file_transfer_end(FileTransfer *t, int local, Error *local_err, Error *err);
// Puts the two parts of NAME:PATH into the call.
int file_transfer_place(FileTransfer *t, const char *location, Error *err);
// Several, or a place that ends with a slash: each goes below it by its own name. Caller frees; NULL on OOM.
char *file_place_below(const char *place, const char *source, bool below);
// hostctl's line on how the command is used; returns the exit status.
int file_usage(const Args *args);

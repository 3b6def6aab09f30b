// SPDX-License-Identifier: GPL-2.0-or-later
// Denied: the last denials, as hostd tells of them, in a file that whoever works in the instance can read.
//
// A child writes it, one at a time: what is at that place is the guest's own, and may hang.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "guest/proto.h"

#define DENIED_LINES 50
#define DENIED_FILE "/run/hostd/denied"

typedef struct DeniedList {
        char lines[DENIED_LINES][GUEST_DENIED_TEXT]; // a ring
        size_t n, next;
        pid_t writer; // 0: none
        bool due;     // something is not in the file yet
} DeniedList;

// `text` is a line of printable characters without its newline; of anything else nothing is taken.
void denied_add(DeniedList *list, const char *text, size_t size);
void denied_flush(DeniedList *list);
bool denied_reaped(DeniedList *list, pid_t pid); // whether it was the writer
// What the child does; `path` is absolute.
int denied_write(const DeniedList *list, const char *path);

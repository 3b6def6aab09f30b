// SPDX-License-Identifier: GPL-2.0-or-later
// Escape: attempts to reach the host from inside an instance. Each tries one thing by every door that it has and says how far it
// came; whether the host was touched is looked at from the host (host.py), never believed from here.
//
//   escape NAME [ARG...]  prints a line for each: OUTCOME DETAIL, with OUTCOME "done", "hang", "killed" or the name of an errno
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

typedef struct Attempt {
        const char *name;
        int (*run)(const char *arg); // 0: it worked. Negative errno: it was refused
        bool stays;                  // until it is killed
} Attempt;

extern const Attempt attempts_mount[], attempts_device[], attempts_process[], attempts_kernel[], attempts_network[], attempts_tree[], attempts_reach[];

// Appends to the detail of the line.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
// -errno of a call that returned r.
static inline int result(long r) { return r < 0 ? -errno : 0; }
// Of several doors: 0 as soon as one is open, else the refusal of the last one.
typedef struct Doors {
        int result;
} Doors;
void door(Doors *doors, const char *name, long r);

// A mount namespace of our own, below a user namespace of our own unless we are root already. Nothing that is mounted stays.
int own_mounts(void);
int own_userns(int namespaces);
const char *scratch_dir(void); // empty, ours, removed by the next boot of the instance
bool read_canary(const char *path); // true, and its first line in the detail, if it can be read

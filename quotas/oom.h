// SPDX-License-Identifier: GPL-2.0-or-later
// Oom: who was killed for memory, from the kernel's own words in /dev/kmsg.
//
// The line holds a name that the guest chose, so it is parsed by a small pure function, shown through valid_printable(), and read a
// bounded number of records at a time, after an OOM event only. That an OOM kill happened, and how often, is the counters'
// business (cgroup_box_usage); this adds a name where the kernel gives one.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define OOM_COMM_MAX 16

typedef struct OomVictim {
        pid_t pid; // in the host's numbering
        char comm[OOM_COMM_MAX * 4 + 1]; // printable
        char cgroup[256]; // memory cgroup of the victim as the kernel names it ("/hostd/i1-g1/box/payload"); "" if not told
} OomVictim;

// One record of /dev/kmsg ("6,1234,5678,-;Memory cgroup out of memory: Killed process 42 (python3) total-vm:…"). -ENOMSG for any
// other, which is the usual case; `ret` may then still have got the cgroup of a kill that follows ("oom-kill:…,task_memcg=…").
int oom_parse(const char *record, size_t size, OomVictim *ret);
// A descriptor at the end of /dev/kmsg: what is read later is what came later. Owned by the caller.
int oom_open(int *ret_fd, Error *err);
// The next victim below `cgroup` ("/hostd/i1-g1"). Reads at most 256 records and never waits. -ENOMSG if there is none.
int oom_next(int fd, const char *cgroup, OomVictim *ret);

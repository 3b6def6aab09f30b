// SPDX-License-Identifier: GPL-2.0-or-later
// Launcher: starts hostd-instance and says which process it is. Two ways behind one interface: a unit of systemd where that is
// PID 1 (it survives restart, crash and upgrade of hostd), a forked child elsewhere.
#pragma once

#include <sys/types.h>

#include "core/instance.h"

// Puts the supervisor into the instance's monitor group and returns its pid and pidfd.
int launcher_start(Instance *instance, const char *run_dir, pid_t *ret_pid, int *ret_pidfd, Error *err);
// After a kill: waits until it is dead, a second at most, and reaps it. What holds its groups is gone then.
void launcher_reap(pid_t pid, int pidfd);
// Last resort when the supervisor does not end by itself.
void launcher_kill(Instance *instance);

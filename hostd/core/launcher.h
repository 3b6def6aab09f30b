// SPDX-License-Identifier: GPL-2.0-or-later
// Launcher: starts hostd-instance and says which process it is. Two ways behind one interface: a unit of systemd where that is
// PID 1 (it survives restart, crash and upgrade of hostd), a forked child elsewhere.
#pragma once

#include "core/instance.h"

// Called once, from the loop: the supervisor's pid and pidfd are in the instance, or `err` says why there is none.
typedef void (*LauncherDone)(Instance *instance, int r, Error *err);

typedef enum LauncherStart {
        LAUNCHER_STARTED = 1, // the process is there, in its group; `done` is not called
        LAUNCHER_ASKED = 2,   // systemd was asked; `done` will be called, within seconds
} LauncherStart;
int launcher_start(Instance *instance, const char *run_dir, LauncherDone done, Error *err);
// Nobody waits any more: `done` is not called, and a unit that comes up late finds no hostd that says HELLO, and ends.
void launcher_forget(Instance *instance);
// Last resort when the supervisor does not end by itself.
void launcher_kill(Instance *instance);

// launcher_unit.c
int launcher_unit_start(Instance *instance, LauncherDone done, Error *err);

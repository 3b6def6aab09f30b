// SPDX-License-Identifier: GPL-2.0-or-later
// Fake hostd: a server in a process of its own that answers the calls of hostctl's tests, some of them by commands that really run on
// the pipes and ptys that hostctl passed.
#pragma once

#define FAKE_DIR_MAX 64

extern char fake_dir[FAKE_DIR_MAX]; // made by fake_hostd_setup(); what commands and files of "the instance" are is below it
extern char fake_socket[128];

int fake_hostd_setup(void **state); // the first start; of a group of tests
int fake_hostd_teardown(void **state);
void fake_hostd_start(void);
void fake_hostd_stop(void); // as a crash

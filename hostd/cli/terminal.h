// SPDX-License-Identifier: GPL-2.0-or-later
// Terminal: the operator's own terminal in raw mode, given back whatever happens.
#pragma once

#include <stdbool.h>

#include "base/error.h"

// Raw from here on, until terminal_restore() or exit. Nothing happens if fd is no terminal.
int terminal_raw(int fd);
void terminal_restore(void);
// The size of our terminal (of `from`) for a pty.
void terminal_copy_size(int from, int pty);
// A new pty: the master, and its other end opened without making it anybody's controlling terminal. It is raw until the guest says
// otherwise: EXTPROC when a relay with a terminal of the guest's own is there (guest/relay.h), line mode when the command has ours.
int terminal_pty(int *ret_master, int *ret_slave, Error *err);
// After the last byte was written: lets the guest know. False when nobody is there yet, or none that knows an end of input.
bool terminal_end_input(int pty);

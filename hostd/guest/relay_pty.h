// SPDX-License-Identifier: GPL-2.0-or-later
// RelayPty: the two terminals of a relay: a pty from the guest's own /dev/pts, and the modes of both sides.
#pragma once

#include <sys/types.h>

// A pty that `owner` can open by its path. An error where the guest has no devpts at /dev/pts, or none that may be used.
int relay_pty_open(uid_t owner, int *ret_master, int *ret_slave);
// Size and modes of the host's side move inside, and it becomes raw with EXTPROC. One that is raw already, hostctl's, gives only its size
// and special characters.
int relay_pty_join(int host, int master, int slave);
void relay_pty_copy_size(int host, int master);
// Without a relay: a host's side that was left raw for one becomes what a command expects to start with.
void relay_pty_cook(int host);

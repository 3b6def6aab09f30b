// SPDX-License-Identifier: GPL-2.0-or-later
// Relay: for a command with a terminal, the process between the pty that the host made and one of the guest's own. On the host's
// pty alone ttyname(3) and every opening of the terminal by its path fail, because its device is in no /dev/pts of the guest.
//
//   hostctl -- master (host) slave -- relay -- master (guest) slave -- command
//
// The relay is the process that hostd knows: in its cgroup, with its pidfd; the command is its child in a session of its own.
// Bytes pass unchanged, so the line discipline is the inner one's; EXTPROC on the host's side tells hostctl so. The kernel tells the
// relay of the host's side by signals, as the host's pty is its controlling terminal:
//   SIGWINCH  the size changed and is copied;
//   SIGQUIT   hostctl's standard input ended (TIOCSIG): the inner terminal gets its end-of-file character once it is in line mode;
//   a hang-up closes the inner master, which hangs up the session inside.
// Signals for the command come from the helper as bytes on the status socket. When the command has ended and what it wrote is
// passed on, the relay sends its wait status there.
#pragma once

#include <sys/types.h>

// Call in the leader of a new session whose controlling terminal and descriptor 0 is the host's pty. Returns 0 in the process that
// is to become the command: with the guest's pty as controlling terminal and descriptors 0 to 2, or, where the guest has no devpts
// or no room for a process, with the host's. `status` is the socket to the helper, `owner` the user of the terminal.
int relay_start(int status, uid_t owner);

// SPDX-License-Identifier: GPL-2.0-or-later
// Container: the only place where liblxc runs. Both functions are the whole life of a forked, single-threaded child, which dies with
// `parent`, its maker.
#pragma once

#include <stdnoreturn.h>

#include "instance/spec.h"

// How the monitor child ended, as its exit status.
typedef enum MonitorStatus { MONITOR_HALT = 0, MONITOR_REBOOT = 10, MONITOR_CRASH = 11, MONITOR_FAILED = 12 } MonitorStatus;

// Starts the container in the foreground and stays its monitor until init is gone. Where the spec has a network, init waits until the
// line "go" comes from the pipe `plug`.
noreturn void container_monitor(const InstanceSpec *spec, pid_t parent, int plug);
// Relays between fds (in, out) and the container's console until either side ends.
noreturn void container_console(const InstanceSpec *spec, pid_t parent, int in, int out);
// The last error line that liblxc logged, cut to a sentence; "" if none. For people, never for decisions.
void container_log_tail(int run_fd, char *ret, size_t size);

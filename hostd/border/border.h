// SPDX-License-Identifier: GPL-2.0-or-later
// Border: the names and numbers that hostd, the ruleset and the helpers of the border share, and how a helper finds its sockets.
//
// A helper (hostd-resolver, hostd-proxy, hostd-flow) is started with its listening sockets: by systemd, or by hostd in the same way. They
// come as descriptors from 3 on; the environment names them: LISTEN_FDS, LISTEN_FDNAMES and, from systemd, LISTEN_PID.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

// Where a helper listens on each wire: the redirect's target addresses, which every veth's host end has.
#define BORDER_ADDRESS_V4 "169.254.0.1"
#define BORDER_ADDRESS_V6 "fe80::1"
// What people inside are told to say, with HOST:PORT behind it (guest/ask.h).
#define BORDER_ASK "/run/hostd/hostd-guest ask net"
#define BORDER_DNS_PORT 8453     // UDP and TCP; redirected to
#define BORDER_TLS_PORT 8443     // redirected to
#define BORDER_HTTP_PORT 8480    // redirected to
#define BORDER_CONNECT_PORT 3128 // addressed directly

#define BORDER_RESOLVER "hostd-resolver" // program, user and unit
#define BORDER_PROXY "hostd-proxy"
#define BORDER_FLOW "hostd-flow"
#define BORDER_HAPROXY "hostd-haproxy" // a program that becomes each instance's HAProxy, the user that it is first, and the owner of the ids of those

#define BORDER_RUN "/run/hostd"
#define BORDER_RESOLVE_SOCKET BORDER_RUN "/resolve.sock"      // hostd-proxy asks hostd-resolver, see resolve.h
#define BORDER_RECORDS_SOCKET BORDER_RUN "/flow-records.sock" // resolver and proxy tell hostd-flow, see record.h

// Names of the descriptors that a helper is given.
#define BORDER_FD_CONTROL "control" // SOCK_STREAM, listening: hostd's one connection
#define BORDER_FD_RESOLVE "resolve" // SOCK_SEQPACKET, listening: hostd-resolver only
#define BORDER_FD_RECORDS "records" // SOCK_DGRAM, bound: hostd-flow only

// Where the sockets are, if not in BORDER_RUN: set by a hostd that was given another directory.
#define BORDER_RUN_VARIABLE "HOSTD_RUN_DIR"

#define BORDER_NAME_MAX 253

// The descriptor that was handed over under `name`, close-on-exec and non-blocking, or -ENOENT. It stays the process's: ask once.
int border_listen_fd(const char *name);
// A socket bound to an instance's wire and to the gateway's address on it; one of SOCK_STREAM does not listen yet.
typedef struct BorderWire { const char *ifname; unsigned ifindex; } BorderWire;
int border_open_on(BorderWire wire, int family, int type, uint16_t port);
// BORDER_RESOLVE_SOCKET or BORDER_RECORDS_SOCKET, below the directory that this process was told. Returns `path` or buf.
const char *border_socket_path(const char *path, char *buf, size_t size);
// A host name as both sides of each socket of the border spell it: lower case, labels of 1..63 of [a-z0-9_-] not beginning or ending with
// a hyphen, no dot at the end, at most BORDER_NAME_MAX bytes. Never an IPv4 address.
bool border_name_valid(const char *name);

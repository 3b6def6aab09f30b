// SPDX-License-Identifier: GPL-2.0-or-later
// Deliver: what hostd hands into the instance, written from inside: the certificate of its authority, secrets as files, and its package policy
// (packages.h).
//
//   /run/hostd/ca.crt          the authority's certificate, while there is one
//   /run/hostd/ca-bundle.crt   the instance's own bundle, and that certificate
//   /run/hostd/environment     variables that name them; profile.sh: the same for shells, which /etc/profile.d/hostd.sh reads
//   /run/hostd/secrets/NAME    on a ramfs of its own: no disk, no swap
//
// Values come from hostd by a pipe, whole. What fails leaves what was there, or less of it: never a value on another file system.
#pragma once

#include "guest/proto.h"
#include "guest/request.h"

#define DELIVER_MAX (2 * 1024 * 1024) // bytes of one delivery

int deliver_run(const Request *request, Error *err);
// Has programs of the instance take the certificate up, or forget it: update-ca-certificates and systemd, where they are. For programs that commands
// start the variables above are enough.
int deliver_adopt(const Request *request, Error *err);
// What every command gets while there is an authority, NULL-terminated; NULL when there is none.
const char *const *deliver_environment(void);

// Pure: the next file at *at, which moves behind it. -EBADMSG: no such thing is there.
int deliver_next(const char **at, const char *end, GuestFile *ret, const char **ret_data);
// Pure: from the first to the END, with nothing behind.
int deliver_check(const char *data, size_t size);
// All but secrets, below `root`, which is "/". `certificate` NULL: none.
int deliver_authority(int root, const char *certificate, size_t size, Error *err);

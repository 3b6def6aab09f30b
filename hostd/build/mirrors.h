// SPDX-License-Identifier: GPL-2.0-or-later
// Mirrors: the hosts that a build needs: those of its package sources, and the proxies through which the host's apt reaches them. Pure; hostd makes
// the build's policy of them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define MIRRORS_MAX 64

typedef struct Mirror {
        char *host; // owned; a name in lower case, or an address without brackets
        uint16_t port;
        bool optional; // only said to be reached without a proxy
} Mirror;

typedef struct Mirrors {
        Mirror *list; // no two alike, in the order in which they were found
        size_t n;
} Mirrors;

// `sources` as of apt_sources(), `options` as "apt-config dump" prints them. What apt reads without a network (file:, cdrom:) is none.
int mirrors_parse(const char *sources, const char *options, Mirrors *ret, Error *err);
void mirrors_done(Mirrors *mirrors);

// SPDX-License-Identifier: GPL-2.0-or-later
// Valid: the one choke point for strings. What reaches an lxc config, nft, a unit file, libconfig or an argument vector
// was accepted here, at the edge; writers assert it again with valid_is().
#pragma once

#include <stdbool.h>

#include "base/error.h"

typedef enum ValidKind {
        VALID_TEXT,     // UTF-8 without control characters, at most 1024 bytes (descriptions, reasons)
        VALID_NAME,     // instances, policies, templates: [a-z][a-z0-9-]{0,31}
        VALID_DIGEST,   // 64 lower-case hex digits
        VALID_TEMPLATE, // a name or a digest
        VALID_USER,     // [a-z_][a-z0-9_-]{0,31}, or a decimal uid
        VALID_LABEL_KEY,   // [a-z][a-z0-9._-]{0,62}
        VALID_LABEL_VALUE, // UTF-8 without control characters, quotes or backslash, at most 255 bytes
        VALID_PATH,     // absolute, no "..", no "//", no control characters, at most 4095 bytes
        VALID_ENV_NAME, // [A-Za-z_][A-Za-z0-9_]{0,127}
        VALID_CPUSET,   // "0-3,7"
        VALID_IFNAME,   // 1..15 of [A-Za-z0-9._-], not "." or ".."
        VALID_CIDR,     // IPv4 or IPv6 address with optional prefix length
        VALID_PORTS,    // "443", "8000-8010", lists with commas; 1..65535
        VALID_PACKAGE,  // Debian package name, optional :arch and =version
        VALID_UNIT,     // systemd unit name
        VALID_SUITE,    // [a-z][a-z0-9.-]{0,31}
        VALID_ARGUMENT, // any bytes that UTF-8 allows except NUL, at most 128 KiB (argv and env values of a command)
        VALID_DESTINATION, // what a policy rule is about, by its bytes only: a CIDR, a host name, "*.suffix", "*" or "@category"
        VALID_METHOD,   // an HTTP method: [A-Z][A-Z-]{0,15}
        VALID_URL_PATH, // the beginning of an HTTP path, as a policy rule has it: "/", no "//", no "." or ".." segment, nothing to decode
        VALID_ID,       // ids that hostd gives out (commands): [a-z0-9]{1,32}
        VALID_HOST,     // exact DNS name, lower case, at least two labels
        VALID_HEADER,   // name of an HTTP header, or a word in front of a credential: [A-Za-z][A-Za-z0-9-]{0,63}
        VALID_QUERY,    // name of a query parameter that needs no escapes: [A-Za-z0-9_.~-]{1,64}
        VALID_DNS_TYPE, // a type of DNS records that an instance's questions may have by its configuration: "TXT"
        VALID_REASON,   // why somebody asks or refuses, shown to others: UTF-8 without control characters, 1 to 200 bytes
        VALID_LOGIN,    // user of HTTP Basic: [A-Za-z0-9._@+-]{1,64}
        _VALID_MAX,
} ValidKind;

bool valid_is(ValidKind kind, const char *value);
// 0, or -EINVAL with a sentence that names the field and what would be right.
int valid_check(ValidKind kind, const char *field, const char *value, Error *err);
bool valid_utf8(const char *text, size_t size);
// Copies text for a terminal: control characters (C0, C1, DEL, escape) become "\xNN". Caller frees; NULL on OOM.
char *valid_printable(const char *text);

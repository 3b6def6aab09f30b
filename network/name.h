// SPDX-License-Identifier: GPL-2.0-or-later
// Name: host names as rules, DNS questions, SNI and Host have them, and the patterns that match them. Pure but for the list of public
// suffixes (suffix.c), which only those link who check what a person wrote.
//
// One spelling only: lower case, labels of letters, digits, '-' and '_', IDN in its A-label form ("xn--…"), no dot at the end. A name
// whose last label does not begin with a letter is an address in disguise ("10.1", "0x7f.1") and refused. Whoever reads a name from
// the wire calls name_normalise() first; everything behind it compares bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define NAME_TEXT_MAX 254 // with its NUL
#define NAME_LABEL_MAX 63
#define NAME_LABELS_MAX 127

// From the wire: lower-cases. -EINVAL for anything that is no name; a dot at the end is the caller's to remove where its protocol
// allows one (it is none in SNI).
int name_normalise(const void *text, size_t size, char ret[NAME_TEXT_MAX]);
const char *name_parent(const char *name); // behind the first dot; NULL for a single label
bool name_is_below(const char *name, const char *zone); // "a.b.c" is below "b.c", "b.c" is not

// "HOST", "HOST:PORT", "ADDRESS", "[ADDRESS]:PORT": host without brackets, not checked; *ret_port is 0 where there is none.
int name_split_port(const char *text, char ret_host[NAME_TEXT_MAX], uint16_t *ret_port);

typedef enum NameKind { NAME_EXACT, NAME_SUFFIX /* "*.x": names below x, not x */, NAME_ANY /* "*" */ } NameKind;
NameKind name_kind(const char *pattern);
// 0, or -EINVAL with a sentence that names the field and what would be right. A rule's name has two labels at least.
int name_pattern_check(const char *field, const char *pattern, Error *err);
bool name_pattern_matches(const char *pattern, const char *name);

// suffix.c: whether anybody may register names directly below it ("com", "co.uk"). A top-level name that the list does not know is
// one, except those that are never delegated ("internal", "lan", "test", …). -ENOENT if this host has no list.
int name_is_public_suffix(const char *name);
// Refuses "*.x" where x is a public suffix.
int name_pattern_check_suffix(const char *field, const char *pattern, Error *err);

// SPDX-License-Identifier: GPL-2.0-or-later
// View: what resolver, proxy and flow recorder know of the slots: who is behind which interface, and its compiled rules. hostd writes
// it as JSON, they read it; nothing in it is a secret.
//
// A text is taken whole or not at all. A key that the reader does not know refuses it: it could be a restriction. Rules come with
// categories expanded, and are checked again by the reader.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "network/compile.h"

#define VIEW_TEXT_MAX (64U << 20)
#define VIEW_SLOTS_MAX 4096
#define VIEW_UPSTREAMS_MAX 8
#define VIEW_TYPES_MAX 16
#define VIEW_POLICIES_MAX 256

typedef struct ViewDns {
        uint32_t rate, burst; // queries a second
        uint32_t names;       // distinct names of one zone a minute
        char **types;         // that are answered besides the usual ones: "TXT"; NULL for none
} ViewDns;

// Three kinds. An instance's slot has a wire and a list of rules. A profile has the list of some sandboxes, `within` its instance's, and no wire.
// A sandbox has a wire, and of its list the `profile` alone: see view_lists.h.
typedef struct ViewSlot {
        uint16_t slot;
        uint16_t within;  // of a profile: the slot of its instance; else 0
        uint16_t profile; // of a sandbox; else 0
        uint16_t around;  // of a sandbox: the slot of its instance. Not in the text: view_lists_apply() knows
        char ifname[16]; // VALID_IFNAME, the host's end of its wire
        char *instance;  // VALID_NAME
        char *sandbox;   // VALID_NAME: its id; NULL: no sandbox
        char ipv4[INET_ADDRSTRLEN], ipv6[INET6_ADDRSTRLEN];
        bool offline; // cut off by an operator: nothing of it goes on. Compiled.offline is another thing
        ViewDns dns;
        uint32_t destinations; // different ones a minute through the proxy; 0: any number
        Compiled *compiled; // owned share; of a sandbox NULL as it is read
} ViewSlot;

typedef struct View {
        uint64_t generation;
        bool whole;       // slots that are not in it are gone
        char **upstreams; // addresses of name servers
        ViewSlot *slots;
        size_t n_slots;
        uint16_t *kept; // of a whole in parts: slots that the texts before had
        size_t n_kept;
        uint16_t *gone;
        size_t n_gone;
} View;

View *view_free(View *view);
DEFINE_CLEANUP(View, view_free)
void view_slot_done(ViewSlot *slot); // for those who keep slots of several views
int view_parse(const char *text, size_t size, View **ret, Error *err);
// NUL-terminated; the caller frees. -EINVAL for what view_parse() would refuse is not looked for here.
int view_format(const View *view, char **ret, size_t *ret_size);
// view_parts.c: texts of at most `max` bytes, for strv_free(). One, if it fits. Else each but the last adds slots, and the last, without any, says
// which there are. A slot that is too large by itself is in none, and gone: `ret_large`, of n_slots, says so.
int view_format_parts(const View *view, size_t max, char ***ret, bool *ret_large);
bool view_ends(const View *view, uint16_t slot); // whether a reader is to forget a slot that it has

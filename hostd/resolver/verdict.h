// SPDX-License-Identifier: GPL-2.0-or-later
// Verdict: what a slot's view says to a question before anybody is asked, and to the answer before it leaves. Pure but for the count of names.
#pragma once

#include "network/view.h"
#include "resolver/limit.h"

#define VERDICT_TEXT_MAX 256
#define VERDICT_INSERTS_MAX 16     // rules; POLICY_NAME_PORTS_MAX single ports are at most as many
#define VERDICT_INSERT_ADDRESSES 16 // of an answer whose addresses go to the kernel: each takes an element for each port

typedef struct Verdict {
        bool pass;       // to be looked up
        bool answered;   // not looked up, but no denial: the reply is as good as an upstream's
        DnsRcode rcode;  // otherwise this is the reply
        DnsEde ede;
        char text[VERDICT_TEXT_MAX];
        uint8_t records[24]; // of the reply: the address of localhost
        size_t size;
        PolicyDecision decision; // its strings and rule live as long as the view
} Verdict;

typedef struct VerdictQuestion {
        const DnsName *name;
        uint16_t type, class;
        usec_t now;
} VerdictQuestion;

void verdict_of(const ViewSlot *view, Zones *zones, const VerdictQuestion *question, Verdict *ret);
// False if an address of the records is in a range that no answer to this slot may lead to; `ret` has the reason then. One is enough: whoever
// mixes a good address with a bad one means the bad one.
bool verdict_of_addresses(const ViewSlot *view, const uint8_t *records, size_t size, Verdict *ret);
// How many bytes of the records remain when there are not more than `max` addresses.
size_t records_cut(const uint8_t *records, size_t size, size_t max);

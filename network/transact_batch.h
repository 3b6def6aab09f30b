// SPDX-License-Identifier: GPL-2.0-or-later
// Batch: what the parts of transact share: messages in the making that become one transaction.
#pragma once

#include <arpa/inet.h>
#include <linux/netfilter.h> // after netinet/in.h, which it would contradict
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "network/netlink.h"
#include "network/transact.h"

typedef struct Batch {
        char *buffer;
        size_t size, used;
        uint32_t sequence;
        struct nlmsghdr *message; // the one being written
        char rules[16], nat[16], live[16], deny[16], pass[16], names4[16], names6[16];
        const char *chain, *denied; // where rules are written to, and where what they deny goes: NULL is back to the caller
        uint16_t slot;
        uint32_t sets; // anonymous ones so far: their ids within the batch
} Batch;

enum {
        MESSAGE_MAX = 1536, // the longest rule has some 900 bytes
        CHUNK = 512,        // elements in one message; an attribute holds 64 KiB
        ELEMENT_MAX = 64,   // bytes of one
};

struct Transaction {
        Batch batch;
        uint32_t first;
};

int batch_reserve(Batch *batch, size_t more); // room for a message with `more` bytes besides what each may have
int batch_begin_of(Batch *batch, unsigned type, unsigned flags, const char *name); // a message about a chain or set of `inet hostd`
void batch_end(Batch *batch);
int batch_flush(Batch *batch, unsigned type, const char *name); // NFT_MSG_DELRULE of a chain, NFT_MSG_DELSETELEM of a set
void put_u32(struct nlmsghdr *message, uint16_t type, uint32_t value);
void put_value(struct nlmsghdr *message, uint16_t type, const void *data, size_t size);

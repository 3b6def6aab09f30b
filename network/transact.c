// SPDX-License-Identifier: GPL-2.0-or-later
// Transact: batches of netlink messages of our own. libnftables reads every set, chain and object of the host and the elements of interval
// sets before each command; a policy of 100 rules took 10 to 30 ms with that, these messages take less than one.
//
// This file: the batch, its way to the kernel, and elements of sets and maps. The socket stays open, because the kernel waits for earlier
// removals when one is closed.
#include "network/transact_batch.h"

#include <endian.h>
#include <string.h>

// Room for a message with `more` bytes besides what each may have.
int batch_reserve(Batch *batch, size_t more) {
        size_t wanted = batch->used + 2 * MESSAGE_MAX + more;
        char *buffer;

        if (wanted <= batch->size)
                return 0;
        wanted += batch->size + 16 * MESSAGE_MAX;
        buffer = realloc(batch->buffer, wanted);
        if (!buffer)
                return -ENOMEM;
        batch->buffer = buffer;
        batch->size = wanted;
        return 0;
}

static int batch_begin(Batch *batch, unsigned type, unsigned flags) {
        struct nfgenmsg *generic;

        if (batch_reserve(batch, 0) < 0)
                return -ENOMEM;
        batch->message = mnl_nlmsg_put_header(batch->buffer + batch->used);
        batch->message->nlmsg_type = (uint16_t) type;
        batch->message->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | flags);
        batch->message->nlmsg_seq = ++batch->sequence;
        generic = mnl_nlmsg_put_extra_header(batch->message, sizeof(*generic));
        generic->version = NFNETLINK_V0;
        if (type < NLMSG_MIN_TYPE + 2) // begin and end of the batch name the subsystem
                generic->res_id = htons(NFNL_SUBSYS_NFTABLES);
        else
                generic->nfgen_family = NFPROTO_INET;
        return 0;
}

void batch_end(Batch *batch) {
        batch->used += MNL_ALIGN(batch->message->nlmsg_len);
}

static int batch_marker(Batch *batch, unsigned type) {
        int r = batch_begin(batch, type, 0);

        if (r >= 0)
                batch_end(batch);
        return r;
}

void put_u32(struct nlmsghdr *message, uint16_t type, uint32_t value) {
        mnl_attr_put_u32(message, type, htonl(value));
}

void put_value(struct nlmsghdr *message, uint16_t type, const void *data, size_t size) {
        struct nlattr *nest = mnl_attr_nest_start(message, type);

        mnl_attr_put(message, NFTA_DATA_VALUE, size, data);
        mnl_attr_nest_end(message, nest);
}

// In each kind of message the first attribute is the table, the second what of it the message is about.
int batch_begin_of(Batch *batch, unsigned type, unsigned flags, const char *name) {
        _Static_assert(NFTA_RULE_TABLE == 1 && NFTA_SET_TABLE == 1 && NFTA_SET_ELEM_LIST_TABLE == 1, "the table");
        _Static_assert(NFTA_RULE_CHAIN == 2 && NFTA_SET_NAME == 2 && NFTA_SET_ELEM_LIST_SET == 2, "the name");
        int r = batch_begin(batch, NFNL_SUBSYS_NFTABLES << 8 | type, flags);

        if (r < 0)
                return r;
        mnl_attr_put_strz(batch->message, 1, "hostd");
        mnl_attr_put_strz(batch->message, 2, name);
        return 0;
}

int batch_flush(Batch *batch, unsigned type, const char *name) {
        int r = batch_begin_of(batch, type, 0, name);

        if (r >= 0)
                batch_end(batch);
        return r;
}

typedef struct Element {
        const char *set;
        unsigned char key[32];
        size_t size;
        unsigned char end[32]; // of a range of concatenated keys
        bool range;
        bool interval_end;
        const char *chain; // of a verdict map, else NULL
        bool jump;         // and back; else there is nothing behind it
        unsigned char data[32]; // of any other map
        size_t data_size;
        uint64_t timeout;  // ms; 0: none
} Element;

static int batch_element(Batch *batch, const Element *element, bool add) {
        int r = batch_begin_of(batch, add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM, add ? NLM_F_CREATE : 0, element->set);
        struct nlattr *list, *item, *data, *nest;
        struct nlmsghdr *m;

        if (r < 0)
                return r;
        m = batch->message;
        list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
        item = mnl_attr_nest_start(m, NFTA_LIST_ELEM);
        if (element->interval_end)
                put_u32(m, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
        put_value(m, NFTA_SET_ELEM_KEY, element->key, element->size);
        if (element->chain) {
                data = mnl_attr_nest_start(m, NFTA_SET_ELEM_DATA);
                nest = mnl_attr_nest_start(m, NFTA_DATA_VERDICT);
                put_u32(m, NFTA_VERDICT_CODE, (uint32_t) (element->jump ? NFT_JUMP : NFT_GOTO));
                mnl_attr_put_strz(m, NFTA_VERDICT_CHAIN, element->chain);
                mnl_attr_nest_end(m, nest);
                mnl_attr_nest_end(m, data);
        }
        if (element->range)
                put_value(m, NFTA_SET_ELEM_KEY_END, element->end, element->size);
        if (element->data_size && add)
                put_value(m, NFTA_SET_ELEM_DATA, element->data, element->data_size);
        if (element->timeout && add)
                mnl_attr_put_u64(m, NFTA_SET_ELEM_TIMEOUT, htobe64(element->timeout));
        mnl_attr_nest_end(m, item);
        mnl_attr_nest_end(m, list);
        batch_end(batch);
        return 0;
}

// Batch markers apart, each part may be the last: batch->message is then the message to be acknowledged.
static int batch_sources(Batch *batch, const NetworkAddress *address, bool add) {
        Element source = {.set = "src4", .size = 20};
        int r;

        memcpy(source.key, address->host_ifname, sizeof(address->host_ifname)); // 16 bytes, padded with NUL, as ifname is kept
        memcpy(source.key + 16, &address->ipv4, 4);
        r = batch_element(batch, &source, add);
        source.set = "src6";
        source.size = 32;
        memcpy(source.key + 16, &address->ipv6, 16);
        return r < 0 ? r : batch_element(batch, &source, add);
}

static const char *const leading[] = {"out", "in", "host", "nat", "answer"}; // maps, of slots and of profiles

static int batch_slot(Batch *batch, const NetworkSettings *settings, uint16_t slot, bool add) {
        NetworkAddress address;
        int r;

        network_address(settings, slot, &address);
        r = batch_sources(batch, &address, add);
        for (size_t i = 0; i < ELEMENTS(leading) && r >= 0; i++) {
                char set[16], chain[16];
                Element element = {.set = set, .size = 16, .chain = chain, .jump = strcmp(leading[i], "answer") == 0};
                (void) snprintf(set, sizeof(set), "%s_v", leading[i]);
                (void) snprintf(chain, sizeof(chain), "i%04x_%s", slot, leading[i]);
                memcpy(element.key, address.host_ifname, sizeof(address.host_ifname));
                r = batch_element(batch, &element, add);
        }
        return r;
}

// From "hvs0800x" to what is behind all that begins so.
static int batch_profile(Batch *batch, uint16_t profile, bool add) {
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(leading) && r >= 0; i++) {
                char set[16], chain[16];
                Element begin = {.set = set, .size = 16, .chain = chain, .jump = strcmp(leading[i], "answer") == 0}, end = {.set = set, .size = 16, .interval_end = true};
                int n = snprintf((char *) begin.key, sizeof(begin.key), SANDBOX_PREFIX "%04x" SANDBOX_MIDDLE, profile);
                (void) snprintf(set, sizeof(set), "%s_p", leading[i]);
                (void) snprintf(chain, sizeof(chain), "i%04x_%s", profile, strcmp(leading[i], "nat") == 0 ? "lead" : leading[i]);
                memcpy(end.key, begin.key, sizeof(end.key));
                end.key[n - 1]++;
                r = batch_element(batch, &begin, add);
                if (r >= 0)
                        r = batch_element(batch, &end, add);
        }
        return r;
}

// The first address behind the range ends it; the range that ends at the last address has no end.
static bool range_end(const Cidr *range, unsigned char *ret) {
        size_t size = range->family == AF_INET ? 4 : 16;
        unsigned at = range->prefix - 1;

        memcpy(ret, range->bytes, size);
        for (unsigned carry = 0x80U >> at % 8, i = at / 8;; carry = 1, i--) {
                carry += ret[i];
                ret[i] = (unsigned char) carry;
                if (carry < 256)
                        return true;
                if (i == 0)
                        return false;
        }
}

static int batch_deny_set(Batch *batch, int family) {
        const char *set = family == AF_INET ? "deny4" : "deny6";
        int r = batch_flush(batch, NFT_MSG_DELSETELEM, set);

        for (const char *const *p = denied_ranges(family); *p && r >= 0; p++) {
                Element start = {.set = set, .size = family == AF_INET ? 4 : 16}, end = start;
                Cidr range;
                r = cidr_parse(*p, &range);
                if (r < 0)
                        return r;
                memcpy(start.key, range.bytes, start.size);
                r = batch_element(batch, &start, true);
                end.interval_end = true;
                if (r >= 0 && range_end(&range, end.key))
                        r = batch_element(batch, &end, true);
        }
        return r;
}

static struct mnl_socket *socket_get(void) {
        static struct mnl_socket *kept; // see the head of this file
        int size = 32 * 1024 * 1024;

        if (kept)
                return kept;
        kept = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
        if (!kept)
                return NULL;
        // A batch is one datagram, and it must not block: 4096 rules have some 2 MiB.
        (void) setsockopt(mnl_socket_get_fd(kept), SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
        if (mnl_socket_bind(kept, 0, MNL_SOCKET_AUTOPID) < 0) {
                (void) mnl_socket_close(kept);
                kept = NULL;
        }
        return kept;
}

// Only the last message is acknowledged: an error of any other comes before its answer. What an earlier batch left unread has
// other sequence numbers.
static int batch_send(Batch *batch, uint32_t first) {
        struct mnl_socket *socket = socket_get();
        _cleanup_free_ char *buffer = malloc(NETLINK_BUFFER);
        int r;

        batch->message->nlmsg_flags |= NLM_F_ACK;
        r = batch_marker(batch, NFNL_MSG_BATCH_END);
        if (r < 0 || !buffer)
                return r < 0 ? r : -ENOMEM;
        if (!socket || mnl_socket_sendto(socket, batch->buffer, batch->used) < 0)
                return -errno;
        for (;;) {
                ssize_t got = mnl_socket_recvfrom(socket, buffer, NETLINK_BUFFER);
                int n = (int) got;
                if (got < 0)
                        return -errno;
                for (const struct nlmsghdr *m = (const struct nlmsghdr *) buffer; mnl_nlmsg_ok(m, n); m = mnl_nlmsg_next(m, &n))
                        if (m->nlmsg_type == NLMSG_ERROR && m->nlmsg_seq >= first && m->nlmsg_seq <= batch->sequence)
                                return ((const struct nlmsgerr *) mnl_nlmsg_get_payload(m))->error;
        }
}

static uint32_t last_sequence; // hostd has one thread

int transaction_new(Transaction **ret) {
        _cleanup_(transaction_freep) Transaction *transaction = calloc(1, sizeof(Transaction));
        int r;

        if (!transaction)
                return -ENOMEM;
        transaction->batch.sequence = last_sequence;
        transaction->first = last_sequence + 1;
        r = batch_marker(&transaction->batch, NFNL_MSG_BATCH_BEGIN);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(transaction);
        return 0;
}

Transaction *transaction_free(Transaction *transaction) {
        if (!transaction)
                return NULL;
        free(transaction->batch.buffer);
        free(transaction);
        return NULL;
}

int transaction_deny_sets(Transaction *transaction) {
        int r = batch_deny_set(&transaction->batch, AF_INET);

        return r < 0 ? r : batch_deny_set(&transaction->batch, AF_INET6);
}

int transaction_slot(Transaction *transaction, const NetworkSettings *settings, uint16_t slot) {
        return batch_slot(&transaction->batch, settings, slot, true);
}

// `remove` first: an element that is there keeps its time and its mark.
static int batch_name(Batch *batch, const NameElement *name, bool remove) {
        size_t size = name->family == AF_INET ? 4 : 16;
        char set[16];
        Element element = {.set = set, .size = size + 8, .data_size = sizeof(name->mark), .timeout = name->timeout_ms};
        uint16_t port = htons(name->port);
        int r = 0;

        memcpy(element.data, &name->mark, sizeof(name->mark));
        (void) snprintf(set, sizeof(set), "i%04x_names%d", name->slot, name->family == AF_INET ? 4 : 6);
        memcpy(element.key, name->address, size);
        element.key[size] = name->protocol;
        memcpy(element.key + size + 4, &port, sizeof(port));
        if (remove)
                r = batch_element(batch, &element, false);
        return r < 0 ? r : batch_element(batch, &element, true);
}

int transaction_name(Transaction *transaction, const NameElement *name) {
        return batch_name(&transaction->batch, name, false);
}

static int send_names(const NameElement *names, size_t n, bool remove) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        for (size_t i = 0; i < n && r >= 0; i++)
                r = batch_name(&transaction->batch, &names[i], remove);
        return r < 0 ? r : transaction_commit(transaction);
}

// Some are there, of another rule perhaps, and some are not.
static int one_by_one(const NameElement *names, size_t n) {
        int r = 0;

        for (size_t i = 0; i < n && r >= 0; i++) {
                r = send_names(&names[i], 1, true);
                if (r == -ENOENT)
                        r = send_names(&names[i], 1, false);
        }
        return r;
}

int transact_names(const NameElement *names, size_t n) {
        int r = send_names(names, n, true);

        if (r == -ENOENT)
                r = send_names(names, n, false);
        return r == -EEXIST || r == -EBUSY ? one_by_one(names, n) : r;
}

// ---- exposures: where a port leads (of all slots), from where (of the slot), and the mark of what came so

static void put_port(unsigned char *at, uint8_t protocol, uint16_t port) {
        uint16_t wire = htons(port);

        at[0] = protocol;
        memcpy(at + 4, &wire, sizeof(wire));
}

static uint32_t exposed_mark(const NetworkExposure *exposure) {
        return (uint32_t) exposure->slot << 16 | EXPOSED_IDS | exposure->id;
}

static Element exposed_nat(const NetworkSettings *settings, const NetworkExposure *exposure, int family) {
        bool four = family == AF_INET;
        size_t size = four ? 4 : 16;
        Element element = {.set = four ? "expose4" : "expose6", .size = 8, .data_size = size + 4, .timeout = exposure->left_ms};
        NetworkAddress address;
        uint16_t port = htons(exposure->port);

        network_address(settings, exposure->slot, &address);
        put_port(element.key, exposure->protocol, exposure->host_port);
        memcpy(element.data, four ? (const void *) &address.ipv4 : &address.ipv6, size);
        memcpy(element.data + size, &port, sizeof(port));
        return element;
}

static Element exposed_from(const NetworkExposure *exposure, int family, const char *set) {
        size_t size = family == AF_INET ? 4 : 16;
        uint32_t mark = exposed_mark(exposure);
        Element element = {.set = set, .size = 8 + size, .range = true, .data_size = sizeof(mark), .timeout = exposure->left_ms};

        put_port(element.key, exposure->protocol, exposure->host_port);
        if (exposure->from_family == family)
                memcpy(element.key + 8, exposure->from, size);
        memcpy(element.end, element.key, element.size);
        for (unsigned bit = exposure->from_family ? exposure->from_prefix : 0; bit < size * 8; bit++)
                element.end[8 + bit / 8] |= (unsigned char) (0x80 >> bit % 8);
        memcpy(element.data, &mark, sizeof(mark));
        return element;
}

typedef struct ExposedElements {
        Element elements[5];
        char names[3][16];
        size_t n;
} ExposedElements;

// What leads there last when it is made, first when it goes.
static void exposed_elements(const NetworkSettings *settings, const NetworkExposure *exposure, ExposedElements *ret) {
        const int families[] = {AF_INET, AF_INET6};
        uint32_t mark = exposed_mark(exposure);

        ret->n = 0;
        for (size_t i = 0; i < 2; i++)
                if (!exposure->from_family || exposure->from_family == families[i])
                        ret->elements[ret->n++] = exposed_nat(settings, exposure, families[i]);
        for (size_t i = 0; i < 2; i++) {
                if (exposure->from_family && exposure->from_family != families[i])
                        continue;
                (void) snprintf(ret->names[i], sizeof(ret->names[i]), "i%04x_expose%d", exposure->slot, i ? 6 : 4);
                ret->elements[ret->n++] = exposed_from(exposure, families[i], ret->names[i]);
        }
        (void) snprintf(ret->names[2], sizeof(ret->names[2]), "i%04x_exposed", exposure->slot);
        ret->elements[ret->n] = (Element) {.set = ret->names[2], .size = sizeof(mark), .timeout = exposure->left_ms};
        memcpy(ret->elements[ret->n++].key, &mark, sizeof(mark));
}

int transaction_expose(Transaction *transaction, const NetworkSettings *settings, const NetworkExposure *exposure) {
        ExposedElements list;
        int r = 0;

        exposed_elements(settings, exposure, &list);
        for (size_t i = 0; i < list.n && r >= 0; i++)
                r = batch_element(&transaction->batch, &list.elements[i], true);
        return r;
}

int transact_expose(const NetworkSettings *settings, const NetworkExposure *exposure) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = transaction_expose(transaction, settings, exposure);
        return r < 0 ? r : transaction_commit(transaction);
}

// One by one: some may have ended.
int transact_unexpose(const NetworkSettings *settings, const NetworkExposure *exposure) {
        ExposedElements list;
        int r = 0;

        exposed_elements(settings, exposure, &list);
        for (size_t i = 0; i < list.n && r >= 0; i++) {
                _cleanup_(transaction_freep) Transaction *transaction = NULL;
                r = transaction_new(&transaction);
                if (r >= 0)
                        r = batch_element(&transaction->batch, &list.elements[i], false);
                if (r >= 0)
                        r = transaction_commit(transaction);
                r = r == -ENOENT ? 0 : r;
        }
        return r;
}

int transaction_commit(Transaction *transaction) {
        int r = batch_send(&transaction->batch, transaction->first);

        last_sequence = transaction->batch.sequence;
        return r;
}

int transact_policy(const PolicyText *text) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = transaction_policy(transaction, text);
        return r < 0 ? r : transaction_commit(transaction);
}

int transaction_profile(Transaction *transaction, uint16_t profile) {
        return batch_profile(&transaction->batch, profile, true);
}

int transaction_sandbox(Transaction *transaction, const NetworkAddress *sandbox) {
        return batch_sources(&transaction->batch, sandbox, true);
}

int transact_profile(uint16_t profile, bool add) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = batch_profile(&transaction->batch, profile, add);
        if (r >= 0)
                r = transaction_commit(transaction);
        return r == -ENOENT && !add ? 0 : r; // all are there or none is
}

int transact_sandbox(const NetworkAddress *sandbox, bool add) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = batch_sources(&transaction->batch, sandbox, true);
        if (r >= 0 && !add)
                r = batch_sources(&transaction->batch, sandbox, false);
        return r < 0 ? r : transaction_commit(transaction);
}

int transact_slot(const NetworkSettings *settings, uint16_t slot, bool add) {
        _cleanup_(transaction_freep) Transaction *transaction = NULL;
        int r = transaction_new(&transaction);

        if (r >= 0)
                r = batch_slot(&transaction->batch, settings, slot, true);
        if (r >= 0 && !add) // added first, so that removing cannot fail for absence
                r = batch_slot(&transaction->batch, settings, slot, false);
        return r < 0 ? r : transaction_commit(transaction);
}

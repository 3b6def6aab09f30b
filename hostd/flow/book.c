// SPDX-License-Identifier: GPL-2.0-or-later
// FlowBook: see book.h. The kernel says who and where to; by which rule is found here: a connection's mark has the rule's id, and a denial
// is explained by the code that enforces (policy_decide).
#include "flow/book.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "network/number.h"
#include "network/view_lists.h"

typedef struct FlowSlot {
        ViewSlot view;
        struct in_addr ipv4;
        struct in6_addr ipv6;
        FlowLog *log; // NULL: could not be opened, or it is its instance's: see log_of()
        usec_t gone;  // when it was said to be gone; 0: it is there
        usec_t events_filled;
        double events; // that may be sent at once
} FlowSlot;

struct FlowBook {
        FlowBookConfig config;
        ViewLists lists;
        FlowSlot *slots[UINT16_MAX + 1];
        bool whole; // every slot there is was told once
};

int flow_book_new(const FlowBookConfig *config, FlowBook **ret) {
        FlowBook *book = calloc(1, sizeof(FlowBook));

        if (!book)
                return -ENOMEM;
        book->config = *config;
        *ret = book;
        return 0;
}

static FlowSlot *slot_free(FlowSlot *slot) {
        if (!slot)
                return NULL;
        view_slot_done(&slot->view);
        (void) flow_log_free(slot->log);
        free(slot);
        return NULL;
}

FlowBook *flow_book_free(FlowBook *book) {
        if (!book)
                return NULL;
        for (size_t i = 0; i < ELEMENTS(book->slots); i++)
                (void) slot_free(book->slots[i]);
        view_lists_done(&book->lists);
        free(book);
        return NULL;
}

// Evidence is kept by instance: a sandbox is over before anybody asks.
static bool slot_has_log(const FlowSlot *slot) {
        return !slot->view.within && !slot->view.profile;
}

static FlowLog *log_of(const FlowBook *book, const FlowSlot *slot) {
        const FlowSlot *instance = slot_has_log(slot) ? slot : book->slots[slot->view.within ?: slot->view.around];

        return instance ? instance->log : NULL;
}

static int slot_open_log(const FlowBook *book, FlowSlot *slot) {
        return slot->log || !slot_has_log(slot) ? 0 : flow_log_new(book->config.logs, slot->view.instance, &book->config.settings, &slot->log);
}

static bool same_owner(const ViewSlot *a, const ViewSlot *b) {
        return strcmp(a->instance, b->instance) == 0 && strcmp(a->sandbox ?: "", b->sandbox ?: "") == 0;
}

// Another instance in a slot that was used before is another slot.
static int slot_apply(FlowBook *book, ViewSlot *view) {
        FlowSlot **place = &book->slots[view->slot], *slot = *place;

        if (slot && !same_owner(&slot->view, view))
                slot = *place = slot_free(slot);
        if (!slot)
                slot = *place = calloc(1, sizeof(FlowSlot));
        if (!slot)
                return -ENOMEM;
        view_slot_done(&slot->view);
        slot->view = *view;
        *view = (ViewSlot) {0};
        slot->gone = 0;
        (void) inet_pton(AF_INET, slot->view.ipv4, &slot->ipv4);
        (void) inet_pton(AF_INET6, slot->view.ipv6, &slot->ipv6);
        return slot_open_log(book, slot);
}

int flow_book_apply(FlowBook *book, View *view, usec_t now) {
        _cleanup_free_ bool *seen = calloc(UINT16_MAX + 1, sizeof(bool));
        int r = 0;

        if (!seen)
                return -ENOMEM;
        r = view_lists_apply(&book->lists, view);
        if (r < 0)
                return r;
        for (size_t i = 0; i < view->n_slots; i++) {
                uint16_t number = view->slots[i].slot;
                int q = slot_apply(book, &view->slots[i]);
                seen[number] = true;
                r = r < 0 ? r : q;
        }
        for (size_t i = 0; i < view->n_kept; i++)
                seen[view->kept[i]] = true;
        book->whole = book->whole || view->whole;
        for (size_t i = 0; view->whole && i < ELEMENTS(book->slots); i++)
                if (book->slots[i] && !seen[i] && !book->slots[i]->gone)
                        book->slots[i]->gone = now;
        for (size_t i = 0; i < view->n_gone; i++)
                if (book->slots[view->gone[i]])
                        book->slots[view->gone[i]]->gone = now;
        return r;
}

// ---- writing down

static bool slot_may_tell(FlowSlot *slot) {
        usec_t now = clock_monotonic();

        slot->events += (double) (now - slot->events_filled) * FLOW_EVENTS_PER_SEC / (double) USEC_PER_SEC;
        if (!slot->events_filled || slot->events > 4 * FLOW_EVENTS_PER_SEC)
                slot->events = 4 * FLOW_EVENTS_PER_SEC;
        slot->events_filled = now;
        if (slot->events < 1)
                return false;
        slot->events -= 1;
        return true;
}

bool flow_book_record(FlowBook *book, const FlowRecord *record, usec_t now) {
        FlowSlot *slot = book->slots[record->slot];

        if (!slot)
                return false;
        if (log_of(book, slot))
                flow_log_write(log_of(book, slot), record, slot->view.sandbox, now);
        if (record->verdict == FLOW_DENY && book->config.denied && slot_may_tell(slot))
                book->config.denied(record, book->config.userdata);
        return true;
}

void flow_book_lost(FlowBook *book, uint64_t count, const char *reason, usec_t now) {
        for (size_t i = 0; i < ELEMENTS(book->slots); i++)
                if (book->slots[i] && book->slots[i]->log && !book->slots[i]->gone)
                        flow_log_lost(book->slots[i]->log, count, reason, now);
}

// ---- what the kernel says

static bool is_own(const FlowSlot *slot, int family, const uint8_t *address) {
        return family == AF_INET ? memcmp(address, &slot->ipv4, 4) == 0 : memcmp(address, &slot->ipv6, 16) == 0;
}

// The kernel knows a sandbox's packets by its profile, or by its instance where that one's rules decided. Whose they are the addresses say.
static const FlowSlot *slot_of(const FlowBook *book, uint16_t number, int family, const uint8_t *source, const uint8_t *destination) {
        const FlowSlot *slot = book->slots[number];

        if (!slot || (slot_has_log(slot) && (is_own(slot, family, source) || is_own(slot, family, destination))))
                return slot;
        for (size_t i = NETWORK_SANDBOX_FIRST; i <= NETWORK_SANDBOX_LAST; i++) {
                const FlowSlot *s = book->slots[i];
                if (s && (s->view.profile == number || s->view.around == number) && (is_own(s, family, source) || is_own(s, family, destination)))
                        return s;
        }
        return slot;
}

static void set_address(FlowRecord *record, int family, const uint8_t *address) {
        record->family = family == AF_INET ? 4 : 6;
        memcpy(record->address, address, family == AF_INET ? 4 : 16);
}

static PolicyProtocol policy_protocol(uint8_t protocol) {
        switch (protocol) {
        case IPPROTO_TCP:
                return POLICY_TCP;
        case IPPROTO_UDP:
                return POLICY_UDP;
        case IPPROTO_ICMP:
        case IPPROTO_ICMPV6:
                return POLICY_ICMP;
        default:
                return POLICY_ANY;
        }
}

static void set_rule(FlowRecord *record, const Compiled *compiled, const CompiledRule *rule) {
        flow_record_set_policy(record, compiled->policies[rule->policy].name);
        record->rule = (uint16_t) compiled_rule_number(compiled, rule);
}

// "over-budget" is "over budget".
static void set_cause(FlowRecord *record, const char *cause) {
        char text[NFLOG_CAUSE_MAX];

        (void) snprintf(text, sizeof(text), "%s", cause);
        for (char *p = text; *p; p++)
                if (*p == '-')
                        *p = ' ';
        flow_record_set_reason(record, "%s", text);
}

static void explain(FlowRecord *record, const FlowSlot *slot, const NflogPacket *packet) {
        const uint8_t *address = record->address;
        Cidr cidr = cidr_of_address(packet->family, address);
        PolicyQuestion question = {.address = &cidr, .protocol = policy_protocol(packet->protocol), .port = record->port};
        PolicyDecision decision = policy_decide(slot->view.compiled, &question);
        char text[sizeof(record->reason)];

        if (strcmp(packet->cause, "deny") != 0)
                set_cause(record, packet->cause);
        else if (decision.action == POLICY_ALLOW)
                // It was stopped before the rules were asked.
                flow_record_set_reason(record, "not by a rule: the host, another instance, too fast, or no beginning of a connection");
        else {
                if (decision.rule)
                        set_rule(record, decision.of, decision.rule);
                flow_record_set_reason(record, "%s", policy_decision_text(slot->view.compiled, &decision, text, sizeof(text)));
        }
}

bool flow_book_packet(FlowBook *book, const NflogPacket *packet, usec_t now) {
        const FlowSlot *slot = slot_of(book, packet->slot, packet->family, packet->source, packet->destination);
        FlowRecord record;
        bool inbound;

        flow_record_init(&record, FLOW_KERNEL, FLOW_DENY);
        record.slot = slot ? slot->view.slot : packet->slot;
        record.realtime_usec = packet->realtime_usec ?: (int64_t) now;
        record.protocol = packet->protocol;
        inbound = slot && is_own(slot, packet->family, packet->destination);
        set_address(&record, packet->family, inbound ? packet->source : packet->destination);
        record.port = inbound ? packet->source_port : packet->destination_port;
        if (inbound)
                flow_record_set_reason(&record, "an answer on a connection that is not allowed any more");
        else if (slot)
                explain(&record, slot, packet);
        return flow_book_record(book, &record, now);
}

static const CompiledRule *find_rule(const Compiled *compiled, uint16_t id) {
        for (size_t i = 0; compiled && i < compiled->n; i++)
                if (compiled->rules[i].id == id && id != 0)
                        return &compiled->rules[i];
        return NULL;
}

// One minute, two, four, … an hour, and then each full hour: was one of these between the two ages?
static bool is_due(usec_t before, usec_t age) {
        const usec_t minute = 60 * USEC_PER_SEC, hour = 3600 * USEC_PER_SEC;

        for (usec_t due = minute; due < hour; due *= 2)
                if (before < due && age >= due)
                        return true;
        return before / hour < age / hour;
}

static bool is_worth_a_line(const ConntrackFlow *flow, usec_t previous, usec_t now) {
        usec_t start = (usec_t) flow->start_usec;

        if (flow->ended)
                return true;
        if (start == 0 || start > now)
                return false;
        return is_due(previous > start ? previous - start : 0, now - start);
}

bool flow_book_connection(FlowBook *book, const ConntrackFlow *flow, usec_t previous, usec_t now) {
        const FlowSlot *slot = slot_of(book, flow->slot, flow->family, flow->source, flow->destination);
        const CompiledRule *rule = slot ? find_rule(slot->view.compiled, flow->rule_id) : NULL;
        int64_t stop = flow->ended && flow->stop_usec ? flow->stop_usec : (int64_t) now;
        bool outbound = slot && is_own(slot, flow->family, flow->source);
        FlowRecord record;

        if (!is_worth_a_line(flow, previous, now))
                return true;
        flow_record_init(&record, FLOW_KERNEL, FLOW_ALLOW);
        record.slot = slot ? slot->view.slot : flow->slot;
        record.realtime_usec = flow->start_usec ?: stop;
        record.duration_usec = flow->start_usec && stop > flow->start_usec ? (uint64_t) (stop - flow->start_usec) : 0;
        record.protocol = flow->protocol;
        if (flow->protocol != IPPROTO_ICMP && flow->protocol != IPPROTO_ICMPV6)
                record.port = flow->destination_port;
        record.tx = outbound ? flow->sent : flow->received;
        record.rx = outbound ? flow->received : flow->sent;
        record.flags = (uint8_t) ((flow->ended ? 0 : FLOW_FLAG_OPEN) | (outbound ? 0 : FLOW_FLAG_INBOUND));
        set_address(&record, flow->family, outbound ? flow->destination : flow->source);
        if (rule)
                set_rule(&record, slot->view.compiled, rule);
        else
                flow_record_set_reason(&record, "by a rule that is not there any more");
        if (!flow->counted)
                flow_record_set_reason(&record, "its bytes were not counted");
        return flow_book_record(book, &record, now);
}

// ---- housekeeping

static bool is_known(const char *instance, void *userdata) {
        const FlowBook *book = userdata;

        for (size_t i = 0; i < ELEMENTS(book->slots); i++)
                if (book->slots[i] && strcmp(book->slots[i]->view.instance, instance) == 0)
                        return true;
        return false;
}

void flow_book_tidy(FlowBook *book, usec_t now) {
        for (size_t i = 0; i < ELEMENTS(book->slots); i++) {
                FlowSlot *slot = book->slots[i];
                if (!slot)
                        continue;
                if (slot->gone && now > slot->gone && now - slot->gone > FLOW_GONE_AFTER) {
                        book->slots[i] = slot_free(slot);
                        continue;
                }
                if (slot_open_log(book, slot) >= 0 && slot->log)
                        flow_log_tidy(slot->log, now);
        }
        if (!book->whole) // whose logs are nobody's is not known
                return;
        // What cannot be removed now is met again at the next time.
        (void) flow_log_sweep(book->config.logs, now > book->config.settings.age ? now - book->config.settings.age : 0, FLOW_SWEEP_KEEP, is_known, book);
}

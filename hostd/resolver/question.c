// SPDX-License-Identifier: GPL-2.0-or-later
// Question: from an instance's question to its answer. See resolver.h for the objects, verdict.c for what is allowed.
//
// The view may change while a question waits: it is held against the view again when it goes on. Addresses of names that are allowed
// on ports which the proxy does not serve are in the kernel before the answer leaves, or there is no answer.
#include "resolver/resolver.h"

#include <string.h>

#define INSERT_TIMEOUT (2 * USEC_PER_SEC)

struct Pending {
        Waiter waiter; // first: its callback gets it
        Slot *slot;
        Pending *next, *previous;
        Origin origin;
        DnsQuery query;
        usec_t start;
        bool cached;
        // Behind the lookup, while the kernel is waited for:
        uint64_t first_cookie;
        size_t n_keys, n_acked;
        GrantKey *keys; // owned, as are the records
        uint8_t *records;
        size_t size;
        uint32_t ttl;
        sd_event_source *timer;
};

// What is known of a question in both its lives, before and as a Pending.
typedef struct Question {
        Slot *slot;
        const Origin *origin;
        const DnsQuery *query;
        const Verdict *verdict;
        usec_t start;
        bool cached, quiet; // quiet: not to be told to hostd-flow
} Question;

Pending *pending_free(Pending *pending) {
        if (!pending)
                return NULL;
        waiter_cancel(&pending->waiter);
        *(pending->previous ? &pending->previous->next : &pending->slot->pendings) = pending->next;
        if (pending->next)
                pending->next->previous = pending->previous;
        pending->slot->n_pending--;
        sd_event_source_disable_unref(pending->timer);
        free(pending->keys);
        free(pending->records);
        free(pending);
        return NULL;
}

void pending_free_of(Slot *slot, const TcpClient *client) {
        for (Pending *p = slot->pendings, *next; p; p = next) {
                next = p->next;
                if (!client || (p->origin.kind == ORIGIN_TCP && p->origin.tcp == client))
                        pending_free(p);
        }
}

static Pending *pending_new(const Question *q) {
        Slot *slot = q->slot;
        Pending *p = slot->n_pending < PENDING_MAX ? calloc(1, sizeof(Pending)) : NULL;

        if (!p)
                return NULL;
        p->slot = slot;
        p->origin = *q->origin;
        p->query = *q->query;
        p->start = q->start;
        p->cached = q->cached;
        p->next = slot->pendings;
        if (p->next)
                p->next->previous = p;
        slot->pendings = p;
        slot->n_pending++;
        return p;
}

// ---- ends: each of them answers, and nothing more is done with the question

static void end_verdict(const Question *q, int error) {
        const Verdict *v = q->verdict;

        answer_send(q->slot, q->origin, q->query,
                    &(Answered) {
                            .verdict = v, .rcode = v->rcode, .ede = v->ede, .text = v->text, .records = v->records, .size = v->size, .ttl = RESOLVER_TTL_MIN,
                            .error = v->answered ? (v->size > 0 ? -EACCES : -ENODATA) : error, // the proxy has no use for localhost
                            .flow = v->answered ? FLOW_ALLOW : FLOW_DENY, .start = q->start, .quiet = q->quiet,
                    });
}

static void end_failure(const Question *q, DnsEde ede, const char *text, int error) {
        answer_send(q->slot, q->origin, q->query,
                    &(Answered) {.verdict = q->verdict, .rcode = DNS_SERVFAIL, .ede = ede, .text = text, .error = error, .flow = FLOW_ERROR, .start = q->start, .cached = q->cached});
}

static void end_result(const Question *q, const Result *result) {
        answer_send(q->slot, q->origin, q->query,
                    &(Answered) {
                            .verdict = q->verdict, .rcode = (DnsRcode) result->rcode, .ede = DNS_EDE_NONE, .records = result->records, .size = result->size,
                            .ttl = result->ttl, .flow = FLOW_ALLOW, .start = q->start, .cached = q->cached,
                    });
}

static void verdict_now(Slot *slot, const DnsQuery *query, usec_t now, Verdict *ret) {
        verdict_of(&slot->view, &slot->zones, &(VerdictQuestion) {&query->name, query->type, query->class, now}, ret);
}

// What the proxy is told where a guest reads REFUSED: a limit passes, a policy does not.
static int refusal_error(const Verdict *verdict) {
        return verdict->ede == DNS_EDE_BLOCKED ? -EACCES : -EBUSY;
}

// ---- the kernel

typedef struct Keys { size_t n; GrantKey list[2 * PENDING_INSERTS_MAX]; } Keys;

// Of one list, into its own map.
static void keys_of_list(const Question *q, const Compiled *compiled, uint16_t slot, const Result *result, Keys *ret) {
        PolicyInsert rules[VERDICT_INSERTS_MAX];
        char name[DNS_TEXT_MAX];
        size_t n = policy_inserts(compiled, dns_name_to_text(&q->query->name, name), rules, ELEMENTS(rules)), offset = 0;
        DnsRecord record;

        while (n > 0 && dns_record_next(result->records, result->size, &offset, &record)) {
                GrantKey key = {.slot = slot, .family = record.type == DNS_A ? 4 : 6};
                if (record.type != DNS_A && record.type != DNS_AAAA)
                        continue;
                memcpy(key.address, record.data, record.size);
                // Such an address is here because a rule names its range: that rule decides, and the kernel takes no other for it.
                Cidr address = cidr_of_address(key.family == 4 ? AF_INET : AF_INET6, key.address);
                if (denied_by_default(&address))
                        continue;
                for (size_t i = 0; i < MIN2(n, ELEMENTS(rules)); i++) {
                        key.rule_id = rules[i].rule->id;
                        key.ports = rules[i].ports;
                        if (!grants_fresh(&q->slot->grants, &key, q->start) && ret->n < ELEMENTS(ret->list))
                                ret->list[ret->n++] = key;
                }
        }
}

static bool has_inserts(const Compiled *compiled, const DnsName *asked) {
        char name[DNS_TEXT_MAX];

        return compiled && policy_inserts(compiled, dns_name_to_text(asked, name), NULL, 0) > 0;
}

// Addresses for rules on ports that are not proxied which the kernel does not have for long enough, of a sandbox for both of its lists. Cuts the
// records to as many addresses as can be put in.
static void keys_of(const Question *q, Result *result, Keys *ret) {
        const ViewSlot *view = &q->slot->view;
        const Compiled *within = view->compiled->within;
        uint16_t own = view->profile ?: view->slot;

        ret->n = 0;
        if (q->origin->kind == ORIGIN_PROXY || result->size == 0)
                return;
        if (!has_inserts(view->compiled, &q->query->name) && !has_inserts(within, &q->query->name))
                return;
        result->size = records_cut(result->records, result->size, VERDICT_INSERT_ADDRESSES);
        keys_of_list(q, view->compiled, own, result, ret);
        if (within && view->around)
                keys_of_list(q, within, view->around, result, ret);
}

static void pending_question(const Pending *p, const Verdict *verdict, Question *ret) {
        *ret = (Question) {p->slot, &p->origin, &p->query, verdict, p->start, p->cached, false};
}

static void pending_fail_insert(Pending *p) {
        Verdict verdict;
        Question q;

        verdict_now(p->slot, &p->query, clock_monotonic(), &verdict);
        pending_question(p, &verdict, &q);
        end_failure(&q, DNS_EDE_NOT_READY, "the firewall did not take the addresses of this name", -EIO);
        pending_free(p);
}

static int pending_on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        pending_fail_insert(userdata);
        return 0;
}

static int pending_send_inserts(Pending *p) {
        Resolver *resolver = p->slot->resolver;
        int r = 0;

        p->first_cookie = resolver->last_cookie + 1;
        resolver->last_cookie += p->n_keys;
        for (size_t i = 0; r >= 0 && i < p->n_keys; i++) {
                BorderInsert insert = {.slot = p->keys[i].slot, .rule_id = p->keys[i].rule_id, .family = p->keys[i].family, .ttl_s = p->ttl, .ports = p->keys[i].ports};
                memcpy(insert.address, p->keys[i].address, sizeof(insert.address));
                r = control_server_send(resolver->control, BORDER_INSERT, p->first_cookie + i, &insert, sizeof(insert));
        }
        if (r < 0)
                return r;
        return sd_event_add_time_relative(resolver->event, &p->timer, CLOCK_MONOTONIC, INSERT_TIMEOUT, 10 * USEC_PER_MSEC, pending_on_timer, p);
}

// `p` is the question's, or NULL where the answer was in the cache.
static void wait_for_kernel(const Question *q, const Result *result, const Keys *keys, Pending *p) {
        if (!p)
                p = pending_new(q);
        if (!p) {
                end_failure(q, DNS_EDE_NOT_READY, "too many questions wait", -EBUSY);
                return;
        }
        p->n_keys = keys->n;
        p->keys = malloc(keys->n * sizeof(GrantKey));
        p->size = result->size;
        p->records = malloc(result->size);
        p->ttl = result->ttl;
        if (p->keys && p->records) {
                memcpy(p->keys, keys->list, keys->n * sizeof(GrantKey));
                memcpy(p->records, result->records, result->size);
                if (pending_send_inserts(p) >= 0)
                        return;
        }
        pending_fail_insert(p);
}

static void pending_finish(Pending *p) {
        Result result = {.rcode = DNS_NOERROR, .records = p->records, .size = p->size, .ttl = p->ttl};
        Verdict verdict;
        Question q;

        verdict_now(p->slot, &p->query, clock_monotonic(), &verdict);
        pending_question(p, &verdict, &q);
        if (!verdict.pass || !verdict_of_addresses(&p->slot->view, p->records, p->size, &verdict))
                end_verdict(&q, refusal_error(&verdict));
        else
                end_result(&q, &result);
        pending_free(p);
}

static Pending *pending_of_cookie(const Resolver *resolver, uint64_t cookie) {
        for (Slot *slot = resolver->slots; slot; slot = slot->next)
                for (Pending *p = slot->pendings; p; p = p->next)
                        if (p->n_keys > 0 && cookie >= p->first_cookie && cookie - p->first_cookie < p->n_keys)
                                return p;
        return NULL;
}

void question_on_ack(Resolver *resolver, uint64_t cookie, int error) {
        Pending *p = pending_of_cookie(resolver, cookie);
        GrantKey *key;

        if (!p) // it has timed out, or its slot is gone
                return;
        key = &p->keys[cookie - p->first_cookie];
        if (error < 0) {
                pending_fail_insert(p);
                return;
        }
        // What is not noted is asked for again: no memory is no reason to be silent.
        (void) grants_add(&p->slot->grants, key, p->ttl, clock_monotonic());
        if (++p->n_acked == p->n_keys)
                pending_finish(p);
}

void question_on_control_lost(Resolver *resolver) {
        for (Slot *slot = resolver->slots; slot; slot = slot->next) {
                grants_done(&slot->grants);
                for (Pending *p = slot->pendings, *next; p; p = next) {
                        next = p->next;
                        if (p->n_keys > 0)
                                pending_fail_insert(p);
                }
        }
}

// ---- the answer of an upstream or of the cache

static void go_on(const Question *q, Result *result, Pending *p) {
        Verdict bad = *q->verdict;
        Question refused = *q;
        static Keys keys; // large, and used by one at a time

        if (result->error == -EBUSY) // others have fewer
                end_failure(q, DNS_EDE_NOT_READY, "too many questions wait", -EBUSY);
        else if (result->error < 0)
                end_failure(q, DNS_EDE_NETWORK, "no upstream resolver has an answer", result->error == -ETIMEDOUT ? -ETIMEDOUT : -EIO);
        else if (!verdict_of_addresses(&q->slot->view, result->records, result->size, &bad)) {
                refused.verdict = &bad;
                end_verdict(&refused, -EACCES);
        } else {
                keys_of(q, result, &keys);
                if (keys.n > 0) {
                        wait_for_kernel(q, result, &keys, p);
                        return;
                }
                result->size = records_cut(result->records, result->size, DNS_ADDRESSES_MAX);
                end_result(q, result);
        }
        pending_free(p);
}

static void pending_on_result(Waiter *waiter, const Result *result) {
        Pending *p = (Pending *) waiter;
        Result copy = *result;
        Verdict verdict;
        Question q;

        verdict_now(p->slot, &p->query, clock_monotonic(), &verdict);
        pending_question(p, &verdict, &q);
        if (verdict.pass) {
                go_on(&q, &copy, p);
                return;
        }
        end_verdict(&q, refusal_error(&verdict));
        pending_free(p);
}

static void look_up(const Question *q) {
        Pending *p = pending_new(q);
        int r = p ? 0 : -EBUSY;

        if (p) {
                p->waiter.done = pending_on_result;
                r = lookups_start(q->slot->resolver->lookups, q->slot->view.slot, q->query, &p->waiter);
        }
        if (r == 0)
                return;
        end_failure(q, DNS_EDE_NOT_READY, r == -EBUSY ? "too many questions wait" : "no upstream resolver can be asked", r == -EBUSY ? r : -EIO);
        pending_free(p);
}

static void refuse_rate(Slot *slot, const Origin *origin, const DnsQuery *query, usec_t now) {
        Verdict verdict = {.rcode = DNS_REFUSED, .ede = DNS_EDE_FILTERED, .decision = {.action = POLICY_DENY, .index = -1}};
        Question q = {slot, origin, query, &verdict, now, false, !rate_take(&slot->complaints, now)};

        (void) snprintf(verdict.text, sizeof(verdict.text), "more than %u questions a second", slot->view.dns.rate);
        end_verdict(&q, -EBUSY);
        if (!rate_take(&slot->refusals, now))
                slot_pause(slot);
}

void question_malformed(Slot *slot, const Origin *origin, const DnsQuery *query, int rcode) {
        usec_t now = clock_monotonic();

        // It counts as a question: the answer costs as much.
        if (!rate_take(&slot->rate, now) && !rate_take(&slot->refusals, now))
                slot_pause(slot);
        answer_send(slot, origin, query,
                    &(Answered) {.rcode = (DnsRcode) rcode, .ede = DNS_EDE_NONE, .error = -EINVAL, .flow = FLOW_DENY, .start = now, .quiet = !rate_take(&slot->complaints, now)});
}

void question_ask(Slot *slot, const Origin *origin, const DnsQuery *query) {
        usec_t now = clock_monotonic();
        Verdict verdict;
        Question q = {slot, origin, query, &verdict, now, false, false};
        Result result;

        if (!rate_take(&slot->rate, now)) {
                refuse_rate(slot, origin, query, now);
                return;
        }
        verdict_now(slot, query, now, &verdict);
        if (!verdict.pass)
                end_verdict(&q, refusal_error(&verdict));
        else if (lookups_cached(slot->resolver->lookups, &query->name, query->type, &result)) {
                q.cached = true;
                go_on(&q, &result, NULL);
        } else
                look_up(&q);
}

void question_proxy(Resolver *resolver, uint64_t connection, const ResolveQuestion *question) {
        Slot *slot = slot_find(resolver, question->slot);
        Origin origin = {.kind = ORIGIN_PROXY, .connection = connection, .cookie = question->cookie};
        DnsQuery query = {.type = question->family == 4 ? DNS_A : DNS_AAAA, .class = DNS_CLASS_IN};
        ResolveAnswer no = {.cookie = question->cookie, .error = -EACCES};

        if (slot && dns_name_from_text(question->name, &query.name) == 0)
                question_ask(slot, &origin, &query);
        else
                (void) resolve_server_answer(resolver->proxy, connection, &no);
}

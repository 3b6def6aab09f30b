// SPDX-License-Identifier: GPL-2.0-or-later
// Approvals: see approvals.h.
//
// A grant is written before it is in force and in force no more before that is written: what a crash leaves in the store is at worst a grant that
// ends at its time all the same.
#include "core/approvals.h"

#include <netinet/in.h>
#include <string.h>

#include "base/log.h"
#include "base/strv.h"
#include "core/guest.h"
#include "core/policy_set.h"
#include "core/secrets.h"
#include "network/compile.h"

#define PREFIX "approval."
#define NEXT "approvals.next"
#define ENDING_ACCURACY (USEC_PER_SEC / 10)
#define RETRY_EVERY (5 * USEC_PER_SEC)
#define ASK_EVERY (6 * USEC_PER_SEC) // of one instance, new ones in the long run,
#define ASK_BURST 10                 // and so many at once
#define FRAME_EVERY (USEC_PER_SEC / 20)
#define FRAME_BURST 64

typedef struct Pace { usec_t asks, frames; } Pace; // monotonic: when all that was taken is paid for

struct Approvals {
        Manager *manager;
        Approval **list; // by number
        size_t n;
        uint32_t next;
        Pace pace[SLOT_MAX + 1];
        sd_event_source *ending;
};

static void plan_ending(Approvals *s);

static const char *protocol_name(const Approval *a) {
        return a->protocol == IPPROTO_UDP ? "udp" : "tcp";
}

static json_t *describe(const Approval *a) {
        return json_pack("{s:I, s:s, s:s, s:i, s:s}", "id", (json_int_t) a->number, "to", a->to, "protocol", protocol_name(a), "port", (int) a->port, "reason", a->reason);
}

static void tell(Approvals *s, const Approval *a, const char *event) {
        json_t *detail = describe(a);

        if (a->by[0])
                (void) json_object_set_new(detail, "by", json_string(a->by));
        if (s->manager->bus)
                event_publish(s->manager->bus, event, a->instance, detail);
        else
                json_decref(detail);
}

// What no request of an operator's records.
static void record(Approvals *s, const Approval *a, const char *user, const char *method, const char *result) {
        json_t *detail = describe(a);
        AuditRecord audit = {.user = user, .method = method, .target = a->instance, .result = result, .detail = detail};
        _cleanup_error_ Error err = ERROR_NULL;

        (void) json_object_set_new(detail, "uid", json_integer(a->uid));
        if (s->manager->audit)
                manager_note_audit(s->manager, audit_append(s->manager->audit, &audit, &err), &err);
        json_decref(detail);
}

// ---- the store

static int keep(Approvals *s, const Approval *a, bool on_disk, Error *err) {
        _cleanup_free_ char *text = NULL;
        json_t *json = approval_json(a);
        char key[32];

        (void) snprintf(key, sizeof(key), PREFIX "%u", a->number);
        text = json ? json_dumps(json, JSON_COMPACT) : NULL;
        json_decref(json);
        if (!text)
                return error_set_errno(err, ENOMEM, "cannot keep an approval");
        return on_disk ? store_value_keep(s->manager->store, key, text, err) : store_value_set(s->manager->store, key, text, err);
}

static int drop(Approvals *s, size_t i, Error *err) {
        char key[32];
        int r;

        (void) snprintf(key, sizeof(key), PREFIX "%u", s->list[i]->number);
        r = store_value_set(s->manager->store, key, NULL, err);
        if (r < 0 && r != -ENOENT)
                return r;
        (void) approval_free(s->list[i]);
        memmove(s->list + i, s->list + i + 1, (--s->n - i) * sizeof(Approval *));
        return 0;
}

// Of what is decided the newest are kept.
static void forget_old(Approvals *s) {
        size_t decided = 0;

        for (size_t i = 0; i < s->n; i++)
                decided += s->list[i]->state != APPROVAL_PENDING && s->list[i]->state != APPROVAL_APPROVED;
        for (size_t i = 0; i < s->n && decided > APPROVALS_KEPT;)
                if (s->list[i]->state == APPROVAL_PENDING || s->list[i]->state == APPROVAL_APPROVED)
                        i++;
                else if (drop(s, i, NULL) < 0)
                        return;
                else
                        decided--;
}

static int add(Approvals *s, Approval *a) {
        Approval **grown = reallocarray(s->list, s->n + 1, sizeof(Approval *));
        size_t i = s->n;

        if (!grown)
                return -ENOMEM;
        s->list = grown;
        for (; i > 0 && s->list[i - 1]->number > a->number; i--)
                s->list[i] = s->list[i - 1];
        s->list[i] = a;
        s->n++;
        return 0;
}

static Approval *find(const Approvals *s, uint32_t number) {
        for (size_t i = 0; s && i < s->n; i++)
                if (s->list[i]->number == number)
                        return s->list[i];
        return NULL;
}

const Approval *approvals_find(const Manager *m, uint32_t number) {
        return find(m->approvals, number);
}

static int load_one(Approvals *s, const char *key) {
        _cleanup_(approval_freep) Approval *a = NULL;
        _cleanup_free_ char *text = NULL;
        int r = store_value_get(s->manager->store, key, &text, NULL);

        if (r >= 0)
                r = approval_parse(text, &a);
        if (r >= 0 && a->state == APPROVAL_APPROVED)
                r = approval_rule(a, &a->policy, NULL);
        if (r >= 0)
                r = add(s, a);
        if (r < 0)
                return r;
        s->next = MAX2(s->next, a->number + 1);
        a = NULL; // the list's
        return 0;
}

static int load(Approvals *s, Error *err) {
        _cleanup_strv_ char **keys = NULL;
        _cleanup_free_ char *next = NULL;
        unsigned damaged = 0;
        int r = store_value_list(s->manager->store, PREFIX, &keys, err);

        if (r < 0)
                return r;
        if (store_value_get(s->manager->store, NEXT, &next, NULL) >= 0)
                s->next = (uint32_t) strtoul(next, NULL, 10);
        s->next = MAX2(s->next, 1U);
        for (char **key = keys; key && *key; key++)
                damaged += load_one(s, *key) < 0;
        if (damaged > 0) // not in force: what cannot be read is no yes
                manager_warn(s->manager, "approvals", "host", "%u approvals in the state database are damaged and not in force", damaged);
        else
                manager_unwarn(s->manager, "approvals", "host");
        return 0;
}

int approvals_open(Manager *m, Error *err) {
        _cleanup_(approvals_freep) Approvals *s = calloc(1, sizeof(Approvals));
        int r;

        if (!s)
                return error_set_errno(err, ENOMEM, "cannot read the approvals");
        s->manager = m;
        r = load(s, err);
        if (r < 0)
                return r;
        plan_ending(s); // from the loop: what ended meanwhile is closed already, wherever it was open
        m->approvals = TAKE_PTR(s);
        return 0;
}

Approvals *approvals_free(Approvals *s) {
        if (!s)
                return NULL;
        s->ending = sd_event_source_disable_unref(s->ending);
        for (size_t i = 0; i < s->n; i++)
                (void) approval_free(s->list[i]);
        free(s->list);
        free(s);
        return NULL;
}

// ---- grants

static bool is_grant_of(const Approval *a, const char *instance) {
        return a->policy && a->until > clock_realtime() && strcmp(a->instance, instance) == 0;
}

static int prepend_grants(const Approvals *s, const Instance *instance, PolicySet *set) {
        Policy **all = calloc(set->n + APPROVALS_GRANTS + 1, sizeof(Policy *));
        const char *name = instance->record.name;
        size_t n = 0;

        if (!all)
                return -ENOMEM;
        for (size_t i = 0; s && i < s->n && n < APPROVALS_GRANTS; i++)
                if (is_grant_of(s->list[i], name))
                        all[n++] = s->list[i]->policy;
        memcpy(all + n, set->list, set->n * sizeof(Policy *));
        if (n > 0 && policies_check(all, n + set->n, NULL) < 0) { // with policies that were changed since: those are what counts
                log_event(LOG_WARNING, NULL, name, "its policies and grants have too many rules together: no grant is in force");
                free(all);
                return 0;
        }
        for (size_t i = 0; i < n; i++) // while an instance is offline they are no exception
                if (policy_bind(all[i], &(PolicyUse) {.offline = instance->config->offline}, &all[i], NULL) < 0) {
                        while (i-- > 0)
                                (void) policy_free(all[i]);
                        free(all);
                        return -ENOMEM;
                }
        free(set->list);
        *set = (PolicySet) {all, n + set->n};
        return 0;
}

int instance_policies(const Instance *instance, PolicySet *ret, Error *err) {
        Manager *m = instance->manager;
        int r = policy_set_load(m, m->desired, instance->config, NULL, ret, err);

        if (r >= 0 && prepend_grants(m->approvals, instance, ret) < 0) {
                policy_set_done(ret);
                r = error_set_errno(err, ENOMEM, "cannot collect policies");
        }
        return r;
}

static int apply(Approvals *s, const char *name, Error *err) {
        Instance *instance = instance_list_find(&s->manager->instances, name);
        int r = 0;

        if (instance && instance_is_live(instance) && instance->config)
                r = instance_apply_network(instance, err);
        secrets_plan(s->manager); // what serves secrets knows policies, too
        return r;
}

static GuestAskState guest_state(const Approval *a) {
        static const GuestAskState states[_APPROVAL_STATE_MAX] = {
                [APPROVAL_PENDING] = GUEST_ASK_PENDING, [APPROVAL_APPROVED] = GUEST_ASK_APPROVED, [APPROVAL_DENIED] = GUEST_ASK_DENIED,
                [APPROVAL_ENDED] = GUEST_ASK_ENDED,     [APPROVAL_LAPSED] = GUEST_ASK_LAPSED,
        };

        return states[a->state];
}

static void answer(const Approvals *s, const Approval *a, const char *id) {
        const Instance *instance = instance_list_find(&s->manager->instances, a->instance);
        GuestReply reply = {.id = id, .state = guest_state(a), .number = a->number, .until = a->state == APPROVAL_APPROVED ? a->until : 0, .text = a->answer};

        if (instance && instance->guest)
                guest_channel_answer(instance->guest, &reply);
}

// ---- asking

static bool pace_take(usec_t *paid, usec_t every, unsigned burst) {
        usec_t now = clock_monotonic(), at = MAX2(*paid, now);

        if (at - now > (burst - 1) * every)
                return false;
        *paid = at + every;
        return true;
}

static void refuse(const Instance *instance, const GuestAsk *ask, const char *text) {
        guest_channel_answer(instance->guest, &(GuestReply) {.id = ask->header.id, .state = GUEST_ASK_REFUSED, .text = text});
}

static Approval *same(const Approvals *s, const Instance *instance, const GuestAsk *ask) {
        for (size_t i = 0; i < s->n; i++) {
                Approval *a = s->list[i];
                bool open = a->state == APPROVAL_PENDING || is_grant_of(a, instance->record.name);
                if (open && strcmp(a->instance, instance->record.name) == 0 && strcmp(a->to, ask->to) == 0 && a->port == ask->port && a->protocol == ask->protocol)
                        return a;
        }
        return NULL;
}

static size_t count(const Approvals *s, const char *name, ApprovalState state) {
        size_t n = 0;

        for (size_t i = 0; i < s->n; i++)
                n += s->list[i]->state == state && strcmp(s->list[i]->instance, name) == 0;
        return n;
}

// An answer at once where nothing would change by a yes.
static bool is_allowed(const Instance *instance, const Approval *a, char *buf, size_t size) {
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        PolicyTarget target = policy_target(a->to);
        PolicyProbe probe = {.protocol = a->protocol == IPPROTO_UDP ? POLICY_UDP : POLICY_TCP, .port = a->port};
        PolicyAnswer answer;

        if ((target != POLICY_TO_NAME && target != POLICY_TO_CIDR) || strchr(a->to, '/') || !instance->config || instance_policies(instance, &policies, NULL) < 0)
                return false;
        if (target == POLICY_TO_NAME)
                probe.name = a->to;
        else
                probe.address = a->to;
        if (policy_explain(policies.list, policies.n, &probe, &answer, NULL) < 0 || answer.action != POLICY_ALLOW)
                return false;
        (void) snprintf(buf, size, "there is nothing to ask for: %.150s", answer.text);
        return true;
}

static int check(Approvals *s, const Instance *instance, Approval *a, char *buf, size_t size) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = approval_rule(a, &policy, &err);

        if (r < 0) {
                (void) snprintf(buf, size, "%.190s", error_message(&err, r));
                return r;
        }
        if (is_allowed(instance, a, buf, size))
                return -EEXIST;
        if (count(s, a->instance, APPROVAL_PENDING) >= APPROVALS_PENDING) {
                (void) snprintf(buf, size, "%d requests of this instance wait for an answer already", APPROVALS_PENDING);
                return -EBUSY;
        }
        return 0;
}

static int take(Approvals *s, Approval *a) {
        char next[16];
        int r;

        (void) snprintf(next, sizeof(next), "%u", s->next + 1);
        r = store_value_set(s->manager->store, NEXT, next, NULL);
        if (r >= 0)
                r = keep(s, a, false, NULL);
        if (r >= 0)
                r = add(s, a);
        if (r >= 0)
                s->next++;
        return r;
}

static void ask_new(Approvals *s, const Instance *instance, const GuestAsk *ask) {
        _cleanup_(approval_freep) Approval *a = calloc(1, sizeof(Approval));
        char why[GUEST_REASON_TEXT];

        if (!a)
                return; // it is asked again
        a->number = s->next;
        a->port = ask->port;
        a->protocol = ask->protocol;
        a->uid = ask->header.value;
        a->asked = clock_realtime();
        memcpy(a->instance, instance->record.name, sizeof(a->instance));
        memcpy(a->to, ask->to, sizeof(a->to));
        memcpy(a->reason, ask->reason, sizeof(a->reason));
        if (check(s, instance, a, why, sizeof(why)) < 0) {
                refuse(instance, ask, why);
                return;
        }
        if (take(s, a) < 0) {
                refuse(instance, ask, "hostd cannot keep the request now");
                return;
        }
        tell(s, a, "approval-asked");
        record(s, a, "guest", "io.hostd.Approval.Ask", "ok");
        answer(s, a, ask->header.id);
        a = NULL; // the list's
        plan_ending(s);
}

void approvals_ask(Manager *m, Instance *instance, const GuestAsk *ask) {
        Approvals *s = m->approvals;
        const Approval *a;
        Pace *pace;

        if (!s || !instance->guest)
                return;
        pace = &s->pace[instance->record.slot];
        if (!pace_take(&pace->frames, FRAME_EVERY, FRAME_BURST))
                return; // the helper asks again
        if (ask->header.flags != 0) {
                a = find(s, ask->header.flags);
                if (a && strcmp(a->instance, instance->record.name) == 0)
                        answer(s, a, ask->header.id);
                else
                        refuse(instance, ask, "this instance has no such request");
        } else if ((a = same(s, instance, ask)))
                answer(s, a, ask->header.id);
        else if (!pace_take(&pace->asks, ASK_EVERY, ASK_BURST))
                refuse(instance, ask, "too many requests: wait a few seconds");
        else
                ask_new(s, instance, ask);
}

// ---- deciding

static int no_approval(uint32_t number, Error *err) {
        return error_set(err, ERR_NOT_FOUND, "there is no approval %u: see \"hostctl approvals\"", number);
}

static int check_terms(Approvals *s, const Approval *a, const ApproveTerms *terms, Error *err) {
        const InstanceConfig *config = desired_find_instance(s->manager->desired, a->instance);
        const char *danger = approval_danger(a, desired_find_category(s->manager->desired, POLICY_SPARED));

        if (terms->to && strcmp(terms->to, a->to) != 0)
                return error_set_field(err, "to", "approval %u is for %s, not for %s", a->number, a->to, terms->to);
        if (config && config->offline)
                return error_set(err, ERR_CONFLICT, "%s is offline, and no grant is in force there: say \"hostctl set %s offline=false\" first", a->instance, a->instance);
        if (danger && !terms->to)
                return error_set(err, ERR_DENIED, "%s %s port %u is closed under any policy that does not name it (%s): if that is meant, say \"hostctl approve %u --to %s\"",
                                 a->to, protocol_name(a), a->port, danger, a->number, a->to);
        if (!a->policy && count(s, a->instance, APPROVAL_APPROVED) >= APPROVALS_GRANTS)
                return error_set(err, ERR_QUOTA, "%s has %d grants already: end one with \"hostctl deny\"", a->instance, APPROVALS_GRANTS);
        return 0;
}

// The rules of the grant and of the instance's policies must be possible together.
static int check_together(Approvals *s, const Approval *a, Error *err) {
        const Instance *instance = instance_list_find(&s->manager->instances, a->instance);
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        _cleanup_free_ Policy **all = NULL;
        int r;

        if (!instance || !instance->config)
                return 0;
        r = instance_policies(instance, &policies, err);
        if (r < 0)
                return r;
        all = calloc(policies.n + 1, sizeof(Policy *));
        if (!all)
                return error_set_errno(err, ENOMEM, "cannot collect policies");
        memcpy(all, policies.list, policies.n * sizeof(Policy *));
        all[policies.n] = a->policy;
        return policies_check(all, policies.n + 1, err);
}

static void swap(Approval *a, Approval *b) {
        Approval c = *a;

        *a = *b;
        *b = c;
}

// `fresh` is what it is to be; on failure nothing has changed.
static int change(Approvals *s, Approval *a, Approval *fresh, Error *err) {
        int r = keep(s, fresh, true, err);

        if (r < 0)
                return r;
        swap(a, fresh);
        r = apply(s, a->instance, err);
        if (r >= 0)
                return 0;
        swap(a, fresh);
        (void) keep(s, a, true, NULL);
        (void) apply(s, a->instance, NULL);
        return r;
}

int approvals_approve(Manager *m, uint32_t number, const ApproveTerms *terms, Error *err) {
        Approvals *s = m->approvals;
        _cleanup_(approval_freep) Approval *fresh = calloc(1, sizeof(Approval));
        Approval *a = find(s, number);
        int r;

        if (!a)
                return no_approval(number, err);
        if (!fresh)
                return error_set_errno(err, ENOMEM, "cannot approve");
        r = check_terms(s, a, terms, err);
        if (r < 0)
                return r;
        *fresh = *a;
        fresh->policy = NULL;
        fresh->state = APPROVAL_APPROVED;
        fresh->decided = clock_realtime();
        fresh->until = fresh->decided + (terms->span ?: APPROVAL_SPAN);
        fresh->answer[0] = 0;
        (void) snprintf(fresh->by, sizeof(fresh->by), "%s", terms->by);
        r = approval_rule(fresh, &fresh->policy, err);
        if (r >= 0)
                r = check_together(s, fresh, err);
        if (r >= 0)
                r = change(s, a, fresh, err);
        if (r < 0)
                return r;
        tell(s, a, "approval-approved");
        answer(s, a, NULL);
        plan_ending(s);
        return 0;
}

// Out of force first: whatever the disk says, it is closed, and at its time for good.
static int finish(Approvals *s, Approval *a, ApprovalState state, Error *err) {
        Policy *policy = TAKE_PTR(a->policy);
        int r;

        a->state = state;
        r = policy ? apply(s, a->instance, err) : 0;
        (void) policy_free(policy);
        int kept = keep(s, a, true, r < 0 ? NULL : err);
        r = r < 0 ? r : kept;
        tell(s, a, state == APPROVAL_DENIED ? "approval-denied" : state == APPROVAL_LAPSED ? "approval-lapsed" : "approval-ended");
        answer(s, a, NULL);
        return r;
}

int approvals_deny(Manager *m, uint32_t number, const char *reason, const char *by, Error *err) {
        Approvals *s = m->approvals;
        Approval *a = find(s, number);
        int r;

        if (!a)
                return no_approval(number, err);
        if (a->state != APPROVAL_PENDING && a->state != APPROVAL_APPROVED)
                return error_set(err, ERR_CONFLICT, "approval %u is %s already", number, approval_state_to_string(a->state));
        (void) snprintf(a->by, sizeof(a->by), "%s", by);
        (void) snprintf(a->answer, sizeof(a->answer), "%s", reason ?: "");
        a->decided = clock_realtime();
        r = finish(s, a, a->state == APPROVAL_PENDING ? APPROVAL_DENIED : APPROVAL_ENDED, err);
        forget_old(s);
        plan_ending(s);
        return r;
}

// ---- ending

static void end_those_over(Approvals *s) {
        usec_t now = clock_realtime();
        bool failed = false;

        for (size_t i = 0; i < s->n; i++) {
                Approval *a = s->list[i];
                bool ended = a->state == APPROVAL_APPROVED && a->until <= now, lapsed = a->state == APPROVAL_PENDING && a->asked + APPROVAL_LAPSES <= now;
                _cleanup_error_ Error err = ERROR_NULL;
                if (!ended && !lapsed)
                        continue;
                if (finish(s, a, ended ? APPROVAL_ENDED : APPROVAL_LAPSED, &err) < 0) {
                        manager_warn(s->manager, "approvals-store", "host", "%s", error_message(&err, -EIO));
                        failed = true;
                }
                record(s, a, "hostd", ended ? "io.hostd.Approval.Approve" : "io.hostd.Approval.Ask", "ended");
        }
        if (!failed)
                manager_unwarn(s->manager, "approvals-store", "host");
        forget_old(s);
}

static int ending_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Approvals *s = userdata;

        end_those_over(s);
        plan_ending(s);
        return 0;
}

// By the wall clock, as it was said to the operator.
static void plan_ending(Approvals *s) {
        usec_t next = USEC_INFINITY;

        s->ending = sd_event_source_disable_unref(s->ending);
        for (size_t i = 0; i < s->n; i++) {
                const Approval *a = s->list[i];
                if (a->state == APPROVAL_APPROVED)
                        next = MIN2(next, a->until);
                else if (a->state == APPROVAL_PENDING)
                        next = MIN2(next, a->asked + APPROVAL_LAPSES);
        }
        if (next < USEC_INFINITY && s->manager->event)
                (void) sd_event_add_time(s->manager->event, &s->ending, CLOCK_REALTIME, next, ENDING_ACCURACY, ending_due, s);
}

int approvals_forget_instance(Manager *m, const char *name, Error *err) {
        Approvals *s = m->approvals;

        for (size_t i = s ? s->n : 0; i-- > 0;) {
                int r = strcmp(s->list[i]->instance, name) == 0 ? drop(s, i, err) : 0;
                if (r < 0)
                        return r;
        }
        if (s)
                plan_ending(s);
        return 0;
}

// ---- showing

static json_t *json_time(usec_t when) {
        char text[CLOCK_TEXT_MAX];

        return when > 0 ? json_string(clock_format(when, text)) : json_null();
}

json_t *approvals_list(const Manager *m, const char *name, bool all) {
        const Approvals *s = m->approvals;
        json_t *list = json_array();

        for (size_t i = 0; s && i < s->n; i++) {
                const Approval *a = s->list[i];
                char id[16];
                if ((name && strcmp(a->instance, name) != 0) || (!all && a->state != APPROVAL_PENDING))
                        continue;
                (void) snprintf(id, sizeof(id), "%u", a->number);
                (void) json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:o, s:o, s:o, s:s, s:s, s:I}", "id", id, "name", a->instance, "state",
                                                             approval_state_to_string(a->state), "to", a->to, "protocol", protocol_name(a), "port", (int) a->port, "reason",
                                                             a->reason, "asked", json_time(a->asked), "decided", json_time(a->decided), "until", json_time(a->until), "by",
                                                             a->by, "answer", a->answer, "uid", (json_int_t) a->uid));
        }
        return list;
}

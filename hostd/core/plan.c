// SPDX-License-Identifier: GPL-2.0-or-later
// Plan: see plan.h for the rules. Per observed object one look at a table of what its state means, a few independent rules that
// each may add one action, and a sort at the end: the order of the list never depends on the order of the input.
#include "core/plan.h"

#include <string.h>

// What the rules need to know of a state.
static const struct {
        const char *name;
        bool active;  // processes are or may be there
        bool runs;    // the instance's own; live changes apply
        bool passing; // ends by itself, with an event
} states[_PLAN_STATE_MAX] = {
        [PLAN_STATE_ABSENT] = {"absent", false, false, false},
        [PLAN_STATE_CREATED] = {"created", false, false, false},
        [PLAN_STATE_STARTING] = {"starting", true, false, true},
        [PLAN_STATE_RUNNING] = {"running", true, true, false},
        [PLAN_STATE_STOPPING] = {"stopping", true, false, true},
        [PLAN_STATE_STOPPED] = {"stopped", false, false, false},
        [PLAN_STATE_FROZEN] = {"frozen", true, true, false},
        [PLAN_STATE_CRASHED] = {"crashed", false, false, false},
        [PLAN_STATE_UNKNOWN] = {"unknown", true, false, false},
};

// In the order in which they are carried out.
static const char *const kinds[_PLAN_KIND_MAX] = {
        [PLAN_ADOPT] = "adopt",
        [PLAN_REPORT_UNKNOWN] = "report-unknown",
        [PLAN_REPORT_CRASHING] = "report-crashing",
        [PLAN_CLEAN] = "clean",
        [PLAN_APPLY_NETWORK] = "apply-network",
        [PLAN_APPLY_POLICY] = "apply-policy",
        [PLAN_APPLY_LIMITS] = "apply-limits",
        [PLAN_STOP] = "stop",
        [PLAN_START] = "start",
        [PLAN_WAIT] = "wait",
};

const char *plan_state_to_string(PlanState state) {
        return state >= 0 && state < _PLAN_STATE_MAX ? states[state].name : NULL;
}

const char *plan_kind_to_string(PlanKind kind) {
        return kind >= 0 && kind < _PLAN_KIND_MAX ? kinds[kind] : NULL;
}

bool plan_wants(const PlanDesired *desired, bool booting) {
        if (booting && desired->boot != BOOT_LAST)
                return desired->boot == BOOT_ON;
        return desired->wanted;
}

void plan_note_crash(unsigned *attempts, usec_t *window, usec_t now) {
        if (*attempts == 0 || now >= *window + PLAN_CRASH_WINDOW) {
                *attempts = 0;
                *window = now;
        }
        ++*attempts;
}

// The window is fixed and not sliding; the back-off before its end keeps any ten minutes below the maximum (see the test).
static bool crashing(const PlanObserved *o, usec_t now) {
        return o->attempts >= PLAN_CRASH_MAX && now < o->window + PLAN_CRASH_WINDOW;
}

usec_t plan_restart_due(const PlanObserved *o) {
        unsigned doublings = o->attempts > 0 ? o->attempts - 1 : 0;
        usec_t delay = doublings < 6 ? USEC_PER_SEC << doublings : PLAN_BACKOFF_MAX;
        usec_t due = o->since + MIN2(delay, PLAN_BACKOFF_MAX);

        return o->attempts >= PLAN_CRASH_MAX ? MAX2(due, o->window + PLAN_CRASH_WINDOW) : due;
}

// ---- building the list ----
//
// Names are compared pairwise. With the at most 1023 slots of a host that is a millisecond or two, and a host with a handful of
// instances never notices; an index would be more code than all the rules.

// Room for the most that one object can add is made once, so that no rule has to fail.
#define PLAN_PER_OBJECT 8

static void plan_add(Plan *plan, PlanKind kind, const PlanObserved *o, int64_t order) {
        plan->actions[plan->n++] = (PlanAction) {.kind = kind, .name = o->name, .slot = o->slot, .order = order};
}

// In the future by at least a tick, or a late caller would spin.
static void look_at(usec_t *next, usec_t when, usec_t now) {
        *next = MIN2(*next, MAX2(when, now + 1));
}

// NULL for what nobody configured.
static const PlanDesired *find_desired(const PlanInput *in, const char *name) {
        for (size_t i = 0; i < in->n_desired; i++)
                if (strcmp(in->desired[i].name, name) == 0)
                        return &in->desired[i];
        return NULL;
}

// Of several objects with one name the configuration speaks for the active one, else for the first; the others are strangers.
static bool is_main(const PlanInput *in, const PlanObserved *o) {
        const PlanObserved *main_one = NULL;

        for (size_t i = 0; i < in->n_observed; i++) {
                const PlanObserved *other = &in->observed[i];
                if (strcmp(other->name, o->name) != 0)
                        continue;
                if (!main_one || (states[other->state].active && !states[main_one->state].active))
                        main_one = other;
        }
        return main_one == o;
}

// Strangers get no further than the report. Network, policy and limits come before a stop: a stop may take minutes, and a revoked
// permission must not wait for it. What is starting or stopping is left alone, its own path applies everything.
static void plan_active(const PlanInput *in, const PlanObserved *o, const PlanDesired *d, Plan *plan) {
        bool known = d && o->state != PLAN_STATE_UNKNOWN;
        int64_t order = d ? d->order : 0;

        if (!o->adopted)
                plan_add(plan, PLAN_ADOPT, o, order);
        if (!known && o->state != PLAN_STATE_STOPPING && !o->reported)
                plan_add(plan, PLAN_REPORT_UNKNOWN, o, order);
        if (!known || !states[o->state].runs)
                return;
        if (!o->veth)
                plan_add(plan, PLAN_APPLY_NETWORK, o, order);
        if (o->policy_revision != d->policy_revision)
                plan_add(plan, PLAN_APPLY_POLICY, o, order);
        if (o->limits_revision != d->limits_revision)
                plan_add(plan, PLAN_APPLY_LIMITS, o, order);
        if (!in->booting && !plan_wants(d, false))
                plan_add(plan, PLAN_STOP, o, order);
}

// Starts are only proposed here; the cap takes the last ones away again when the order is known.
static void plan_down(const PlanInput *in, const PlanObserved *o, const PlanDesired *d, Plan *plan, usec_t *next) {
        int64_t order = d ? d->order : 0;

        if (o->cgroup || o->veth)
                plan_add(plan, PLAN_CLEAN, o, order);
        if (!d || o->state == PLAN_STATE_ABSENT || !plan_wants(d, in->booting))
                return;
        if (o->state != PLAN_STATE_CRASHED || plan_restart_due(o) <= in->now) {
                plan_add(plan, PLAN_START, o, order);
                return;
        }
        if (crashing(o, in->now) && !o->reported)
                plan_add(plan, PLAN_REPORT_CRASHING, o, order);
        look_at(next, plan_restart_due(o), in->now);
}

// Total: (kind, order, name, slot) is unique, so the same facts always give the same list.
static int compare_actions(const void *va, const void *vb) {
        const PlanAction *a = va, *b = vb;
        int r = (a->kind > b->kind) - (a->kind < b->kind);

        if (r == 0)
                r = (a->order > b->order) - (a->order < b->order);
        if (r == 0)
                r = strcmp(a->name, b->name);
        if (r == 0)
                r = (a->slot > b->slot) - (a->slot < b->slot);
        // Down in the opposite order of up.
        return a->kind == PLAN_STOP && b->kind == PLAN_STOP ? -r : r;
}

// Starts are the last of the sorted list. What does not fit waits for an event of those under way, or for the next look.
static void cap_starts(const PlanInput *in, Plan *plan, size_t under_way, usec_t *next) {
        size_t first = plan->n, room = under_way < in->max_starts ? in->max_starts - under_way : 0;

        while (first > 0 && plan->actions[first - 1].kind == PLAN_START)
                first--;
        if (plan->n - first <= room)
                return;
        plan->n = first + room;
        look_at(next, in->now + USEC_PER_SEC, in->now);
}

int plan_make(const PlanInput *in, Plan *ret) {
        Plan plan = {.actions = calloc(in->n_observed * PLAN_PER_OBJECT + 1, sizeof(PlanAction))};
        usec_t next = USEC_INFINITY;
        size_t under_way = 0;

        if (!plan.actions)
                return -ENOMEM;
        for (size_t i = 0; i < in->n_observed; i++) {
                const PlanObserved *o = &in->observed[i];
                const PlanDesired *d = is_main(in, o) ? find_desired(in, o->name) : NULL;

                under_way += o->state == PLAN_STATE_STARTING;
                if (states[o->state].passing)
                        look_at(&next, MAX2(o->since, in->now) + PLAN_LOOK, in->now);
                if (states[o->state].active)
                        plan_active(in, o, d, &plan);
                else
                        plan_down(in, o, d, &plan, &next);
        }
        if (plan.n > 1)
                qsort(plan.actions, plan.n, sizeof(PlanAction), compare_actions);
        cap_starts(in, &plan, under_way, &next);
        if (next != USEC_INFINITY)
                plan.actions[plan.n++] = (PlanAction) {.kind = PLAN_WAIT, .when = next};
        *ret = plan;
        return 0;
}

void plan_done(Plan *plan) {
        free(plan->actions);
        *plan = (Plan) {0};
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Plan: a table of situations with the list each must give, and a simulated host on which any random beginning must come to
// rest within few rounds without ever breaking a rule.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/plan.h"

#define SEC USEC_PER_SEC
#define NOW (1000 * SEC)

static void format_plan(const Plan *plan, char *buf, size_t size) {
        size_t used = 0;

        buf[0] = 0;
        for (size_t i = 0; i < plan->n; i++) {
                const PlanAction *a = &plan->actions[i];
                if (a->kind == PLAN_WAIT)
                        used += (size_t) snprintf(buf + used, size - used, "%swait %.3f", used ? "; " : "",
                                                  ((double) a->when - (double) NOW) / (double) SEC);
                else
                        used += (size_t) snprintf(buf + used, size - used, "%s%s %s", used ? "; " : "",
                                                  plan_kind_to_string(a->kind), a->name);
        }
}

#define WANTED(n) {.name = n, .wanted = true, .policy_revision = 1, .limits_revision = 1}
#define UNWANTED(n) {.name = n, .policy_revision = 1, .limits_revision = 1}
#define SETTLED(n) {.name = n, .state = PLAN_STATE_RUNNING, .adopted = true, .cgroup = true, .veth = true, \
                    .policy_revision = 1, .limits_revision = 1}
#define DOWN(n, st) {.name = n, .state = PLAN_STATE_##st}
#define CRASHED(n, ago, tries, begun) {.name = n, .state = PLAN_STATE_CRASHED, .since = NOW - (ago), .attempts = tries, \
                                       .window = NOW - (begun)}

static const struct {
        const char *what;
        PlanDesired desired[4];
        PlanObserved observed[5];
        bool booting;
        unsigned max_starts; // 0: 8
        const char *plan;
} cases[] = {
        {"nothing", {}, {}, false, 0, ""},
        {"at rest", {WANTED("a"), UNWANTED("b")}, {SETTLED("a"), DOWN("b", STOPPED)}, false, 0, ""},
        {"first start", {WANTED("a")}, {DOWN("a", CREATED)}, false, 0, "start a"},
        {"stopped from inside and wanted", {WANTED("a")}, {DOWN("a", STOPPED)}, false, 0, "start a"},
        {"no storage", {WANTED("a")}, {DOWN("a", ABSENT)}, false, 0, ""},
        {"not observed at all", {WANTED("a")}, {}, false, 0, ""},
        {"not wanted", {UNWANTED("a")}, {SETTLED("a")}, false, 0, "stop a"},
        {"not wanted and frozen", {UNWANTED("a")},
         {{.name = "a", .state = PLAN_STATE_FROZEN, .adopted = true, .veth = true, .policy_revision = 1, .limits_revision = 1}},
         false, 0, "stop a"},
        {"frozen and wanted stays", {WANTED("a")},
         {{.name = "a", .state = PLAN_STATE_FROZEN, .adopted = true, .veth = true, .policy_revision = 1, .limits_revision = 1}},
         false, 0, ""},
        {"under way", {WANTED("a"), UNWANTED("b")},
         {{.name = "a", .state = PLAN_STATE_STARTING, .adopted = true, .since = NOW},
          {.name = "b", .state = PLAN_STATE_STOPPING, .adopted = true, .since = NOW - 60 * SEC}},
         false, 0, "wait 5.000"},
        {"starting and no more wanted: the start ends first", {UNWANTED("a")},
         {{.name = "a", .state = PLAN_STATE_STARTING, .adopted = true, .since = NOW}}, false, 0, "wait 5.000"},
        {"hostd came back", {WANTED("a")},
         {{.name = "a", .state = PLAN_STATE_RUNNING, .cgroup = true, .veth = true}}, false, 0,
         "adopt a; apply-policy a; apply-limits a"},
        {"hostd came back during a start", {WANTED("a")}, {{.name = "a", .state = PLAN_STATE_STARTING, .since = NOW}}, false, 0,
         "adopt a; wait 5.000"},
        {"all of it is stale", {WANTED("a")},
         {{.name = "a", .state = PLAN_STATE_RUNNING, .adopted = true, .policy_revision = 7}}, false, 0,
         "apply-network a; apply-policy a; apply-limits a"},
        {"border before the end", {UNWANTED("a")},
         {{.name = "a", .state = PLAN_STATE_RUNNING, .adopted = true, .veth = true, .policy_revision = 7, .limits_revision = 1}},
         false, 0, "apply-policy a; stop a"},
        {"unknown and running", {}, {{.name = "x", .state = PLAN_STATE_RUNNING}}, false, 0, "adopt x; report-unknown x"},
        {"unknown, seen before", {}, {{.name = "x", .state = PLAN_STATE_RUNNING, .adopted = true, .reported = true}}, false, 0, ""},
        {"of unknown state", {WANTED("a")}, {{.name = "a", .state = PLAN_STATE_UNKNOWN, .cgroup = true}}, false, 0,
         "adopt a; report-unknown a"},
        {"of unknown state and not wanted", {UNWANTED("a")},
         {{.name = "a", .state = PLAN_STATE_UNKNOWN, .adopted = true, .reported = true, .cgroup = true}}, false, 0, ""},
        {"two of one name", {WANTED("a")},
         {{.name = "a", .slot = 1, .state = PLAN_STATE_STOPPED},
          {.name = "a", .slot = 2, .state = PLAN_STATE_RUNNING, .adopted = true, .veth = true, .policy_revision = 1,
           .limits_revision = 1},
          {.name = "a", .slot = 3, .state = PLAN_STATE_RUNNING}},
         false, 0, "adopt a; report-unknown a"},
        {"leftovers", {WANTED("a"), UNWANTED("b")},
         {{.name = "b", .state = PLAN_STATE_STOPPED, .cgroup = true},
          {.name = "a", .state = PLAN_STATE_STOPPED, .veth = true},
          {.name = "x", .state = PLAN_STATE_CRASHED, .veth = true},
          {.name = "y", .state = PLAN_STATE_ABSENT, .cgroup = true}},
         false, 0, "clean a; clean b; clean x; clean y; start a"},
        {"just crashed", {WANTED("a")}, {CRASHED("a", 0, 1, 0)}, false, 0, "wait 1.000"},
        {"crash is a second ago", {WANTED("a")}, {CRASHED("a", SEC, 1, SEC)}, false, 0, "start a"},
        {"third crash", {WANTED("a")}, {CRASHED("a", SEC, 3, 9 * SEC)}, false, 0, "wait 3.000"},
        {"seventh crash", {WANTED("a")}, {CRASHED("a", 0, 7, 90 * SEC)}, false, 0, "wait 60.000"},
        {"ninth crash", {WANTED("a")}, {CRASHED("a", 60 * SEC, 9, 300 * SEC)}, false, 0, "start a"},
        {"tenth crash", {WANTED("a")}, {CRASHED("a", 60 * SEC, 10, 400 * SEC)}, false, 0, "report-crashing a; wait 200.000"},
        {"the window is over", {WANTED("a")}, {CRASHED("a", 260 * SEC, 10, 600 * SEC)}, false, 0, "start a"},
        {"crashed and not wanted", {UNWANTED("a")}, {CRASHED("a", 0, 10, 0)}, false, 0, ""},
        {"earliest look wins", {WANTED("a"), WANTED("b")}, {CRASHED("a", 0, 5, 0), CRASHED("b", 0, 2, 0)}, false, 0, "wait 2.000"},
        {"order of starts and stops",
         {{.name = "a", .wanted = true, .order = 5}, {.name = "b", .wanted = true, .order = -5}, {.name = "c", .order = 1},
          {.name = "d", .order = 2}},
         {DOWN("a", STOPPED), DOWN("b", STOPPED), {.name = "c", .state = PLAN_STATE_RUNNING, .adopted = true, .veth = true},
          {.name = "d", .state = PLAN_STATE_RUNNING, .adopted = true, .veth = true}},
         false, 0, "stop d; stop c; start b; start a"},
        {"cap", {WANTED("a"), WANTED("b"), WANTED("c"), WANTED("d")},
         {DOWN("d", STOPPED), DOWN("c", STOPPED), DOWN("b", STOPPED),
          {.name = "a", .state = PLAN_STATE_STARTING, .adopted = true, .since = NOW}},
         false, 2, "start b; wait 1.000"},
        {"boot",
         {{.name = "a", .wanted = true, .boot = BOOT_OFF}, {.name = "b", .wanted = false, .boot = BOOT_ON},
          {.name = "c", .wanted = true, .boot = BOOT_LAST}, {.name = "d", .boot = BOOT_LAST}},
         {DOWN("a", STOPPED), DOWN("b", STOPPED), DOWN("c", STOPPED), DOWN("d", STOPPED)}, true, 0, "start b; start c"},
        {"boot stops nothing", {{.name = "a", .boot = BOOT_OFF}},
         {{.name = "a", .state = PLAN_STATE_RUNNING, .adopted = true, .veth = true}}, true, 0, ""},
        {"boot mode does not matter later", {{.name = "a", .wanted = true, .boot = BOOT_OFF}}, {DOWN("a", STOPPED)}, false, 0,
         "start a"},
};

static size_t count_desired(const PlanDesired *d) {
        size_t n = 0;
        while (n < 4 && d[n].name)
                n++;
        return n;
}

static size_t count_observed(const PlanObserved *o) {
        size_t n = 0;
        while (n < 5 && o[n].name)
                n++;
        return n;
}

static void test_table(void **state) {
        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                PlanInput in = {
                        .desired = cases[i].desired, .n_desired = count_desired(cases[i].desired),
                        .observed = cases[i].observed, .n_observed = count_observed(cases[i].observed),
                        .booting = cases[i].booting, .max_starts = cases[i].max_starts ?: 8, .now = NOW,
                };
                char text[1024];
                Plan plan;

                assert_int_equal(plan_make(&in, &plan), 0);
                format_plan(&plan, text, sizeof(text));
                plan_done(&plan);
                if (strcmp(text, cases[i].plan) != 0)
                        fail_msg("%s:\n  got    %s\n  wanted %s", cases[i].what, text, cases[i].plan);
        }
}

static void test_names(void **state) {
        for (int i = 0; i < _PLAN_STATE_MAX; i++)
                assert_non_null(plan_state_to_string(i));
        for (int i = 0; i < _PLAN_KIND_MAX; i++)
                assert_non_null(plan_kind_to_string(i));
        assert_null(plan_state_to_string(_PLAN_STATE_MAX));
        assert_null(plan_kind_to_string(_PLAN_KIND_INVALID));
}

// An instance that dies at once: never more than 10 tries in any 10 minutes, and it never rests for ever.
static void test_crash_loop(void **state) {
        PlanObserved o = {.name = "a", .state = PLAN_STATE_CRASHED};
        usec_t starts[400], now = NOW;
        size_t n = 0;

        plan_note_crash(&o.attempts, &o.window, now);
        o.since = now;
        while (n < ELEMENTS(starts)) {
                now = plan_restart_due(&o);
                starts[n++] = now;
                plan_note_crash(&o.attempts, &o.window, now);
                o.since = now;
        }
        assert_int_equal(starts[0], NOW + 1 * SEC);
        assert_int_equal(starts[1], NOW + 3 * SEC);
        assert_int_equal(starts[2], NOW + 7 * SEC);
        for (size_t i = 1; i < n; i++)
                assert_true(starts[i] - starts[i - 1] <= PLAN_CRASH_WINDOW);
        for (size_t i = PLAN_CRASH_MAX; i < n; i++) // in any ten minutes, not only in those that are counted
                if (starts[i] - starts[i - PLAN_CRASH_MAX] < PLAN_CRASH_WINDOW)
                        fail_msg("start %zu is the eleventh within %llu s", i,
                                 (unsigned long long) ((starts[i] - starts[i - PLAN_CRASH_MAX]) / SEC));
}

// ---- a host to carry plans out on ----

#define SIM_MAX 24

typedef struct Sim {
        PlanDesired desired[SIM_MAX];
        PlanObserved observed[SIM_MAX];
        char names[SIM_MAX][8];
        size_t n_desired, n_observed;
        bool booting;
        unsigned max_starts;
        usec_t now;
} Sim;

static uint64_t rng_state = 0x2545f4914f6cdd1d;
static uint64_t rng(uint64_t below) {
        rng_state ^= rng_state << 13;
        rng_state ^= rng_state >> 7;
        rng_state ^= rng_state << 17;
        return rng_state % below;
}

static void sim_init(Sim *sim) {
        *sim = (Sim) {.now = NOW, .max_starts = 1 + (unsigned) rng(6), .booting = rng(4) == 0};
        sim->n_observed = rng(SIM_MAX + 1);
        for (size_t i = 0; i < SIM_MAX; i++)
                snprintf(sim->names[i], sizeof(sim->names[i]), "i%zu", i);
        for (size_t i = 0; i < sim->n_observed; i++) {
                PlanObserved *o = &sim->observed[i];
                *o = (PlanObserved) {
                        .name = sim->names[rng(20) == 0 ? rng(SIM_MAX) : i], .slot = (uint16_t) (i + 1),
                        .state = (PlanState) rng(_PLAN_STATE_MAX), .adopted = rng(2), .reported = rng(4) == 0, .cgroup = rng(2),
                        .veth = rng(2), .policy_revision = rng(3), .limits_revision = rng(3), .since = NOW - rng(100 * SEC),
                        .attempts = (unsigned) rng(12), .window = NOW - rng(700 * SEC),
                };
                if (rng(5) > 0)
                        sim->desired[sim->n_desired++] = (PlanDesired) {
                                .name = sim->names[i], .wanted = rng(2), .boot = (BootMode) rng(_BOOT_MODE_MAX),
                                .order = (int64_t) rng(5) - 2, .policy_revision = 1 + rng(2), .limits_revision = 1 + rng(2)};
        }
}

static const PlanDesired *sim_desired(const Sim *sim, const char *name) {
        for (size_t i = 0; i < sim->n_desired; i++)
                if (strcmp(sim->desired[i].name, name) == 0)
                        return &sim->desired[i];
        return NULL;
}

static bool is_active(PlanState s) {
        return s == PLAN_STATE_STARTING || s == PLAN_STATE_RUNNING || s == PLAN_STATE_STOPPING || s == PLAN_STATE_FROZEN ||
               s == PLAN_STATE_UNKNOWN;
}

static void sim_start(Sim *sim, PlanObserved *o) {
        const PlanDesired *d = sim_desired(sim, o->name);

        assert_true(d && plan_wants(d, sim->booting));
        assert_false(o->cgroup || o->veth); // cleaned before
        for (size_t i = 0; i < sim->n_observed; i++)
                if (strcmp(sim->observed[i].name, o->name) == 0)
                        assert_false(is_active(sim->observed[i].state)); // never twice
        o->state = PLAN_STATE_STARTING;
        o->adopted = o->cgroup = o->veth = true;
        o->reported = false;
        o->policy_revision = d->policy_revision;
        o->limits_revision = d->limits_revision;
        o->since = sim->now;
}

static void sim_apply(Sim *sim, const PlanAction *a) {
        PlanObserved *o = a->slot ? &sim->observed[a->slot - 1] : NULL;
        const PlanDesired *d = o ? sim_desired(sim, o->name) : NULL;

        switch (a->kind) {
        case PLAN_ADOPT:
                assert_true(is_active(o->state));
                o->adopted = true;
                break;
        case PLAN_REPORT_UNKNOWN:
        case PLAN_REPORT_CRASHING:
                o->reported = true;
                break;
        case PLAN_CLEAN:
                assert_false(is_active(o->state));
                o->cgroup = o->veth = false;
                break;
        case PLAN_APPLY_NETWORK:
                o->veth = true;
                break;
        case PLAN_APPLY_POLICY:
                o->policy_revision = d->policy_revision;
                break;
        case PLAN_APPLY_LIMITS:
                o->limits_revision = d->limits_revision;
                break;
        case PLAN_STOP:
                assert_true(d && !plan_wants(d, sim->booting)); // never something that is wanted, never a stranger
                assert_true(o->state == PLAN_STATE_RUNNING || o->state == PLAN_STATE_FROZEN);
                o->state = PLAN_STATE_STOPPING;
                break;
        case PLAN_START:
                sim_start(sim, o);
                break;
        default:
                assert_int_equal(a->kind, PLAN_WAIT);
                assert_true(a->when > sim->now);
        }
}

// What the host does by itself until the next look.
static void sim_pass_time(Sim *sim, usec_t until) {
        sim->now = until;
        for (size_t i = 0; i < sim->n_observed; i++) {
                PlanObserved *o = &sim->observed[i];
                if (o->state == PLAN_STATE_STARTING)
                        o->state = PLAN_STATE_RUNNING;
                else if (o->state == PLAN_STATE_STOPPING) {
                        o->state = PLAN_STATE_STOPPED;
                        o->adopted = o->cgroup = o->veth = false;
                }
        }
}

// Returns false when the plan was empty.
static bool sim_round(Sim *sim) {
        PlanInput in = {
                .desired = sim->desired, .n_desired = sim->n_desired, .observed = sim->observed, .n_observed = sim->n_observed,
                .booting = sim->booting, .max_starts = sim->max_starts, .now = sim->now,
        };
        size_t under_way = 0;
        usec_t until = sim->now + SEC;
        Plan plan, again;
        bool any;

        assert_int_equal(plan_make(&in, &plan), 0);
        for (size_t i = 0; i < plan.n; i++) {
                if (i > 0)
                        assert_true(plan.actions[i].kind >= plan.actions[i - 1].kind);
                sim_apply(sim, &plan.actions[i]);
                if (plan.actions[i].kind == PLAN_WAIT)
                        until = plan.actions[i].when;
        }
        for (size_t i = 0; i < sim->n_observed; i++)
                under_way += sim->observed[i].state == PLAN_STATE_STARTING && sim->observed[i].since == sim->now;
        assert_true(under_way <= sim->max_starts);
        // On the result, at the same moment: nothing is left but waiting.
        assert_int_equal(plan_make(&in, &again), 0);
        for (size_t i = 0; i < again.n; i++)
                assert_int_equal(again.actions[i].kind, PLAN_WAIT);
        plan_done(&again);
        any = plan.n > 0;
        plan_done(&plan);
        sim_pass_time(sim, until);
        return any;
}

static void sim_check_rest(const Sim *sim) {
        for (size_t i = 0; i < sim->n_observed; i++) {
                const PlanObserved *o = &sim->observed[i];
                const PlanDesired *d = sim_desired(sim, o->name);

                if (is_active(o->state))
                        assert_true(o->adopted);
                else
                        assert_false(o->cgroup || o->veth);
                assert_true(o->state != PLAN_STATE_STARTING && o->state != PLAN_STATE_STOPPING);
                if (!is_active(o->state) && o->state != PLAN_STATE_ABSENT && d && plan_wants(d, sim->booting)) {
                        bool other = false; // something else of that name is active, or stands for it
                        for (size_t k = 0; k < sim->n_observed; k++)
                                other |= k != i && strcmp(sim->observed[k].name, o->name) == 0;
                        assert_true(other);
                }
        }
}

static void test_convergence(void **state) {
        unsigned most = 0;

        for (unsigned run = 0; run < 20000; run++) {
                unsigned rounds = 0;
                Sim sim, before;

                sim_init(&sim);
                before = sim;
                while (sim_round(&sim))
                        if (++rounds > 80)
                                fail_msg("run %u does not come to rest", run);
                most = MAX2(most, rounds);
                sim_check_rest(&sim);
                for (size_t i = 0; i < sim.n_observed; i++) // strangers live
                        if (before.observed[i].state == PLAN_STATE_UNKNOWN || (before.observed[i].state == PLAN_STATE_RUNNING &&
                                                                               !sim_desired(&sim, before.observed[i].name)))
                                assert_int_equal(sim.observed[i].state, before.observed[i].state);
        }
        print_message("at most %u rounds\n", most);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_crash_loop),
                cmocka_unit_test(test_convergence),
        };
        return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}

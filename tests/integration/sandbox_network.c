// SPDX-License-Identifier: GPL-2.0-or-later
// The network of sandboxes as hostd's core makes it: numbers, profiles that are shared, policies by name or the instance's own, live changes, an end, and a
// hostd that comes after. With a real firewall, in a network namespace of its own; run by sandbox_network.sh.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/strv.h"
#include "core/job.h"
#include "core/sandbox_network.h"
#include "report.h"

static Manager m;
static Instance *a;
static int etc;

static void put(const char *path, const char *text) {
        (void) io_write_atomic(etc, path, text, strlen(text), 0644);
}

// A namespace that lives as long as the descriptor.
static int netns_new(void) {
        int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), made;

        if (own < 0 || unshare(CLONE_NEWNET) < 0)
                return -errno;
        made = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (setns(own, CLONE_NEWNET) < 0)
                abort();
        (void) close_fd(own);
        return made;
}

static void load(void) {
        _cleanup_error_ Error err = ERROR_NULL;
        Desired *desired = NULL;

        if (desired_load(etc, &desired, &err) < 0) {
                CHECK(false, "%s", error_message(&err, 0));
                exit(report_end());
        }
        m.desired = desired; // the one before is borrowed by the instance's configuration
        for (size_t i = 0; i < desired->n_instances; i++)
                if (strcmp(desired->instances[i]->name, "a") == 0)
                        a->config = desired->instances[i];
}

// As instance_apply_network() does, without what needs a store.
static int apply(void) {
        _cleanup_(policy_set_done) PolicySet policies = POLICY_SET_NULL;
        int r = instance_is_live(a) ? policy_set_load(&m, m.desired, a->config, NULL, &policies, NULL) : -EINVAL;

        if (r >= 0)
                r = network_attach(m.network, 1, NULL);
        if (r >= 0)
                r = network_set_policy(m.network, 1, policies.list, policies.n, NULL);
        sandbox_network_apply(a);
        return r;
}

static const char *says(const SandboxNetwork *network, const char *address) {
        static char text[256];
        Compiled *compiled = network_compiled(m.network, sandbox_profile_number(sandbox_network_profile(network)));
        Cidr to;
        PolicyQuestion question = {.address = &to, .protocol = POLICY_TCP, .port = 443};

        if (!compiled || cidr_parse(address, &to) < 0)
                return "nothing";
        PolicyDecision decision = policy_decide(compiled, &question);
        return policy_decision_text(compiled, &decision, text, sizeof(text));
}

static SandboxNetwork *make(const char *id, char *const *policies) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_close_ int netns = netns_new();
        SandboxNetwork *network = NULL;
        int r = sandbox_network_new(a, id, policies, &network, &err);

        if (r >= 0)
                r = sandbox_network_plug(network, netns, &err);
        if (!CHECK(r >= 0, "a network for %s: %s", id, r < 0 ? error_message(&err, r) : sandbox_network_address(network)->host_ifname))
                exit(report_end());
        return network;
}

static void settle(void) {
        usec_t end = clock_monotonic() + 5 * USEC_PER_SEC * report_slow();

        do
                (void) sd_event_run(m.event, 100 * USEC_PER_MSEC);
        while (clock_monotonic() < end && if_nametoindex("hvs0800x1001"));
}

static bool leaks_quiet;

static bool has_leaks(void) {
        _cleanup_(network_leaks_done) NetworkLeaks leaks = {0};
        uint16_t live[64] = {1};
        size_t n = 1;

        for (SandboxProfile *p = sandbox_profile_next(&m, NULL); p; p = sandbox_profile_next(&m, p))
                live[n++] = sandbox_profile_number(p);
        for (SandboxNetwork *s = sandbox_network_next(&m, NULL); s; s = sandbox_network_next(&m, s))
                live[n++] = sandbox_network_number(s);
        if (network_leaks(live, n, &leaks, NULL) < 0)
                return true;
        for (size_t i = 0; i < leaks.n && !leaks_quiet; i++)
                printf("      leftover: %s\n", leaks.leaks[i].object);
        return leaks.n > 0;
}

static void test_profiles(void) {
        static char *web[] = {(char *) "web", NULL}, *none[] = {NULL}, *absent[] = {(char *) "absent", NULL};
        _cleanup_error_ Error err = ERROR_NULL;
        SandboxNetwork *own = make("sb-own", NULL), *first = make("sb-web1", web), *second = make("sb-web2", web), *closed = make("sb-none", none), *no = NULL;

        CHECK(sandbox_network_number(own) == NETWORK_SANDBOX_FIRST + 1 && sandbox_network_number(second) == NETWORK_SANDBOX_FIRST + 3, "numbers go up");
        CHECK(sandbox_network_profile(first) == sandbox_network_profile(second) && sandbox_network_profile(first) != sandbox_network_profile(own), "the same policies are one profile");
        CHECK(strcmp(says(own, "93.1.1.1"), "allowed by rule 1 of policy all: 93.0.0.0/8 tcp") == 0, "without policies it has its instance's (%s)", says(own, "93.1.1.1"));
        CHECK(strcmp(says(own, "93.1.2.1"), "allowed by rule 1 of policy all: 93.0.0.0/8 tcp") == 0, "all of them (%s)", says(own, "93.1.2.1"));
        CHECK(strcmp(says(first, "93.1.1.1"), "allowed by rule 1 of policy web: 93.1.1.0/24 any") == 0, "with a policy it has that one's (%s)", says(first, "93.1.1.1"));
        CHECK(strcmp(says(first, "93.1.2.1"), "denied: no rule allows it") == 0, "and no more (%s)", says(first, "93.1.2.1"));
        CHECK(strcmp(says(first, "10.1.1.1"), "denied: no rule of its instance allows it") == 0, "within its instance's (%s)", says(first, "10.1.1.1"));
        CHECK(strcmp(says(closed, "93.1.1.1"), "denied: no rule allows it") == 0, "an empty list is none, not its instance's");
        CHECK(sandbox_network_new(a, "sb-x", absent, &no, &err) < 0 && !no, "a policy that is not there is refused: %s", error_message(&err, 0));
        a->state = INSTANCE_STOPPED;
        CHECK(sandbox_network_new(a, "sb-x", NULL, &no, NULL) < 0 && !no, "an instance that does not run has none");
        a->state = INSTANCE_RUNNING;
        CHECK(!has_leaks(), "what lives is no leftover");
}

static void test_live(void) {
        SandboxNetwork *own = sandbox_network_find(&m, NETWORK_SANDBOX_FIRST + 1), *web = sandbox_network_find(&m, NETWORK_SANDBOX_FIRST + 2);

        put("policies.d/all.conf", "rules = ( { action = \"deny\"; to = \"93.1.1.0/24\"; }, { action = \"allow\"; to = \"93.0.0.0/8\"; protocol = \"tcp\"; } );\n");
        load();
        CHECK(apply() >= 0 && strcmp(says(own, "93.1.1.1"), "denied by rule 1 of policy all: 93.1.1.0/24 any") == 0, "a change of the instance's policy is one of its sandboxes' (%s)", says(own, "93.1.1.1"));
        CHECK(strcmp(says(web, "93.1.1.1"), "denied by rule 1 of policy all of its instance: 93.1.1.0/24 any") == 0, "whatever they have of their own (%s)", says(web, "93.1.1.1"));
        put("policies.d/all.conf", "rules = ( { action = \"allow\"; to = \"93.0.0.0/8\"; protocol = \"tcp\"; } );\n");
        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"93.1.2.0/24\"; } );\n");
        load();
        CHECK(apply() >= 0 && strncmp(says(web, "93.1.1.1"), "denied", 6) == 0 && strncmp(says(web, "93.1.2.1"), "allowed", 7) == 0, "a policy's text changes for who has it");
        (void) unlinkat(etc, "policies.d/web.conf", 0);
        load();
        CHECK(apply() >= 0 && strncmp(says(web, "93.1.2.1"), "denied", 6) == 0 && strncmp(says(own, "93.1.2.1"), "allowed", 7) == 0, "one that is gone allows nothing");
        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"93.1.1.0/24\"; }, { action = \"allow\"; to = \"10.0.0.0/8\"; } );\n");
        load();
        CHECK(apply() >= 0 && strncmp(says(web, "93.1.1.1"), "allowed", 7) == 0, "until it is back");
}

// Everything is in the kernel; the next hostd has numbers and names from a record.
static void test_adoption(void) {
        static char *web[] = {(char *) "web", NULL};
        SandboxNetwork *own = NULL, *first = NULL, *again = NULL;
        uint16_t profile = sandbox_profile_number(sandbox_network_profile(sandbox_network_find(&m, NETWORK_SANDBOX_FIRST + 2)));

        sandbox_network_done(&m);
        m.network = network_free(m.network);
        CHECK(network_new(&m.desired->host.network, &m.network, NULL) >= 0 && apply() >= 0, "another hostd");
        CHECK(sandbox_network_adopt(a, "sb-own", NETWORK_SANDBOX_FIRST + 1, NULL, &own, NULL) >= 0 && sandbox_network_adopt(a, "sb-web1", NETWORK_SANDBOX_FIRST + 2, web, &first, NULL) >= 0,
              "finds what the kernel has");
        CHECK(sandbox_profile_number(sandbox_network_profile(first)) == profile && strncmp(says(first, "93.1.1.1"), "allowed", 7) == 0, "as it was");
        (void) unlinkat(etc, "policies.d/web.conf", 0);
        load();
        sandbox_network_done(&m);
        m.network = network_free(m.network);
        CHECK(network_new(&m.desired->host.network, &m.network, NULL) >= 0 && apply() >= 0 && sandbox_network_adopt(a, "sb-own", NETWORK_SANDBOX_FIRST + 1, NULL, &own, NULL) >= 0,
              "one more, and a policy is gone meanwhile");
        CHECK(sandbox_network_adopt(a, "sb-web1", NETWORK_SANDBOX_FIRST + 2, web, &first, NULL) >= 0 && strncmp(says(first, "93.1.1.1"), "denied", 6) == 0 && strncmp(says(own, "93.1.1.1"), "allowed", 7) == 0,
              "who has it is kept, and has nothing");
        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"93.1.1.0/24\"; }, { action = \"allow\"; to = \"10.0.0.0/8\"; } );\n");
        load();
        CHECK(apply() >= 0 && strncmp(says(first, "93.1.1.1"), "allowed", 7) == 0, "until it is back");
        CHECK(sandbox_network_adopt(a, "sb-own", NETWORK_SANDBOX_FIRST + 1, NULL, &again, NULL) == -ENOENT && sandbox_network_adopt(a, "sb-z", NETWORK_SANDBOX_FIRST + 99, NULL, &again, NULL) == -ENOENT,
              "once, and not what is not there");
        leaks_quiet = true;
        CHECK(has_leaks(), "what nobody says is his is a leftover");
        leaks_quiet = false;
        for (unsigned i = 3; i <= 4; i++)
                (void) network_detach(m.network, (uint16_t) (NETWORK_SANDBOX_FIRST + i), NULL);
        (void) network_detach(m.network, NETWORK_PROFILE_FIRST + 2, NULL);
        CHECK(!has_leaks(), "which goes by its number");
}

static void test_end(void) {
        SandboxNetwork *own = sandbox_network_find(&m, NETWORK_SANDBOX_FIRST + 1), *next;
        usec_t began = clock_monotonic(), took;

        own = sandbox_network_free(own);
        took = clock_monotonic() - began;
        CHECK(took < 20 * USEC_PER_MSEC * report_slow(), "an end holds nobody up (%llu us)", (unsigned long long) took);
        settle();
        CHECK(!if_nametoindex("hvs0800x1001"), "and takes the wire away");
        next = make("sb-next", NULL);
        CHECK(sandbox_network_number(next) != NETWORK_SANDBOX_FIRST + 1, "its number waits for its turn");
        CHECK(sandbox_network_find(&m, NETWORK_SANDBOX_FIRST + 2), "others stay");
        // The instance's stop takes all of it from the kernel; what is made then is whole.
        CHECK(network_detach(m.network, 1, NULL) >= 0, "an instance is stopped");
        sandbox_network_free(next);
        sandbox_network_free(sandbox_network_find(&m, NETWORK_SANDBOX_FIRST + 2));
        CHECK(apply() >= 0, "and started");
        next = make("sb-later", NULL);
        CHECK(strncmp(says(next, "93.1.1.1"), "allowed", 7) == 0, "its sandboxes have a network again");
        sandbox_network_free(next);
        for (unsigned i = 0; i < 20; i++) {
                char name[] = "p00", *list[] = {name, NULL}, path[] = "policies.d/p00.conf";
                (void) snprintf(name, sizeof(name), "p%02u", i);
                (void) snprintf(path, sizeof(path), "policies.d/%s.conf", name);
                put(path, "rules = ( { action = \"allow\"; to = \"93.1.1.0/24\"; } );\n");
                load();
                sandbox_network_free(make(name, list));
        }
        size_t n = 0;
        for (SandboxProfile *p = sandbox_profile_next(&m, NULL); p; p = sandbox_profile_next(&m, p))
                n++;
        CHECK(n <= 8, "profiles without a sandbox are few (%zu)", n);
        for (unsigned i = 0; i < 30; i++)
                (void) sd_event_run(m.event, 100 * USEC_PER_MSEC);
        CHECK(!has_leaks(), "nothing of any of them is left over");
}

int main(void) {
        char top[] = "/tmp/sandbox_network.XXXXXX";
        StoreInstance record = {.name = "a", .slot = 1};

        if (!mkdtemp(top) || (etc = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || sd_event_default(&m.event) < 0)
                return 1;
        (void) io_mkdir_p(etc, "policies.d", 0755);
        (void) io_mkdir_p(etc, "instances.d", 0755);
        put("hostd.conf", "uplink = \"lo\";\n");
        put("policies.d/all.conf", "rules = ( { action = \"allow\"; to = \"93.0.0.0/8\"; protocol = \"tcp\"; } );\n");
        put("policies.d/web.conf", "rules = ( { action = \"allow\"; to = \"93.1.1.0/24\"; }, { action = \"allow\"; to = \"10.0.0.0/8\"; } );\n");
        put("instances.d/a.conf", "policies = [ \"all\" ];\n");
        a = instance_new(&m, &record, NULL);
        a->state = INSTANCE_RUNNING;
        load();
        CHECK(network_new(&m.desired->host.network, &m.network, NULL) >= 0 && apply() >= 0, "an instance with its network");
        test_profiles();
        test_live();
        test_adoption();
        test_end();
        sandbox_network_done(&m);
        jobs_cancel();
        (void) io_remove_tree(AT_FDCWD, top);
        return report_end();
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Driver: calls of libnetwork from a script. Reads one command a line from stdin and answers "ok …" or "error …" on one line, so
// that a test is in charge of time. The object lives until the end of input: another process is a restarted hostd.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/strv.h"
#include "network/network.h"
#include "network/network_internal.h"
#include "network/nft.h"
#include "network/ruleset.h"

static Network *network;
static NetworkSettings settings = {.ipv4_prefix = 16, .ipv6_prefix = 64};

static unsigned number(const char *text) {
        return (unsigned) strtoul(text, NULL, 0);
}

static int do_new(char **a, Error *err) {
        settings.uplink = strcmp(a[1], "-") == 0 ? NULL : a[1];
        settings.ipv6_nat = strcmp(a[2], "nat") == 0;
        int r = network_new(&settings, &network, err);
        return r < 0 ? r : network_enable_forwarding(network, getenv("BEFORE"), err);
}

static int do_attach(char **a, Error *err) {
        return network_attach(network, (uint16_t) number(a[1]), err);
}

// plug SLOT NAMESPACE: a file such as /run/netns/NAME
static int do_plug(char **a, Error *err) {
        _cleanup_close_ int netns = open(a[2], O_RDONLY | O_CLOEXEC);

        return netns < 0 ? -errno : network_plug(network, (uint16_t) number(a[1]), netns, err);
}

static int do_plugged(char **a, Error *err) {
        printf("plugged=%s ", network_is_plugged(network, (uint16_t) number(a[1])) ? "yes" : "no");
        return 0;
}

static int do_detach(char **a, Error *err) {
        return network_detach(network, (uint16_t) number(a[1]), err);
}

// Rules "ACTION@CIDR@PROTOCOL@PORTS[@MS]", with "-" for no ports; MS from now it ends.
static int read_policy(char **words, Policy **ret, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        int r = policy_new("test", &policy);

        for (char **p = words; r >= 0 && *p; p++) {
                _cleanup_strv_ char **f = NULL;
                PolicyRule rule = {0};
                r = strv_split(*p, "@", &f);
                if (r < 0 || strv_length(f) < 4 || strv_length(f) > 5)
                        return -EINVAL;
                rule.until = f[4] ? clock_realtime() + number(f[4]) * USEC_PER_MSEC : 0;
                rule.action = policy_action_from_string(f[0]);
                rule.to = strdup(f[1]);
                rule.protocol = policy_protocol_from_string(f[2]);
                rule.ports = strcmp(f[3], "-") == 0 ? NULL : strdup(f[3]);
                r = policy_add(policy, &rule, err);
                policy_rule_done(&rule);
        }
        if (r >= 0)
                *ret = TAKE_PTR(policy);
        return r;
}

static int do_policy(char **a, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        int r = read_policy(a + 2, &policy, err);

        return r < 0 ? r : network_set_policy(network, (uint16_t) number(a[1]), &policy, 1, err);
}

static NetworkBorder border;

// border SLOT [resolver] [proxy] [resolver-shut] [proxy-shut]
static int do_border(char **a, Error *err) {
        border = (NetworkBorder) {strv_contains(a + 2, "resolver"), strv_contains(a + 2, "proxy"), strv_contains(a + 2, "resolver-shut"), strv_contains(a + 2, "proxy-shut")};
        return network_set_border(network, (uint16_t) number(a[1]), &border, err);
}

// name SLOT ID ADDRESS TTL [PORTS]
static int do_name(char **a, Error *err) {
        NetworkName name = {(uint16_t) number(a[1]), (uint16_t) number(a[2]), strchr(a[3], ':') ? AF_INET6 : AF_INET, {0}, number(a[4]),
                            a[5] ? (uint32_t) number(a[5]) : UINT32_MAX};

        (void) inet_pton(name.family, a[3], name.address);
        return network_name_insert(network, &name, err);
}

// helpers RESOLVER UID… [FIRST-LAST] [@UPSTREAM…]
static int do_helpers(char **a, Error *err) {
        NetworkHelpers helpers = {.resolver = number(a[1])};

        for (char **p = a + 2; *p; p++)
                if (**p == '@') {
                        helpers.upstreams[helpers.n_upstreams].family = strchr(*p, ':') ? AF_INET6 : AF_INET;
                        (void) inet_pton(helpers.upstreams[helpers.n_upstreams].family, *p + 1, helpers.upstreams[helpers.n_upstreams].address);
                        helpers.n_upstreams++;
                } else if (strchr(*p, '-')) {
                        (void) sscanf(*p, "%u-%u", &helpers.first_uid, &helpers.last_uid);
                } else {
                        helpers.uids[helpers.n_uids++] = number(*p);
                }
        return network_set_helpers(network, &helpers, err);
}

// expose|unexpose SLOT ID PROTOCOL AS PORT MS CIDR|-
static int do_expose(char **a, Error *err) {
        NetworkExposure e = {.slot = (uint16_t) number(a[1]), .id = (uint8_t) number(a[2]), .protocol = strcmp(a[3], "udp") == 0 ? IPPROTO_UDP : IPPROTO_TCP,
                             .host_port = (uint16_t) number(a[4]), .port = (uint16_t) number(a[5]), .left_ms = number(a[6])};
        Cidr from;

        if (cidr_parse(a[7], &from) >= 0) {
                e.from_family = from.family;
                e.from_prefix = from.prefix;
                memcpy(e.from, from.bytes, sizeof(e.from));
        }
        return *a[0] == 'u' ? network_unexpose(network, &e, err) : network_expose(network, &e, err);
}

// text SLOT RULE…: by ruleset_policy() and libnftables, with ids from 1 for what has a mark.
static int do_text(char **a, Error *err) {
        _cleanup_(compiled_freep) Compiled *compiled = NULL;
        _cleanup_(policy_freep) Policy *policy = NULL;
        _cleanup_free_ char *text = NULL;
        uint16_t id = 0;
        size_t size;
        int r = read_policy(a + 2, &policy, err);
        FILE *f = open_memstream(&text, &size);

        if (r >= 0)
                r = compiled_new(&policy, 1, &compiled, err);
        for (size_t i = 0; r >= 0 && i < compiled->n; i++)
                if (compiled_rule_is_marked(&compiled->rules[i]))
                        compiled->rules[i].id = ++id;
        if (r >= 0)
                r = ruleset_policy(f, &(PolicyText) {(uint16_t) number(a[1]), compiled, id + 1U, border});
        (void) fclose(f);
        return r < 0 ? r : nft_apply(text, "text", err);
}

// explain ADDRESS PROTOCOL PORT RULE…
static int do_explain(char **a, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        PolicyProbe probe = {.address = a[1], .protocol = policy_protocol_from_string(a[2]), .port = (uint16_t) number(a[3])};
        PolicyAnswer answer;
        int r = read_policy(a + 4, &policy, err);

        if (r >= 0)
                r = policy_explain(&policy, 1, &probe, &answer, err);
        if (r >= 0)
                printf("%s rule=%d ", policy_action_to_string(answer.action), answer.index);
        return r;
}

// many SLOT N: N rules for distinct addresses
static int do_many(char **a, Error *err) {
        _cleanup_(policy_freep) Policy *policy = NULL;
        int r = policy_new("many", &policy);

        for (unsigned i = 0; r >= 0 && i < number(a[2]); i++) {
                PolicyRule rule = {.action = POLICY_ALLOW, .protocol = POLICY_TCP, .ports = strdup("80,443")};
                if (asprintf(&rule.to, "93.%u.%u.%u/32", number(a[1]), i / 250, i % 250 + 1) < 0)
                        return -ENOMEM;
                r = policy_add(policy, &rule, err);
                policy_rule_done(&rule);
        }
        return r < 0 ? r : network_set_policy(network, (uint16_t) number(a[1]), &policy, 1, err);
}

// profile PROFILE SLOT
static int do_profile(char **a, Error *err) {
        return network_profile_attach(network, (uint16_t) number(a[1]), (uint16_t) number(a[2]), err);
}

// box SANDBOX PROFILE NAMESPACE
static int do_box(char **a, Error *err) {
        _cleanup_close_ int netns = open(a[3], O_RDONLY | O_CLOEXEC);

        return netns < 0 ? -errno : network_sandbox_plug(network, (uint16_t) number(a[1]), (uint16_t) number(a[2]), netns, err);
}

static int do_unbox(char **a, Error *err) {
        return network_sandbox_detach(network, (uint16_t) number(a[1]), err);
}

static int do_boxed(char **a, Error *err) {
        printf("profile=%04x plugged=%s ", network_sandbox_profile(network, (uint16_t) number(a[1])), network_sandbox_is_plugged(network, (uint16_t) number(a[1])) ? "yes" : "no");
        return 0;
}

// forget SANDBOX PROFILE
static int do_forget(char **a, Error *err) {
        return network_sandbox_forget(&settings, (uint16_t) number(a[1]), (uint16_t) number(a[2]), err);
}

// decide SLOT NAME|- ADDRESS PORT: by what the network object has of the slot, as its views are made from
static int do_decide(char **a, Error *err) {
        Compiled *compiled = network_compiled(network, (uint16_t) number(a[1]));
        Cidr address;
        PolicyQuestion question = {.name = strcmp(a[2], "-") == 0 ? NULL : a[2], .address = &address, .protocol = POLICY_TCP, .port = (uint16_t) number(a[4])};
        char text[256];

        if (!compiled || cidr_parse(a[3], &address) < 0)
                return -EINVAL;
        PolicyDecision decision = policy_decide(compiled, &question);
        printf("[%s] ", policy_decision_text(compiled, &decision, text, sizeof(text)));
        return 0;
}

// limits SLOT KEY=VALUE…: what is not named is unlimited
static int do_limits(char **a, Error *err) {
        NetworkLimits limits = NETWORK_LIMITS_NONE;
        const struct { const char *key; uint64_t *value; } rows[] = {
                {"upload=", &limits.upload}, {"download=", &limits.download}, {"connections=", &limits.connections},
                {"connection_rate=", &limits.connection_rate}, {"destinations=", &limits.destinations}, {"traffic=", &limits.traffic},
        };

        for (char **p = a + 2; *p; p++)
                for (size_t i = 0; i < ELEMENTS(rows); i++)
                        if (strncmp(*p, rows[i].key, strlen(rows[i].key)) == 0)
                                *rows[i].value = number(*p + strlen(rows[i].key));
        return network_set_limits(network, (uint16_t) number(a[1]), &limits, err);
}

// next SLOT ID: as if so many rules had been changed already
static int do_next(char **a, Error *err) {
        slot_find(network, (uint16_t) number(a[1]))->next_id = number(a[2]);
        return 0;
}

static int do_traffic(char **a, Error *err) {
        uint64_t used = 0;
        int r = network_traffic(network, (uint16_t) number(a[1]), &used, err);

        printf("used=%lu ", used);
        return r;
}

static int do_begin(char **a, Error *err) {
        return network_traffic_begin(network, (uint16_t) number(a[1]), err);
}

static int do_resume(char **a, Error *err) {
        return network_traffic_resume(network, (uint16_t) number(a[1]), number(a[2]), err);
}

static int do_cut(char **a, Error *err) {
        return network_set_cut(network, (uint16_t) number(a[1]), strcmp(a[2], "yes") == 0, err);
}

static int do_counters(char **a, Error *err) {
        NetworkCounters c;
        int r = network_counters(network, (uint16_t) number(a[1]), &c, err);

        if (r >= 0)
                printf("tx=%lu rx=%lu denied=%lu spoofed=%lu connections=%lu rate=%lu destinations=%lu traffic=%lu ", c.tx_packets, c.rx_packets,
                       c.denied_packets, c.spoofed_packets, c.connections, c.connection_rate, c.destinations, c.traffic);
        return r;
}

static int do_dump(char **a, Error *err) {
        _cleanup_free_ char *text = NULL;
        int r = network_dump(network, (uint16_t) number(a[1]), &text, err);

        for (char *p = text; r >= 0 && *p; p++)
                putchar(*p == '\n' ? '|' : *p);
        return r;
}

static int print_list(char **list) {
        for (char **p = list; p && *p; p++)
                printf("[%s] ", *p);
        return 0;
}

static int do_leaks(char **a, Error *err) {
        _cleanup_(network_leaks_done) NetworkLeaks leaks = {0};
        uint16_t live[16];
        size_t n = 0;
        int r;

        for (char **p = a + 1; *p && n < 16; p++)
                live[n++] = (uint16_t) number(*p);
        r = network_leaks(live, n, &leaks, err);
        for (size_t i = 0; r >= 0 && i < leaks.n; i++)
                printf("[%u %s] ", leaks.leaks[i].slot, leaks.leaks[i].object);
        return r;
}

static int do_doctor(char **a, Error *err) {
        _cleanup_strv_ char **list = NULL;
        int r = network_doctor(network, &list, err);

        return r < 0 ? r : print_list(list);
}

static int do_obstacles(char **a, Error *err) {
        _cleanup_(network_obstacles_done) NetworkObstacles list = {0};
        int r = network_obstacles(&list, err);

        for (size_t i = 0; r >= 0 && i < list.n; i++)
                printf("[%s => %s] ", list.obstacles[i].what, list.obstacles[i].fix);
        return r;
}

// watch MS: waits at most so long; restores if the table was touched, and says how long that took.
static int do_watch(char **a, Error *err) {
        struct pollfd p = {.fd = network_watch_fd(network), .events = POLLIN};
        usec_t end = clock_monotonic() + number(a[1]) * USEC_PER_MSEC;
        bool lost = false;
        int r = p.fd < 0 ? p.fd : 0;

        while (r >= 0 && !lost && clock_monotonic() < end)
                if (poll(&p, 1, 10) > 0)
                        r = network_watch_dispatch(network, &lost);
        if (r < 0 || !lost)
                return printf("lost=no spent=%d ", network_is_spent(network)), r;
        printf("lost=yes ");
        return network_restore(network, err);
}

static int do_restore(char **a, Error *err) {
        return network_restore(network, err);
}

static int do_remove(char **a, Error *err) {
        _cleanup_strv_ char **notes = NULL;
        int r = network_remove_all(getenv("BEFORE"), &notes, err);

        return r < 0 ? r : print_list(notes);
}

static int do_uplink(char **a, Error *err) {
        _cleanup_free_ char *name = NULL;
        int r = network_find_uplink(&name);

        printf("uplink=%s ", name ?: "-");
        return r;
}

static const struct { const char *word; int (*fn)(char **a, Error *err); size_t arguments; } commands[] = {
        {"new", do_new, 2},           {"attach", do_attach, 1}, {"detach", do_detach, 1},
        {"plug", do_plug, 2},         {"plugged", do_plugged, 1},   {"policy", do_policy, 1},
        {"many", do_many, 2},         {"limits", do_limits, 1}, {"traffic", do_traffic, 1}, {"begin", do_begin, 1}, {"resume", do_resume, 2}, {"cut", do_cut, 2}, {"border", do_border, 1}, {"name", do_name, 4}, {"next", do_next, 2}, {"helpers", do_helpers, 1}, {"expose", do_expose, 7}, {"unexpose", do_expose, 7}, {"counters", do_counters, 1}, {"dump", do_dump, 1},
        {"leaks", do_leaks, 0},       {"doctor", do_doctor, 0}, {"obstacles", do_obstacles, 0}, {"watch", do_watch, 1},     {"restore", do_restore, 0},
        {"remove-all", do_remove, 0}, {"uplink", do_uplink, 0},
        {"explain", do_explain, 3},
        {"profile", do_profile, 2}, {"box", do_box, 3}, {"unbox", do_unbox, 1}, {"boxed", do_boxed, 1}, {"forget", do_forget, 2}, {"decide", do_decide, 4},
        {"text", do_text, 1},
};

// On a busy machine the time on the wall says little.
static usec_t cpu_time(void) {
        struct timespec t;

        (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (usec_t) t.tv_sec * USEC_PER_SEC + (usec_t) t.tv_nsec / 1000;
}

static void run_line(char *line) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_strv_ char **a = NULL;
        usec_t start, spent;
        int r = strv_split(line, " \n", &a);

        if (r < 0 || strv_length(a) == 0)
                return;
        start = clock_monotonic();
        spent = cpu_time();
        r = -ENOSYS;
        for (size_t i = 0; i < ELEMENTS(commands); i++)
                if (strcmp(commands[i].word, a[0]) == 0 && strv_length(a) > commands[i].arguments)
                        r = commands[i].fn(a, &err);
        if (r < 0)
                printf("error %s", error_message(&err, r));
        else
                printf("ok %lu cpu, %lu us", (unsigned long) (cpu_time() - spent), (unsigned long) (clock_monotonic() - start));
        printf("\n");
        (void) fflush(stdout);
}

int main(void) {
        char *line = NULL;
        size_t size = 0;

        (void) inet_pton(AF_INET, "10.99.0.0", &settings.ipv4_pool);
        (void) inet_pton(AF_INET6, "2a01:4f8:1:1::", &settings.ipv6_pool);
        while (getline(&line, &size, stdin) > 0)
                run_line(line);
        free(line);
        network = network_free(network);
        return 0;
}

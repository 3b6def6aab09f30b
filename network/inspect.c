// SPDX-License-Identifier: GPL-2.0-or-later
// Inspect: what the kernel holds of ours, compared with what should live, and what else on this host stands in the way.
#include <netinet/in.h>

#include <linux/netfilter.h> // after netinet/in.h, which it would contradict
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/strv.h"
#include "network/forwarding.h"
#include "network/link.h"
#include "network/nft.h"
#include "network/network.h"
#include "network/network_sandbox.h"
#include "network/ruleset.h"

// The slot in a name that begins with `prefix` and four hex digits; -1 for names of another form.
static int name_slot(const char *prefix, const char *name) {
        size_t n = strlen(prefix);

        if (strncmp(name, prefix, n) != 0 || strspn(name + n, "0123456789abcdef") < 4 || (name[n + 4] && name[n + 4] != '_'))
                return -1;
        char digits[5] = "";
        memcpy(digits, name + n, 4);
        return (int) strtoul(digits, NULL, 16);
}

// Of a sandbox's wire, whatever became of its profile.
static int name_sandbox(const char *name) {
        uint16_t profile, sandbox;

        return network_sandbox_parse(name, &profile, &sandbox) ? sandbox : -1;
}

static int name_number(const char *prefix, const char *name) {
        return strncmp(name, SANDBOX_PREFIX, strlen(SANDBOX_PREFIX)) == 0 ? name_sandbox(name) : name_slot(prefix, name);
}

typedef struct LeakSearch {
        const uint16_t *live;
        size_t n;
        NetworkLeaks found;
} LeakSearch;

void network_leaks_done(NetworkLeaks *leaks) {
        for (size_t i = 0; i < leaks->n; i++)
                free(leaks->leaks[i].object);
        free(leaks->leaks);
        *leaks = (NetworkLeaks) {0};
}

static bool leaks_contain(const NetworkLeaks *leaks, const char *object) {
        for (size_t i = 0; i < leaks->n; i++)
                if (strcmp(leaks->leaks[i].object, object) == 0)
                        return true;
        return false;
}

static int leak_add(NetworkLeaks *leaks, uint16_t slot, const char *kind, const char *name) {
        _cleanup_free_ char *object = NULL;
        NetworkLeak *grown;

        if (asprintf(&object, "%s %s", kind, name) < 0) {
                object = NULL;
                return -ENOMEM;
        }
        if (leaks_contain(leaks, object)) // a rule of each family
                return 0;
        grown = reallocarray(leaks->leaks, leaks->n + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        leaks->leaks = grown;
        grown[leaks->n++] = (NetworkLeak) {slot, TAKE_PTR(object)};
        return 0;
}

static int leaks_add(LeakSearch *search, const char *kind, const char *prefix, char *const *names) {
        int r = 0;

        for (char *const *p = names; r >= 0 && p && *p; p++) {
                int slot = name_number(prefix, *p);
                bool live = slot < 0;

                for (size_t i = 0; i < search->n && !live; i++)
                        live = search->live[i] == slot;
                if (!live)
                        r = leak_add(&search->found, (uint16_t) slot, kind, *p);
        }
        return r;
}

static int leaks_links(LeakSearch *search, const char *prefix) {
        _cleanup_strv_ char **names = NULL;
        int r = link_list(prefix, &names);

        return r < 0 ? r : leaks_add(search, "interface", prefix, names);
}

static int leaks_rules(LeakSearch *search) {
        _cleanup_strv_ char **names = NULL;
        int r = link_list_rules(&names);

        return r < 0 ? r : leaks_add(search, "routing rule of", HOST_PREFIX, names);
}

static int leaks_nft(LeakSearch *search) {
        _cleanup_strv_ char **names = NULL;
        int r = nft_names(&names);

        return r < 0 ? r : leaks_add(search, "nft", "i", names);
}

static int source_add(const char *ifname, void *userdata) {
        return name_sandbox(ifname) < 0 ? 0 : strv_append(userdata, ifname);
}

static int leaks_sources(LeakSearch *search) {
        _cleanup_strv_ char **names = NULL;
        int r = nft_sources(source_add, &names);

        return r < 0 && r != -ENOENT ? r : leaks_add(search, "addresses of", HOST_PREFIX, names);
}

int network_leaks(const uint16_t *live, size_t n, NetworkLeaks *ret, Error *err) {
        LeakSearch search = {.live = live, .n = n};
        int r = leaks_links(&search, HOST_PREFIX);

        if (r >= 0)
                r = leaks_rules(&search);
        if (r >= 0)
                r = leaks_nft(&search);
        if (r >= 0)
                r = leaks_sources(&search);
        if (r < 0) {
                network_leaks_done(&search.found);
                return error_set_errno(err, r, "looking for leftovers of the network");
        }
        *ret = search.found;
        return 0;
}

static int count_base(const NftChain *chain, void *userdata) {
        *(unsigned *) userdata += chain->type && chain->family == NFPROTO_INET && strcmp(chain->table, "hostd") == 0;
        return 0;
}

static int doctor_firewall(char ***findings) {
        enum { BASE_CHAINS = 7 };
        unsigned base = 0; // chains of ours that are there
        int r = nft_chains(count_base, &base);

        if (r < 0)
                return strv_append_format(findings, "missing: nftables does not answer (%s); load the module nf_tables", strerror(-r));
        return base >= BASE_CHAINS
                       ? strv_append(findings, "enforced: the tables of hostd are loaded")
                       : strv_append(findings, "missing: the table inet hostd is incomplete; restart hostd");
}

static int doctor_sysctl(char ***findings, const char *path, const char *name) {
        unsigned long long value = 0;

        if (io_read_u64(AT_FDCWD, path, &value) < 0 || value == 0)
                return strv_append_format(findings, "missing: %s is 0, nothing is forwarded; set it to 1", name);
        return strv_append_format(findings, "enforced: %s is on", name);
}

int network_doctor_settings(const NetworkSettings *settings, char ***ret, Error *err) {
        _cleanup_strv_ char **findings = NULL;
        int r = doctor_firewall(&findings);

        if (r >= 0)
                r = strv_append(&findings, link_base_rules_present(settings)
                                                   ? "enforced: routing rules keep forwarding closed without the firewall"
                                                   : "missing: the routing rules 90 to 92 are not all there; restart hostd");
        if (r >= 0)
                r = doctor_sysctl(&findings, "/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward");
        if (r >= 0)
                r = doctor_sysctl(&findings, "/proc/sys/net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding");
        if (r >= 0 && settings->uplink)
                r = link_exists(settings->uplink)
                            ? strv_append_format(&findings, "enforced: the uplink %s is there", settings->uplink)
                            : strv_append_format(&findings, "missing: there is no interface %s; correct network.uplink", settings->uplink);
        if (r < 0)
                return error_set_errno(err, r, "examining the network");
        *ret = TAKE_PTR(findings);
        return 0;
}

// Interface of the default route with the least metric; columns as in /proc/net/route and /proc/net/ipv6_route.
static int uplink_read(const char *path, bool six, char **ret) {
        _cleanup_free_ char *text = NULL;
        char name[IFNAMSIZ], best[IFNAMSIZ] = "", *rest, *line;
        unsigned long least = ULONG_MAX;
        int r = io_read_file(AT_FDCWD, path, 4 * 1024 * 1024, &text, NULL);

        if (r < 0)
                return r;
        rest = text;
        while ((line = strsep(&rest, "\n"))) {
                unsigned long destination, mask, flags, metric;
                bool found = six ? sscanf(line, "00000000000000000000000000000000 00 %*s %*s %*s %lx %*s %*s %lx %15s", &metric, &flags,
                                          name) == 3
                                 : sscanf(line, "%15s %lx %*s %lx %*s %*s %lu %lx", name, &destination, &flags, &metric, &mask) == 5 &&
                                           destination == 0 && mask == 0;
                // RTF_UP and not RTF_REJECT; the kernel's own null route is on lo.
                if (found && (flags & 1) && !(flags & 0x200) && strcmp(name, "lo") != 0 && metric < least) {
                        least = metric;
                        memcpy(best, name, sizeof(best));
                }
        }
        if (!best[0])
                return -ENOENT;
        *ret = strdup(best);
        return *ret ? 0 : -ENOMEM;
}

int network_find_uplink(char **ret) {
        int r = uplink_read("/proc/net/route", false, ret);

        return r < 0 ? uplink_read("/proc/net/ipv6_route", true, ret) : 0;
}

int network_remove_all(const char *before, char ***notes, Error *err) {
        _cleanup_free_ char *text = NULL;
        _cleanup_strv_ char **names = NULL;
        size_t size = 0;
        FILE *f;
        int r = link_list(HOST_PREFIX, &names);

        // Only names of our own form: an "hvlan" of somebody else stays.
        for (char **p = names; r >= 0 && p && *p; p++)
                if ((strlen(*p) == strlen(HOST_PREFIX) + 4 && name_slot(HOST_PREFIX, *p) >= 0) || name_sandbox(*p) >= 0)
                        r = link_delete(*p);
        if (r >= 0)
                r = link_delete_all_rules();
        if (r < 0)
                return error_set_errno(err, r, "removing the network");
        f = open_memstream(&text, &size);
        if (!f)
                return error_set_errno(err, ENOMEM, "removing the network");
        ruleset_remove(f);
        if (fclose(f) != 0)
                return error_set_errno(err, ENOMEM, "removing the network");
        // Forwarding ends while the rules still close it, so that there is no moment in between.
        r = forwarding_restore(before, notes, err);
        if (r < 0)
                return r;
        return nft_apply(text, "removing the firewall", err);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Forwarding: see forwarding.h.
//
// The file has a line "PATH VALUE" for each sysctl, PATH below /proc/sys, in the order in which they are put back: switching
// forwarding of all interfaces resets that of each, and whether redirects are accepted, so these come behind it.
#include <netinet/in.h>

#include <linux/netfilter.h> // after netinet/in.h, which it would contradict
#include <dirent.h>
#include <string.h>

#include "base/io.h"
#include "network/forwarding.h"
#include "network/nft.h"

#define SYSCTLS_MAX 65536 // bytes of the file

typedef struct Family {
        const char *name;    // "ipv4", of /proc/sys/net and conf below it
        const char *all;     // the switch of all interfaces
        const char *sysctl;  // as people and sysctl.d call it
        int nft;             // family of tables beside inet
} Family;

static const Family families[] = {
        {"ipv4", "net/ipv4/ip_forward", "net.ipv4.ip_forward", NFPROTO_IPV4},
        {"ipv6", "net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding", NFPROTO_IPV6},
};

// Bytes and times of connections, for the evidence (hostd-flow). Of connections that begin from then on.
static const char *const accounts[] = {"net/netfilter/nf_conntrack_acct", "net/netfilter/nf_conntrack_timestamp"};

static int sysctl_read(const char *path, unsigned long long *ret) {
        char full[320]; // a path of 300 and its root

        (void) snprintf(full, sizeof(full), "/proc/sys/%s", path);
        return io_read_u64(AT_FDCWD, full, ret);
}

static int sysctl_write(const char *path, const char *value) {
        char full[320]; // a path of 300 and its root

        (void) snprintf(full, sizeof(full), "/proc/sys/%s", path);
        return io_write_file(AT_FDCWD, full, value);
}

static bool lines_have(char *const *lines, const char *path) {
        for (size_t size = strlen(path); lines && *lines; lines++)
                if (strncmp(*lines, path, size) == 0 && (*lines)[size] == ' ')
                        return true;
        return false;
}

// Only what was so before the first change counts.
static int note(char ***lines, const char *path, unsigned long long value) {
        return lines_have(*lines, path) ? 0 : strv_append_format(lines, "%s %llu", path, value);
}

static int note_family(const Family *family, char ***lines) {
        char folder[64], path[300];
        unsigned long long value;
        DIR *d = NULL;
        struct dirent *e;
        int r = note(lines, family->all, 0);

        (void) snprintf(folder, sizeof(folder), "/proc/sys/net/%s/conf", family->name);
        (void) snprintf(path, sizeof(path), "net/%s/conf/all/accept_redirects", family->name);
        if (r >= 0 && family->nft == NFPROTO_IPV4 && sysctl_read(path, &value) >= 0)
                r = note(lines, path, value);
        if (r >= 0)
                d = opendir(folder);
        while (d && r >= 0 && (e = readdir(d))) {
                if (e->d_name[0] == '.' || strcmp(e->d_name, "all") == 0)
                        continue;
                (void) snprintf(path, sizeof(path), "net/%s/conf/%s/forwarding", family->name, e->d_name);
                if (sysctl_read(path, &value) >= 0 && value != 0)
                        r = note(lines, path, value);
        }
        if (d)
                (void) closedir(d);
        return r;
}

static int lines_load(const char *file, char ***ret) {
        _cleanup_free_ char *text = NULL;
        int r = file ? io_read_file(AT_FDCWD, file, SYSCTLS_MAX, &text, NULL) : -ENOENT;

        return r == -ENOENT ? 0 : r < 0 ? r : strv_split(text, "\n", ret);
}

static int lines_save(const char *file, char *const *lines) {
        _cleanup_free_ char *text = strv_join(lines, "\n");

        return !text ? -ENOMEM : io_write_atomic(AT_FDCWD, file, text, strlen(text), 0600);
}

// A forwarding host ignores router advertisements, and with them its default route, unless told so.
static bool uplink_path(const char *uplink, char *path, size_t size) {
        unsigned long long value = 0;

        if (!uplink)
                return false;
        (void) snprintf(path, size, "net/ipv6/conf/%s/accept_ra", uplink);
        return sysctl_read(path, &value) >= 0 && value == 1;
}

static int note_accounts(char ***lines, bool *off) {
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(accounts) && r >= 0; i++) {
                unsigned long long value = 1; // a kernel without it: the records say that bytes were not counted
                off[i] = sysctl_read(accounts[i], &value) >= 0 && value == 0;
                if (off[i])
                        r = note(lines, accounts[i], 0);
        }
        return r;
}

int forwarding_enable(const char *uplink, const char *before, Error *err) {
        _cleanup_strv_ char **lines = NULL;
        bool off[ELEMENTS(families)], uncounted[ELEMENTS(accounts)] = {false}, listens;
        char accept_ra[128] = "";
        int r = lines_load(before, &lines);

        listens = uplink_path(uplink, accept_ra, sizeof(accept_ra));
        for (size_t i = 0; i < ELEMENTS(families) && r >= 0; i++) {
                unsigned long long value = 0;
                r = sysctl_read(families[i].all, &value);
                // Written only if it is off: writing resets settings of every interface.
                off[i] = value == 0;
                if (r >= 0 && off[i])
                        r = note_family(&families[i], &lines);
        }
        if (r >= 0)
                r = note_accounts(&lines, uncounted);
        if (r >= 0 && listens)
                r = note(&lines, accept_ra, 1);
        if (r >= 0 && before && lines)
                r = lines_save(before, lines);
        if (r >= 0 && listens)
                (void) sysctl_write(accept_ra, "2"); // best effort: doctor reports a lost route
        for (size_t i = 0; i < ELEMENTS(accounts) && r >= 0; i++)
                if (uncounted[i])
                        (void) sysctl_write(accounts[i], "1"); // best effort, as above
        for (size_t i = 0; i < ELEMENTS(families) && r >= 0; i++)
                if (off[i])
                        r = sysctl_write(families[i].all, "1");
        return r < 0 ? error_set_errno(err, r, "enabling forwarding") : 0;
}

// ---- who else may need it ----------------------------------------------------------------------------------------------------

// One line of a sysctl.d file: "KEY = VALUE", with dots or slashes, perhaps with a dash before it.
static bool line_enables(const char *line, const char *key) {
        line += strspn(line, " \t");
        line += *line == '-';
        for (; *key && (*line == *key || (*line == '/' && *key == '.')); key++)
                line++;
        line += strspn(line, " \t");
        return !*key && *line == '=' && strtol(line + 1, NULL, 10) != 0;
}

static bool file_enables(int dir, const char *name, const char *key) {
        _cleanup_free_ char *text = NULL;
        _cleanup_strv_ char **lines = NULL;

        if (io_read_file(dir, name, 1 << 20, &text, NULL) < 0 || strv_split(text, "\n", &lines) < 0)
                return false;
        for (char **line = lines; line && *line; line++)
                if (line_enables(*line, key))
                        return true;
        return false;
}

// The file that says so, in `ret`.
static bool configured(const char *key, char *ret, size_t size) {
        static const char *const folders[] = {"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d"};
        bool found = file_enables(AT_FDCWD, "/etc/sysctl.conf", key);

        (void) snprintf(ret, size, "/etc/sysctl.conf");
        for (size_t i = 0; i < ELEMENTS(folders) && !found; i++) {
                DIR *d = opendir(folders[i]);
                struct dirent *e;
                while (d && !found && (e = readdir(d))) {
                        size_t n = strlen(e->d_name);
                        found = n > 5 && strcmp(e->d_name + n - 5, ".conf") == 0 && file_enables(dirfd(d), e->d_name, key);
                        if (found)
                                (void) snprintf(ret, size, "%s/%s", folders[i], e->d_name);
                }
                if (d)
                        (void) closedir(d);
        }
        return found;
}

typedef struct NatSearch {
        int family;
        char *ret;
        size_t size;
        bool found;
} NatSearch;

// Whoever translates what leaves by another interface forwards it: Docker, libvirt, a router.
static int find_nat(const NftChain *chain, void *userdata) {
        NatSearch *search = userdata;

        if (!chain->type || strcmp(chain->type, "nat") != 0 || chain->hook != NF_INET_POST_ROUTING || strcmp(chain->table, "hostd") == 0 ||
            (chain->family != search->family && chain->family != NFPROTO_INET))
                return 0;
        (void) snprintf(search->ret, search->size, "the nftables table %s", chain->table);
        search->found = true;
        return 0;
}

static bool translates(int family, char *ret, size_t size) {
        NatSearch search = {family, ret, size, false};

        (void) nft_chains(find_nat, &search);
        return search.found;
}

static bool bridges(char *ret, size_t size) {
        DIR *d = opendir("/sys/class/net");
        struct dirent *e;
        bool found = false;

        while (d && !found && (e = readdir(d))) {
                char path[300];
                (void) snprintf(path, sizeof(path), "/sys/class/net/%s/bridge", e->d_name);
                found = e->d_name[0] != '.' && access(path, F_OK) == 0;
                if (found)
                        (void) snprintf(ret, size, "the bridge %s", e->d_name);
        }
        if (d)
                (void) closedir(d);
        return found;
}

// ---- putting back ------------------------------------------------------------------------------------------------------------

static int restore_line(const char *line) {
        const char *blank = strrchr(line, ' ');
        char path[256];

        if (!blank || (size_t) (blank - line) >= sizeof(path))
                return -EINVAL;
        memcpy(path, line, (size_t) (blank - line));
        path[blank - line] = 0;
        // The file is root's alone; this is against what a damaged one could say.
        if (strncmp(path, "net/", 4) != 0 || strstr(path, ".."))
                return -EINVAL;
        int r = sysctl_write(path, blank + 1);
        return r == -ENOENT ? 0 : r; // an interface that is gone
}

static int restore_family(const Family *family, char *const *lines, char ***notes) {
        char prefix[32], other[300] = "";
        unsigned long long now = 0;
        int r = 0;

        if (!lines_have(lines, family->all) || sysctl_read(family->all, &now) < 0 || now == 0)
                return 0;
        if (configured(family->sysctl, other, sizeof(other)) || translates(family->nft, other, sizeof(other)) || bridges(other, sizeof(other)))
                return strv_append_format(notes, "%s stays 1: %s needs it", family->sysctl, other);
        (void) snprintf(prefix, sizeof(prefix), "net/%s/", family->name);
        for (; r >= 0 && lines && *lines; lines++)
                if (strncmp(*lines, prefix, strlen(prefix)) == 0)
                        r = restore_line(*lines);
        return r < 0 ? r : strv_append_format(notes, "%s is 0 again, as it was before hostd", family->sysctl);
}

// Nobody's traffic depends on these: no line for people.
static int restore_accounts(char *const *lines) {
        int r = 0;

        for (; lines && *lines && r >= 0; lines++)
                if (strncmp(*lines, "net/netfilter/", strlen("net/netfilter/")) == 0)
                        r = restore_line(*lines);
        return r;
}

int forwarding_restore(const char *before, char ***notes, Error *err) {
        _cleanup_strv_ char **lines = NULL;
        int r = lines_load(before, &lines);

        for (size_t i = 0; i < ELEMENTS(families) && r >= 0; i++)
                r = restore_family(&families[i], lines, notes);
        if (r >= 0)
                r = restore_accounts(lines);
        if (r >= 0 && unlink(before) < 0 && errno != ENOENT)
                r = -errno;
        return r < 0 ? error_set_errno(err, r, "putting back what forwarding was before hostd") : 0;
}

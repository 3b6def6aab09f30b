// SPDX-License-Identifier: GPL-2.0-or-later
// Doctor: see doctor.h. Each probe is a small function that looks at the kernel, not at what we believe we set.
#include "core/doctor.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/size.h"
#include "core/border_link.h"
#include "core/guard.h"

#define APPARMOR_PROFILE "hostd-instance"
#define APPARMOR_PROFILES "/sys/kernel/security/apparmor/profiles"

typedef enum ProtectionState { PROTECTION_ENFORCED, PROTECTION_DEGRADED, PROTECTION_MISSING } ProtectionState;

static const char *const protection_state_names[] = {"enforced", "degraded", "missing"};

typedef struct Finding {
        ProtectionState state;
        char detail[512], fix[512];
} Finding;

typedef struct Protection {
        const char *name; // what allow_degraded takes
        bool blocks;      // its absence refuses a start
        void (*probe)(Manager *manager, Finding *finding);
} Protection;

#define FOUND(finding, found_state, found_fix, ...)                                            \
        do {                                                                                    \
                (finding)->state = (found_state);                                               \
                snprintf((finding)->detail, sizeof((finding)->detail), __VA_ARGS__);            \
                snprintf((finding)->fix, sizeof((finding)->fix), "%s", (found_fix));            \
        } while (0)

const char *doctor_apparmor_profile(Manager *manager) {
        _cleanup_free_ char *profiles = NULL;

        if (io_read_file(AT_FDCWD, APPARMOR_PROFILES, 1 << 20, &profiles, NULL) < 0)
                return NULL;
        for (const char *p = profiles; (p = strstr(p, APPARMOR_PROFILE " (enforce)")); p++)
                if (p == profiles || p[-1] == '\n')
                        return APPARMOR_PROFILE;
        return NULL;
}

static void probe_apparmor(Manager *m, Finding *f) {
        if (doctor_apparmor_profile(m))
                FOUND(f, PROTECTION_ENFORCED, "", "profile %s is loaded and enforcing", APPARMOR_PROFILE);
        else if (access("/sys/module/apparmor", F_OK) < 0)
                FOUND(f, PROTECTION_MISSING, "boot a kernel with AppArmor, or allow \"apparmor\"", "this kernel has no AppArmor");
        else
                FOUND(f, PROTECTION_MISSING, "apparmor_parser -r /etc/apparmor.d/hostd-instance", "profile %s is not loaded", APPARMOR_PROFILE);
}

static void probe_userns(Manager *m, Finding *f) {
        unsigned long long max = 0;

        if (io_read_u64(AT_FDCWD, "/proc/sys/user/max_user_namespaces", &max) < 0 || max < 64)
                FOUND(f, PROTECTION_MISSING, "sysctl user.max_user_namespaces=65536", "user namespaces are limited to %llu", max);
        else
                FOUND(f, PROTECTION_ENFORCED, "", "every instance has a user namespace of its own");
}

static void probe_ids(Manager *m, Finding *f) {
        FOUND(f, PROTECTION_ENFORCED, "", "host ids %u..%llu, %u per instance, never shared", m->pool.base,
              (unsigned long long) m->pool.base + m->pool.count - 1, SLOT_IDS);
}

static void probe_state_dir(Manager *m, Finding *f) {
        struct stat st;

        // Files of instances have their inside owner on disk: a setuid root file of a guest is one for any local user who can reach it.
        if (fstat(m->state_fd, &st) < 0 || st.st_uid != 0 || (st.st_mode & 077))
                FOUND(f, PROTECTION_MISSING, "chown root:root and chmod 0700 the directory", "%s can be entered by others", m->paths.state);
        else
                FOUND(f, PROTECTION_ENFORCED, "", "%s is 0700 and root's", m->paths.state);
}

// What was too full to be tried when hostd started may have room by now.
static void try_disk_again(Manager *m) {
        if (!m->disk.bytes)
                (void) disk_host_probe(m->state_fd, &m->disk, NULL);
}

static void probe_disk(Manager *m, Finding *f) {
        try_disk_again(m);
        if (m->disk.bytes)
                FOUND(f, PROTECTION_ENFORCED, "", "disk limits are kept by the file system");
        else
                FOUND(f, PROTECTION_MISSING, "put the state directory on xfs or ext4 with prjquota, or on btrfs with quotas: see docs/storage.md", "%.200s", m->disk.reason);
}

static void probe_inodes(Manager *m, Finding *f) {
        if (m->disk.inodes)
                FOUND(f, PROTECTION_ENFORCED, "", "inode limits are kept by the file system");
        else if (m->disk.kind == DISK_BTRFS)
                FOUND(f, PROTECTION_DEGRADED, "none needed: small files count against the disk limit", "btrfs has no inode limit");
        else
                FOUND(f, PROTECTION_MISSING, "put the state directory on xfs or ext4 with prjquota: see docs/storage.md", "%.200s", m->disk.reason);
}

#define SPACE_LOW (1ULL << 30)

// Nothing of this keeps an instance from its start; what does is "disk" and "inodes".
static void probe_storage(Manager *m, Finding *f) {
        int reflinks = disk_host_reflinks(&m->disk);
        uint64_t total = 0, left = 0;
        struct stat own, root;
        char lacks[128] = "";

        if (disk_host_space(&m->disk, &total, &left) == 0 && left < SPACE_LOW) {
                FOUND(f, PROTECTION_DEGRADED, "make room: \"hostctl list -c name,disk_used\" and \"hostctl template prune\"",
                      "only %llu MiB are free in %s: new instances are refused, and changes when no record of them can be written",
                      (unsigned long long) (left >> 20), m->paths.state);
                return;
        }
        if (reflinks == 0)
                strncat(lacks, " no reflinks;", sizeof(lacks) - strlen(lacks) - 1);
        if (!m->disk.inodes)
                strncat(lacks, " no inode limit;", sizeof(lacks) - strlen(lacks) - 1);
        if (!m->disk.bytes)
                strncat(lacks, " no disk limit;", sizeof(lacks) - strlen(lacks) - 1);
        if (fstat(m->state_fd, &own) == 0 && stat("/", &root) == 0 && own.st_dev == root.st_dev)
                strncat(lacks, " shared with the root file system: whoever fills one fills the other;", sizeof(lacks) - strlen(lacks) - 1);
        if (!*lacks) {
                FOUND(f, PROTECTION_ENFORCED, "", "%s, by itself, with limits and reflinks", disk_host_name(&m->disk));
                return;
        }
        lacks[strlen(lacks) - 1] = 0;
        FOUND(f, PROTECTION_DEGRADED, "best is an xfs of its own, mounted with prjquota: see docs/storage.md", "%s:%s", disk_host_name(&m->disk), lacks);
}

static void probe_network(Manager *m, Finding *f) {
        _cleanup_strv_ char **problems = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = network_doctor(m->network, &problems, &err);

        if (r < 0)
                FOUND(f, PROTECTION_MISSING, "see the journal of hostd", "%s", error_message(&err, r));
        for (char **p = problems; r >= 0 && p && *p; p++)
                if (strncmp(*p, "enforced", strlen("enforced")) != 0) {
                        FOUND(f, strncmp(*p, "missing", strlen("missing")) == 0 ? PROTECTION_MISSING : PROTECTION_DEGRADED, "see docs/network.md", "%s", *p);
                        return;
                }
        if (r >= 0)
                FOUND(f, PROTECTION_ENFORCED, "", "the table is present; forwarding is closed without it");
}

static void probe_seccomp(Manager *m, Finding *f) {
        if (access("/proc/sys/kernel/seccomp/actions_avail", F_OK) < 0)
                FOUND(f, PROTECTION_MISSING, "boot a kernel with seccomp filters", "this kernel has no seccomp filters");
        else
                FOUND(f, PROTECTION_ENFORCED, "", "a deny list is loaded into every instance");
}

static void probe_kill(Manager *m, Finding *f) {
        if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) < 0 && access("/sys/fs/cgroup/unified/cgroup.controllers", F_OK) < 0)
                FOUND(f, PROTECTION_MISSING, "boot with cgroup v2 mounted", "there is no cgroup v2 hierarchy to freeze and kill with");
        else if (!cgroup_host_is_unified(m->cgroup))
                FOUND(f, PROTECTION_DEGRADED, "boot with systemd.unified_cgroup_hierarchy=1", "hybrid cgroups: memory, pids and cpu are limited through v1");
        else
                FOUND(f, PROTECTION_ENFORCED, "", "cgroup v2");
}

static void probe_guard(Manager *m, Finding *f) {
        char limit[SIZE_TEXT_MAX], promised[SIZE_TEXT_MAX];
        _cleanup_free_ Promise *promises = NULL;
        uint64_t now = UINT64_MAX, sum = 0;
        size_t n = 0;
        int r = guard_read(m, &now);

        promises = manager_promises(m, NULL, &n);
        for (size_t i = 0; promises && i < n; i++)
                sum += promises[i].memory_bytes;
        if (m->guard_bytes == 0 || (r >= 0 && now == UINT64_MAX))
                FOUND(f, PROTECTION_DEGRADED, "see: hostctl warning list", "nothing limits the instances together");
        else if (r >= 0 && now < sum)
                FOUND(f, PROTECTION_DEGRADED, "raise MemoryMax of hostd.slice, or promise less", "hostd.slice may have %s, less than the %s that was promised",
                      size_format_short(now, limit), size_format_short(sum, promised));
        else
                FOUND(f, PROTECTION_ENFORCED, "", "instances have at most %s together", size_format_short(r >= 0 ? now : m->guard_bytes, limit));
}

static void probe_config(Manager *m, Finding *f) {
        if (m->config_error)
                FOUND(f, PROTECTION_DEGRADED, "correct the file, then: hostctl apply; or go back: hostctl config rollback HEAD", "the files are not in force: %.200s", m->config_error);
        else
                FOUND(f, PROTECTION_ENFORCED, "", "the files in %s are in force", m->paths.etc);
}

static void probe_history(Manager *m, Finding *f) {
        const char *why = confdir_no_history(m->confdir);

        if (why)
                FOUND(f, PROTECTION_DEGRADED, "apt-get install git, or move the broken repository away; hostd tries again at the next change", "changes have no history: %.200s", why);
        else
                FOUND(f, PROTECTION_ENFORCED, "", "each change of the configuration is a commit");
}

uint64_t doctor_open_files(uint64_t wanted) {
        struct rlimit now, raised = {.rlim_cur = 1024, .rlim_max = wanted};
        bool may_raise;

        if (wanted == UINT64_MAX || getrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_max >= wanted)
                return wanted;
        raised.rlim_cur = MIN2(now.rlim_cur, raised.rlim_max);
        may_raise = setrlimit(RLIMIT_NOFILE, &raised) == 0; // harmless: only the ceiling of hostd itself
        return may_raise ? wanted : now.rlim_max;
}

static void probe_open_files(Manager *m, Finding *f) {
        uint64_t wanted = 65536, given = doctor_open_files(wanted);

        if (given < wanted)
                FOUND(f, PROTECTION_DEGRADED, "start hostd with a hard limit of at least 65536 open files", "instances get %llu open files at most: hostd may not raise its limit",
                      (unsigned long long) given);
        else
                FOUND(f, PROTECTION_ENFORCED, "", "the limit of open files is set for init and inherited");
}

static void probe_audit(Manager *m, Finding *f) {
        if (m->audit_failed)
                FOUND(f, PROTECTION_DEGRADED, "make room or repair the audit directory; nothing is changed until a record can be written", "the last record could not be written");
        else
                FOUND(f, PROTECTION_ENFORCED, "", "each change is on disk before its answer; check with: hostctl audit verify");
}

static void probe_core_dumps(Manager *m, Finding *f) {
        _cleanup_free_ char *pattern = NULL;

        if (io_read_file(AT_FDCWD, "/proc/sys/kernel/core_pattern", 4096, &pattern, NULL) < 0)
                pattern = NULL;
        if (pattern && pattern[0] == '|') {
                pattern[strcspn(pattern, " \n")] = 0;
                FOUND(f, PROTECTION_DEGRADED, "sysctl kernel.core_pattern=core", "for each crash in an instance the kernel runs %.120s on the host, as root",
                      pattern + 1);
        } else
                FOUND(f, PROTECTION_ENFORCED, "", "a crash in an instance runs nothing on the host");
}

// What names and connections by name need. Nothing of this opens anything when it is missing.
static void probe_helper(Manager *m, BorderPart part, const char *without, Finding *f) {
        BorderState state;
        const char *reason = border_link_state(m, part, &state), *name = border_part_to_string(part);

        if (state == BORDER_NOT_INSTALLED)
                FOUND(f, PROTECTION_DEGRADED, "put its program where the others are", "%s is not installed: %s", name, without);
        else if (state != BORDER_UP || *reason)
                FOUND(f, PROTECTION_DEGRADED, m->systemd ? "see the journal of its unit" : "see what it wrote to the log of hostd", "%s: %.200s; %s", name, reason, without);
        else if (border_link_is_old(m, part)) {
                char fix[128];
                (void) snprintf(fix, sizeof(fix), m->systemd ? "systemctl restart %s: connections through it end" : "end the process of %s: hostd starts it anew", name);
                FOUND(f, PROTECTION_DEGRADED, fix, "%s runs an older program than the installed one: what was mended in it is not in force", name);
        } else
                FOUND(f, PROTECTION_ENFORCED, "", "%s runs, as a user of its own without rights", name);
}

static void probe_resolver(Manager *m, Finding *f) {
        probe_helper(m, BORDER_PART_RESOLVER, "instances resolve no names, and no template is built", f);
}

static void probe_proxy(Manager *m, Finding *f) {
        probe_helper(m, BORDER_PART_PROXY, "what is allowed by name on TCP 443 and 80 is not reached, and no template is built", f);
}

static void probe_flow(Manager *m, Finding *f) {
        probe_helper(m, BORDER_PART_FLOW, "what instances reach for is not recorded", f);
}

static const Protection protections[] = {
        {"user-namespaces", true, probe_userns}, {"id-ranges", true, probe_ids},     {"state-directory", true, probe_state_dir},
        {"cgroups", false, probe_kill},          {"disk", true, probe_disk},         {"inodes", false, probe_inodes},
        {"storage", false, probe_storage},
        {"apparmor", true, probe_apparmor},      {"seccomp", true, probe_seccomp},   {"network", true, probe_network},
        {"configuration", false, probe_config},  {"history", false, probe_history},  {"audit", true, probe_audit},
        {"open-files", false, probe_open_files}, {"core-dumps", false, probe_core_dumps},
        {"host-share", false, probe_guard},      {"resolver", false, probe_resolver}, {"proxy", false, probe_proxy},
        {"flow-records", false, probe_flow},
};

int doctor_allowed(Manager *m, const InstanceConfig *config, char ***ret, Error *err) {
        _cleanup_strv_ char **all = strv_copy(m->desired->host.allow_degraded);

        for (char **p = config ? config->allow_degraded : NULL; p && *p; p++)
                if (strv_append(&all, *p) < 0)
                        return error_set_errno(err, ENOMEM, "cannot read allow_degraded");
        *ret = TAKE_PTR(all);
        return 0;
}

static bool limit_wanted(const InstanceConfig *config, LimitId id) {
        return id == LIMIT_CPU_PIN ? config->limits.cpu_pin != NULL : config->limits.value[id] != LIMIT_UNSET;
}

int doctor_check_limits(Manager *m, const InstanceConfig *config, Error *err) {
        _cleanup_strv_ char **allowed = NULL;
        int r = doctor_allowed(m, config, &allowed, err);

        if (r < 0)
                return r;
        try_disk_again(m);
        for (LimitId id = 0; id < _LIMIT_MAX; id++) {
                const LimitRow *row = limit_row(id);
                const char *reason = NULL;

                if (row->where != LIMIT_WHERE_CGROUP || !limit_wanted(config, id) || cgroup_host_can(m->cgroup, id, &reason))
                        continue;
                if (!strv_contains(allowed, row->key))
                        return error_set(err, ERR_DEGRADED, "limit \"%s\" cannot be enforced on this host (%s): unset it or name it in allow_degraded",
                                         row->key, reason ?: "no controller");
        }
        if (config->limits.value[LIMIT_INODES] != LIMIT_UNSET && !m->disk.inodes && !strv_contains(allowed, "inodes"))
                return error_set(err, ERR_DEGRADED, "limit \"inodes\" cannot be enforced on this host: unset it or name it in allow_degraded");
        return 0;
}

int doctor_check_start(Manager *m, const InstanceConfig *config, Error *err) {
        _cleanup_strv_ char **allowed = NULL;
        int r = doctor_allowed(m, config, &allowed, err);

        if (r < 0)
                return r;
        for (size_t i = 0; i < ELEMENTS(protections); i++) {
                Finding finding = {0};
                if (!protections[i].blocks || strv_contains(allowed, protections[i].name))
                        continue;
                protections[i].probe(m, &finding);
                if (finding.state == PROTECTION_MISSING)
                        return error_set(err, ERR_DEGRADED, "protection \"%s\" is missing (%s): %s, or name it in allow_degraded", protections[i].name,
                                         finding.detail, finding.fix);
        }
        return doctor_check_limits(m, config, err);
}

static int report_row(json_t *list, const char *name, const Finding *finding, bool allowed) {
        return json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:b}", "protection", name, "state",
                                                     protection_state_names[finding->state], "detail", finding->detail, "fix", finding->fix,
                                                     "allowed", allowed));
}

// A row for each chain of another program that stops what policies allow; hostd can be right and instances reach nothing.
static void report_obstacles(json_t *list) {
        _cleanup_(network_obstacles_done) NetworkObstacles obstacles = {0};
        _cleanup_error_ Error err = ERROR_NULL;
        Finding finding = {0};
        int r = network_obstacles(&obstacles, &err);

        if (r < 0)
                FOUND(&finding, PROTECTION_DEGRADED, "see the journal of hostd", "%s", error_message(&err, r));
        else
                FOUND(&finding, PROTECTION_ENFORCED, "", "no other table stops what policies allow");
        if (obstacles.n == 0)
                (void) report_row(list, "other-firewalls", &finding, false);
        for (size_t i = 0; i < obstacles.n; i++) {
                FOUND(&finding, PROTECTION_DEGRADED, obstacles.obstacles[i].fix, "%s", obstacles.obstacles[i].what);
                (void) report_row(list, "other-firewalls", &finding, false);
        }
}

json_t *doctor_report(Manager *m, unsigned *ret_bad) {
        char *const *allowed = m->desired->host.allow_degraded;
        json_t *list = json_array();
        unsigned bad = 0;

        for (size_t i = 0; list && i < ELEMENTS(protections); i++) {
                Finding finding = {0};
                bool ok = strv_contains(allowed, protections[i].name);
                protections[i].probe(m, &finding);
                bad += finding.state == PROTECTION_MISSING && !ok;
                (void) report_row(list, protections[i].name, &finding, ok);
        }
        if (list)
                report_obstacles(list);
        for (LimitId id = 0; list && id < _LIMIT_MAX; id++) {
                const LimitRow *row = limit_row(id);
                const char *reason = NULL;
                Finding finding = {0};
                if (row->where != LIMIT_WHERE_CGROUP)
                        continue;
                _cleanup_free_ char *name = NULL;
                if (asprintf(&name, "limit %s", row->key) < 0)
                        continue;
                if (cgroup_host_can(m->cgroup, id, &reason))
                        FOUND(&finding, PROTECTION_ENFORCED, "", "%s", cgroup_host_is_unified(m->cgroup) ? row->v2_file : "through the v1 hierarchy");
                else
                        FOUND(&finding, PROTECTION_DEGRADED, "instances that set it do not start unless allow_degraded names it", "%s", reason ?: "no controller");
                (void) report_row(list, name, &finding, strv_contains(allowed, row->key));
        }
        if (ret_bad)
                *ret_bad = bad;
        return list;
}

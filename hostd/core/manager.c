// SPDX-License-Identifier: GPL-2.0-or-later
// Manager: opens everything in one order, adopts what runs, and keeps the loop.
#include "core/manager.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>

#include "base/io.h"
#include "base/log.h"
#include "core/approvals.h"
#include "core/border_link.h"
#include "core/command_link.h"
#include "core/io_link.h"
#include "core/sandbox.h"
#include "core/guard.h"
#include "core/job.h"
#include "core/leaks.h"
#include "core/lifecycle.h"
#include "core/rebuild.h"
#include "core/reconcile.h"
#include "core/request.h"
#include "core/sandbox_network.h"
#include "core/secrets.h"

#define TICK (60 * USEC_PER_SEC)
#define EXPIRE_EVERY 60 // ticks
#define TEMPLATE_IDLE (60 * USEC_PER_SEC)
#define RESTORE_EVERY (200 * USEC_PER_MSEC) // after one that failed, or one in which somebody goes on removing what comes back

static int replan_now(sd_event_source *source, void *userdata) {
        Manager *m = userdata;

        m->replan = sd_event_source_disable_unref(m->replan);
        if (m->create_next < m->desired->n_instances)
                lifecycle_create_missing(m);
        reconcile_run(m);
        secrets_plan(m); // policies may say something else of the hosts of grants
        return 0;
}

void manager_replan(Manager *m) {
        if (!m->replan && !m->stopping)
                (void) sd_event_add_defer(m->event, &m->replan, replan_now, m);
}

static char *in_state(Manager *m, const char *name) {
        char *path;

        return asprintf(&path, "%s/%s", m->paths.state, name) < 0 ? NULL : path;
}

// In a job: a file is read wholly before it goes.
typedef struct Expiry {
        const char *directory;
        uint64_t keep_days;
} Expiry;

static int expire_work(void *userdata, json_t **ret, Error *err) {
        const Expiry *expiry = userdata;

        return audit_expire(expiry->directory, expiry->keep_days, err);
}

static void expire_done(void *userdata, int r, json_t *result, Error *err) {
        Manager *m = userdata;

        if (m->stopping)
                return;
        if (r < 0)
                manager_warn(m, "audit-expiry", "host", "old audit files cannot be removed: %s", error_message(err, r));
        else
                manager_unwarn(m, "audit-expiry", "host");
}

static void expire_audit(Manager *m) {
        _cleanup_free_ char *directory = in_state(m, "audit");
        Expiry expiry = {directory, m->desired->host.audit_keep_days};
        JobSpec spec = {expire_work, &expiry, expire_done, m};

        if (directory)
                (void) job_start(m->event, &spec, NULL); // too many jobs: the next tick
}

static void commits_report(void *userdata, int r, const Error *err) {
        Manager *m = userdata;

        if (r < 0)
                manager_warn(m, "commit", "host", "%s", error_message(err, r));
        else if (r == CONFDIR_NO_HISTORY)
                manager_warn(m, "history", "host", "changes are made, but without a history: %s", confdir_no_history(m->confdir));
        else {
                manager_unwarn(m, "commit", "host");
                manager_unwarn(m, "history", "host");
        }
}

// What is not valid stays out of history, where the next start looks for what was.
static void commit_hand_edits(Manager *m, const char *message) {
        commits_add(m->commits, &(CommitAsk) {.author = "root <0@host>", .message = message, .whole = true, .except = m->broken});
}

static int tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = userdata;

        manager_replan(m);
        instance_disk_purge_leftovers(m);
        instance_disk_watch(m);
        instance_network_look(m);
        template_unmount_idle(m->templates, TEMPLATE_IDLE);
        for (Instance *i = m->instances.first; i; i = i->next)
                if (i->box && i->config && instance_is_live(i))
                        cgroup_box_keep_weights(i->box, &i->config->limits);
        commits_retry(m->commits);
        border_link_tick(m);
        if (m->ticks++ % EXPIRE_EVERY == 0)
                expire_audit(m);
        (void) sd_event_source_set_time_relative(source, TICK);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int network_restore_retry(sd_event_source *source, uint64_t usec, void *userdata);

static void network_bring_back(Manager *m) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = network_restore(m->network, &err);

        m->retry_network = sd_event_source_disable_unref(m->retry_network);
        m->restored = clock_monotonic();
        if (r >= 0) {
                manager_unwarn(m, "network", "host");
                log_event(LOG_NOTICE, LOG_ID_TABLE_RESTORED, NULL, "the nftables table is whole again");
                event_publish(m->bus, "network-restored", NULL, NULL);
                return;
        }
        manager_warn(m, "network", "host", "the table cannot be restored, forwarding stays closed: %s", error_message(&err, r));
        (void) sd_event_add_time_relative(m->event, &m->retry_network, CLOCK_MONOTONIC, RESTORE_EVERY, 0, network_restore_retry, m);
}

static int network_restore_retry(sd_event_source *source, uint64_t usec, void *userdata) {
        network_bring_back(userdata);
        return 0;
}

static int network_changed(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Manager *m = userdata;
        bool lost = false;

        if (network_watch_dispatch(m->network, &lost) < 0)
                lost = true;
        if (network_is_spent(m->network))
                instance_network_look(m);
        if (!lost || m->retry_network)
                return 0;
        manager_warn(m, "network-table", "host", "somebody removed or changed the nftables table; it is restored at once");
        // Two that fight for the table would have nothing else to do, and fill the journal: the first loss is made good at once, and those
        // that follow at this pace. Forwarding is closed in between.
        if (m->restored > 0 && clock_monotonic() - m->restored < RESTORE_EVERY)
                return sd_event_add_time_relative(m->event, &m->retry_network, CLOCK_MONOTONIC, RESTORE_EVERY, 0, network_restore_retry, m);
        network_bring_back(m);
        return 0;
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *si, void *userdata) {
        Manager *m = userdata;
        _cleanup_error_ Error err = ERROR_NULL;

        if (si->ssi_signo == SIGHUP) {
                (void) sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long) clock_monotonic());
                if (manager_reload(m, false, NULL, &err) >= 0)
                        commit_hand_edits(m, "reload");
                (void) sd_notify(0, "READY=1");
                return 0;
        }
        m->stopping = true;
        (void) sd_notify(0, "STOPPING=1");
        return sd_event_exit(m->event, 0);
}

#define LOCK_TRIES 100
#define LOCK_PAUSE_USEC 100000

// A helper process of a hostd that was killed dies with it, but holds the lock until the kernel lets it out of what it was doing.
static int take_lock(int fd) {
        for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
                if (errno != EWOULDBLOCK || i == LOCK_TRIES)
                        return -errno;
                (void) usleep(LOCK_PAUSE_USEC);
        }
        return 0;
}

static int open_directories(Manager *m, Error *err) {
        _cleanup_free_ char *run_instances = NULL, *lock = NULL;
        int fd, r;

        if (asprintf(&run_instances, "%s/instances", m->paths.run) < 0)
                run_instances = NULL;
        if (asprintf(&lock, "%s/lock", m->paths.run) < 0)
                lock = NULL;
        if (!run_instances || !lock)
                return error_set_errno(err, ENOMEM, "cannot start");
        r = io_mkdir_p(AT_FDCWD, m->paths.run, 0755);
        if (r >= 0)
                r = io_mkdir_p(AT_FDCWD, run_instances, 0700);
        if (r >= 0)
                r = io_mkdir_p(AT_FDCWD, m->paths.state, 0700);
        if (r < 0)
                return error_set_errno(err, r, "cannot make %s and %s", m->paths.run, m->paths.state);
        // Held until the process ends: two daemons on one state would undo each other's work.
        fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || take_lock(fd) < 0)
                return error_set(err, ERR_BUSY, "another hostd runs with %s", m->paths.run);
        m->state_fd = open(m->paths.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (m->state_fd < 0)
                return error_set_errno(err, errno, "cannot open %s", m->paths.state);
        if (fchmod(m->state_fd, 0700) < 0)
                return error_set_errno(err, errno, "cannot protect %s", m->paths.state);
        if (mkdirat(m->state_fd, "instances", 0700) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make %s/instances", m->paths.state);
        return 0;
}

static int open_stores(Manager *m, Error *err) {
        _cleanup_free_ char *db = in_state(m, "state.db"), *audit = in_state(m, "audit");
        bool audit_lost;
        int r;

        if (!db || !audit)
                return error_set_errno(err, ENOMEM, "cannot start");
        if ((r = confdir_open(m->paths.etc, &m->confdir, err)) < 0 || (r = audit_open(audit, &m->audit, err)) < 0)
                return r;
        audit_lost = r == AUDIT_LOST;
        r = store_open(db, &m->store, err);
        if (r < 0)
                return r;
        if (commits_new(m->event, m->confdir, commits_report, m, &m->commits) < 0)
                return error_set_errno(err, ENOMEM, "cannot start");
        commits_report(m, confdir_no_history(m->confdir) ? CONFDIR_NO_HISTORY : 0, NULL);
        if (audit_lost)
                manager_warn(m, "audit", "host", "records that were on disk are gone from the audit log: see \"hostctl audit verify\"");
        m->store_is_new = r != STORE_OPENED;
        if (r == STORE_REBUILT)
                manager_warn(m, "store", "host", "state.db was damaged and moved aside; it is rebuilt from the files");
        if ((r = idpool_load("/etc", &m->pool, err)) < 0)
                return r;
        manager_unwarn(m, "restart", "host");
        return manager_load(m, err);
}

static int open_kernel(Manager *m, Error *err) {
        _cleanup_error_ Error disk_err = ERROR_NULL;
        _cleanup_free_ char *before = NULL;
        int r;

        if ((r = disk_host_probe(m->state_fd, &m->disk, err)) < 0)
                return error_wrap(err, "storage");
        if ((r = cgroup_host_new("/sys/fs/cgroup", &m->cgroup, err)) < 0)
                return error_wrap(err, "cgroups");
        if (cgroup_host_set_disk(m->cgroup, m->state_fd, &disk_err) < 0)
                log_warning("io limits cannot be enforced: %s", error_message(&disk_err, -EIO));
        NetworkSettings *network = &m->desired->host.network;
        if (m->desired->host.uplink && strcmp(m->desired->host.uplink, "auto") == 0) {
                free(TAKE_PTR(network->uplink));
                (void) network_find_uplink(&network->uplink); // without a default route nothing is masqueraded
        }
        if (asprintf(&before, "%s/" SYSCTLS_BEFORE, m->paths.run) < 0) {
                before = NULL;
                return error_set_errno(err, ENOMEM, "cannot start");
        }
        if ((r = network_new(network, &m->network, err)) < 0 || (r = network_enable_forwarding(m->network, before, err)) < 0)
                return error_wrap(err, "network");
        if ((r = template_registry_new(m->state_fd, m->paths.run, &m->templates, err)) < 0)
                return error_wrap(err, "templates");
        return 0;
}

// The run directory is made before anything else of a start. Without one nothing is there to be cleaned, and what an interrupted
// cleaning left is the sweep's.
static bool was_started(const Instance *instance) {
        _cleanup_free_ char *run_dir = instance_run_dir(instance);

        return !run_dir || access(run_dir, F_OK) == 0;
}

static void adopt_all(Manager *m) {
        for (Instance *i = m->instances.first; i; i = i->next) {
                _cleanup_error_ Error err = ERROR_NULL, later = ERROR_NULL;
                int r = instance_adopt(i, &err);
                manager_unwarn(m, "adopt", i->record.name);
                manager_unwarn(m, "apply", i->record.name);
                if (r >= 0) {
                        if (i->config && instance_apply_network(i, &later) < 0)
                                manager_warn(m, "apply", i->record.name, "%s", error_message(&later, -EIO));
                        continue;
                }
                if (r == -ENOENT)
                        manager_unwarn(m, "guest-helper", i->record.name); // who said so last did not see the end
                else
                        manager_warn(m, "adopt", i->record.name, "%s", error_message(&err, r));
                if (was_started(i) && instance_clean(i, &later) < 0)
                        manager_warn(m, "clean", i->record.name, "%s", error_message(&later, -EIO));
        }
}

// The first start of hostd after a boot of the host: here the boot mode speaks.
static void note_boot(Manager *m) {
        _cleanup_free_ char *now = NULL, *before = NULL;

        if (io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &now, NULL) < 0)
                return;
        now[strcspn(now, "\n")] = 0;
        if (store_value_get(m->store, "boot_id", &before, NULL) >= 0 && strcmp(before, now) == 0)
                return;
        m->booting = store_value_set(m->store, "boot_id", now, NULL) >= 0;
}

static int listen_socket(Manager *m, Error *err) {
        int n = sd_listen_fds(0), fd, r;

        fd = n == 1 ? SD_LISTEN_FDS_START : server_listen(m->paths.socket, err);
        if (fd < 0)
                return fd;
        r = server_new(m->event, fd, request_dispatch, m, &m->server, err);
        if (r >= 0) {
                server_set_connections_max(m->server, (unsigned) m->desired->host.connections_per_uid);
                server_set_description(m->server, method_description());
        }
        return r;
}

static int audit_told(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        audit_dispatch(((Manager *) userdata)->audit);
        return 0;
}

static int watch_all(Manager *m, Error *err) {
        static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
        sigset_t mask;
        int r = 0;

        sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTS(signals); i++)
                sigaddset(&mask, signals[i]);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);
        for (size_t i = 0; i < ELEMENTS(signals) && r >= 0; i++)
                r = sd_event_add_signal(m->event, NULL, signals[i], on_signal, m);
        if (r >= 0)
                r = sd_event_add_io(m->event, &m->watch_network, network_watch_fd(m->network), EPOLLIN, network_changed, m);
        if (r >= 0)
                r = sd_event_add_io(m->event, &m->watch_audit, audit_fd(m->audit), EPOLLIN, audit_told, m);
        if (r >= 0)
                r = sd_event_add_time_relative(m->event, &m->tick, CLOCK_MONOTONIC, TICK, 0, tick, m);
        if (r >= 0)
                r = sd_event_set_watchdog(m->event, true);
        return r < 0 ? error_set_errno(err, r, "cannot watch for events") : 0;
}

int manager_new(const ManagerPaths *paths, Manager **ret, Error *err) {
        _cleanup_(manager_freep) Manager *m = calloc(1, sizeof(Manager));
        int r;

        if (!m)
                return error_set_errno(err, ENOMEM, "cannot start");
        m->state_fd = m->warm_released = -EBADF;
        m->paths.etc = strdup(paths->etc);
        m->paths.state = strdup(paths->state);
        m->paths.run = strdup(paths->run);
        m->paths.socket = strdup(paths->socket);
        m->bus = event_bus_new();
        m->systemd = sd_booted() > 0;
        if (!m->paths.etc || !m->paths.state || !m->paths.run || !m->paths.socket || !m->bus)
                return error_set_errno(err, ENOMEM, "cannot start");
        r = sd_event_default(&m->event);
        if (r < 0)
                return error_set_errno(err, r, "cannot make an event loop");
        *ret = TAKE_PTR(m);
        return 0;
}

// Before anything starts. Instances with limits of their own are better than none, so a failure is told and no more.
void manager_guard(Manager *m) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = guard_apply(m, &err);

        if (r < 0)
                manager_warn(m, "guard", "host", "%s", error_message(&err, r));
        else
                manager_unwarn(m, "guard", "host");
}

int manager_run(Manager *m, Error *err) {
        usec_t begun = clock_monotonic();
        int r;

        if ((r = open_directories(m, err)) < 0 || (r = open_stores(m, err)) < 0 || (r = open_kernel(m, err)) < 0)
                return r;
        if (m->store_is_new && (r = rebuild_store(m, err)) < 0)
                return r;
        if ((r = lifecycle_load(m, err)) < 0 || (r = command_link_new(m, err)) < 0 || (r = border_link_new(m, err)) < 0 || (r = watch_all(m, err)) < 0)
                return r;
        manager_guard(m);
        if ((r = approvals_open(m, err)) < 0) // not without: it would close what was granted
                return r;
        secrets_open(m);
        if ((r = sandbox_load(m, err)) < 0)
                return r;
        adopt_all(m);
        border_link_start(m);
        lifecycle_finish_deletions(m);
        sandbox_sweep(m);
        command_link_sweep(m);
        (void) leaks_sweep(m, NULL);
        instance_disk_purge_leftovers(m);
        note_boot(m);
        lifecycle_create_missing(m);
        if ((r = listen_socket(m, err)) < 0)
                return r;
        manager_replan(m);
        commit_hand_edits(m, "found when hostd started: changed by hand, or not committed by the hostd before");
        log_info("ready after %llu ms with %zu instances", (unsigned long long) ((clock_monotonic() - begun) / USEC_PER_MSEC), m->instances.n);
        (void) sd_notifyf(0, "READY=1\nSTATUS=%zu instances", m->instances.n);
        r = sd_event_loop(m->event);
        return r < 0 ? error_set_errno(err, r, "the event loop failed") : 0;
}

Manager *manager_free(Manager *m) {
        if (!m)
                return NULL;
        m->stopping = true;
        (void) server_free(m->server);
        m->server = NULL;
        requests_detach(m);
        jobs_cancel();
        if (m->commits)
                commits_stop(m->commits);
        sandbox_free_all(m);
        while (m->instances.first)
                (void) instance_free(m->instances.first);
        command_link_free(m);
        io_links_free(m);
        border_link_free(m);
        sandbox_network_done(m);
        requests_forget(m);
        m->bus = event_bus_free(m->bus);
        sd_event_source_disable_unref(m->watch_network);
        sd_event_source_disable_unref(m->watch_audit);
        sd_event_source_disable_unref(m->tick);
        sd_event_source_disable_unref(m->retry_network);
        sd_event_source_disable_unref(m->replan);
        sd_event_source_disable_unref(m->look_again);
        sd_event_source_disable_unref(m->warm);
        sd_event_source_disable_unref(m->trim);
        (void) close_fd(m->warm_released);
        (void) template_registry_free(m->templates);
        (void) network_free(m->network);
        (void) cgroup_host_free(m->cgroup);
        (void) desired_free(m->desired);
        m->secrets = secrets_free(m->secrets);
        m->approvals = approvals_free(m->approvals);
        (void) store_close(m->store);
        (void) audit_close(m->audit);
        (void) commits_free(m->commits);
        (void) confdir_free(m->confdir);
        (void) close_fd(m->state_fd);
        (void) sd_event_unref(m->event);
        free(m->paths.etc);
        free(m->paths.state);
        free(m->paths.run);
        free(m->paths.socket);
        free(m->config_error);
        strv_free(m->broken);
        free(m);
        return NULL;
}

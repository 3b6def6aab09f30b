// SPDX-License-Identifier: GPL-2.0-or-later
// Manager: the daemon's one object. It owns the configuration, the stores, the instances and the server, and is passed to
// every handler; there are no globals.
#pragma once

#include <stdint.h>
#include <systemd/sd-event.h>

#include "core/commits.h"
#include "core/events.h"
#include "core/instance.h"
#include "core/template.h"
#include "model/desired.h"
#include "network/network.h"
#include "quotas/admission.h"
#include "quotas/cgroup.h"
#include "quotas/disk.h"
#include "state/audit.h"
#include "state/store.h"
#include "wire/server.h"

#define SYSCTLS_BEFORE "sysctls.before" // below the run directory: what they were before hostd changed them

typedef struct ManagerPaths {
        char *etc, *state, *run; // owned; absolute
        char *socket;            // run/hostd.sock
} ManagerPaths;

typedef struct Manager {
        ManagerPaths paths;
        sd_event *event;
        Server *server;
        ConfDir *confdir;
        Store *store;
        Audit *audit;
        struct Secrets *secrets; // NULL: they cannot be opened, and a warning says why
        struct Approvals *approvals; // NULL until they were read
        Desired *desired; // in force; never NULL after start
        Network *network;
        CgroupHost *cgroup;
        DiskHost disk;
        IdPool pool;
        TemplateRegistry *templates;
        struct BorderLink *border; // NULL in tests
        struct BuildWire *builds;
        struct SandboxNetworks *sandbox_networks; // NULL: there was none yet
        struct CommandManager *commands;
        struct IoLink *io; // see io_link.h
        EventBus *bus;
        InstanceList instances;
        struct Sandbox *sandboxes; // all that are not forgotten, the newest first
        sd_event_source *watch_network, *watch_audit, *tick, *retry_network, *replan, *look_again, *warm, *trim;
        usec_t restored;   // monotonic, when the table was last brought back
        usec_t warm_until; // see warm.h
        unsigned warm_holds;
        int warm_released;
        int state_fd;
        uint64_t guard_bytes; // see guard.h; 0: not in force
        bool systemd; // PID 1 is systemd: the unit launcher is used
        bool stopping;
        bool store_is_new; // nothing in it yet: rebuilt from the files
        bool booting; // first plan after the host came up
        Commits *commits;
        struct Request *requests; // all that are not answered yet
        bool rolling_back;        // a job writes below /etc/hostd
        bool audit_failed;        // the last record could not be written
        unsigned purging;         // jobs that empty the trash
        unsigned ticks;
        uint64_t create_revision; // of the configuration whose missing instances are being made,
        size_t create_next;       // and where that goes on
        char *config_error; // why the files on disk are not in force, NULL when they are
        char **broken;     // files that were not valid when hostd started; emptied when all are
        uint64_t revision; // counts accepted configurations
} Manager;

int manager_new(const ManagerPaths *paths, Manager **ret, Error *err);
// Opens everything, adopts what runs, starts what should run, listens. Returns when sd_event_exit() was called.
int manager_run(Manager *manager, Error *err);
Manager *manager_free(Manager *manager);
DEFINE_CLEANUP(Manager, manager_free)

// The first load. What is not valid is replaced from history or left out, with a warning.
int manager_load(Manager *manager, Error *err);
// The instance's file is there, but it was not valid when hostd started and had no earlier text: it runs on as it is.
bool manager_is_unmanaged(const Manager *manager, const char *name);
// Loads the files again; an invalid one is refused and the old state stays in force. `ret_changes` (may be NULL) gets the
// readable difference; with dry_run nothing else happens.
int manager_reload(Manager *manager, bool dry_run, char ***ret_changes, Error *err);
// Writes (or, with `text` NULL, removes) one file and brings the whole set into force; a set that is refused is not written. On disk
// when this returns.
int manager_write(Manager *manager, const char *path, const char *text, Error *err);
// Runs the planner soon, from the loop.
void manager_replan(Manager *manager);
void manager_warn(Manager *manager, const char *kind, const char *entity, const char *format, ...) _printf_(4, 5);
void manager_note_audit(Manager *manager, int r, const Error *err); // of audit_append(): a warning while it cannot be written
void manager_unwarn(Manager *manager, const char *kind, const char *entity);
void manager_unwarn_kind(Manager *manager, const char *kind); // of every entity
void manager_unwarn_all(Manager *manager, const char *entity); // it is deleted
void manager_guard(Manager *manager); // the limit around all instances, as the reserve is now
Capacity manager_capacity(Manager *manager);
// What every instance was promised, without `except` (NULL: all). Caller frees.
Promise *manager_promises(Manager *manager, const char *except, size_t *ret_n);

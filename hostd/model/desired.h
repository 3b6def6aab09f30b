// SPDX-License-Identifier: GPL-2.0-or-later
// Desired: what the files under /etc/hostd ask for, parsed and checked, and nothing else.
//
// hostd.conf -> HostConfig, instances.d/NAME.conf -> InstanceConfig, policies.d/NAME.conf -> Policy, categories.d/NAME.conf -> Category
// (lines, not settings), templates.d/NAME.conf -> recipes (opaque here: only their names). A set is loaded whole: one bad file refuses it with file, line, field and reason.
// Each key is a row of a schema table (key, type, bounds, unit, default, scope, doc line); parser, writer, `set`, `unset`,
// difference, `show --expanded`, the manual and the property test walk the same rows.
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "base/clock.h"
#include "base/strv.h"
#include "network/network.h"
#include "network/policy.h"
#include "quotas/limit.h"

typedef enum BootMode { BOOT_LAST, BOOT_ON, BOOT_OFF, _BOOT_MODE_MAX, _BOOT_MODE_INVALID = -EINVAL } BootMode;
const char *boot_mode_to_string(BootMode mode);
BootMode boot_mode_from_string(const char *text);

// Where a value came from, for `show --expanded`.
typedef enum ValueSource { SOURCE_DEFAULT, SOURCE_HOST, SOURCE_PRESET, SOURCE_INSTANCE, _SOURCE_MAX } ValueSource;
const char *value_source_to_string(ValueSource source);

typedef struct Label { char *key, *value; } Label;

typedef struct InstanceConfig {
        char *name;        // owned, VALID_NAME; the file's name
        char *description; // VALID_TEXT, may be NULL
        char *template;    // VALID_TEMPLATE
        char *preset;      // small, medium, large, or NULL
        Limits limits;     // preset and defaults already folded in
        char **policies;   // names, in order
        char **allow_degraded; // the host's included
        Label *labels; // sorted by key
        size_t n_labels;
        BootMode boot;
        int64_t boot_order;  // lower starts earlier and stops later; -1000..1000
        usec_t stop_timeout; // graceful stop; then cgroup.kill
        uint64_t sandboxes; // at most, at a time
        uint64_t dns_rate, dns_burst, dns_names; // questions a second and at once; names of one zone a minute
        char **dns_types;    // VALID_DNS_TYPE, answered besides the usual ones
        bool read_only;      // root read-only, tmpfs for what must be written
        bool package_lock_only, package_no_scripts; // settings of its package clients
        char **package_registries; // of @packages only these hosts; NULL: all
        bool offline;        // of its policies' allows only those of named categories count
        ValueSource *sources; // one per row of instance_schema(), for --expanded
} InstanceConfig;

typedef struct HostConfig {
        char *uplink;          // interface or "auto"
        NetworkSettings network; // pools parsed; network.uplink is owned, NULL for "auto"
        uint64_t memory_reserve_bytes, disk_reserve_bytes; // defaults from the host's size when UINT64_MAX
        char **allow_degraded; // for every instance
        char **resolver_upstream; // at most NETWORK_UPSTREAMS_MAX addresses; NULL: the host's
        char **default_policies;
        char *default_template;
        uint64_t audit_keep_days;
        uint64_t connections_per_uid;
} HostConfig;

// hostd.conf from text ("" or NULL: all defaults). The caller owns *ret and ends it with host_config_done().
int host_config_parse(const char *text, HostConfig *ret, Error *err);
void host_config_done(HostConfig *config);

typedef struct DesiredStamp {
        ino_t ino; // 0: not to be trusted
        off_t size;
        struct timespec modified, changed;
} DesiredStamp;

typedef struct Desired {
        HostConfig host;
        InstanceConfig **instances; // sorted by name
        size_t n_instances;
        Policy **policies; // sorted by name
        DesiredStamp *stamps; // of the files of `policies`
        size_t n_policies;
        Category **categories; // sorted by name
        DesiredStamp *category_stamps;
        size_t n_categories;
        char **recipes; // names in templates.d
} Desired;

InstanceConfig *instance_config_free(InstanceConfig *config);
DEFINE_CLEANUP(InstanceConfig, instance_config_free)
Desired *desired_free(Desired *desired);
DEFINE_CLEANUP(Desired, desired_free)
InstanceConfig *desired_find_instance(const Desired *desired, const char *name); // NULL if absent; borrowed
Category *desired_find_category(const Desired *desired, const char *name);
Policy *desired_find_policy(const Desired *desired, const char *name);
// The policies of these names in their order, borrowed; the caller frees the vector.
int desired_find_policies(const Desired *desired, char *const *names, Policy ***ret, size_t *ret_n, Error *err);

// etc_fd: /etc/hostd. Missing folders are empty ones; a missing hostd.conf is all defaults. Cross-references (unknown policy)
// are errors of the file that refers. `field` and sentence: "instances.d/a.conf:7: memory: …".
int desired_load(int etc_fd, Desired **ret, Error *err);
// A file as somebody wants it, loaded in the place of the one on disk: "policies.d/web.conf", its text or, for none, NULL.
typedef struct DesiredEdit { const char *path, *text; } DesiredEdit;
// The same with an edit (may be NULL); policies and categories whose files are as they were are shared with `old` (may be NULL)
// instead of being parsed again.
int desired_reload(int etc_fd, const Desired *old, const DesiredEdit *edit, Desired **ret, Error *err);

// For a start, which a mistake in one file must not prevent: a file that is not valid is replaced by the newest earlier text of it
// that is, and counts as absent if there is none. Only a hostd.conf without a valid text refuses the whole set.
typedef struct DesiredProblem {
        char *path;   // "instances.d/a.conf"; printable
        char *reason; // as desired_load() gives it
        bool replaced;
} DesiredProblem;
typedef struct DesiredRescue {
        char *(*earlier)(void *userdata, const char *path, unsigned n); // the n-th newest; NULL: no more; the caller frees it
        void *userdata;
        DesiredProblem *problems; // result
        size_t n_problems;
} DesiredRescue;
void desired_rescue_done(DesiredRescue *rescue);
int desired_load_rescue(int etc_fd, DesiredRescue *rescue, Desired **ret, Error *err);

// One instance from text (for checks before anything is written); `host` gives defaults.
int instance_config_parse(const char *name, const char *text, const HostConfig *host, InstanceConfig **ret, Error *err);
int policy_parse(const char *name, const char *text, Policy **ret, Error *err);
char *policy_format(const Policy *policy); // libconfig text; caller frees

// Edits of a file's text that keep what they do not touch, comments too. `text` may be NULL or "" for a new file.
// Keys are schema keys ("memory", "policies", "labels.KEY"); values are text as on the command line, lists with commas.
// Unknown keys and bad values are refused with the field. value NULL removes the key ("labels": all of them). The result as a
// whole was parsed: only names that it refers to (policies, template) remain to be looked up.
int instance_text_set(const char *text, const char *key, const char *value, char **ret, Error *err);

// Rows for show/--expanded and the manual.
typedef struct SchemaRow SchemaRow;
size_t instance_schema_size(void);
const char *instance_schema_key(size_t row);
const char *instance_schema_doc(size_t row);
const char *instance_schema_default(size_t row); // text, "" for none
bool instance_schema_needs_restart(size_t row);
// Text as on the command line, "" for what is not set or unlimited; NULL on OOM; caller frees.
char *instance_config_value(const InstanceConfig *config, size_t row);
size_t host_schema_size(void);
const char *host_schema_key(size_t row);
const char *host_schema_doc(size_t row);
const char *host_schema_default(size_t row);
char *host_config_value(const HostConfig *config, size_t row);

// Differences between two sets, readable, one line each: "instance a: memory 4GiB -> 8GiB", "policy web: rule 2 added: …",
// "instance b: added". Empty vector when equal.
int desired_diff(const Desired *old, const Desired *new, char ***ret);
// Keys of instance_schema that differ, as a bit set by row.
uint64_t instance_config_diff(const InstanceConfig *a, const InstanceConfig *b);

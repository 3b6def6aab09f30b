// SPDX-License-Identifier: GPL-2.0-or-later
// Spec: what hostd tells hostd-instance about one start, as a JSON file in the instance's run directory, and what they say to
// each other afterwards. Both ends are root; the file is 0600 in a 0700 directory.
//
//   /run/hostd/instances/i0001/{spec.json, started, control (SOCK_SEQPACKET), seccomp, lxc.log, error, target}
//
// started: the spec has been used, for each is good for one start. error: why a start failed, one sentence. target: "halt", "reboot",
// "crash" or "terminated" once init is gone. Both for a hostd that comes late.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

typedef struct InstanceSpec {
        char *name;
        uint16_t slot;
        uint32_t id_base, id_count;
        char *run_dir;      // /run/hostd/instances/i0001
        char *template_dir; // where hostd mounted the erofs image
        char *root_dir;     // /var/lib/hostd/instances/NAME with upper, work, data
        char *cgroup_prefix;  // see quotas/cgroup.h; liblxc gets P/monitor and P/box/payload
        char *log_file;     // console log, bounded by liblxc
        char *apparmor_profile;  // NULL: none on this kernel (only when allowed)
        uint64_t open_files;     // RLIMIT_NOFILE, UINT64_MAX: default
        uint32_t stop_seconds;   // from SIGTERM, which is not hostd's, to the kill; 0: for ever
        bool read_only;
        bool unified_cgroup;
        bool network;        // init waits until hostd has made its interface
        bool wait_for_hello; // start nothing before hostd has connected: the limits can be written only once the unit's group exists
} InstanceSpec;
void instance_spec_done(InstanceSpec *spec);
int instance_spec_save(const InstanceSpec *spec, const char *path, Error *err);
int instance_spec_load(const char *path, InstanceSpec *ret, Error *err); // validates every string again

// Control messages: one struct per packet, fixed size, little-endian host order (same machine, same build or an older one).
#define CONTROL_VERSION 1
typedef enum ControlType {
        CONTROL_HELLO = 1, // hostd -> instance after each connect; answered by STATE and, when there is one, GUEST
        CONTROL_STATE,     // instance -> hostd: state, init_pid
        CONTROL_GUEST,     // instance -> hostd: the host end of the guest channel (SCM_RIGHTS), pid of hostd-guest; again when it was
                           // restarted; guest_pid 0 without a descriptor when it died
        CONTROL_STOP,      // hostd -> instance: ask the guest to shut down; re-sent inside until it exits; hostd kills at its deadline
        CONTROL_ERROR,     // instance -> hostd: start failed; text
        CONTROL_CONSOLE,   // hostd -> instance: three descriptors (in, out, err) of a console session; answered by CONSOLE_END
        CONTROL_CONSOLE_END,
        CONTROL_PLUG,      // instance -> hostd: init_pid is in its namespaces and goes on once it has an interface; again after each HELLO
        CONTROL_PLUGGED,   // hostd -> instance: it has
        CONTROL_REDACT,    // hostd -> instance: the descriptors of a hostd-redact (redact/proto.h), which is started; it answers on its own channel
        CONTROL_SANDBOX,   // hostd -> instance: the host end of a sandbox's channel, to be kept; text is its id. instance -> hostd: each of them after HELLO,
                           // before GUEST, then once more without a text: that was all
        CONTROL_SANDBOX_GONE, // hostd -> instance: text is the id of one that is not to be kept any more
} ControlType;
typedef enum ControlState {
        CONTROL_STATE_STARTING,
        CONTROL_STATE_RUNNING, // init runs
        CONTROL_STATE_STOPPED, // init is gone, target says how; hostd-instance exits right after
} ControlState;
typedef enum ControlTarget {
        CONTROL_TARGET_NONE,
        CONTROL_TARGET_HALT,
        CONTROL_TARGET_REBOOT,
        CONTROL_TARGET_CRASH,
        CONTROL_TARGET_TERMINATED, // a halt that a signal to hostd-instance began: systemctl, or the host's shutdown
} ControlTarget;
typedef struct ControlMessage {
        uint32_t version, type, state, target;
        int32_t init_pid, guest_pid;
        uint64_t cookie;
        char text[224]; // NUL-terminated; from root to root
} ControlMessage;

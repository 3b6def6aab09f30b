// SPDX-License-Identifier: GPL-2.0-or-later
// Doctor: what this host really enforces. Each protection is enforced, degraded or missing, with the reason and the fix.
// The same rows refuse a start: what cannot be enforced must be named in allow_degraded, of the host or of the instance.
#pragma once

#include <jansson.h>

#include "core/manager.h"

// Array of {protection, state, detail, fix}. ret_bad (may be NULL) counts what is missing and not allowed.
json_t *doctor_report(Manager *manager, unsigned *ret_bad);
// ERR_DEGRADED naming the first protection that this instance needs and this host lacks.
int doctor_check_start(Manager *manager, const InstanceConfig *config, Error *err);
// The part of it that a running instance's new limits must pass.
int doctor_check_limits(Manager *manager, const InstanceConfig *config, Error *err);
// The host's and the instance's allow_degraded together.
int doctor_allowed(Manager *manager, const InstanceConfig *config, char ***ret, Error *err);
// Name of the loaded AppArmor profile for instances, NULL where the kernel has none or it is not loaded.
const char *doctor_apparmor_profile(Manager *manager);
// What RLIMIT_NOFILE really becomes: where hostd may not raise its own hard limit (no CAP_SYS_RESOURCE), that is the most.
uint64_t doctor_open_files(uint64_t wanted);

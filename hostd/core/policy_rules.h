// SPDX-License-Identifier: GPL-2.0-or-later
// PolicyRules: what an instance's policies say of requests to the hosts of its grants, for its HAProxy. hostd-proxy has decided on name and address by
// then; what is left are methods and paths.
#pragma once

#include "core/instance.h"
#include "secret/haproxy.h"

typedef struct PolicyRules PolicyRules;
int policy_rules_new(const Instance *instance, const Binding *const *grants, size_t n_grants, PolicyRules **ret, Error *err);
PolicyRules *policy_rules_free(PolicyRules *rules);
// Valid until it is freed, and while the grants live.
const HaproxyRule *policy_rules_list(const PolicyRules *rules, size_t *ret_n);

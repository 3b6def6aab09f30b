// SPDX-License-Identifier: GPL-2.0-or-later
// BuildPolicy: what a build may reach: the hosts that the host's apt configuration names, its proxies included, each at its port, and nothing else.
//
// By name where a name is enough, which is enforced by resolver and proxy as for an instance. A name whose address, as this host looks it up, is
// in a range that is denied by default (a mirror of one's own network) gets a rule by that address in front: whoever wrote the name into
// the host's configuration named it. Never link-local ones, and never this host's own, which nobody's rule opens.
#pragma once

#include <jansson.h>

#include "network/policy.h"

// In a helper process: reads apt's configuration, and waits for the host's name servers.
int build_policy_look_up(json_t **ret, Error *err);
// Pure. `found` is what the other one returned: {"mirrors": [{"host", "port", "addresses": […]}, …], "own": [addresses of this host]}.
// `ret_text`: what may be reached, for people; the caller frees it.
int build_policy_new(const char *name, json_t *found, Policy **ret, char **ret_text, Error *err);
// Of what a template's own clients named, "HOST:PORT" each: by name alone, and without what is no name of a host. NULL where nothing is left.
#define BUILD_POLICY_NAMED "packages"
int build_policy_named(char *const *hosts, Policy **ret, Error *err);

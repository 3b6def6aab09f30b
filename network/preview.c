// SPDX-License-Identifier: GPL-2.0-or-later
// Preview: what policies say of connections from outside. hostctl expose asks; nothing of it is in the compiled list, which is about what an instance
// begins itself.
#include <string.h>

#include "network/compile.h"

static bool is_preview(const PolicyRule *rule) {
        return strcmp(rule->to, "@" POLICY_PREVIEW) == 0;
}

static bool matches(const PolicyRule *rule, PolicyProtocol protocol, uint16_t port) {
        _cleanup_free_ PortRange *ports = NULL;
        size_t n = 0;

        if (rule->protocol != POLICY_ANY && rule->protocol != protocol)
                return false;
        if (!rule->ports)
                return true;
        if (ports_parse(rule->ports, &ports, &n) < 0)
                return rule->action == POLICY_DENY; // no memory: nothing is opened by that
        for (size_t i = 0; i < n; i++)
                if (port >= ports[i].first && port <= ports[i].last)
                        return true;
        return false;
}

bool policy_may_expose(Policy *const *policies, size_t n, PolicyProtocol protocol, uint16_t port) {
        bool any = false;

        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < policies[i]->n_rules; k++) {
                        const PolicyRule *rule = &policies[i]->rules[k];
                        if (!is_preview(rule))
                                continue;
                        if (matches(rule, protocol, port))
                                return rule->action == POLICY_ALLOW;
                        any = true;
                }
        return !any;
}

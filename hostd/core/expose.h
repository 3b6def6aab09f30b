// SPDX-License-Identifier: GPL-2.0-or-later
// Expose: ports of the host that lead into instances. The store remembers them, the kernel carries and ends them.
#pragma once

#include "core/manager.h"

typedef struct ExposeAsk {
        uint8_t protocol;       // IPPROTO_TCP or IPPROTO_UDP
        uint16_t port, as;      // inside, and of the host
        usec_t span;            // 0: until it is taken back
        const char *from;       // CIDR or NULL
} ExposeAsk;
// Also of an instance that does not run: then from its next start on. ERR_CONFLICT if the host or an instance has the port.
int expose_add(Instance *instance, const ExposeAsk *ask, Error *err);
// Every exposure of that port of the instance. ERR_NOT_FOUND if there is none.
int expose_remove(Instance *instance, uint8_t protocol, uint16_t port, Error *err);
json_t *expose_list(Manager *manager, const char *name); // NULL: of all instances

void expose_review(Instance *instance); // takes back what its policies do not allow any more
int expose_resume(Instance *instance, Error *err); // its slot is attached
// Before its name is free, and before it is another's: what is left would lead to the next one of this name.
int expose_forget(Instance *instance, Error *err);
void expose_expire(Manager *manager);              // tells of what has ended

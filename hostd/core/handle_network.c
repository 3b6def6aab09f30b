// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, network: an instance's wire, cut and given back.
#include "core/handle.h"

static void cut(Request *request, bool cut) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        r = instance_network_cut(instance, cut, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

void handle_network_cut(Request *request) {
        cut(request, true);
}

void handle_network_restore(Request *request) {
        cut(request, false);
}

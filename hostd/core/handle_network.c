// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, network: an instance's wire, cut and given back, and the ports of the host that lead to it.
#include "core/expose.h"
#include "core/handle_file.h"

#include <netinet/in.h>
#include <string.h>

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

// What was asked for goes beside what the guest says that clients would do.
void handle_network_packages(Request *request) {
        const Instance *instance = request_instance(request);
        const InstanceConfig *config = instance ? instance->config : NULL;

        if (!instance)
                return;
        request_reply(request, json_pack("{s:b, s:b}", "lock_only", config && config->package_lock_only, "no_scripts", config && config->package_no_scripts));
        request_enter(request, GUEST_PACKAGES);
}

static uint8_t protocol_of(const Request *request) {
        return strcmp(request_string(request, "protocol") ?: "tcp", "udp") == 0 ? IPPROTO_UDP : IPPROTO_TCP;
}

void handle_expose(Request *request) {
        Instance *instance = request_instance(request);
        uint16_t port = (uint16_t) request_int(request, "port", 0);
        ExposeAsk ask = {.protocol = protocol_of(request), .port = port, .as = (uint16_t) request_int(request, "as", port),
                         .span = (usec_t) request_int(request, "for", 0), .from = request_string(request, "from")};
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        r = expose_add(instance, &ask, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

void handle_unexpose(Request *request) {
        Instance *instance = request_instance(request);
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!instance)
                return;
        r = expose_remove(instance, protocol_of(request), (uint16_t) request_int(request, "port", 0), &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

void handle_exposed(Request *request) {
        request_reply(request, json_pack("{s:o}", "ports", expose_list(request->manager, request_string(request, "name"))));
}

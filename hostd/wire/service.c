// SPDX-License-Identifier: GPL-2.0-or-later
// Service: org.varlink.service, which every Varlink server answers, and the answer to methods that do not exist.
#include <string.h>

#include "wire/connection.h"

static const char service_text[] =
        "# The Varlink Service Interface is provided by every varlink service. It describes the service and the interfaces it "
        "implements.\n"
        "interface org.varlink.service\n"
        "\n"
        "method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)\n"
        "method GetInterfaceDescription(interface: string) -> (description: string)\n"
        "\n"
        "error InterfaceNotFound (interface: string)\n"
        "error MethodNotFound (method: string)\n"
        "error MethodNotImplemented (method: string)\n"
        "error InvalidParameter (parameter: string)\n"
        "error PermissionDenied ()\n"
        "error ExpectedMore ()\n";

static void service_get_info(Server *server, Call *call) {
        const ServerDescription *d = server->description;
        json_t *interfaces = json_pack("[s]", "org.varlink.service");

        for (const char *const *i = d ? d->interfaces : NULL; i && *i; i++)
                (void) json_array_append_new(interfaces, json_string(*i));
        call_reply(call, json_pack("{s:s, s:s, s:s, s:s, s:o}", "vendor", d ? d->vendor : "hostd", "product",
                                   d ? d->product : "hostd", "version", d ? d->version : "", "url", d ? d->url : "",
                                   "interfaces", interfaces));
}

static void service_get_description(Server *server, Call *call) {
        const json_t *value = json_object_get(call->parameters, "interface");
        const char *interface = json_string_value(value);
        _cleanup_free_ char *text = NULL;

        if (!interface || json_object_size(call->parameters) != 1) {
                call_error_name(call, "org.varlink.service.InvalidParameter", json_pack("{s:s}", "parameter", "interface"));
                return;
        }
        if (strcmp(interface, "org.varlink.service") == 0)
                text = strdup(service_text);
        else if (server->description && server->description->describe)
                text = server->description->describe(interface);
        if (text)
                call_reply(call, json_pack("{s:s}", "description", text));
        else
                call_error_name(call, "org.varlink.service.InterfaceNotFound", json_pack("{s:O}", "interface", value));
}

static const struct {
        const char *name;
        void (*answer)(Server *server, Call *call);
} service_methods[] = {
        {"org.varlink.service.GetInfo", service_get_info},
        {"org.varlink.service.GetInterfaceDescription", service_get_description},
};

bool service_dispatch(Server *server, Call *call) {
        const ServerDescription *d = server->description;

        for (size_t i = 0; i < ELEMENTS(service_methods); i++)
                if (strcmp(call->method, service_methods[i].name) == 0) {
                        service_methods[i].answer(server, call);
                        return true;
                }
        if (strncmp(call->method, "org.varlink.service.", 20) != 0 && !(d && d->has_method && !d->has_method(call->method)))
                return false;
        call_error_name(call, "org.varlink.service.MethodNotFound", json_pack("{s:s}", "method", call->method));
        return true;
}

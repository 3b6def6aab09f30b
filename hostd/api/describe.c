// SPDX-License-Identifier: GPL-2.0-or-later
// Describe: the table as Varlink interface descriptions, so that varlinkctl and others can read what there is.
#include <string.h>

#include "api/method.h"

// Errors live in the interface all others are below.
static const char *const describe_interfaces[] = {
        "io.hostd",          "io.hostd.Instance", "io.hostd.Command", "io.hostd.File",  "io.hostd.Template", "io.hostd.Config",
        "io.hostd.Policy", "io.hostd.Secret",   "io.hostd.Sandbox",   "io.hostd.Network",  "io.hostd.Host",    "io.hostd.Events", "io.hostd.Approval", "io.hostd.Audit",   "io.hostd.Warning",
        NULL,
};

static const char *const describe_types[] = {
        [PARAM_STRING] = "string", [PARAM_STRINGS] = "[]string", [PARAM_INT] = "int",           [PARAM_SIZE] = "int",
        [PARAM_SPAN] = "int",      [PARAM_BOOL] = "bool",        [PARAM_PAIRS] = "[string]string",
};

const char *method_access_name(Access access) {
        static const char *const names[_ACCESS_MAX] = {"none", "view", "operate", "admin"};

        return access >= 0 && access < _ACCESS_MAX ? names[access] : "unknown";
}

static bool describe_is_in(const Method *method, const char *interface) {
        size_t n = strlen(interface);

        return strncmp(method->name, interface, n) == 0 && method->name[n] == '.' && !strchr(method->name + n + 1, '.');
}

static void describe_method(FILE *f, const Method *method) {
        const char *comma = "";

        fprintf(f, "\n# %s\n", method->doc);
        for (const Param *p = method->params; p->name; p++)
                if (!(p->flags & PARAM_LOCAL))
                        fprintf(f, "# %s: %s\n", p->name, p->doc);
        fprintf(f, "method %s(", strrchr(method->name, '.') + 1);
        for (const Param *p = method->params; p->name; p++) {
                if (p->flags & PARAM_LOCAL)
                        continue;
                fprintf(f, "%s%s: %s%s", comma, p->name, p->flags & PARAM_REQUIRED ? "" : "?", describe_types[p->type]);
                comma = ", ";
        }
        if (method->list)
                fprintf(f, ") -> (%s: []object)\n", method->list);
        else
                fputs(") -> ()\n", f);
}

static void describe_errors(FILE *f) {
        for (int i = ERR_NONE + 1; i < _ERR_MAX; i++)
                fprintf(f, "\nerror %s(message: string, field: ?string)\n", error_code_info(i)->name);
}

static bool describe_known(const char *interface) {
        for (const char *const *i = describe_interfaces; *i; i++)
                if (strcmp(*i, interface) == 0)
                        return true;
        return false;
}

static char *describe(const char *interface) {
        char *text = NULL;
        size_t size;
        FILE *f;

        if (!describe_known(interface))
                return NULL;
        f = open_memstream(&text, &size);
        if (!f)
                return NULL;
        fprintf(f, "# hostd turns a server into instances for agents\ninterface %s\n", interface);
        for (int i = 0; i < _METHOD_MAX; i++)
                if (describe_is_in(method_get(i), interface))
                        describe_method(f, method_get(i));
        if (strcmp(interface, "io.hostd") == 0)
                describe_errors(f);
        if (fclose(f) != 0) {
                free(text);
                return NULL;
        }
        return text;
}

static bool describe_has_method(const char *name) {
        return method_from_name(name) >= 0;
}

const ServerDescription *method_description(void) {
        static const ServerDescription description = {
                .vendor = "hostd", .product = "hostd", .version = PACKAGE_VERSION, .url = "",
                .interfaces = describe_interfaces, .describe = describe, .has_method = describe_has_method,
        };

        return &description;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Flows and why: what an instance reached for, from the lines that hostd-flow writes into our pipe, newest first and at last one that
// says that this was all.
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "base/valid.h"
#include "cli/cli.h"
#include "cli/output.h"

#define LINE_MAX_BYTES 65536 // hostd-flow's are far shorter

typedef struct FlowList {
        json_t *rows; // owned, newest first
        bool whole;
        json_int_t unreadable;
        OutputFormat format;
        Column *columns; // owned
} FlowList;

static void flow_list_done(FlowList *list) {
        json_decref(list->rows);
        free(list->columns);
}

// "example.org:443", "192.0.2.1:53", "[2001:db8::1]:22": for tables.
static void put_to(json_t *row) {
        const char *name = json_string_value(json_object_get(row, "name")), *address = json_string_value(json_object_get(row, "address"));
        json_int_t port = json_integer_value(json_object_get(row, "port"));
        const char *what = name ?: address ?: "-";
        bool six = !name && address && strchr(address, ':');
        char port_text[32] = "";
        _cleanup_free_ char *to = NULL;

        if (port > 0)
                (void) snprintf(port_text, sizeof(port_text), ":%lld", (long long) port);
        if (asprintf(&to, "%s%s%s%s", six && port > 0 ? "[" : "", what, six && port > 0 ? "]" : "", port_text) < 0)
                to = NULL;
        (void) json_object_set_new(row, "to", json_string(to ?: what));
}

static void put_by(json_t *row) {
        const char *policy = json_string_value(json_object_get(row, "policy"));
        json_int_t rule = json_integer_value(json_object_get(row, "rule"));
        _cleanup_free_ char *by = NULL;

        if (policy && asprintf(&by, "%s rule %lld", policy, (long long) rule) < 0)
                by = NULL;
        (void) json_object_set_new(row, "by", by ? json_string(by) : json_null());
}

static void add_line(FlowList *list, const char *line, size_t size) {
        json_t *row = json_loadb(line, size, 0, NULL);

        if (!json_is_object(row)) {
                list->unreadable++;
                json_decref(row);
        } else if (json_is_true(json_object_get(row, "end"))) {
                list->whole = true;
                list->unreadable += json_integer_value(json_object_get(row, "torn"));
                json_decref(row);
        } else {
                put_to(row);
                put_by(row);
                (void) json_array_append_new(list->rows, row);
        }
}

static int read_lines(int fd, FlowList *list, Error *err) {
        _cleanup_(fclosep) FILE *f = fdopen(fd, "re");
        _cleanup_free_ char *line = NULL;
        size_t room = 0;
        ssize_t n;

        if (!f) {
                (void) close(fd);
                return error_set_errno(err, errno, "cannot read the list");
        }
        while ((n = getline(&line, &room, f)) > 0) {
                if (n > LINE_MAX_BYTES)
                        return error_set(err, ERR_INTERNAL, "hostd-flow sent a line that is too long");
                add_line(list, line, (size_t) n);
        }
        return 0;
}

static int list_read(Cli *cli, const Args *args, FlowList *list, Error *err) {
        _cleanup_error_ Error local_err = ERROR_NULL;
        int fd, local, r = cli_send_pipe(cli, args->method, args->parameters, false, &fd, err);

        list->rows = json_array();
        if (r < 0)
                return r;
        local = read_lines(fd, list, &local_err);
        r = cli_receive(cli, local, &local_err, NULL, err);
        if (r < 0)
                return r;
        return list->whole ? 0 : error_set(err, ERR_INTERNAL, "the list of flows is not whole");
}

// What is asked for, and in which form it is wanted.
static int list_get(Cli *cli, const Args *args, FlowList *list, Error *err) {
        int r = output_format_parse(args->method, args->local, &list->format, err);

        if (r >= 0)
                r = output_columns(args->method->columns, args_local_string(args, "columns"), &list->columns, err);
        return r < 0 ? r : list_read(cli, args, list, err);
}

static void warn_unreadable(const FlowList *list) {
        if (list->unreadable > 0)
                cli_complain("%lld lines of the log could not be read and are left out", (long long) list->unreadable);
}

static json_t *reversed(const json_t *rows) {
        json_t *array = json_array();

        for (size_t i = json_array_size(rows); i-- > 0;)
                (void) json_array_append(array, json_array_get(rows, i));
        return array;
}

// In JSON a flow is what hostd-flow said of it, no more.
static void print_flows_json(json_t *rows, json_int_t unreadable) {
        json_t *reply = json_pack("{s:O, s:I}", "flows", rows, "unreadable", unreadable), *row;
        size_t i;

        json_array_foreach(rows, i, row) {
                (void) json_object_del(row, "to");
                (void) json_object_del(row, "by");
        }
        output_json(stdout, reply);
        json_decref(reply);
}

int command_flows(Cli *cli, Args *args) {
        _cleanup_(flow_list_done) FlowList list = {0};
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *rows;
        int r = list_get(cli, args, &list, &err);

        if (r < 0)
                return cli_fail(&err, r);
        rows = reversed(list.rows);
        if (list.format == OUTPUT_JSON)
                print_flows_json(rows, list.unreadable);
        else if (json_array_size(rows) > 0 || list.format == OUTPUT_CSV)
                output_rows(stdout, list.format, list.columns, rows);
        json_decref(rows);
        if (list.format != OUTPUT_JSON)
                warn_unreadable(&list);
        return 0;
}

// ---- why

static const char *valid_or_null(ValidKind kind, const char *text) {
        return text && valid_is(kind, text) ? text : NULL;
}

// A denied question of the DNS is of a type: "A: denied: …". Of an address, the name is what a rule would allow.
static bool is_denied(const char *reason) {
        static const char *const types[] = {"", "A: ", "AAAA: "};

        for (size_t i = 0; reason && i < ELEMENTS(types); i++)
                if (strncmp(reason, types[i], strlen(types[i])) == 0 && strncmp(reason + strlen(types[i]), "denied", 6) == 0)
                        return true;
        return false;
}

// The rule that would let it pass, or NULL: nothing that a rule could change. A sentence of the policy's code begins with "denied". It is
// shown to be pasted into a shell, and what it is made of came from a guest: no name and no address, no rule.
static char *rule_for(const json_t *row) {
        const char *said = json_string_value(json_object_get(row, "name")), *name = valid_or_null(VALID_HOST, said);
        const char *address = valid_or_null(VALID_CIDR, json_string_value(json_object_get(row, "address")));
        const char *protocol = json_string_value(json_object_get(row, "protocol")), *reason = json_string_value(json_object_get(row, "reason"));
        const char *kind = json_string_value(json_object_get(row, "kind"));
        json_int_t port = json_integer_value(json_object_get(row, "port"));
        char port_text[32] = "";
        char *rule;

        if (!is_denied(reason) || (said && !name) || (!name && (!address || strchr(address, '/'))))
                return NULL;
        if (kind && strcmp(kind, "dns") == 0)
                return name && asprintf(&rule, "allow %s", name) >= 0 ? rule : NULL; // what is to be done with the name is not known yet
        if (protocol && strcmp(protocol, "tcp") != 0 && strcmp(protocol, "udp") != 0 && strcmp(protocol, "icmp") != 0)
                protocol = NULL;
        if (protocol && port > 0)
                (void) snprintf(port_text, sizeof(port_text), " %lld", (long long) port);
        if (asprintf(&rule, "allow %s%s%s%s%s", name ?: address, name ? "" : strchr(address, ':') ? "/128" : "/32", protocol ? " " : "", protocol ?: "",
                     port_text) < 0)
                return NULL;
        return rule;
}

static json_t *group_find(json_t *groups, const json_t *row) {
        static const char *const keys[] = {"kind", "to", "protocol", "reason", "sandbox"};
        json_t *group;
        size_t i;

        json_array_foreach(groups, i, group) {
                bool same = true;
                for (size_t k = 0; same && k < ELEMENTS(keys); k++) {
                        const json_t *a = json_object_get(group, keys[k]), *b = json_object_get(row, keys[k]);
                        same = a == b || (a && b && json_equal(a, b));
                }
                if (same)
                        return group;
        }
        return NULL;
}

// Rows come newest first, and so do the groups.
static json_t *grouped(const json_t *rows) {
        json_t *groups = json_array(), *row;
        size_t i;

        json_array_foreach(rows, i, row) {
                json_t *group = group_find(groups, row);
                _cleanup_free_ char *rule = NULL;
                if (group) {
                        (void) json_object_set_new(group, "count", json_integer(json_integer_value(json_object_get(group, "count")) + 1));
                        (void) json_object_set(group, "first", json_object_get(row, "time"));
                        continue;
                }
                rule = rule_for(row);
                group = json_copy(row);
                (void) json_object_set_new(group, "count", json_integer(1));
                (void) json_object_set(group, "first", json_object_get(row, "time"));
                (void) json_object_set(group, "last", json_object_get(row, "time"));
                (void) json_object_del(group, "time");
                (void) json_object_set_new(group, "allow", rule ? json_string(rule) : json_null());
                (void) json_array_append_new(groups, group);
        }
        return groups;
}

// The instance's policies as they are, "" if there are none; NULL: hostd knows no such instance, or does not say.
static char *policies_of(Cli *cli, const char *name) {
        const Method *method = method_get(METHOD_INSTANCE_SHOW);
        json_t *parameters = json_pack("{s:s}", "name", name), *reply = NULL;
        char *copy;

        if (cli_call(cli, method, parameters, &reply, NULL) < 0)
                reply = NULL;
        copy = reply ? strdup(json_string_value(json_object_get(reply, "policies")) ?: "") : NULL;
        json_decref(parameters);
        json_decref(reply);
        return copy;
}

// For a time only: what is asked for inside, and answered here. rule_for() has looked at the name or address.
static void print_ask(const char *name, const json_t *group) {
        const char *host = json_string_value(json_object_get(group, "name")) ?: json_string_value(json_object_get(group, "address"));
        const char *protocol = json_string_value(json_object_get(group, "protocol"));
        bool udp = protocol && strcmp(protocol, "udp") == 0, dns = strcmp(json_string_value(json_object_get(group, "kind")) ?: "", "dns") == 0;
        json_int_t port = json_integer_value(json_object_get(group, "port"));

        if (!dns && !udp && (!protocol || strcmp(protocol, "tcp") != 0))
                return;
        printf("For a time only, if it is asked for inside:\n  /run/hostd/hostd-guest ask net %s%s%s:%lld%s --reason WHY\nand then here, with the number that \"hostctl approvals %s\" shows:\n"
               "  hostctl approve ID --for 10m\n",
               strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "", dns || port == 0 ? 443LL : (long long) port, udp && !dns ? " --protocol udp" : "", name);
}

// Nobody writes the policy of a build: it is made of apt's configuration. Names of services ("_http._tcp.NAME") are no hosts.
static void print_build(const json_t *groups) {
        json_t *group;
        size_t i;

        json_array_foreach(groups, i, group) {
                const char *host = valid_or_null(VALID_HOST, json_string_value(json_object_get(group, "name")));
                if (!host || host[0] == '_')
                        continue;
                printf("\nThe build of a template reaches what this host's apt configuration names. Another host is named in a file of /etc/apt/apt.conf.d:\n"
                       "  Acquire::http::Proxy::%s \"DIRECT\";\n", host);
                return;
        }
}

// Of the newest that a rule could change.
static void print_command(Cli *cli, const char *name, const json_t *groups) {
        const char *rule = NULL;
        json_t *group, *newest = NULL;
        size_t i;

        if (strncmp(name, "build-", 6) == 0) {
                _cleanup_free_ char *policies = policies_of(cli, name);
                if (!policies) { // and no instance of that name
                        print_build(groups);
                        return;
                }
        }
        json_array_foreach(groups, i, group) // a sandbox may have policies of its own, and nobody to ask
                if (!rule && !json_object_get(group, "sandbox") && (rule = json_string_value(json_object_get(group, "allow"))))
                        newest = group;
        if (!rule)
                return;
        _cleanup_free_ char *policies = policies_of(cli, name);
        printf("\nTo allow the newest of these, with a policy of its own in front of the others:\n"
               "  hostctl policy set %s-more '%s'\n  hostctl set %s policies=%s-more%s%s\n",
               name, rule, name, name, policies && *policies ? "," : "", policies ?: "");
        print_ask(name, newest);
}

int command_why(Cli *cli, Args *args) {
        _cleanup_(flow_list_done) FlowList list = {0};
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *groups;
        int r = list_get(cli, args, &list, &err);

        if (r < 0)
                return cli_fail(&err, r);
        groups = grouped(list.rows);
        if (list.format == OUTPUT_JSON)
                output_json(stdout, groups);
        else if (json_array_size(groups) > 0 || list.format == OUTPUT_CSV)
                output_rows(stdout, list.format, list.columns, groups);
        else
                puts("Nothing was denied.");
        if (list.format == OUTPUT_TABLE)
                print_command(cli, json_string_value(json_object_get(args->parameters, "name")), groups);
        json_decref(groups);
        if (list.format != OUTPUT_JSON)
                warn_unreadable(&list);
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Run: what most commands do: one call, or one for each name, and the reply as the row says.
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "base/valid.h"
#include "cli/cli.h"
#include "cli/output.h"

void cli_complain(const char *format, ...) {
        _cleanup_free_ char *text = NULL, *shown = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        shown = text ? valid_printable(text) : NULL;
        (void) fflush(stdout);
        fprintf(stderr, "hostctl: %s\n", shown ?: "out of memory");
}

int cli_fail(const Error *err, int r) {
        ErrorCode code = err && err->code != ERR_NONE ? err->code : error_code_from_errno(r);

        cli_complain("%s", error_message(err, r));
        return error_code_info(code)->exit_status;
}

int cli_connect(Cli *cli, Error *err) {
        return cli->client ? 0 : client_connect(cli->socket, &cli->client, err);
}

int cli_call(Cli *cli, const Method *method, json_t *parameters, json_t **ret, Error *err) {
        int r = method_check(method, parameters, err);

        if (r >= 0)
                r = cli_connect(cli, err);
        return r < 0 ? r : client_call(cli->client, method->name, parameters, ret, err);
}

int cli_send_pipe(Cli *cli, const Method *method, json_t *parameters, bool writes, int *ret_fd, Error *err) {
        int p[2], r = method_check(method, parameters, err);

        if (r >= 0)
                r = cli_connect(cli, err);
        if (r >= 0 && pipe2(p, O_CLOEXEC) < 0)
                r = error_set_errno(err, errno, "cannot make a pipe");
        if (r < 0)
                return r;
        r = client_send(cli->client, method->name, parameters, false, &p[!writes], 1, err);
        (void) close_fd(p[!writes]);
        if (r < 0)
                (void) close_fd(p[writes]);
        else
                *ret_fd = p[writes];
        return r;
}

int cli_receive(Cli *cli, int local, Error *local_err, json_t **ret, Error *err) {
        json_t *reply = NULL;
        int r = client_receive(cli->client, &reply, err);

        if (r >= 0 && local < 0) {
                error_move(err, local_err);
                r = local;
        }
        if (r >= 0 && ret)
                *ret = reply;
        else
                json_decref(reply);
        return r;
}

static int run_one(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_free_ Column *columns = NULL;
        json_t *reply = NULL;
        OutputFormat format;
        int r = output_format_parse(args->method, args->local, &format, &err);

        // A wrong column is said before anything is done.
        if (r >= 0 && args->method->list)
                r = output_columns(args->method->columns, args_local_string(args, "columns"), &columns, &err);
        if (r >= 0)
                r = cli_call(cli, args->method, args->parameters, &reply, &err);
        // Silence is success for what changes something and has nothing to tell.
        if (r >= 0 && (json_object_size(reply) > 0 || args->method->list))
                r = output_reply(stdout, args->method, args->local, reply, &err);
        json_decref(reply);
        return r < 0 ? cli_fail(&err, r) : 0;
}

static int names_all(Cli *cli, Args *args, Error *err) {
        const Method *list = method_get(METHOD_INSTANCE_LIST);
        json_t *reply = NULL, *none = json_object(), *row;
        size_t i;
        int r = cli_call(cli, list, none, &reply, err);

        json_decref(none);
        if (r < 0)
                return r;
        json_array_foreach(json_object_get(reply, list->list), i, row) {
                const char *name = json_string_value(json_object_get(row, "name"));
                if (name && strv_append(&args->names, name) < 0)
                        r = error_set_errno(err, ENOMEM, "--all");
        }
        json_decref(reply);
        return r;
}

int cli_run_method(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        SpecialFn run = special_find(args->method) ?: run_one;
        int first = 0, r;

        if (!args->many)
                return run(cli, args);
        if (args->all) {
                r = names_all(cli, args, &err);
                if (r < 0)
                        return cli_fail(&err, r);
        }
        // One call each: a failure of one does not keep the others from their turn.
        for (char **name = args->names; name && *name; name++) {
                (void) json_object_set_new(args->parameters, args->many, json_string(*name));
                int status = run(cli, args);
                first = first ?: status;
        }
        return first;
}

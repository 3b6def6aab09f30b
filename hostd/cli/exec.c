// SPDX-License-Identifier: GPL-2.0-or-later
// Exec: `exec`, also in the background, `shell`, `console` and `command wait`.
#include "cli/session.h"

#define CONSOLE_ESCAPE 0x1d // ^]

// Just the id, for scripts.
static int print_id(Cli *cli, const Method *method, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL;
        int r = cli_call(cli, method, args->parameters, &reply, &err);

        if (r >= 0)
                printf("%s\n", json_string_value(json_object_get(reply, "id")) ?: "");
        json_decref(reply);
        return r < 0 ? cli_fail(&err, r) : 0;
}

// In the background: nothing of what a terminal or a login is for.
int command_start(Cli *cli, Args *args) {
        json_t *sandbox = json_object_get(args->parameters, "id"); // of `sandbox exec --detach`

        if (sandbox) {
                (void) json_object_set(args->parameters, "name", sandbox);
                (void) json_object_del(args->parameters, "id");
        }
        return print_id(cli, method_get(METHOD_COMMAND_START), args);
}

int command_sandbox_create(Cli *cli, Args *args) {
        return print_id(cli, args->method, args);
}

int command_exec(Cli *cli, Args *args) {
        SessionOptions options = {.escape = -1};

        if (args_local_bool(args, "detach"))
                return command_start(cli, args);
        options.tty = json_is_true(json_object_get(args->parameters, "tty")) || (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
        if (options.tty)
                (void) json_object_set_new(args->parameters, "tty", json_true());
        return session_run(cli, args->method, args->parameters, &options);
}

int command_shell(Cli *cli, Args *args) {
        SessionOptions options = {.tty = true, .escape = -1};

        (void) json_object_set_new(args->parameters, "tty", json_true());
        return session_run(cli, args->method, args->parameters, &options);
}

int command_console(Cli *cli, Args *args) {
        SessionOptions options = {.tty = true, .console = true, .escape = CONSOLE_ESCAPE};

        if (isatty(STDERR_FILENO))
                fputs("Connected; ^] ends it.\r\n", stderr);
        return session_run(cli, args->method, args->parameters, &options);
}

int command_wait(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL;
        int r = method_check(args->method, args->parameters, &err), status;

        if (r >= 0)
                r = cli_connect(cli, &err);
        if (r >= 0)
                r = client_send(cli->client, args->method->name, args->parameters, true, NULL, 0, &err);
        while (r >= 0 && (r = client_receive(cli->client, &reply, &err)) == 1)
                json_decref(reply);
        if (r < 0) {
                (void) cli_fail(&err, r);
                return SESSION_EXIT_OURS;
        }
        status = session_exit_status(reply);
        json_decref(reply);
        return status;
}

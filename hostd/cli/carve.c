// SPDX-License-Identifier: GPL-2.0-or-later
// Carve: shows the plan, asks, and only then has it written.
#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"

static bool carve_ask(void) {
        char answer[16] = "";

        fputs("Create these instances? [y/N] ", stderr);
        return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int command_carve(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        bool yes = args_local_bool(args, "yes") || json_is_true(json_object_get(args->parameters, "write"));
        json_t *plan = NULL, *done = NULL;
        int r;

        (void) json_object_del(args->parameters, "write");
        r = cli_call(cli, args->method, args->parameters, &plan, &err);
        if (r >= 0)
                r = output_reply(stdout, args->method, args->local, plan, &err);
        json_decref(plan);
        if (r < 0)
                return cli_fail(&err, r);
        (void) fflush(stdout);
        if (!yes && !isatty(STDIN_FILENO)) {
                fputs("This is only the plan; --yes creates the instances.\n", stderr);
                return 0;
        }
        if (!yes && !carve_ask()) {
                fputs("Nothing was changed.\n", stderr);
                return 1;
        }
        (void) json_object_set_new(args->parameters, "write", json_true());
        r = cli_call(cli, args->method, args->parameters, &done, &err);
        if (r < 0)
                return cli_fail(&err, r);
        fprintf(stderr, "Created %zu instances.\n", json_array_size(json_object_get(done, args->method->list)));
        json_decref(done);
        return 0;
}

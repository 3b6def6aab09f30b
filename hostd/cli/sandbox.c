// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox: `sandbox create`, which prints just the id, for scripts. `sandbox exec` is a session as `exec` is.
#include <stdio.h>

#include "cli/cli.h"

int command_sandbox_create(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL;
        int r = cli_call(cli, args->method, args->parameters, &reply, &err);

        if (r < 0)
                return cli_fail(&err, r);
        printf("%s\n", json_string_value(json_object_get(reply, "id")) ?: "");
        json_decref(reply);
        return 0;
}

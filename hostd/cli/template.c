// SPDX-License-Identifier: GPL-2.0-or-later
// Template: `template build` and `import`, which take long and say how far they are: a bar on a terminal, lines otherwise.
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/valid.h"
#include "cli/cli.h"
#include "cli/output.h"

#define BAR_WIDTH 24

static void progress_bar(int percent, const char *line) {
        struct winsize size = {.ws_col = 80};
        int filled, room;

        (void) ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
        percent = percent < 0 ? 0 : MIN2(percent, 100);
        filled = percent * BAR_WIDTH / 100;
        room = MAX2((int) size.ws_col - BAR_WIDTH - 9, 0);
        fputs("\r[", stderr);
        for (int i = 0; i < BAR_WIDTH; i++)
                fputc(i < filled ? '#' : '.', stderr);
        fprintf(stderr, "] %3d%% %.*s\033[K", percent, room, line);
}

static void progress(const json_t *reply) {
        static int percent;
        const char *text = json_string_value(json_object_get(reply, "line")) ?: "";
        const json_t *number = json_object_get(reply, "percent");
        _cleanup_free_ char *line = valid_printable(text);

        if (json_is_number(number))
                percent = (int) json_number_value(number);
        if (isatty(STDERR_FILENO))
                progress_bar(percent, line ?: "");
        else if (line && *line)
                fprintf(stderr, "%3d%% %s\n", percent, line);
}

static int template_wait(Cli *cli, Args *args, const int *fds, size_t n_fds) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL;
        int r = method_check(args->method, args->parameters, &err);

        if (r >= 0)
                r = cli_connect(cli, &err);
        if (r >= 0)
                r = client_send(cli->client, args->method->name, args->parameters, true, fds, n_fds, &err);
        while (r >= 0 && (r = client_receive(cli->client, &reply, &err)) == 1) {
                progress(reply);
                json_decref(reply);
        }
        if (isatty(STDERR_FILENO))
                fputs("\r\033[K", stderr);
        if (r < 0)
                return cli_fail(&err, r);
        output_object(stdout, reply);
        json_decref(reply);
        return 0;
}

int command_template_build(Cli *cli, Args *args) {
        return template_wait(cli, args, NULL, 0);
}

int command_template_import(Cli *cli, Args *args) {
        const char *path = args_local_string(args, "path");
        bool from_stdin = strcmp(path, "-") == 0;
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_close_ int fd = from_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

        if (fd < 0)
                return cli_fail(&err, error_set_errno(&err, errno, "cannot open %s", path));
        if (isatty(fd))
                return cli_fail(&err, error_set_field(&err, "path", "a template is not read from a terminal"));
        return template_wait(cli, args, &fd, 1);
}

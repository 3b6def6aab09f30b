// SPDX-License-Identifier: GPL-2.0-or-later
// Secret: `secret set` and `rotate`. The value comes from standard input and goes on through a pipe: it is never a word of a command
// line, a variable or a file of ours.
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <termios.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/output.h"

#define VALUE_MAX 16384 // what hostd takes; also less than what a pipe holds, so that writing waits for nobody

typedef struct Typed {
        unsigned char bytes[VALUE_MAX + 2]; // a line break more than may be
        size_t n;
} Typed;

static int read_all(Typed *typed, Error *err) {
        while (typed->n < sizeof(typed->bytes)) {
                ssize_t k = read(STDIN_FILENO, typed->bytes + typed->n, sizeof(typed->bytes) - typed->n);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return error_set_errno(err, errno, "cannot read the value from standard input");
                if (k == 0)
                        break;
                typed->n += (size_t) k;
                if (isatty(STDIN_FILENO) && typed->bytes[typed->n - 1] == '\n')
                        break;
        }
        return 0;
}

// On a terminal one line is asked for and not shown.
static int read_typed(Typed *typed, Error *err) {
        struct termios before, quiet;
        int r;

        if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
                return read_all(typed, err);
        quiet = before;
        quiet.c_lflag &= ~(tcflag_t) (ECHO | ISIG); // an interrupt would leave the terminal mute
        fputs("Value: ", stderr);
        (void) tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
        r = read_all(typed, err);
        (void) tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
        fputc('\n', stderr);
        return r;
}

static int value_check(const Typed *typed, Error *err) {
        if (typed->n == 0)
                return error_set(err, ERR_INVALID, "the value is empty: it is read from standard input");
        if (typed->n > VALUE_MAX)
                return error_set(err, ERR_INVALID, "the value has more than %d bytes", VALUE_MAX);
        return 0;
}

static int send_value(Cli *cli, Args *args, const Typed *typed, json_t **ret, Error *err) {
        int p[2], r = method_check(args->method, args->parameters, err);

        if (r >= 0)
                r = cli_connect(cli, err);
        if (r < 0)
                return r;
        if (pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, errno, "cannot make a pipe");
        r = io_write_all(p[1], typed->bytes, typed->n);
        (void) close_fd(p[1]); // hostd wants the value as a whole
        if (r < 0)
                (void) error_set_errno(err, r, "cannot hand the value on");
        else
                r = client_send(cli->client, args->method->name, args->parameters, false, &p[0], 1, err);
        (void) close_fd(p[0]);
        return r < 0 ? r : client_receive(cli->client, ret, err);
}

int command_secret_value(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *reply = NULL;
        bool minted = json_object_get(args->parameters, "command") != NULL; // then there is no value of ours
        Typed typed = {.n = 0};
        int r;

        (void) prctl(PR_SET_DUMPABLE, 0); // no core file, and no reading of our memory by others of this user
        r = minted ? 0 : read_typed(&typed, &err);
        // What echo and editors put at the end of a line is seldom meant.
        if (r >= 0 && typed.n > 0 && typed.bytes[typed.n - 1] == '\n' && !args_local_bool(args, "exact"))
                typed.n--;
        if (r >= 0 && !minted)
                r = value_check(&typed, &err);
        if (r >= 0)
                r = send_value(cli, args, &typed, &reply, &err);
        explicit_bzero(&typed, sizeof(typed));
        if (r < 0)
                return cli_fail(&err, r);
        output_object(stdout, reply);
        json_decref(reply);
        return 0;
}

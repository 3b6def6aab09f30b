// SPDX-License-Identifier: GPL-2.0-or-later
// Stdio: the wire over standard input and output, for ssh. Bytes only: descriptors do not travel.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "cli/cli.h"
#include "cli/pump.h"

int command_stdio(Cli *cli, char **argv) {
        static Pump in, out; // large buffers
        _cleanup_error_ Error err = ERROR_NULL;
        int sock, r = cli_connect(cli, &err);

        if (r < 0)
                return cli_fail(&err, r);
        sock = client_fd(cli->client);
        (void) signal(SIGPIPE, SIG_IGN);
        pump_init(&in, STDIN_FILENO, false, fcntl(sock, F_DUPFD_CLOEXEC, 3), true);
        pump_init(&out, fcntl(sock, F_DUPFD_CLOEXEC, 3), true, STDOUT_FILENO, false);
        while (!pump_is_done(&out)) {
                struct pollfd fds[4];
                bool open = !pump_is_done(&in);
                pump_poll(&in, &fds[0], &fds[1]);
                pump_poll(&out, &fds[2], &fds[3]);
                if (poll(fds, 4, -1) < 0)
                        continue;
                pump_turn(&in, &fds[0], &fds[1]);
                pump_turn(&out, &fds[2], &fds[3]);
                if (open && pump_is_done(&in))
                        (void) shutdown(sock, SHUT_WR); // what was asked is still answered
        }
        pump_done(&in);
        cli->client = client_free(cli->client);
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// hostctl: a thin client of hostd. Commands, options and help come from the method table.
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>

#include "cli/cli.h"

// Descriptors 0 to 2 must exist: a pipe of ours that became 1 would be written to by every message.
static int open_standard_fds(void) {
        for (int fd = 0; fd < 3; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
                        return -EBADF;
        return 0;
}

// Buffered output that cannot be written is an error, unless the reader just had enough (`hostctl list | head`).
static int close_stdout(int status) {
        if (fflush(stdout) == 0 && !ferror(stdout))
                return status;
        if (errno != EPIPE)
                cli_complain("cannot write the output: %s", strerror(errno));
        return status ?: 1;
}

static int run_words(Cli *cli, char **argv) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_args_ Args args = {0};
        const Method *method;
        size_t used;
        int r;

        for (const LocalCommand *c = local_commands; c->word; c++)
                if (strcmp(argv[0], c->word) == 0) {
                        char *help[] = {argv[0], NULL};
                        return argv[1] && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) ? command_help(cli, help) : c->run(cli, argv + 1);
                }
        method = words_match(argv, &used);
        if (!method && !argv[1] && help_group(stderr, argv[0]))
                return CLI_EXIT_USAGE;
        if (!method)
                return command_help(cli, argv);
        r = args_parse(method, argv + used, &args, &err);
        if (r < 0)
                return cli_fail(&err, r);
        if (args.help) {
                help_method(stdout, method);
                return 0;
        }
        if (args.socket)
                cli->socket = args.socket;
        r = cli_run_method(cli, &args);
        cli->client = client_free(cli->client);
        cli->socket = NULL;
        return r;
}

// Options before the command. 1: go on with *argv.
static int main_options(Cli *cli, char ***argv, int *ret_status) {
        for (; **argv && ***argv == '-'; (*argv)++) {
                const char *word = **argv;
                if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
                        help_main(stdout);
                        return 0;
                }
                if (strcmp(word, "--version") == 0)
                        return *ret_status = command_version(cli, NULL), 0;
                if (strncmp(word, "--socket=", 9) == 0)
                        cli->socket = word + 9;
                else if (strcmp(word, "--socket") == 0 && (*argv)[1])
                        cli->socket = *++*argv;
                else {
                        cli_complain("unknown option %s; see `hostctl --help`", word);
                        *ret_status = CLI_EXIT_USAGE;
                        return 0;
                }
        }
        return 1;
}

// One system call instead of the device that jansson would open for its hash tables' seed.
static void seed_objects(void) {
        size_t seed = 0;

        (void) !getrandom(&seed, sizeof(seed), GRND_NONBLOCK);
        json_object_seed(seed); // 0: it looks for one itself
}

int main(int argc, char **argv) {
        const char *env = getenv("HOSTD_SOCKET");
        Cli cli = {.socket = env && *env ? env : CLI_SOCKET};
        int status = 0;

        if (open_standard_fds() < 0)
                return 1;
        seed_objects();
        argv += argc > 0;
        if (!main_options(&cli, &argv, &status))
                return close_stdout(status);
        if (!argv[0]) {
                help_main(stderr);
                return CLI_EXIT_USAGE;
        }
        status = run_words(&cli, argv);
        return close_stdout(status);
}

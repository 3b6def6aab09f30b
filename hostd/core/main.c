// SPDX-License-Identifier: GPL-2.0-or-later
// hostd: the daemon. This file reads the command line and nothing else.
#include <fcntl.h>
#include <getopt.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <systemd/sd-daemon.h>

#include "base/log.h"
#include "core/manager.h"
#include "core/seed.h"

static const char usage[] =
        "Usage: hostd [--check-config] [--etc-dir DIR] [--state-dir DIR] [--run-dir DIR] [--debug]\n"
        "       hostd --remove-network [--run-dir DIR] | --enable-disk-quotas [--state-dir DIR]\n\n"
        "Serves instances for agents on this host; see hostd(8).\n"
        "\n"
        "  --check-config   read the configuration, say whether it is valid, exit 0 or 2\n"
        "  --etc-dir DIR    configuration (default /etc/hostd)\n"
        "  --state-dir DIR  instances, templates, stores (default /var/lib/hostd)\n"
        "  --run-dir DIR    sockets and mounts (default /run/hostd)\n"
        "  --remove-network remove hostd's nftables table, interfaces and routing rules, and exit\n"
        "  --enable-disk-quotas\n"
        "                   switch quotas on where the file system of the state directory needs it, and exit\n"
        "  --debug          log more\n"
        "  --version\n";

typedef struct Options {
        const char *etc, *state, *run;
        bool check, debug, remove_network, enable_quotas;
} Options;

static int parse_options(int argc, char **argv, Options *options) {
        static const struct option table[] = {
                {"check-config", no_argument, NULL, 'C'}, {"etc-dir", required_argument, NULL, 'e'}, {"state-dir", required_argument, NULL, 's'},
                {"run-dir", required_argument, NULL, 'r'}, {"debug", no_argument, NULL, 'd'},        {"version", no_argument, NULL, 'V'},
                {"remove-network", no_argument, NULL, 'N'}, {"enable-disk-quotas", no_argument, NULL, 'Q'}, {"help", no_argument, NULL, 'h'},          {0},
        };
        int c;

        while ((c = getopt_long(argc, argv, "h", table, NULL)) >= 0) {
                const char **path = c == 'e' ? &options->etc : c == 's' ? &options->state : c == 'r' ? &options->run : NULL;
                if (path)
                        *path = optarg;
                else if (c == 'C')
                        options->check = true;
                else if (c == 'Q')
                        options->enable_quotas = true;
                else if (c == 'N')
                        options->remove_network = true;
                else if (c == 'd')
                        options->debug = true;
                else if (c == 'V' || c == 'h') {
                        printf("%s", c == 'V' ? "hostd " PACKAGE_VERSION "\n" : usage);
                        return 1;
                } else
                        return -EINVAL;
        }
        const char *const directories[] = {options->etc, options->state, options->run};
        for (size_t i = 0; i < ELEMENTS(directories); i++)
                if (directories[i][0] != '/') {
                        fprintf(stderr, "hostd: \"%s\" is not an absolute path\n", directories[i]);
                        return -EINVAL;
                }
        if (optind < argc) {
                fprintf(stderr, "hostd: unexpected argument \"%s\"\n", argv[optind]);
                return -EINVAL;
        }
        return 0;
}

static int check_config(const Options *options) {
        _cleanup_(desired_freep) Desired *desired = NULL;
        _cleanup_close_ int fd = open(options->etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = fd < 0 ? error_set_errno(&err, errno, "%s", options->etc) : desired_load(fd, &desired, &err);

        if (r < 0) {
                fprintf(stderr, "hostd: %s\n", error_message(&err, r));
                return 2;
        }
        printf("%s is valid: %zu instances, %zu policies\n", options->etc, desired->n_instances, desired->n_policies);
        return 0;
}

static int run(const Options *options) {
        _cleanup_(manager_freep) Manager *manager = NULL;
        _cleanup_error_ Error err = ERROR_NULL, seed = ERROR_NULL;
        _cleanup_free_ char *socket = NULL;
        ManagerPaths paths = {(char *) options->etc, (char *) options->state, (char *) options->run, NULL};
        int r;

        if (asprintf(&socket, "%s/hostd.sock", options->run) < 0) {
                socket = NULL;
                return 1;
        }
        paths.socket = socket;
        (void) umask(0077);
        if (seed_categories(options->etc, &seed) < 0) // a policy that needs one will say so
                log_warning("%s", error_message(&seed, -EIO));
        r = manager_new(&paths, &manager, &err);
        if (r >= 0)
                r = manager_run(manager, &err);
        if (r < 0) {
                log_error("%s", error_message(&err, r));
                return error_code_info(err.code)->exit_status ?: 1;
        }
        return 0;
}

static int enable_quotas(const Options *options) {
        _cleanup_close_ int fd = open(options->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = fd < 0 ? error_set_errno(&err, errno, "%s", options->state) : disk_host_enable(fd, &err);

        if (r < 0)
                fprintf(stderr, "hostd: %s\n", error_message(&err, r));
        return r < 0 ? 1 : 0;
}

static int remove_network(const Options *options) {
        _cleanup_free_ char *before = NULL;
        _cleanup_strv_ char **notes = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (asprintf(&before, "%s/" SYSCTLS_BEFORE, options->run) < 0) {
                before = NULL;
                return 1;
        }
        r = network_remove_all(before, &notes, &err);
        if (r < 0)
                fprintf(stderr, "hostd: %s\n", error_message(&err, r));
        for (char **note = notes; note && *note; note++)
                printf("%s\n", *note);
        return r < 0 ? 1 : 0;
}

// What started us may have had files open: the lock of a script would be held for as long as we live, and by what we start.
static void close_inherited(void) {
        int n = sd_listen_fds(0);

        (void) syscall(SYS_close_range, (unsigned) (SD_LISTEN_FDS_START + MAX2(n, 0)), ~0U, 0);
}

int main(int argc, char **argv) {
        Options options = {"/etc/hostd", "/var/lib/hostd", "/run/hostd", false, false, false, false};
        int r = parse_options(argc, argv, &options);

        if (r != 0)
                return r < 0 ? 2 : 0;
        if (options.debug)
                log_set_max(LOG_DEBUG);
        if (options.check)
                return check_config(&options);
        if (geteuid() != 0) {
                fprintf(stderr, "hostd: must run as root: it makes mounts, control groups and network interfaces\n");
                return 5;
        }
        if (options.enable_quotas)
                return enable_quotas(&options);
        // Whoever reads a pipe of ours may die at any time, a child or the reader of our messages: that is an error of the write.
        (void) signal(SIGPIPE, SIG_IGN);
        if (!options.remove_network)
                close_inherited();
        return options.remove_network ? remove_network(&options) : run(&options);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Clients: see clients.h. Three processes: the stage (root of the inner namespace) makes the mounts' namespace, the asker is the first process of
// a pid namespace, enters the root and gives up all rights, and each client is its child: whatever they start dies with the asker.
#include "build/clients.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/strv.h"
#include "build/client_root.h"

#define CLIENT_TIME (20 * USEC_PER_SEC)
#define CLIENT_OUTPUT ((size_t) 256 << 10)

typedef struct ClientRow {
        const char *argv[8];
        ClientScan scan;
        bool cargo, errors; // in CLIENT_PROJECT; what it says on stderr counts, too
} ClientRow;

// pip's own parser has read its configuration and environment when it gives these; what it falls back to is in its own code.
static const char pip_program[] =
        "from pip._internal.commands import create_command\n"
        "from pip._internal.models.index import PyPI\n"
        "o, _ = create_command('install').parser.parse_args([])\n"
        "print(o.index_url, *o.extra_index_urls, *o.find_links, o.proxy)\n"
        "if o.index_url.rstrip('/') == PyPI.simple_url.rstrip('/'): print('https://' + PyPI.file_storage_domain)\n";

static const ClientRow client_rows[] = {
        {{"apt-get", "indextargets", "--no-release-info", "--format", "$(URI)"}, SCAN_URLS, false, false}, // with it: only of lists that are there
        {{"apt-config", "shell", "A", "Acquire::http::Proxy", "B", "Acquire::https::Proxy"}, SCAN_URLS, false, false},
        {{"python3", "-c", pip_program}, SCAN_URLS, false, false},
        {{"npm", "config", "ls", "-l"}, SCAN_SETTINGS, false, false},
        {{"go", "env", "GOPROXY", "GOSUMDB"}, SCAN_WORDS, false, false},
        {{"cargo", "generate-lockfile"}, SCAN_QUOTED, true, true}, // without a network it says what it cannot reach
};

static char *read_fd(int fd, usec_t deadline) {
        char *text = calloc(1, CLIENT_OUTPUT + 1);
        size_t used = 0;

        while (text && used < CLIENT_OUTPUT) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                usec_t now = clock_monotonic();
                if (now >= deadline || poll(&p, 1, (int) ((deadline - now) / USEC_PER_MSEC) + 1) <= 0)
                        break;
                ssize_t n = read(fd, text + used, CLIENT_OUTPUT - used);
                if (n <= 0)
                        break;
                used += (size_t) n;
        }
        for (size_t i = 0; text && i < used; i++)
                text[i] = text[i] ?: ' ';
        return text;
}

static void become_client(const ClientRow *row, int out, char **env) __attribute__((noreturn));
static void become_client(const ClientRow *row, int out, char **env) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(row->errors ? out : null, 2) < 0 || chdir(row->cargo ? CLIENT_PROJECT : "/") < 0)
                _exit(126);
        environ = env; // its PATH is the one that is searched
        (void) execvp(row->argv[0], (char *const *) row->argv);
        _exit(127);
}

static int ask(const ClientRow *row, char **env, char ***mirrors) {
        _cleanup_free_ char *text = NULL;
        int p[2], r;
        pid_t pid;

        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid == 0)
                become_client(row, p[1], env);
        (void) close_fd(p[1]);
        text = pid > 0 ? read_fd(p[0], clock_monotonic() + CLIENT_TIME) : NULL;
        (void) close_fd(p[0]);
        if (pid < 0)
                return -EAGAIN;
        (void) kill(-1, SIGKILL); // all but this process: the first of its namespace
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                ;
        r = text ? clients_scan(row->scan, text, mirrors) : -ENOMEM;
        return r;
}

static void limit_clients(void) {
        static const struct {
                int what;
                rlim_t value;
        } limits[] = {{RLIMIT_CPU, 120}, {RLIMIT_FSIZE, (rlim_t) 64 << 20}, {RLIMIT_NOFILE, 1024}, {RLIMIT_CORE, 0}};

        for (size_t i = 0; i < ELEMENTS(limits); i++)
                (void) setrlimit((__rlimit_resource_t) limits[i].what, &(struct rlimit) {limits[i].value, limits[i].value});
}

// In the template's root, without rights. 0 or -errno.
static int ask_all(char **env, bool index_only, int out) {
        _cleanup_strv_ char **mirrors = NULL;
        int r = client_project(env, &mirrors);

        if (r >= 0 && !index_only)
                r = client_proxies(env, &mirrors);
        for (size_t i = 0; i < ELEMENTS(client_rows) && r >= 0; i++)
                if (!index_only || client_rows[i].cargo)
                        r = ask(&client_rows[i], env, &mirrors);
        if (r >= 0)
                r = client_indices(&mirrors);
        for (char **p = mirrors; r >= 0 && p && *p; p++)
                if ((r = io_write_all(out, *p, strlen(*p))) >= 0)
                        r = io_write_all(out, "\n", 1);
        return r < 0 ? r : io_write_all(out, CLIENTS_END "\n", strlen(CLIENTS_END "\n"));
}

static void asker(int root, bool index_only, int out) __attribute__((noreturn));
static void asker(int root, bool index_only, int out) {
        _cleanup_strv_ char **env = NULL;
        ClientUser user = {65534, 65534, NULL};
        int r = prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? -errno : 0;

        if (r >= 0)
                r = client_root_user(root, &user);
        if (r >= 0)
                r = client_root_enter(root, index_only);
        if (r >= 0 && (setgroups(0, NULL) < 0 || setresgid(user.gid, user.gid, user.gid) < 0 || setresuid(user.uid, user.uid, user.uid) < 0))
                r = -errno;
        // The change of ids cleared it. A client is of the same user: it must not reach `out` through this process.
        if (r >= 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0))
                r = -errno;
        limit_clients();
        if (r >= 0)
                r = client_environment(&user, CLIENT_PROJECT "/own", &env);
        if (r >= 0)
                r = ask_all(env, index_only, out);
        _exit(r < 0 ? -r & 0xff : 0);
}

int clients_ask(int root, bool index_only, int out, Error *err) {
        _cleanup_close_ int here = -EBADF;
        int status = 0;
        pid_t pid;

        // The pid namespace is of the next child. The mount namespace is this process's own from here on: of what it has open, its directory alone is
        // in there.
        if (fchdir(root) < 0 || unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
                return error_set_errno(err, errno, "cannot make namespaces for the package clients");
        here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (here < 0)
                return error_set_errno(err, errno, "cannot open the template's root");
        (void) fflush(NULL);
        pid = fork();
        if (pid < 0)
                return error_set_errno(err, errno, "cannot fork for the package clients");
        if (pid == 0)
                asker(here, index_only, out);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set_errno(err, errno, "cannot wait for the package clients");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return error_set_errno(err, WIFEXITED(status) ? WEXITSTATUS(status) : EIO, "cannot ask the package clients where they fetch from");
        return 0;
}

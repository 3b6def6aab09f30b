// SPDX-License-Identifier: GPL-2.0-or-later
// Escape: finds the attempt and runs it in a child, so that one that hangs or is killed has an outcome too.
#include "escape.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT 20
#define UNKNOWN 255

static char detail[60000];
static size_t detail_used;

void say(const char *format, ...) {
        va_list ap;

        if (detail_used + 2 >= sizeof(detail))
                return;
        if (detail_used)
                detail[detail_used++] = ' ';
        va_start(ap, format);
        int n = vsnprintf(detail + detail_used, sizeof(detail) - detail_used, format, ap);
        va_end(ap);
        detail_used += n < 0 ? 0 : (size_t) n;
        if (detail_used >= sizeof(detail))
                detail_used = sizeof(detail) - 1;
}

void door(Doors *doors, const char *name, long r) {
        int code = r < 0 ? errno : 0;

        say("%s=%s", name, code ? strerrorname_np(code) : "done");
        if (doors->result != 0 || code == 0)
                doors->result = -code;
}

static int put(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC), r;

        if (fd < 0)
                return -errno;
        r = result(write(fd, text, strlen(text)));
        close(fd);
        return r;
}

int own_userns(int namespaces) {
        char map[64];
        uid_t uid = geteuid();
        gid_t gid = getegid();

        if (unshare(CLONE_NEWUSER | namespaces) < 0)
                return -errno;
        (void) put("/proc/self/setgroups", "deny");
        snprintf(map, sizeof(map), "0 %d 1", (int) gid);
        int r = put("/proc/self/gid_map", map);
        snprintf(map, sizeof(map), "0 %d 1", (int) uid);
        return r < 0 ? r : put("/proc/self/uid_map", map);
}

int own_mounts(void) {
        int r = geteuid() == 0 ? result(unshare(CLONE_NEWNS)) : own_userns(CLONE_NEWNS);

        if (r < 0)
                return r;
        return result(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

const char *scratch_dir(void) {
        static char path[] = "/tmp/escape.XXXXXX";
        static bool made;

        if (!made && !mkdtemp(path))
                abort();
        made = true;
        return path;
}

bool read_canary(const char *path) {
        char text[128];
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

        if (fd >= 0)
                close(fd);
        if (n <= 0)
                return false;
        text[n] = 0;
        text[strcspn(text, "\n")] = 0;
        say("READ %s: %s", path, text);
        return true;
}

static const Attempt *find(const char *name) {
        static const Attempt *const tables[] = {attempts_mount, attempts_device, attempts_process, attempts_kernel, attempts_network, attempts_tree, attempts_reach};

        for (size_t i = 0; i < ELEMENTS(tables); i++)
                for (const Attempt *a = tables[i]; a->name; a++)
                        if (strcmp(a->name, name) == 0)
                                return a;
        return NULL;
}

static void report(const char *outcome) {
        for (size_t i = 0; i < detail_used; i++)
                if ((unsigned char) detail[i] < ' ' || (unsigned char) detail[i] > '~')
                        detail[i] = '?';
        printf("%s %s\n", outcome, detail);
        fflush(stdout);
}

static void nothing(int number) { (void) number; }

// The child prints its own line; a wait without an end is ended by us.
static int watch(pid_t pid) {
        struct sigaction action = {.sa_handler = nothing};
        int status;

        sigaction(SIGALRM, &action, NULL);
        alarm(TIMEOUT);
        if (waitpid(pid, &status, 0) < 0) {
                kill(pid, SIGKILL);
                report("hang");
                return 0;
        }
        if (WIFSIGNALED(status)) {
                say("by signal %d", WTERMSIG(status));
                report("killed");
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static int attempt(const char *name, const char *arg) {
        const Attempt *a = find(name);

        if (!a) {
                fprintf(stderr, "escape: no such attempt: %s\n", name);
                return UNKNOWN;
        }
        detail_used = 0;
        pid_t pid = a->stays ? 0 : fork();
        if (pid == 0) {
                int r = a->run(arg);
                report(r < 0 ? strerrorname_np(-r) : "done");
                _exit(0);
        }
        return pid < 0 ? 1 : watch(pid);
}

int main(int argc, char **argv) {
        int r = argc > 1 ? 0 : UNKNOWN;

        if (argc == 2)
                return attempt(argv[1], "");
        for (int i = 2; i < argc && r == 0; i++)
                r = attempt(argv[1], argv[i]);
        return r;
}

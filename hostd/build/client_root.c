// SPDX-License-Identifier: GPL-2.0-or-later
// ClientRoot: see client_root.h.
#include "build/client_root.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "base/strv.h"
#include "base/valid.h"
#include "build/clients.h"
#include "build/jail.h"
#include "build/root.h"

#define FIRST_UID 1000
#define ENVIRONMENT_MAX 64
#define TARGET JAIL_WORK "/tmp" // a directory of the job; what is in it is not needed any more

int client_root_user(int root, ClientUser *ret) {
        _cleanup_free_ char *text = NULL;
        char *save = NULL;

        if (root_read(root, "/etc/passwd", (size_t) 1 << 20, &text, NULL) < 0)
                return 0;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                _cleanup_strv_ char **fields = NULL;
                const char *home = strrchr(line, ':');
                unsigned uid = 0, gid = 0;
                if (sscanf(line, "%*[^:]:%*[^:]:%u:%u:", &uid, &gid) != 2 || uid != FIRST_UID || gid < 1 || gid > 65533 || !home)
                        continue;
                while (home > line && home[-1] != ':')
                        home--;
                free(ret->home);
                ret->uid = uid;
                ret->gid = gid;
                ret->home = strndup(home, strcspn(home, ":"));
                return ret->home ? 0 : -ENOMEM;
        }
        return 0;
}

// No link is followed: root_check() saw that these are directories.
static int mount_tmpfs(int root, const char *name, const char *options) {
        char path[64];
        _cleanup_close_ int fd = openat(root, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}

static int mount_devices(int root) {
        static const char *const names[] = {"null", "zero", "full", "random", "urandom"};
        int r = mount_tmpfs(root, "dev", "mode=0755,size=64k");
        _cleanup_close_ int dev = r < 0 ? -EBADF : openat(root, "dev", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (dev < 0)
                return r < 0 ? r : -errno;
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                char from[32], to[64];
                _cleanup_close_ int fd = openat(dev, names[i], O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
                (void) snprintf(from, sizeof(from), "/dev/%s", names[i]);
                (void) snprintf(to, sizeof(to), "/proc/self/fd/%d", fd);
                if (fd < 0 || mount(from, to, NULL, MS_BIND, NULL) < 0)
                        return -errno;
        }
        return 0;
}

static int mount_proc(int root) {
        _cleanup_close_ int fd = openat(root, "proc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        char path[64];

        if (fd < 0)
                return -errno;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? -errno : 0;
}

static int mount_resolver(int root) {
        _cleanup_close_ int fd = root_open(root, "/etc/resolv.conf", O_PATH | O_NOFOLLOW);
        char path[64];

        if (fd < 0)
                return fd;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return mount("/etc/resolv.conf", path, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

int client_root_enter(int root, bool network) {
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
        _cleanup_close_ int tree = -EBADF, top = -EBADF;
        int r;

        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return -errno;
        tree = (int) syscall(SYS_open_tree, root, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
            syscall(SYS_move_mount, tree, "", AT_FDCWD, TARGET, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return -errno;
        top = open(TARGET, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (top < 0)
                return -errno;
        r = mount_devices(top);
        if (r >= 0)
                r = mount_tmpfs(top, "tmp", "mode=1777,size=128m");
        if (r >= 0)
                r = mount_tmpfs(top, "run", "mode=0755,size=1m");
        if (r >= 0)
                r = mount_proc(top);
        if (r >= 0 && network)
                r = mount_resolver(top);
        if (r < 0)
                return r;
        // The job's mounts are gone with the old root: no path leads to its directory.
        if (fchdir(top) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
                return -errno;
        return 0;
}

// NAME=VALUE, the value perhaps quoted.
static int add_line(char ***env, char *line) {
        char *equals = strchr(line, '='), *value;
        size_t n;

        line += strspn(line, " \t");
        if (strncmp(line, "export ", 7) == 0)
                line += 7;
        if (!equals || equals < line)
                return 0;
        *equals = 0;
        value = equals + 1;
        value += strspn(value, "\"'");
        n = strlen(value);
        while (n > 0 && strchr("\"' \t\r", value[n - 1]))
                value[--n] = 0;
        if (!valid_is(VALID_ENV_NAME, line) || strcmp(line, "PATH") == 0 || strcmp(line, "HOME") == 0)
                return 0;
        return strv_append_format(env, "%s=%s", line, value);
}

static int add_environment(char ***env) {
        _cleanup_close_ int fd = open("/etc/environment", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        char text[16384], *save = NULL;
        ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
        int r = 0;

        text[n > 0 ? n : 0] = 0;
        for (char *line = strtok_r(text, "\n", &save); line && r >= 0 && strv_length(*env) < ENVIRONMENT_MAX; line = strtok_r(NULL, "\n", &save))
                r = add_line(env, line);
        return r;
}

const char *client_variable(char *const *env, const char *name) {
        size_t n = strlen(name);

        for (; env && *env; env++)
                if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
                        return *env + n + 1;
        return NULL;
}

int client_environment(const ClientUser *user, const char *cargo_home, char ***ret) {
        static const char *const fixed[] = {"LANG=C.UTF-8", "TMPDIR=/tmp", "npm_config_cache=/tmp/npm", "npm_config_logs_max=0", "npm_config_update_notifier=false",
                                            "CARGO_NET_RETRY=0", "CARGO_TERM_COLOR=never", "GOTOOLCHAIN=local", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PYTHONDONTWRITEBYTECODE=1"};
        const char *home = user->home && user->home[0] == '/' ? user->home : "/nonexistent", *own;
        _cleanup_strv_ char **env = NULL;
        int r = add_environment(&env);

        own = client_variable(env, "CARGO_HOME");
        if (r >= 0)
                r = own ? strv_append_format(&env, "ASK_CARGO_HOME=%s", own) : strv_append_format(&env, "ASK_CARGO_HOME=%s/.cargo", home);
        // One of a name only: which of two counts is up to who reads them.
        for (char **p = env; r >= 0 && p && *p; p++)
                if (strncmp(*p, "CARGO_HOME=", 11) == 0)
                        (*p)[0] = '_';
        if (r >= 0)
                r = strv_append_format(&env, "CARGO_HOME=%s", cargo_home);
        if (r >= 0)
                r = strv_append_format(&env, "HOME=%s", home);
        if (r >= 0)
                r = strv_append_format(&env, "PATH=%s/.cargo/bin:/usr/local/cargo/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", home);
        for (size_t i = 0; i < ELEMENTS(fixed) && r >= 0; i++)
                r = strv_append(&env, fixed[i]);
        if (r >= 0)
                *ret = TAKE_PTR(env);
        return r;
}

int client_proxies(char *const *env, char ***mirrors) {
        static const char *const names[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(names) && r >= 0; i++)
                if (client_variable(env, names[i]))
                        r = clients_scan(SCAN_URLS, client_variable(env, names[i]), mirrors);
        return r;
}

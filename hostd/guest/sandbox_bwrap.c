// SPDX-License-Identifier: GPL-2.0-or-later
// Sandbox, bwrap: bubblewrap of the instance, as root of the sandbox's user namespace. Our process 1 keeps the few capabilities by which it
// becomes the user of each command; what it starts has none.
//
// Root is made of the instance's directories, read-only, around a private tmpfs that holds all that can be written: so its size bounds them together,
// and with the sandbox all of it is gone. Places of the instance that hold other people's things are covered: homes, /run, /tmp, media,
// containers. The instance's /proc, /sys and /dev are not there at all.
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "base/strv.h"
#include "guest/sandbox.h"

#define BWRAP "/usr/bin/bwrap"
#define STAGE "/tmp" // covered in this process's mount namespace by the private tmpfs

// Directories of the private tmpfs, and where they are inside.
static const struct {
        const char *name, *place;
        mode_t mode;
        bool agents;   // belongs to the agent, else to root of the sandbox
        bool optional; // only over a directory that the instance has
} bwrap_private[] = {
        {"home", "/home", 0755, false, false}, {"root", "/root", 0700, false, false},         {"run", "/run", 0755, false, false},
        {"tmp", "/tmp", 01777, false, false},  {"vartmp", "/var/tmp", 01777, false, true},    {"mnt", "/mnt", 0755, false, false},
        {"media", "/media", 0755, false, false}, {"containers", "/var/lib/containers", 0755, false, true},
        {"spool", "/var/spool", 0755, false, true}, {"workspace", GUEST_WORKSPACE, 0755, true, false},
};

// Not taken from the instance's root.
static bool bwrap_is_covered(const char *name) {
        static const char *const names[] = {".", "..", "dev", "proc", "sys", "lost+found", "boot"};
        char path[NAME_MAX + 2];

        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (strcmp(name, names[i]) == 0)
                        return true;
        (void) snprintf(path, sizeof(path), "/%s", name);
        for (size_t i = 0; i < ELEMENTS(bwrap_private); i++)
                if (strcmp(path, bwrap_private[i].place) == 0)
                        return true;
        return false;
}

static int bwrap_add(char ***argv, const char *a, const char *b, const char *c) {
        int r = strv_append(argv, a);

        if (r >= 0 && b)
                r = strv_append(argv, b);
        if (r >= 0 && c)
                r = strv_append(argv, c);
        return r;
}

// Links and directories; files in the root, such as a kernel's, are nothing that work needs.
static int bwrap_add_entry(char ***argv, int root, const char *name) {
        char path[NAME_MAX + 2], target[PATH_MAX];
        struct stat st;
        ssize_t n;

        if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        (void) snprintf(path, sizeof(path), "/%s", name);
        if (S_ISDIR(st.st_mode))
                return bwrap_add(argv, "--ro-bind", path, path);
        if (!S_ISLNK(st.st_mode))
                return 0;
        n = readlinkat(root, name, target, sizeof(target) - 1);
        if (n < 0)
                return -errno;
        target[n] = 0;
        return bwrap_add(argv, "--symlink", target, path);
}

static int bwrap_add_root(char ***argv) {
        DIR *d = opendir("/");
        struct dirent *e;
        int r = 0;

        if (!d)
                return -errno;
        while (r >= 0 && (e = readdir(d)))
                if (!bwrap_is_covered(e->d_name))
                        r = bwrap_add_entry(argv, dirfd(d), e->d_name);
        (void) closedir(d);
        return r;
}

static int bwrap_make(const char *path, mode_t mode, uid_t owner) {
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return -errno;
        return chown(path, owner, owner) < 0 || chmod(path, mode) < 0 ? -errno : 0;
}

// The agent's home, empty, wherever it is: programs look for their settings there.
static int bwrap_make_home(char ***argv, const SandboxSpec *spec) {
        const char *home = spec->agent.home, *below = strncmp(home, "/home/", 6) == 0 ? home + 6 : NULL;
        char path[PATH_MAX];
        int r;

        if (below && *below && !strchr(below, '/') && strcmp(below, "..") != 0) {
                (void) snprintf(path, sizeof(path), STAGE "/home/%s", below);
                return bwrap_make(path, 0750, 1000);
        }
        if (strcmp(home, "/") == 0 || strcmp(home, "/root") == 0 || access(home, F_OK) < 0)
                return 0;
        r = bwrap_make(STAGE "/other", 0750, 1000);
        return r < 0 ? r : bwrap_add(argv, "--bind", STAGE "/other", home);
}

static int bwrap_add_private(char ***argv, const SandboxSpec *spec, int workspace) {
        char options[96], path[64];
        int r = 0;

        // Nothing of what follows is seen outside.
        if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
                return -errno;
        if (spec->bytes > 0)
                (void) snprintf(options, sizeof(options), "mode=0755,size=%llu", (unsigned long long) spec->bytes);
        else
                (void) snprintf(options, sizeof(options), "mode=0755");
        // Relative to where it is until then: a workspace below /tmp is open already.
        if (mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(bwrap_private) && r >= 0; i++) {
                if (bwrap_private[i].optional && access(bwrap_private[i].place, F_OK) < 0)
                        continue;
                (void) snprintf(path, sizeof(path), STAGE "/%s", bwrap_private[i].name);
                r = bwrap_make(path, bwrap_private[i].mode, bwrap_private[i].agents ? 1000 : 0);
                if (r >= 0)
                        r = bwrap_add(argv, "--bind", path, bwrap_private[i].place);
        }
        if (r >= 0)
                r = bwrap_make_home(argv, spec);
        if (r < 0 || workspace < 0)
                return r;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", workspace);
        return mount(path, STAGE "/workspace", NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

// Names are asked for at the end of its wire, as in the instance. What the instance's own file says may be a program of the instance, and it may lead to
// /run, which is another one in here.
static int bwrap_add_resolver(char ***argv) {
        static const char text[] = "nameserver 169.254.0.1\n", file[] = STAGE "/resolv.conf";
        _cleanup_free_ char *place = realpath("/etc/resolv.conf", NULL);
        int r;

        if (!place)
                return 0; // nothing in the instance says where names are asked for either
        r = io_write_atomic(AT_FDCWD, file, text, strlen(text), 0644);
        return r < 0 ? r : bwrap_add(argv, "--ro-bind", file, place);
}

// bwrap's own is a file system more, in which root could write without end, and where nobody else has shared memory: that is the private tmpfs's.
static int bwrap_add_devices(char ***argv) {
        int r = bwrap_make(STAGE "/shm", 01777, 0);

        if (r >= 0)
                r = bwrap_add(argv, "--dev", "/dev", NULL);
        if (r >= 0)
                r = bwrap_add(argv, "--bind", STAGE "/shm", "/dev/shm");
        return r < 0 ? r : bwrap_add(argv, "--remount-ro", "/dev", NULL);
}

static int bwrap_arguments(const SandboxSpec *spec, int workspace, int filter, char ***ret) {
        static const char *const first[] = {BWRAP, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup", "--unshare-net", "--as-pid-1"};
        // For a command's user: SETUID, SETGID; for its terminal: CHOWN, FOWNER; to end it: KILL; to give up the rest: SETPCAP.
        static const char *const kept[] = {"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN", "CAP_FOWNER", "CAP_SETPCAP"};
        static const char *const no_use[] = {"CAP_NET_ADMIN", "CAP_NET_RAW"}; // its network is hostd's to arrange, and this is much of the kernel
        _cleanup_strv_ char **argv = NULL;
        char number[16], program[32];
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(first) && r >= 0; i++)
                r = strv_append(&argv, first[i]);
        (void) snprintf(number, sizeof(number), "%d", filter);
        if (r >= 0)
                r = bwrap_add(&argv, "--hostname", spec->id, NULL);
        if (r >= 0)
                r = bwrap_add(&argv, "--seccomp", number, NULL);
        if (r >= 0 && !spec->root) {
                r = bwrap_add(&argv, "--cap-drop", "ALL", NULL);
                for (size_t i = 0; i < ELEMENTS(kept) && r >= 0; i++)
                        r = bwrap_add(&argv, "--cap-add", kept[i], NULL);
        }
        // Mounts of its own making could be taken away again, and what they cover would come to light.
        if (r >= 0 && spec->root)
                r = bwrap_add(&argv, "--cap-drop", "CAP_SYS_ADMIN", NULL);
        if (r >= 0 && spec->root)
                r = bwrap_add(&argv, "--cap-drop", "CAP_SYS_PTRACE", NULL); // our process 1 is not to be looked into
        for (size_t i = 0; spec->root && i < ELEMENTS(no_use) && r >= 0; i++)
                r = bwrap_add(&argv, "--cap-drop", no_use[i], NULL);
        if (r >= 0)
                r = bwrap_add_root(&argv);
        if (r >= 0)
                r = bwrap_add_private(&argv, spec, workspace);
        if (r >= 0)
                r = bwrap_add_resolver(&argv);
        if (r >= 0)
                r = bwrap_add(&argv, "--proc", "/proc", NULL);
        if (r >= 0)
                r = bwrap_add_devices(&argv);
        if (r >= 0)
                r = bwrap_add(&argv, "--remount-ro", "/", NULL);
        (void) snprintf(program, sizeof(program), "/proc/self/fd/%d", SANDBOX_BINARY_FD);
        if (r >= 0)
                r = bwrap_add(&argv, "--", program, SANDBOX_ARGUMENT);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(argv);
        return 0;
}

// 0 was the channel: it becomes what process 1 expects, with its program behind it. `filter` is above both.
static int bwrap_descriptors(void) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (null < 0 || dup2(STDIN_FILENO, SANDBOX_CHANNEL_FD) < 0 || dup2(null, STDIN_FILENO) < 0)
                return -errno;
        (void) close(null);
        return fcntl(SANDBOX_BINARY_FD, F_SETFD, 0) < 0 ? -errno : 0;
}

int sandbox_bwrap(const SandboxSpec *spec, GuestStage *ret_stage) {
        char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", lang[] = "LANG=C.UTF-8", kind[] = "container=hostd-sandbox";
        char *env[] = {path, lang, kind, NULL};
        _cleanup_strv_ char **argv = NULL;
        int workspace = -EBADF, filter = -EBADF, r;

        r = sandbox_userns(spec, &workspace, ret_stage);
        if (r < 0)
                return r;
        *ret_stage = GUEST_STAGE_SETUP;
        r = sandbox_filter(spec->root, &filter);
        if (r >= 0)
                r = bwrap_arguments(spec, workspace, filter, &argv);
        if (r >= 0)
                r = bwrap_descriptors();
        if (r >= 0)
                r = fcntl(filter, F_SETFD, 0) < 0 ? -errno : 0; // bwrap closes it
        if (r < 0)
                return r;
        *ret_stage = GUEST_STAGE_EXEC;
        (void) execve(BWRAP, argv, env);
        return -errno;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Rootfs: overlay of idmapped detached mounts (template below, the instance's upper above), and the data binds on top.
//
// On disk every id is 0-based; the id map of the mounts turns them into the instance's range. The overlay's superblock must
// belong to the initial user namespace: one that belongs to another loses setuid bits and file capabilities inside
// (ping, newuidmap). Its creator's fsuid must be the range's base, or it silently comes up read-only because nobody
// whom the upper mount maps can create the work directory. Both happen in a forked child, which keeps its capabilities across
// the change of fsuid and hides the layers' mount points in a mount namespace that dies with it.
//
// Every name that leads into the guest's tree is resolved by openat2() without links and without leaving the tree.
#include "instance/rootfs.h"

#include <linux/openat2.h>
#include <linux/securebits.h>
#include <sched.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/io.h"
#include "instance/idmap.h"

// What must be a directory before liblxc mounts there: a link would send a mount elsewhere.
static const char *const mount_points[] = {"dev", "proc", "sys", "run", "tmp"};

static const struct {
        const char *source, *target;
} data_binds[] = {{"home", "home"}, {"containers", "var/lib/containers"}};

static int open_beneath(int dir, const char *path, uint64_t flags, uint64_t resolve) {
        struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve | RESOLVE_NO_MAGICLINKS};
        int fd;

        do // EAGAIN: a rename or mount anywhere on the host happened meanwhile and the kernel could not be sure of a ".."
                fd = (int) syscall(SYS_openat2, dir, path, &how, sizeof(how));
        while (fd < 0 && errno == EAGAIN);
        return fd < 0 ? -errno : fd;
}

static int open_plain_dir(int dir, const char *path) {
        return open_beneath(dir, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

int rootfs_private_mounts(Error *err) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
                return error_set_errno(err, errno, "making a mount namespace");
        return 0;
}

// Short relative names, because the guest reads them in its mountinfo.
static const struct {
        const char *key, *value;
} overlay_options[] = {
        {"source", "root"},   {"lowerdir", "l"},       {"upperdir", "u/upper"}, {"workdir", "u/work"},
        {"metacopy", "off"}, // upper must be the whole difference, readable without trusted.* attributes
        {"redirect_dir", "nofollow"},
};

static int overlay_create(uint32_t id) {
        _cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);

        if (fs < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(overlay_options); i++)
                if (fsconfig(fs, FSCONFIG_SET_STRING, overlay_options[i].key, overlay_options[i].value, 0) < 0)
                        return -errno;
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
                return -errno;
        (void) setfsgid(id);
        (void) setfsuid(id);
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        // No device nodes: those of a hostile template would be real ones.
        int mnt = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
        return mnt < 0 ? -errno : mnt;
}

static int overlay_in_child(const char *stage, int lower, int upper, uint32_t id) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("stage", stage, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=64k") < 0 || chdir(stage) < 0 ||
            mkdir("l", 0755) < 0 || mkdir("u", 0755) < 0 ||
            move_mount(lower, "", AT_FDCWD, "l", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
            move_mount(upper, "", AT_FDCWD, "u", MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return -errno;
        return overlay_create(id);
}

static int overlay_mount(const InstanceSpec *spec, int lower, int upper, Error *err) {
        _cleanup_close_ int sock = -EBADF;
        int pair[2], r = -EIO, fd = -EBADF;
        size_t n_fds = 1;
        struct statvfs st;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set_errno(err, errno, "making a socket pair");
        pid_t pid = fork();
        if (pid == 0) {
                fd = overlay_in_child(spec->run_dir, lower, upper, spec->id_base);
                r = MIN2(fd, 0);
                _exit(io_send_fds(pair[1], &r, sizeof(r), &fd, fd >= 0 ? 1 : 0, 0) < 0);
        }
        sock = pair[0];
        (void) close(pair[1]);
        if (pid < 0)
                return error_set_errno(err, EAGAIN, "forking for the overlay");
        ssize_t n = io_recv_fds(sock, &r, sizeof(r), &fd, &n_fds, 0);
        (void) waitpid(pid, NULL, 0);
        if (n != sizeof(r) || r < 0 || n_fds != 1)
                return error_set_errno(err, n == sizeof(r) && r < 0 ? r : -EIO, "mounting the root overlay");
        if (fstatvfs(fd, &st) < 0 || (st.f_flag & ST_RDONLY)) {
                (void) close_fd(fd);
                return error_set(err, ERR_UNAVAILABLE, "the root overlay came up read-only: its upper or work directory cannot be written");
        }
        return fd;
}

// Opens `path` below the root, creating what is missing as the instance's root. Only ever directories, never through links.
static int root_dir_open(int root, const char *path, const InstanceSpec *spec) {
        _cleanup_free_ char *copy = strdup(path);
        _cleanup_close_ int dir = -EBADF;
        char *save = NULL;

        if (!copy)
                return -ENOMEM;
        for (char *part = strtok_r(copy, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
                int parent = dir >= 0 ? dir : root, fd = open_plain_dir(parent, part);
                if (fd == -ENOENT) {
                        (void) setfsgid(spec->id_base);
                        (void) setfsuid(spec->id_base);
                        int r = mkdirat(parent, part, 0755) < 0 ? -errno : 0;
                        (void) setfsuid(0);
                        (void) setfsgid(0);
                        if (r < 0)
                                return r;
                        fd = open_plain_dir(parent, part);
                }
                if (fd < 0)
                        return fd;
                (void) close_fd(dir);
                dir = fd;
        }
        return TAKE_FD(dir);
}

static int root_check(int root, const InstanceSpec *spec, Error *err) {
        struct stat st;

        for (size_t i = 0; i < ELEMENTS(mount_points); i++) {
                _cleanup_close_ int fd = root_dir_open(root, mount_points[i], spec);
                if (fd < 0)
                        return error_set(err, ERR_INVALID, "/%s in the root is no plain directory: %s", mount_points[i],
                                         strerror(-fd));
        }
        // init may be a link, which is followed as the guest would. O_PATH: a fifo or device is looked at, never opened.
        _cleanup_close_ int init = open_beneath(root, "sbin/init", O_PATH, RESOLVE_IN_ROOT);
        if (init < 0 || fstat(init, &st) < 0)
                return error_set(err, ERR_INVALID, "the root has no /sbin/init: %s", strerror(init < 0 ? -init : errno));
        if (!S_ISREG(st.st_mode) || !(st.st_mode & 0111))
                return error_set(err, ERR_INVALID, "/sbin/init in the root is no executable file");
        return 0;
}

// The first start finds no data/home: the template's is copied beside it and renamed, so that it is whole or absent.
static int home_fill(int data, int lower, int userns, Error *err) {
        _cleanup_close_ int from = -EBADF, to = -EBADF, tree = -EBADF;
        struct stat st;
        int r;

        if (fstatat(data, "home", &st, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        r = io_remove_tree(data, "home.new");
        if (r == 0 && mkdirat(data, "home.new", 0755) < 0)
                r = -errno;
        if (r < 0)
                return error_set_errno(err, r, "preparing data/home.new");
        from = open_plain_dir(lower, "home");
        to = open_plain_dir(data, "home.new");
        if (to < 0)
                return error_set_errno(err, to, "opening data/home.new");
        if (from >= 0) {
                tree = idmap_clone(to, userns, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, 0);
                if (tree < 0)
                        return error_set_errno(err, tree, "id-mapping data/home.new");
                r = home_copy(userns, from, tree, err);
                if (r < 0)
                        return error_wrap(err, "copying the template's /home");
        }
        if (renameat(data, "home.new", data, "home") < 0)
                return error_set_errno(err, errno, "renaming data/home.new");
        return 0;
}

static int data_mount(int root, int data, int userns, const InstanceSpec *spec, Error *err) {
        for (size_t i = 0; i < ELEMENTS(data_binds); i++) {
                _cleanup_close_ int source = -EBADF, target = -EBADF, tree = -EBADF;

                if (mkdirat(data, data_binds[i].source, 0755) < 0 && errno != EEXIST)
                        return error_set_errno(err, errno, "making data/%s", data_binds[i].source);
                source = open_plain_dir(data, data_binds[i].source);
                if (source < 0)
                        return error_set_errno(err, source, "opening data/%s", data_binds[i].source);
                target = root_dir_open(root, data_binds[i].target, spec);
                if (target < 0)
                        return error_set(err, ERR_INVALID, "/%s in the root is no plain directory: %s", data_binds[i].target,
                                         strerror(-target));
                // Storage may be mounted nosuid; inside, sudo and podman's images need their bits. Devices never.
                tree = idmap_clone(source, userns, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID);
                if (tree < 0)
                        return error_set_errno(err, tree, "id-mapping data/%s", data_binds[i].source);
                if (move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                        return error_set_errno(err, errno, "mounting data/%s", data_binds[i].source);
        }
        return 0;
}

// Not the host's own nodes: their modes are the host's affair, and some hosts give them to root alone, who is nobody inside. Both
// devices belong to whoever opens them: a mount and an interface in his own namespaces.
static const struct {
        const char *path;
        unsigned minor_number;
} device_nodes[] = {{ROOTFS_DEVICES "/fuse", 229}, {ROOTFS_DEVICES "/tun", 200}};

static int devices_make(Error *err) {
        mode_t mask = umask(0);
        int r = 0;

        if (mkdir(ROOTFS_DEVICES, 0755) < 0 || mount("devices", ROOTFS_DEVICES, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k") < 0)
                r = -errno;
        for (size_t i = 0; r == 0 && i < ELEMENTS(device_nodes); i++)
                if (mknod(device_nodes[i].path, S_IFCHR | 0666, makedev(10, device_nodes[i].minor_number)) < 0)
                        r = -errno;
        (void) umask(mask);
        return r < 0 ? error_set_errno(err, r, "making the device nodes of the instance") : 0;
}

// The run directory is root's alone, but liblxc insists that the instance's root can reach the root and lxcpath. So everything
// hangs below a small file system of our own, on a directory that each Linux has and that nothing here needs.
static int root_mount(int overlay, Error *err) {
        if (mount("hostd", ROOTFS_STAGE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=64k") < 0 ||
            mkdir(ROOTFS_PATH, 0755) < 0 || mkdir(ROOTFS_PIVOT, 0755) < 0 || mkdir(ROOTFS_LXC, 0755) < 0)
                return error_set_errno(err, errno, "preparing %s in the own mount namespace", ROOTFS_STAGE);
        int r = devices_make(err);
        if (r < 0)
                return r;
        if (move_mount(overlay, "", AT_FDCWD, ROOTFS_PATH, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return error_set_errno(err, errno, "mounting the root");
        int root = open(ROOTFS_PATH, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return root < 0 ? error_set_errno(err, errno, "opening the mounted root") : root;
}

int rootfs_assemble(const InstanceSpec *spec, Error *err) {
        _cleanup_close_ int userns = -EBADF, template = -EBADF, base = -EBADF, data = -EBADF;
        _cleanup_close_ int lower = -EBADF, upper = -EBADF, overlay = -EBADF, root = -EBADF;
        struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
        int r;

        userns = idmap_open(spec->id_base, spec->id_count);
        if (userns < 0)
                return error_set_errno(err, userns, "making the id map");
        template = open(spec->template_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (template < 0)
                return error_set_errno(err, errno, "opening the template %s", spec->template_dir);
        base = open(spec->root_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        data = base < 0 ? -errno : open_plain_dir(base, "data");
        if (data < 0)
                return error_set_errno(err, data, "opening data below %s", spec->root_dir);
        lower = idmap_clone(template, userns, MOUNT_ATTR_NODEV, 0);
        if (lower < 0)
                return error_set_errno(err, lower, "id-mapping the template %s", spec->template_dir);
        upper = idmap_clone(base, userns, MOUNT_ATTR_NODEV, 0);
        if (upper < 0)
                return error_set_errno(err, upper, "id-mapping %s", spec->root_dir);
        r = home_fill(data, lower, userns, err);
        if (r < 0)
                return r;
        overlay = overlay_mount(spec, lower, upper, err);
        if (overlay < 0)
                return overlay;
        root = root_mount(overlay, err);
        if (root < 0)
                return root;
        r = root_check(root, spec, err);
        if (r == 0)
                r = data_mount(root, data, userns, spec, err);
        // Only now, because missing mount points were just made; below data stays writable.
        if (r == 0 && spec->read_only && mount_setattr(root, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0)
                return error_set_errno(err, errno, "making the root read-only");
        return r;
}

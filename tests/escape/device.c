// SPDX-License-Identifier: GPL-2.0-or-later
// Attempts by devices and terminals.
#include "escape.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>

// ARG: b:MAJOR:MINOR or c:MAJOR:MINOR. As the root of a user namespace of its own too, on a file system of its own.
static int make_node(const char *arg) {
        unsigned major_number, minor_number;
        char kind, path[128];
        Doors doors = {-ENOTSUP};

        if (sscanf(arg, "%c:%u:%u", &kind, &major_number, &minor_number) != 3)
                return -EINVAL;
        mode_t mode = (kind == 'b' ? S_IFBLK : S_IFCHR) | 0666;
        snprintf(path, sizeof(path), "%s/node", scratch_dir());
        door(&doors, "mknod", mknod(path, mode, makedev(major_number, minor_number)));
        if (own_mounts() == 0 && mount("none", scratch_dir(), "tmpfs", 0, NULL) == 0)
                door(&doors, "on-tmpfs", mknod(path, mode, makedev(major_number, minor_number)));
        if (doors.result < 0)
                return doors.result;
        int fd = open(path, O_RDWR | O_NONBLOCK);
        if (fd < 0)
                return -errno;
        say("OPENED");
        return 0;
}

static int open_path(const char *arg) {
        int fd = open(arg, O_RDWR | O_NONBLOCK | O_NOCTTY);

        if (fd < 0)
                fd = open(arg, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        return fd < 0 ? -errno : 0;
}

static bool device_is_known(dev_t device) {
        static const struct {
                unsigned major, minor;
        } known[] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}, {10, 200}, {10, 229}};

        for (size_t i = 0; i < ELEMENTS(known); i++)
                if (major(device) == known[i].major && minor(device) == known[i].minor)
                        return true;
        return major(device) >= 136 && major(device) <= 143; // ends of ptys
}

static int unknown_devices;

static int device_seen(const char *path, const struct stat *st, int type, struct FTW *where) {
        if ((S_ISBLK(st->st_mode) || S_ISCHR(st->st_mode)) && !device_is_known(st->st_rdev)) {
                say("%s(%u:%u)", path, major(st->st_rdev), minor(st->st_rdev));
                unknown_devices++;
        }
        return 0;
}

static int list_devices(const char *arg) {
        nftw("/dev", device_seen, 16, FTW_PHYS);
        return unknown_devices ? 0 : -ENOENT;
}

static int tun(const char *arg) {
        struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
        int fd = open("/dev/net/tun", O_RDWR);

        if (fd < 0)
                return -errno;
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", arg);
        return result(ioctl(fd, TUNSETIFF, &request));
}

// Line disciplines are kernel modules that any user can have loaded, and some were holes.
static int line_disciplines(const char *arg) {
        int found = 0, last = 0;

        for (int number = 1; number <= 30; number++) {
                int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY), value = number;
                if (fd < 0)
                        return -errno;
                if (ioctl(fd, TIOCSETD, &value) == 0) {
                        say("%d", number);
                        found++;
                } else
                        last = errno;
                close(fd);
        }
        return found ? 0 : -last;
}

// Types ARG into the terminal that it runs on.
static int type_in(const char *arg) {
        for (const char *p = arg; *p; p++)
                if (ioctl(0, TIOCSTI, p) < 0)
                        return -errno;
        return 0;
}

// The host's console messages would go to our pty.
static int take_console(const char *arg) {
        int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY);

        return fd < 0 ? -errno : result(ioctl(fd, TIOCCONS, 0));
}

// A file system over ARG whose server never answers: whoever looks at it waits for ever.
static int fuse_hang(const char *arg) {
        char options[128];
        int fd = open("/dev/fuse", O_RDWR);

        if (fd < 0)
                return -errno;
        snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fd, (int) geteuid(), (int) getegid());
        if (mount("escape", arg, "fuse", 0, options) < 0)
                return -errno;
        printf("mounted\n");
        fflush(stdout);
        for (;;)
                pause();
}

// Calls on file systems that the instance shares with the host.
static int fs_calls(const char *arg) {
        static const struct {
                const char *name;
                unsigned long request;
        } calls[] = {
                {"FIFREEZE", 0xc0045877},      {"FITRIM", 0xc0185879},          {"XFS_GOINGDOWN", 0x8004587d},   {"BTRFS_SUBVOL", 0x5000940e},
                {"BTRFS_SNAP", 0x50009417},    {"BTRFS_TREE_SEARCH", 0xd0009411}, {"BTRFS_QUOTA_CTL", 0xc0109428}, {"BTRFS_QGROUP_LIMIT", 0x8030942b},
                {"BTRFS_DEFAULT_SUBVOL", 0x40089413}, {"BTRFS_RM_DEV", 0x5000940b}, {"EXT4_SHUTDOWN", 0x8004587d},
        };
        static unsigned char buffer[65536];
        int fd = open(arg, O_RDONLY | O_DIRECTORY), flags = 0;
        Doors doors = {-ENOTSUP};

        if (fd < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTS(calls); i++) {
                memset(buffer, 0, sizeof(buffer));
                strcpy((char *) buffer + 8, "escape");
                door(&doors, calls[i].name, ioctl(fd, calls[i].request, buffer));
        }
        char path[128];
        snprintf(path, sizeof(path), "%s/file", scratch_dir());
        int file = open(path, O_RDWR | O_CREAT, 0600);
        flags = 0x10; // FS_IMMUTABLE_FL
        door(&doors, "IMMUTABLE", ioctl(file, 0x40086602, &flags));
        return doors.result;
}

const Attempt attempts_device[] = {
        {"mknod", make_node}, {"open", open_path},           {"devices", list_devices}, {"tun", tun},
        {"ldisc", line_disciplines}, {"sti", type_in}, {"console", take_console}, {"fs-calls", fs_calls},
        {"fuse-hang", fuse_hang, true}, {NULL},
};

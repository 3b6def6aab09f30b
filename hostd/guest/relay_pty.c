// SPDX-License-Identifier: GPL-2.0-or-later
// RelayPty: see relay_pty.h.
#include "guest/relay_pty.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>

#include "base/error.h"

#define RELAY_PTY_MAJOR_FIRST 136
#define RELAY_PTY_MAJOR_LAST 143

static int relay_pty_check(int master, int slave) {
        unsigned number;
        struct statfs fs;
        struct stat st, named;
        char path[32];

        if (fstatfs(slave, &fs) < 0 || fstat(slave, &st) < 0 || ioctl(master, TIOCGPTN, &number) < 0)
                return -errno;
        if (fs.f_type != DEVPTS_SUPER_MAGIC || !S_ISCHR(st.st_mode) || major(st.st_rdev) < RELAY_PTY_MAJOR_FIRST || major(st.st_rdev) > RELAY_PTY_MAJOR_LAST)
                return -ENODEV;
        // A multiplexer that leads to another devpts than the one at /dev/pts would gain nothing.
        (void) snprintf(path, sizeof(path), "/dev/pts/%u", number);
        return lstat(path, &named) < 0 || named.st_dev != st.st_dev || named.st_ino != st.st_ino ? -ENODEV : 0;
}

// By hand: posix_openpt(3) knows one path only, grantpt(3) and ptsname(3) want to know users.
static int relay_pty_open_at(const char *path, uid_t owner, int *ret_master, int *ret_slave) {
        _cleanup_close_ int master = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC), slave = -EBADF;
        struct stat st;
        int unlocked = 0, r;

        if (master < 0 || fstat(master, &st) < 0)
                return -errno;
        if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(5, 2))
                return -ENODEV;
        if (ioctl(master, TIOCSPTLCK, &unlocked) < 0)
                return -errno;
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0)
                return -errno;
        r = relay_pty_check(master, slave);
        if (r < 0)
                return r;
        // For whoever opens it by its path. Its group and mode are what the guest mounted its devpts with. A failure takes away no more.
        (void) !fchown(slave, owner, (gid_t) -1);
        *ret_master = TAKE_FD(master);
        *ret_slave = TAKE_FD(slave);
        return 0;
}

int relay_pty_open(uid_t owner, int *ret_master, int *ret_slave) {
        static const char *const paths[] = {"/dev/pts/ptmx", "/dev/ptmx"};
        int r = -ENODEV;

        for (size_t i = 0; i < ELEMENTS(paths) && r < 0; i++)
                r = relay_pty_open_at(paths[i], owner, ret_master, ret_slave);
        return r;
}

void relay_pty_copy_size(int host, int master) {
        struct winsize size;

        if (ioctl(host, TIOCGWINSZ, &size) == 0)
                (void) ioctl(master, TIOCSWINSZ, &size);
}

int relay_pty_join(int host, int master, int slave) {
        struct termios outer, inner;

        if (tcgetattr(host, &outer) < 0 || tcgetattr(slave, &inner) < 0)
                return -errno;
        if (outer.c_lflag & ICANON)
                inner = outer;
        else {
                memcpy(inner.c_cc, outer.c_cc, sizeof(inner.c_cc));
                inner.c_iflag |= outer.c_iflag & IUTF8;
        }
        inner.c_lflag &= ~(tcflag_t) EXTPROC;
        inner.c_cc[VMIN] = outer.c_cc[VMIN] = 1;
        inner.c_cc[VTIME] = outer.c_cc[VTIME] = 0;
        cfmakeraw(&outer);
        outer.c_iflag &= ~(tcflag_t) (IXOFF | IXANY | IUCLC | IMAXBEL);
        outer.c_lflag |= EXTPROC;
        relay_pty_copy_size(host, master);
        return tcsetattr(slave, TCSANOW, &inner) < 0 || tcsetattr(host, TCSANOW, &outer) < 0 ? -errno : 0;
}

void relay_pty_cook(int host) {
        struct termios t;

        if (tcgetattr(host, &t) < 0 || (t.c_lflag & ICANON))
                return;
        t.c_iflag |= ICRNL | IXON;
        t.c_oflag |= OPOST | ONLCR;
        t.c_lflag &= ~(tcflag_t) EXTPROC;
        t.c_lflag |= ISIG | ICANON | IEXTEN | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE;
        (void) tcsetattr(host, TCSANOW, &t); // a terminal that stays raw still works
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Terminal: see terminal.h.
#include "cli/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

static struct termios terminal_saved;
static int terminal_fd = -EBADF; // of which `terminal_saved` is

int terminal_raw(int fd) {
        struct termios raw;

        if (!isatty(fd))
                return 0;
        if (tcgetattr(fd, &terminal_saved) < 0)
                return -errno;
        if (terminal_fd < 0)
                (void) atexit(terminal_restore); // beside the explicit calls; harmless twice
        raw = terminal_saved;
        cfmakeraw(&raw);
        if (tcsetattr(fd, TCSADRAIN, &raw) < 0)
                return -errno;
        terminal_fd = fd;
        return 0;
}

void terminal_restore(void) {
        if (terminal_fd < 0)
                return;
        (void) tcsetattr(terminal_fd, TCSADRAIN, &terminal_saved); // nothing else can be done about it
        terminal_fd = -EBADF;
}

void terminal_copy_size(int from, int pty) {
        struct winsize size;

        if (ioctl(from, TIOCGWINSZ, &size) == 0)
                (void) ioctl(pty, TIOCSWINSZ, &size);
}

int terminal_pty(int *ret_master, int *ret_slave, Error *err) {
        _cleanup_close_ int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        int slave;

        if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
                return error_set_errno(err, errno, "cannot make a pty");
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); // by the master, not by a path
        if (slave < 0)
                return error_set_errno(err, errno, "cannot open the pty");
        *ret_slave = slave;
        *ret_master = TAKE_FD(master);
        return 0;
}

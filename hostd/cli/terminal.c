// SPDX-License-Identifier: GPL-2.0-or-later
// Terminal: see terminal.h.
#include "cli/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
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
        // Input that is still there was meant for the other end; some of it may be the terminal's own answer to a question of the
        // guest's, whose text the guest chose. The shell must not get it. If it fails, nothing else can be done about it.
        (void) tcsetattr(terminal_fd, TCSAFLUSH, &terminal_saved);
        terminal_fd = -EBADF;
}

void terminal_copy_size(int from, int pty) {
        struct winsize size;

        if (ioctl(from, TIOCGWINSZ, &size) == 0)
                (void) ioctl(pty, TIOCSWINSZ, &size);
}

// Raw, so that what we write before the other end has set up its terminal is neither echoed nor cut into lines by ours. The keys of
// the operator's terminal go along.
static int terminal_set_pty(int slave) {
        struct termios t, own;

        if (tcgetattr(slave, &t) < 0)
                return -errno;
        if (tcgetattr(STDIN_FILENO, &own) == 0) {
                memcpy(t.c_cc, own.c_cc, sizeof(t.c_cc));
                t.c_iflag |= own.c_iflag & IUTF8;
        }
        cfmakeraw(&t);
        return tcsetattr(slave, TCSANOW, &t) < 0 ? -errno : 0;
}

bool terminal_end_input(int pty) {
        struct termios t;

        if (tcgetattr(pty, &t) < 0)
                return true;
        if (t.c_lflag & EXTPROC) // a relay: it knows what to do inside
                return ioctl(pty, TIOCSIG, SIGQUIT) == 0;
        return (t.c_lflag & ICANON) && write(pty, &t.c_cc[VEOF], 1) == 1;
}

int terminal_pty(int *ret_master, int *ret_slave, Error *err) {
        _cleanup_close_ int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        int slave;

        if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
                return error_set_errno(err, errno, "cannot make a pty");
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); // by the master, not by a path
        if (slave < 0)
                return error_set_errno(err, errno, "cannot open the pty");
        int r = terminal_set_pty(slave);
        if (r < 0) {
                (void) close_fd(slave);
                return error_set_errno(err, r, "cannot set up the pty");
        }
        *ret_slave = slave;
        *ret_master = TAKE_FD(master);
        return 0;
}

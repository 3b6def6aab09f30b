// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-guest: the helper inside an instance. Started by hostd-instance with the channel as descriptor 3 and its own program as 4, as root of
// the instance. With words it is a command of the people there.
#include <fcntl.h>
#include <linux/close_range.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "guest/ask.h"
#include "guest/helper.h"
#include "guest/sandbox.h"

#define MAIN_CHANNEL_FD 3
#define MAIN_BINARY_FD 4 // a regular file, or not there: who starts it may be older

// 0 to 3 stay occupied for ever, so that descriptors which arrive never land there.
static int main_descriptors(int *ret_binary) {
        struct stat st;
        int type = 0, null_fd;
        socklen_t size = sizeof(type);

        if (getsockopt(MAIN_CHANNEL_FD, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET)
                return -EBADF;
        *ret_binary = fstat(MAIN_BINARY_FD, &st) == 0 && S_ISREG(st.st_mode) && fcntl(MAIN_BINARY_FD, F_SETFD, FD_CLOEXEC) == 0 ? MAIN_BINARY_FD : -EBADF;
        null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd < 0)
                return -errno;
        for (int i = 0; i < 3; i++)
                if (dup2(null_fd, i) < 0)
                        return -errno;
        if (fcntl(MAIN_CHANNEL_FD, F_SETFD, FD_CLOEXEC) < 0)
                return -errno;
        return syscall(SYS_close_range, *ret_binary >= 0 ? MAIN_BINARY_FD + 1U : MAIN_CHANNEL_FD + 1U, ~0U, 0) < 0 ? -errno : 0;
}

int main(int argc, char **argv) {
        bool sandbox = argc == 2 && strcmp(argv[1], SANDBOX_ARGUMENT) == 0; // process 1 of one
        int binary, r;

        if (argc > 1 && !sandbox)
                return ask_main(argc, argv);
        // Neither the guest's users nor its root read the memory of this process or trace it.
        (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        (void) prctl(PR_SET_NAME, "hostd-guest", 0, 0, 0);
        r = main_descriptors(&binary);
        if (r == 0 && chdir("/") < 0)
                r = -errno;
        if (r == 0 && sandbox)
                (void) close_fd(binary); // there is no other in it
        if (r == 0)
                r = sandbox ? helper_run_sandbox(MAIN_CHANNEL_FD) : helper_run(MAIN_CHANNEL_FD, binary);
        return r < 0 ? 1 : 0;
}

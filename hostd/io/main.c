// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-io: keeps the output of commands of one instance and its sandboxes. hostd, its only client, sends it the read ends of a command's pipes and an empty
// file; who wants to read sends a pipe through hostd. It outlives hostd, so that commands in the background do.
//
// What it reads is the guest's. It has a user without rights and confines itself before the first byte of that: all it ever writes to was opened by
// others and sent to it, and it opens nothing. It ends when nothing was to be done for a minute.
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "border/confine.h"
#include "io/keeper.h"

#define IDLE_TIME (60 * USEC_PER_SEC)
#define MEMORY_MAX (256 << 20)
#define FILES_MAX (4 * IO_OUTPUTS_MAX + 2 * IO_FOLLOWERS_MAX)

// In a directory that hostd made for it alone. The socket of one that was before is nobody's any more: hostd found nobody behind it.
static int listen_in(const char *directory, Error *err) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = IO_SOCKET};

        if (fd < 0 || chdir(directory) < 0)
                return error_set_errno(err, errno, "%s", directory);
        (void) unlink(IO_SOCKET);
        (void) umask(0177);
        if (bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, 8) < 0)
                return error_set_errno(err, errno, "cannot listen in %s", directory);
        return chdir("/") < 0 ? error_set_errno(err, errno, "/") : TAKE_FD(fd);
}

static void ignore_signals(void) {
        (void) signal(SIGPIPE, SIG_IGN);
        (void) signal(SIGXFSZ, SIG_IGN); // a limit on files is a disk that is full
}

int main(int argc, char **argv) {
        static Keeper keeper = {.idle_after = IDLE_TIME};
        const BorderConfine confine = {.memory_bytes = MEMORY_MAX, .files_max = FILES_MAX, .file_bytes = RING_SIZE_MAX, .given = true};
        _cleanup_error_ Error err = ERROR_NULL;
        int r, listening;

        if (argc != 2 && argc != 3) {
                fprintf(stderr, "usage: hostd-io DIRECTORY [SECONDS], by hostd\n");
                return 2;
        }
        if (argc == 3) // until it ends when there is nothing to be done
                keeper.idle_after = strtoull(argv[2], NULL, 10) * USEC_PER_SEC;
        ignore_signals();
        r = listening = listen_in(argv[1], &err);
        if (r >= 0)
                r = border_confine(&confine, &err);
        if (r >= 0)
                r = keeper_init(&keeper, listening);
        if (r < 0) {
                fprintf(stderr, "hostd-io: %s\n", error_message(&err, r));
                return 1;
        }
        keeper_run(&keeper);
        return 0;
}

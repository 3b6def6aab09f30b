// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-instance RUN_DIR: runs one instance in the foreground, until its init is gone.
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "instance/supervisor.h"

int main(int argc, char *argv[]) {
        if (argc != 2) {
                (void) fprintf(stderr, "usage: hostd-instance RUN_DIR\n");
                return 2;
        }
        // Whatever a launcher left open would end up in a container.
        if (close_range(3, ~0U, 0) < 0) {
                log_error("close_range: %m");
                return EXIT_FAILURE;
        }
        (void) umask(0022);
        return supervisor_run(argv[1]);
}

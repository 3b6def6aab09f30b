// SPDX-License-Identifier: GPL-2.0-or-later
// What hostd-guest does with the package policy, in the tree that this sees as "/": for tests/integration/packages.sh, in a mount namespace of its own.
// usage: packages_driver apply FLAGS; packages_driver check HOME
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/packages.h"
#include "guest/packages_check.h"

static int print(const GuestPackage *row, void *userdata) {
        printf("%s %s %u %s\n", row->client, *row->setting ? row->setting : "-", row->claim, row->file);
        return 0;
}

int main(int argc, char **argv) {
        int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = -EINVAL;

        if (argc == 3 && strcmp(argv[1], "apply") == 0)
                r = packages_apply(root, (uint32_t) atoi(argv[2]), &err);
        else if (argc == 3 && strcmp(argv[1], "check") == 0)
                r = packages_check(root, "root", argv[2], print, NULL);
        if (r < 0)
                fprintf(stderr, "packages_driver: %s\n", error_message(&err, r));
        return r < 0;
}

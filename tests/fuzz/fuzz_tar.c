// SPDX-License-Identifier: GPL-2.0-or-later
// Arbitrary bytes as a tar: what comes out is a tree stream that its own reader takes whole, or nothing that it would; and such a tree is a tar again.
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest/tree_tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int memory(const void *data, size_t size) {
        int fd = memfd_create("fuzz", MFD_CLOEXEC);

        if (fd < 0 || (size > 0 && write(fd, data, size) != (ssize_t) size) || lseek(fd, 0, SEEK_SET) < 0)
                abort();
        return fd;
}

static int entries(int fd) {
        static TreeEntry entry;
        TreeReader reader;
        int n = 0, r;

        assert(lseek(fd, 0, SEEK_SET) == 0);
        assert(tree_reader_init(&reader, fd, NULL) == 0);
        while ((r = tree_reader_next(&reader, &entry, NULL)) > 0)
                n++;
        tree_reader_done(&reader);
        return r < 0 ? r : n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        int in = memory(data, size), tree = memory(NULL, 0), tar = memory(NULL, 0), again = memory(NULL, 0);

        if (tree_from_tar(in, tree, NULL) >= 0) {
                int n = entries(tree);
                // The reader of trees may find what a tar may say and a tree may not: it is nested too deeply.
                if (n >= 0) {
                        assert(n > 0);
                        assert(lseek(tree, 0, SEEK_SET) == 0);
                        assert(tree_to_tar(tree, tar, "x", NULL) == 0);
                        assert(lseek(tar, 0, SEEK_SET) == 0);
                        assert(tree_from_tar(tar, again, NULL) == 0);
                        assert(entries(again) > 0);
                }
        } else
                assert(entries(tree) < 0);
        (void) close(in);
        (void) close(tree);
        (void) close(tar);
        (void) close(again);
        return 0;
}

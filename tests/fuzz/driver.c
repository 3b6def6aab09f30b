// SPDX-License-Identifier: GPL-2.0-or-later
// Replays the committed corpus of a fuzz target when it is built without libFuzzer: each file below
// tests/fuzz/corpus/TARGET is one input. With --enable-fuzzing libFuzzer brings its own main and this file is empty.
#ifndef HOSTD_FUZZING
#include <dirent.h>
#include <stdint.h>
#include <string.h>

#include "base/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_directory(const char *path) {
        DIR *d = opendir(path);
        struct dirent *e;
        int n = 0;

        if (!d) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -1;
        }
        while ((e = readdir(d))) {
                _cleanup_free_ char *text = NULL;
                size_t size;
                if (e->d_name[0] == '.')
                        continue;
                if (io_read_file(dirfd(d), e->d_name, 1 << 22, &text, &size) < 0)
                        continue;
                (void) LLVMFuzzerTestOneInput((const uint8_t *) text, size);
                n++;
        }
        (void) closedir(d);
        return n;
}

int main(int argc, char **argv) {
        const char *srcdir = getenv("srcdir") ?: ".";
        const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
        _cleanup_free_ char *path = NULL;
        int n;

        if (strncmp(name, "fuzz_", 5) == 0)
                name += 5;
        if (argc > 1)
                path = strdup(argv[1]);
        else if (asprintf(&path, "%s/tests/fuzz/corpus/%s", srcdir, name) < 0)
                path = NULL;
        n = path ? replay_directory(path) : -1;
        printf("%s: %d inputs replayed\n", name, n);
        return n > 0 ? 0 : 1; // an empty corpus proves nothing
}
#endif

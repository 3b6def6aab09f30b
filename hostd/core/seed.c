// SPDX-License-Identifier: GPL-2.0-or-later
// Seed: see seed.h. The folder gets its name when it is complete, so that a crash leaves all of it or none.
#include "core/seed.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/valid.h"

#define SEED_MAX (1 << 20)

static bool is_seed(const char *entry) {
        size_t size = strlen(entry);
        char name[33];

        if (size <= 5 || size - 5 >= sizeof(name) || strcmp(entry + size - 5, ".conf") != 0)
                return false;
        memcpy(name, entry, size - 5);
        name[size - 5] = 0;
        return valid_is(VALID_NAME, name);
}

static int copy_seeds(DIR *from, int to, Error *err) {
        const struct dirent *e;

        while ((errno = 0, e = readdir(from))) {
                _cleanup_free_ char *text = NULL;
                size_t size;
                int r;
                if (!is_seed(e->d_name))
                        continue;
                r = io_read_file(dirfd(from), e->d_name, SEED_MAX, &text, &size);
                if (r >= 0)
                        r = io_write_atomic(to, e->d_name, text, size, 0644);
                if (r < 0)
                        return error_set_errno(err, r, "cannot copy the category %s", e->d_name);
        }
        return errno ? error_set_errno(err, errno, "cannot read the categories that ship") : 0;
}

static void closedirp(DIR **d) {
        if (*d)
                (void) closedir(*d);
}

int seed_categories(const char *etc, Error *err) {
        _cleanup_(closedirp) DIR *from = opendir(getenv("HOSTD_CATEGORYDIR") ?: HOSTD_CATEGORYDIR);
        _cleanup_close_ int dir = -EBADF, to = -EBADF;
        int r = io_mkdir_p(AT_FDCWD, etc, 0755);

        if (r < 0 || (dir = open(etc, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
                return error_set_errno(err, r < 0 ? r : errno, "cannot open %s", etc);
        if (faccessat(dir, "categories.d", F_OK, AT_SYMLINK_NOFOLLOW) == 0 || !from)
                return 0; // or nothing ships: hostd was built and not installed
        if (mkdirat(dir, ".categories.d.new", 0755) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make categories.d");
        to = openat(dir, ".categories.d.new", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (to < 0 || fchmod(to, 0755) < 0)
                return error_set_errno(err, errno, "cannot make categories.d");
        r = copy_seeds(from, to, err);
        if (r >= 0 && (fsync(to) < 0 || renameat(dir, ".categories.d.new", dir, "categories.d") < 0))
                r = error_set_errno(err, errno, "cannot make categories.d");
        return r;
}

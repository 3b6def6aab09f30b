// SPDX-License-Identifier: GPL-2.0-or-later
// Packages: see packages.h. Runs as root of the instance, inside: links that its root has put into the way lead nowhere else.
#include "guest/packages.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/proto.h"

#define MARK "# Written by hostd: the package policy of this instance.\n"
#define FILE_MAX ((size_t) 64 << 10)

typedef struct PackageFile {
        const char *folder, *name;
        const char *locked, *no_scripts; // what each flag adds; NULL: nothing
        const char *head;                // in front of either
} PackageFile;

// npm has one such file for each place that it can be installed to. It has no setting that makes a lock file binding, nor have cargo and apt; go takes
// what is in go.sum and no other by itself.
static const PackageFile files[] = {
        {"etc", "npmrc", NULL, "ignore-scripts=true\n", ""},
        {"usr/etc", "npmrc", NULL, "ignore-scripts=true\n", ""},
        {"usr/local/etc", "npmrc", NULL, "ignore-scripts=true\n", ""},
        {"etc/xdg/pip", "pip.conf", "require-hashes = true\n", "only-binary = :all:\n", "[install]\n"}, // without wheels a package's own program would run
};

static int text_of(const PackageFile *f, uint32_t flags, char *buf, size_t size) {
        const char *locked = flags & GUEST_PACKAGES_LOCKED ? f->locked : NULL, *no_scripts = flags & GUEST_PACKAGES_NO_SCRIPTS ? f->no_scripts : NULL;

        if (!locked && !no_scripts)
                return 0;
        return snprintf(buf, size, MARK "%s%s%s", f->head, locked ?: "", no_scripts ?: "");
}

static bool is_ours(int dir, const char *name) {
        _cleanup_free_ char *text = NULL;

        return io_read_file(dir, name, FILE_MAX, &text, NULL) >= 0 && strncmp(text, MARK, strlen(MARK)) == 0;
}

static int apply(int root, const PackageFile *f, uint32_t flags) {
        char text[256];
        int n = text_of(f, flags, text, sizeof(text)), r = n > 0 ? io_mkdir_p(root, f->folder, 0755) : 0;
        _cleanup_close_ int dir = r < 0 ? -EBADF : openat(root, f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (r < 0)
                return r;
        if (dir < 0)
                return n > 0 ? -errno : 0;
        if (faccessat(dir, f->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && !is_ours(dir, f->name))
                return 0;
        if (n > 0)
                return io_write_atomic(dir, f->name, text, (size_t) n, 0644);
        return unlinkat(dir, f->name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int packages_apply(int root, uint32_t flags, Error *err) {
        int r = 0;

        for (size_t i = 0; i < ELEMENTS(files); i++) {
                int k = apply(root, &files[i], flags);
                if (k < 0 && r >= 0)
                        r = error_set_errno(err, k, "the package policy: /%s/%s", files[i].folder, files[i].name);
        }
        return r;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Files: what is asked about them: one, a directory to some depth, and those whose names match. Answers are lists of guest/tree.h on fd 1.
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>

#include "guest/files_internal.h"
#include "guest/tree_list.h"
#include "guest/user.h"

#define FILES_MATCHES_MAX 100000

static void files_fill(TreeEntry *entry, void *userdata) {
        UserNames *names = userdata;

        (void) snprintf(entry->owner, sizeof(entry->owner), "%s", user_names_find(names, USER_NAMES_PASSWD, entry->uid));
        (void) snprintf(entry->group, sizeof(entry->group), "%s", user_names_find(names, USER_NAMES_GROUP, entry->gid));
}

// A directory also by a link of the guest's own to it, anything else as what it is.
static int files_info(const Request *request, TreeListOptions options, Error *err) {
        _cleanup_(user_names_done) UserNames names = {0};
        _cleanup_close_ int fd = -EBADF, dir = -EBADF;
        const char *name;
        int r = -ENOTDIR;

        options.fill = files_fill;
        options.userdata = &names;
        user_names_load("/etc", &names);
        if (!options.self) {
                r = fd = files_open(AT_FDCWD, request->path, O_RDONLY | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
                if (fd >= 0)
                        return tree_list(fd, ".", STDOUT_FILENO, &options, err);
        }
        r = r == -ENOTDIR || r == -ENOENT ? files_parent(request->path, &dir, &name) : r;
        if (r < 0)
                return r;
        if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        return tree_list(dir, name, STDOUT_FILENO, &options, err);
}

int files_stat(const Request *request, Error *err) {
        return files_info(request, (TreeListOptions) {.self = true}, err);
}

int files_list(const Request *request, Error *err) {
        TreeListOptions options = {.depth = 1, .limits.max_entries = TREE_LIST_MAX};
        uint64_t depth = 1;

        if (files_number(request, "depth", &depth) < 0 || depth == 0)
                return -EINVAL;
        options.depth = (unsigned) MIN2(depth, 1000U);
        return files_info(request, options, err);
}

int files_search(const Request *request, Error *err) {
        TreeListOptions options = {.pattern = files_option(request, "pattern") ?: "*", .max_matches = FILES_MATCHES_MAX};
        uint64_t max = 0;
        int r = files_number(request, "max", &max);

        if (r < 0)
                return r;
        if (max > 0)
                options.max_matches = MIN2(max, (uint64_t) FILES_MATCHES_MAX);
        return files_info(request, options, err);
}

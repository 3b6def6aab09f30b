// SPDX-License-Identifier: GPL-2.0-or-later
// FlowLog, of instances that are gone: their evidence outlives them, but neither for ever nor without a bound.
#include "flow/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/valid.h"

#define GONE_MAX 4096 // that are looked at in one sweep; the next one sees the rest

typedef struct Gone {
        char name[64];
        usec_t written; // its directory: when its last file was begun or removed
} Gone;

static int compare_newest_first(const void *a, const void *b) {
        const Gone *x = a, *y = b;

        return x->written > y->written ? -1 : x->written < y->written;
}

static int list_gone(int dirfd, Gone *gone, FlowLogKnown known, void *userdata) {
        int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
        DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
        struct dirent *e;

        if (!d) {
                (void) close_fd(copy);
                return -errno;
        }
        while (n < GONE_MAX && (e = readdir(d))) {
                struct stat st;
                if (!valid_is(VALID_NAME, e->d_name) || strlen(e->d_name) >= sizeof(gone->name) || known(e->d_name, userdata) ||
                    fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
                        continue;
                memcpy(gone[n].name, e->d_name, strlen(e->d_name) + 1);
                gone[n++].written = (usec_t) st.st_mtim.tv_sec * USEC_PER_SEC;
        }
        (void) closedir(d);
        return n;
}

int flow_log_sweep(int dirfd, usec_t older_than, size_t keep, FlowLogKnown known, void *userdata) {
        _cleanup_free_ Gone *gone = calloc(GONE_MAX, sizeof(Gone));
        int n = gone ? list_gone(dirfd, gone, known, userdata) : -ENOMEM, r = 0;

        if (n <= 0)
                return n;
        qsort(gone, (size_t) n, sizeof(Gone), compare_newest_first);
        for (size_t i = 0; i < (size_t) n; i++)
                if (i >= keep || gone[i].written < older_than) {
                        int q = io_remove_tree(dirfd, gone[i].name);
                        r = r < 0 ? r : q;
                }
        return r;
}

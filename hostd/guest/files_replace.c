// SPDX-License-Identifier: GPL-2.0-or-later
// Files: text replaced by other text in one file, whole or not at all. Read in pieces, twice: what does not have the text is not written.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/files_internal.h"
#include "guest/tree_list.h"

#define FILES_REPLACE_MAX (INT64_C(1) << 30) // before and after
#define FILES_REPLACE_PIECE (256 * 1024)

typedef struct FilesReplace {
        int in, out; // out < 0: it is only counted
        const char *old, *new;
        size_t old_size, new_size;
        uint64_t count, written;
        size_t used;
        char *buf; // FILES_REPLACE_PIECE and old_size bytes
} FilesReplace;

static int files_replace_put(FilesReplace *f, const char *data, size_t size) {
        f->written += size;
        if (f->written > FILES_REPLACE_MAX)
                return -EFBIG;
        return f->out < 0 ? 0 : io_write_all(f->out, data, size);
}

// All that is in the buffer, but for an end that may be the beginning of the text.
static int files_replace_buffer(FilesReplace *f, bool last) {
        char *at = f->buf, *end = f->buf + f->used, *found;
        size_t keep;
        int r = 0;

        while (r >= 0 && (found = memmem(at, (size_t) (end - at), f->old, f->old_size))) {
                r = files_replace_put(f, at, (size_t) (found - at));
                if (r >= 0)
                        r = files_replace_put(f, f->new, f->new_size);
                at = found + f->old_size;
                f->count++;
        }
        keep = last ? 0 : MIN2((size_t) (end - at), f->old_size - 1);
        if (r >= 0)
                r = files_replace_put(f, at, (size_t) (end - at) - keep);
        memmove(f->buf, end - keep, keep);
        f->used = keep;
        return r < 0 ? r : 0;
}

static int files_replace_pass(FilesReplace *f) {
        int r = 0;

        f->count = f->written = f->used = 0;
        if (lseek(f->in, 0, SEEK_SET) < 0)
                return -errno;
        while (r >= 0) {
                ssize_t n = read(f->in, f->buf + f->used, FILES_REPLACE_PIECE);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                f->used += (size_t) n;
                r = files_replace_buffer(f, n == 0);
                // Whoever asked went away: what is half made is removed while there is time, and the file stays as it is.
                if (r >= 0 && !tree_stream_is_read(f->in, STDOUT_FILENO))
                        r = -EPIPE;
                if (n == 0)
                        break;
        }
        return r;
}

// Whoever wrote to it meanwhile must not lose that.
static bool files_replace_is_same(int dir, const char *name, const struct stat *before) {
        struct stat st;

        return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == before->st_dev && st.st_ino == before->st_ino && st.st_size == before->st_size &&
               st.st_mtim.tv_sec == before->st_mtim.tv_sec && st.st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static int files_replace_write(FilesReplace *f, int dir, const char *name, const Request *request, const struct stat *st) {
        _cleanup_(files_new_done) FilesNew new = FILES_NEW_NULL;
        int r = files_new_open(request, dir, &new);

        if (r < 0)
                return r;
        f->out = new.fd;
        r = files_replace_pass(f);
        f->out = -EBADF;
        if (r >= 0)
                r = files_new_finish(&new, st->st_mode & 07777, files_may_give() ? &(FilesOwner) {st->st_uid, st->st_gid} : NULL);
        if (r >= 0 && !files_replace_is_same(dir, name, st))
                r = -ESTALE;
        return r < 0 ? r : files_new_place(&new, name);
}

static int files_replace_say(uint64_t count, int dir, const char *name) {
        _cleanup_(tree_lister_freep) TreeLister *lister = NULL;
        int r = tree_lister_new(STDOUT_FILENO, &lister);

        if (r >= 0)
                r = tree_lister_stat(lister, dir, name, ".");
        if (r < 0)
                return r;
        lister->entry.count = count;
        r = tree_lister_emit(lister);
        return r < 0 ? r : tree_lister_end(lister);
}

int files_replace(const Request *request, Error *err) {
        const char *old = files_option(request, "old"), *new = files_option(request, "new"), *name;
        _cleanup_close_ int dir = -EBADF, fd = -EBADF;
        _cleanup_free_ char *buf = NULL;
        FilesReplace f = {.out = -EBADF, .old = old, .new = new};
        struct stat st;
        int r;

        if (!old || !*old || !new)
                return -EINVAL;
        f.old_size = strlen(old);
        f.new_size = strlen(new);
        r = files_parent_to_change(request->path, &dir, &name);
        if (r < 0)
                return r;
        f.in = fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EOPNOTSUPP;
        f.buf = buf = malloc(FILES_REPLACE_PIECE + f.old_size);
        if (!buf)
                return -ENOMEM;
        r = files_replace_pass(&f);
        if (r >= 0 && f.count > 0)
                r = files_replace_write(&f, dir, name, request, &st);
        return r < 0 ? r : files_replace_say(f.count, dir, name);
}

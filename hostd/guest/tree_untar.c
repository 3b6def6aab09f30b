// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: the side that reads tar. What it makes of it is a tree stream, whose reader checks once more all that matters where it is unpacked.
#include <endian.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/tree_tar.h"
#include "guest/tree_tar_format.h"

typedef struct TarReader {
        int in, out;
        uint64_t entries;
        int skipped;
        bool begun; // it had one whole header: it is a tar
        // What headers before the next entry say of it; owned.
        char *path, *target;
        bool has_size, has_mtime;
        uint64_t size;
        int64_t mtime;
        char last[TREE_PATH_MAX + 1]; // directory that was written last, so that siblings' parents are not written again
        TreeEntry entry;
        uint8_t *buf; // 4 bytes of length, then a chunk
        Error *err;
} TarReader;

#define TAR_NONE "it is no tar, or a compressed one"

static int tar_bad(TarReader *t, const char *what) {
        (void) error_set(t->err, ERR_INVALID, "the tar is refused: %s", what);
        return -EBADMSG;
}

// 1: all of it; 0: the end came before the first byte.
static int tar_read(TarReader *t, void *data, size_t size) {
        size_t used = 0;

        while (used < size) {
                ssize_t n;
                if (!tree_stream_is_read(t->in, t->out))
                        return error_set_errno(t->err, EPIPE, "cannot write the tree stream");
                n = read(t->in, (char *) data + used, size - used);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set_errno(t->err, errno, "cannot read the tar");
                if (n == 0)
                        return used == 0 ? 0 : tar_bad(t, t->begun ? "it ends too early" : TAR_NONE);
                used += (size_t) n;
        }
        return 1;
}

static int tar_read_whole(TarReader *t, void *data, size_t size) {
        int r = size > 0 ? tar_read(t, data, size) : 1;

        return r == 0 ? tar_bad(t, "it ends too early") : r;
}

static int tar_skip(TarReader *t, uint64_t size) {
        int r = 1;

        for (; size > 0 && r > 0; size -= MIN2(size, (uint64_t) TREE_CHUNK_MAX))
                r = tar_read_whole(t, t->buf, MIN2(size, (uint64_t) TREE_CHUNK_MAX));
        return r < 0 ? r : 0;
}

static uint64_t tar_padding(uint64_t size) {
        return -size & (TAR_BLOCK - 1);
}

// Octal with spaces or zeros around, or GNU's base 256 for what does not fit.
static int tar_number(const char *field, size_t size, uint64_t *ret) {
        uint64_t n = 0;
        size_t i = 0;

        if ((unsigned char) field[0] == 0x80) {
                for (i = 1; i < size; i++) {
                        if (n >> 55)
                                return -ERANGE;
                        n = n << 8 | (unsigned char) field[i];
                }
                *ret = n;
                return 0;
        }
        while (i < size && field[i] == ' ')
                i++;
        for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
                n = n << 3 | (uint64_t) (field[i] - '0');
        if (i < size && field[i] && field[i] != ' ')
                return -EINVAL;
        *ret = n;
        return 0;
}

static int tar_decimal(const char *text, int64_t *ret) {
        char *end;
        long long n;

        errno = 0;
        n = strtoll(text, &end, 10);
        if (end == text || errno || (*end && *end != '.'))
                return -EINVAL;
        *ret = n;
        return 0;
}

static int tar_keep(TarReader *t, char **where, const char *text, size_t size) {
        char *copy;

        if (size == 0 || size > TREE_PATH_MAX || memchr(text, 0, size))
                return tar_bad(t, "a name in it is empty, too long or holds a zero");
        copy = strndup(text, size);
        if (!copy)
                return error_set_errno(t->err, ENOMEM, "cannot read the tar");
        free(*where);
        *where = copy;
        return 0;
}

static int tar_pax_value(TarReader *t, const char *key, const char *value, size_t size) {
        int64_t n;

        if (strcmp(key, "path") == 0)
                return tar_keep(t, &t->path, value, size);
        if (strcmp(key, "linkpath") == 0)
                return tar_keep(t, &t->target, value, size);
        if (strncmp(key, "GNU.sparse.", 11) == 0)
                return tar_bad(t, "it holds a sparse file; make it without --sparse");
        if (strcmp(key, "size") == 0) {
                if (tar_decimal(value, &n) < 0 || n < 0)
                        return tar_bad(t, "a size in it is malformed");
                t->has_size = true;
                t->size = (uint64_t) n;
        } else if (strcmp(key, "mtime") == 0 && tar_decimal(value, &n) >= 0) {
                t->has_mtime = true;
                t->mtime = n;
        }
        return 0;
}

// `text` has a zero behind its `size` bytes.
static int tar_pax(TarReader *t, char *text, size_t size) {
        for (char *at = text, *end = text + size; at < end;) {
                char *key, *equals;
                unsigned long n = strtoul(at, &key, 10);
                if (key == at || *key != ' ' || n == 0 || n > (size_t) (end - at) || at[n - 1] != '\n')
                        return tar_bad(t, "an extended header in it is malformed");
                at[n - 1] = 0;
                equals = strchr(++key, '=');
                if (!equals || equals >= at + n)
                        return tar_bad(t, "an extended header in it is malformed");
                *equals = 0;
                int r = tar_pax_value(t, key, equals + 1, (size_t) (at + n - 1 - (equals + 1)));
                if (r < 0)
                        return r;
                at += n;
        }
        return 0;
}

static int tar_before(TarReader *t, char type, uint64_t size) {
        _cleanup_free_ char *text = NULL;
        int r;

        if (size > TAR_PAX_READ_MAX)
                return tar_bad(t, "an extended header in it is too long");
        text = malloc(size + 1);
        if (!text)
                return error_set_errno(t->err, ENOMEM, "cannot read the tar");
        text[size] = 0;
        r = tar_read_whole(t, text, size);
        if (r >= 0)
                r = tar_skip(t, tar_padding(size));
        if (r < 0 || type == TAR_PAX_ALL)
                return r;
        if (type == TAR_PAX)
                return tar_pax(t, text, size);
        return tar_keep(t, type == TAR_GNU_NAME ? &t->path : &t->target, text, strnlen(text, size));
}

static int tar_emit(TarReader *t, const TreeEntry *entry) {
        int r;

        t->entries++;
        r = tree_write_entry(t->out, entry);
        return r < 0 ? error_set_errno(t->err, r, "cannot write the tree stream") : 0;
}

// The first record of a tree is its root, which a tar may name, too: first, or not at all.
static int tar_root(TarReader *t, const TreeEntry *named) {
        TreeEntry *root;
        int r;

        if (t->entries > 0)
                return 0;
        root = calloc(1, sizeof(*root));
        if (!root)
                return error_set_errno(t->err, ENOMEM, "cannot read the tar");
        *root = (TreeEntry) {.type = TREE_DIR, .mode = 0755, .path = "."};
        if (named && named->type == TREE_DIR && strcmp(named->path, ".") == 0) {
                root->mode = named->mode;
                root->mtime_sec = named->mtime_sec;
        }
        r = tar_emit(t, root);
        free(root);
        return r;
}

// Directories above the path that were not written just before: again does no harm where they are unpacked.
static int tar_parents(TarReader *t, const char *path) {
        const char *slash = strrchr(path, '/');
        size_t n = slash ? (size_t) (slash - path) : 0, same = strlen(t->last);
        TreeEntry *dir;
        int r = 0;

        if (n == 0 || (same >= n && strncmp(t->last, path, n) == 0 && (t->last[n] == 0 || t->last[n] == '/')))
                return 0;
        dir = calloc(1, sizeof(*dir));
        if (!dir)
                return error_set_errno(t->err, ENOMEM, "cannot read the tar");
        for (size_t i = 1; i <= n && r >= 0; i++) {
                if (path[i] != '/' || (same >= i && strncmp(t->last, path, i) == 0 && (t->last[i] == 0 || t->last[i] == '/')))
                        continue;
                *dir = (TreeEntry) {.type = TREE_DIR, .mode = 0755, .mtime_sec = t->entry.mtime_sec};
                memcpy(dir->path, path, i);
                r = tar_emit(t, dir);
        }
        memcpy(t->last, path, n);
        t->last[n] = 0;
        free(dir);
        return r;
}

static int tar_data(TarReader *t, uint64_t size) {
        uint64_t left = size;
        uint32_t n;
        int r;

        do {
                n = (uint32_t) MIN2(left, (uint64_t) TREE_CHUNK_MAX);
                *(uint32_t *) (void *) t->buf = htole32(n);
                r = tar_read_whole(t, t->buf + 4, n);
                if (r < 0)
                        return r;
                r = io_write_all(t->out, t->buf, 4 + (size_t) n);
                if (r < 0)
                        return error_set_errno(t->err, r, "cannot write the tree stream");
                left -= n;
        } while (n > 0);
        return tar_skip(t, tar_padding(size));
}

// "./" in front and "/" behind are how some write it; anything else that is no path below the root is refused.
static int tar_path(TarReader *t, const char *path) {
        size_t n;

        while (path[0] == '.' && path[1] == '/')
                for (path += 2; *path == '/'; path++)
                        ;
        n = strlen(path);
        while (n > 0 && path[n - 1] == '/')
                n--;
        if (n == 0 && *path != '/') {
                path = ".";
                n = 1;
        }
        if (!tree_path_valid(path, n, true))
                return tar_bad(t, "a path in it is absolute, too long or holds \"..\"");
        memcpy(t->entry.path, path, n);
        t->entry.path[n] = 0;
        return 0;
}

static int tar_name(TarReader *t, const TarHeader *h) {
        char name[sizeof(h->prefix) + sizeof(h->name) + 2];
        bool prefix = memcmp(h->magic, "ustar", 6) == 0 && h->prefix[0];

        if (t->path)
                return tar_path(t, t->path);
        (void) snprintf(name, sizeof(name), "%.*s%s%.*s", prefix ? (int) sizeof(h->prefix) : 0, h->prefix, prefix ? "/" : "", (int) sizeof(h->name), h->name);
        return tar_path(t, name);
}

static int tar_target(TarReader *t, const TarHeader *h) {
        (void) snprintf(t->entry.target, sizeof(t->entry.target), "%.*s", (int) (t->target ? TREE_PATH_MAX : sizeof(h->link)), t->target ?: h->link);
        return *t->entry.target ? 0 : tar_bad(t, "a link in it leads nowhere");
}

static TreeType tar_type(char type) {
        return type == TAR_FILE || type == 0 || type == TAR_CONTIGUOUS ? TREE_FILE : type == TAR_DIR ? TREE_DIR : type == TAR_LINK ? TREE_LINK : TREE_OTHER;
}

static bool tar_ends_with_slash(const char *field, size_t size) {
        size_t n = strnlen(field, size);

        return n > 0 && field[n - 1] == '/';
}

// A directory, file or link; what else is left out, with its data.
static int tar_entry(TarReader *t, const TarHeader *h, uint64_t size) {
        TreeEntry *entry = &t->entry;
        uint64_t mode, mtime;
        int r;

        if (tar_number(h->mode, sizeof(h->mode), &mode) < 0 || tar_number(h->mtime, sizeof(h->mtime), &mtime) < 0)
                return tar_bad(t, "a number in it is malformed");
        size = t->has_size ? t->size : size;
        if (size > TAR_SIZE_MAX)
                return tar_bad(t, "a size in it is malformed");
        *entry = (TreeEntry) {.type = tar_type(h->type), .mode = mode & 07777, .mtime_sec = t->has_mtime ? t->mtime : (int64_t) mtime, .size = size};
        r = tar_name(t, h);
        if (r >= 0 && entry->type == TREE_FILE && h->type == 0 && tar_ends_with_slash(h->name, sizeof(h->name)))
                entry->type = TREE_DIR; // from before there was a letter for them
        if (r >= 0 && entry->type == TREE_LINK)
                r = tar_target(t, h);
        if (r >= 0)
                r = tar_root(t, entry);
        if (r < 0)
                return r;
        if (entry->type == TREE_OTHER || strcmp(entry->path, ".") == 0) {
                t->skipped += entry->type == TREE_OTHER;
                return tar_skip(t, size + tar_padding(size));
        }
        r = tar_parents(t, entry->path);
        if (r < 0)
                return r;
        if (entry->type != TREE_FILE) {
                uint64_t data = size;
                entry->size = 0;
                r = tar_emit(t, entry);
                if (r >= 0 && entry->type == TREE_DIR)
                        memcpy(t->last, entry->path, strlen(entry->path) + 1);
                return r < 0 ? r : tar_skip(t, data + tar_padding(data));
        }
        r = tar_emit(t, entry);
        return r < 0 ? r : tar_data(t, size);
}

static void tar_forget(TarReader *t) {
        free(t->path);
        free(t->target);
        t->path = t->target = NULL;
        t->has_size = t->has_mtime = false;
}

static int tar_header(TarReader *t, const TarHeader *h) {
        uint64_t sum, size;
        int r;

        if (tar_number(h->checksum, sizeof(h->checksum), &sum) < 0 || sum != tar_checksum(h))
                return tar_bad(t, TAR_NONE);
        t->begun = true;
        if (tar_number(h->size, sizeof(h->size), &size) < 0)
                return tar_bad(t, "a size in it is malformed");
        switch (h->type) {
        case TAR_PAX:
        case TAR_PAX_ALL:
        case TAR_GNU_NAME:
        case TAR_GNU_LINK:
                return tar_before(t, h->type, size);
        case TAR_HARD:
                return tar_bad(t, "it holds a hard link; make it with --hard-dereference");
        case TAR_GNU_SPARSE:
                return tar_bad(t, "it holds a sparse file; make it without --sparse");
        case TAR_CHAR:
        case TAR_BLOCK_DEVICE:
        case TAR_FIFO:
                size = 0; // some write one, and no data behind it
        }
        r = tar_entry(t, h, size);
        tar_forget(t);
        return r;
}

// Two blocks of zeros end it; what some write behind them is read and dropped, so that whoever writes it is not stopped.
static int tar_all(TarReader *t) {
        static const TarHeader zero;
        TarHeader h;
        int r;

        for (;;) {
                r = tar_read(t, &h, sizeof(h));
                if (r == 0)
                        return tar_bad(t, "it ends too early");
                if (r < 0)
                        return r;
                if (memcmp(&h, &zero, sizeof(h)) == 0)
                        break;
                r = tar_header(t, &h);
                if (r < 0)
                        return r;
        }
        while ((r = (int) read(t->in, t->buf, TREE_CHUNK_MAX)) > 0 || (r < 0 && errno == EINTR))
                ;
        return tar_root(t, NULL);
}

int tree_from_tar(int in_fd, int out_fd, Error *err) {
        _cleanup_free_ TarReader *t = calloc(1, sizeof(*t));
        _cleanup_free_ uint8_t *buf = malloc(TREE_CHUNK_MAX + 4);
        int r;

        if (!t || !buf)
                return error_set_errno(err, ENOMEM, "cannot read the tar");
        t->in = in_fd;
        t->out = out_fd;
        t->buf = buf;
        t->err = err;
        r = io_write_all(out_fd, TREE_MAGIC, TREE_MAGIC_SIZE);
        if (r < 0)
                return error_set_errno(err, r, "cannot write the tree stream");
        r = tar_all(t);
        tar_forget(t);
        if (r < 0)
                return r;
        t->entry = (TreeEntry) {.type = TREE_END, .size = t->entries};
        r = tree_write_entry(out_fd, &t->entry);
        return r < 0 ? error_set_errno(err, r, "cannot write the tree stream") : t->skipped;
}

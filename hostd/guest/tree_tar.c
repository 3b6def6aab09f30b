// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: the side that writes tar. Names and numbers that do not fit the old header go into a pax header before it.
#include "guest/tree_tar.h"

#include <search.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/tree_tar_format.h"

typedef struct TarWriter {
        int fd;
        const char *name;
        int changed;
        uint64_t declared; // bytes that entries said they have: zeros stand for those that do not come
        char inside[TREE_PATH_MAX + 1]; // the directory that came last
        void *links; // numbers of their paths, of tsearch(3)
        TreeReader reader;
        TreeEntry entry;
        Error *err;
} TarWriter;

static int tar_write(TarWriter *w, const void *data, size_t size) {
        int r = io_write_all(w->fd, data, size);

        return r < 0 ? error_set_errno(w->err, r, "cannot write the tar") : 0;
}

static int tar_write_padding(TarWriter *w, uint64_t size) {
        static const char zeros[TAR_BLOCK];
        size_t n = (size_t) (-size & (TAR_BLOCK - 1));

        return n > 0 ? tar_write(w, zeros, n) : 0;
}

// "LENGTH key=value\n", where the length counts itself.
static size_t tar_pax_add(char *buf, size_t used, const char *key, const char *value) {
        size_t rest = strlen(key) + strlen(value) + 3, n = rest + 1;
        char number[16];

        while (n != rest + (size_t) snprintf(number, sizeof(number), "%zu", n))
                n = rest + strlen(number);
        return used + (size_t) snprintf(buf + used, TAR_PAX_MAX - used, "%zu %s=%s\n", n, key, value);
}

static size_t tar_pax_add_number(char *buf, size_t used, const char *key, int64_t value) {
        char number[24];

        (void) snprintf(number, sizeof(number), "%lld", (long long) value);
        return tar_pax_add(buf, used, key, number);
}

static void tar_number(char *field, size_t size, uint64_t value) {
        (void) snprintf(field, size, "%0*llo", (int) size - 1, (unsigned long long) value);
}

// Numbers that are too large for a field are zero there: the pax header has them.
static void tar_number_if(char *field, size_t size, uint64_t value) {
        tar_number(field, size, value >> (3 * (size - 1)) ? 0 : value);
}

static void tar_text(char *field, size_t size, const char *text) {
        memcpy(field, text, strnlen(text, size));
}

static int tar_write_header(TarWriter *w, const TreeEntry *entry, const char *path, char type, uint64_t size) {
        TarHeader h = {.magic = "ustar", .version = {'0', '0'}, .type = type};

        tar_text(h.name, sizeof(h.name), path);
        tar_text(h.link, sizeof(h.link), type == TAR_LINK ? entry->target : "");
        tar_number(h.mode, sizeof(h.mode), entry->mode & 0777); // whoever unpacks it here, as root perhaps, makes no set-uid programs of a guest's
        tar_number_if(h.uid, sizeof(h.uid), entry->uid);
        tar_number_if(h.gid, sizeof(h.gid), entry->gid);
        tar_number_if(h.size, sizeof(h.size), size);
        tar_number_if(h.mtime, sizeof(h.mtime), entry->mtime_sec < 0 ? 0 : (uint64_t) entry->mtime_sec);
        tar_number(h.device_major, sizeof(h.device_major), 0);
        tar_number(h.device_minor, sizeof(h.device_minor), 0);
        tar_checksum_set(&h);
        return tar_write(w, &h, sizeof(h));
}

static int tar_write_pax(TarWriter *w, const TreeEntry *entry, const char *path, uint64_t size) {
        static const TreeEntry plain = {.mode = 0644};
        char buf[TAR_PAX_MAX];
        size_t n = 0;
        int r;

        if (strlen(path) > sizeof(((TarHeader *) 0)->name))
                n = tar_pax_add(buf, n, "path", path);
        if (strlen(entry->target) > sizeof(((TarHeader *) 0)->link))
                n = tar_pax_add(buf, n, "linkpath", entry->target);
        if (size >> 33)
                n = tar_pax_add_number(buf, n, "size", (int64_t) size);
        if (entry->mtime_sec < 0 || entry->mtime_sec >> 33)
                n = tar_pax_add_number(buf, n, "mtime", entry->mtime_sec);
        if (entry->uid >> 21)
                n = tar_pax_add_number(buf, n, "uid", entry->uid);
        if (entry->gid >> 21)
                n = tar_pax_add_number(buf, n, "gid", entry->gid);
        if (n == 0)
                return 0;
        r = tar_write_header(w, &plain, "././@PaxHeader", TAR_PAX, n);
        if (r >= 0)
                r = tar_write(w, buf, n);
        return r < 0 ? r : tar_write_padding(w, n);
}

static int tar_write_zeros(TarWriter *w, uint64_t left) {
        static const char zeros[64 * 1024];
        int r = 0;

        for (; left > 0 && r >= 0; left -= MIN2(left, (uint64_t) sizeof(zeros)))
                r = tar_write(w, zeros, MIN2(left, (uint64_t) sizeof(zeros)));
        return r;
}

static int tar_write_data(TarWriter *w, uint64_t size) {
        const uint8_t *data;
        uint64_t left = size;
        bool more = false;
        ssize_t n;
        int r = 0;

        while (r >= 0 && (n = tree_reader_data(&w->reader, &data, w->err)) != 0) {
                if (n < 0)
                        return (int) n;
                more |= (uint64_t) n > left;
                r = tar_write(w, data, MIN2((uint64_t) n, left));
                left -= MIN2((uint64_t) n, left);
        }
        w->changed += more || left > 0;
        if (r >= 0)
                r = tar_write_zeros(w, left);
        return r < 0 ? r : tar_write_padding(w, size);
}

static int tar_compare(const void *a, const void *b) {
        const uint64_t *x = a, *y = b;

        return (*x > *y) - (*x < *y);
}

// Two paths with one number are taken for the same, which refuses what would have done no harm.
static uint64_t tar_path_number(const char *path) {
        uint64_t number = UINT64_C(0xcbf29ce484222325);

        for (; *path; path++)
                number = (number ^ (uint8_t) *path) * UINT64_C(0x100000001b3);
        return number;
}

// The first `n` bytes of `path` are the directory that came last, or one that it is in.
static bool tar_is_around(const TarWriter *w, const char *path, size_t n) {
        return strncmp(w->inside, path, n) == 0 && (!w->inside[n] || w->inside[n] == '/');
}

// Trees come in order: what is in a directory behind it. In another one an entry could lie below a link, and be written wherever that leads to by who
// unpacks the tar: so a directory that is open is not replaced, and a link never.
static int tar_check_place(TarWriter *w) {
        const char *path = w->entry.path, *slash = strrchr(path, '/');
        uint64_t number = tar_path_number(path), *kept;

        if (tfind(&number, &w->links, tar_compare) || (slash && !tar_is_around(w, path, (size_t) (slash - path))) ||
            (w->entry.type != TREE_DIR && *w->inside && tar_is_around(w, path, strlen(path))))
                return error_set(w->err, ERR_INVALID, "the tree stream is refused: %s is not in its place", path);
        if (w->entry.type == TREE_DIR)
                (void) snprintf(w->inside, sizeof(w->inside), "%s", strcmp(path, ".") == 0 ? "" : path);
        if (w->entry.type != TREE_LINK)
                return 0;
        kept = malloc(sizeof(*kept));
        if (kept)
                *kept = number;
        if (kept && tsearch(kept, &w->links, tar_compare))
                return 0;
        free(kept);
        return error_set_errno(w->err, ENOMEM, "cannot make a tar");
}

static int tar_write_entry(TarWriter *w) {
        const TreeEntry *entry = &w->entry;
        static const char types[_TREE_TYPE_MAX] = {[TREE_DIR] = TAR_DIR, [TREE_FILE] = TAR_FILE, [TREE_LINK] = TAR_LINK};
        const char *path = strcmp(entry->path, ".") == 0 && entry->type != TREE_DIR ? w->name : entry->path;
        uint64_t size = entry->type == TREE_FILE ? MIN2(entry->size, (uint64_t) TAR_SIZE_MAX) : 0;
        char name[TREE_PATH_MAX + 3];
        int r;

        w->declared += size;
        if (w->declared > w->reader.limits.max_bytes)
                return error_set(w->err, ERR_QUOTA, "the files are said to have more than %llu bytes", (unsigned long long) w->reader.limits.max_bytes);
        (void) snprintf(name, sizeof(name), "%s%s", path, entry->type == TREE_DIR ? "/" : "");
        r = tar_write_pax(w, entry, name, size);
        if (r >= 0)
                r = tar_write_header(w, entry, name, types[entry->type], size);
        return r >= 0 && entry->type == TREE_FILE ? tar_write_data(w, size) : r;
}

static int tar_write_all(TarWriter *w) {
        int r = 0;

        while (r >= 0) {
                r = tree_reader_next(&w->reader, &w->entry, w->err);
                if (r <= 0)
                        break;
                r = tar_check_place(w);
                if (r >= 0)
                        r = tar_write_entry(w);
        }
        return r < 0 ? r : tar_write_zeros(w, 2 * TAR_BLOCK);
}

int tree_to_tar(int in_fd, int out_fd, const char *name, Error *err) {
        _cleanup_free_ TarWriter *w = calloc(1, sizeof(*w));
        int r;

        if (!w || tree_reader_init(&w->reader, in_fd, NULL) < 0)
                return error_set_errno(err, ENOMEM, "cannot make a tar");
        w->fd = out_fd;
        w->name = name;
        w->err = err;
        r = tar_write_all(w);
        tdestroy(w->links, free);
        tree_reader_done(&w->reader);
        return r < 0 ? r : w->changed;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Tree: the record format and its one reader. Every check of what a stream may say is here; see tree.h.
#include "guest/tree_list.h"

#include <endian.h>
#include <poll.h>
#include <string.h>

#include "base/io.h"

#define TREE_RECORD_MAGIC 0x63657274u // "trec"
#define TREE_BUFFER (256 * 1024)

typedef struct __attribute__((packed)) TreeRecord {
        uint32_t magic;
        uint16_t type, path_size;
        uint32_t mode, uid, gid, mtime_nsec;
        uint64_t mtime_sec, size;
        uint16_t target_size, change;
        uint16_t owner_size, group_size;
} TreeRecord;
_Static_assert(sizeof(TreeRecord) == TREE_RECORD_SIZE, "the record is part of the interface");

typedef struct __attribute__((packed)) TreeMore {
        uint64_t btime_sec;
        uint32_t btime_nsec, links;
        uint64_t count;
} TreeMore;
_Static_assert(sizeof(TreeMore) == TREE_MORE_SIZE, "and so is what lists have behind it");

void tree_limits_default(TreeLimits *limits) {
        if (limits->max_bytes == 0)
                limits->max_bytes = UINT64_C(64) << 30;
        if (limits->max_entries == 0)
                limits->max_entries = 1000000;
        if (limits->max_depth == 0)
                limits->max_depth = 64;
}

bool tree_path_valid(const char *path, size_t size, bool root) {
        if (size == 0 || size > TREE_PATH_MAX || memchr(path, 0, size))
                return false;
        if (root && size == 1 && path[0] == '.')
                return true;
        for (size_t i = 0; i <= size; i++) {
                size_t start = i;
                while (i < size && path[i] != '/')
                        i++;
                size_t n = i - start;
                // An empty component is a leading, doubled or trailing slash.
                if (n == 0 || n > 255 || (path[start] == '.' && (n == 1 || (n == 2 && path[start + 1] == '.'))))
                        return false;
        }
        return true;
}

bool tree_name_valid(const char *name, size_t size) {
        for (size_t i = 0; i < size; i++)
                if (name[i] <= ' ' || name[i] > '~')
                        return false;
        return true;
}

static unsigned tree_path_depth(const char *path) {
        unsigned n = 1;

        for (; *path; path++)
                n += *path == '/';
        return n;
}

int tree_reader_init(TreeReader *reader, int in_fd, const TreeLimits *limits) {
        *reader = (TreeReader) {.fd = in_fd, .room = TREE_BUFFER};
        if (limits)
                reader->limits = *limits;
        tree_limits_default(&reader->limits);
        reader->buf = malloc(TREE_BUFFER);
        return reader->buf ? 0 : -ENOMEM;
}

void tree_reader_init_memory(TreeReader *reader, const void *data, size_t size) {
        *reader = (TreeReader) {.fd = -EBADF, .buf = (uint8_t *) data, .used = size, .room = size};
        tree_limits_default(&reader->limits);
}

void tree_reader_done(TreeReader *reader) {
        if (reader->fd >= 0)
                free(reader->buf);
        *reader = (TreeReader) {.fd = -EBADF};
}

// At least `size` bytes (at most the buffer) from `at` on; 0 when the stream ends before.
static int tree_reader_fill(TreeReader *reader, size_t size) {
        while (reader->used - reader->at < size) {
                ssize_t n;
                if (reader->fd < 0 || size > reader->room)
                        return 0;
                if (reader->room - reader->at < size) {
                        memmove(reader->buf, reader->buf + reader->at, reader->used - reader->at);
                        reader->used -= reader->at;
                        reader->at = 0;
                }
                n = read(reader->fd, reader->buf + reader->used, reader->room - reader->used);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return 0;
                reader->used += (size_t) n;
        }
        return 1;
}

static int tree_reader_need(TreeReader *reader, size_t size, Error *err) {
        int r = tree_reader_fill(reader, size);

        if (r < 0)
                return error_set_errno(err, r, "cannot read the tree stream");
        if (r == 0) {
                (void) error_set(err, ERR_INVALID, "the tree stream ends too early");
                return -EBADMSG;
        }
        return 0;
}

static int tree_reader_bad(Error *err, const char *what) {
        (void) error_set(err, ERR_INVALID, "the tree stream is refused: %s", what);
        return -EBADMSG;
}

static bool tree_change_valid(const TreeReader *reader, TreeType type, uint16_t change) {
        const char *letters = reader->changes ? TREE_CHANGES : reader->events ? TREE_EVENTS : NULL;

        if (type == TREE_END)
                return change == 0 || (change == TREE_CHANGES_CUT && (reader->changes || reader->info));
        if (!letters)
                return change == 0;
        return change != 0 && change < 128 && strchr(letters, change);
}

static int tree_reader_more(TreeReader *reader, TreeEntry *ret, Error *err) {
        TreeMore more = {0};

        if (reader->info) {
                int r = tree_reader_need(reader, sizeof(more), err);
                if (r < 0)
                        return r;
                memcpy(&more, reader->buf + reader->at, sizeof(more));
                reader->at += sizeof(more);
        }
        ret->btime_sec = (int64_t) le64toh(more.btime_sec);
        ret->btime_nsec = le32toh(more.btime_nsec);
        ret->links = le32toh(more.links);
        ret->count = le64toh(more.count);
        return ret->btime_nsec >= 1000000000 ? tree_reader_bad(err, "a record is malformed") : 0;
}

static int tree_reader_record(TreeReader *reader, TreeEntry *ret, size_t *ret_target, Error *err) {
        TreeRecord record;
        size_t path_size, target_size, owner_size, group_size, names_max;
        int r = tree_reader_need(reader, sizeof(record), err);

        if (r < 0)
                return r;
        memcpy(&record, reader->buf + reader->at, sizeof(record));
        reader->at += sizeof(record);
        ret->type = le16toh(record.type);
        if (le32toh(record.magic) != TREE_RECORD_MAGIC || ret->type < TREE_DIR || ret->type >= _TREE_TYPE_MAX ||
            !tree_change_valid(reader, ret->type, le16toh(record.change)))
                return tree_reader_bad(err, "a record is malformed");
        ret->change = (char) le16toh(record.change);
        ret->mode = le32toh(record.mode);
        ret->uid = le32toh(record.uid);
        ret->gid = le32toh(record.gid);
        ret->mtime_sec = (int64_t) le64toh(record.mtime_sec);
        ret->mtime_nsec = le32toh(record.mtime_nsec);
        ret->size = le64toh(record.size);
        path_size = le16toh(record.path_size);
        target_size = le16toh(record.target_size);
        owner_size = le16toh(record.owner_size);
        group_size = le16toh(record.group_size);
        names_max = reader->list && !reader->changes ? TREE_NAME_MAX : 0;
        if (path_size > TREE_PATH_MAX || target_size > TREE_PATH_MAX || owner_size > names_max || group_size > names_max || ret->mtime_nsec >= 1000000000)
                return tree_reader_bad(err, "a record is malformed");
        r = tree_reader_more(reader, ret, err);
        if (r >= 0)
                r = tree_reader_need(reader, path_size + target_size + owner_size + group_size, err);
        if (r < 0)
                return r;
        memcpy(ret->path, reader->buf + reader->at, path_size);
        memcpy(ret->target, reader->buf + reader->at + path_size, target_size);
        ret->path[path_size] = ret->target[target_size] = 0;
        reader->at += path_size + target_size;
        memcpy(ret->owner, reader->buf + reader->at, owner_size);
        memcpy(ret->group, reader->buf + reader->at + owner_size, group_size);
        ret->owner[owner_size] = ret->group[group_size] = 0;
        reader->at += owner_size + group_size;
        if (!tree_name_valid(ret->owner, owner_size) || !tree_name_valid(ret->group, group_size))
                return tree_reader_bad(err, "the name of a user or group is malformed");
        *ret_target = target_size;
        return (int) path_size;
}

static int tree_reader_check(TreeReader *reader, const TreeEntry *entry, size_t path_size, size_t target_size, Error *err) {
        if (reader->entries == 0 && !reader->list && strcmp(entry->path, ".") != 0)
                return tree_reader_bad(err, "its first record is not the root");
        if (!tree_path_valid(entry->path, path_size, reader->entries == 0 || reader->list))
                return tree_reader_bad(err, "a path is absolute, empty, too long or holds \"..\"");
        if (reader->list && !reader->changes && !reader->info && strchr(entry->path, '/'))
                return tree_reader_bad(err, "a listed name holds a slash");
        if (tree_path_depth(entry->path) > reader->limits.max_depth)
                return tree_reader_bad(err, "it is nested too deeply");
        if ((entry->type == TREE_LINK) != (target_size > 0) || strlen(entry->target) != target_size)
                return tree_reader_bad(err, "a link target is malformed");
        if (entry->type == TREE_OTHER && !reader->list)
                return tree_reader_bad(err, "it holds a device, socket or fifo");
        if (!reader->list && (entry->mode & ~07777u))
                return tree_reader_bad(err, "a mode is malformed");
        if (reader->entries == 0 && !reader->list && entry->type == TREE_LINK)
                return tree_reader_bad(err, "its root is a link");
        if (++reader->entries > reader->limits.max_entries) {
                (void) error_set(err, ERR_QUOTA, "the tree has more than %llu entries",
                                 (unsigned long long) reader->limits.max_entries);
                return -EDQUOT;
        }
        return 0;
}

int tree_reader_next(TreeReader *reader, TreeEntry *ret, Error *err) {
        const uint8_t *data;
        size_t target_size = 0;
        ssize_t n;
        int r;

        while (reader->in_data) {
                n = tree_reader_data(reader, &data, err);
                if (n < 0)
                        return (int) n;
        }
        if (reader->ended)
                return 0;
        if (!reader->started) {
                r = tree_reader_need(reader, TREE_MAGIC_SIZE, err);
                if (r < 0)
                        return r;
                reader->info = reader->list && !reader->changes && memcmp(reader->buf + reader->at, TREE_MAGIC_INFO, TREE_MAGIC_SIZE) == 0;
                if (!reader->info && (reader->events || memcmp(reader->buf + reader->at, TREE_MAGIC, TREE_MAGIC_SIZE) != 0))
                        return tree_reader_bad(err, "it is no tree of this version");
                reader->at += TREE_MAGIC_SIZE;
                reader->started = true;
        }
        r = tree_reader_record(reader, ret, &target_size, err);
        if (r < 0)
                return r;
        if (ret->type == TREE_END) {
                if (r != 0 || target_size != 0 || ret->size != reader->entries)
                        return tree_reader_bad(err, "its number of entries is wrong");
                reader->ended = true;
                reader->cut = ret->change == TREE_CHANGES_CUT;
                reader->unread = ret->count;
                return 0;
        }
        r = tree_reader_check(reader, ret, (size_t) r, target_size, err);
        if (r < 0)
                return r;
        reader->in_data = ret->type == TREE_FILE && !reader->list;
        return 1;
}

ssize_t tree_reader_data(TreeReader *reader, const uint8_t **ret, Error *err) {
        uint32_t size;
        int r;

        if (!reader->in_data)
                return 0;
        r = tree_reader_need(reader, sizeof(size), err);
        if (r < 0)
                return r;
        memcpy(&size, reader->buf + reader->at, sizeof(size));
        size = le32toh(size);
        if (size > TREE_CHUNK_MAX)
                return tree_reader_bad(err, "a chunk is too long");
        reader->at += sizeof(size);
        if (size == 0) {
                reader->in_data = false;
                return 0;
        }
        r = tree_reader_need(reader, size, err);
        if (r < 0)
                return r;
        reader->bytes += size;
        if (reader->bytes > reader->limits.max_bytes) {
                (void) error_set(err, ERR_QUOTA, "the tree has more than %llu bytes",
                                 (unsigned long long) reader->limits.max_bytes);
                return -EDQUOT;
        }
        *ret = reader->buf + reader->at;
        reader->at += size;
        return (ssize_t) size;
}

size_t tree_encode_entry(const TreeEntry *entry, bool info, uint8_t *ret) {
        size_t path_size = strlen(entry->path), target_size = strlen(entry->target);
        size_t owner_size = strlen(entry->owner), group_size = strlen(entry->group);
        uint8_t *p = ret;
        TreeRecord record = {
                .magic = htole32(TREE_RECORD_MAGIC),
                .type = htole16((uint16_t) entry->type),
                .path_size = htole16((uint16_t) path_size),
                .mode = htole32(entry->mode),
                .uid = htole32(entry->uid),
                .gid = htole32(entry->gid),
                .mtime_nsec = htole32(entry->mtime_nsec),
                .mtime_sec = htole64((uint64_t) entry->mtime_sec),
                .size = htole64(entry->size),
                .target_size = htole16((uint16_t) target_size),
                .change = htole16((uint16_t) entry->change),
                .owner_size = htole16((uint16_t) owner_size),
                .group_size = htole16((uint16_t) group_size),
        };
        TreeMore more = {htole64((uint64_t) entry->btime_sec), htole32(entry->btime_nsec), htole32(entry->links), htole64(entry->count)};

        p = mempcpy(p, &record, sizeof(record));
        if (info)
                p = mempcpy(p, &more, sizeof(more));
        p = mempcpy(p, entry->path, path_size);
        p = mempcpy(p, entry->target, target_size);
        p = mempcpy(p, entry->owner, owner_size);
        p = mempcpy(p, entry->group, group_size);
        return (size_t) (p - ret);
}

bool tree_stream_is_read(int in_fd, int out_fd) {
        struct pollfd fds[] = {{.fd = in_fd, .events = POLLIN}, {.fd = out_fd}};

        while (poll(fds, 2, -1) < 0 && errno == EINTR)
                continue;
        return !(fds[1].revents & POLLERR);
}

int tree_write_entry(int out_fd, const TreeEntry *entry) {
        uint8_t buf[TREE_WIRE_MAX];

        return io_write_all(out_fd, buf, tree_encode_entry(entry, false, buf));
}

static int tree_list_loop(TreeReader *reader, TreeListFn fn, void *userdata, Error *err) {
        _cleanup_free_ TreeEntry *entry = malloc(sizeof(*entry));
        int r;

        if (!entry)
                return error_set_errno(err, ENOMEM, "cannot read the list");
        reader->list = true;
        while ((r = tree_reader_next(reader, entry, err)) > 0) {
                r = fn(entry, userdata);
                if (r < 0)
                        return r;
        }
        return r;
}

int tree_listing_read(TreeListing *listing, int in_fd, Error *err) {
        _cleanup_(tree_reader_done) TreeReader reader = {.fd = -EBADF};
        int r;

        if (tree_reader_init(&reader, in_fd, &listing->limits) < 0)
                return error_set_errno(err, ENOMEM, "cannot read the list");
        reader.events = listing->events;
        r = tree_list_loop(&reader, listing->fn, listing->userdata, err);
        listing->cut = reader.cut;
        listing->unread = reader.unread;
        return r;
}

int tree_changes_read(int in_fd, TreeListFn fn, void *userdata, bool *ret_cut, Error *err) {
        static const TreeLimits limits = {.max_depth = TREE_CHANGES_DEPTH_MAX};
        _cleanup_(tree_reader_done) TreeReader reader = {.fd = -EBADF};
        int r;

        if (tree_reader_init(&reader, in_fd, &limits) < 0)
                return error_set_errno(err, ENOMEM, "cannot read the changes");
        reader.changes = true;
        r = tree_list_loop(&reader, fn, userdata, err);
        if (r >= 0)
                *ret_cut = reader.cut;
        return r;
}

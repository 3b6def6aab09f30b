// SPDX-License-Identifier: GPL-2.0-or-later
// IdPool: the range of host ids that instances live in, read from ETC/subuid and ETC/subgid.
//
// The files belong to the administrator and are shared with useradd, podman and others, so this only reads. What matters is
// that no id of the pool belongs to anyone else: an overlapping line would let that user's rootless container own the files
// of an instance. Lines nobody can use (wrong syntax) cannot do that, so they are only counted.
#include "state/store.h"

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define IDPOOL_FILE_MAX (1u << 20)
#define IDPOOL_MIN (64 * (uint64_t) SLOT_IDS)
#define IDPOOL_FIRST 65536u // below live the host's own users, nobody and DynamicUser=
#define IDPOOL_END ((uint64_t) UINT32_MAX) // the last id is (uid_t) -1 and belongs to nobody
#define IDPOOL_FIX "add the line root:1000000:1000000000 to both /etc/subuid and /etc/subgid"

typedef struct IdLine {
        char owner[256];
        uint64_t base, count;
        unsigned number;
        bool root;
} IdLine;

// One of the two files, read whole: they are small, and both are walked twice (first for the pool, then for what overlaps it).
typedef struct IdFile {
        const char *name;
        const char *owner; // of another pool than root's; NULL: root's
        char *text;
        size_t size;
        IdLine pool;
        unsigned ignored;
} IdFile;

// newuidmap reads numbers as strtoll() with base 0 does, and so must we: a line it honours may not be invisible here.
static int parse_number(const char **p, char end, uint64_t *ret) {
        char *stop;

        if (**p < '0' || **p > '9')
                return -EINVAL;
        errno = 0;
        *ret = strtoull(*p, &stop, 0);
        if (errno != 0 || *stop != end || *ret > UINT32_MAX)
                return -EINVAL;
        *p = stop + (end != 0);
        return 0;
}

// Exactly three fields, as shadow's own parser wants them.
static int parse_line(const char *text, size_t size, IdLine *ret) {
        char copy[1024];
        const char *p = copy;
        IdLine line = {0};
        size_t owner;

        // Longer lines and NUL bytes are no syntax of this file; a copy gives the number parser its end.
        if (size >= sizeof(copy) || memchr(text, 0, size))
                return -EINVAL;
        memcpy(copy, text, size);
        copy[size] = 0;
        owner = strcspn(copy, ":");
        if (owner == 0 || owner >= sizeof(line.owner) || copy[owner] != ':')
                return -EINVAL;
        memcpy(line.owner, copy, owner);
        p += owner + 1;
        if (parse_number(&p, ':', &line.base) < 0 || parse_number(&p, 0, &line.count) < 0 || line.count == 0)
                return -EINVAL;
        line.root = strcmp(line.owner, "root") == 0 || strcmp(line.owner, "0") == 0;
        *ret = line;
        return 0;
}

typedef int (*EachLine)(const IdLine *line, IdFile *file, const IdLine *pool, Error *err);

static int each_line(IdFile *file, const IdLine *pool, EachLine fn, Error *err) {
        const char *p = file->text, *end = file->text + file->size;
        IdLine line;
        int r;

        file->ignored = 0;
        for (unsigned number = 1; p < end; number++) {
                const char *eol = memchr(p, '\n', (size_t) (end - p)) ?: end;
                size_t size = (size_t) (eol - p);
                bool blank = size == 0 || *p == '#';

                if (!blank && parse_line(p, size, &line) < 0)
                        file->ignored++;
                else if (!blank) {
                        line.number = number;
                        r = fn(&line, file, pool, err);
                        if (r < 0)
                                return r;
                }
                p = eol + 1;
        }
        return 0;
}

// The largest line of root's is the pool; smaller ones (podman as root has one by habit) are left to their use.
static int pick_pool(const IdLine *line, IdFile *file, const IdLine *pool, Error *err) {
        bool ours = file->owner ? strcmp(line->owner, file->owner) == 0 : line->root;

        if (ours && line->count > file->pool.count)
                file->pool = *line;
        return 0;
}

// Also root's other lines: whoever uses them as root (podman, Incus) would hand our ids to its own containers.
static int refuse_overlap(const IdLine *line, IdFile *file, const IdLine *pool, Error *err) {
        if (line->number == file->pool.number)
                return 0;
        if (line->base >= pool->base + pool->count || pool->base >= line->base + line->count)
                return 0;
        return error_set(err, ERR_DEGRADED,
                         "/etc/%s line %u gives %s the ids %llu to %llu, which are part of %s's pool; move that range "
                         "below %llu or remove the line",
                         file->name, line->number, line->owner, (unsigned long long) line->base,
                         (unsigned long long) (line->base + line->count - 1), pool->owner, (unsigned long long) pool->base);
}

static int file_load(int etc, IdFile *file, Error *err) {
        int r = io_read_file(etc, file->name, IDPOOL_FILE_MAX, &file->text, &file->size);

        if (r == -ENOENT)
                return error_set(err, ERR_DEGRADED, "/etc/%s is missing; " IDPOOL_FIX, file->name);
        if (r == -ELOOP)
                return error_set(err, ERR_DEGRADED, "/etc/%s is a symbolic link; make it a plain file", file->name);
        if (r == -EFBIG)
                return error_set(err, ERR_DEGRADED, "/etc/%s is larger than 1 MiB", file->name);
        if (r < 0)
                return error_set_errno(err, r, "reading /etc/%s", file->name);
        return each_line(file, NULL, pick_pool, err);
}

// The sentences name the file, the line and the fix, because this is the first thing a new operator may run into.
static int pool_check(const IdFile *file, Error *err) {
        const IdLine *pool = &file->pool;

        if (pool->count == 0)
                return error_set(err, ERR_DEGRADED, "/etc/%s has no line for root; " IDPOOL_FIX, file->name);
        if (pool->count < IDPOOL_MIN)
                return error_set(err, ERR_DEGRADED, "/etc/%s line %u gives root %llu ids, at least %llu are needed; " IDPOOL_FIX,
                                 file->name, pool->number, (unsigned long long) pool->count, (unsigned long long) IDPOOL_MIN);
        if (pool->base < IDPOOL_FIRST)
                return error_set(err, ERR_DEGRADED, "/etc/%s line %u begins at %llu, among the host's own users; " IDPOOL_FIX,
                                 file->name, pool->number, (unsigned long long) pool->base);
        if (pool->base + pool->count > IDPOOL_END)
                return error_set(err, ERR_DEGRADED, "/etc/%s line %u goes beyond the last host id; " IDPOOL_FIX, file->name,
                                 pool->number);
        return 0;
}

// newuidmap and newgidmap are asked for the same range, so the two files have to agree on it.
static int files_check(IdFile *uid, IdFile *gid, Error *err) {
        int r = pool_check(uid, err);

        if (r == 0)
                r = pool_check(gid, err);
        if (r < 0)
                return r;
        if (uid->pool.base != gid->pool.base || uid->pool.count != gid->pool.count)
                return error_set(err, ERR_DEGRADED,
                                 "root has the ids %llu:%llu in /etc/subuid and %llu:%llu in /etc/subgid; make line %u of "
                                 "/etc/subgid root:%llu:%llu",
                                 (unsigned long long) uid->pool.base, (unsigned long long) uid->pool.count,
                                 (unsigned long long) gid->pool.base, (unsigned long long) gid->pool.count, gid->pool.number,
                                 (unsigned long long) uid->pool.base, (unsigned long long) uid->pool.count);
        r = each_line(uid, &uid->pool, refuse_overlap, err);
        return r < 0 ? r : each_line(gid, &gid->pool, refuse_overlap, err);
}

static int files_load(const char *etc, IdFile *uid, IdFile *gid, Error *err) {
        _cleanup_close_ int dir = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r;

        if (dir < 0)
                return error_set_errno(err, errno, "opening %s", etc);
        r = file_load(dir, uid, err);
        return r < 0 ? r : file_load(dir, gid, err);
}

int idpool_load(const char *etc, IdPool *ret, Error *err) {
        IdFile uid = {.name = "subuid"}, gid = {.name = "subgid"};
        int r;

        r = files_load(etc, &uid, &gid, err);
        if (r == 0)
                r = files_check(&uid, &gid, err);
        free(uid.text);
        free(gid.text);
        if (r < 0)
                return r;
        *ret = (IdPool) {
                .base = (uint32_t) uid.pool.base,
                .count = (uint32_t) uid.pool.count,
                .ignored = uid.ignored + gid.ignored,
        };
        return 0;
}

static int range_check(const IdFile *uid, const IdFile *gid, uint32_t least, Error *err) {
        const IdLine *line = &uid->pool;

        if (line->count < least || line->base < IDPOOL_FIRST || line->base + line->count > IDPOOL_END)
                return error_set(err, ERR_DEGRADED, "/etc/subuid gives %s no %u ids: \"hostd-subids add\" does", uid->owner, least);
        if (line->base != gid->pool.base || line->count != gid->pool.count)
                return error_set(err, ERR_DEGRADED, "/etc/subuid and /etc/subgid do not give %s the same ids", uid->owner);
        return 0;
}

int idpool_load_range(const char *etc, const char *owner, uint32_t least, uint32_t *ret_base, Error *err) {
        IdFile uid = {.name = "subuid", .owner = owner}, gid = {.name = "subgid", .owner = owner};
        int r;

        r = files_load(etc, &uid, &gid, err);
        if (r == 0)
                r = range_check(&uid, &gid, least, err);
        if (r == 0)
                r = each_line(&uid, &uid.pool, refuse_overlap, err);
        if (r == 0)
                r = each_line(&gid, &gid.pool, refuse_overlap, err);
        free(uid.text);
        free(gid.text);
        if (r == 0)
                *ret_base = (uint32_t) uid.pool.base;
        return r;
}

// Slot 1 begins at the pool's base: no id is lost to alignment, and a slot that would reach beyond the end has no base.
uint32_t idpool_slot_base(const IdPool *pool, uint16_t slot) {
        if (slot < 1 || slot > SLOT_MAX || pool->count / SLOT_IDS < slot)
                return 0;
        return pool->base + (slot - 1u) * SLOT_IDS;
}

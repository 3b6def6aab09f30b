// SPDX-License-Identifier: GPL-2.0-or-later
// Ended: see ended.h.
#include "secret/ended.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

#define PLACES 2
#define ID 16
#define ROW (ID + 1) // with a line break
#define SIZE (ROW * ENDED_MAX)

struct Ended {
        int fds[PLACES];
        char rows[SIZE]; // an unused one is blank
};

static bool is_id(const char *row) {
        for (int i = 0; i < ID; i++)
                if (!strchr("0123456789abcdef", row[i]) || row[i] == 0)
                        return false;
        return true;
}

static void blank(char *rows) {
        memset(rows, ' ', SIZE);
        for (size_t i = 0; i < ENDED_MAX; i++)
                rows[i * ROW + ID] = '\n';
}

static char *find(const Ended *ended, const char *id) {
        for (size_t i = 0; i < ENDED_MAX; i++)
                if (memcmp(ended->rows + i * ROW, id, ID) == 0)
                        return (char *) ended->rows + i * ROW;
        return NULL;
}

bool ended_has(const Ended *ended, const char *id) {
        return strlen(id) == ID && is_id(id) && find(ended, id);
}

static int write_at(int fd, const char *data, size_t size, off_t offset) {
        ssize_t n = pwrite(fd, data, size, offset);

        if (n != (ssize_t) size)
                return n < 0 ? -errno : -ENOSPC;
        return fdatasync(fd) < 0 ? -errno : 0;
}

// Over what is there: no file system has to find a block for it, but one that never writes in place.
static int write_row(const Ended *ended, const char *row) {
        int r = -ENOSPC;
        bool taken = false;

        for (size_t i = 0; i < PLACES; i++) {
                int k = ended->fds[i] < 0 ? -EBADF : write_at(ended->fds[i], row, ROW, row - ended->rows);
                taken = taken || k >= 0;
                r = k < 0 ? k : r;
        }
        return taken ? 0 : r;
}

int ended_add(Ended *ended, const char *id) {
        char *row;
        int r;

        if (strlen(id) != ID || !is_id(id))
                return -EINVAL;
        if (find(ended, id))
                return 0;
        row = find(ended, "                ");
        if (!row)
                return -ENOSPC;
        memcpy(row, id, ID);
        r = write_row(ended, row);
        if (r < 0)
                memset(row, ' ', ID);
        return r;
}

void ended_remove(Ended *ended, const char *id) {
        char *row = strlen(id) == ID ? find(ended, id) : NULL;

        if (!row)
                return;
        memset(row, ' ', ID);
        (void) write_row(ended, row); // what stays there is of a grant that is nowhere
}

static void take(Ended *ended, const char *text, size_t size) {
        for (size_t at = 0; at + ROW <= size; at += ROW) {
                char id[ID + 1] = {0}, *row = find(ended, "                ");
                memcpy(id, text + at, ID);
                if (row && is_id(id) && !find(ended, id))
                        memcpy(row, id, ID);
        }
}

static int open_at(Ended *ended, int directory) {
        int fd = openat(directory, ENDED_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        char text[SIZE];
        ssize_t n;

        if (fd < 0)
                return -errno;
        n = pread(fd, text, sizeof(text), 0);
        if (n > 0)
                take(ended, text, (size_t) n);
        return fd;
}

// Both say the same then, and have their full size.
int ended_open(const int directories[2], Ended **ret) {
        _cleanup_(ended_freep) Ended *ended = calloc(1, sizeof(Ended));
        int r = -EBADF;

        if (!ended)
                return -ENOMEM;
        blank(ended->rows);
        for (size_t i = 0; i < PLACES; i++)
                ended->fds[i] = open_at(ended, directories[i]);
        for (size_t i = 0; i < PLACES; i++) {
                int k = ended->fds[i] < 0 ? ended->fds[i] : write_at(ended->fds[i], ended->rows, SIZE, 0);
                r = k < 0 && r < 0 ? k : 0;
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(ended);
        return 0;
}

Ended *ended_free(Ended *ended) {
        if (!ended)
                return NULL;
        for (size_t i = 0; i < PLACES; i++)
                if (ended->fds[i] >= 0)
                        (void) close_fd(ended->fds[i]);
        free(ended);
        return NULL;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Denied: see denied.h.
#include "guest/denied.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

#define WRITER_SECONDS 10 // then it is ended: the next one may have more luck

void denied_add(DeniedList *list, const char *text, size_t size) {
        size_t n = strnlen(text, size);

        if (n == 0 || n >= sizeof(list->lines[0]))
                return;
        for (size_t i = 0; i < n; i++)
                if (text[i] < ' ' || text[i] > '~')
                        return;
        memset(list->lines[list->next], 0, sizeof(list->lines[0]));
        memcpy(list->lines[list->next], text, n);
        list->next = (list->next + 1) % DENIED_LINES;
        list->n = MIN2(list->n + 1, (size_t) DENIED_LINES);
        list->due = true;
}

// The oldest first. The old file or the new one is there, never half of one.
int denied_write(const DeniedList *list, const char *path) {
        char folder[256], fresh[256];
        const char *slash = strrchr(path, '/');
        _cleanup_close_ int fd = -EBADF;
        int r = 0;

        (void) snprintf(folder, sizeof(folder), "%.*s", (int) (slash - path), path);
        if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int) sizeof(fresh))
                return -ENAMETOOLONG;
        if (mkdir(folder, 0755) < 0 && errno != EEXIST)
                return -errno;
        (void) unlink(fresh);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 || fchmod(fd, 0644) < 0)
                return -errno;
        for (size_t i = 0; i < list->n && r >= 0; i++) {
                const char *line = list->lines[(list->next + DENIED_LINES - list->n + i) % DENIED_LINES];
                r = io_write_all(fd, line, strlen(line));
                if (r >= 0)
                        r = io_write_all(fd, "\n", 1);
        }
        if (r >= 0 && rename(fresh, path) < 0)
                r = -errno;
        return r;
}

void denied_flush(DeniedList *list) {
        pid_t pid;

        if (!list->due || list->writer > 0)
                return;
        pid = fork();
        if (pid == 0) {
                (void) alarm(WRITER_SECONDS);
                _exit(denied_write(list, DENIED_FILE) < 0);
        }
        if (pid < 0)
                return; // at the next one
        list->writer = pid;
        list->due = false;
}

bool denied_reaped(DeniedList *list, pid_t pid) {
        if (list->writer <= 0 || pid != list->writer)
                return false;
        list->writer = 0;
        return true;
}

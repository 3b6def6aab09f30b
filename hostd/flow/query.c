// SPDX-License-Identifier: GPL-2.0-or-later
// FlowQuery: a window on the file that slides towards its beginning.
#include "flow/query.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "flow/log.h"

#define WINDOW 65536
#define STEP_BYTES (256 << 10) // that are read in one call

struct FlowQuery {
        FlowFilter filter;
        char since[CLOCK_TEXT_MAX];
        int dir, fd;
        uint64_t numbers[FLOW_LOG_FILES_MAX];
        size_t left;       // files that were not begun
        uint64_t position; // of the file: what is behind was handed out
        uint64_t start;    // of the window in the file
        char window[WINDOW];
        size_t size;       // of the window, up to `position`
        uint64_t handed, torn, worked;
};

int flow_query_new(int dirfd, const char *instance, const FlowFilter *filter, FlowQuery **ret) {
        _cleanup_(flow_query_freep) FlowQuery *query = calloc(1, sizeof(FlowQuery));
        int n;

        if (!query)
                return -ENOMEM;
        query->fd = -EBADF;
        query->filter = *filter;
        if (filter->since_usec > 0)
                (void) clock_format((usec_t) filter->since_usec, query->since);
        query->dir = openat(dirfd, instance, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (query->dir < 0)
                return -errno;
        n = flow_log_list(query->dir, query->numbers);
        if (n < 0)
                return n;
        query->left = (size_t) n;
        *ret = TAKE_PTR(query);
        return 0;
}

FlowQuery *flow_query_free(FlowQuery *query) {
        if (!query)
                return NULL;
        (void) close_fd(query->fd);
        (void) close_fd(query->dir);
        free(query);
        return NULL;
}

uint64_t flow_query_torn(const FlowQuery *query) {
        return query->torn;
}

// A file that was last written before `since` has nothing to say. 1: opened, 0: there is none left. What was removed meanwhile was the
// oldest, and is left out.
static int next_file(FlowQuery *query) {
        while (query->left > 0) {
                char name[32];
                struct stat st;
                flow_log_file_name(query->numbers[--query->left], name);
                query->fd = openat(query->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
                if (query->fd < 0 && errno != ENOENT)
                        return -errno;
                if (query->fd >= 0 && fstat(query->fd, &st) == 0 && S_ISREG(st.st_mode) &&
                    (int64_t) st.st_mtim.tv_sec + 1 >= query->filter.since_usec / (int64_t) USEC_PER_SEC) {
                        query->position = query->start = (uint64_t) st.st_size;
                        query->size = 0;
                        return 1;
                }
                query->fd = close_fd(query->fd);
        }
        return 0;
}

// The window ends at `position`.
static int slide(FlowQuery *query) {
        size_t want = (size_t) MIN2(query->position, (uint64_t) WINDOW);
        ssize_t n;

        query->start = query->position - want;
        n = pread(query->fd, query->window, want, (off_t) query->start);
        if (n < 0)
                return -errno;
        if ((size_t) n != want)
                return -EIO; // it shrank: not by us
        query->size = want;
        query->worked += want;
        return 0;
}

// The last line of the window. 1: found; 0: its beginning is not in the window.
static int last_line(FlowQuery *query, const char **ret_line, size_t *ret_size) {
        size_t end = query->size;
        const char *before;

        if (end > 0 && query->window[end - 1] == '\n')
                end--;
        before = memrchr(query->window, '\n', end);
        if (!before && query->start > 0)
                return 0;
        *ret_line = before ? before + 1 : query->window;
        *ret_size = (size_t) (query->window + end - *ret_line);
        query->size = (size_t) (*ret_line - query->window);
        query->position = query->start + query->size;
        return 1;
}

// 1: a line, 0: the file is done.
static int file_line(FlowQuery *query, const char **ret_line, size_t *ret_size) {
        bool fresh = false;

        for (;;) {
                int r = query->size > 0 ? last_line(query, ret_line, ret_size) : 0;
                if (r > 0)
                        return 1;
                if (query->position == 0)
                        return 0;
                if (fresh) { // a window without the beginning of a line: nothing of ours
                        query->torn++;
                        query->position = query->start;
                }
                r = slide(query);
                if (r < 0)
                        return r;
                fresh = true;
        }
}

static bool wanted(FlowQuery *query, const char *line, size_t size) {
        FlowLineHead head;

        if (size > FLOW_LINE_MAX || !flow_line_parse(line, size, &head)) {
                query->torn += size > 0; // an empty one is what ends a torn one
                return false;
        }
        return strcmp(head.time, query->since) >= 0 && (!query->filter.denied || head.verdict == FLOW_DENY) &&
               (query->filter.kind == _FLOW_KIND_INVALID || query->filter.kind == head.kind);
}

int flow_query_next(FlowQuery *query, const char **ret_line, size_t *ret_size) {
        query->worked = 0;
        while (query->handed < query->filter.limit) {
                int r = query->fd < 0 ? next_file(query) : 1;
                if (r <= 0)
                        return r;
                r = file_line(query, ret_line, ret_size);
                if (r < 0)
                        return r;
                if (r == 0)
                        query->fd = close_fd(query->fd);
                else if (wanted(query, *ret_line, *ret_size)) {
                        query->handed++;
                        return 1;
                }
                if (query->worked >= STEP_BYTES)
                        return -EAGAIN;
        }
        return 0;
}

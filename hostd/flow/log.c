// SPDX-License-Identifier: GPL-2.0-or-later
// FlowLog: writing, going on to the next file, removing the oldest.
#include "flow/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define SUFFIX ".jsonl"
#define RETRY_AFTER USEC_PER_SEC // to open a file that could not be opened
#define FILE_AGE (86400 * USEC_PER_SEC) // one file spans a day at most, so that old ones can go whole

typedef struct LogFile {
        uint64_t number, size;
        usec_t written; // last
} LogFile;

struct FlowLog {
        FlowLogSettings settings;
        int dir;             // DIR/INSTANCE
        int fd;              // of the last file, -EBADF
        LogFile files[FLOW_LOG_FILES_MAX + 1];
        size_t n;
        usec_t opened;       // realtime: when the last file was begun, as far as this process knows
        usec_t tried;        // monotonic
        bool torn;           // the file ends in the middle of a line
        uint64_t lost, dropped; // since the last line that said so; since the log was opened
};

void flow_log_file_name(uint64_t number, char buf[32]) {
        (void) snprintf(buf, 32, "%010llu" SUFFIX, (unsigned long long) number);
}

// 0: no file of ours
static uint64_t parse_name(const char *name) {
        char *end, again[32];
        unsigned long long number;

        if (*name < '0' || *name > '9')
                return 0;
        number = strtoull(name, &end, 10);
        flow_log_file_name(number, again);
        return strcmp(name, again) == 0 ? number : 0;
}

static int compare_numbers(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

        return x < y ? -1 : x > y;
}

// Keeps the list sorted and the newest when there are too many (a person's doing).
static size_t number_add(uint64_t *numbers, size_t n, uint64_t number) {
        if (n == FLOW_LOG_FILES_MAX) {
                qsort(numbers, n, sizeof(*numbers), compare_numbers);
                if (number > numbers[0])
                        numbers[0] = number;
                return n;
        }
        numbers[n] = number;
        return n + 1;
}

int flow_log_list(int logfd, uint64_t numbers[FLOW_LOG_FILES_MAX]) {
        int copy = openat(logfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
        struct dirent *e;
        size_t n = 0;

        if (!d) {
                (void) close_fd(copy);
                return -errno;
        }
        while ((e = readdir(d))) {
                uint64_t number = parse_name(e->d_name);
                if (number)
                        n = number_add(numbers, n, number);
        }
        (void) closedir(d);
        qsort(numbers, n, sizeof(*numbers), compare_numbers);
        return (int) n;
}

static void file_remove(FlowLog *log, size_t i) {
        char name[32];

        flow_log_file_name(log->files[i].number, name);
        (void) unlinkat(log->dir, name, 0); // gone already is as good; any other failure leaves a file that the next start finds
        memmove(&log->files[i], &log->files[i + 1], (log->n - i - 1) * sizeof(LogFile));
        log->n--;
}

static uint64_t total_bytes(const FlowLog *log) {
        uint64_t sum = 0;

        for (size_t i = 0; i < log->n; i++)
                sum += log->files[i].size;
        return sum;
}

static void remove_too_many(FlowLog *log) {
        while (log->n > 1 && (log->n > FLOW_LOG_FILES_MAX || total_bytes(log) + log->settings.file_bytes > log->settings.total_bytes))
                file_remove(log, 0);
}

static bool ends_whole(int fd, uint64_t size) {
        char last;

        return size == 0 || (pread(fd, &last, 1, (off_t) size - 1) == 1 && last == '\n');
}

static int file_open(FlowLog *log, uint64_t number, int flags) {
        char name[32];

        flow_log_file_name(number, name);
        return openat(log->dir, name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
}

static int file_next(FlowLog *log, usec_t now) {
        uint64_t number = log->n ? log->files[log->n - 1].number + 1 : 1;
        int fd;

        remove_too_many(log);
        fd = file_open(log, number, O_CREAT | O_EXCL);
        if (fd < 0)
                return -errno;
        (void) close_fd(log->fd);
        log->fd = fd;
        log->files[log->n++] = (LogFile) {.number = number, .written = now};
        log->opened = now;
        log->torn = false;
        return 0;
}

static void read_files(FlowLog *log) {
        uint64_t numbers[FLOW_LOG_FILES_MAX];
        int n = flow_log_list(log->dir, numbers);

        for (int i = 0; i < n; i++) {
                char name[32];
                struct stat st;
                flow_log_file_name(numbers[i], name);
                if (fstatat(log->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
                        log->files[log->n++] = (LogFile) {numbers[i], (uint64_t) st.st_size, (usec_t) st.st_mtim.tv_sec * USEC_PER_SEC};
        }
}

// What an earlier process wrote is gone on with.
static void file_last(FlowLog *log) {
        LogFile *last = log->n ? &log->files[log->n - 1] : NULL;

        if (!last)
                return;
        log->fd = file_open(log, last->number, 0);
        if (log->fd >= 0)
                log->torn = !ends_whole(log->fd, last->size);
        log->opened = last->written;
}

int flow_log_new(int dirfd, const char *instance, const FlowLogSettings *settings, FlowLog **ret) {
        _cleanup_(flow_log_freep) FlowLog *log = calloc(1, sizeof(FlowLog));

        if (!log)
                return -ENOMEM;
        log->settings = *settings;
        log->fd = log->dir = -EBADF;
        if (mkdirat(dirfd, instance, 0700) < 0 && errno != EEXIST)
                return -errno;
        log->dir = openat(dirfd, instance, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (log->dir < 0)
                return -errno;
        read_files(log);
        file_last(log);
        *ret = TAKE_PTR(log);
        return 0;
}

FlowLog *flow_log_free(FlowLog *log) {
        if (!log)
                return NULL;
        (void) close_fd(log->fd);
        (void) close_fd(log->dir);
        free(log);
        return NULL;
}

static bool must_go_on(const FlowLog *log, size_t size, usec_t now) {
        const LogFile *last = log->n ? &log->files[log->n - 1] : NULL;

        return log->fd < 0 || !last || (last->size > 0 && (last->size + size > log->settings.file_bytes || (now > log->opened && now - log->opened > FILE_AGE)));
}

static int make_ready(FlowLog *log, size_t size, usec_t now) {
        usec_t monotonic = clock_monotonic();
        int r;

        if (!must_go_on(log, size, now))
                return 0;
        if (log->fd < 0 && log->tried && monotonic - log->tried < RETRY_AFTER)
                return -EAGAIN;
        r = file_next(log, now);
        log->tried = r < 0 ? monotonic : 0;
        // The old file is as good as none only if it could not be opened: an over-long one is better than a hole.
        return r < 0 && log->fd >= 0 && log->files[log->n - 1].size < 2 * log->settings.file_bytes ? 0 : r;
}

// All of it or nothing: half a line is taken back, and where not even that can be done the next one begins on a line of its own.
static int append(FlowLog *log, const char *data, size_t size, usec_t now) {
        LogFile *last;
        ssize_t n;
        int r = make_ready(log, size, now);

        if (r < 0)
                return r;
        last = &log->files[log->n - 1];
        if (log->torn && write(log->fd, "\n", 1) == 1) {
                log->torn = false;
                last->size++;
        }
        if (log->torn)
                return -errno;
        n = write(log->fd, data, size);
        if (n == (ssize_t) size) {
                last->size += size;
                last->written = now;
                return 0;
        }
        r = n < 0 ? -errno : -ENOSPC;
        if (n > 0 && ftruncate(log->fd, (off_t) last->size) < 0) {
                last->size += (uint64_t) n;
                log->torn = true;
        }
        return r;
}

static int say_lost(FlowLog *log, usec_t now) {
        char line[FLOW_LINE_MAX];
        int r;

        if (!log->lost)
                return 0;
        r = append(log, line, flow_line_format_lost(log->lost, "could not be written to the log", now, line), now);
        if (r >= 0)
                log->lost = 0;
        return r;
}

static void write_line(FlowLog *log, const char *line, size_t size, usec_t now) {
        int r = say_lost(log, now);

        if (r >= 0)
                r = append(log, line, size, now);
        if (r < 0) {
                log->lost++;
                log->dropped++;
        }
}

void flow_log_write(FlowLog *log, const FlowRecord *record, const char *sandbox, usec_t now) {
        char line[FLOW_LINE_MAX];

        write_line(log, line, flow_line_format(record, sandbox, now, line), now);
}

void flow_log_lost(FlowLog *log, uint64_t count, const char *reason, usec_t now) {
        char line[FLOW_LINE_MAX];

        write_line(log, line, flow_line_format_lost(count, reason, now, line), now);
}

void flow_log_tidy(FlowLog *log, usec_t now) {
        usec_t limit = now > log->settings.age ? now - log->settings.age : 0;

        while (log->n > 1 && log->files[0].written < limit)
                file_remove(log, 0);
        if (log->n == 1 && log->files[0].size > 0 && log->files[0].written < limit) {
                log->fd = close_fd(log->fd);
                file_remove(log, 0);
        }
}

uint64_t flow_log_dropped(const FlowLog *log) {
        return log->dropped;
}

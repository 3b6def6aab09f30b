// SPDX-License-Identifier: GPL-2.0-or-later
// HaproxyLog: see haproxy_log.h.
#include "secret/haproxy_log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"

#define READ_MAX 16384
#define PIPE_SIZE (256 << 10)
#define READS_AT_END (PIPE_SIZE / READ_MAX)

struct HaproxyLog {
        int directory; // borrowed
        int pipe, file;
        size_t size; // of the file
        sd_event_source *io, *pause;
        char line[HAPROXY_LOG_LINE_MAX];
        size_t used;
        usec_t second; // when the lines were last counted from 0
        unsigned lines;
        unsigned long lost;
        HaproxyAlert alert;
        HaproxyRedacted redacted;
        void *userdata;
};

void haproxy_log_listen(HaproxyLog *log, HaproxyAlert alert, HaproxyRedacted redacted, void *userdata) {
        log->alert = alert;
        log->redacted = redacted;
        log->userdata = userdata;
}

// The text behind `key`, to the next quote; there is none in what a guest wrote, which HAProxy escapes. "" if it has other than `allowed` characters.
static void field(const char *line, const char *key, const char *allowed, char ret[256]) {
        const char *begin = strstr(line, key);
        size_t n = begin ? strcspn(begin += strlen(key), "\"") : 0;

        if (n >= 256 || (begin && strspn(begin, allowed) < n))
                n = 0;
        if (n > 0)
                memcpy(ret, begin, n);
        ret[n] = 0;
}

static void look_for_alert(const HaproxyLog *log) {
        char host[256], ids[256];

        if (!log->alert || !strstr(log->line, "\"alert\":\"placeholder\""))
                return;
        field(log->line, "\"host\":\"", "abcdefghijklmnopqrstuvwxyz0123456789._-", host);
        field(log->line, "\"leaked\":\"", "0123456789abcdef ", ids);
        log->alert(log->userdata, host, ids);
}

static void look_for_redacted(const HaproxyLog *log) {
        char counts[256];

        field(log->line, "\"redacted\":\"", "0123456789abcdef ", counts);
        if (log->redacted && *counts)
                log->redacted(log->userdata, counts);
}

static int open_file(HaproxyLog *log) {
        struct stat st;

        (void) close_fd(log->file);
        log->file = openat(log->directory, HAPROXY_LOG_FILE, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (log->file < 0 || fstat(log->file, &st) < 0)
                return -errno;
        log->size = (size_t) st.st_size;
        return 0;
}

// A line that cannot be written is not worth more than itself.
static void append(HaproxyLog *log, const char *text, size_t n) {
        if (log->size + n > HAPROXY_LOG_MAX && (renameat(log->directory, HAPROXY_LOG_FILE, log->directory, HAPROXY_LOG_OLD) < 0 || open_file(log) < 0))
                return;
        if (log->size + n <= HAPROXY_LOG_MAX && io_write_all(log->file, text, n) >= 0)
                log->size += n;
}

static void tell_lost(HaproxyLog *log) {
        char text[64];

        if (log->lost == 0)
                return;
        (void) snprintf(text, sizeof(text), "{\"lost\":%lu}\n", log->lost);
        append(log, text, strlen(text));
        log->lost = 0;
}

static void end_line(HaproxyLog *log) {
        log->line[log->used] = 0;
        look_for_alert(log); // also one that is too many to be kept
        look_for_redacted(log);
        if (log->lines < HAPROXY_LOG_LINES_PER_SECOND) {
                log->lines++;
                log->line[log->used] = '\n';
                append(log, log->line, log->used + 1);
        } else
                log->lost++;
        log->used = 0;
}

static void take(HaproxyLog *log, const char *data, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (data[i] == '\n')
                        end_line(log);
                else if (log->used < sizeof(log->line) - 1)
                        log->line[log->used++] = data[i] >= ' ' && data[i] <= '~' ? data[i] : '?';
}

static ssize_t read_some(HaproxyLog *log) {
        char data[READ_MAX];
        ssize_t n = read(log->pipe, data, sizeof(data));

        if (n > 0)
                take(log, data, (size_t) n);
        return n;
}

static void count_anew(HaproxyLog *log) {
        usec_t now = clock_monotonic();

        if (now - log->second < USEC_PER_SEC)
                return;
        log->second = now;
        log->lines = 0;
        tell_lost(log);
}

static int pause_over(sd_event_source *source, uint64_t usec, void *userdata) {
        HaproxyLog *log = userdata;

        log->pause = sd_event_source_disable_unref(log->pause);
        count_anew(log);
        (void) sd_event_source_set_enabled(log->io, SD_EVENT_ON);
        return 0;
}

// One that says too much is not even read for a second: its pipe gets full, and costs nothing then. Without the timer it would stay so.
static void pause_reading(HaproxyLog *log) {
        if (sd_event_add_time_relative(sd_event_source_get_event(log->io), &log->pause, CLOCK_MONOTONIC, USEC_PER_SEC, 1, pause_over, log) >= 0)
                (void) sd_event_source_set_enabled(log->io, SD_EVENT_OFF);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        HaproxyLog *log = userdata;

        count_anew(log);
        (void) read_some(log);
        if (log->lines >= HAPROXY_LOG_LINES_PER_SECOND)
                pause_reading(log);
        return 0;
}

// The mode last: until then it is its owner's alone. One that is there may have something in it that nobody has read.
static int open_pipe(HaproxyLog *log, gid_t gid, Error *err) {
        struct stat st;

        if (mkfifoat(log->directory, HAPROXY_LOG_PIPE, 0600) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make " HAPROXY_LOG_PIPE);
        log->pipe = openat(log->directory, HAPROXY_LOG_PIPE, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (log->pipe < 0 || fstat(log->pipe, &st) < 0)
                return error_set_errno(err, errno, "cannot open " HAPROXY_LOG_PIPE);
        if (!S_ISFIFO(st.st_mode))
                return error_set(err, ERR_UNAVAILABLE, HAPROXY_LOG_PIPE " is no pipe");
        if (fchown(log->pipe, (uid_t) -1, gid) < 0 || fchmod(log->pipe, 0660) < 0)
                return error_set_errno(err, errno, "cannot prepare " HAPROXY_LOG_PIPE);
        (void) fcntl(log->pipe, F_SETPIPE_SZ, PIPE_SIZE); // without it hostd may be away for a shorter time
        return 0;
}

int haproxy_log_new(sd_event *event, int directory, gid_t gid, HaproxyLog **ret, Error *err) {
        _cleanup_(haproxy_log_freep) HaproxyLog *log = calloc(1, sizeof(HaproxyLog));
        int r;

        if (!log)
                return error_set_errno(err, ENOMEM, "cannot keep a log");
        log->directory = directory;
        log->pipe = log->file = -EBADF;
        r = open_file(log);
        if (r < 0)
                return error_set_errno(err, r, "cannot write " HAPROXY_LOG_FILE);
        r = open_pipe(log, gid, err);
        if (r < 0)
                return r;
        r = sd_event_add_io(event, &log->io, log->pipe, EPOLLIN, on_io, log);
        if (r < 0)
                return error_set_errno(err, r, "cannot read a pipe");
        (void) sd_event_source_set_priority(log->io, SD_EVENT_PRIORITY_IDLE); // a guest decides how much there is
        *ret = TAKE_PTR(log);
        return 0;
}

HaproxyLog *haproxy_log_free(HaproxyLog *log) {
        if (!log)
                return NULL;
        for (int i = 0; i < READS_AT_END && log->pipe >= 0 && read_some(log) > 0; i++)
                ;
        if (log->used > 0)
                end_line(log);
        tell_lost(log);
        log->io = sd_event_source_disable_unref(log->io);
        log->pause = sd_event_source_disable_unref(log->pause);
        (void) close_fd(log->pipe);
        (void) close_fd(log->file);
        free(log);
        return NULL;
}

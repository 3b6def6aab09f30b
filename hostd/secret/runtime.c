// SPDX-License-Identifier: GPL-2.0-or-later
// Runtime: see runtime.h.
//
// One connection for each command, since HAProxy ends a connection after its answer: "prepare map" gives the number of a new version, "add map"
// fills it, one value each, "commit map" puts it in the place of the old one. What was prepared and not committed is nowhere seen.
#include "secret/runtime.h"

#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ANSWER_MAX 1024
#define NEW_VERSION "New version created: "

struct Runtime {
        sd_event *event; // borrowed
        RuntimeSpec spec;
        char *socket, *map; // owned
        sd_event_source *io, *deadline;
        int fd;
        size_t step; // 0: prepare, 1..n: add, n + 1: commit
        unsigned long version;
        Value *command; // it may hold a value
        size_t sent;
        char answer[ANSWER_MAX];
        size_t answered;
};

void runtime_entries_free(RuntimeEntry *entries, size_t n) {
        for (size_t i = 0; entries && i < n; i++)
                (void) value_free(entries[i].value);
        free(entries);
}

static void hang_up(Runtime *rt) {
        rt->io = sd_event_source_disable_unref(rt->io);
        rt->fd = close_fd(rt->fd);
        rt->command = value_free(rt->command);
}

Runtime *runtime_free(Runtime *rt) {
        if (!rt)
                return NULL;
        hang_up(rt);
        rt->deadline = sd_event_source_disable_unref(rt->deadline);
        runtime_entries_free(rt->spec.entries, rt->spec.n_entries);
        free(rt->socket);
        free(rt->map);
        free(rt);
        return NULL;
}

// `done` may free the runtime, and start the next.
static int finish(Runtime *rt, int r, Error *err) {
        RuntimeDone done = rt->spec.done;
        void *userdata = rt->spec.userdata;

        hang_up(rt);
        rt->deadline = sd_event_source_disable_unref(rt->deadline);
        done(userdata, r, err);
        return 0;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        Runtime *rt = userdata;
        _cleanup_error_ Error err = ERROR_NULL;

        return finish(rt, error_set(&err, ERR_TIMEOUT, "HAProxy did not take the values in time"), &err);
}

// ---- commands ----

// In base64, which is one word in the payload's syntax whatever the value is.
static int write_add(Runtime *rt, const RuntimeEntry *entry, Error *err) {
        size_t size = sodium_base64_encoded_len(entry->value->size, sodium_base64_VARIANT_ORIGINAL), head;

        if (value_new(size + strlen(rt->map) + 96, &rt->command) < 0)
                return error_set_errno(err, ENOMEM, "cannot hand values on");
        head = (size_t) snprintf((char *) rt->command->data, rt->command->size, "add map @%lu %s <<\n%s ", rt->version, rt->map, entry->key);
        (void) sodium_bin2base64((char *) rt->command->data + head, size, entry->value->data, entry->value->size, sodium_base64_VARIANT_ORIGINAL);
        memcpy(rt->command->data + head + size - 1, "\n\n", 2); // over the NUL
        rt->command->size = head + size + 1;
        return 0;
}

static int write_command(Runtime *rt, Error *err) {
        char text[256];

        rt->sent = rt->answered = 0;
        if (rt->step > 0 && rt->step <= rt->spec.n_entries)
                return write_add(rt, &rt->spec.entries[rt->step - 1], err);
        if (rt->step == 0)
                (void) snprintf(text, sizeof(text), "prepare map %s\n", rt->map);
        else
                (void) snprintf(text, sizeof(text), "commit map @%lu %s\n", rt->version, rt->map);
        if (value_new(strlen(text), &rt->command) < 0)
                return error_set_errno(err, ENOMEM, "cannot hand values on");
        memcpy(rt->command->data, text, strlen(text));
        return 0;
}

// ---- one connection ----

int runtime_dial(const char *path, uid_t uid, pid_t *ret_pid, Error *err) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct ucred peer;
        socklen_t size = sizeof(peer);

        if (strlen(path) >= sizeof(address.sun_path))
                return error_set_errno(err, ENAMETOOLONG, "%s", path);
        memcpy(address.sun_path, path, strlen(path) + 1);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot make a socket");
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                return error_set(err, ERR_UNAVAILABLE, "HAProxy does not listen on its admin socket: %s", strerror(errno));
        // Its directory is HAProxy's own: what it put there must at least not be another's.
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != uid)
                return error_set(err, ERR_DENIED, "the admin socket of HAProxy is not HAProxy's");
        if (ret_pid)
                *ret_pid = peer.pid;
        return TAKE_FD(fd);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata);

static int begin_step(Runtime *rt, Error *err) {
        int r = runtime_dial(rt->socket, rt->spec.uid, NULL, err);

        if (r >= 0) {
                rt->fd = r;
                r = write_command(rt, err);
        }
        if (r < 0)
                return r;
        r = sd_event_add_io(rt->event, &rt->io, rt->fd, EPOLLOUT | EPOLLIN, on_io, rt);
        return r < 0 ? error_set_errno(err, r, "cannot wait for HAProxy") : 0;
}

// 1: all is sent. HAProxy ends the connection after its answer.
static int send_some(Runtime *rt, Error *err) {
        while (rt->sent < rt->command->size) {
                ssize_t n = send(rt->fd, rt->command->data + rt->sent, rt->command->size - rt->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return 0;
                if (n < 0)
                        return error_set(err, ERR_UNAVAILABLE, "HAProxy hung up: %s", strerror(errno));
                rt->sent += (size_t) n;
        }
        (void) sd_event_source_set_io_events(rt->io, EPOLLIN);
        return 1;
}

// 1: the answer has ended.
static int receive_some(Runtime *rt, Error *err) {
        for (;;) {
                char more[ANSWER_MAX];
                ssize_t n = recv(rt->fd, more, sizeof(more), MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return 0;
                if (n < 0)
                        return error_set(err, ERR_UNAVAILABLE, "HAProxy hung up: %s", strerror(errno));
                if (n == 0)
                        return 1;
                if (rt->answered + (size_t) n >= sizeof(rt->answer))
                        return error_set(err, ERR_UNAVAILABLE, "HAProxy answers too much");
                memcpy(rt->answer + rt->answered, more, (size_t) n);
                rt->answered += (size_t) n;
        }
}

// Success is silence, but for the version. Its words are not passed on: they are another program's, and might repeat what it was told.
static int check_answer(Runtime *rt, Error *err) {
        rt->answer[rt->answered] = 0;
        if (rt->step > 0)
                return rt->answer[strspn(rt->answer, " \r\n")] == 0 ? 0 : error_set(err, ERR_UNAVAILABLE, "HAProxy refused command %zu of %zu", rt->step + 1, rt->spec.n_entries + 2);
        if (strncmp(rt->answer, NEW_VERSION, strlen(NEW_VERSION)) != 0)
                return error_set(err, ERR_UNAVAILABLE, "HAProxy does not know the map");
        rt->version = strtoul(rt->answer + strlen(NEW_VERSION), NULL, 10);
        return rt->version > 0 && rt->version < UINT32_MAX ? 0 : error_set(err, ERR_UNAVAILABLE, "HAProxy gave no version of the map");
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Runtime *rt = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = send_some(rt, &err);

        if (r > 0)
                r = receive_some(rt, &err);
        if (r == 0)
                return 0;
        if (r > 0)
                r = check_answer(rt, &err);
        if (r < 0)
                return finish(rt, r, &err);
        hang_up(rt);
        if (++rt->step == rt->spec.n_entries + 2)
                return finish(rt, 0, &err);
        r = begin_step(rt, &err);
        return r < 0 ? finish(rt, r, &err) : 0;
}

int runtime_fill(sd_event *event, const RuntimeSpec *spec, Runtime **ret, Error *err) {
        _cleanup_(runtime_freep) Runtime *rt = calloc(1, sizeof(Runtime));
        int r;

        if (!rt) {
                runtime_entries_free(spec->entries, spec->n_entries);
                return error_set_errno(err, ENOMEM, "cannot hand values on");
        }
        rt->event = event;
        rt->spec = *spec;
        rt->fd = -EBADF;
        rt->map = strdup(spec->map);
        rt->socket = strdup(spec->socket);
        if (!rt->map || !rt->socket || strlen(spec->map) > 160)
                return error_set_errno(err, rt->map && rt->socket ? ENAMETOOLONG : ENOMEM, "cannot hand values on");
        r = begin_step(rt, err);
        if (r < 0)
                return r;
        r = sd_event_add_time_relative(event, &rt->deadline, CLOCK_MONOTONIC, spec->timeout ?: RUNTIME_TIMEOUT_SEC * USEC_PER_SEC, 0, on_deadline, rt);
        if (r < 0)
                return error_set_errno(err, r, "cannot wait for HAProxy");
        *ret = TAKE_PTR(rt);
        return 0;
}

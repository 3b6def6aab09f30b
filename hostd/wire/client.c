// SPDX-License-Identifier: GPL-2.0-or-later
// Client: see client.h.
#include "wire/client.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "wire/frame.h"

#define CLIENT_FRAME_MAX (8 << 20) // more than what the server lets wait for us

struct Client {
        int fd;
        bool lost;
        FrameReader reader;
};

static const struct {
        int errnum;
        const char *cause, *advice;
} connect_table[] = {
        {ENOENT, "the socket does not exist", "start it with `systemctl start hostd`, or name its socket with --socket"},
        {ECONNREFUSED, "nobody listens there", "start it with `systemctl start hostd`"},
        {EACCES, "permission denied", "run this as root or join one of the groups hostd-admin, hostd and hostd-view"},
        {EAGAIN, "too many clients are waiting", "try again"},
        {ENOTSOCK, "it is not a socket", "name hostd's socket with --socket"},
};

static int client_connect_failed(const char *path, int errnum, Error *err) {
        for (size_t i = 0; i < ELEMENTS(connect_table); i++)
                if (connect_table[i].errnum == errnum)
                        return error_set(err, errnum == EACCES ? ERR_DENIED : ERR_UNAVAILABLE,
                                         "cannot connect to %s: is hostd running? (%s; %s)", path, connect_table[i].cause,
                                         connect_table[i].advice);
        return error_set(err, ERR_UNAVAILABLE, "cannot connect to %s: is hostd running? (%s)", path, strerror(errnum));
}

int client_connect(const char *path, Client **ret, Error *err) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -EBADF;

        if (strlen(path) >= sizeof(address.sun_path))
                return error_set_field(err, "socket", "the socket path %s is longer than %zu bytes", path,
                                       sizeof(address.sun_path) - 1);
        memcpy(address.sun_path, path, strlen(path) + 1);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot make a socket");
        if (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return client_connect_failed(path, errno, err);
        return client_from_fd(TAKE_FD(fd), ret, err);
}

int client_from_fd(int fd, Client **ret, Error *err) {
        Client *client = calloc(1, sizeof(*client));

        if (!client) {
                (void) close_fd(fd);
                return error_set_errno(err, ENOMEM, "cannot talk to hostd");
        }
        client->fd = fd;
        client->reader = FRAME_READER_INIT(CLIENT_FRAME_MAX);
        *ret = client;
        return 0;
}

Client *client_free(Client *client) {
        if (!client)
                return NULL;
        (void) close_fd(client->fd);
        frame_reader_done(&client->reader);
        free(client);
        return NULL;
}

int client_fd(const Client *client) {
        return client->fd;
}

bool client_is_lost(const Client *client) {
        return client->lost;
}

static int client_send_text(Client *client, const char *text, size_t size, const int *fds, size_t n_fds) {
        // The descriptors go with the first bytes.
        while (size > 0) {
                ssize_t n = io_send_fds(client->fd, text, size, fds, n_fds, 0);
                if (n < 0)
                        return (int) n;
                text += n;
                size -= (size_t) n;
                n_fds = 0;
        }
        return 0;
}

int client_send(Client *client, const char *method, json_t *parameters, bool more, const int *fds, size_t n_fds, Error *err) {
        json_t *message = json_pack("{s:s}", "method", method);
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r = -ENOMEM;

        if (message && (!parameters || json_object_set(message, "parameters", parameters) == 0) &&
            (!more || json_object_set_new(message, "more", json_true()) == 0))
                r = frame_format(message, &text, &size);
        json_decref(message);
        if (r < 0)
                return error_set_errno(err, r, "cannot put the call into JSON");
        if (size > WIRE_FRAME_MAX)
                return error_set(err, ERR_INVALID, "the call is longer than 1 MiB");
        r = client_send_text(client, text, size, fds, n_fds);
        // A server that refuses a connection says why before it closes: that is read next.
        if (r == -EPIPE || r == -ECONNRESET)
                return 0;
        return r < 0 ? error_set_errno(err, r, "cannot send to hostd") : 0;
}

static const struct {
        const char *name;
        ErrorCode code;
        const char *key, *format;
} service_errors[] = {
        {"MethodNotFound", ERR_UNAVAILABLE, "method", "this hostd does not know the method"},
        {"MethodNotImplemented", ERR_UNAVAILABLE, "method", "this hostd does not implement the method"},
        {"InterfaceNotFound", ERR_NOT_FOUND, "interface", "this hostd does not know the interface"},
        {"InvalidParameter", ERR_INVALID, "parameter", "hostd refuses the parameter"},
        {"PermissionDenied", ERR_DENIED, "method", "hostd refuses the call"},
};

static int client_error(const char *name, const json_t *parameters, Error *err) {
        const char *message = json_string_value(json_object_get(parameters, "message"));
        const char *field = json_string_value(json_object_get(parameters, "field"));
        const char *last = strrchr(name, '.');
        ErrorCode code = error_code_from_name(last ? last + 1 : name);
        int r;

        if (strncmp(name, "org.varlink.service.", 20) == 0)
                for (size_t i = 0; i < ELEMENTS(service_errors); i++)
                        if (strcmp(name + 20, service_errors[i].name) == 0)
                                return error_set(err, service_errors[i].code, "%s \"%s\"", service_errors[i].format,
                                                 json_string_value(json_object_get(parameters, service_errors[i].key)) ?: "?");
        if (code <= ERR_NONE)
                return error_set(err, ERR_INTERNAL, "hostd answered with the unknown error %s", name);
        r = error_set(err, code, "%s", message ?: name);
        if (err && field && !err->field)
                err->field = strdup(field);
        return r;
}

static int client_take(Frame *frame, json_t **ret, Error *err) {
        json_t *message = NULL, *parameters;
        const char *error;
        int r = frame_parse(frame->text, frame->size, &message, err);

        if (r < 0)
                return error_wrap(err, "hostd's answer cannot be read");
        parameters = json_object_get(message, "parameters");
        error = json_string_value(json_object_get(message, "error"));
        if (error)
                r = client_error(error, parameters, err);
        else {
                r = json_is_true(json_object_get(message, "continues"));
                *ret = json_is_object(parameters) ? json_incref(parameters) : json_object();
        }
        json_decref(message);
        return r;
}

static int client_next(Client *client, int flags, json_t **ret, Error *err) {
        _cleanup_frame_ Frame frame = FRAME_NULL;

        for (;;) {
                int r = frame_reader_next(&client->reader, &frame);
                if (r > 0)
                        return client_take(&frame, ret, err);
                ssize_t n = r < 0 ? r : frame_reader_receive(&client->reader, client->fd, flags);
                if (n == -EAGAIN) // also a time limit that the caller set on the socket
                        return -EAGAIN;
                if (n <= 0)
                        client->lost = true;
                if (n == 0 || n == -ECONNRESET)
                        return error_set(err, ERR_UNAVAILABLE, "hostd closed the connection before it answered");
                if (n < 0)
                        return error_set_errno(err, (int) n, "cannot read from hostd");
        }
}

int client_receive(Client *client, json_t **ret, Error *err) {
        return client_next(client, 0, ret, err);
}

int client_receive_ready(Client *client, json_t **ret, Error *err) {
        return client_next(client, MSG_DONTWAIT, ret, err);
}

int client_call(Client *client, const char *method, json_t *parameters, json_t **ret, Error *err) {
        json_t *reply = NULL;
        int r = client_send(client, method, parameters, false, NULL, 0, err);

        if (r < 0)
                return r;
        r = client_receive(client, &reply, err);
        if (r < 0)
                return r;
        if (ret)
                *ret = reply;
        else
                json_decref(reply);
        return 0;
}

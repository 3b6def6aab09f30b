// SPDX-License-Identifier: GPL-2.0-or-later
// Logs: output of a command in the background, which hostd-io writes into our pipe as frames (io/proto.h): each stream goes to our own of the same name, and
// what is missing is said on standard error. hostd may end meanwhile; the pipe does not.
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "cli/cli.h"
#include "io/proto.h"

#define PIECE 65536

// 1: all of it; 0: the pipe ended before its first byte.
static int read_exactly(int fd, void *data, size_t size) {
        char *p = data;
        size_t got = 0;

        while (got < size) {
                ssize_t n = read(fd, p + got, size - got);
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0)
                        return got == 0 ? 0 : -EBADMSG;
                got += n > 0 ? (size_t) n : 0;
        }
        return 1;
}

static int copy(int from, int to, uint64_t length) {
        static char piece[PIECE];

        while (length > 0) {
                size_t n = (size_t) MIN2(length, (uint64_t) sizeof(piece));
                int r = read_exactly(from, piece, n);
                if (r <= 0)
                        return r < 0 ? r : -EBADMSG;
                r = io_write_all(to, piece, n);
                if (r < 0)
                        return r;
                length -= n;
        }
        return 0;
}

// 1: it goes on; 0: it was the last.
static int take(int fd, const IoFrame *frame, Error *err) {
        if (frame->magic != IO_FRAME_MAGIC || frame->kind >= _IO_FRAME_MAX)
                return -EBADMSG;
        switch ((IoFrameKind) frame->kind) {
        case IO_FRAME_OUT:
        case IO_FRAME_ERR: {
                int r = copy(fd, frame->kind == IO_FRAME_OUT ? STDOUT_FILENO : STDERR_FILENO, frame->length);
                return r < 0 ? r : 1;
        }
        case IO_FRAME_LOST:
                cli_complain("%llu bytes from byte %llu on were dropped", (unsigned long long) frame->length, (unsigned long long) frame->offset);
                return 1;
        case IO_FRAME_CUT:
                return error_set(err, ERR_UNAVAILABLE, "from byte %llu on nothing was kept: hostd-io died while the command ran", (unsigned long long) frame->offset);
        case IO_FRAME_GONE:
                return error_set(err, ERR_UNAVAILABLE, "the output was removed with its sandbox at byte %llu", (unsigned long long) frame->offset);
        case IO_FRAME_ENDED:
        case IO_FRAME_NOW:
        case _IO_FRAME_MAX:
                break;
        }
        return 0;
}

static int take_all(int fd, Error *err) {
        IoFrame frame;
        int r;

        do {
                r = read_exactly(fd, &frame, sizeof(frame));
                if (r == 0)
                        return error_set(err, ERR_UNAVAILABLE, "the output ended early: it was removed, or hostd-io died");
                if (r > 0)
                        r = take(fd, &frame, err);
        } while (r > 0);
        return r < 0 && err->code == ERR_NONE ? error_set_errno(err, r, "cannot pass the output on") : r;
}

// It was followed to its end: was that an end of the command's own? Where hostd cannot say, the output is whole all the same.
static int say_why(Cli *cli, const json_t *parameters, Error *err) {
        const char *id = json_string_value(json_object_get(parameters, "id")), *message = NULL;
        json_t *of = json_pack("{s:O}", "name", json_object_get(parameters, "name")), *reply = NULL, *row;
        _cleanup_error_ Error ignored = ERROR_NULL;
        bool found = false;
        size_t i;
        int r = cli_call(cli, method_get(METHOD_COMMAND_KEPT), of, &reply, &ignored);

        json_array_foreach(json_object_get(reply, "commands"), i, row)
                if (strcmp(json_string_value(json_object_get(row, "id")) ?: "", id) == 0) {
                        found = true;
                        message = json_string_value(json_object_get(row, "message"));
                }
        if (message)
                cli_complain("%s", message);
        json_decref(reply);
        json_decref(of);
        return found || (r < 0 && ignored.code != ERR_NOT_FOUND) ? 0 : error_set(err, ERR_UNAVAILABLE, "the command was ended with its sandbox, and its output removed");
}

int command_logs(Cli *cli, Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;
        _cleanup_close_ int from = -EBADF;
        int r = cli_send_pipe(cli, args->method, args->parameters, false, &from, &err);

        if (r >= 0)
                r = cli_receive(cli, 0, NULL, NULL, &err);
        if (r >= 0)
                r = take_all(from, &err);
        if (r >= 0 && json_is_true(json_object_get(args->parameters, "follow")))
                r = say_why(cli, args->parameters, &err);
        return r < 0 ? cli_fail(&err, r) : 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// File: push and pull. Bytes go through a pipe that we made; hostd-guest opens the file inside. A tree is the stream of
// guest/tree.h; what a guest packed is unpacked here below one directory and nowhere else.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "cli/file.h"
#include "guest/tree_tar.h"

#define TRANSFER_PIPE (1024 * 1024)

static const char *base_name(const char *path) {
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static char *trimmed(const char *path) {
        size_t n = strlen(path);

        while (n > 1 && path[n - 1] == '/')
                n--;
        return strndup(path, n);
}

int file_transfer_start(FileTransfer *t, bool push, int *ret_fd, Error *err) {
        int r;

        (void) signal(SIGPIPE, SIG_IGN); // a refused push shows as EPIPE, and hostd says why
        r = cli_send_pipe(t->cli, t->args->method, t->parameters, push, ret_fd, err);
        if (r >= 0)
                (void) fcntl(*ret_fd, F_SETPIPE_SZ, TRANSFER_PIPE); // smaller ones do, with more turns
        return r;
}

int file_transfer_end(FileTransfer *t, int local, Error *local_err, Error *err) {
        return cli_receive(t->cli, local, local_err, NULL, err);
}

int file_transfer_place(FileTransfer *t, const char *location, Error *err) {
        _cleanup_free_ char *name = NULL, *path = NULL, *place = NULL;
        int r = args_split_location(location, &name, &path, err);

        if (r < 0)
                return r;
        place = trimmed(path);
        if (!place)
                return error_set_errno(err, ENOMEM, "%s", location);
        (void) json_object_set_new(t->parameters, "name", json_string(name));
        (void) json_object_set_new(t->parameters, "path", json_string(place));
        return 0;
}

static int copy_bytes(int from, int to, const char *what, Error *err) {
        _cleanup_free_ char *buf = malloc(TREE_CHUNK_MAX);

        if (!buf)
                return error_set_errno(err, ENOMEM, "%s", what);
        for (;;) {
                ssize_t n = read(from, buf, TREE_CHUNK_MAX);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set_errno(err, errno, "cannot read %s", what);
                if (n == 0)
                        return 0;
                int r = io_write_all(to, buf, (size_t) n);
                if (r < 0)
                        return error_set_errno(err, r, "cannot write %s", what);
        }
}

static int push_stream(FileTransfer *t, const char *local, int local_fd, Error *err) {
        _cleanup_error_ Error local_err = ERROR_NULL;
        _cleanup_close_ int fd = -EBADF;
        int r = file_transfer_start(t, true, &fd, err), skipped;

        if (r < 0)
                return r;
        if (t->tar)
                r = skipped = tree_from_tar(local_fd, fd, &local_err);
        else if (t->recursive)
                r = skipped = tree_pack(local_fd, ".", fd, NULL, &local_err);
        else
                r = skipped = tree_pack_stream(local_fd, local, fd, &local_err);
        // A stream that we could not finish must not look like a whole one: first the call goes, then the pipe.
        if (r < 0 && local_err.errnum != EPIPE) {
                t->cli->client = client_free(t->cli->client);
                error_move(err, &local_err);
                return r;
        }
        fd = close_fd(fd);
        r = file_transfer_end(t, r < 0 ? r : 0, &local_err, err);
        if (r >= 0 && skipped > 0)
                cli_complain("%s: %d sockets, pipes and devices were left out", local, skipped);
        return r;
}

static int push_one(FileTransfer *t, const char *local, const char *path, Error *err) {
        bool from_stdin = strcmp(local, "-") == 0;
        _cleanup_close_ int fd = from_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                            : open(local, O_RDONLY | O_CLOEXEC | O_NOCTTY | (t->recursive && !t->tar ? O_DIRECTORY : 0));
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return error_set_errno(err, errno, "cannot open %s", local);
        if (S_ISDIR(st.st_mode) && t->tar)
                return error_set(err, ERR_INVALID, "%s is a directory, and no tar", local);
        if (S_ISDIR(st.st_mode) && !t->recursive)
                return error_set(err, ERR_INVALID, "%s is a directory; add --recursive", local);
        (void) json_object_set_new(t->parameters, "path", json_string(path));
        if (!t->recursive && !from_stdin && !json_object_get(t->args->parameters, "mode"))
                (void) json_object_set_new(t->parameters, "mode", json_integer(st.st_mode & 0777));
        return push_stream(t, local, fd, err);
}

char *file_place_below(const char *place, const char *source, bool below) {
        _cleanup_free_ char *name = trimmed(source), *dir = trimmed(place);
        char *path;

        if (!below || !name || !dir)
                return strdup(place);
        return asprintf(&path, "%s%s%s", dir, strcmp(dir, "/") == 0 ? "" : "/", base_name(name)) < 0 ? NULL : path;
}

// A tar is a tree on its way.
static FileTransfer transfer_of(Cli *cli, Args *args) {
        FileTransfer t = {.cli = cli, .args = args, .tar = args_local_bool(args, "tar")};

        if (t.tar)
                (void) json_object_set_new(args->parameters, "recursive", json_true());
        t.recursive = json_is_true(json_object_get(args->parameters, "recursive"));
        return t;
}

int command_file_push(Cli *cli, Args *args) {
        _cleanup_free_ char *name = NULL, *place = NULL;
        size_t n = strv_length(args->words);
        _cleanup_error_ Error err = ERROR_NULL;
        FileTransfer t = transfer_of(cli, args);
        int first = 0, r;

        if (n < 2)
                r = error_set(&err, ERR_INVALID, "usage: hostctl file push %s", args_syntax(args->method));
        else
                r = args_split_location(args->words[n - 1], &name, &place, &err);
        if (r < 0)
                return cli_fail(&err, r);
        for (size_t i = 0; i + 1 < n; i++) {
                _cleanup_error_ Error one = ERROR_NULL;
                _cleanup_free_ char *path = file_place_below(place, args->words[i], !t.tar && (n > 2 || place[strlen(place) - 1] == '/'));
                t.parameters = json_copy(args->parameters);
                (void) json_object_set_new(t.parameters, "name", json_string(name));
                r = path ? push_one(&t, args->words[i], path, &one) : -ENOMEM;
                json_decref(t.parameters);
                if (r < 0 && !first)
                        first = cli_fail(&one, r);
                else if (r < 0)
                        (void) cli_fail(&one, r);
        }
        return first;
}

// A local failure with the stream not at its end: nobody would read on, so the other side would wait for room in the pipe, and this one for its answer.
static int pull_end(FileTransfer *t, int in, int local, Error *local_err, Error *err) {
        struct pollfd fd = {.fd = in, .events = POLLIN};

        if (local >= 0 || (poll(&fd, 1, 0) == 1 && !(fd.revents & POLLIN)))
                return file_transfer_end(t, local, local_err, err); // hostd may know more
        error_move(err, local_err);
        return local;
}

static int pull_bytes(FileTransfer *t, int in, int out, const char *local, Error *err) {
        const char *path = json_string_value(json_object_get(t->parameters, "path"));
        int r;

        if (!t->tar)
                return copy_bytes(in, out, local, err);
        r = tree_to_tar(in, out, base_name(path), err);
        return r > 0 ? error_set(err, ERR_CONFLICT, "%d files changed while they were read, and the tar has them cut or filled with zeros", r) : r;
}

// The file appears whole under its name or not at all.
static int pull_file(FileTransfer *t, int in, int dir, const char *local, Error *err) {
        _cleanup_error_ Error local_err = ERROR_NULL;
        _cleanup_free_ char *temp = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (asprintf(&temp, ".%.200s.%d.hostctl", base_name(local), getpid()) < 0)
                return error_set_errno(err, ENOMEM, "%s", local);
        fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot write %s", local);
        r = pull_end(t, in, pull_bytes(t, in, fd, local, &local_err), &local_err, err);
        if (r >= 0 && renameat(dir, temp, dir, base_name(local)) < 0)
                r = error_set_errno(err, errno, "cannot write %s", local);
        if (r < 0)
                (void) unlinkat(dir, temp, 0);
        return r;
}

// A device, pipe or terminal is written to: a rename would put a file in the place of, say, /dev/null.
static bool is_special(const char *path) {
        struct stat st;

        return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static int pull_special(FileTransfer *t, int in, const char *local, Error *err) {
        _cleanup_close_ int fd = open(local, O_WRONLY | O_NOCTTY | O_CLOEXEC);
        _cleanup_error_ Error local_err = ERROR_NULL;

        if (fd < 0)
                return error_set_errno(err, errno, "cannot write %s", local);
        return pull_end(t, in, pull_bytes(t, in, fd, local, &local_err), &local_err, err);
}

static int pull_tree(FileTransfer *t, int in, int dir, const char *local, Error *err) {
        _cleanup_error_ Error local_err = ERROR_NULL;
        TreeOptions options = {.name = base_name(local), .drop_special = true};
        int r = tree_unpack(dir, in, &options, &local_err);

        return pull_end(t, in, r, &local_err, err);
}

static int pull_one(FileTransfer *t, const char *location, const char *place, bool below, Error *err) {
        _cleanup_free_ char *name = NULL, *path = NULL, *local = NULL, *parent = NULL;
        _cleanup_error_ Error local_err = ERROR_NULL;
        _cleanup_close_ int in = -EBADF, dir = -EBADF;
        int r = args_split_location(location, &name, &path, err);

        if (r < 0)
                return r;
        local = below ? file_place_below(place, path, true) : trimmed(place);
        parent = local ? strdup(local) : NULL;
        if (!parent)
                return error_set_errno(err, ENOMEM, "%s", location);
        char *slash = strrchr(parent, '/');
        if (slash)
                slash[slash == parent] = 0;
        dir = open(slash ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return error_set_errno(err, errno, "cannot open %s", slash ? parent : ".");
        (void) json_object_set_new(t->parameters, "name", json_string(name));
        (void) json_object_set_new(t->parameters, "path", json_string(path));
        r = file_transfer_start(t, false, &in, err);
        if (r < 0)
                return r;
        if (strcmp(place, "-") == 0)
                return pull_end(t, in, pull_bytes(t, in, STDOUT_FILENO, "standard output", &local_err), &local_err, err);
        if ((!t->recursive || t->tar) && is_special(local))
                return pull_special(t, in, local, err);
        return t->recursive && !t->tar ? pull_tree(t, in, dir, local, err) : pull_file(t, in, dir, local, err);
}

int command_file_pull(Cli *cli, Args *args) {
        size_t n = strv_length(args->words);
        FileTransfer t = transfer_of(cli, args);
        _cleanup_error_ Error err = ERROR_NULL;
        const char *place;
        struct stat st;
        bool below;
        int first = 0;

        if (n < 2)
                return cli_fail(&err, error_set(&err, ERR_INVALID, "usage: hostctl file pull %s", args_syntax(args->method)));
        place = args->words[n - 1];
        if (strcmp(place, "-") == 0 && t.recursive && !t.tar)
                return cli_fail(&err, error_set(&err, ERR_INVALID, "a tree cannot go to standard output; name a directory, or add --tar"));
        if (t.tar && n > 2)
                return cli_fail(&err, error_set(&err, ERR_INVALID, "a tar has one tree; pull the others to tars of their own"));
        below = n > 2 || (!t.tar && stat(place, &st) == 0 && S_ISDIR(st.st_mode)) || place[strlen(place) - 1] == '/';
        for (size_t i = 0; i + 1 < n; i++) {
                _cleanup_error_ Error one = ERROR_NULL;
                t.parameters = json_copy(args->parameters);
                int r = pull_one(&t, args->words[i], place, below && strcmp(place, "-") != 0, &one);
                json_decref(t.parameters);
                if (r < 0) {
                        int status = cli_fail(&one, r);
                        first = first ?: status;
                        // A stream that was given up half-way leaves answers behind: the next one starts afresh.
                        cli->client = client_free(cli->client);
                }
        }
        return first;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// What hostd-io does for hostd, turn by turn in this process: outputs that are written, followed, ended and forgotten; its messages; what is left of each.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "io/follower.h"
#include "io/keeper.h"

typedef struct World {
        Keeper keeper;
        int hostd; // our end
        char name[32];
} World;

static void turns(World *world) {
        do
                (void) outputs_flush(&world->keeper.outputs);
        while (loop_turn(world->keeper.outputs.loop, 0) == 1);
}

static IoMessage heard(World *world) {
        IoMessage message;

        turns(world);
        assert_int_equal(recv(world->hostd, &message, sizeof(message), MSG_DONTWAIT), sizeof(message));
        assert_int_equal(message.magic, IO_MAGIC);
        return message;
}

static void connect_hostd(World *world) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        memcpy(address.sun_path + 1, world->name, strlen(world->name));
        world->hostd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(world->hostd, (struct sockaddr *) &address, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + strlen(world->name))), 0);
        IoMessage hello = heard(world);
        assert_int_equal(hello.type, IO_HELLO);
        assert_int_equal(hello.value, IO_VERSION);
}

static int setup(void **state) {
        World *world = calloc(1, sizeof(*world));
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        (void) signal(SIGPIPE, SIG_IGN);
        (void) snprintf(world->name, sizeof(world->name), "test-keeper-%d", (int) getpid());
        memcpy(address.sun_path + 1, world->name, strlen(world->name));
        assert_int_equal(bind(fd, (struct sockaddr *) &address, (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + strlen(world->name))), 0);
        assert_int_equal(listen(fd, 4), 0);
        assert_int_equal(keeper_init(&world->keeper, fd), 0);
        connect_hostd(world);
        assert_int_equal(heard(world).type, IO_READY);
        *state = world;
        return 0;
}

static int teardown(void **state) {
        World *world = *state;

        while (world->keeper.outputs.first)
                (void) output_free(world->keeper.outputs.first);
        assert_int_equal(world->keeper.outputs.n, 0);
        assert_int_equal(follower_count(), 0);
        (void) close_fd(world->keeper.link.fd);
        (void) close_fd(world->keeper.listening.fd);
        (void) close_fd(world->keeper.outputs.loop);
        (void) close_fd(world->hostd);
        free(world);
        return 0;
}

static IoMessage ask(World *world, IoMessage message, const int *fds, size_t n_fds) {
        static uint64_t cookie;

        message.magic = IO_MAGIC;
        message.cookie = ++cookie;
        assert_int_equal(io_send_fds(world->hostd, &message, sizeof(message), fds, n_fds, 0), sizeof(message));
        IoMessage answer = heard(world);
        assert_int_equal(answer.type, IO_ANSWER);
        assert_int_equal(answer.cookie, cookie);
        assert_string_equal(answer.id, message.id);
        return answer;
}

// Returns the file, of which hostd-io has another descriptor; the command's ends in `out`.
static int begin(World *world, const char *id, int out[2], int values) {
        int file = memfd_create("output", MFD_CLOEXEC), pipes[2][2], n = values >= 0 ? 4 : 3;
        IoMessage message = {.type = IO_NEW, .value = RING_SIZE_MIN};

        (void) snprintf(message.id, sizeof(message.id), "%s", id);
        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
                out[i] = pipes[i][1];
        }
        IoMessage answer = ask(world, message, (int[]) {file, pipes[0][0], pipes[1][0], values}, (size_t) n);
        assert_int_equal(answer.error, 0);
        assert_int_equal(answer.flags, IO_FLAG_LIVE);
        (void) close_fd(pipes[0][0]);
        (void) close_fd(pipes[1][0]);
        (void) close_fd(values);
        return file;
}

static int follow(World *world, const char *id, uint64_t offset, unsigned flags, int file) {
        IoMessage message = {.type = IO_FOLLOW, .offset = offset, .flags = flags};
        int p[2];

        (void) snprintf(message.id, sizeof(message.id), "%s", id);
        assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(ask(world, message, (int[]) {p[1], file}, file >= 0 ? 2 : 1).error, 0);
        (void) close_fd(p[1]);
        return p[0];
}

static void expect_frame(World *world, int fd, IoFrameKind kind, uint64_t offset, const char *text) {
        IoFrame frame;
        char data[256];

        turns(world);
        assert_int_equal(read(fd, &frame, sizeof(frame)), sizeof(frame));
        assert_int_equal(frame.magic, IO_FRAME_MAGIC);
        assert_int_equal(frame.kind, kind);
        assert_int_equal(frame.offset, offset);
        if (!text)
                return;
        assert_int_equal(frame.length, strlen(text));
        assert_int_equal(read(fd, data, frame.length), frame.length);
        assert_memory_equal(data, text, frame.length);
}

static void expect_end(int fd) {
        char c;

        assert_int_equal(read(fd, &c, 1), 0);
        (void) close_fd(fd);
}

static void test_two_streams_and_their_end(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "a", out, -EBADF), follower = follow(world, "a", 0, IO_FLAG_WAIT, -EBADF), now;

        assert_int_equal(write(out[0], "one", 3), 3);
        expect_frame(world, follower, IO_FRAME_OUT, 0, "one");
        assert_int_equal(write(out[1], "two", 3), 3);
        expect_frame(world, follower, IO_FRAME_ERR, 3, "two");
        now = follow(world, "a", 1, 0, -EBADF);
        expect_frame(world, now, IO_FRAME_OUT, 1, "ne");
        expect_frame(world, now, IO_FRAME_ERR, 3, "two");
        expect_frame(world, now, IO_FRAME_NOW, 6, NULL);
        expect_end(now);
        (void) close_fd(out[0]);
        turns(world);
        assert_int_equal(world->keeper.outputs.n, 1);
        (void) close_fd(out[1]);
        IoMessage ended = heard(world);
        assert_int_equal(ended.type, IO_ENDED);
        assert_int_equal(ended.written[0] + ended.written[1], 6);
        assert_int_equal(ended.flags, IO_FLAG_ENDED);
        expect_frame(world, follower, IO_FRAME_ENDED, 6, NULL);
        expect_end(follower);
        assert_int_equal(world->keeper.outputs.n, 0);
        follower = follow(world, "a", 4, IO_FLAG_WAIT, file);
        expect_frame(world, follower, IO_FRAME_ERR, 4, "wo");
        expect_frame(world, follower, IO_FRAME_ENDED, 6, NULL);
        expect_end(follower);
        (void) close_fd(file);
}

static void test_end_takes_what_is_there(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "b", out, -EBADF);

        // Whatever is looked at first, the answer or the pipe.
        IoMessage end = {.magic = IO_MAGIC, .type = IO_END, .id = "b"}, told[2];
        assert_int_equal(write(out[0], "last", 4), 4);
        assert_int_equal(send(world->hostd, &end, sizeof(end), 0), sizeof(end));
        for (size_t i = 0; i < 2; i++)
                told[i] = heard(world);
        IoMessage *ended = told + (told[0].type == IO_ANSWER), *answer = told + (told[0].type != IO_ANSWER);
        assert_int_equal(answer->error, 0);
        assert_int_equal(ended->type, IO_ENDED);
        assert_int_equal(ended->written[0], 4);
        assert_int_equal(write(out[0], "x", 1), -1);
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(out[i]);
        (void) close_fd(file);
}

static void test_both_ends_at_once(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "c", out, -EBADF);
        IoMessage end = {.magic = IO_MAGIC, .type = IO_END, .id = "c"}, first;

        // Nothing is in the pipes: the output goes while it is looked at.
        assert_int_equal(send(world->hostd, &end, sizeof(end), 0), sizeof(end));
        first = heard(world);
        assert_int_equal(first.type, IO_ENDED);
        assert_int_equal(heard(world).error, 0);
        assert_int_equal(world->keeper.outputs.n, 0);
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(out[i]);
        (void) close_fd(file);
}

static void test_forget_ends_followers(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "d", out, -EBADF), follower = follow(world, "d", 0, IO_FLAG_WAIT, -EBADF);

        assert_int_equal(ask(world, (IoMessage) {.type = IO_FORGET, .id = "d"}, NULL, 0).error, 0);
        expect_frame(world, follower, IO_FRAME_GONE, 0, NULL);
        expect_end(follower);
        assert_int_equal(world->keeper.outputs.n, 0);
        assert_int_equal(write(out[0], "x", 1), -1);
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(out[i]);
        // Its writer is gone, and did not end it.
        follower = follow(world, "d", 0, IO_FLAG_WAIT, file);
        expect_frame(world, follower, IO_FRAME_CUT, 0, NULL);
        expect_end(follower);
        (void) close_fd(file);
}

static void test_next_hostd_is_told(void **state) {
        World *world = *state;
        int out[2][2], files[2] = {begin(world, "e", out[0], -EBADF), begin(world, "f", out[1], -EBADF)};
        bool seen[2] = {false, false};

        (void) close_fd(world->hostd);
        turns(world);
        connect_hostd(world);
        for (size_t i = 0; i < 2; i++) {
                IoMessage live = heard(world);
                assert_int_equal(live.type, IO_LIVE);
                seen[strcmp(live.id, "e") == 0 ? 0 : 1] = true;
        }
        assert_true(seen[0] && seen[1]);
        assert_int_equal(heard(world).type, IO_READY);
        for (size_t i = 0; i < 2; i++) {
                for (size_t k = 0; k < 2; k++)
                        (void) close_fd(out[i][k]);
                (void) close_fd(files[i]);
        }
}

static int values_of(const char *name, const char *value) {
        RedactFrame frames[2] = {{.magic = REDACT_MAGIC, .size = (uint32_t) strlen(value)}, {.magic = REDACT_MAGIC}};
        int p[2];

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        memcpy(frames[0].name, name, strlen(name));
        assert_int_equal(write(p[1], frames, sizeof(frames[0])), sizeof(frames[0]));
        assert_int_equal(write(p[1], value, strlen(value)), (ssize_t) strlen(value));
        assert_int_equal(write(p[1], frames + 1, sizeof(frames[1])), sizeof(frames[1]));
        (void) close_fd(p[1]);
        return p[0];
}

static void test_values_are_taken_out(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "g", out, values_of("key", "correct-horse")), follower = follow(world, "g", 0, IO_FLAG_WAIT, -EBADF);

        assert_int_equal(write(out[0], "a correct", 9), 9);
        expect_frame(world, follower, IO_FRAME_OUT, 0, "a ");
        assert_int_equal(write(out[0], "-horse b", 8), 8);
        expect_frame(world, follower, IO_FRAME_OUT, 2, "[secret key] b");
        assert_int_equal(write(out[1], "corr", 4), 4);
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(out[i]);
        IoMessage ended = heard(world);
        assert_int_equal(ended.redacted, 1);
        assert_int_equal(ended.written[1], 4);
        expect_frame(world, follower, IO_FRAME_ERR, 16, "corr");
        expect_frame(world, follower, IO_FRAME_ENDED, 20, NULL);
        expect_end(follower);
        (void) close_fd(file);
}

// All users share what it can.
static void test_followers_of_one_user(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "h", out, -EBADF), p[2];
        static const struct {
                uint64_t uid;
                int error;
        } others[] = {{1000, -EDQUOT}, {1001, 0}, {0, 0}, {1000, -EDQUOT}};

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        for (size_t i = 0; i < IO_FOLLOWERS_USER_MAX; i++)
                assert_int_equal(ask(world, (IoMessage) {.type = IO_FOLLOW, .id = "h", .flags = IO_FLAG_WAIT, .value = 1000}, p + 1, 1).error, 0);
        for (size_t i = 0; i < ELEMENTS(others); i++)
                assert_int_equal(ask(world, (IoMessage) {.type = IO_FOLLOW, .id = "h", .flags = IO_FLAG_WAIT, .value = others[i].uid}, p + 1, 1).error, others[i].error);
        // Those whose readers go make room.
        (void) close_fd(p[0]);
        turns(world);
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        assert_int_equal(ask(world, (IoMessage) {.type = IO_FOLLOW, .id = "h", .flags = IO_FLAG_WAIT, .value = 1000}, p + 1, 1).error, 0);
        for (size_t i = 0; i < 2; i++) {
                (void) close_fd(out[i]);
                (void) close_fd(p[i]);
        }
        (void) close_fd(file);
}

static void test_quit(void **state) {
        World *world = *state;
        int out[2], file = begin(world, "i", out, -EBADF), follower = follow(world, "i", 0, IO_FLAG_WAIT, -EBADF);

        world->keeper.idle_after = USEC_INFINITY;
        assert_int_equal(ask(world, (IoMessage) {.type = IO_QUIT, .id = "-"}, NULL, 0).error, 0);
        expect_frame(world, follower, IO_FRAME_GONE, 0, NULL);
        expect_end(follower);
        assert_int_equal(world->keeper.outputs.n, 0);
        keeper_run(&world->keeper); // returns
        for (size_t i = 0; i < 2; i++)
                (void) close_fd(out[i]);
        (void) close_fd(file);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_two_streams_and_their_end, setup, teardown),
                cmocka_unit_test_setup_teardown(test_end_takes_what_is_there, setup, teardown),
                cmocka_unit_test_setup_teardown(test_both_ends_at_once, setup, teardown),
                cmocka_unit_test_setup_teardown(test_forget_ends_followers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_next_hostd_is_told, setup, teardown),
                cmocka_unit_test_setup_teardown(test_followers_of_one_user, setup, teardown),
                cmocka_unit_test_setup_teardown(test_quit, setup, teardown),
                cmocka_unit_test_setup_teardown(test_values_are_taken_out, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

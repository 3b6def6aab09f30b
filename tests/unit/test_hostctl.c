// SPDX-License-Identifier: GPL-2.0-or-later
// hostctl from end to end against a fake hostd: the real program, the real wire, commands that really run on the pipes and ptys
// that hostctl passed.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/method.h"
#include "base/clock.h"
#include "base/io.h"
#include "guest/tree.h"
#include "wire/server.h"

static char dir[] = "/tmp/hostd-cli.XXXXXX";
static char sock[128];
static pid_t server_pid;

// ---- the fake hostd, in a process of its own ----

typedef struct Running {
        Call *call;
        pid_t pid;
} Running;

static void note(const char *text) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (asprintf(&path, "%s/calls", dir) < 0)
                return;
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        dprintf(fd, "%s\n", text);
}

static void on_gone(Call *call, void *userdata) {
        Running *running = userdata;

        note("gone");
        kill(-running->pid, SIGKILL);
        running->call = NULL;
}

static int on_exit_of(sd_event_source *source, const siginfo_t *info, void *userdata) {
        Running *running = userdata;
        json_t *record;

        if (running->call) {
                record = info->si_code == CLD_EXITED ? json_pack("{s:i}", "exit", info->si_status)
                                                     : json_pack("{s:i}", "signal", info->si_status);
                call_reply(running->call, record);
        }
        free(running);
        return 0;
}

static sd_event *fake_event;

// Runs `fn` in a child that has the call's descriptors as 0, 1 and 2 (or only one of them).
static void run_child(Call *call, unsigned first, unsigned n_fds, int (*fn)(Call *call)) {
        Running *running = calloc(1, sizeof(*running));
        int fds[3] = {-1, -1, -1};

        for (unsigned i = 0; i < n_fds; i++)
                fds[first + i] = call_take_fd(call, i);
        running->call = call;
        running->pid = fork();
        if (running->pid == 0) {
                sigset_t none;
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
                signal(SIGPIPE, SIG_DFL);
                setsid();
                for (int i = 0; i < 3; i++)
                        if (fds[i] >= 0)
                                dup2(fds[i], i);
                if (isatty(0)) {
                        struct termios t;
                        (void) ioctl(0, TIOCSCTTY, 0);
                        // As a guest without a pty of its own: hostctl's is raw until then.
                        tcgetattr(0, &t);
                        t.c_iflag |= ICRNL;
                        t.c_oflag |= OPOST | ONLCR;
                        t.c_lflag |= ISIG | ICANON | ECHO;
                        tcsetattr(0, TCSANOW, &t);
                }
                close_range(3, ~0U, 0);
                _exit(fn(call));
        }
        for (int i = 0; i < 3; i++)
                close_fd(fds[i]);
        call_set_closed(call, on_gone, running);
        assert_true(sd_event_add_child(fake_event, NULL, running->pid, WEXITED, on_exit_of, running) >= 0);
}

static int child_exec(Call *call) {
        const json_t *words = json_object_get(call_parameters(call), "command");
        char *argv[32] = {NULL};

        for (size_t i = 0; i < json_array_size(words) && i < 31; i++)
                argv[i] = strdup(json_string_value(json_array_get(words, i)));
        execvp(argv[0], argv);
        return 127;
}

static char *inside(Call *call) {
        char *path;

        return asprintf(&path, "%s/guest%s", dir, json_string_value(json_object_get(call_parameters(call), "path"))) < 0 ? NULL : path;
}

static int child_push(Call *call) {
        char *path = inside(call), *slash = strrchr(path, '/');
        TreeOptions options = {.name = slash + 1};

        if (json_is_true(json_object_get(call_parameters(call), "recursive"))) {
                *slash = 0;
                return tree_unpack(open(path, O_RDONLY | O_DIRECTORY), 0, &options, NULL) < 0;
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        fchmod(fd, (mode_t) json_integer_value(json_object_get(call_parameters(call), "mode")));
        return tree_unpack_stream(0, fd, NULL) < 0;
}

static int child_pull(Call *call) {
        char *path = inside(call);

        if (json_is_true(json_object_get(call_parameters(call), "recursive")))
                return tree_pack(open(path, O_RDONLY | O_DIRECTORY), ".", 1, NULL, NULL) < 0;
        execlp("cat", "cat", path, NULL);
        return 127;
}

static int child_list(Call *call) {
        return tree_list(open(inside(call), O_RDONLY | O_DIRECTORY), ".", 1, NULL, NULL) < 0;
}

// A hostile name, changes out of order, and for "cut" an end that says so, for "torn" none.
static int child_diff(Call *call) {
        static TreeEntry deleted = {.type = TREE_DIR, .mode = S_IFDIR | 0755, .path = "var", .change = 'D'};
        static TreeEntry added = {.type = TREE_LINK, .mode = S_IFLNK | 0777, .path = "etc/a\nb", .target = "t", .change = 'A'};
        const char *name = json_string_value(json_object_get(call_parameters(call), "name"));
        TreeEntry end = {.type = TREE_END, .size = 2, .change = strcmp(name, "cut") == 0 ? TREE_CHANGES_CUT : 0};

        if (io_write_all(1, TREE_MAGIC, TREE_MAGIC_SIZE) < 0 || tree_write_entry(1, &deleted) < 0 || tree_write_entry(1, &added) < 0)
                return 1;
        return strcmp(name, "torn") != 0 && tree_write_entry(1, &end) < 0;
}

static const char *text_of(Call *call, const char *key) {
        return json_string_value(json_object_get(call_parameters(call), key)) ?: "";
}

static void fake_exec(Call *call) {
        const char *program = json_string_value(json_array_get(json_object_get(call_parameters(call), "command"), 0)) ?: "sh";

        if (strcmp(program, "refuse") == 0) {
                _cleanup_error_ Error err = ERROR_NULL;
                int r = error_set(&err, ERR_NOT_FOUND, "there is no instance \x1b[31m%s", text_of(call, "name"));
                call_error(call, &err, r);
                return;
        }
        call_reply_continues(call, json_pack("{s:s}", "id", "c1"));
        if (strcmp(program, "record") == 0)
                call_reply(call, json_loads(json_string_value(json_array_get(json_object_get(call_parameters(call), "command"), 1)), 0, NULL));
        else
                run_child(call, 0, 3, child_exec);
}

static int on_attach_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        call_reply(userdata, json_pack("{s:i}", "exit", 7));
        return 0;
}

static void fake_start(Call *call) {
        _cleanup_error_ Error err = ERROR_NULL;

        note(text_of(call, "name"));
        if (strcmp(text_of(call, "name"), "bad") == 0)
                call_error(call, &err, error_set(&err, ERR_BUSY, "bad is being deleted"));
        else
                call_reply(call, NULL);
}

static void fake_list(Call *call) {
        call_reply(call, json_pack("{s:[{s:s, s:s, s:I, s:s}, {s:s, s:s, s:n, s:s}]}", "instances", "name", "one", "state", "running",
                                   "memory", (json_int_t) 8 << 30, "description", "a,\"b\"", "name", "bad", "state", "\x1b[2J\nx",
                                   "memory", "description", ""));
}

static void fake_signal(Call *call) {
        note("signal");
        // The commands of the tests tell their process id by a file.
        _cleanup_free_ char *text = NULL;
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%s/pid", dir) >= 0 && io_read_file(AT_FDCWD, path, 64, &text, NULL) >= 0)
                kill((pid_t) strtol(text, NULL, 10), (int) json_integer_value(json_object_get(call_parameters(call), "signal")));
        call_reply(call, NULL);
}

static void fake_carve(Call *call) {
        if (json_is_true(json_object_get(call_parameters(call), "write")))
                note("carved");
        call_reply(call, json_pack("{s:[{s:s}]}", "plan", "name", "agent1"));
}

static void fake_empty(Call *call) {
        call_reply(call, json_pack("{s:[]}", "leaks"));
}

static void fake_doctor(Call *call) {
        call_reply(call, json_pack("{s:[{s:s, s:s}]}", "protections", "protection", "seccomp", "state", "missing"));
}

static void fake_show(Call *call) {
        call_reply(call, json_pack("{s:s, s:{s:i}, s:[{s:s, s:s, s:s}]}", "name", "one", "usage", "pids", 3, "settings", "key", "memory",
                                   "value", "8GiB", "source", "preset"));
}

static void fake_text(Call *call) {
        call_reply(call, json_pack("{s:s}", "text", "line 1\n\x1b[31mline 2\n"));
}

static void fake_events(Call *call) {
        json_t *events = json_pack("{s:[{s:s, s:s, s:s, s:i}]}", "events", "time", "T1", "type", "started", "name", "one", "pid", 5);

        if (!call_wants_more(call)) {
                call_reply(call, events);
                return;
        }
        call_reply_continues(call, events);
        call_reply_continues(call, json_pack("{s:{s:s, s:s}}", "event", "time", "T2", "type", "odd\x1b"));
        call_reply(call, NULL);
}

static void fake_console(Call *call) {
        call_reply_continues(call, json_pack("{s:s}", "name", "one"));
        int fd = call_take_fd(call, 1);
        assert_int_equal(write(fd, "login: ", 7), 7);
        close_fd(fd);
        call_reply(call, NULL);
}

static void fake_network(Call *call) {
        call_reply(call, json_pack("{s:s, s:{s:i}, s:s}", "name", "one", "counters", "tx_bytes", 2048, "rules", "a\nb\n"));
}

static void fake_build(Call *call) {
        call_reply_continues(call, json_pack("{s:s, s:i}", "line", "unpacking", "percent", 40));
        call_reply(call, json_pack("{s:s}", "digest", "abc"));
}

static void fake_attach(Call *call) {
        note("attach");
        assert_true(sd_event_add_time_relative(fake_event, NULL, CLOCK_MONOTONIC, 400000, 0, on_attach_timer, call) >= 0);
}

static void fake_push(Call *call) {
        run_child(call, 0, 1, child_push);
}

static void fake_pull(Call *call) {
        run_child(call, 1, 1, child_pull);
}

static void fake_file_list(Call *call) {
        run_child(call, 1, 1, child_list);
}

static void fake_diff(Call *call) {
        run_child(call, 1, 1, child_diff);
}

static const struct {
        MethodId method;
        void (*answer)(Call *call);
} fakes[] = {
        {METHOD_INSTANCE_LIST, fake_list},   {METHOD_INSTANCE_START, fake_start},  {METHOD_COMMAND_EXEC, fake_exec},
        {METHOD_COMMAND_SIGNAL, fake_signal}, {METHOD_COMMAND_ATTACH, fake_attach}, {METHOD_HOST_CARVE, fake_carve},
        {METHOD_HOST_LEAKS, fake_empty},     {METHOD_HOST_DOCTOR, fake_doctor},    {METHOD_INSTANCE_SHOW, fake_show},
        {METHOD_INSTANCE_LOG, fake_text},    {METHOD_TEMPLATE_BUILD, fake_build},  {METHOD_FILE_PUSH, fake_push},
        {METHOD_EVENTS_FOLLOW, fake_events}, {METHOD_INSTANCE_CONSOLE, fake_console}, {METHOD_NETWORK_SHOW, fake_network},
        {METHOD_FILE_PULL, fake_pull},       {METHOD_FILE_LIST, fake_file_list}, {METHOD_INSTANCE_DIFF, fake_diff},
};

static void on_call(Call *call, void *userdata) {
        _cleanup_error_ Error err = ERROR_NULL;
        MethodId id = method_from_name(call_method(call));
        int r = method_check(method_get(id), call_parameters(call), &err);

        if (r < 0) {
                call_error(call, &err, r);
                return;
        }
        for (size_t i = 0; i < ELEMENTS(fakes); i++)
                if (fakes[i].method == id) {
                        fakes[i].answer(call);
                        return;
                }
        call_error(call, &err, error_set(&err, ERR_UNAVAILABLE, "the fake cannot %s", call_method(call)));
}

static void server_main(int ready) {
        sigset_t mask;
        Server *server;

        sigemptyset(&mask);
        sigaddset(&mask, SIGCHLD);
        sigprocmask(SIG_BLOCK, &mask, NULL);
        assert_true(sd_event_new(&fake_event) >= 0);
        assert_int_equal(server_new(fake_event, server_listen(sock, NULL), on_call, NULL, &server, NULL), 0);
        server_set_description(server, method_description());
        assert_int_equal(write(ready, "r", 1), 1);
        (void) sd_event_loop(fake_event);
        _exit(1);
}

static void server_start(void) {
        int p[2];
        char c;

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        server_pid = fork();
        if (server_pid == 0)
                server_main(p[1]);
        close(p[1]);
        assert_int_equal(read(p[0], &c, 1), 1);
        close(p[0]);
}

static void server_stop(void) {
        kill(server_pid, SIGKILL);
        waitpid(server_pid, NULL, 0);
}

// ---- running hostctl ----

typedef struct Outcome {
        int status;
        char *out, *err;
        size_t out_size;
} Outcome;

static void outcome_done(Outcome *outcome) {
        free(outcome->out);
        free(outcome->err);
}

#define _cleanup_outcome_ _cleanup_(outcome_done)

static pid_t spawn(char *const *argv, int in, int out, int err) {
        pid_t pid = fork();

        if (pid == 0) {
                dup2(in, 0);
                dup2(out, 1);
                dup2(err, 2);
                close_range(3, ~0U, 0);
                setenv("HOSTD_SOCKET", sock, 1);
                execv(getenv("HOSTCTL") ?: "./hostctl", argv);
                _exit(99);
        }
        return pid;
}

static int scratch(const char *name, int flags) {
        _cleanup_free_ char *path = NULL;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        return open(path, flags | O_CLOEXEC, 0600);
}

static char *content(const char *name, size_t *ret_size) {
        _cleanup_free_ char *path = NULL;
        char *text = NULL;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        if (io_read_file(AT_FDCWD, path, 1 << 28, &text, ret_size) < 0)
                return strdup("");
        return text;
}

static void wait_for(const char *name, const char *text) {
        for (int i = 0; i < 500; i++) {
                _cleanup_free_ char *now = content(name, NULL);
                if (strstr(now, text))
                        return;
                usleep(10000);
        }
        fail_msg("%s never said \"%s\"", name, text);
}

static int wait_status(pid_t pid) {
        int status = 0;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// `words` are split at blanks, so no word has one; `input` is a file below the directory.
static Outcome run_input(const char *input, const char *words) {
        _cleanup_close_ int in = input ? scratch(input, O_RDONLY) : open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int out = scratch("out", O_RDWR | O_CREAT | O_TRUNC), err = scratch("err", O_RDWR | O_CREAT | O_TRUNC);
        _cleanup_free_ char *copy = strdup(words);
        char *argv[64] = {"hostctl"}, *save = NULL;
        Outcome outcome = {0};
        size_t n = 1;

        for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
                argv[n++] = w;
        outcome.status = wait_status(spawn(argv, in, out, err));
        outcome.out = content("out", &outcome.out_size);
        outcome.err = content("err", NULL);
        return outcome;
}

#define run(words) run_input(NULL, words)

static void expect(const char *words, int status, const char *out, const char *err) {
        _cleanup_outcome_ Outcome o = run(words);

        if (o.status != status || (out && strcmp(o.out, out) != 0) || (err && !strstr(o.err, err)))
                fail_msg("%s: status %d, out \"%s\", err \"%s\"", words, o.status, o.out, o.err);
}

static void script(const char *name, const char *text) {
        _cleanup_close_ int fd = scratch(name, O_WRONLY | O_CREAT | O_TRUNC);

        assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
}

// "exec one sh DIR/NAME"
static char *exec_script(const char *options, const char *name, const char *text) {
        static char words[512];

        script(name, text);
        snprintf(words, sizeof(words), "exec one %s sh %s/%s", options, dir, name);
        return words;
}

static void test_list(void **state) {
        expect("list -c name,state,memory", 0,
               "NAME  STATE         MEMORY\none   running       8.00GiB\nbad   \\x1b[2J\\x0ax  -\n", NULL);
}

static void test_formats(void **state) {
        _cleanup_outcome_ Outcome json = run("list -f json");
        json_t *reply = json_loads(json.out, 0, NULL);

        assert_int_equal(json_array_size(json_object_get(reply, "instances")), 2);
        json_decref(reply);
        expect("list --format=csv --columns description,memory", 0,
               "description,memory\r\n\"a,\"\"b\"\"\",8589934592\r\n,\r\n", NULL);
        expect("list -c nosuch", 2, "", "unknown column \"nosuch\"; there are: name, state");
        expect("list -f yaml", 2, "", "format");
        expect("show one", 0, "name: one\nusage:\n  pids: 3\n\nsettings:\nKEY     VALUE  SOURCE\nmemory  8GiB   preset\n", NULL);
        expect("show --expanded one", 0, "KEY     VALUE  SOURCE\nmemory  8GiB   preset\n", NULL);
        expect("log one", 0, "line 1\n\\x1b[31mline 2\n", NULL);
}

static void test_many_and_all(void **state) {
        _cleanup_free_ char *calls = NULL, *all = NULL;

        unlinkat(AT_FDCWD, strcat(strcpy((char[160]) {0}, dir), "/calls"), 0);
        expect("start a bad b", 7, "", "bad is being deleted");
        calls = content("calls", NULL);
        assert_string_equal(calls, "a\nbad\nb\n");
        expect("start --all", 7, "", "bad is being deleted");
        all = content("calls", NULL);
        assert_string_equal(all, "a\nbad\nb\none\nbad\n");
        expect("start --all a", 2, "", "not both");
        expect("start A", 2, "", "name \"A\" is not valid");
}

static void test_exit_codes(void **state) {
        static const struct {
                const char *record;
                int status;
                const char *err;
        } cases[] = {
                {"{\"exit\":0}", 0, ""},
                {"{\"exit\":42}", 42, ""},
                {"{\"exit\":127,\"stage\":\"exec\",\"message\":\"no\"}", 127, "hostctl: no"},
                {"{\"signal\":9,\"oom\":true}", 137, "out of memory"},
                {"{\"signal\":9,\"timed_out\":true}", 124, "time was over"},
                {"{}", 125, "neither"},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                _cleanup_free_ char *words = NULL;
                assert_true(asprintf(&words, "exec one record %s", cases[i].record) > 0);
                expect(words, cases[i].status, "", cases[i].err);
        }
        expect("exec one refuse", 125, "", "there is no instance \\x1b[31mone");
        expect("exec one", 2, "", "COMMAND is missing");
        expect("exec one -- sh -c exit", 0, "", NULL);
        expect("exec one false --help -x", 1, "", NULL); // options after the command are the command's
        expect("--socket /nonexistent/s list", 9, "", "is hostd running?");
}

static void test_streams(void **state) {
        _cleanup_outcome_ Outcome o = run(exec_script("", "s1", "echo out; echo err >&2; cat; exit 3"));

        assert_int_equal(o.status, 3);
        assert_string_equal(o.out, "out\n");
        assert_string_equal(o.err, "err\n");
}

static void test_background_child(void **state) {
        usec_t start = clock_monotonic();
        _cleanup_outcome_ Outcome o = run(exec_script("", "s2", "sleep 8 & echo here; exit 0"));

        assert_int_equal(o.status, 0);
        assert_string_equal(o.out, "here\n");
        assert_true(clock_monotonic() - start < 5 * USEC_PER_SEC);
}

static void test_many_bytes(void **state) {
        size_t size = 64 << 20;
        _cleanup_free_ char *data = malloc(size);
        _cleanup_close_ int fd = scratch("big", O_WRONLY | O_CREAT | O_TRUNC);
        uint64_t x = 88172645463325252ULL;

        for (size_t i = 0; i < size; i += 8) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                memcpy(data + i, &x, 8);
        }
        assert_int_equal(io_write_all(fd, data, size), 0);
        _cleanup_outcome_ Outcome o = run_input("big", "exec one cat");
        assert_int_equal(o.status, 0);
        assert_int_equal(o.out_size, size);
        assert_memory_equal(o.out, data, size);
}

// Through a pty in raw mode, both ways. What is sent before the mode changes would be echoed, so the guest says when.
static void test_many_bytes_by_pty(void **state) {
        size_t size = 8 << 20, n;
        _cleanup_free_ char *data = malloc(size), *got = NULL, *shown = NULL;
        _cleanup_close_ int out = scratch("ptyout", O_RDWR | O_CREAT | O_TRUNC), in = -EBADF, feed = -EBADF;
        char path[256], *argv[] = {"hostctl", "exec", "-T", "one", "sh", path, NULL};
        int p[2];

        for (size_t i = 0; i < size; i++)
                data[i] = (char) (i * 7 + (i >> 8) + (i >> 16));
        script("s3", "cd $(dirname $0); stty raw -echo; echo go; head -c 8388608 > got; cat got");
        snprintf(path, sizeof(path), "%s/s3", dir);
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        in = p[0];
        feed = p[1];
        pid_t pid = spawn(argv, in, out, 2);
        wait_for("ptyout", "go");
        assert_int_equal(io_write_all(feed, data, size), 0);
        assert_int_equal(wait_status(pid), 0);
        got = content("got", &n);
        assert_int_equal(n, size);
        assert_memory_equal(got, data, size);
        shown = content("ptyout", &n);
        assert_int_equal(n, size + 3);
        assert_memory_equal(shown + 3, data, size);
}

static void test_pty(void **state) {
        _cleanup_outcome_ Outcome o = run(exec_script("-T", "s4", "test -t 0 && test -t 1 && test -t 2 && echo tty; exit 5"));

        assert_int_equal(o.status, 5);
        assert_string_equal(o.out, "tty\r\n");
}

// The operator's own terminal: raw while the command runs, its size and keys passed on, and given back at the end and on a signal.
static int terminal_session(const char *text, const char *keys, int signal_number, bool *ret_restored) {
        int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
        struct winsize size = {.ws_row = 33, .ws_col = 77};
        struct termios before, after;
        char path[256], *argv[] = {"hostctl", "exec", "one", "sh", path, NULL};

        assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(slave >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0 && tcgetattr(slave, &before) == 0);
        script("s8", text);
        snprintf(path, sizeof(path), "%s/s8", dir);
        unlinkat(AT_FDCWD, strcat(strcpy((char[160]) {0}, dir), "/up"), 0);
        pid_t pid = spawn(argv, slave, slave, slave);
        wait_for("up", "33 77");
        if (keys)
                assert_int_equal(io_write_all(master, keys, strlen(keys)), 0);
        if (signal_number)
                kill(pid, signal_number);
        int status = wait_status(pid);
        assert_int_equal(tcgetattr(slave, &after), 0);
        *ret_restored = before.c_lflag == after.c_lflag && before.c_iflag == after.c_iflag && before.c_oflag == after.c_oflag;
        close(slave);
        close(master);
        return status;
}

static void test_terminal(void **state) {
        bool restored;

        assert_int_equal(terminal_session("cd $(dirname $0); trap 'exit 44' INT; stty size >up; while :; do sleep 0.1; done", "\003", 0, &restored), 44);
        assert_true(restored);
        assert_int_equal(terminal_session("cd $(dirname $0); stty size >up; sleep 20", NULL, SIGTERM, &restored), 128 + SIGTERM);
        assert_true(restored);
}

static void test_reader_goes_away(void **state) {
        usec_t start = clock_monotonic();
        int p[2];
        char *argv[] = {"hostctl", "exec", "one", "yes", NULL}, buf[16];

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        pid_t pid = spawn(argv, open("/dev/null", O_RDONLY | O_CLOEXEC), p[1], 2);
        close(p[1]);
        assert_true(read(p[0], buf, sizeof(buf)) > 0);
        close(p[0]);
        assert_int_equal(wait_status(pid), 128 + SIGPIPE); // yes(1) was told
        assert_true(clock_monotonic() - start < 5 * USEC_PER_SEC);
}

static pid_t spawn_script(const char *name, const char *text, int out) {
        char path[256], *argv[] = {"hostctl", "exec", "one", "sh", path, NULL};

        script(name, text);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        return spawn(argv, open("/dev/null", O_RDONLY | O_CLOEXEC), out, 2);
}

static void test_signals_are_forwarded(void **state) {
        _cleanup_close_ int out = scratch("sigout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s5", "trap 'echo got; exit 9' TERM; echo $$ > $(dirname $0)/pid; echo up; while :; do sleep 0.1; done", out);

        wait_for("sigout", "up");
        kill(pid, SIGTERM);
        assert_int_equal(wait_status(pid), 9);
        wait_for("sigout", "got");
}

static void test_killed_client_kills_command(void **state) {
        _cleanup_close_ int out = scratch("killout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s6", "echo up; sleep 20", out);

        wait_for("killout", "up");
        kill(pid, SIGKILL);
        assert_int_equal(wait_status(pid), 1000 + SIGKILL);
        wait_for("calls", "gone");
}

// hostd dies and comes back: the streams go on and the record is asked for again.
static void test_restart_of_hostd(void **state) {
        _cleanup_close_ int out = scratch("restout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s7", "echo before; sleep 0.5; echo after", out);

        wait_for("restout", "before");
        server_stop();
        usleep(200000);
        server_start();
        assert_int_equal(wait_status(pid), 7);
        wait_for("restout", "after");
        wait_for("calls", "attach");
}

static void test_signals_while_hostd_is_away(void **state) {
        _cleanup_close_ int out = scratch("awayout", O_RDWR | O_CREAT | O_TRUNC);
        pid_t pid = spawn_script("s9", "echo up; sleep 2", out);

        wait_for("awayout", "up");
        server_stop();
        usleep(200000);
        kill(pid, SIGTERM); // kept for hostd
        usleep(200000);
        kill(pid, SIGINT); // insists
        assert_int_equal(wait_status(pid), 128 + SIGINT);
        server_start();
}

static void test_exit_status_is_the_answer(void **state) {
        expect("leaks", 0, "", NULL);
        expect("doctor", 1, NULL, NULL);
        expect("template build agent", 0, "digest: abc\n", " 40% unpacking");
        expect("carve -n 1", 0, NULL, "only the plan");
        expect("carve -n 1 -y", 0, NULL, "Created 1");
        wait_for("calls", "carved");
}

static void run_ok(const char *format, ...) {
        char words[1024];
        va_list ap;

        va_start(ap, format);
        vsnprintf(words, sizeof(words), format, ap);
        va_end(ap);
        _cleanup_outcome_ Outcome o = run(words);
        if (o.status != 0)
                fail_msg("%s: %d %s", words, o.status, o.err);
}

static void test_files(void **state) {
        _cleanup_free_ char *a = NULL, *b = NULL, *c = NULL, *path = NULL;

        assert_true(asprintf(&path, "%s/guest", dir) > 0);
        mkdir(path, 0700);
        script("local", "hello\n");
        run_ok("file push %s/local one:/x", dir);
        a = content("guest/x", NULL);
        assert_string_equal(a, "hello\n");
        run_ok("file pull one:/x %s/back", dir);
        b = content("back", NULL);
        assert_string_equal(b, "hello\n");
        expect("file pull one:/x -", 0, "hello\n", NULL);
        // What is no file stays what it is: a rename would have replaced /dev/null.
        _cleanup_free_ char *pipe_path = NULL;
        char got[8] = "";
        struct stat st;
        assert_true(asprintf(&pipe_path, "%s/pipe", dir) > 0 && mkfifo(pipe_path, 0600) == 0);
        _cleanup_close_ int reader = open(pipe_path, O_RDWR | O_CLOEXEC);
        run_ok("file pull one:/x %s", pipe_path);
        assert_int_equal(read(reader, got, sizeof(got)), 6);
        assert_string_equal(got, "hello\n");
        assert_true(stat(pipe_path, &st) == 0 && S_ISFIFO(st.st_mode));
        free(path);
        assert_true(asprintf(&path, "%s/tree", dir) > 0);
        mkdir(path, 0700);
        script("tree/leaf", "leaf\n");
        run_ok("file push -r %s/tree one:/t", dir);
        run_ok("file pull -r one:/t %s/tree2", dir);
        c = content("tree2/leaf", NULL);
        assert_string_equal(c, "leaf\n");
        _cleanup_outcome_ Outcome list = run("file list one:/t -c mode,size,path");
        assert_int_equal(list.status, 0);
        assert_non_null(strstr(list.out, "-rw-------  5B    leaf"));
        expect("file push nosuch one:/x", 3, "", "cannot open nosuch");
        expect("file push /tmp one:/x", 2, "", "add --recursive");
        expect("file push /etc/hostname one:../x", 2, "", "path");
        expect("file pull one", 2, "", "usage");
}

static void test_diff(void **state) {
        expect("diff one", 0, "A /etc/a\\x0ab\nD /var\n", NULL);
        expect("diff cut", 0, "A /etc/a\\x0ab\nD /var\n", "only the first 2 changes");
        expect("diff torn", 2, "", "ends too early");
        expect("diff one -f csv", 2, "", "table or json");
        _cleanup_outcome_ Outcome o = run("diff cut --format json");
        json_t *reply = json_loads(o.out, 0, NULL), *first = json_array_get(json_object_get(reply, "changes"), 0);
        assert_int_equal(o.status, 0);
        assert_true(json_is_false(json_object_get(reply, "complete")));
        assert_string_equal(json_string_value(json_object_get(first, "path")), "/etc/a\nb");
        assert_string_equal(json_string_value(json_object_get(first, "target")), "t");
        assert_string_equal(json_string_value(json_object_get(first, "type")), "link");
        json_decref(reply);
}

static void test_events_console_network(void **state) {
        expect("events", 0, "T1  started  one  pid=5\n", NULL);
        expect("events --follow", 0, "T1  started  one  pid=5\nT2  odd\\x1b\n", NULL);
        expect("console one", 0, "login: ", NULL);
        expect("network show one", 0, "name: one\ncounters:\n  tx_bytes: 2.00KiB\n\nrules:\na\nb\n", NULL);
        expect("help events", 0, NULL, NULL);
        expect("--version", 0, NULL, NULL);
        expect("", 2, "", "Usage");
        expect("lsit", 2, "", "did you mean \"list\"?");
}

static void test_stdio(void **state) {
        static const char call[] = "{\"method\":\"org.varlink.service.GetInfo\"}";
        _cleanup_close_ int fd = scratch("ask", O_WRONLY | O_CREAT | O_TRUNC);

        assert_int_equal(io_write_all(fd, call, sizeof(call)), 0);
        _cleanup_outcome_ Outcome o = run_input("ask", "stdio");
        assert_int_equal(o.status, 0);
        assert_non_null(strstr(o.out, "io.hostd.Instance"));
        assert_int_equal(o.out[o.out_size - 1], 0);
}

static int setup(void **state) {
        if (!mkdtemp(dir))
                return -1;
        snprintf(sock, sizeof(sock), "%s/sock", dir);
        server_start();
        return 0;
}

static int teardown(void **state) {
        server_stop();
        return io_remove_tree(AT_FDCWD, dir);
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_list),        cmocka_unit_test(test_formats),
                cmocka_unit_test(test_many_and_all), cmocka_unit_test(test_exit_codes),
                cmocka_unit_test(test_streams),     cmocka_unit_test(test_background_child),
                cmocka_unit_test(test_many_bytes),  cmocka_unit_test(test_many_bytes_by_pty), cmocka_unit_test(test_pty),
                cmocka_unit_test(test_terminal), cmocka_unit_test(test_reader_goes_away), cmocka_unit_test(test_signals_are_forwarded),
                cmocka_unit_test(test_killed_client_kills_command), cmocka_unit_test(test_restart_of_hostd),
                cmocka_unit_test(test_signals_while_hostd_is_away), cmocka_unit_test(test_exit_status_is_the_answer), cmocka_unit_test(test_files),
                cmocka_unit_test(test_diff), cmocka_unit_test(test_events_console_network), cmocka_unit_test(test_stdio),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}

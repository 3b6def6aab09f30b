// SPDX-License-Identifier: GPL-2.0-or-later
// Fake hostd: see fake_hostd.h.
#include "fake_hostd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/method.h"
#include "base/io.h"
#include "guest/tree_list.h"
#include "wire/server.h"

char fake_dir[FAKE_DIR_MAX] = "/tmp/hostd-cli.XXXXXX";
char fake_socket[128];
static pid_t server_pid;

typedef struct Running {
        Call *call;
        pid_t pid;
} Running;

static void note(const char *text) {
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (asprintf(&path, "%s/calls", fake_dir) < 0)
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
                signal(SIGINT, SIG_DFL); // ignored where the tests were started in the background
                signal(SIGQUIT, SIG_DFL);
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

        return asprintf(&path, "%s/guest%s", fake_dir, json_string_value(json_object_get(call_parameters(call), "path"))) < 0 ? NULL : path;
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

// A hostile name, one that is no text, and what was there no more when it was told.
static int child_watch(Call *call) {
        TreeLister *lister;
        static const struct {
                const char *path;
                mode_t mode;
                char event;
        } events[] = {{"a\nb", S_IFREG | 0644, 'C'}, {"d/\033[1m", 0, 'D'}, {"\xff", 0, 'F'}, {".", 0, '!'}, {".", 0, 'G'}};

        if (tree_lister_new(1, &lister) < 0)
                return 1;
        for (size_t i = 0; i < ELEMENTS(events); i++) {
                lister->entry = (TreeEntry) {.type = events[i].mode ? TREE_FILE : TREE_OTHER, .mode = events[i].mode, .change = events[i].event};
                (void) snprintf(lister->entry.path, sizeof(lister->entry.path), "%s", events[i].path);
                if (tree_lister_emit(lister) < 0)
                        return 1;
        }
        return tree_lister_end(lister) < 0;
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
        if (asprintf(&path, "%s/pid", fake_dir) >= 0 && io_read_file(AT_FDCWD, path, 64, &text, NULL) >= 0)
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

// A terminal that never ends of itself, and says what it is told.
static int child_console(Call *call) {
        char line[64];

        signal(SIGHUP, SIG_IGN); // hostctl's end of the pty may be gone before its connection is
        printf("login: ");
        fflush(stdout);
        while (fgets(line, sizeof(line), stdin))
                printf("it was %s", line), fflush(stdout);
        pause();
        return 0;
}

static void fake_console_stays(Call *call) {
        call_reply_continues(call, json_pack("{s:s}", "name", "stays"));
        run_child(call, 0, 3, child_console);
}

static void fake_console(Call *call) {
        if (strcmp(text_of(call, "name"), "stays") == 0) {
                fake_console_stays(call);
                return;
        }
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

static void fake_watch(Call *call) {
        run_child(call, 1, 1, child_watch);
}

static void fake_diff(Call *call) {
        run_child(call, 1, 1, child_diff);
}

// The newest first; a control character, although hostd-flow writes none.
static int child_flows(Call *call) {
        bool why = strstr(call_method(call), "Why");

        if (why) // from a hostd-flow that was conquered
                fputs("{\"time\":\"T5\",\"verdict\":\"deny\",\"kind\":\"http\",\"name\":\"$(id).example\",\"address\":\"192.0.2.1\",\"port\":80,"
                      "\"reason\":\"denied: no rule allows it\"}\n"
                      "{\"time\":\"T4\",\"verdict\":\"deny\",\"kind\":\"kernel\",\"address\":\"192.0.2.1;id\",\"reason\":\"denied: no rule allows it\"}\n",
                      stdout);
        fputs("{\"time\":\"T3\",\"verdict\":\"deny\",\"kind\":\"tls\",\"name\":\"evil.example\",\"address\":\"192.0.2.1\",\"protocol\":\"tcp\","
              "\"port\":443,\"reason\":\"denied: no rule allows it\"}\n"
              "{\"time\":\"T2\",\"verdict\":\"deny\",\"kind\":\"kernel\",\"address\":\"2001:db8::1\",\"protocol\":\"udp\",\"port\":53,\"policy\":\"web\","
              "\"rule\":2,\"reason\":\"denied by rule 2 of policy web: ::/0 any\"}\n", stdout);
        if (json_is_true(json_object_get(call_parameters(call), "denied")) || why)
                fputs("{\"time\":\"T1\",\"verdict\":\"deny\",\"kind\":\"tls\",\"name\":\"evil.example\",\"address\":\"192.0.2.2\",\"protocol\":\"tcp\","
                      "\"port\":443,\"reason\":\"denied: no rule allows it\"}\n"
                      "{\"time\":\"T0\",\"verdict\":\"deny\",\"kind\":\"kernel\",\"address\":\"192.0.2.9\",\"protocol\":\"47\",\"reason\":\"over budget\"}\n", stdout);
        else
                fputs("{\"time\":\"T1\",\"verdict\":\"allow\",\"kind\":\"kernel\",\"address\":\"192.0.2.1\",\"protocol\":\"tcp\",\"port\":22,\"policy\":\"web\","
                      "\"rule\":1,\"sent\":2048,\"received\":3,\"duration\":1500000,\"reason\":\"a\\u001bb\"}\nno line\n", stdout);
        if (strcmp(text_of(call, "name"), "cut") != 0)
                fputs("{\"end\":true,\"torn\":1}\n", stdout);
        return fflush(stdout);
}

static void fake_flows(Call *call) {
        run_child(call, 1, 1, child_flows);
}

// Answers with what came, which hostd would never do.
static void fake_secret(Call *call) {
        _cleanup_close_ int fd = call_take_fd(call, 0);
        _cleanup_free_ char *value = NULL;
        size_t size = 0;

        assert_true(io_read_all(fd, 65536, &value, &size) >= 0);
        call_reply(call, json_pack("{s:s, s:i}", "value", size < 100 ? value : "", "version", (int) size));
}

// Tells what it was asked.
static void fake_told(Call *call) {
        _cleanup_free_ char *text = json_dumps(call_parameters(call), JSON_SORT_KEYS | JSON_COMPACT);
        _cleanup_error_ Error err = ERROR_NULL;

        call_error(call, &err, error_set(&err, ERR_CONFLICT, "asked %s", text ?: ""));
}

static const struct {
        MethodId method;
        void (*answer)(Call *call);
} fakes[] = {
        {METHOD_FILE_MOVE, fake_told},       {METHOD_FILE_MKDIR, fake_told},       {METHOD_FILE_CHMOD, fake_told},
        {METHOD_FILE_WATCH, fake_watch},
        {METHOD_FILE_CHOWN, fake_told},      {METHOD_FILE_REMOVE, fake_told},      {METHOD_FILE_STAT, fake_file_list},
        {METHOD_INSTANCE_LIST, fake_list},   {METHOD_INSTANCE_START, fake_start},  {METHOD_COMMAND_EXEC, fake_exec},
        {METHOD_COMMAND_SIGNAL, fake_signal}, {METHOD_COMMAND_ATTACH, fake_attach}, {METHOD_HOST_CARVE, fake_carve},
        {METHOD_HOST_LEAKS, fake_empty},     {METHOD_HOST_DOCTOR, fake_doctor},    {METHOD_INSTANCE_SHOW, fake_show},
        {METHOD_INSTANCE_LOG, fake_text},    {METHOD_TEMPLATE_BUILD, fake_build},  {METHOD_FILE_PUSH, fake_push},
        {METHOD_EVENTS_FOLLOW, fake_events}, {METHOD_INSTANCE_CONSOLE, fake_console}, {METHOD_NETWORK_SHOW, fake_network},
        {METHOD_SECRET_SET, fake_secret},    {METHOD_SECRET_ROTATE, fake_secret},
        {METHOD_INSTANCE_FLOWS, fake_flows}, {METHOD_INSTANCE_WHY, fake_flows},
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
        assert_int_equal(server_new(fake_event, server_listen(fake_socket, NULL), on_call, NULL, &server, NULL), 0);
        server_set_description(server, method_description());
        assert_int_equal(write(ready, "r", 1), 1);
        (void) sd_event_loop(fake_event);
        _exit(1);
}

void fake_hostd_start(void) {
        int p[2];
        char c;

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        server_pid = fork();
        if (server_pid == 0) {
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that was killed leaves nothing
                server_main(p[1]);
        }
        close(p[1]);
        assert_int_equal(read(p[0], &c, 1), 1);
        close(p[0]);
}

void fake_hostd_stop(void) {
        kill(server_pid, SIGKILL);
        waitpid(server_pid, NULL, 0);
}

int fake_hostd_setup(void **state) {
        if (!mkdtemp(fake_dir))
                return -1;
        snprintf(fake_socket, sizeof(fake_socket), "%s/sock", fake_dir);
        fake_hostd_start();
        return 0;
}

int fake_hostd_teardown(void **state) {
        fake_hostd_stop();
        return io_remove_tree(AT_FDCWD, fake_dir);
}

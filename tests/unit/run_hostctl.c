// SPDX-License-Identifier: GPL-2.0-or-later
// Running hostctl: see run_hostctl.h.
#include "run_hostctl.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"

void outcome_done(Outcome *outcome) {
        free(outcome->out);
        free(outcome->err);
}

pid_t spawn(char *const *argv, int in, int out, int err) {
        pid_t pid = fork();

        if (pid == 0) {
                dup2(in, 0);
                dup2(out, 1);
                dup2(err, 2);
                close_range(3, ~0U, 0);
                setenv("HOSTD_SOCKET", fake_socket, 1);
                execv(getenv("HOSTCTL") ?: "./hostctl", argv);
                _exit(99);
        }
        return pid;
}

int scratch(const char *name, int flags) {
        _cleanup_free_ char *path = NULL;

        assert_true(asprintf(&path, "%s/%s", fake_dir, name) > 0);
        return open(path, flags | O_CLOEXEC, 0600);
}

char *content(const char *name, size_t *ret_size) {
        _cleanup_free_ char *path = NULL;
        char *text = NULL;

        assert_true(asprintf(&path, "%s/%s", fake_dir, name) > 0);
        if (io_read_file(AT_FDCWD, path, 1 << 28, &text, ret_size) < 0)
                return strdup("");
        return text;
}

void wait_for(const char *name, const char *text) {
        for (int i = 0; i < 500; i++) {
                _cleanup_free_ char *now = content(name, NULL);
                if (strstr(now, text))
                        return;
                usleep(10000);
        }
        fail_msg("%s never said \"%s\"", name, text);
}

int wait_status(pid_t pid) {
        int status = 0;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

Outcome run_input(const char *input, const char *words) {
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

void expect(const char *words, int status, const char *out, const char *err) {
        _cleanup_outcome_ Outcome o = run(words);

        if (o.status != status || (out && strcmp(o.out, out) != 0) || (err && !strstr(o.err, err)))
                fail_msg("%s: status %d, out \"%s\", err \"%s\"", words, o.status, o.out, o.err);
}

void script(const char *name, const char *text) {
        _cleanup_close_ int fd = scratch(name, O_WRONLY | O_CREAT | O_TRUNC);

        assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
}

char *exec_script(const char *options, const char *name, const char *text) {
        static char words[512];

        script(name, text);
        snprintf(words, sizeof(words), "exec one %s sh %s/%s", options, fake_dir, name);
        return words;
}

void run_ok(const char *format, ...) {
        char words[1024];
        va_list ap;

        va_start(ap, format);
        vsnprintf(words, sizeof(words), format, ap);
        va_end(ap);
        _cleanup_outcome_ Outcome o = run(words);
        if (o.status != 0)
                fail_msg("%s: %d %s", words, o.status, o.err);
}

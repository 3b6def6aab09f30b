// SPDX-License-Identifier: GPL-2.0-or-later
// File operations in the instance of guest.c: what they refuse, what a sender that dies leaves, owners, trees.
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest/tree.h"
#include "guest_run.h"

static bool file_gives(GuestVerb verb, const char *path, unsigned flags, int errnum) {
        _cleanup_(run_free) Run r = {.input = "data", .request = {.verb = verb, .path = path, .user = "agent", .flags = flags}};

        run(&r);
        if (r.record.errnum != errnum)
                fprintf(stderr, "verb %d %s: exit %d errno %d: %s %s\n", verb, path, r.record.exit, r.record.errnum, r.record.message ?: "", r.output ?: "");
        return r.record.errnum == errnum && (r.record.exit == 0) == (errnum == 0);
}

void test_files(void) {
        CHECK(file_gives(GUEST_WRITE, "/mnt/home/new", 0, 0));
        CHECK(shell_gives("stat -c '%a %U %s' new; chmod 600 new", "agent", "644 agent 4\n"));
        CHECK(file_gives(GUEST_WRITE, "/mnt/home/new", 0, 0));
        CHECK(shell_gives("stat -c '%a' new; cat new; mkfifo ff; mkdir -p d/e; ln -s new ln; ln -s . self; touch d/x", "agent", "600\ndata"));
        CHECK(file_gives(GUEST_READ, "/mnt/home/new", 0, 0));
        CHECK(file_gives(GUEST_READ, "/mnt/home/ln", 0, 0));
        CHECK(file_gives(GUEST_READ, "/mnt/home/none", 0, ENOENT));
        CHECK(file_gives(GUEST_READ, "/mnt/home/ff", 0, EOPNOTSUPP));
        CHECK(file_gives(GUEST_READ, "/dev/zero", 0, EOPNOTSUPP));
        CHECK(file_gives(GUEST_READ, "/mnt/home/d", 0, EISDIR));
        CHECK(file_gives(GUEST_READ, "/proc/self/fd/0", 0, ELOOP));
        CHECK(file_gives(GUEST_WRITE, "/mnt/home/ff", 0, EOPNOTSUPP));
        CHECK(file_gives(GUEST_WRITE, "/mnt/home/ln", 0, ELOOP));
        CHECK(file_gives(GUEST_WRITE, "/mnt/home/d", 0, EISDIR));
        CHECK(file_gives(GUEST_WRITE, "/etc/hostd-test", 0, EACCES));
        CHECK(file_gives(GUEST_READ, "/mnt/home", GUEST_FLAG_RECURSIVE, 0));
        CHECK(file_gives(GUEST_READ, "/mnt/home/new", GUEST_FLAG_RECURSIVE, 0));
        CHECK(file_gives(GUEST_LIST, "/mnt/home", 0, 0));
        CHECK(file_gives(GUEST_LIST, "/mnt/home/ff", 0, 0));
        CHECK(file_gives(GUEST_LIST, "/mnt/none", 0, ENOENT));
        CHECK(file_gives(GUEST_REMOVE, "/mnt/home/d", 0, ENOTEMPTY));
        CHECK(file_gives(GUEST_REMOVE, "/mnt/home/d", GUEST_FLAG_RECURSIVE, 0));
        CHECK(file_gives(GUEST_REMOVE, "/mnt/home/self", GUEST_FLAG_RECURSIVE, 0));
        CHECK(file_gives(GUEST_REMOVE, "/mnt/home/ff", 0, 0));
        CHECK(file_gives(GUEST_REMOVE, "/mnt/home/ff", 0, ENOENT));
        CHECK(shell_gives("ls -A; rm -f *", "agent", "ln\nnew\n"));
        _cleanup_(run_free) Run r = {.request = {.verb = GUEST_REMOVE, .path = "/mnt/tree", .flags = GUEST_FLAG_RECURSIVE}};
        run(&r);
        CHECK(r.record.errnum == EXDEV || r.record.errnum == EBUSY);
        CHECK(shell_gives("cat /mnt/keep/file", NULL, "kept"));
}

static bool word_gives(GuestVerb verb, const char *path, char *const *words, const char *expected) {
        _cleanup_(run_free) Run r = {.request = {.verb = verb, .path = path, .user = "agent", .argv = words}};

        run(&r);
        if (r.record.exit != 0 || strcmp(r.output, expected) != 0)
                fprintf(stderr, "verb %d %s: exit %d errno %d: %s\n", verb, path, r.record.exit, r.record.errnum, r.output ?: "");
        return r.record.exit == 0 && strcmp(r.output, expected) == 0;
}

#define WORDS(...) ((char *[]) {__VA_ARGS__, NULL})

// Parts of a file.
void test_range(void) {
        CHECK(shell_gives("printf 0123456789 >digits", "agent", ""));
        CHECK(word_gives(GUEST_READ, "/mnt/home/digits", WORDS((char *) "offset=3"), "3456789"));
        CHECK(word_gives(GUEST_READ, "/mnt/home/digits", WORDS((char *) "offset=3", (char *) "length=4"), "3456"));
        CHECK(word_gives(GUEST_READ, "/mnt/home/digits", WORDS((char *) "length=0"), ""));
        CHECK(word_gives(GUEST_READ, "/mnt/home/digits", WORDS((char *) "offset=10"), ""));
        CHECK(word_gives(GUEST_READ, "/mnt/home/digits", WORDS((char *) "offset=8", (char *) "length=9223372036854775807"), "89"));
        for (int i = 0; i < 4; i++) {
                static const char *const bad[] = {"offset=-1", "offset=", "length=9x", "offset=9223372036854775808"};
                _cleanup_(run_free) Run r = {.request = {.verb = GUEST_READ, .path = "/mnt/home/digits", .argv = WORDS((char *) bad[i])}};
                run(&r);
                CHECK(r.record.errnum == EINVAL);
        }
        CHECK(shell_gives("rm digits", "agent", ""));
}

// What is said of files: the reader of lists is tested elsewhere, here that the right ones are in them.
void test_lists(void) {
        _cleanup_(run_free) Run one = {.request = {.verb = GUEST_STAT, .path = "/mnt/home/d/ln", .user = "agent"}};
        _cleanup_(run_free) Run deep = {.request = {.verb = GUEST_LIST, .path = "/mnt/home", .user = "agent", .argv = WORDS((char *) "depth=3")}};
        _cleanup_(run_free) Run found = {.request = {.verb = GUEST_SEARCH, .path = "/mnt/home", .user = "agent", .argv = WORDS((char *) "pattern=*.c")}};

        CHECK(shell_gives("mkdir -p d/e; touch d/e/f.c d/x; ln -s /etc/shadow d/ln", "agent", ""));
        run(&one);
        CHECK(one.record.exit == 0 && memmem(one.output, 4096, "./etc/shadowagentagent", 22));
        run(&deep);
        CHECK(deep.record.exit == 0 && memmem(deep.output, 4096, "d/e/f.cagentagent", 17) && memmem(deep.output, 4096, "d/ln/etc/shadow", 15));
        run(&found);
        CHECK(found.record.exit == 0 && memmem(found.output, 4096, "d/e/f.c", 7) && !memmem(found.output, 4096, "d/ln", 4));
        CHECK(file_gives(GUEST_STAT, "/mnt/home/none", 0, ENOENT));
        CHECK(file_gives(GUEST_STAT, "/", 0, 0));
        CHECK(file_gives(GUEST_STAT, "/proc/self/fd/0", 0, 0)); // the link, which is not followed
        CHECK(file_gives(GUEST_LIST, "/proc/self/root", 0, ELOOP));
        CHECK(file_gives(GUEST_SEARCH, "/mnt/home/none", 0, ENOENT));
        CHECK(shell_gives("rm -r d; ls -A", "agent", ""));
}

// A sender that dies in the middle, and one that goes away without closing.
void test_torn(void) {
        _cleanup_(run_free) Run dead = {.request = {.verb = GUEST_WRITE, .path = "/mnt/home/torn", .user = "agent"}};
        _cleanup_(run_free) Run stuck = {.request = dead.request};
        char block[65536] = {0};
        int p[2], out;

        CHECK(shell_gives("echo old >torn", "agent", ""));
        for (int i = 0; i < 2; i++) {
                Run *r = i == 0 ? &dead : &stuck;
                CommandRequest request = {.instance = "test", .channel = channel, .done = run_done, .userdata = r, .guest = r->request};
                int pack[2];
                if (pipe2(p, O_CLOEXEC) < 0 || pipe2(pack, O_CLOEXEC) < 0 || (out = open("/dev/null", O_WRONLY | O_CLOEXEC)) < 0)
                        abort();
                request.fds = (int[]) {p[0], out, out};
                pid_t pid = fork();
                if (pid == 0)
                        _exit(tree_pack_stream(pack[0], "pack", p[1], NULL) < 0);
                (void) close(pack[0]);
                CHECK(command_start(manager, &request, &r->command, NULL) == 0);
                CHECK(io_write_all(pack[1], block, sizeof(block)) == 0);
                loop_for(100 * USEC_PER_MSEC);
                CHECK(!r->done && shell_gives("ls -A", "agent", "torn\n")); // what is not whole has no name
                if (i == 1)
                        command_abandon(r->command, 200 * USEC_PER_MSEC);
                else {
                        (void) kill(pid, SIGKILL);
                        (void) close(p[1]);
                        command_abandon(r->command, 5 * USEC_PER_SEC);
                }
                loop_wait(&r->done, 3 * USEC_PER_SEC);
                (void) kill(pid, SIGKILL);
                (void) close(pack[1]);
                (void) close(p[0]);
                if (i == 1)
                        (void) close(p[1]);
                (void) close(out);
                CHECK(r->done && r->record.exit != 0 && r->record.cancelled == (i == 1));
                if (i == 0)
                        CHECK(r->record.errnum == EBADMSG && shell_gives("ls -A; cat torn", "agent", "torn\nold\n"));
        }
        CHECK(shell_gives("cat torn; ls -A; rm torn", "agent", "old\ntorn\n"));
}

// Root replaces what is another's, by one file and in a tree; a listing shows names.
void test_owner(void) {
        _cleanup_(run_free) Run write = {.input = "new", .request = {.verb = GUEST_WRITE, .path = "/mnt/home/mine", .mode = 04711}};
        _cleanup_(run_free) Run list = {.request = {.verb = GUEST_LIST, .path = "/mnt/home"}};

        CHECK(shell_gives("echo old >mine; chgrp extra mine", "agent", ""));
        run(&write);
        CHECK(write.record.exit == 0);
        CHECK(shell_gives("stat -c '%U %G %a' mine; cat mine", "agent", "agent extra 4711\nnew"));
        CHECK(shell_gives("cd /mnt/home; chown 777:778 mine; touch other", NULL, ""));
        run(&list);
        CHECK(list.record.exit == 0 && memmem(list.output, 4096, "otherrootroot", 13) && !memmem(list.output, 4096, "mineagent", 9));
        CHECK(shell_gives("cd /mnt/home; chown agent:agent mine; rm /mnt/home/other", NULL, ""));
        _cleanup_(run_free) Run again = {.request = list.request};
        run(&again);
        CHECK(memmem(again.output, 4096, "mineagentagent", 14));
        CHECK(shell_gives("rm mine; ls -A", "agent", ""));
}

void test_tree(void) {
        char dir[] = "/tmp/hostd-guest-tree.XXXXXX";
        _cleanup_close_ int top = -EBADF;
        int p[2];
        Run r = {0};
        CommandRequest request = {.instance = "test", .channel = channel, .done = run_done, .userdata = &r,
                                  .guest = {.path = "/mnt/home/t", .user = "agent", .flags = GUEST_FLAG_RECURSIVE}};

        if (!mkdtemp(dir) || (top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || io_mkdir_p(top, "src/a", 0755) < 0 ||
            io_write_atomic(top, "src/a/f", "text", 4, 0750) < 0 || symlinkat("f", top, "src/a/l") < 0)
                abort();
        for (int i = 0; i < 2; i++) {
                if (pipe2(p, O_CLOEXEC) < 0)
                        abort();
                request.guest.verb = i == 0 ? GUEST_WRITE : GUEST_READ;
                request.fds = (int[]) {p[0], i == 0 ? 2 : p[1], 2};
                if (i == 0)
                        CHECK(tree_pack(top, "src", p[1], NULL, NULL) == 0);
                CHECK(command_start(manager, &request, &r.command, NULL) == 0);
                (void) close(p[1]);
                loop_wait(&r.done, 5 * USEC_PER_SEC);
                CHECK(r.record.exit == 0);
                if (i == 1)
                        CHECK(tree_unpack(top, p[0], &(TreeOptions) {.name = "back", .drop_special = true}, NULL) == 0);
                (void) close(p[0]);
                run_free(&r);
        }
        _cleanup_free_ char *text = NULL;
        CHECK(io_read_file(top, "back/a/f", 100, &text, NULL) == 0 && strcmp(text, "text") == 0);
        CHECK(shell_gives("stat -c '%a %U' t/a/f; readlink t/a/l; rm -r t", "agent", "750 agent\nf\n"));
        (void) io_remove_tree(AT_FDCWD, dir);
}

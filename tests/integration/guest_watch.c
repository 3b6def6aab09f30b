// SPDX-License-Identifier: GPL-2.0-or-later
// What a watch in the instance of guest.c tells: each kind of event, of directories that came later too, what it loses, and how it ends.
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "guest/tree_list.h"
#include "guest_run.h"

static int watch_line(const TreeEntry *entry, void *userdata) {
        char *text = userdata;
        size_t n = strlen(text);

        (void) snprintf(text + n, 4096 - n, "%c%s%s ", entry->change, entry->path, entry->type == TREE_DIR ? "/" : "");
        return 0;
}

// All that came, as letters and paths: whole when the watch has ended, else what there is.
static int watch_lines(const Run *run, size_t size, char text[4096]) {
        _cleanup_close_ int fd = memfd_create("watch", MFD_CLOEXEC);
        TreeListing listing = {.events = true, .fn = watch_line, .userdata = text};

        text[0] = 0;
        if (write(fd, run->output, size) != (ssize_t) size || lseek(fd, 0, SEEK_SET) < 0)
                return -EIO;
        return tree_listing_read(&listing, fd, NULL);
}

static bool watch_is_ready(int out) {
        for (int i = 0; i < 500; i++) {
                int n = 0;
                if (ioctl(out, FIONREAD, &n) == 0 && n >= TREE_MAGIC_SIZE)
                        return true;
                loop_for(10 * USEC_PER_MSEC);
        }
        return false;
}

static size_t watch_end(Run *r, int out) {
        int n = 0;

        loop_wait(&r->done, 5 * USEC_PER_SEC);
        CHECK(r->done);
        (void) ioctl(out, FIONREAD, &n);
        run_output(r, out);
        return (size_t) n;
}

static bool told(const char *text, const char *const *lines) {
        bool all = true;

        for (; *lines; lines++)
                if (!strstr(text, *lines)) {
                        fprintf(stderr, "no \"%s\" in: %s\n", *lines, text);
                        all = false;
                }
        return all;
}

static void watch_tree(void) {
        static const char *const lines[] = {"Cnew ", "Wnew ", "Anew ", "Dnew ", "Cd/e/ ", "Cd/e/deep ", "Dd/e/deep ", "Fold ", "Told2 ", "Fd/x ", "Tx2 ", "Cline\nfeed ", "Tmade/ ", "Cmade/in/ ", "Cmade/in/f ", "Fmade ", "G. ", NULL};
        _cleanup_(run_free) Run r = {.request = {.verb = GUEST_WATCH, .path = "/mnt/home/w", .user = "agent", .flags = GUEST_FLAG_RECURSIVE}};
        char text[4096];
        size_t n;
        int out;

        CHECK(shell_gives("mkdir -p w/d; touch w/old w/d/x", "agent", ""));
        CHECK(run_start(&r, &out) == 0 && watch_is_ready(out));
        CHECK(shell_gives("cd w; echo 1 >new; chmod 600 new; rm new; mkdir d/e; sleep .5; touch d/e/deep; rm d/e/deep; mv old old2; mv d/x x2; touch 'line\nfeed'", "agent", ""));
        // Made elsewhere, and whole when it comes.
        CHECK(shell_gives("mkdir -p made/in; touch made/in/f; mv made w/; sleep .5; mv w/made w2; sleep .5; touch w2/in/unseen; rm -r w w2", "agent", ""));
        n = watch_end(&r, out);
        CHECK(r.record.exit == 0);
        CHECK(watch_lines(&r, n, text) == 0 && told(text, lines));
        CHECK(!strstr(text, "unseen"));
}

// One file, and a directory without what is below.
static void watch_one(void) {
        _cleanup_(run_free) Run file = {.request = {.verb = GUEST_WATCH, .path = "/mnt/home/f", .user = "agent"}};
        _cleanup_(run_free) Run flat = {.request = {.verb = GUEST_WATCH, .path = "/mnt/home/w", .user = "agent"}};
        char text[4096];
        int a, b;
        size_t n;

        CHECK(shell_gives("touch f; mkdir -p w/d", "agent", ""));
        CHECK(run_start(&file, &a) == 0 && run_start(&flat, &b) == 0 && watch_is_ready(a) && watch_is_ready(b));
        CHECK(shell_gives("echo x >f; touch w/d/below w/here; rm -r f w", "agent", ""));
        n = watch_end(&file, a);
        CHECK(watch_lines(&file, n, text) == 0 && told(text, (const char *const[]) {"W. ", "G. ", NULL}));
        n = watch_end(&flat, b);
        CHECK(watch_lines(&flat, n, text) == 0 && told(text, (const char *const[]) {"Chere ", "Dd ", "G. ", NULL}) && !strstr(text, "below"));
        for (int i = 0; i < 2; i++) {
                _cleanup_(run_free) Run none = {.request = {.verb = GUEST_WATCH, .path = i ? "/root/x" : "/mnt/home/none", .user = "agent"}};
                run(&none);
                CHECK(none.record.errnum == (i ? EACCES : ENOENT));
        }
}

// Nobody reads: events are dropped, and that is told. Then the reader goes, and so does the watch.
static void watch_slow(void) {
        Run r = {.request = {.verb = GUEST_WATCH, .path = "/mnt/home/w", .user = "agent"}};
        static char buf[1 << 20];
        bool lost = false;
        int out;

        CHECK(shell_gives("mkdir w", "agent", ""));
        CHECK(run_start(&r, &out) == 0 && watch_is_ready(out));
        (void) io_set_nonblock(out, true);
        CHECK(shell_gives("cd w; i=0; while [ $i -lt 30 ]; do i=$((i+1)); seq 1 400 | sed 's/$/-of-a-name-that-is-rather-long-so-that-the-pipe-is-soon-full/' | xargs touch; rm -f *; done", "agent", ""));
        for (int i = 0; i < 100 && !lost; i++) {
                ssize_t n = read(out, buf, sizeof(buf));
                for (ssize_t k = 0; k + TREE_RECORD_SIZE < n && !lost; k++) // a record of "." whose letter it is
                        lost = memcmp(buf + k, "trec", 4) == 0 && buf[k + 42] == '!';
                loop_for(20 * USEC_PER_MSEC);
        }
        CHECK(lost);
        CHECK(!r.done);
        (void) close(out);
        loop_wait(&r.done, 5 * USEC_PER_SEC);
        CHECK(r.done);
        run_free(&r);
        CHECK(shell_gives("rm -r w; ls -A", "agent", ""));
}

void test_watch(void) {
        watch_tree();
        watch_one();
        watch_slow();
}

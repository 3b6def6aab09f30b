// SPDX-License-Identifier: GPL-2.0-or-later
// Sandboxes of the instance of tests/integration/guest.c, with the real bwrap: started by its helper, driven over a channel of their own.
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/io.h"
#include "guest_run.h"

#define MIB (1ULL << 20)

typedef struct Box {
        pid_t pid;
        bool ready, failed, exited;
        GuestStage stage;
        int errnum, status;
        GuestOwner owner;
        GuestChannel *channel;
        int out;
} Box;

int cgroup_sandbox_attach(CgroupBox *sandbox, pid_t pid, Error *err) {
        return io_write_filef(box_dir, "sandbox/cgroup.procs", "%d", (int) pid);
}

static void box_ready(GuestChannel *from, const char *id, pid_t pid, int pidfd, void *userdata) {
        Box *box = userdata;

        box->pid = pid;
        box->ready = true;
        (void) close_fd(pidfd);
}

static void box_failed(GuestChannel *from, const char *id, GuestStage stage, int errnum, void *userdata) {
        Box *box = userdata;

        box->stage = stage;
        box->errnum = errnum;
        box->failed = true;
}

static void box_exited(GuestChannel *from, const char *id, int wait_status, void *userdata) {
        Box *box = userdata;

        box->status = wait_status;
        box->exited = true;
}

static const GuestChannelHandlers box_handlers = {.ready = box_ready, .failed = box_failed, .exited = box_exited};

static void box_start(Box *box, const char *id, const char *bytes, unsigned flags, const char *workspace) {
        char disk[32], files[] = GUEST_WORD_OPEN_FILES "=64", *argv[] = {"bwrap", (char *) id, disk, files, NULL};
        GuestChannelConfig config = {.event = event, .handlers = &command_guest_handlers, .userdata = manager};
        _cleanup_error_ Error err = ERROR_NULL;
        int pair[2], out[2], fds[3];

        (void) snprintf(disk, sizeof(disk), GUEST_WORD_DISK "=%s", bytes);
        *box = (Box) {.owner = {.handlers = &box_handlers, .userdata = box}};
        GuestRequest request = {.id = id, .verb = GUEST_SANDBOX, .flags = flags, .path = workspace ?: "/", .argv = argv, .owner = &box->owner};
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || pipe2(out, O_CLOEXEC) < 0)
                abort();
        fds[0] = pair[1];
        fds[1] = fds[2] = out[1];
        box->out = out[0];
        config.fd = pair[0];
        CHECK(guest_channel_new(&config, &box->channel, &err) == 0);
        CHECK(guest_channel_exec(channel, &request, fds, &err) == 0);
        (void) close(pair[1]);
        (void) close(out[1]);
        for (int i = 0; i < 1000 && guest_channel_helper(box->channel) == 0 && !box->failed && !box->exited; i++)
                (void) sd_event_run(event, 5 * USEC_PER_MSEC * slow());
}

static void box_complain(Box *box) {
        char text[400] = "";

        (void) io_set_nonblock(box->out, true);
        (void) !read(box->out, text, sizeof(text) - 1);
        fprintf(stderr, "the sandbox did not start: stage %d, %s, status %x: %s\n", box->stage, strerror(box->errnum), (unsigned) box->status, text);
}

static void box_end(Box *box) {
        CHECK(io_write_file(box_dir, "sandbox/cgroup.kill", "1") == 0);
        loop_wait(&box->exited, 5 * USEC_PER_SEC);
        CHECK(box->exited);
        if (box->channel) {
                command_manager_drop_channel(manager, box->channel, "the sandbox ended");
                box->channel = guest_channel_free(box->channel);
        }
        (void) close(box->out);
        loop_for(50 * USEC_PER_MSEC);
}

static void test_inside(Box *box) {
        GuestChannel *instance = channel;

        channel = box->channel;
        CHECK(guest_channel_expect(box->channel, guest_channel_helper(box->channel), NULL) == 0);
        CHECK(shell_gives("id -u; id -g; cat /proc/1/comm; hostname; echo $HOME", "1000", "1000\n1000\nhostd-guest\nsbone\n/mnt/home\n"));
        CHECK(shell_gives("grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u; grep NoNewPrivs /proc/self/status | cut -f2; grep -c 'Seccomp:.2' /proc/self/status", "1000",
                          "0000000000000000\n1\n1\n"));
        CHECK(shell_gives("touch /usr/x 2>&1 | grep -c 'Read-only'; touch /x 2>&1 | grep -c Read-only; touch /workspace/a /tmp/b /var/tmp/c ~/d && ls /workspace ~", "1000",
                          "1\n1\n/mnt/home:\nd\n\n/workspace:\na\n"));
        CHECK(shell_gives("ls -d /sys /mnt/keep 2>&1 | grep -c 'No such'; ls /run /home /root 2>/dev/null | wc -l; ls /proc/1/fd 2>&1 | grep -c denied", "1000", "2\n3\n1\n"));
        CHECK(shell_gives("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; [ $(ls /proc | grep -c '^[0-9]') -lt 8 ] && echo few", "1000", "lo\nfew\n"));
        CHECK(shell_gives("unshare -U true 2>&1 | grep -c 'not permitted'; unshare -n true 2>&1 | grep -c 'not permitted'; mount -t tmpfs x /tmp 2>&1 | grep -cE 'denied|permitted|superuser'", "1000",
                          "1\n1\n1\n"));
        CHECK(shell_gives("head -c 80M /dev/zero >/tmp/big 2>/dev/null || echo full; rm /tmp/big; kill -9 1 2>&1 | grep -c permitted; setsid true; kill -9 -1 2>/dev/null; echo here", "1000", "full\n1\nhere\n"));
        CHECK(shell_gives("sleep 0.1 & wait; for i in 1 2 3; do true & done; wait; echo ok", "1000", "ok\n"));
        CHECK(shell_gives("stat -c %u /etc/passwd /workspace", "1000", "65534\n1000\n"));
        CHECK(shell_gives("ulimit -n; ulimit -Hn; ulimit -Hn 65 2>/dev/null || echo no", "1000", "64\n64\nno\n"));
        channel = instance;
}

static void test_root(Box *box) {
        GuestChannel *instance = channel;

        channel = box->channel;
        CHECK(shell_gives("id -u; touch /workspace/r; chown 33:33 /workspace/r; stat -c %u /workspace/r; chroot / id -u", "0", "0\n33\n0\n"));
        // Its mounts are its own namespace's: only the missing capability and the filter keep it from taking them away.
        CHECK(shell_gives("touch /usr/x 2>&1 | grep -c 'Read-only'; for i in 'mount -o remount,rw,bind /usr' 'umount /var/tmp' 'mount -t tmpfs x /mnt' 'unshare -Um true' 'nsenter -t 1 -m true'; do $i 2>/dev/null && echo $i; done; hostname", "0",
                          "1\nsbtwo\n"));
        CHECK(shell_gives("readlink /proc/1/fd/3 || cat /proc/1/environ 2>&1 | grep -c denied; kill -9 1; grep CapEff /proc/self/status | cut -f2 | cut -c9-", "0", "1\nffd7cfff\n"));
        channel = instance;
}

void test_sandbox(void) {
        Box one, two, bad;

        if (access("/usr/bin/bwrap", X_OK) < 0) {
                printf("SKIP: sandboxes: there is no /usr/bin/bwrap\n");
                return;
        }
        CHECK(mkdirat(box_dir, "sandbox", 0755) == 0);
        box_start(&one, "sbone", "67108864", 0, NULL);
        CHECK(one.ready && !one.failed && !one.exited && guest_channel_helper(one.channel) > 0);
        if (guest_channel_helper(one.channel) > 0)
                test_inside(&one);
        else
                box_complain(&one);
        // A sandbox is not the place for another.
        box_start(&bad, "sbbad", "0", 0, "/nowhere");
        CHECK(bad.failed && bad.stage == GUEST_STAGE_CWD && bad.errnum == ENOENT);
        bad.channel = guest_channel_free(bad.channel);
        box_start(&bad, "sbbad", "0", 0, "/root");
        CHECK(bad.failed && bad.stage == GUEST_STAGE_CWD && (bad.errnum == EACCES || bad.errnum == EPERM));
        bad.channel = guest_channel_free(bad.channel);
        box_end(&one);
        CHECK(shell_gives("mkdir /mnt/home/work; echo mine >/mnt/home/work/file; echo ok", "agent", "ok\n"));
        box_start(&two, "sbtwo", "67108864", GUEST_FLAG_ROOT, "/mnt/home/work");
        if (guest_channel_helper(two.channel) > 0) {
                GuestChannel *instance = channel;
                channel = two.channel;
                CHECK(shell_gives("cat /workspace/file; echo new >/workspace/out; stat -c %u /workspace/file", "0", "mine\n1000\n"));
                channel = instance;
                test_root(&two);
        } else
                box_complain(&two);
        CHECK(two.ready && !two.failed && guest_channel_helper(two.channel) > 0);
        box_end(&two);
        CHECK(shell_gives("cat /mnt/home/work/out; ls /mnt/home/work | wc -l; rm -rf /mnt/home/work", NULL, "new\n3\n"));
        CHECK(unlinkat(box_dir, "sandbox", AT_REMOVEDIR) == 0);
}

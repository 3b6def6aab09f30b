// SPDX-License-Identifier: GPL-2.0-or-later
// Changes to files in the instance of guest.c: what they make, whose it is, what they refuse, and that a failure leaves what was there.
#include <string.h>

#include "base/io.h"
#include "guest_run.h"

#define WORDS(...) ((char *[]) {__VA_ARGS__, NULL})
#define HOME "/mnt/home"

static bool change_as(const char *user, GuestRequest request, int errnum) {
        _cleanup_(run_free) Run r = {.request = request};

        r.request.user = user;
        run(&r);
        if (r.record.errnum != errnum)
                fprintf(stderr, "verb %d %s: exit %d errno %d: %s\n", request.verb, request.path, r.record.exit, r.record.errnum, r.record.message ?: "");
        return r.record.errnum == errnum && (r.record.exit == 0) == (errnum == 0);
}

#define CHANGE(errnum, ...) CHECK(change_as("agent", (GuestRequest) {__VA_ARGS__}, errnum))
#define CHANGE_AS_ROOT(errnum, ...) CHECK(change_as(NULL, (GuestRequest) {__VA_ARGS__}, errnum))

void test_mkdir(void) {
        CHANGE(0, .verb = GUEST_MKDIR, .path = HOME "/d");
        CHANGE(EEXIST, .verb = GUEST_MKDIR, .path = HOME "/d");
        CHANGE(0, .verb = GUEST_MKDIR, .path = HOME "/d", .flags = GUEST_FLAG_PARENTS, .mode = 0700);
        CHANGE(ENOENT, .verb = GUEST_MKDIR, .path = HOME "/a/b");
        CHANGE(0, .verb = GUEST_MKDIR, .path = HOME "/a/b", .flags = GUEST_FLAG_PARENTS, .mode = 01750);
        CHECK(shell_gives("stat -c '%a %U' d a a/b; touch f; ln -s nowhere l; ln -s d here", "agent", "755 agent\n755 agent\n1750 agent\n"));
        CHANGE(EEXIST, .verb = GUEST_MKDIR, .path = HOME "/f", .flags = GUEST_FLAG_PARENTS);
        CHANGE(ENOTDIR, .verb = GUEST_MKDIR, .path = HOME "/f/x", .flags = GUEST_FLAG_PARENTS);
        CHANGE(EEXIST, .verb = GUEST_MKDIR, .path = HOME "/l", .flags = GUEST_FLAG_PARENTS); // a link to nothing is in its place
        CHANGE(0, .verb = GUEST_MKDIR, .path = HOME "/here/e/g", .flags = GUEST_FLAG_PARENTS); // by a link of its own
        CHANGE(EACCES, .verb = GUEST_MKDIR, .path = "/etc/hostd-test");
        CHANGE(EPERM, .verb = GUEST_MKDIR, .path = HOME "/o", .argv = WORDS((char *) "owner=lost"));
        CHANGE_AS_ROOT(ENOKEY, .verb = GUEST_MKDIR, .path = HOME "/r", .argv = WORDS((char *) "owner=nobody-has-it"));
        CHANGE_AS_ROOT(0, .verb = GUEST_MKDIR, .path = HOME "/r/s", .flags = GUEST_FLAG_PARENTS, .argv = WORDS((char *) "owner=lost", (char *) "group=extra"));
        CHECK(shell_gives("cd " HOME "; stat -c '%u %g' r r/s; ls -d d/e/g; rm -r r o", NULL, "1001 2000\n1001 2000\nd/e/g\n"));
        CHECK(shell_gives("rm -r *; ls -A", "agent", ""));
}

void test_modes(void) {
        CHECK(shell_gives("mkdir -p d/e; touch d/f d/e/g; ln -s f d/l; chmod 644 d/f d/e/g", "agent", ""));
        CHANGE(0, .verb = GUEST_CHMOD, .path = HOME "/d/f", .mode = 0640);
        CHANGE(ELOOP, .verb = GUEST_CHMOD, .path = HOME "/d/l", .mode = 0777);
        CHANGE(EPERM, .verb = GUEST_CHMOD, .path = "/etc/hosts", .mode = 0777);
        CHANGE(ENOENT, .verb = GUEST_CHMOD, .path = HOME "/none", .mode = 0777);
        CHECK(shell_gives("stat -c %a d/f d/e/g", "agent", "640\n644\n"));
        CHANGE(0, .verb = GUEST_CHMOD, .path = HOME "/d", .mode = 0, .flags = GUEST_FLAG_RECURSIVE); // closes what it is in
        CHECK(shell_gives("cd " HOME "; stat -c %a d d/e d/f d/e/g", NULL, "0\n0\n0\n0\n"));
        CHANGE_AS_ROOT(0, .verb = GUEST_CHMOD, .path = HOME "/d", .mode = 0755, .flags = GUEST_FLAG_RECURSIVE);
        CHANGE(EPERM, .verb = GUEST_CHOWN, .path = HOME "/d/f", .argv = WORDS((char *) "owner=root"));
        CHANGE(0, .verb = GUEST_CHOWN, .path = HOME "/d/f", .argv = WORDS((char *) "group=2000"));
        CHANGE(EINVAL, .verb = GUEST_CHOWN, .path = HOME "/d/f");
        CHECK(shell_gives("ln -s /mnt/keep/file d/out; stat -c %g d/f", "agent", "2000\n"));
        CHANGE_AS_ROOT(0, .verb = GUEST_CHOWN, .path = HOME "/d", .argv = WORDS((char *) "owner=1001"), .flags = GUEST_FLAG_RECURSIVE);
        CHECK(shell_gives("cd " HOME "; stat -c '%u %g' d d/f d/out; stat -c %u /mnt/keep/file; chown -hR agent d", NULL, "1001 1000\n1001 2000\n1001 1000\n0\n"));
        // What is mounted below is not part of it.
        CHANGE_AS_ROOT(0, .verb = GUEST_CHOWN, .path = "/mnt/tree", .argv = WORDS((char *) "owner=1001"), .flags = GUEST_FLAG_RECURSIVE);
        CHECK(shell_gives("stat -c %u /mnt/tree /mnt/tree/bound /mnt/keep/file; chown root /mnt/tree; rm -r " HOME "/d", NULL, "1001\n0\n0\n"));
}

void test_move(void) {
        CHECK(shell_gives("mkdir d; echo a >a; echo b >b; ln -s a l", "agent", ""));
        CHANGE(EEXIST, .verb = GUEST_MOVE, .path = HOME "/a", .argv = WORDS((char *) "to=" HOME "/b"));
        CHANGE(EEXIST, .verb = GUEST_MOVE, .path = HOME "/a", .argv = WORDS((char *) "to=" HOME "/d"));
        CHANGE(ENOENT, .verb = GUEST_MOVE, .path = HOME "/a", .argv = WORDS((char *) "to=" HOME "/n/m/a"));
        CHANGE(ENOENT, .verb = GUEST_MOVE, .path = HOME "/none", .argv = WORDS((char *) "to=" HOME "/n/none"), .flags = GUEST_FLAG_PARENTS);
        CHANGE(EINVAL, .verb = GUEST_MOVE, .path = HOME "/a", .argv = WORDS((char *) "to=relative"));
        CHANGE(EXDEV, .verb = GUEST_MOVE, .path = HOME "/a", .argv = WORDS((char *) "to=/dev/shm/hostd-test"));
        CHANGE(EINVAL, .verb = GUEST_MOVE, .path = HOME "/d", .argv = WORDS((char *) "to=" HOME "/d/e"));
        CHANGE(EBUSY, .verb = GUEST_MOVE, .path = "/", .argv = WORDS((char *) "to=" HOME "/e"));
        CHECK(shell_gives("cat a b; ls", "agent", "a\nb\na\nb\nd\nl\n"));
        CHANGE(0, .verb = GUEST_MOVE, .path = HOME "/a", .argv = WORDS((char *) "to=" HOME "/b"), .flags = GUEST_FLAG_FORCE);
        CHANGE(0, .verb = GUEST_MOVE, .path = HOME "/l", .argv = WORDS((char *) "to=" HOME "/n/m/l"), .flags = GUEST_FLAG_PARENTS);
        CHECK(shell_gives("cat b; readlink n/m/l; ls; rm -r *", "agent", "a\na\nb\nd\nn\n"));
}

void test_replace(void) {
        CHECK(shell_gives("printf 'one two one' >t; chmod 751 t; mkfifo p; mkdir d; ln -s t l; yes onetwothree | head -c 3000000 >big", "agent", ""));
        CHANGE(0, .verb = GUEST_REPLACE, .path = HOME "/t", .argv = WORDS((char *) "old=one", (char *) "new=three\n'"));
        CHECK(shell_gives("cat t; stat -c ' %a' t", "agent", "three\n' two three\n' 751\n"));
        CHANGE(0, .verb = GUEST_REPLACE, .path = HOME "/t", .argv = WORDS((char *) "old=three\n'", (char *) "new="));
        CHANGE(0, .verb = GUEST_REPLACE, .path = HOME "/t", .argv = WORDS((char *) "old=not there", (char *) "new=x"));
        CHECK(shell_gives("cat t", "agent", " two "));
        // Across the pieces in which it is read.
        CHANGE(0, .verb = GUEST_REPLACE, .path = HOME "/big", .argv = WORDS((char *) "old=twothree\none", (char *) "new=2"));
        CHECK(shell_gives("tr -cd 2 <big | wc -c; head -c 8 big; ls -A | grep tmp || echo none", "agent", "249999\none22222none\n"));
        CHANGE(EINVAL, .verb = GUEST_REPLACE, .path = HOME "/t", .argv = WORDS((char *) "old=", (char *) "new=x"));
        CHANGE(EINVAL, .verb = GUEST_REPLACE, .path = HOME "/t", .argv = WORDS((char *) "old=x"));
        CHANGE(ELOOP, .verb = GUEST_REPLACE, .path = HOME "/l", .argv = WORDS((char *) "old=x", (char *) "new=y"));
        CHANGE(EOPNOTSUPP, .verb = GUEST_REPLACE, .path = HOME "/p", .argv = WORDS((char *) "old=x", (char *) "new=y"));
        CHANGE(EISDIR, .verb = GUEST_REPLACE, .path = HOME "/d", .argv = WORDS((char *) "old=x", (char *) "new=y"));
        CHANGE(EACCES, .verb = GUEST_REPLACE, .path = "/etc/hosts", .argv = WORDS((char *) "old=localhost", (char *) "new=x"));
        CHECK(shell_gives("rm -r *; ls -A", "agent", ""));
}

static bool write_gives(const char *path, const char *data, unsigned flags, int errnum) {
        _cleanup_(run_free) Run r = {.input = data, .request = {.verb = GUEST_WRITE, .path = path, .user = "agent", .flags = flags}};

        run(&r);
        if (r.record.errnum != errnum)
                fprintf(stderr, "write %s: exit %d errno %d: %s\n", path, r.record.exit, r.record.errnum, r.record.message ?: "");
        return r.record.errnum == errnum;
}

// Parents, a disk that is full in the middle, and whose a new file is.
void test_write(void) {
        static char much[300000];

        CHECK(write_gives(HOME "/p/q/f", "new", 0, ENOENT));
        CHECK(write_gives(HOME "/p/q/f", "new", GUEST_FLAG_PARENTS, 0));
        CHECK(write_gives("/etc/hostd-test/f", "new", GUEST_FLAG_PARENTS, EACCES));
        CHECK(shell_gives("cat p/q/f; stat -c ' %U %a' p/q p; rm -r p", "agent", "new agent 755\n agent 755\n"));
        memset(much, 'x', sizeof(much) - 1);
        CHECK(shell_gives("mkdir /mnt/small; mount -t tmpfs -o size=128k,mode=777 none /mnt/small; echo old >/mnt/small/f; chmod 666 /mnt/small/f", NULL, ""));
        CHECK(write_gives("/mnt/small/f", much, 0, ENOSPC));
        CHECK(shell_gives("ls -A /mnt/small; cat /mnt/small/f", "agent", "f\nold\n"));
        CHECK(shell_gives("yes 1 | head -c 70000 >/mnt/small/g", "agent", ""));
        CHANGE(ENOSPC, .verb = GUEST_REPLACE, .path = "/mnt/small/g", .argv = WORDS((char *) "old=1", (char *) "new=22"));
        CHECK(shell_gives("ls -A /mnt/small; grep -c 1 /mnt/small/g; umount /mnt/small; rmdir /mnt/small", NULL, "f\ng\n35000\n"));
        _cleanup_(run_free) Run owned = {.input = "x", .request = {.verb = GUEST_WRITE, .path = HOME "/o/w", .flags = GUEST_FLAG_PARENTS, .argv = WORDS((char *) "owner=agent", (char *) "group=extra")}};
        run(&owned);
        CHECK(owned.record.exit == 0 && shell_gives("stat -c '%U %g' o o/w; rm -r o; ls -A", "agent", "agent 2000\nagent 2000\n"));
}

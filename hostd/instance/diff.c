// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-diff: UPPER_DIR TEMPLATE_DIR|- ID_BASE ID_COUNT. Writes the list of changes to standard output, which is the caller's pipe.
// hostd starts it as root and kills it when the caller goes away; see diff.h for who does what.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/io.h"
#include "base/valid.h"
#include "instance/diff.h"
#include "instance/idmap.h"

#define OPAQUE_XATTR "trusted.overlay.opaque"

static int complain(const Error *err, int r) {
        _cleanup_free_ char *shown = valid_printable(error_message(err, r));

        fprintf(stderr, "hostd-diff: %s\n", shown ?: "out of memory");
        return error_code_info(err->code != ERR_NONE ? err->code : error_code_from_errno(r))->exit_status ?: 1;
}

// The directory with the instance's ids, read-only, and nothing that is mounted below it.
static int open_layer(const char *path, int userns, Error *err) {
        _cleanup_close_ int dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int tree;

        if (dir < 0)
                return error_set_errno(err, errno, "opening %s", path);
        tree = idmap_clone(dir, userns, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0);
        return tree < 0 ? error_set_errno(err, tree, "id-mapping %s", path) : tree;
}

static int walker(const DiffWalk *walk, int userns, pid_t keeper) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != keeper)
                return 1;
        r = diff_confine(walk, userns, &err);
        if (r >= 0 && getppid() != keeper) // it may have died just before it was tied again
                return 1;
        if (r >= 0)
                r = diff_walk(walk, &err);
        return r < 0 ? complain(&err, r) : 0;
}

// What is left to the keeper is the one capability that reads trusted attributes.
static int keeper_confine(void) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2] = {{.effective = 1u << CAP_SYS_ADMIN, .permitted = 1u << CAP_SYS_ADMIN}};

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &head, data) < 0)
                return -errno;
        return 0;
}

// `fd` comes from the walker, which can open directories of the two trees only. Even so: nothing is done with it but look at
// its kind and read one attribute that only the kernel writes.
static bool keeper_look(int fd, dev_t dev) {
        struct stat st;
        char value;

        return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_dev == dev && fgetxattr(fd, OPAQUE_XATTR, &value, 1) == 1 && value == 'y';
}

static void keeper(int sock, dev_t dev) {
        for (;;) {
                int fd = -EBADF;
                size_t n_fds = 1;
                char question, answer;
                ssize_t n = io_recv_fds(sock, &question, 1, &fd, &n_fds, 0);

                if (n == -EINTR)
                        continue;
                if (n != 1 || n_fds != 1)
                        return;
                answer = keeper_look(fd, dev) ? 'y' : 'n';
                (void) close_fd(fd);
                if (send(sock, &answer, 1, MSG_NOSIGNAL) != 1)
                        return;
        }
}

static int run(char **argv, uint32_t base, uint32_t count, Error *err) {
        _cleanup_close_ int userns = -EBADF, upper = -EBADF, lower = -EBADF, sock = -EBADF;
        int pair[2], status, r;
        struct stat st;

        userns = idmap_open(base, count);
        if (userns < 0)
                return error_set_errno(err, userns, "making the id map");
        upper = open_layer(argv[1], userns, err);
        if (upper < 0)
                return upper;
        lower = strcmp(argv[2], "-") == 0 ? -EBADF : open_layer(argv[2], userns, err);
        if (lower < 0 && lower != -EBADF)
                return lower;
        if (fstat(upper, &st) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set_errno(err, errno, "preparing the walk");
        sock = pair[0];
        pid_t self = getpid(), pid = fork();
        if (pid == 0) {
                DiffWalk walk = {.upper = upper, .lower = lower, .out_fd = STDOUT_FILENO, .keeper = pair[1]};
                (void) close(pair[0]);
                _exit(walker(&walk, userns, self));
        }
        (void) close(pair[1]);
        (void) close(STDOUT_FILENO); // the list ends when the walker does
        if (pid < 0)
                return error_set_errno(err, errno, "forking");
        r = keeper_confine();
        if (r == 0)
                keeper(sock, st.st_dev);
        sock = close_fd(sock);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set_errno(err, errno, "waiting for the walker");
        if (r < 0)
                return error_set_errno(err, r, "giving up capabilities");
        if (WIFSIGNALED(status))
                return error_set(err, ERR_INTERNAL, "the walker was ended by signal %d", WTERMSIG(status));
        return WEXITSTATUS(status); // it has said why
}

static int parse_id(const char *text, uint32_t *ret) {
        char *end;
        unsigned long value;

        errno = 0;
        value = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno || value == 0 || value > UINT32_MAX)
                return -EINVAL;
        *ret = (uint32_t) value;
        return 0;
}

int main(int argc, char **argv) {
        _cleanup_error_ Error err = ERROR_NULL;
        uint32_t base, count;
        int r;

        (void) signal(SIGPIPE, SIG_IGN); // a reader that is gone shows as EPIPE
        // Base 0 would make the walker root of the host.
        if (argc != 5 || parse_id(argv[3], &base) < 0 || parse_id(argv[4], &count) < 0) {
                fputs("usage: hostd-diff UPPER_DIR TEMPLATE_DIR|- ID_BASE ID_COUNT\nStarted by hostd.\n", stderr);
                return 2;
        }
        if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
                return complain(&err, error_set_errno(&err, errno, "closing what is inherited"));
        r = run(argv, base, count, &err);
        return r < 0 ? complain(&err, r) : r;
}

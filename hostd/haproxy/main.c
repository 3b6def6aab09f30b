// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-haproxy: becomes the HAProxy of one instance, started by its unit (hostd-haproxy@.service) or by hostd.
//
// It is given the directory that hostd made for it (secret/site.h). Whose HAProxy it is says the group of conf/ in there, which is root's: the number is
// the user's, too, one of those that /etc/subuid gives to hostd-haproxy. So each instance's has a user of its own, and none can look into another. It
// starts as the user hostd-haproxy with the right to change the user and nothing else, gives that up, and then is HAProxy.
//
// What HAProxy says goes into the pipe log.fifo. That is opened for both directions: it is there, and full, when hostd is not, and blocks nobody.
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

#define HAPROXY_PROGRAM "/usr/sbin/haproxy"
#define IDS_FIRST 65536u // below are users of the host's

#ifndef PR_SET_MDWE // Linux 6.3
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

static int fail(const char *what, int r) {
        fprintf(stderr, "hostd-haproxy: %s: %s\n", what, strerror(-r));
        return 1;
}

// What is root's alone has been written by hostd.
static int owner_of(int site, uid_t *ret) {
        struct stat above, conf;

        if (fstat(site, &above) < 0 || fstatat(site, "conf", &conf, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (above.st_uid != 0 || above.st_mode & 022 || conf.st_uid != 0 || !S_ISDIR(conf.st_mode) || conf.st_gid < IDS_FIRST)
                return -EPERM;
        *ret = conf.st_gid;
        return 0;
}

// As in the unit: this holds where there is none. Of a core file that a program of core_pattern gets in spite of the limit nothing is left.
static int limit(void) {
        static const struct {
                int what;
                rlim_t most;
        } limits[] = {
                {RLIMIT_CORE, 0}, {RLIMIT_FSIZE, 64 << 10}, {RLIMIT_MEMLOCK, 0}, {RLIMIT_MSGQUEUE, 0}, {RLIMIT_NPROC, 64}, {RLIMIT_NOFILE, 4096}, {RLIMIT_DATA, 512 << 20},
        };
        struct rlimit now;

        (void) io_write_file(AT_FDCWD, "/proc/self/coredump_filter", "0");
        for (size_t i = 0; i < ELEMENTS(limits); i++) {
                if (getrlimit((__rlimit_resource_t) limits[i].what, &now) < 0)
                        return -errno;
                now.rlim_max = now.rlim_max < limits[i].most ? now.rlim_max : limits[i].most; // it may not be raised
                now.rlim_cur = now.rlim_max;
                if (setrlimit((__rlimit_resource_t) limits[i].what, &now) < 0)
                        return -errno;
        }
        return 0;
}

// The capabilities as well: the change of a user that is not root's leaves them.
static int become(uid_t id) {
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {0};

        if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
                return -errno;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0)
                return -errno;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        (void) prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0); // an older kernel has it by the unit's filter alone
        return setresuid(0, 0, 0) == 0 ? -EPERM : 0;
}

static int open_log(int site) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), fd = openat(site, "../log.fifo", O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (null < 0 || fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISFIFO(st.st_mode))
                return -EPERM;
        return dup2(null, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0 ? -errno : 0;
}

int main(int argc, char **argv) {
        char config[512];
        char *const haproxy[] = {(char *) HAPROXY_PROGRAM, (char *) "-db", (char *) "-f", config, NULL};
        char *const env[] = {(char *) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", (char *) "LANG=C.UTF-8", NULL};
        int site = argc == 2 ? open(argv[1], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1, r;
        uid_t id = 0;

        if (argc != 2 || snprintf(config, sizeof(config), "%s/conf/haproxy.cfg", argv[1]) >= (int) sizeof(config)) {
                fprintf(stderr, "usage: hostd-haproxy DIRECTORY, by hostd\n");
                return 2;
        }
        if (site < 0)
                return fail(argv[1], -errno);
        if ((r = owner_of(site, &id)) < 0)
                return fail(argv[1], r);
        if ((r = limit()) < 0)
                return fail("limits", r);
        if ((r = become(id)) < 0)
                return fail("becoming its user", r);
        if ((r = open_log(site)) < 0)
                return fail("its log", r);
        if (chdir("/") == 0)
                execve(HAPROXY_PROGRAM, haproxy, env);
        return fail(HAPROXY_PROGRAM, -errno);
}

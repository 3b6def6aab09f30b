// SPDX-License-Identifier: GPL-2.0-or-later
// Deliver: see deliver.h. Runs as root of the instance: whatever its root has put into the way is its own loss. Only that a value does not get to a
// disk is looked at again here, at the open directory itself.
#include "guest/deliver.h"

#include <dirent.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/process.h"
#include "guest/packages.h"

#define BUNDLE_MAX (16 * 1024 * 1024)
#define INIT_WAIT_STEPS 400 // of 50 ms
#define SYSTEMD_TRIES 40    // in 20 s
#define SYSTEM_BUNDLE "etc/ssl/certs/ca-certificates.crt"
#define ANCHORS "/usr/local/share/ca-certificates"
#define ANCHOR ANCHORS "/hostd.crt"
#define ANCHOR_OLD ANCHORS "/hostd.crt.removed"
#define ANCHOR_LINK "/etc/ssl/certs/hostd.pem" // as update-ca-certificates names it
#define UPDATE_CERTIFICATES "/usr/sbin/update-ca-certificates"
#define PROFILE_D "etc/profile.d"
#define BUNDLE_PATH GUEST_FILES "/ca-bundle.crt"

// Those that add to what a program trusts have the certificate alone, those that take its place have the bundle.
static const char *const variables[] = {
        "SSL_CERT_FILE=" BUNDLE_PATH,
        "CURL_CA_BUNDLE=" BUNDLE_PATH,
        "REQUESTS_CA_BUNDLE=" BUNDLE_PATH,
        "PIP_CERT=" BUNDLE_PATH,
        "GIT_SSL_CAINFO=" BUNDLE_PATH,
        "CARGO_HTTP_CAINFO=" BUNDLE_PATH,
        "AWS_CA_BUNDLE=" BUNDLE_PATH,
        "NODE_EXTRA_CA_CERTS=" GUEST_FILE_AUTHORITY_PATH,
        NULL,
};

const char *const *deliver_environment(void) {
        return access(GUEST_FILE_AUTHORITY_PATH, R_OK) == 0 ? variables : NULL;
}

// ---- what comes ----

static bool name_valid(const char name[36]) {
        size_t n = strnlen(name, 36);

        return n > 0 && n <= 32 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

int deliver_next(const char **at, const char *end, GuestFile *ret, const char **ret_data) {
        if ((size_t) (end - *at) < sizeof(*ret))
                return -EBADMSG;
        memcpy(ret, *at, sizeof(*ret));
        if (ret->magic != GUEST_FILE_MAGIC || ret->kind < GUEST_FILE_AUTHORITY || ret->kind >= _GUEST_FILE_MAX ||
            ret->size > (size_t) (end - *at) - sizeof(*ret) || (ret->kind == GUEST_FILE_SECRET && !name_valid(ret->name)))
                return -EBADMSG;
        *ret_data = *at + sizeof(*ret);
        *at = *ret_data + ret->size;
        return 0;
}

int deliver_check(const char *data, size_t size) {
        const char *at = data, *end = data + size, *bytes;
        GuestFile file;
        int r;

        do
                r = deliver_next(&at, end, &file, &bytes);
        while (r == 0 && file.kind != GUEST_FILE_END);
        return r == 0 && at != end ? -EBADMSG : r;
}

// ---- the authority ----

static int open_below(int root, const char *path) {
        int fd, r = io_mkdir_p(root, path, 0755);

        if (r < 0)
                return r;
        fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int write_bundle(int root, int run, const char *certificate, size_t size) {
        _cleanup_free_ char *bundle = NULL;
        size_t n = 0;
        char *both;
        int r = io_read_file(root, SYSTEM_BUNDLE, BUNDLE_MAX, &bundle, &n);

        if (r < 0 && r != -ENOENT && r != -ENOTDIR)
                return r;
        both = realloc(bundle, n + size + 1);
        if (!both)
                return -ENOMEM;
        bundle = both;
        if (n > 0 && bundle[n - 1] != '\n')
                bundle[n++] = '\n';
        memcpy(bundle + n, certificate, size);
        return io_write_atomic(run, "ca-bundle.crt", bundle, n + size, 0644);
}

static int write_variables(int dir, const char *name, const char *before_all, const char *before, const char *after) {
        char text[2048];
        size_t n = (size_t) snprintf(text, sizeof(text), "%s", before_all);

        for (const char *const *v = variables; *v; v++)
                n += (size_t) snprintf(text + n, sizeof(text) - n, "%s%s%s", before, *v, after);
        return io_write_atomic(dir, name, text, n, 0644);
}

// A file of one line that does nothing when the other is not there: a power cut leaves no more than that.
static void write_profile(int root) {
        static const char text[] = "# Written by hostd: goes with the last grant of a secret.\n[ ! -r " GUEST_FILES "/profile.sh ] || . " GUEST_FILES "/profile.sh\n";
        _cleanup_close_ int dir = openat(root, PROFILE_D, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (dir >= 0 && faccessat(dir, "hostd.sh", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                (void) io_write_atomic(dir, "hostd.sh", text, strlen(text), 0644); // a root that is read-only does without
}

// Services of users are children of a manager of their own, which reads this at its start.
static void write_user_manager(int root) {
        _cleanup_close_ int dir = -EBADF;

        if (faccessat(root, "run/systemd/system", F_OK, 0) < 0)
                return;
        dir = open_below(root, "run/systemd/user.conf.d");
        if (dir >= 0)
                (void) write_variables(dir, "hostd.conf", "[Manager]\nDefaultEnvironment=", "", " ");
}

static int unlink_below(int root, const char *path) {
        return unlinkat(root, path, 0) < 0 && errno != ENOENT && errno != ENOTDIR ? -errno : 0;
}

static int remove_authority(int root) {
        static const char *const paths[] = {"run/hostd/ca.crt", "run/hostd/ca-bundle.crt", "run/hostd/environment", "run/hostd/profile.sh",
                                            "run/systemd/user.conf.d/hostd.conf"};

        for (size_t i = 0; i < ELEMENTS(paths); i++) {
                int r = unlink_below(root, paths[i]);
                if (r < 0)
                        return r;
        }
        (void) unlink_below(root, PROFILE_D "/hostd.sh");
        return 0;
}

// The certificate last: it is what commands look for before they get variables that name the others.
int deliver_authority(int root, const char *certificate, size_t size, Error *err) {
        _cleanup_close_ int run = certificate ? open_below(root, "run/hostd") : -EBADF;
        int r = 0;

        if (!certificate)
                r = remove_authority(root);
        else if (run < 0)
                r = run;
        else
                r = write_bundle(root, run, certificate, size);
        if (certificate && r >= 0)
                r = write_variables(run, "environment", "", "", "\n");
        if (certificate && r >= 0)
                r = write_variables(run, "profile.sh", "", "export ", "\n");
        if (certificate && r >= 0) {
                write_profile(root);
                write_user_manager(root);
                r = io_write_atomic(run, "ca.crt", certificate, size, 0644);
        }
        return r < 0 ? error_set_errno(err, r, "the authority's certificate") : 0;
}

// ---- secrets ----

static bool is_ramfs(int fd) {
        struct statfs fs;

        return fstatfs(fd, &fs) == 0 && fs.f_type == RAMFS_MAGIC;
}

// ramfs and not tmpfs: what is in it is never swapped out, and any kernel lets root of a user namespace mount one. The guest's memory pays for it.
static int secrets_open(int run, bool make) {
        static const char name[] = "secrets";
        _cleanup_close_ int fd = -EBADF;
        char path[40];

        if (make && mkdirat(run, name, 0711) < 0 && errno != EEXIST)
                return -errno;
        fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || is_ramfs(fd))
                return fd < 0 ? -errno : TAKE_FD(fd);
        if (!make)
                return -ENOENT;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (mount("secrets", path, "ramfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0711") < 0)
                return -errno;
        (void) close_fd(fd);
        fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return is_ramfs(fd) ? TAKE_FD(fd) : -EXDEV;
}

static int secret_write(int dir, const GuestFile *file, const char *data) {
        _cleanup_close_ int fd = -EBADF;
        char fresh[48];
        int r;

        (void) snprintf(fresh, sizeof(fresh), ".%.32s.new", file->name);
        (void) unlinkat(dir, fresh, 0);
        fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = io_write_all(fd, data, file->size);
        if (r >= 0 && (fchown(fd, file->uid, (gid_t) -1) < 0 || fchmod(fd, 0400) < 0 || renameat(dir, fresh, dir, file->name) < 0))
                r = -errno;
        if (r < 0)
                (void) unlinkat(dir, fresh, 0);
        return r;
}

static bool is_delivered(const char *name, const char *at, const char *end) {
        const char *bytes;
        GuestFile file;

        while (deliver_next(&at, end, &file, &bytes) == 0)
                if (file.kind == GUEST_FILE_SECRET && strcmp(file.name, name) == 0)
                        return true;
        return false;
}

// Emptied before: whoever holds it open reads nothing any more.
static int secret_remove(int dir, const char *name) {
        int fd = openat(dir, name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        (void) close_fd(fd);
        return unlinkat(dir, name, 0) < 0 && errno != ENOENT && errno != EISDIR ? -errno : 0;
}

static int secrets_prune(int dir, const char *at, const char *end) {
        DIR *d = fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 0));
        struct dirent *e;
        int r = 0;

        if (!d)
                return -errno;
        while ((e = readdir(d)) && r >= 0)
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && !is_delivered(e->d_name, at, end))
                        r = secret_remove(dir, e->d_name);
        (void) closedir(d);
        return r;
}

static int secrets_put(int dir, const char *at, const char *end) {
        const char *bytes;
        GuestFile file;

        while (deliver_next(&at, end, &file, &bytes) == 0 && file.kind != GUEST_FILE_END) {
                int r = file.kind == GUEST_FILE_SECRET ? secret_write(dir, &file, bytes) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

// The old ones go also when the new ones cannot come.
static int deliver_secrets(int root, const char *data, size_t size, bool any, Error *err) {
        _cleanup_close_ int run = any ? open_below(root, "run/hostd") : openat(root, "run/hostd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), dir = -EBADF;
        int r = 0;

        if (run < 0)
                return any ? error_set_errno(err, run, "secrets") : 0;
        dir = secrets_open(run, any);
        if (dir == -ENOENT && !any) {
                (void) unlinkat(run, "secrets", AT_REMOVEDIR); // the place, of before a start
                return 0;
        }
        if (dir < 0)
                return error_set_errno(err, dir, "secrets");
        r = secrets_prune(dir, data, data + size);
        if (r >= 0)
                r = secrets_put(dir, data, data + size);
        if (r >= 0 && !any) {
                (void) umount2(GUEST_FILE_SECRETS, MNT_DETACH | UMOUNT_NOFOLLOW);
                (void) unlinkat(run, "secrets", AT_REMOVEDIR);
        }
        return r < 0 ? error_set_errno(err, r, "secrets") : 0;
}

// ---- the verbs ----

// systemd mounts /run at its start, over what is there.
static void wait_for_init(void) {
        char path[256] = "";
        ssize_t n = readlink("/proc/1/exe", path, sizeof(path) - 1);

        if (n <= 0 || !strstr(path, "systemd"))
                return;
        for (int i = 0; i < INIT_WAIT_STEPS && access("/run/systemd/system", F_OK) < 0; i++)
                (void) usleep(50000);
}

static int deliver(int root, const char *data, size_t size, Error *err) {
        const char *at = data, *bytes, *certificate = NULL;
        size_t certificate_size = 0;
        uint32_t packages = 0;
        bool any = false;
        GuestFile file;
        int r, k, p;

        while (deliver_next(&at, data + size, &file, &bytes) == 0 && file.kind != GUEST_FILE_END) {
                any = any || file.kind == GUEST_FILE_SECRET;
                if (file.kind == GUEST_FILE_PACKAGES)
                        packages = file.uid;
                if (file.kind == GUEST_FILE_AUTHORITY) {
                        certificate = bytes;
                        certificate_size = file.size;
                }
        }
        r = deliver_secrets(root, data, size, any, err);
        k = deliver_authority(root, certificate, certificate_size, r < 0 ? NULL : err);
        p = packages_apply(root, packages, r < 0 || k < 0 ? NULL : err);
        return r < 0 ? r : k < 0 ? k : p;
}

int deliver_run(const Request *request, Error *err) {
        _cleanup_close_ int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_free_ char *data = NULL;
        size_t size = 0;
        int r = root < 0 ? -errno : io_read_all(STDIN_FILENO, DELIVER_MAX, &data, &size);

        if (r >= 0)
                r = deliver_check(data, size);
        if (r >= 0) {
                wait_for_init();
                r = deliver(root, data, size, err);
        }
        if (data)
                explicit_bzero(data, size);
        return r;
}

static int run_quietly(char *const argv[], Error *err) {
        _cleanup_close_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int status, r;
        pid_t pid;

        if (access(argv[0], X_OK) < 0)
                return 0;
        spec.argv = argv;
        spec.stderr_fd = null;
        r = process_spawn(&spec, &pid, NULL, err);
        if (r < 0)
                return r;
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : error_set(err, ERR_UNAVAILABLE, "%s failed", argv[0]);
}

// Its program may have been cut short, by what empties /tmp while the instance starts, say: what counts is what the store has.
static bool store_has(const char *certificate, size_t size) {
        _cleanup_free_ char *anchor = NULL, *bundle = NULL;
        size_t n, n_bundle;

        return io_read_file(AT_FDCWD, ANCHOR, BUNDLE_MAX, &anchor, &n) == 0 && n == size && memcmp(anchor, certificate, n) == 0 && access(ANCHOR_LINK, R_OK) == 0 &&
               io_read_file(AT_FDCWD, "/" SYSTEM_BUNDLE, BUNDLE_MAX, &bundle, &n_bundle) == 0 && memmem(bundle, n_bundle, certificate, size);
}

static int anchor_put(const char *certificate, size_t size, Error *err) {
        char *const argv[] = {(char *) UPDATE_CERTIFICATES, NULL};
        int r;

        if (store_has(certificate, size))
                return 0;
        r = io_mkdir_p(AT_FDCWD, ANCHORS, 0755);
        if (r >= 0)
                r = io_write_atomic(AT_FDCWD, ANCHOR, certificate, size, 0644);
        if (r == -EROFS)
                return 0;
        if (r < 0)
                return error_set_errno(err, r, ANCHOR);
        r = run_quietly(argv, err);
        return r < 0 || store_has(certificate, size) ? r : error_set(err, ERR_UNAVAILABLE, "the trust store has not taken the authority up");
}

// Under another name it is none of the store's, and says until the end what has to be gone from there.
static int anchor_remove(Error *err) {
        char *const argv[] = {(char *) UPDATE_CERTIFICATES, (char *) "--fresh", NULL};
        _cleanup_free_ char *old = NULL, *bundle = NULL;
        size_t n, n_bundle;
        int r;

        if (rename(ANCHOR, ANCHOR_OLD) < 0 && access(ANCHOR_OLD, F_OK) < 0)
                return 0;
        r = run_quietly(argv, err);
        if (r < 0)
                return r;
        if (io_read_file(AT_FDCWD, ANCHOR_OLD, BUNDLE_MAX, &old, &n) == 0 && io_read_file(AT_FDCWD, "/" SYSTEM_BUNDLE, BUNDLE_MAX, &bundle, &n_bundle) == 0 &&
            memmem(bundle, n_bundle, old, n))
                return error_set(err, ERR_UNAVAILABLE, "the trust store has not forgotten the authority");
        return unlink(ANCHOR_OLD) < 0 ? error_set_errno(err, errno, ANCHOR_OLD) : 0;
}

// What it starts from now on has the variables; nothing of it is on disk.
static int tell_systemd(bool present, Error *err) {
        char *argv[ELEMENTS(variables) + 2] = {(char *) "/usr/bin/systemctl", (char *) (present ? "set-environment" : "unset-environment")};
        char names[ELEMENTS(variables)][24];
        int r = 0;

        if (access("/run/systemd/system", F_OK) < 0)
                return 0;
        for (size_t i = 0; variables[i]; i++) {
                (void) snprintf(names[i], sizeof(names[i]), "%.*s", (int) strcspn(variables[i], "="), variables[i]);
                argv[i + 2] = present ? (char *) variables[i] : names[i];
        }
        // Soon after its start it does not answer yet.
        for (int i = 0; i < SYSTEMD_TRIES; i++) {
                error_done(err);
                r = run_quietly(argv, err);
                if (r >= 0)
                        return 0;
                (void) usleep(500000);
        }
        return r;
}

int deliver_adopt(const Request *request, Error *err) {
        _cleanup_free_ char *certificate = NULL;
        size_t size = 0;
        bool present = io_read_file(AT_FDCWD, GUEST_FILE_AUTHORITY_PATH, BUNDLE_MAX, &certificate, &size) == 0;
        int r = tell_systemd(present, err), k;

        if (access(UPDATE_CERTIFICATES, X_OK) < 0)
                return r;
        k = present ? anchor_put(certificate, size, err) : anchor_remove(err);
        return r < 0 ? r : k;
}

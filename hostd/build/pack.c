// SPDX-License-Identifier: GPL-2.0-or-later
// Pack: see pack.h.
#include "build/pack.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/process.h"
#include "build/job.h"
#include "build/root.h"

// A constant: the digest is the image's identity, and the same tree shall give the same one.
#define PACK_UUID "-U7d0f6c2e-5a0b-4c53-9d0e-2f1f0c6a8b11"
#define PACK_TIME "-T1735689600"

// The tree is the working directory and the image an absolute path in the job's own /tmp: no name from outside is used.
static int pack_erofs(int root, const char *image, Error *err) {
        // lz4: the only compressor that mkfs.erofs and kernels of Debian 12 both know. Real times are kept: Python's
        // compiled modules are void when their sources' times change.
        char *argv[] = {(char *) "/usr/bin/mkfs.erofs", (char *) "--quiet", (char *) "-zlz4", (char *) PACK_TIME,
                        (char *) "--preserve-mtime", (char *) PACK_UUID, (char *) image, (char *) ".", NULL};
        int status;
        pid_t pid;

        (void) fflush(NULL);
        pid = fork();
        if (pid < 0)
                return error_set_errno(err, errno, "cannot fork for mkfs.erofs");
        if (pid == 0) {
                // Not process_spawn(): the tree is reached by a descriptor, and stdout is the protocol's.
                int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
                if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(2, 1) < 0 || fchdir(root) < 0)
                        _exit(126);
                (void) execv(argv[0], argv);
                _exit(127);
        }
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set_errno(err, errno, "cannot wait for mkfs.erofs");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                return error_set(err, ERR_UNAVAILABLE, "cannot run %s (package erofs-utils)", argv[0]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return error_set(err, ERR_INTERNAL, "mkfs.erofs failed; is the disk full?");
        return 0;
}

static int pack_packages(int root, Manifest *manifest, Error *err) {
        _cleanup_free_ char *status = NULL;
        int fd = root_open(root, "/var/lib/dpkg/status", O_PATH);

        manifest->packages = json_object();
        if (!manifest->packages)
                return error_set_errno(err, ENOMEM, "packages");
        if (fd == -ENOENT)
                return 0; // not a Debian system
        (void) close_fd(fd);
        int r = root_read(root, "/var/lib/dpkg/status", (size_t) 64 << 20, &status, err);
        return r < 0 ? r : manifest_add_packages(manifest, status, err);
}

int pack_image(int root, int work, Manifest *manifest, Error *err) {
        _cleanup_free_ char *text = NULL, *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        char now[CLOCK_TEXT_MAX], here[64];
        struct stat st;
        int r;

        r = pack_packages(root, manifest, err);
        if (r < 0)
                return r;
        job_progress(82, "packing the image");
        (void) snprintf(here, sizeof(here), "/proc/self/fd/%d", work);
        path = realpath(here, NULL);
        if (!path)
                return error_set_errno(err, errno, "cannot find the work directory");
        char *image = NULL;
        if (asprintf(&image, "%s/image.erofs", path) < 0)
                return error_set_errno(err, ENOMEM, "image");
        r = pack_erofs(root, image, err);
        free(image);
        if (r < 0)
                return r;
        job_progress(95, "computing the digest");
        fd = openat(work, "image.erofs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || fsync(fd) < 0)
                return error_set_errno(err, errno, "cannot read the image back");
        r = digest_fd(fd, manifest->digest);
        if (r < 0)
                return error_set_errno(err, r, "cannot read the image back");
        manifest->size_bytes = (uint64_t) st.st_size;
        free(manifest->built);
        manifest->built = strdup(clock_format(clock_realtime(), now));
        text = manifest->built ? manifest_format(manifest) : NULL;
        if (!text)
                return error_set_errno(err, ENOMEM, "manifest");
        if (strlen(text) > MANIFEST_SIZE_MAX)
                return error_set(err, ERR_INVALID, "the image has too many packages for a manifest");
        r = io_write_atomic(work, "manifest.json", text, strlen(text), 0644);
        return r < 0 ? error_set_errno(err, r, "cannot write the manifest") : 0;
}

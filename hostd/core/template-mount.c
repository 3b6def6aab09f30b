// SPDX-License-Identifier: GPL-2.0-or-later
// Mounts of images: one read-only erofs each at RUN/templates/DIGEST, over a loop device (a file can be mounted directly
// only from kernel 6.12 on). nodev, but not nosuid: clones of the mount inherit its flags and would lose set-uid programs
// inside instances; the directory above is root's alone.
#include <fcntl.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/io.h"
#include "base/valid.h"
#include "core/template-internal.h"

#define EROFS_MAGIC 0xE0F5E1E2

static char *mount_path(const TemplateRegistry *r, const char *digest) {
        char name[TEMPLATE_NAME_MAX], *path;

        return asprintf(&path, "%s/templates/%s", r->run_dir, template_digest_path(digest, "", name)) < 0 ? NULL : path;
}

bool template_is_mounted(const TemplateRegistry *r, const char *digest) {
        _cleanup_free_ char *path = mount_path(r, digest);
        struct statfs fs;

        // The directory lies on a tmpfs or the like; only a mount makes it erofs.
        return path && statfs(path, &fs) == 0 && (unsigned long) fs.f_type == EROFS_MAGIC;
}

// Opens a free loop device over `image`; ret_path holds 64 bytes. Autoclear: the device is free when the mount is gone.
static int loop_attach(int image, char *ret_path) {
        struct loop_config config = {.fd = (unsigned) image,
                                     .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR};
        _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

        if (control < 0)
                return -errno;
        // Another process may take the same number between the two calls.
        for (int attempt = 0; attempt < 64; attempt++) {
                int n = ioctl(control, LOOP_CTL_GET_FREE);
                if (n < 0)
                        return -errno;
                (void) snprintf(ret_path, 64, "/dev/loop%d", n);
                _cleanup_close_ int fd = open(ret_path, O_RDONLY | O_CLOEXEC);
                if (fd < 0)
                        return -errno;
                if (ioctl(fd, LOOP_CONFIGURE, &config) == 0)
                        return TAKE_FD(fd);
                if (errno != EBUSY)
                        return -errno;
        }
        return -EBUSY;
}

static int mount_image(TemplateRegistry *r, const char *digest, const char *path, Error *err) {
        char name[TEMPLATE_NAME_MAX], device[64];
        _cleanup_close_ int image = -EBADF, loop = -EBADF;
        int k;

        image = openat(r->images_fd, template_digest_path(digest, ".erofs", name), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (image < 0)
                return error_set_errno(err, errno, "cannot open the image %.12s", digest);
        k = io_mkdir_p(AT_FDCWD, path, 0700);
        if (k < 0)
                return error_set_errno(err, k, "cannot make %s", path);
        loop = loop_attach(image, device);
        if (loop < 0)
                return error_set_errno(err, loop, "cannot attach the image %.12s to a loop device", digest);
        if (mount(device, path, "erofs", MS_RDONLY | MS_NODEV, NULL) < 0) {
                k = -errno;
                (void) rmdir(path);
                return error_set_errno(err, k, "cannot mount the image %.12s", digest);
        }
        return 0;
}

int template_mount(TemplateRegistry *r, const char *digest, char **ret_path, Error *err) {
        Template *t = valid_is(VALID_DIGEST, digest) ? template_find(r, digest) : NULL;
        _cleanup_free_ char *path = NULL;
        int k;

        if (!t)
                return error_set(err, ERR_NOT_FOUND, "the image %.12s is not here (any more)", digest);
        path = mount_path(r, digest);
        if (!path)
                return error_set_errno(err, ENOMEM, "template");
        if (!template_is_mounted(r, digest)) {
                k = mount_image(r, digest, path, err);
                if (k < 0)
                        return k;
        }
        t->mounted = true;
        t->refs++;
        *ret_path = TAKE_PTR(path);
        return 0;
}

int template_detach(TemplateRegistry *r, const char *digest, Error *err) {
        _cleanup_free_ char *path = mount_path(r, digest);
        Template *t = template_find(r, digest);

        if (!path)
                return error_set_errno(err, ENOMEM, "template");
        while (template_is_mounted(r, digest))
                if (umount2(path, UMOUNT_NOFOLLOW) < 0)
                        return error_set_errno(err, errno, "cannot unmount the template %.12s", digest);
        if (rmdir(path) < 0 && errno != ENOENT)
                return error_set_errno(err, errno, "cannot remove %s", path);
        if (t)
                t->mounted = false;
        return 0;
}

int template_unmount(TemplateRegistry *r, const char *digest, Error *err) {
        Template *t = valid_is(VALID_DIGEST, digest) ? template_find(r, digest) : NULL;

        if (!t || t->refs == 0)
                return error_set(err, ERR_NOT_FOUND, "the template is not mounted");
        if (--t->refs == 0)
                t->unused = clock_monotonic();
        return 0;
}

// One at a time: a job could meet a start that takes the mount for granted.
void template_unmount_idle(TemplateRegistry *r, usec_t idle) {
        for (size_t i = 0; i < r->n_items; i++) {
                Template *t = r->items[i];
                if (!t->mounted || t->refs > 0 || clock_monotonic() - t->unused < idle)
                        continue;
                (void) template_detach(r, t->manifest->digest, NULL);
                t->unused = clock_monotonic(); // in use by somebody else, a backup perhaps: not again at once
                return;
        }
}

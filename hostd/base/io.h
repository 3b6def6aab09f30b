// SPDX-License-Identifier: GPL-2.0-or-later
// Io: whole-file reads and writes, and tree removal, always relative to a directory descriptor and never through links.
// Everywhere: dirfd may be AT_FDCWD; files are close-on-exec; sizes are bytes.
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

// Reads at most `max` bytes (a larger file is -EFBIG) and adds a NUL that is not counted. `ret_size` may be NULL.
// Works for procfs, sysfs and cgroupfs. Only the last component is kept from being a link (O_NOFOLLOW).
int io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_size);
// The same of an open file or pipe, to its end.
int io_read_all(int fd, size_t max, char **ret, size_t *ret_size);
// One decimal number; "max" is UINT64_MAX.
int io_read_u64(int dirfd, const char *path, unsigned long long *ret);
int io_write_all(int fd, const void *data, size_t size);
// One write(2) to an existing file, as cgroupfs and procfs want it.
int io_write_file(int dirfd, const char *path, const char *text);
int io_write_filef(int dirfd, const char *path, const char *format, ...) _printf_(3, 4);
// Temporary file in the same directory, fsync, rename, fsync of the directory: afterwards the old or the new content is there.
int io_write_atomic(int dirfd, const char *path, const void *data, size_t size, mode_t mode);
// Removes the temporary files that a writer left which was killed or lost its power. Only where nobody writes at the moment.
void io_sweep_temporaries(int dirfd, const char *path);
// mkdir -p below dirfd; existing directories are left as they are.
int io_mkdir_p(int dirfd, const char *path, mode_t mode);
// Removes a tree, staying on its file system, following nothing. Absent is success. -ELOOP: it is nested deeper than anybody needs, and what
// is below stays; all else goes.
int io_remove_tree(int dirfd, const char *path);
int io_set_nonblock(int fd, bool nonblock);
// A pipe that is filled before anybody reads: writing never blocks. A smaller one than `size` bytes does for most: what does not fit fails then.
int io_pipe(int size, int *ret_rd, int *ret_wr);
// Sends/receives one message with up to `n_fds` descriptors (at most IO_FDS_MAX). recv: fds beyond are closed; returns bytes.
#define IO_FDS_MAX 8
ssize_t io_send_fds(int sock, const void *data, size_t size, const int *fds, size_t n_fds, int flags);
ssize_t io_recv_fds(int sock, void *data, size_t size, int *fds, size_t *n_fds, int flags);

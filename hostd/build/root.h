// SPDX-License-Identifier: GPL-2.0-or-later
// Root: the root of an image while it lies in the scratch directory. All of it is done by root of the inner namespace,
// through openat2(RESOLVE_IN_ROOT): a link in the tree means what it will mean in the instance.
#pragma once

#include <time.h>

#include "build/recipe.h"

// Whole file; missing parents are made 0755.
int root_write(int root, const char *path, const char *text, mode_t mode, Error *err);
int root_append(int root, const char *path, const char *text, Error *err);
// A regular file of at most `max` bytes.
int root_read(int root, const char *path, size_t max, char **ret, Error *err);
// Removes `path`, or all it holds when it ends in "/*"; absent is success.
int root_remove(int root, const char *path, Error *err);
int root_symlink(int root, const char *target, const char *path, Error *err);
int root_mkdir(int root, const char *path, mode_t mode, Error *err);
int root_chown(int root, const char *path, uid_t uid, gid_t gid, Error *err);
int root_open(int root, const char *path, int flags); // fd or -errno

// Refuses a root that cannot become an instance's: /dev, /proc, /sys, /etc that are no directories (a link there would
// send mounts elsewhere), or no /sbin/init. Missing mount points are made.
int root_check(int root, Error *err);
// Removes what belongs to one host or one boot (machine id, host keys, logs, package lists, seeds, caches) and what
// lies on mount points.
int root_clean(int root, Error *err);
// Users, files, unit masks and links of a recipe.
int root_customise(int root, const Recipe *recipe, Error *err);
// Times since `start` (of the build) become one constant: the same packages give the same image.
int root_clamp_times(int root, time_t start, Error *err);

// SPDX-License-Identifier: GPL-2.0-or-later
// Unpack: a hostile tar stream into a directory, by a process that is root of nothing but the inner namespace.
//
// Nothing is resolved through a link: each parent is opened with RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS, each entry is made
// with O_EXCL. Refused with one sentence that names the entry: absolute paths, "..", links that lead out of the root, an
// entry twice (directories apart), device nodes, fifos, ids beyond 65535, and what exceeds a limit below.
#pragma once

#include <stdint.h>

#include "base/error.h"

typedef struct UnpackLimits {
        uint64_t entries;
        uint64_t bytes;       // of all files, as unpacked
        uint64_t ratio;       // unpacked to packed bytes, once
        uint64_t ratio_above; // more than this was unpacked
} UnpackLimits;

#define UNPACK_LIMITS_DEFAULT \
        ((UnpackLimits) {.entries = 2000000, .bytes = 20ULL << 30, .ratio = 200, .ratio_above = 100ULL << 20})

typedef void (*UnpackProgress)(uint64_t bytes, void *data);

// tar, plain or packed by gzip, xz or zstd; the rest of `fd` is read. progress may be NULL.
int unpack_tar(int fd, int root, const UnpackLimits *limits, UnpackProgress progress, Error *err);
// Writes the tree below `dir` as a tar stream to `fd`, following nothing and not leaving its file system: the reader of
// a directory needs the real ids, the unpacker needs a namespace. Reads as whoever we are.
int unpack_pack_directory(int dir, int fd, Error *err);

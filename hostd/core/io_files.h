// SPDX-License-Identifier: GPL-2.0-or-later
// IoFiles: the files that hostd-io writes the output of commands to, STATE/output/INSTANCE/[OWNER.]ID. hostd makes and removes them, looks at their sizes,
// and never at what is in them. What is kept is bounded: 64 MiB of an instance and its sandboxes, 16 MiB of each sandbox; what ended makes room, the oldest
// first.
#pragma once

#include "core/io_link.h"
#include "io/proto.h"

// The name of the file, and of the output on the wire.
int io_files_name(const char *owner, const char *id, char ret[IO_ID_MAX]);
// -ENOENT: there is none.
int io_files_open(const IoPlace *place, const char *name);

typedef struct IoFilesSpec {
        const char *owner, *name;
        bool (*is_live)(const char *name, void *userdata);
        void *userdata;
} IoFilesSpec;
// A new one; makes room for it. `size`: what it may become, in: what is wanted.
int io_files_make(const IoPlace *place, const IoFilesSpec *spec, uint64_t *size, Error *err);
void io_files_remove(const IoPlace *place, const char *name);
// The ids of an owner's; how many, or a negative errno. Caller frees.
int io_files_list(const IoPlace *place, const char *owner, char ***ret);
void io_files_remove_all(const IoPlace *place);

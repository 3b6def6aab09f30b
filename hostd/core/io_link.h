// SPDX-License-Identifier: GPL-2.0-or-later
// IoLink: hostd's end of an instance's hostd-io (io/main.c), which keeps the output of commands. The process is started by the first that needs it, as a unit or
// a child, ends when it has had nothing to do for a minute, and outlives hostd: what it writes then the next hostd finds.
//
// An output belongs to an owner: "" is the instance, a sandbox is its id. It has a file (core/io_files.h) that is there until others need the room.
#pragma once

#include "core/manager.h"

typedef struct IoLink IoLink;

typedef struct IoPlace {
        Manager *manager;
        const char *instance;
        uint16_t slot;
} IoPlace;

// Called once, from the loop, with 0 or `err`.
typedef void (*IoDone)(void *userdata, int r, Error *err);

typedef struct IoKeep {
        const char *owner, *id;
        uint64_t size; // of the file; 0: 8 MiB, of a sandbox 1 MiB
        int out, errors; // read ends; borrowed
        int values;      // a pipe with values of secrets (redact/proto.h), borrowed; -EBADF: none
} IoKeep;
// After `done` with 0 both pipes are read until they end, whatever becomes of hostd.
int io_link_keep(const IoPlace *place, const IoKeep *keep, IoDone done, void *userdata, Error *err);

typedef struct IoFollow {
        const char *owner, *id;
        uid_t uid;  // who asks
        int fd;     // a pipe's end to write to; borrowed. It gets frames (io/proto.h)
        uint64_t offset;
        bool wait; // goes on with what is still to come
} IoFollow;
// ERR_NOT_FOUND: there is no such output. ERR_BUSY: the user follows too many already.
int io_link_follow(const IoPlace *place, const IoFollow *follow, IoDone done, void *userdata, Error *err);
// The command is over: what is in its pipes now is all.
void io_link_end(const IoPlace *place, const char *owner, const char *id);
void io_link_forget(const IoPlace *place, const char *owner, const char *id); // and removes the file
int io_link_forget_owner(const IoPlace *place, const char *owner); // all of it; how many there were
void io_link_remove(const IoPlace *place); // the instance is deleted
void io_links_free(Manager *manager);     // the processes go on

// SPDX-License-Identifier: GPL-2.0-or-later
// Follower: who reads an output, from an offset on, through a pipe. It gets frames (proto.h), and is never waited for: what is dropped from the file before it
// had it, it is told.
#pragma once

#include <stdbool.h>

#include "io/output.h"

typedef struct Follower Follower;

typedef struct FollowerConfig {
        Output *output; // holds it
        int fd;         // the follower's once this succeeds
        uint64_t offset, uid;
        bool wait; // goes on with what is still to come
} FollowerConfig;
int follower_new(const FollowerConfig *config); // -EDQUOT: the user has too many
Follower *follower_free(Follower *follower);
// Gives it what is there, as far as the pipe takes it; may free it. Returns the next one of the same output.
Follower *follower_pump(Follower *follower);
void follower_dismiss(Follower *follower); // what it reads is removed: it is told, if its pipe takes that, and freed
size_t follower_count(void); // of all outputs

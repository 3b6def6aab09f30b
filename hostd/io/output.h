// SPDX-License-Identifier: GPL-2.0-or-later
// Output: of one command: two pipes that are read until their ends into one ring, values of secrets taken out on the way. Reading goes on whatever becomes of the
// bytes: a command never waits for the disk or for who follows it. One that ended is there as long as somebody reads it.
#pragma once

#include "io/loop.h"
#include "io/proto.h"
#include "redact/values.h"

typedef struct Output Output;
typedef struct Follower Follower;

// What all outputs of the process have in common.
typedef struct Outputs {
        int loop;
        size_t n;
        Output *first;
        void (*ended)(Output *output, void *userdata); // both streams did
        void *userdata;
} Outputs;

typedef struct OutputConfig {
        const char *id;
        int file, streams[_RING_STREAM_MAX]; // what is used of them is taken out; `file` alone: what another one left
        int values;                          // -EBADF: none
        uint64_t size;
} OutputConfig;

int output_new(Outputs *outputs, OutputConfig *config, Output **ret);
Output *output_free(Output *output); // and its followers
void output_unused(Output *output);  // freed, if nobody needs it
Output *output_find(const Outputs *outputs, const char *id);
void output_limit_to_present(Output *output);
void output_stat(const Output *output, IoMessage *ret);
const char *output_id(const Output *output);
bool output_is_live(const Output *output);
Outputs *output_outputs(const Output *output);
Output *output_next(const Output *output);
Ring *output_ring(const Output *output);
Follower **output_followers(Output *output);
// What waits for its time, and when the next does.
usec_t outputs_flush(Outputs *outputs);

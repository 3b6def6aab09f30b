// SPDX-License-Identifier: GPL-2.0-or-later
// Job: work that may wait (git readers, audit queries, freeing disk space) in a forked child, so that the loop never blocks.
//
// The child runs `work`, which returns 0 or a negative errno with an Error and may produce a JSON value; result and error come
// back through a pipe as JSON. The child has no business with the parent's descriptors: it must not touch sockets or stores.
#pragma once

#include <jansson.h>
#include <systemd/sd-event.h>

#include "base/error.h"

typedef int (*JobWork)(void *input, json_t **ret, Error *err);
typedef void (*JobDone)(void *userdata, int r, json_t *result, Error *err); // result is borrowed, may be NULL

// `input` must stay valid until job_start returns (the child has its own copy by fork). At most JOB_MAX at once (ERR_BUSY).
#define JOB_MAX 64
typedef struct JobSpec {
        JobWork work;
        void *input;
        JobDone done;
        void *userdata;
} JobSpec;
int job_start(sd_event *event, const JobSpec *spec, Error *err);
// When hostd ends: kills what runs; each `done` is told -ECANCELED.
void jobs_cancel(void);

// SPDX-License-Identifier: GPL-2.0-or-later
// Answer: what a query (flow/query.h) finds, on its way into a pipe. Reads as much as the pipe has room for and gives others their turn.
//
// Lines come newest first, and then a last one, {"end":true,"torn":N}: without it the list is not whole.
#pragma once

#include <systemd/sd-event.h>

#include "flow/query.h"

#define ANSWER_PATIENCE (20 * USEC_PER_SEC) // for a reader that takes nothing
#define ANSWER_DEADLINE (60 * USEC_PER_SEC) // for one that takes a little now and then: there is room for few answers

typedef struct Answer Answer;
// Called once, from the loop: 0; -EPIPE: the reader is gone; -ETIMEDOUT: it does not read, or too slowly; the disk's error. The answer is to be freed.
typedef void (*AnswerDone)(Answer *answer, int r, void *userdata);

typedef struct AnswerConfig {
        sd_event *event;
        int fd;           // the pipe; the answer's in any case
        FlowQuery *query; // the same
        usec_t deadline;  // 0: ANSWER_DEADLINE
        AnswerDone done;
        void *userdata;
} AnswerConfig;

int answer_new(const AnswerConfig *config, Answer **ret);
Answer *answer_free(Answer *answer);
DEFINE_CLEANUP(Answer, answer_free)

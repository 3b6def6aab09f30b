// SPDX-License-Identifier: GPL-2.0-or-later
// RuntimeCommand: one line for a running HAProxy, over its admin socket. HAProxy has it when runtime_command() returns, and acts on it in its next turn;
// its answer comes later, and is bounded in size and time.
#pragma once

#include "secret/runtime.h"

#define RUNTIME_ANSWER_MAX 16384

typedef struct RuntimeCommand RuntimeCommand;
// `answer` is HAProxy's text, NUL-terminated, "" with an error. The command is gone when this is called.
typedef void (*RuntimeAnswered)(void *userdata, int r, const char *answer);

typedef struct RuntimeCommandSpec {
        const char *socket;
        uid_t uid;
        const char *text; // without a line break
        RuntimeAnswered done; // called once, from the loop, unless runtime_commands_free() comes before
        void *userdata;
} RuntimeCommandSpec;

// Puts itself on `list`, and off it when it is done. A failure here calls no `done`.
int runtime_command(sd_event *event, const RuntimeCommandSpec *spec, RuntimeCommand **list, Error *err);
void runtime_commands_free(RuntimeCommand **list);

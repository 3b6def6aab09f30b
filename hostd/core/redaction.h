// SPDX-License-Identifier: GPL-2.0-or-later
// Redaction: values of the secrets that an instance has grants of do not get into what is shown of it. A command's output goes through a hostd-redact
// (redact/main.c) that hostd-instance starts for it: hostd hands it values and pipes, and reads counts. What hostd itself shows it looks at itself.
#pragma once

#include "core/instance.h"
#include "redact/redact.h"

typedef struct Redaction Redaction;

bool redaction_is_wanted(const Instance *instance); // it has grants
// Starts one between whatever will write to fds[0] and fds[1], output and errors, and who reads them; `ready` is called once, from the loop. With 0 the two are
// others now: pipes into it. Otherwise they are as they were, and nothing is redacted.
typedef void (*RedactionReady)(void *userdata, int r, Error *err);
int redaction_start(Instance *instance, int fds[2], RedactionReady ready, void *userdata, Redaction **ret, Error *err);
// What has been written by now goes on to the reader; `done` is called from the loop when it has, with how many values were replaced, by name: {NAME: COUNT}, borrowed;
// NULL when it died before it was done.
typedef void (*RedactionDone)(void *userdata, const json_t *counts);
void redaction_drain(Redaction *redaction, RedactionDone done, void *userdata);
Redaction *redaction_free(Redaction *redaction); // it goes on to the end of what it reads

// A pipe that holds all values (redact/proto.h), for who looks for them instead; -ENOENT: there are none.
int redaction_values(const Instance *instance, Error *err);

// For what hostd shows itself. NULL when there is nothing to look for.
int redaction_of(const Instance *instance, Redactor **ret, Error *err);

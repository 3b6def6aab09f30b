// SPDX-License-Identifier: GPL-2.0-or-later
// Background: commands that nobody waits for (hostctl exec --detach). Their output is kept by hostd-io, and a row of the store, "output.ID", says of each what it was
// and how it ended, as long as there is output of it.
#pragma once

#include "core/command.h"
#include "core/io_link.h"
#include "core/request.h"

// Puts the write ends of two pipes, and no input, into the request's descriptors; `kept` is called once, from the loop.
int background_keep(Request *request, Instance *instance, IoDone kept, Error *err);
void background_forget(Request *request); // it did not start
// Of the command of such a request: the first of the two ends it.
void background_started(Command *command, void *userdata);
void background_done(Command *command, const CommandRecord *record, void *userdata);

void background_ended(Manager *manager, Command *command, const CommandRecord *record); // of each detached command
bool background_reply(Request *request); // with the record of one that ended; false: there is none
void background_remove(Instance *instance); // it is deleted
void background_remove_sandbox(Manager *manager, const char *instance, const char *id); // it is forgotten
void background_evicted(Manager *manager, const char *name); // the output made room for another's

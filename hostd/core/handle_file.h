// SPDX-License-Identifier: GPL-2.0-or-later
// How a verb of hostd-guest is entered; file verbs have a row each in handle_file.c.
#pragma once

#include "core/command.h"
#include "core/handle.h"

typedef struct Entering {
        GuestVerb verb;
        unsigned flags;
        CommandDoneFn done;
        bool stream_is_input;
        const char *const *options; // parameters that the helper gets as KEY=VALUE words; NULL: its words are the command
        const char *path;           // when the caller gives none; NULL: it has to, or there is none
        usec_t timeout;             // when the caller gives none; 0: none
        const char *unchanged;      // what is true of what was there before when it failed; NULL: nothing can be promised
} Entering;

const Entering *file_way(GuestVerb verb);
char **file_words(const Request *request, const char *const *options); // caller frees
// From a checked request to the guest, whatever has to be waited for before.
void request_enter(Request *request, GuestVerb verb);

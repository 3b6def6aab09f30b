// SPDX-License-Identifier: GPL-2.0-or-later
// ViewLists: the rules of instances and profiles as a reader of views keeps them, so that a sandbox, of which a view says its profile alone,
// gets the profile's list within its instance's.
#pragma once

#include "network/view.h"

typedef struct ViewList {
        uint16_t slot, within; // within: of a profile, the slot of its instance; else 0
        Compiled *compiled;    // owned share
} ViewList;

typedef struct ViewLists {
        ViewList *lists; // owned
        size_t n;
        Compiled *none;  // denies all: of what should be there and is not
} ViewLists;

void view_lists_done(ViewLists *lists);
// Takes the lists of the view, forgets those that end with it, and gives each sandbox of the view its own, and the slot of its instance. First, before
// anything else is done with the view; the list of a sandbox that is not in it changes with that of its instance.
int view_lists_apply(ViewLists *lists, View *view);

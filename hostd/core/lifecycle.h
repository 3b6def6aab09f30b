// SPDX-License-Identifier: GPL-2.0-or-later
// Lifecycle: creating and deleting instances as one step each, and keeping objects, files and store in agreement.
#pragma once

#include "core/manager.h"

typedef struct CreateOptions {
        const char *name, *template; // template: name or digest, must exist
        const char *text;            // instances.d/NAME.conf
        InstanceConfig *config;      // parsed from it; borrowed
} CreateOptions;

// Slot, directory with quota, file: whole or nothing. The new object is in the list; the commit is the caller's.
int lifecycle_create(Manager *manager, const CreateOptions *options, Instance **ret, Error *err);
// Takes a creation back whose file is refused after all; frees the object.
void lifecycle_undo_create(Instance *instance);
// Removes the file, stops it by force when it runs, then removes storage and record. Legal in every state. The file is gone on
// return: the commit, which is the caller's, may overlap with the rest.
int lifecycle_delete(Instance *instance, InstanceDone done, void *userdata, Error *err);
// Admission and cross-checks of a whole set before it comes into force.
int lifecycle_check_set(Manager *manager, const Desired *desired, Error *err);
int lifecycle_admit(Manager *manager, const InstanceConfig *config, Error *err);
int lifecycle_admit_change(Manager *manager, const InstanceConfig *config, Error *err); // of an instance that exists
// Files that a person wrote: makes the instances they describe. Failures become warnings.
void lifecycle_create_missing(Manager *manager);
// At start: records without files and storage are what a killed creation left.
int lifecycle_load(Manager *manager, Error *err);
// Then, when it is known what runs: deletions and creations that an earlier hostd did not come to the end of.
void lifecycle_finish_deletions(Manager *manager);

// SPDX-License-Identifier: GPL-2.0-or-later
// Packages, check: whether package clients inside would still use what hostd has handed in (packages.h), by the files that they document to read later, and by
// variables that are set where sessions begin. Nothing is run and nothing is refused. What was read is the guest's, so this is no more than its claim.
//
// Not seen: a project's own files, options on a command line, variables of processes, and clients that somebody put elsewhere, with other places for their files.
#pragma once

#include "guest/request.h"

typedef enum PackagesFound {
        PACKAGES_FOUND_NOTHING, // says nothing of it
        PACKAGES_FOUND_SAME,    // what hostd's file says
        PACKAGES_FOUND_OTHER,
} PackagesFound;

typedef struct PackagesSetting PackagesSetting;
const PackagesSetting *packages_setting(const char *client, const char *name); // NULL: there is none
// Pure: what the text of a client's file, or of one in which a shell finds variables, says of the setting; the last word counts.
PackagesFound packages_found_in_file(const PackagesSetting *setting, const char *text);
PackagesFound packages_found_in_profile(const PackagesSetting *setting, const char *text);

typedef int (*PackagesEach)(const GuestPackage *row, void *userdata);
// For one user of the tree `root`; `home` is absolute. `each` is called once for each setting of each client.
int packages_check(int root, const char *user, const char *home, PackagesEach each, void *userdata);
// The verb: for root and for the agent's user, to fd 1.
int packages_run(const Request *request, Error *err);

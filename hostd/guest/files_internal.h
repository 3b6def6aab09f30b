// SPDX-License-Identifier: GPL-2.0-or-later
// Files, inside: what the verbs share. All run as the user, in a child of their own.
#pragma once

#include <stdbool.h>

#include "guest/request.h"

// openat2, again when a rename came between and RESOLVE_BENEATH wants to be sure.
int files_open(int dir, const char *path, uint64_t flags, uint64_t resolve);
// The directory that holds the last component, and that component ("." for "/").
int files_parent(const char *path, int *ret_dir, const char **ret_name);
// The words of a request are KEY=VALUE. NULL, or 0: it is not there, and *ret stays.
const char *files_option(const Request *request, const char *key);
int files_number(const Request *request, const char *key, uint64_t *ret);
// Only root may give a file away, and only root would otherwise take one that was somebody else's.
bool files_may_give(void);

int files_stat(const Request *request, Error *err);
int files_list(const Request *request, Error *err);
int files_search(const Request *request, Error *err);

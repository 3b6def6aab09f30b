// SPDX-License-Identifier: GPL-2.0-or-later
// Files: the file verbs, run in a child of the helper that has already become the user. Bytes come from fd 0 and go to fd 1, which
// the host made. Only regular files and directories are opened for data, never through /proc's magic links; a file system
// of the guest that hangs hangs this child alone, which the deadline of the command ends.
#pragma once

#include "guest/request.h"

#define FILES_TARGET "to" // the field of an error that is about where something was to be moved to
int files_run(const Request *request, Error *err);

// SPDX-License-Identifier: GPL-2.0-or-later
// Serve: hostd-build as hostd-build@.service. systemd starts one for each connection of hostd's to hostd-build.socket; one message on it
// brings what the command line brings elsewhere:
//
//   the words after "hostd-build", each with its NUL, and descriptors: output directory (3), recipe or input (4), a pipe for the lines
//   that go to stdout, and of a build the socket at which it asks for its wire (5)
//
// Two processes. The keeper has the capabilities that mapping the user's subordinate ids takes, reads nothing of a build, and ends it when
// hostd closes the connection. The job has no capability and cannot get one.
#pragma once

#include "base/error.h"

#define SERVE_MESSAGE_MAX 4096
#define SERVE_WORDS_MAX 16

// Returns in the job alone, with the words in `argv` (they point into static memory) and the descriptors in place.
int serve(int *argc, char *argv[static SERVE_WORDS_MAX], Error *err);

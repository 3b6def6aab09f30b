// SPDX-License-Identifier: GPL-2.0-or-later
// Session: a running command in an instance and its streams: three pipes or one pty that we made, of which the guest gets its
// ends and never anything of ours.
#pragma once

#include "cli/cli.h"

#define SESSION_EXIT_OURS 125     // hostctl or hostd failed, not the command
#define SESSION_EXIT_TIMEOUT 124  // as timeout(1)
#define SESSION_RECONNECT_SEC 30  // how long a restart of hostd may take
#define SESSION_DRAIN_MSEC 250    // for the rest of a pty's output after the command's end
#define SESSION_LEAVE_MSEC 1000   // for what a console still has to say to somebody without input

typedef struct SessionOptions {
        bool tty;
        bool console; // has no command whose end could be told
        int escape; // byte that ends the session, or -1
} SessionOptions;

// Calls `method` and stays until its record is here. Returns the exit status for our caller.
int session_run(Cli *cli, const Method *method, json_t *parameters, const SessionOptions *options);
int session_exit_status(const json_t *record); // pure, and says on stderr what the status alone cannot tell

// SPDX-License-Identifier: GPL-2.0-or-later
// Border: the helpers of the border as hostd sees them: found or started, connected to, told the views, and watched.
//
// A helper outlives hostd. Under systemd a connection to its socket starts it (hostd-NAME.socket); elsewhere hostd makes the same sockets and
// starts the same program by fork, unless one that an earlier hostd started still listens. A helper that is not there is looked for again
// after growing delays. A helper whose program is not installed is left alone.
//
// Views are text that the owner makes, each with a generation. A helper that connects gets all of them; later ones go to those that are
// connected. They come in parts (network/view.h): a generation is in force when all of its parts are, and those before it. What was sent is not in force until the helper said so: border_has_applied(), border_wait().
//
// What a helper says is of fixed size, checked (border/control.h), allowed by its row, and limited in its rate: of inserts the rest is answered
// with -EBUSY (each slot has a share of its own), of events dropped; one answer for each time it was told or asked something, or it is taken for lost. hostd reads nothing else
// of it.
#pragma once

#include <systemd/sd-event.h>

#include "base/clock.h"
#include "border/control.h"

typedef enum BorderPart { BORDER_PART_RESOLVER, BORDER_PART_PROXY, BORDER_PART_FLOW, _BORDER_PART_MAX, _BORDER_PART_INVALID = -EINVAL } BorderPart;
const char *border_part_to_string(BorderPart part); // "hostd-resolver": program, user, unit
bool border_part_has_views(BorderPart part);

typedef enum BorderState {
        BORDER_NOT_INSTALLED,
        BORDER_DOWN,    // to be looked for again
        BORDER_CALLING, // connected, and has not said HELLO
        BORDER_UP,
        _BORDER_STATE_MAX,
} BorderState;

typedef struct Border Border;

typedef struct BorderHandlers {
        // Views of all slots, for a helper that connected, in parts; their generation.
        int (*views)(void *userdata, char ***ret, uint64_t *ret_generation);
        int (*insert)(void *userdata, const BorderInsert *insert); // what is acknowledged: 0 or a negative errno
        void (*event)(void *userdata, const FlowRecord *record);
        void (*changed)(void *userdata, BorderPart part); // its state, or what it has applied
} BorderHandlers;

typedef struct BorderConfig {
        sd_event *event;
        const char *run;      // directory of the sockets
        const char *programs; // directory of the programs
        const char *data;     // what has a directory of its own has it below this one; NULL: where systemd makes it
        bool systemd;         // sockets and processes are units
        int (*account)(const char *user, uid_t *ret_uid, gid_t *ret_gid); // NULL: the host's; for tests
        const BorderHandlers *handlers;
        void *userdata;
} BorderConfig;

int border_new(const BorderConfig *config, Border **ret, Error *err);
Border *border_free(Border *border); // the helpers run on
DEFINE_CLEANUP(Border, border_free)
void border_start(Border *border); // looks for the helpers, from now on

void border_send(Border *border, char *const *views, uint64_t generation); // parts, ending with NULL
BorderState border_state(const Border *border, BorderPart part);
bool border_can_run(const Border *border, BorderPart part); // its program and its user are there, whether it runs or not
const char *border_reason(const Border *border, BorderPart part); // why it is not up, or does not apply; "" if it is well
bool border_is_old(const Border *border, BorderPart part); // it runs and is not the program that is installed now
bool border_has_applied(const Border *border, BorderPart part, uint64_t generation);
bool border_is_late(const Border *border, BorderPart part, uint64_t generation); // it lives, or may, and has not applied it
uint64_t border_dropped(const Border *border, BorderPart part); // messages beyond its rate

// Lines of hostd-flow's log into `fd`, which stays the caller's. `done` is called once, from the loop, with 0 or a negative errno:
// -ECONNRESET when it died meanwhile. Fails at once with -ENOTCONN (it is not up), -EBUSY (too many, or it is behind).
typedef void (*BorderAnswered)(void *userdata, int r);
int border_query(Border *border, const BorderQuery *query, int fd, BorderAnswered done, void *userdata);
// Calls `done` once, from the loop: all that can enforce have `generation` in force (late < 0), or the time is over and `late` is one that has
// not. A helper that is known not to run enforces by its absence: nobody listens where connections are redirected to.
typedef void (*BorderDone)(void *userdata, BorderPart late);
int border_wait(Border *border, uint64_t generation, usec_t timeout, BorderDone done, void *userdata);

// border_start.c: processes and sockets.
const char *const *border_sockets(BorderPart part); // names in the run directory, ending with NULL
typedef struct BorderRow BorderRow;
const BorderRow *border_row(BorderPart part);
bool border_row_allows(const BorderRow *row, uint32_t type);
bool border_is_installed(const BorderConfig *config, BorderPart part);
bool border_program_is(const BorderConfig *config, BorderPart part, pid_t pid);
int border_account(const char *user, uid_t *ret_uid, gid_t *ret_gid); // of the host's; -ENOENT: there is none, or it is root's
bool border_has_user(const BorderConfig *config, BorderPart part);
// Connects. -ECONNREFUSED or -ENOENT: nobody listens.
int border_connect(const BorderConfig *config, BorderPart part);
// By fork, with its sockets.
int border_directory(const char *path, uid_t uid, gid_t gid, Error *err); // makes it that user's alone, also where it is there
int border_spawn(const BorderConfig *config, BorderPart part, pid_t *ret_pid, int *ret_pidfd, Error *err);

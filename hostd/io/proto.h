// SPDX-License-Identifier: GPL-2.0-or-later
// What hostd and hostd-io say to each other on a SOCK_SEQPACKET connection of hostd's, and what a follower reads from its pipe.
//
//   hostd                          hostd-io
//   <-- HELLO -------------------- its version; then LIVE for each output whose streams are open, then READY
//   NEW + file, out, err[, values] -> reads both pipes until their ends; `value`: size of the file. Values of secrets as hostd-redact gets them
//   END -------------------------> the command is over: what is in its pipes now is all
//   FOLLOW + pipe[, file] -------> from `offset` on, for the user `value`; the file is looked at where there is no such output any more
//   STAT[ + file] ---------------> its numbers
//   FORGET ----------------------> nothing of it is read, or given to anybody, any more
//   QUIT ------------------------> the same of all, and it ends: there is no answer
//   <-- ANSWER ------------------- to each of these, with its cookie, in their order
//   <-- ENDED -------------------- both streams of an output ended, and all is in the file
#pragma once

#include <stdint.h>

#include "io/ring.h"

#define IO_MAGIC 0x6f692d64u
#define IO_VERSION 1
#define IO_ID_MAX 48 // with the byte behind it
#define IO_SOCKET "sock" // in its directory
#define IO_OUTPUTS_MAX 256 // all are told to a new hostd at once
#define IO_FOLLOWERS_MAX 256
#define IO_FOLLOWERS_USER_MAX 32 // of one user, root apart: all users share what hostd-io can

typedef enum IoType {
        IO_HELLO = 1,
        IO_LIVE,
        IO_READY,
        IO_NEW,
        IO_END,
        IO_FOLLOW,
        IO_STAT,
        IO_FORGET,
        IO_ANSWER,
        IO_ENDED,
        IO_QUIT,
        _IO_TYPE_MAX,
} IoType;

enum { IO_FLAG_WAIT = 1 << 0, IO_FLAG_LIVE = 1 << 1, IO_FLAG_ENDED = 1 << 2 }; // FOLLOW: go on with what is still to come; answers: streams are read; RingStat

typedef struct IoMessage {
        uint32_t magic, type;
        uint64_t cookie;
        char id[IO_ID_MAX]; // zeros behind
        uint64_t value, offset;
        int32_t error; // ANSWER: negative errno
        uint32_t flags;
        uint64_t written[_RING_STREAM_MAX], kept[_RING_STREAM_MAX], redacted;
} IoMessage;
_Static_assert(sizeof(IoMessage) == 128, "a layout without holes");

// ---- what a follower reads ----

#define IO_FRAME_MAGIC 0x6f692d66u

typedef enum IoFrameKind {
        IO_FRAME_OUT,   // `length` bytes follow
        IO_FRAME_ERR,
        IO_FRAME_LOST,  // so many were dropped
        IO_FRAME_ENDED, // the last: the streams ended at `offset`
        IO_FRAME_CUT,   // the last: hostd-io died while the command ran, and what it wrote from there on is lost
        IO_FRAME_NOW,   // the last: so far it is, and it goes on
        IO_FRAME_GONE,  // the last: it was removed, with its sandbox
        _IO_FRAME_MAX,
} IoFrameKind;

typedef struct IoFrame {
        uint32_t magic, kind;
        uint64_t offset, length;
} IoFrame;
_Static_assert(sizeof(IoFrame) == 24, "a layout without holes");

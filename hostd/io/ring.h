// SPDX-License-Identifier: GPL-2.0-or-later
// Ring: the output of one command in a file of bounded size. The first half of it keeps how the output began, the rest how it went on last; what was between is
// dropped, and counted. An offset is one of a byte in all that the command wrote, of both streams together in the order in which they were read, so it stays what
// it is whatever is dropped.
//
// The file is a head and blocks of one size. A block begins with its number and the offsets that it begins at, then come frames: a stream, a length, bytes.
// Each has a sum that depends on a number of the file's that nobody outside knows, on the block and on the place. So what was being written when the
// writer died, or lies there from an earlier round, is no frame, and what a command writes is never taken for one. A reader believes nothing else either.
//
// A writer never fails: bytes that the disk has no room for are dropped and counted as any others. Nothing is synced: a kill of the writer loses nothing that
// was complete, a power cut may.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define RING_HEAD 4096
#define RING_BLOCK 32768
#define RING_SIZE_MIN (RING_HEAD + 2 * RING_BLOCK)
#define RING_SIZE_MAX (UINT64_C(64) << 20)

typedef enum RingStream { RING_OUT, RING_ERR, _RING_STREAM_MAX } RingStream;

typedef struct RingStat {
        uint64_t written[_RING_STREAM_MAX]; // by the command
        uint64_t kept[_RING_STREAM_MAX];    // of that, what can be read; the rest was dropped
        bool ended;                         // its streams ended; if not, and nobody writes it any more, its writer died
} RingStat;

typedef struct Ring Ring;
// `fd` is an empty file, the ring's once this succeeds. `size` of the file is rounded down to whole blocks.
int ring_create(int fd, uint64_t size, Ring **ret);
// To read what another writer left: any bytes. -EBADMSG if it is no such file.
int ring_open(int fd, Ring **ret);
Ring *ring_free(Ring *ring); // a writer's file stays as one that did not end
DEFINE_CLEANUP(Ring, ring_free)

void ring_append(Ring *ring, RingStream stream, const void *data, size_t size);
void ring_drop(Ring *ring, RingStream stream, uint64_t size); // bytes that are not to be kept
void ring_end(Ring *ring);
void ring_stat(const Ring *ring, RingStat *ret);

// ---- reading, ring_read.c ----

typedef struct RingPiece {
        bool lost;         // bytes that were dropped, and no data
        RingStream stream; // otherwise
        uint64_t offset, length;
        const char *data; // of the cursor's, until it reads again
} RingPiece;

typedef struct RingCursor RingCursor;
int ring_cursor_new(uint64_t offset, RingCursor **ret);
RingCursor *ring_cursor_free(RingCursor *cursor);
DEFINE_CLEANUP(RingCursor, ring_cursor_free)
// 1: `ret` is what comes next; 0: there is nothing (yet). Pieces are without gaps: each begins where the last one ended.
int ring_read(Ring *ring, RingCursor *cursor, RingPiece *ret);

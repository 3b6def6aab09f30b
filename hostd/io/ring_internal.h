// SPDX-License-Identifier: GPL-2.0-or-later
// Ring: the layout of the file, and what writer and reader share; nobody else includes this.
#pragma once

#include "io/ring.h"

#define RING_MAGIC UINT64_C(0x31676e69722d6f69)
#define RING_LOST _RING_STREAM_MAX // kind of a frame that says how much of each stream was dropped in its place
#define RING_KINDS (RING_LOST + 1)
#define RING_WRITTEN_MAX (UINT64_C(1) << 60) // more than any command can write

typedef struct RingHead {
        uint64_t magic, seed;
        uint32_t head_blocks, tail_blocks;
        uint64_t ended;
        uint64_t written[_RING_STREAM_MAX], kept[_RING_STREAM_MAX]; // as of the end, or of the last time that the disk was full
        uint64_t sum;
} RingHead;

typedef struct RingBlock {
        uint64_t seq;                        // 0, 1, …
        uint64_t written[_RING_STREAM_MAX]; // before its first frame
        uint64_t sum;
} RingBlock;

typedef struct RingFrame {
        uint32_t sum;
        uint16_t length;
        uint8_t kind, zero;
} RingFrame;

typedef struct RingGap {
        uint64_t lost[_RING_STREAM_MAX];
} RingGap;

_Static_assert(sizeof(RingHead) == 72 && sizeof(RingBlock) == 32 && sizeof(RingFrame) == 8 && sizeof(RingGap) == 16, "layouts without holes");
#define RING_ROOM (RING_BLOCK - sizeof(RingBlock) - sizeof(RingFrame)) // for the bytes of a frame alone in its block

// What is known of a place for a block.
typedef struct RingSlot {
        bool valid;
        RingBlock block;
        uint32_t used;                     // RING_BLOCK: not known
        uint32_t kept[_RING_STREAM_MAX]; // the writer's
} RingSlot;

struct Ring {
        int fd;
        bool has_head; // it is in the file
        RingHead head;
        RingSlot *slots;
        uint64_t n_begun;                 // blocks; the newest is n_begun - 1
        uint64_t lost[_RING_STREAM_MAX]; // dropped since the last frame, which the next is to say
};

size_t ring_slots(const Ring *ring);
RingSlot *ring_slot(const Ring *ring, uint64_t seq); // the place that it has, or had
off_t ring_position(const Ring *ring, uint64_t seq);
bool ring_has(const Ring *ring, uint64_t seq);
// Sums; with the seed of the file.
uint64_t ring_head_sum(const RingHead *head);
uint64_t ring_block_sum(const Ring *ring, const RingBlock *block);
uint32_t ring_frame_sum(const Ring *ring, uint64_t seq, size_t at, const RingFrame *frame, const void *data);

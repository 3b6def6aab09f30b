// SPDX-License-Identifier: GPL-2.0-or-later
// Ring: see ring.h. A frame goes to the file by one call, together with the beginning of its block where it is the first.
#include "io/ring_internal.h"

#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>

#define FRAME_MIN 64 // a smaller rest of a block is left

// ---- layout ----

size_t ring_slots(const Ring *ring) {
        return (size_t) ring->head.head_blocks + ring->head.tail_blocks;
}

static size_t index_of(const Ring *ring, uint64_t seq) {
        return seq < ring->head.head_blocks ? (size_t) seq : ring->head.head_blocks + (size_t) ((seq - ring->head.head_blocks) % ring->head.tail_blocks);
}

RingSlot *ring_slot(const Ring *ring, uint64_t seq) {
        return ring->slots + index_of(ring, seq);
}

off_t ring_position(const Ring *ring, uint64_t seq) {
        return RING_HEAD + (off_t) index_of(ring, seq) * RING_BLOCK;
}

bool ring_has(const Ring *ring, uint64_t seq) {
        const RingSlot *slot = ring_slot(ring, seq);

        return slot->valid && slot->block.seq == seq;
}

// ---- sums: against what is torn or old, and, by the seed, against what somebody made up ----

static uint64_t mix(uint64_t sum, uint64_t word) {
        sum = (sum ^ word) * UINT64_C(0x9fb21c651e98df25);
        return sum ^ (sum >> 29);
}

static uint64_t mix_bytes(uint64_t sum, const void *data, size_t size) {
        const char *p = data;
        uint64_t word;

        for (; size >= sizeof(word); p += sizeof(word), size -= sizeof(word)) {
                memcpy(&word, p, sizeof(word));
                sum = mix(sum, word);
        }
        word = 0;
        memcpy(&word, p, size);
        return mix(sum, word);
}

uint64_t ring_head_sum(const RingHead *head) {
        return mix_bytes(RING_MAGIC, head, offsetof(RingHead, sum));
}

uint64_t ring_block_sum(const Ring *ring, const RingBlock *block) {
        return mix_bytes(ring->head.seed, block, offsetof(RingBlock, sum));
}

uint32_t ring_frame_sum(const Ring *ring, uint64_t seq, size_t at, const RingFrame *frame, const void *data) {
        uint64_t sum = mix(mix(ring->head.seed, seq), (uint64_t) at << 32 | (uint64_t) frame->kind << 16 | frame->length);

        sum = mix_bytes(sum, data, frame->length);
        return (uint32_t) (sum ^ (sum >> 32));
}

// ---- the writer ----

Ring *ring_free(Ring *ring) {
        if (!ring)
                return NULL;
        (void) close_fd(ring->fd);
        free(ring->slots);
        free(ring);
        return NULL;
}

static int put_head(Ring *ring) {
        char page[RING_HEAD] = {0};

        ring->head.sum = ring_head_sum(&ring->head);
        memcpy(page, &ring->head, sizeof(ring->head));
        // The whole page at first, so that there is room for all that the head may say when there is none for anything else.
        size_t size = ring->has_head ? sizeof(ring->head) : sizeof(page);
        ssize_t n = pwrite(ring->fd, page, size, 0);
        if (n != (ssize_t) size)
                return n < 0 ? -errno : -ENOSPC;
        ring->has_head = true;
        return 0;
}

int ring_create(int fd, uint64_t size, Ring **ret) {
        _cleanup_(ring_freep) Ring *ring = NULL;
        uint64_t blocks = size > RING_HEAD ? (size - RING_HEAD) / RING_BLOCK : 0;

        if (size < RING_SIZE_MIN || size > RING_SIZE_MAX)
                return -EINVAL;
        ring = calloc(1, sizeof(Ring));
        if (!ring)
                return -ENOMEM;
        *ring = (Ring) {.fd = -EBADF};
        ring->head = (RingHead) {.magic = RING_MAGIC, .head_blocks = (uint32_t) (blocks / 2), .tail_blocks = (uint32_t) (blocks - blocks / 2)};
        ring->slots = calloc(blocks, sizeof(RingSlot));
        if (!ring->slots)
                return -ENOMEM;
        if (getrandom(&ring->head.seed, sizeof(ring->head.seed), 0) != sizeof(ring->head.seed) || ftruncate(fd, RING_HEAD + (off_t) blocks * RING_BLOCK) < 0)
                return -errno;
        ring->fd = fd;
        (void) put_head(ring); // no room: it is tried again with the first bytes
        *ret = TAKE_PTR(ring);
        return 0;
}

static size_t room(const Ring *ring) {
        size_t used = ring->n_begun > 0 ? ring_slot(ring, ring->n_begun - 1)->used : RING_BLOCK;

        return RING_BLOCK - used > sizeof(RingFrame) ? RING_BLOCK - used - sizeof(RingFrame) : 0;
}

static void forget(Ring *ring, RingSlot *slot) {
        for (size_t i = 0; i < _RING_STREAM_MAX; i++)
                ring->head.kept[i] -= slot->kept[i];
        *slot = (RingSlot) {0};
}

// `length` is no more than room(), or than RING_ROOM where that is too small: then a block begins.
static int put(Ring *ring, unsigned kind, const void *data, size_t length) {
        bool begins = room(ring) < length;
        uint64_t seq = ring->n_begun - !begins;
        RingSlot *slot = ring_slot(ring, seq);
        RingBlock block = {.seq = seq};
        RingFrame frame = {.length = (uint16_t) length, .kind = (uint8_t) kind};
        size_t at = begins ? sizeof(block) : slot->used;
        struct iovec parts[] = {{&block, sizeof(block)}, {&frame, sizeof(frame)}, {(void *) data, length}};
        ssize_t want = (ssize_t) (sizeof(frame) + length + (begins ? sizeof(block) : 0)), n;

        for (size_t i = 0; i < _RING_STREAM_MAX; i++)
                block.written[i] = ring->head.written[i] - ring->lost[i];
        block.sum = ring_block_sum(ring, &block);
        frame.sum = ring_frame_sum(ring, seq, at, &frame, data);
        n = pwritev(ring->fd, parts + !begins, 2 + begins, ring_position(ring, seq) + (begins ? 0 : (off_t) at));
        if (n != want) {
                if (n > 0 && begins) // over what was there
                        forget(ring, slot);
                return n < 0 ? -errno : -ENOSPC;
        }
        if (begins) {
                forget(ring, slot);
                *slot = (RingSlot) {.valid = true, .block = block};
                ring->n_begun++;
        }
        slot->used = (uint32_t) (at + sizeof(frame) + length);
        return 0;
}

// What was dropped has its place between what is kept.
static int put_lost(Ring *ring) {
        RingGap gap;
        int r;

        if (ring->lost[RING_OUT] == 0 && ring->lost[RING_ERR] == 0)
                return 0;
        memcpy(gap.lost, ring->lost, sizeof(gap.lost));
        r = put(ring, RING_LOST, &gap, sizeof(gap));
        if (r >= 0)
                memset(ring->lost, 0, sizeof(ring->lost));
        return r;
}

static int put_bytes(Ring *ring, RingStream stream, const void *data, size_t length) {
        int r = ring->has_head ? 0 : put_head(ring);

        if (r >= 0)
                r = put_lost(ring);
        if (r >= 0)
                r = put(ring, stream, data, length);
        return r;
}

static size_t next_length(const Ring *ring, size_t size) {
        size_t left = room(ring);

        return MIN2(size, left < FRAME_MIN ? RING_ROOM : left);
}

void ring_append(Ring *ring, RingStream stream, const void *data, size_t size) {
        const char *p = data;
        bool dropped = false;

        while (size > 0) {
                size_t n = next_length(ring, size);
                if (put_bytes(ring, stream, p, n) < 0) {
                        ring->lost[stream] += n;
                        dropped = true;
                } else {
                        ring_slot(ring, ring->n_begun - 1)->kept[stream] += (uint32_t) n;
                        ring->head.kept[stream] += n;
                }
                ring->head.written[stream] += n;
                p += n;
                size -= n;
        }
        if (dropped)
                (void) put_head(ring); // its page is there, if it ever was
}

void ring_drop(Ring *ring, RingStream stream, uint64_t size) {
        ring->lost[stream] += size;
        ring->head.written[stream] += size;
}

void ring_end(Ring *ring) {
        ring->head.ended = 1;
        (void) put_head(ring); // without it the ring is one whose writer died
}

void ring_stat(const Ring *ring, RingStat *ret) {
        *ret = (RingStat) {.ended = ring->head.ended};
        memcpy(ret->written, ring->head.written, sizeof(ret->written));
        memcpy(ret->kept, ring->head.kept, sizeof(ret->kept));
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Ring, reading: of a file that somebody writes in this process, or of one that was left, whose bytes may be anything. Only what has its sum is used, numbers
// are compared before they are added, and each step goes forward in the file, so that no file makes a reader run for ever.
#include "io/ring_internal.h"

#include <string.h>
#include <sys/stat.h>

struct RingCursor {
        uint64_t offset, seq;
        bool loaded;
        size_t at, filled; // in the block; `filled`: what was known to be used when it was read
        uint64_t next;     // the offset of the frame at `at`
        char block[RING_BLOCK];
};

int ring_cursor_new(uint64_t offset, RingCursor **ret) {
        RingCursor *cursor = calloc(1, sizeof(RingCursor));

        if (!cursor)
                return -ENOMEM;
        cursor->offset = offset;
        *ret = cursor;
        return 0;
}

RingCursor *ring_cursor_free(RingCursor *cursor) {
        free(cursor);
        return NULL;
}

static uint64_t sum_of(const uint64_t written[_RING_STREAM_MAX]) {
        return written[RING_OUT] + written[RING_ERR];
}

static bool written_valid(const uint64_t written[_RING_STREAM_MAX]) {
        return written[RING_OUT] <= RING_WRITTEN_MAX && written[RING_ERR] <= RING_WRITTEN_MAX;
}

// ---- blocks and frames ----

static int load(const Ring *ring, RingCursor *cursor, uint64_t seq) {
        const RingSlot *slot = ring_slot(ring, seq);
        ssize_t n = pread(ring->fd, cursor->block, sizeof(cursor->block), ring_position(ring, seq));

        if (n < 0)
                return -errno;
        memset(cursor->block + n, 0, sizeof(cursor->block) - (size_t) n);
        cursor->seq = seq;
        cursor->filled = slot->used;
        return 0;
}

static void enter(const Ring *ring, RingCursor *cursor) {
        cursor->loaded = true;
        cursor->at = sizeof(RingBlock);
        cursor->next = sum_of(ring_slot(ring, cursor->seq)->block.written);
}

typedef struct Frame {
        RingFrame head;
        const char *data;
        RingGap gap; // of a RING_LOST
} Frame;

// How many bytes of the command's it stands for.
static uint64_t frame_span(const Frame *frame) {
        return frame->head.kind == RING_LOST ? sum_of(frame->gap.lost) : frame->head.length;
}

static bool frame_get(const Ring *ring, const RingCursor *cursor, Frame *ret) {
        size_t left = sizeof(cursor->block) - cursor->at;

        if (left < sizeof(RingFrame))
                return false;
        memcpy(&ret->head, cursor->block + cursor->at, sizeof(RingFrame));
        ret->data = cursor->block + cursor->at + sizeof(RingFrame);
        if (ret->head.length == 0 || ret->head.length > left - sizeof(RingFrame) || ret->head.kind >= RING_KINDS || ret->head.zero)
                return false;
        if (ret->head.sum != ring_frame_sum(ring, cursor->seq, cursor->at, &ret->head, ret->data))
                return false;
        if (ret->head.kind != RING_LOST)
                return true;
        if (ret->head.length != sizeof(RingGap))
                return false;
        memcpy(&ret->gap, ret->data, sizeof(ret->gap));
        return written_valid(ret->gap.lost) && cursor->next <= 4 * RING_WRITTEN_MAX; // no sum of these overflows
}

static void frame_pass(RingCursor *cursor, const Frame *frame) {
        cursor->at += sizeof(RingFrame) + frame->head.length;
        cursor->next += frame_span(frame);
}

// ---- what was left ----

static int read_head(Ring *ring) {
        RingHead *head = &ring->head;
        struct stat st;
        ssize_t n = pread(ring->fd, head, sizeof(*head), 0);

        if (n < 0 || fstat(ring->fd, &st) < 0)
                return -errno;
        if (n != sizeof(*head) || head->magic != RING_MAGIC || head->sum != ring_head_sum(head) || !written_valid(head->written) || !written_valid(head->kept))
                return -EBADMSG;
        if (head->head_blocks == 0 || head->tail_blocks == 0 || head->head_blocks > RING_SIZE_MAX / RING_BLOCK || head->tail_blocks > RING_SIZE_MAX / RING_BLOCK)
                return -EBADMSG;
        // A shorter one lost blocks, and is read as far as it goes.
        return S_ISREG(st.st_mode) ? 0 : -EBADMSG;
}

static void read_block(Ring *ring, size_t i) {
        RingBlock block;

        if (pread(ring->fd, &block, sizeof(block), RING_HEAD + (off_t) i * RING_BLOCK) != sizeof(block) || block.sum != ring_block_sum(ring, &block))
                return;
        if (!written_valid(block.written) || block.seq > RING_WRITTEN_MAX || ring_slot(ring, block.seq) != ring->slots + i)
                return;
        ring->slots[i] = (RingSlot) {.valid = true, .block = block, .used = RING_BLOCK};
        ring->n_begun = MAX2(ring->n_begun, block.seq + 1);
}

// Of an earlier round, where the one that should have taken its place could not be written.
static void drop_old(Ring *ring) {
        for (size_t i = ring->head.head_blocks; i < ring_slots(ring); i++)
                if (ring->slots[i].valid && ring->slots[i].block.seq + ring->head.tail_blocks < ring->n_begun)
                        ring->slots[i].valid = false;
}

static int count_block(Ring *ring, RingCursor *cursor, RingSlot *slot, uint64_t written[_RING_STREAM_MAX]) {
        Frame frame;
        int r = load(ring, cursor, slot->block.seq);

        if (r < 0)
                return r;
        memcpy(written, slot->block.written, sizeof(slot->block.written));
        for (enter(ring, cursor); frame_get(ring, cursor, &frame); frame_pass(cursor, &frame)) {
                for (size_t k = 0; frame.head.kind == RING_LOST && k < _RING_STREAM_MAX; k++)
                        written[k] += frame.gap.lost[k];
                if (frame.head.kind != RING_LOST) {
                        written[frame.head.kind] += frame.head.length;
                        ring->head.kept[frame.head.kind] += frame.head.length;
                }
        }
        return 0;
}

// A writer that died left no sums of its own.
static int count(Ring *ring) {
        _cleanup_(ring_cursor_freep) RingCursor *cursor = NULL;
        int r = ring_cursor_new(0, &cursor);

        memset(ring->head.kept, 0, sizeof(ring->head.kept));
        for (size_t i = 0; r >= 0 && i < ring_slots(ring); i++) {
                uint64_t written[_RING_STREAM_MAX];
                if (!ring->slots[i].valid)
                        continue;
                r = count_block(ring, cursor, &ring->slots[i], written);
                for (size_t k = 0; r >= 0 && ring->slots[i].block.seq == ring->n_begun - 1 && k < _RING_STREAM_MAX; k++)
                        ring->head.written[k] = MAX2(ring->head.written[k], written[k]);
        }
        return r;
}

int ring_open(int fd, Ring **ret) {
        _cleanup_(ring_freep) Ring *ring = calloc(1, sizeof(Ring));
        int r;

        if (!ring)
                return -ENOMEM;
        ring->fd = fd;
        r = read_head(ring);
        if (r >= 0 && !(ring->slots = calloc(ring_slots(ring), sizeof(RingSlot))))
                r = -ENOMEM;
        for (size_t i = 0; r >= 0 && i < ring_slots(ring); i++)
                read_block(ring, i);
        if (r >= 0)
                drop_old(ring);
        if (r >= 0 && !ring->head.ended)
                r = count(ring);
        if (r < 0) {
                ring->fd = -EBADF; // the caller's still
                return r;
        }
        *ret = TAKE_PTR(ring);
        return 0;
}

// ---- pieces ----

static int lost(RingCursor *cursor, uint64_t until, RingPiece *ret) {
        *ret = (RingPiece) {.lost = true, .offset = cursor->offset, .length = until - cursor->offset};
        cursor->offset = until;
        return 1;
}

// The first block that is kept from `seq` on; UINT64_MAX: none.
static uint64_t next_kept(const Ring *ring, uint64_t seq) {
        uint64_t tail = ring->n_begun > ring_slots(ring) ? ring->n_begun - ring->head.tail_blocks : 0;

        for (; seq < ring->n_begun; seq++) {
                if (seq >= ring->head.head_blocks && seq < tail)
                        seq = tail;
                if (ring_has(ring, seq))
                        return seq;
        }
        return UINT64_MAX;
}

// 1: the cursor is in a block; 0: there is no further one.
static int go_in(const Ring *ring, RingCursor *cursor) {
        uint64_t seq = next_kept(ring, cursor->seq);
        int r;

        if (seq == UINT64_MAX)
                return 0;
        r = load(ring, cursor, seq);
        if (r < 0)
                return r;
        enter(ring, cursor);
        return 1;
}

// What was written to its block since it was read. False: nothing.
static bool grown(const Ring *ring, const RingCursor *cursor) {
        return ring_has(ring, cursor->seq) && ring_slot(ring, cursor->seq)->used > cursor->filled;
}

// Past what the caller has; 1: the rest of the frame is for it.
static int take(RingCursor *cursor, const Frame *frame, RingPiece *ret) {
        uint64_t begin = cursor->next, end = begin + frame_span(frame);

        if (begin > cursor->offset) // the sums were right and the offsets were not: something is missing
                return lost(cursor, begin, ret);
        frame_pass(cursor, frame);
        if (end <= cursor->offset)
                return 0;
        if (frame->head.kind == RING_LOST)
                return lost(cursor, end, ret);
        *ret = (RingPiece) {.stream = (RingStream) frame->head.kind, .offset = cursor->offset, .length = end - cursor->offset,
                            .data = frame->data + (cursor->offset - begin)};
        cursor->offset = end;
        return 1;
}

static int read_end(const Ring *ring, RingCursor *cursor, RingPiece *ret) {
        uint64_t written = sum_of(ring->head.written);

        return written > cursor->offset ? lost(cursor, written, ret) : 0;
}

int ring_read(Ring *ring, RingCursor *cursor, RingPiece *ret) {
        Frame frame;
        int r;

        for (;;) {
                if (!cursor->loaded && (r = go_in(ring, cursor)) <= 0)
                        return r < 0 ? r : read_end(ring, cursor, ret);
                while (frame_get(ring, cursor, &frame))
                        if (take(cursor, &frame, ret) == 1)
                                return 1;
                if (grown(ring, cursor)) {
                        r = load(ring, cursor, cursor->seq);
                        if (r < 0)
                                return r;
                        continue;
                }
                if (cursor->seq + 1 >= ring->n_begun)
                        return read_end(ring, cursor, ret);
                cursor->loaded = false;
                cursor->seq++;
        }
}

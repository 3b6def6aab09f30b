// SPDX-License-Identifier: GPL-2.0-or-later
// A file of a command's output that anybody may have written. The input is a list of edits, each 16 bytes: most with right sums, since nothing behind a wrong
// one is read. Whatever comes out, the pieces follow each other, what is kept is no more than the file has, and reading comes to an end.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "io/ring_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BLOCKS 4
#define FILE_SIZE (RING_HEAD + BLOCKS * RING_BLOCK)

typedef struct Edit {
        uint8_t op, where, kind, count;
        uint16_t at, length;
        uint64_t value;
} Edit;

static char file[FILE_SIZE];
static size_t file_size;

static void put(size_t at, const void *data, size_t size) {
        if (at < FILE_SIZE)
                memcpy(file + at, data, MIN2(size, FILE_SIZE - at));
}

static void edit_head(RingHead *head, const Edit *e) {
        uint64_t *const fields[] = {&head->seed, &head->ended, head->written, head->written + 1, head->kept, head->kept + 1};

        if (e->where < ELEMENTS(fields))
                *fields[e->where] = e->value;
        else if (e->where == ELEMENTS(fields))
                head->head_blocks = (uint32_t) e->value;
        else
                head->tail_blocks = (uint32_t) e->value;
        head->sum = ring_head_sum(head);
        put(0, head, sizeof(*head));
}

static void edit(Ring *ring, RingBlock *block, const Edit *e) {
        size_t base = RING_HEAD + (size_t) (e->where % BLOCKS) * RING_BLOCK, at = sizeof(RingBlock) + e->at % (RING_BLOCK - sizeof(RingBlock) - sizeof(RingFrame));
        RingFrame frame = {.kind = e->kind, .length = e->length};

        switch (e->op % 6) {
        case 0:
                edit_head(&ring->head, e);
                break;
        case 1: // what the blocks to come say
                *(e->kind % 3 == 0 ? &block->seq : block->written + e->kind % 3 - 1) = e->value;
                break;
        case 2:
                block->sum = ring_block_sum(ring, block);
                put(base, block, sizeof(*block));
                break;
        case 3: { // frames, one behind the other
                for (unsigned i = 0; i <= e->count % 8 && at + sizeof(frame) + frame.length <= RING_BLOCK; i++) {
                        frame.sum = ring_frame_sum(ring, block->seq, at, &frame, file + base + at + sizeof(frame));
                        put(base + at, &frame, sizeof(frame));
                        at += sizeof(frame) + frame.length;
                }
                break;
        }
        case 4:
                put(base + at, &e->value, sizeof(e->value));
                break;
        case 5:
                file_size = e->value % (FILE_SIZE + 1);
                break;
        }
}

static void read_all(Ring *ring, uint64_t offset) {
        _cleanup_(ring_cursor_freep) RingCursor *cursor = NULL;
        uint64_t at = offset, kept = 0;
        unsigned char last = 0;
        RingPiece piece;

        if (ring_cursor_new(offset, &cursor) < 0)
                abort();
        for (size_t n = 0; ring_read(ring, cursor, &piece) == 1; n++) {
                if (n > 2 * FILE_SIZE / sizeof(RingFrame) || piece.offset != at || piece.length == 0)
                        abort();
                at += piece.length;
                kept += piece.lost ? 0 : piece.length;
                if (!piece.lost)
                        last = (unsigned char) (last ^ piece.data[0] ^ piece.data[piece.length - 1]);
        }
        if (kept > FILE_SIZE || ring_read(ring, cursor, &piece) != 0)
                abort();
        __asm__ volatile("" : : "r"(last));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        Ring plan = {.fd = -EBADF, .head = {.magic = RING_MAGIC, .seed = 1, .head_blocks = 2, .tail_blocks = 2}}, *ring = NULL;
        RingBlock block = {0};
        RingStat stat;
        int fd = memfd_create("ring", MFD_CLOEXEC);

        memset(file, 0, sizeof(file));
        file_size = FILE_SIZE;
        edit_head(&plan.head, &(Edit) {.value = 1});
        for (; size >= sizeof(Edit); data += sizeof(Edit), size -= sizeof(Edit)) {
                Edit e;
                memcpy(&e, data, sizeof(e));
                edit(&plan, &block, &e);
        }
        if (fd < 0 || pwrite(fd, file, file_size, 0) != (ssize_t) file_size)
                abort();
        if (ring_open(fd, &ring) < 0) {
                (void) close_fd(fd);
                return 0;
        }
        ring_stat(ring, &stat);
        read_all(ring, 0);
        read_all(ring, 1000);
        read_all(ring, stat.written[0]);
        (void) ring_free(ring);
        return 0;
}

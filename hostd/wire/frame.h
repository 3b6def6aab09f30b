// SPDX-License-Identifier: GPL-2.0-or-later
// Frame: one Varlink message, a JSON object that ends with a NUL, and the descriptors that came with it.
//
// A FrameReader is fed what read(2) returned, in whatever pieces, and hands out whole frames. Descriptors belong to the frame
// that holds the last byte of the read which brought them: the kernel ends a read after the piece that carries descriptors, so
// this is exact for every sender that sends one frame per sendmsg(2).
#pragma once

#include <jansson.h>

#include "base/error.h"

#define WIRE_FRAME_MAX (1 << 20)
#define WIRE_FDS_MAX 3
#define WIRE_VALUES_MAX 65536 // values in one frame: a MiB of "[],[],…" would become fifty in memory

typedef struct Frame {
        char *text; // owned, NUL-terminated
        size_t size;
        int fds[WIRE_FDS_MAX];
        size_t n_fds;
} Frame;

#define FRAME_NULL ((Frame) {.fds = {-EBADF, -EBADF, -EBADF}})
void frame_done(Frame *frame);
#define _cleanup_frame_ _cleanup_(frame_done)

typedef struct FrameReader {
        char *buf;
        size_t used, room, scanned; // `scanned` bytes are known to hold no NUL
        size_t max;                 // of one frame
        int fds[WIRE_FDS_MAX];
        size_t n_fds;
        size_t fds_offset; // of the byte that the descriptors came with
} FrameReader;

#define FRAME_READER_INIT(limit) ((FrameReader) {.max = (limit)})
void frame_reader_done(FrameReader *reader);
// Takes the descriptors over, also on failure. -EMSGSIZE: a frame is too long; -E2BIG: a frame has more than three
// descriptors. After a failure the stream is lost and the connection must be closed.
int frame_reader_feed(FrameReader *reader, const void *data, size_t size, const int *fds, size_t n_fds);
// 1: a frame was taken out; 0: none is complete.
int frame_reader_next(FrameReader *reader, Frame *ret);

// One recvmsg(2) fed to the reader: bytes read, 0 at the end of the stream, or a negative errno (-EAGAIN with MSG_DONTWAIT).
ssize_t frame_reader_receive(FrameReader *reader, int sock, int flags);

// A JSON object without duplicate keys, NUL in strings or bytes that are no UTF-8.
int frame_parse(const char *text, size_t size, json_t **ret, Error *err);
// The text of an object with its NUL; `ret_size` counts the NUL.
int frame_format(const json_t *object, char **ret, size_t *ret_size);

// SPDX-License-Identifier: GPL-2.0-or-later
// Frame: see frame.h.
#include "wire/frame.h"

#include <stdbool.h>
#include <string.h>

#include "base/io.h"

static void frame_close_fds(const int *fds, size_t n) {
        for (size_t i = 0; i < n; i++)
                (void) close_fd(fds[i]);
}

void frame_done(Frame *frame) {
        free(frame->text);
        frame_close_fds(frame->fds, frame->n_fds);
        *frame = FRAME_NULL;
}

void frame_reader_done(FrameReader *reader) {
        free(reader->buf);
        frame_close_fds(reader->fds, reader->n_fds);
        *reader = FRAME_READER_INIT(reader->max);
}

static int frame_reader_reserve(FrameReader *reader, size_t size) {
        size_t room = reader->room ?: 4096;
        char *grown;

        if (size <= reader->room)
                return 0;
        while (room < size)
                room *= 2;
        grown = realloc(reader->buf, room);
        if (!grown)
                return -ENOMEM;
        reader->buf = grown;
        reader->room = room;
        return 0;
}

// Where the frame begins that holds the byte at `offset`.
static size_t frame_start(const FrameReader *reader, size_t offset) {
        const char *nul = offset > 0 ? memrchr(reader->buf, 0, offset) : NULL;

        return nul ? (size_t) (nul - reader->buf) + 1 : 0;
}

static int frame_reader_add_fds(FrameReader *reader, const int *fds, size_t n_fds) {
        size_t offset = reader->used - 1;

        if (n_fds == 0)
                return 0;
        // Descriptors of a frame that was not taken out yet, and now some of another one: only a sender that does not
        // wait for answers gets here, and it would need a queue of descriptors without bound.
        if (reader->n_fds + n_fds > WIRE_FDS_MAX ||
            (reader->n_fds > 0 && frame_start(reader, reader->fds_offset) != frame_start(reader, offset))) {
                frame_close_fds(fds, n_fds);
                return -E2BIG;
        }
        memcpy(reader->fds + reader->n_fds, fds, n_fds * sizeof(int));
        reader->n_fds += n_fds;
        reader->fds_offset = offset;
        return 0;
}

int frame_reader_feed(FrameReader *reader, const void *data, size_t size, const int *fds, size_t n_fds) {
        const char *last;
        int r = size == 0 ? -EBADMSG : frame_reader_reserve(reader, reader->used + size);

        if (r < 0) {
                frame_close_fds(fds, n_fds);
                return r;
        }
        memcpy(reader->buf + reader->used, data, size);
        reader->used += size;
        r = frame_reader_add_fds(reader, fds, n_fds);
        if (r < 0)
                return r;
        // Only what follows the last NUL can still grow; complete frames are measured when they are taken out.
        last = memrchr(reader->buf, 0, reader->used);
        if (reader->used - (last ? (size_t) (last - reader->buf) + 1 : 0) > reader->max)
                return -EMSGSIZE;
        return 0;
}

static void frame_reader_drop(FrameReader *reader, size_t size) {
        reader->used -= size;
        memmove(reader->buf, reader->buf + size, reader->used);
        reader->scanned = 0;
        if (reader->n_fds > 0)
                reader->fds_offset -= size; // they belong to a later frame
        if (reader->used == 0 && reader->room > 65536) { // an idle connection costs little
                free(TAKE_PTR(reader->buf));
                reader->room = 0;
        }
}

int frame_reader_next(FrameReader *reader, Frame *ret) {
        const char *nul = reader->used > reader->scanned
                                ? memchr(reader->buf + reader->scanned, 0, reader->used - reader->scanned)
                                : NULL;
        Frame frame = FRAME_NULL;

        if (!nul) {
                reader->scanned = reader->used;
                return 0;
        }
        frame.size = (size_t) (nul - reader->buf);
        if (frame.size > reader->max)
                return -EMSGSIZE;
        frame.text = malloc(frame.size + 1);
        if (!frame.text)
                return -ENOMEM;
        memcpy(frame.text, reader->buf, frame.size + 1);
        if (reader->n_fds > 0 && reader->fds_offset <= frame.size) {
                memcpy(frame.fds, reader->fds, reader->n_fds * sizeof(int));
                frame.n_fds = reader->n_fds;
                reader->n_fds = 0;
        }
        frame_reader_drop(reader, frame.size + 1);
        *ret = frame;
        return 1;
}

ssize_t frame_reader_receive(FrameReader *reader, int sock, int flags) {
        char buf[16384];
        int fds[IO_FDS_MAX], r;
        size_t n_fds = ELEMENTS(fds);
        ssize_t n = io_recv_fds(sock, buf, sizeof(buf), fds, &n_fds, flags);

        if (n < 0)
                return n;
        if (n == 0) {
                frame_close_fds(fds, n_fds);
                return 0;
        }
        r = frame_reader_feed(reader, buf, (size_t) n, fds, n_fds);
        return r < 0 ? r : n;
}

// Counts what would become a value each, before the parser allocates anything.
static bool frame_is_modest(const char *text, size_t size) {
        bool in_string = false;
        size_t n = 0;

        for (size_t i = 0; i < size; i++) {
                if (in_string) {
                        if (text[i] == '\\')
                                i++;
                        else if (text[i] == '"')
                                in_string = false;
                } else if (text[i] == '"')
                        in_string = true;
                else if (text[i] == ',' || text[i] == '[' || text[i] == '{')
                        n++;
        }
        return n <= WIRE_VALUES_MAX;
}

int frame_parse(const char *text, size_t size, json_t **ret, Error *err) {
        json_error_t why;
        json_t *object;

        if (!frame_is_modest(text, size))
                return error_set(err, ERR_INVALID, "the message has more than %d values", WIRE_VALUES_MAX);
        object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
        if (!object)
                return error_set(err, ERR_INVALID, "the message is not valid JSON: %s at byte %d", why.text, why.position);
        if (!json_is_object(object)) {
                json_decref(object);
                return error_set(err, ERR_INVALID, "the message is not a JSON object");
        }
        *ret = object;
        return 0;
}

int frame_format(const json_t *object, char **ret, size_t *ret_size) {
        char *text = json_dumps(object, JSON_COMPACT);

        if (!text)
                return -ENOMEM;
        *ret = text;
        *ret_size = strlen(text) + 1; // a NUL inside a string is escaped
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes from a client: cut into reads, put together to frames, parsed, and held against the row of the method they name.
// The first byte says how long the pieces are; its top bit adds a descriptor to every fourth.
#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include "api/method.h"
#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(json_t *message) {
        _cleanup_error_ Error err = ERROR_NULL;
        const char *name = json_string_value(json_object_get(message, "method"));
        MethodId id = name ? method_from_name(name) : _METHOD_INVALID;
        _cleanup_free_ char *text = NULL;
        size_t size;

        if (id >= 0)
                (void) method_check(method_get(id), json_object_get(message, "parameters"), &err);
        // What was accepted can be written again.
        if (frame_format(message, &text, &size) < 0 || strlen(text) + 1 != size)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FrameReader reader = FRAME_READER_INIT(4096);
        size_t step = size > 0 ? (data[0] & 0x7f) + 1 : 1, piece = 0;
        bool with_fds = size > 0 && data[0] & 0x80;

        for (size_t i = 1; i < size; i += step, piece++) {
                int fd = with_fds && piece % 4 == 0 ? fcntl(0, F_DUPFD_CLOEXEC, 3) : -EBADF;
                if (frame_reader_feed(&reader, data + i, MIN2(step, size - i), &fd, fd >= 0) < 0)
                        break;
                for (;;) {
                        _cleanup_frame_ Frame frame = FRAME_NULL;
                        json_t *message = NULL;
                        int r = frame_reader_next(&reader, &frame);
                        if (r <= 0)
                                break;
                        if (frame.text[frame.size] != 0 || memchr(frame.text, 0, frame.size))
                                abort();
                        if (frame_parse(frame.text, frame.size, &message, NULL) == 0)
                                check_message(message);
                        json_decref(message);
                }
        }
        frame_reader_done(&reader);
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// RedactValues: see values.h.
#include "redact/values.h"

#include <string.h>

#include "base/io.h"

static int parse(char *data, size_t size, RedactValues *ret) {
        RedactValue values[REDACT_VALUES_MAX];
        RedactFrame frame;
        size_t at = 0;

        for (ret->n = 0; ret->n < REDACT_VALUES_MAX; ret->n++) {
                if (size - at < sizeof(frame))
                        return -EBADMSG;
                memcpy(&frame, data + at, sizeof(frame));
                at += sizeof(frame);
                if (frame.magic != REDACT_MAGIC || frame.size > size - at || frame.name[REDACT_NAME_MAX])
                        return -EBADMSG;
                if (!frame.name[0])
                        break;
                memcpy(ret->names[ret->n], frame.name, REDACT_NAME_MAX);
                values[ret->n] = (RedactValue) {ret->names[ret->n], data + at, frame.size};
                at += frame.size;
        }
        return redactor_new(values, ret->n, &ret->redactor);
}

int redact_values_read(int fd, RedactValues *ret) {
        _cleanup_free_ char *data = NULL;
        size_t size = 0;
        int r = io_read_all(fd, REDACT_BYTES_MAX, &data, &size);

        if (r >= 0)
                r = parse(data, size, ret);
        if (data)
                explicit_bzero(data, size);
        return r;
}

void redact_values_done(RedactValues *values) {
        values->redactor = redactor_free(values->redactor);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Records of /dev/kmsg hold names that guests chose.
#include <stdint.h>
#include <string.h>

#include "base/valid.h"
#include "quotas/oom.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *copy = malloc(size ?: 1); // exact, so that a read beyond is seen
        OomVictim victim = {0};

        if (!copy)
                return 0;
        memcpy(copy, data, size);
        if (oom_parse(copy, size, &victim) == 0 && (victim.pid <= 0 || !valid_is(VALID_TEXT, victim.comm)))
                abort();
        return 0;
}

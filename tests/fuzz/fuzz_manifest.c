// SPDX-License-Identifier: GPL-2.0-or-later
// hostd reads manifests as root: whatever is accepted must survive being written and read again.
#include <stdint.h>
#include <string.h>

#include "build/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_(manifest_freep) Manifest *first = NULL, *second = NULL;
        _cleanup_free_ char *text = NULL;

        if (manifest_parse((const char *) data, size, &first, NULL) < 0)
                return 0;
        text = manifest_format(first);
        if (!text || manifest_parse(text, strlen(text), &second, NULL) < 0 || strcmp(first->digest, second->digest) != 0)
                abort();
        return 0;
}

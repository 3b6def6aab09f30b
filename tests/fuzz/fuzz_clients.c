// SPDX-License-Identifier: GPL-2.0-or-later
// What a template's programs print: whatever it is, what comes out of it may stand in a manifest. The first byte says how it is scanned.
#include <stdint.h>
#include <string.h>

#include "base/strv.h"
#include "build/clients.h"
#include "build/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_strv_ char **mirrors = NULL;
        _cleanup_free_ char *text = size > 0 ? strndup((const char *) data + 1, size - 1) : NULL;

        if (!text || clients_scan((ClientScan) (data[0] % (SCAN_INDEX + 1)), text, &mirrors) < 0)
                return 0;
        if (strv_length(mirrors) > MANIFEST_MIRRORS_MAX)
                abort();
        for (char **p = mirrors; p && *p; p++)
                if (!manifest_mirror_is_valid(*p))
                        abort();
        return 0;
}

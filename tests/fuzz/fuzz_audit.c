// SPDX-License-Identifier: GPL-2.0-or-later
// The reader of audit files on any bytes: the chain walk with and without a head, and the line reader at its bounds.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "state/audit_chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static int fd = -EBADF;
        _cleanup_(audit_reader_done) AuditReader reader = {0};
        AuditMark mark = AUDIT_MARK_START, head = AUDIT_MARK_START;
        size_t total = 0;
        int r;

        if (fd < 0)
                fd = memfd_create("fuzz-audit", MFD_CLOEXEC);
        if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 || io_write_all(fd, data, size) < 0)
                abort();
        (void) lseek(fd, 0, SEEK_SET);
        head.seq = 1;
        r = audit_chain_file(&mark, fd, size % 2 ? &head : NULL, size % 3 == 0, NULL);
        if (r > 0 || (mark.seq == 0) != (strcmp(mark.hash, AUDIT_MARK_START.hash) == 0))
                abort();
        (void) lseek(fd, 0, SEEK_SET);
        reader.fd = fd;
        while ((r = audit_reader_next(&reader)) > 0) {
                if (reader.size > AUDIT_LINE_MAX)
                        abort();
                total += reader.size + 1;
        }
        if (total > size || (r == 0 && !reader.torn && total != size))
                abort();
        return 0;
}

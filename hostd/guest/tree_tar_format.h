// SPDX-License-Identifier: GPL-2.0-or-later
// Tar: the layout that both sides share (POSIX.1, ustar and pax; of GNU's the long names).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TAR_BLOCK 512
#define TAR_PAX_MAX 16384            // of a pax header that we write
#define TAR_PAX_READ_MAX (1024 * 1024) // and of one that we read: others put extended attributes there
#define TAR_SIZE_MAX (INT64_C(1) << 46)

enum { TAR_FILE = '0', TAR_HARD = '1', TAR_LINK = '2', TAR_CHAR = '3', TAR_BLOCK_DEVICE = '4', TAR_DIR = '5', TAR_FIFO = '6', TAR_CONTIGUOUS = '7', TAR_PAX = 'x', TAR_PAX_ALL = 'g', TAR_GNU_NAME = 'L', TAR_GNU_LINK = 'K', TAR_GNU_SPARSE = 'S' };

typedef struct TarHeader {
        char name[100];
        char mode[8], uid[8], gid[8];
        char size[12], mtime[12];
        char checksum[8];
        char type;
        char link[100];
        char magic[6], version[2];
        char owner[32], group[32];
        char device_major[8], device_minor[8];
        char prefix[155];
        char zero[12];
} TarHeader;
_Static_assert(sizeof(TarHeader) == TAR_BLOCK, "a header is a block");

// The sum of all bytes, its own field taken as spaces.
static inline uint32_t tar_checksum(const TarHeader *h) {
        const unsigned char *p = (const unsigned char *) h;
        uint32_t sum = 0;

        for (size_t i = 0; i < sizeof(*h); i++)
                sum += i >= 148 && i < 156 ? ' ' : p[i];
        return sum;
}

static inline void tar_checksum_set(TarHeader *h) {
        uint32_t sum = tar_checksum(h);

        for (int i = 5; i >= 0; i--, sum >>= 3)
                h->checksum[i] = (char) ('0' + (sum & 7));
        h->checksum[6] = 0;
        h->checksum[7] = ' ';
}

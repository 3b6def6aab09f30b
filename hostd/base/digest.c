// SPDX-License-Identifier: GPL-2.0-or-later
// Digest: see digest.h.
#include "base/digest.h"

#include <sodium.h>

char *digest_bytes(const void *data, size_t size, char ret[DIGEST_TEXT_MAX]) {
        unsigned char hash[crypto_hash_sha256_BYTES];

        crypto_hash_sha256(hash, data, size);
        return sodium_bin2hex(ret, DIGEST_TEXT_MAX, hash, sizeof(hash));
}

int digest_fd(int fd, char ret[DIGEST_TEXT_MAX]) {
        _cleanup_free_ unsigned char *buf = malloc(1 << 18);
        unsigned char hash[crypto_hash_sha256_BYTES];
        crypto_hash_sha256_state state;

        if (!buf)
                return -ENOMEM;
        crypto_hash_sha256_init(&state);
        for (;;) {
                ssize_t n = read(fd, buf, 1 << 18);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
                crypto_hash_sha256_update(&state, buf, (unsigned long long) n);
        }
        crypto_hash_sha256_final(&state, hash);
        (void) sodium_bin2hex(ret, DIGEST_TEXT_MAX, hash, sizeof(hash));
        return 0;
}

char *digest_random(size_t size, char *ret) {
        unsigned char bytes[64];

        size = MIN2(size, sizeof(bytes));
        randombytes_buf(bytes, size);
        return sodium_bin2hex(ret, size * 2 + 1, bytes, size);
}

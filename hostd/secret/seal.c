// SPDX-License-Identifier: GPL-2.0-or-later
// Seal: see seal.h.
//
// Text: base64 of {version, 8 bytes of the key's hash, nonce, ciphertext}; version, hash and context are authenticated with it.
#include "secret/seal.h"

#include <sodium.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/io.h"

#define KEY_BYTES crypto_aead_xchacha20poly1305_ietf_KEYBYTES
#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_BYTES crypto_aead_xchacha20poly1305_ietf_ABYTES
#define ID_BYTES 8
#define HEAD_BYTES (1 + ID_BYTES + NONCE_BYTES)
#define SEAL_VERSION 1
#define CONTEXT_MAX 128
#define KEYS_MAX 2
#define KEY_ID_DOMAIN "hostd sealing key identifier" // 16 to 64 bytes, as the hash wants its key

typedef struct SealKey {
        unsigned char *bytes; // of sodium_malloc()
        unsigned char id[ID_BYTES];
} SealKey;

struct Seal {
        SealKey keys[KEYS_MAX]; // the first one seals
        size_t n;
};

// Locked and out of core files by sodium_malloc(). A child of fork() shares neither the lock nor our care: it finds zeros.
static unsigned char *memory_new(size_t size) {
        unsigned char *p = sodium_malloc(size);
        size_t page = (size_t) sysconf(_SC_PAGESIZE);
        uintptr_t first = (uintptr_t) p & ~(page - 1);

        if (!p)
                return NULL;
        if (madvise((void *) first, (uintptr_t) p + size - first, MADV_WIPEONFORK) < 0) {
                sodium_free(p);
                return NULL;
        }
        memset(p, 0, size);
        return p;
}

int value_new(size_t size, Value **ret) {
        _cleanup_free_ Value *value = calloc(1, sizeof(Value));

        if (!value || sodium_init() < 0 || !(value->data = memory_new(size + 1)))
                return -ENOMEM;
        value->size = size;
        *ret = TAKE_PTR(value);
        return 0;
}

Value *value_free(Value *value) {
        if (!value)
                return NULL;
        sodium_free(value->data);
        free(value);
        return NULL;
}

// ---- keys ----

static void key_identify(SealKey *key) {
        (void) crypto_generichash(key->id, ID_BYTES, key->bytes, KEY_BYTES, (const unsigned char *) KEY_ID_DOMAIN, sizeof(KEY_ID_DOMAIN) - 1);
}

// The file must be nobody else's: a key that others could read or had placed there is no key.
static int key_check(int fd, const char *path, Error *err) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return error_set_errno(err, errno, "%s", path);
        if (!S_ISREG(st.st_mode))
                return error_set(err, ERR_CONFLICT, "%s is not a plain file", path);
        if (st.st_uid != geteuid() || (st.st_mode & 077))
                return error_set(err, ERR_DENIED, "%s can be read or written by others: if it was so for long, set the secrets anew; then chown root and chmod 0600", path);
        if (st.st_size != KEY_BYTES)
                return error_set(err, ERR_CONFLICT, "%s has %lld bytes, a key has %u", path, (long long) st.st_size, KEY_BYTES);
        return 0;
}

// -ENOENT without a sentence when there is none.
static int key_load(Seal *seal, int dir, const char *path, Error *err) {
        _cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        SealKey *key = &seal->keys[seal->n];
        int r;

        if (fd < 0 && errno == ENOENT)
                return -ENOENT;
        if (fd < 0)
                return error_set_errno(err, errno, "cannot open %s", path);
        r = key_check(fd, path, err);
        if (r < 0)
                return r;
        if (!(key->bytes = memory_new(KEY_BYTES)))
                return error_set_errno(err, ENOMEM, "cannot read %s", path);
        seal->n++;
        if (read(fd, key->bytes, KEY_BYTES) != (ssize_t) KEY_BYTES)
                return error_set(err, ERR_CONFLICT, "%s cannot be read", path);
        key_identify(key);
        return 0;
}

static int key_make(Seal *seal, int dir, Error *err) {
        SealKey *key = &seal->keys[seal->n];
        int r;

        if (!(key->bytes = memory_new(KEY_BYTES)))
                return error_set_errno(err, ENOMEM, "cannot make a key");
        seal->n++;
        randombytes_buf(key->bytes, KEY_BYTES);
        r = io_write_atomic(dir, SEAL_KEY_FILE, key->bytes, KEY_BYTES, 0600);
        if (r < 0)
                return error_set_errno(err, r, "cannot write " SEAL_KEY_FILE);
        key_identify(key);
        return 0;
}

static int load_credential(Seal *seal, const char *credentials, Error *err) {
        _cleanup_close_ int dir = credentials ? open(credentials, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -EBADF;

        return dir < 0 ? -ENOENT : key_load(seal, dir, SEAL_CREDENTIAL, err);
}

int seal_open(int state_fd, const char *credentials, Seal **ret, Error *err) {
        _cleanup_(seal_freep) Seal *seal = calloc(1, sizeof(Seal));
        int r;

        if (!seal || sodium_init() < 0)
                return error_set_errno(err, ENOMEM, "cannot open the secrets");
        r = load_credential(seal, credentials, err);
        if (r < 0 && r != -ENOENT)
                return r;
        r = key_load(seal, state_fd, SEAL_KEY_FILE, err);
        if (r == -ENOENT)
                r = seal->n > 0 ? 0 : key_make(seal, state_fd, err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(seal);
        return 0;
}

Seal *seal_free(Seal *seal) {
        if (!seal)
                return NULL;
        for (size_t i = 0; i < KEYS_MAX; i++)
                sodium_free(seal->keys[i].bytes);
        free(seal);
        return NULL;
}

// ---- texts ----

// What is authenticated beside the value: the head and the context. Returns its size, 0 if the context is too long.
static size_t associate(unsigned char ret[HEAD_BYTES + CONTEXT_MAX], const unsigned char *head, const char *context) {
        size_t n = strlen(context);

        if (n == 0 || n > CONTEXT_MAX)
                return 0;
        memcpy(ret, head, HEAD_BYTES);
        memcpy(ret + HEAD_BYTES, context, n);
        return HEAD_BYTES + n;
}

int seal_encrypt(Seal *seal, const char *context, const Value *value, char **ret, Error *err) {
        size_t size = HEAD_BYTES + value->size + TAG_BYTES, n;
        _cleanup_free_ unsigned char *sealed = malloc(size);
        _cleanup_free_ char *text = malloc(sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL));
        unsigned char ad[HEAD_BYTES + CONTEXT_MAX];

        if (!sealed || !text)
                return error_set_errno(err, ENOMEM, "cannot seal %s", context);
        if (value->size > SEAL_VALUE_MAX)
                return error_set(err, ERR_INVALID, "a value has at most %d bytes", SEAL_VALUE_MAX);
        sealed[0] = SEAL_VERSION;
        memcpy(sealed + 1, seal->keys[0].id, ID_BYTES);
        randombytes_buf(sealed + 1 + ID_BYTES, NONCE_BYTES);
        n = associate(ad, sealed, context);
        if (n == 0)
                return error_set(err, ERR_INTERNAL, "the context of a sealed value has 1 to %d bytes", CONTEXT_MAX);
        (void) crypto_aead_xchacha20poly1305_ietf_encrypt(sealed + HEAD_BYTES, NULL, value->data, value->size, ad, n, NULL, sealed + 1 + ID_BYTES,
                                                          seal->keys[0].bytes);
        (void) sodium_bin2base64(text, sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL), sealed, size, sodium_base64_VARIANT_ORIGINAL);
        *ret = TAKE_PTR(text);
        return 0;
}

static const SealKey *key_find(const Seal *seal, const unsigned char *id) {
        for (size_t i = 0; i < seal->n; i++)
                if (memcmp(seal->keys[i].id, id, ID_BYTES) == 0)
                        return &seal->keys[i];
        return NULL;
}

static int decrypt(const SealKey *key, const char *context, const unsigned char *sealed, size_t size, Value **ret) {
        _cleanup_(value_freep) Value *value = NULL;
        unsigned char ad[HEAD_BYTES + CONTEXT_MAX];
        size_t n = associate(ad, sealed, context);

        if (n == 0 || value_new(size - HEAD_BYTES - TAG_BYTES, &value) < 0)
                return -ENOMEM;
        if (crypto_aead_xchacha20poly1305_ietf_decrypt(value->data, NULL, NULL, sealed + HEAD_BYTES, size - HEAD_BYTES, ad, n, sealed + 1 + ID_BYTES, key->bytes) < 0)
                return -EBADMSG;
        *ret = TAKE_PTR(value);
        return 0;
}

int seal_decrypt(Seal *seal, const char *context, const char *text, Value **ret, Error *err) {
        size_t max = strlen(text) / 4 * 3 + 3, size = 0;
        _cleanup_free_ unsigned char *sealed = malloc(max);
        const SealKey *key;
        int r;

        if (!sealed)
                return error_set_errno(err, ENOMEM, "cannot open %s", context);
        if (sodium_base642bin(sealed, max, text, strlen(text), NULL, &size, NULL, sodium_base64_VARIANT_ORIGINAL) < 0 || size < HEAD_BYTES + TAG_BYTES ||
            size > HEAD_BYTES + SEAL_VALUE_MAX + TAG_BYTES || sealed[0] != SEAL_VERSION)
                return error_set(err, ERR_CONFLICT, "the sealed text of %s is damaged", context);
        key = key_find(seal, sealed + 1);
        if (!key)
                return error_set(err, ERR_CONFLICT, "%s was sealed with another key than this host has now: put the key back, or set the value anew", context);
        r = decrypt(key, context, sealed, size, ret);
        if (r == -EBADMSG)
                return error_set(err, ERR_CONFLICT, "the sealed text of %s is damaged or was moved here from elsewhere", context);
        return r < 0 ? error_set_errno(err, r, "cannot open %s", context) : 0;
}

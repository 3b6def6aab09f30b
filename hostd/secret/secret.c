// SPDX-License-Identifier: GPL-2.0-or-later
// Secret: see secret.h. One value of the store each, "secret/NAME": a JSON object of what is plain, and the sealed text.
#include "secret/secret.h"

#include <jansson.h>
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"

#define PREFIX "secret/"
#define CONTEXT_SIZE 64

static char *secret_key(const char *name, char ret[CONTEXT_SIZE]) {
        (void) snprintf(ret, CONTEXT_SIZE, PREFIX "%.32s", name);
        return ret;
}

// The version is part of it: an old text that comes back with an old copy of the store cannot pass for the newest.
static char *secret_context(const Secret *secret, char ret[CONTEXT_SIZE]) {
        (void) snprintf(ret, CONTEXT_SIZE, PREFIX "%.32s/%llu", secret->name, (unsigned long long) secret->version);
        return ret;
}

static int secret_write(const Vault *vault, const Secret *secret, const Value *value, Error *err) {
        _cleanup_free_ char *sealed = NULL, *text = NULL;
        char context[CONTEXT_SIZE], key[CONTEXT_SIZE];
        json_t *object;
        int r = seal_encrypt(vault->seal, secret_context(secret, context), value, &sealed, err);

        if (r < 0)
                return r;
        object = json_pack("{s:I, s:I, s:I, s:s}", "version", (json_int_t) secret->version, "created", (json_int_t) secret->created, "rotated",
                           (json_int_t) secret->rotated, "sealed", sealed);
        text = object ? json_dumps(object, JSON_COMPACT) : NULL;
        json_decref(object);
        if (!text)
                return error_set_errno(err, ENOMEM, "cannot keep %s", secret->name);
        return store_value_keep(vault->store, secret_key(secret->name, key), text, err);
}

static int secret_parse(const char *name, const char *text, Secret *ret, char **ret_sealed) {
        json_int_t version, created, rotated;
        const char *sealed;
        json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        int r = -EBADMSG;

        if (json_unpack(object, "{s:I, s:I, s:I, s:s}", "version", &version, "created", &created, "rotated", &rotated, "sealed", &sealed) == 0 &&
            version > 0 && created >= 0 && rotated >= 0) {
                *ret = (Secret) {.version = (uint64_t) version, .created = (usec_t) created, .rotated = (usec_t) rotated};
                (void) snprintf(ret->name, sizeof(ret->name), "%.32s", name);
                r = 0;
                if (ret_sealed && !(*ret_sealed = strdup(sealed)))
                        r = -ENOMEM;
        }
        json_decref(object);
        return r;
}

static int secret_read(const Vault *vault, const char *name, Secret *ret, char **ret_sealed, Error *err) {
        _cleanup_free_ char *text = NULL;
        _cleanup_error_ Error e = ERROR_NULL;
        char key[CONTEXT_SIZE];
        int r = store_value_get(vault->store, secret_key(name, key), &text, &e);

        if (r < 0 && e.code == ERR_NOT_FOUND)
                return error_set(err, ERR_NOT_FOUND, "there is no secret \"%s\"", name);
        if (r < 0) {
                error_move(err, &e);
                return r;
        }
        r = secret_parse(name, text, ret, ret_sealed);
        return r == -EBADMSG ? error_set(err, ERR_CONFLICT, "the record of secret \"%s\" is damaged", name) : r;
}

static int value_allowed(const Value *value, Error *err) {
        if (value->size == 0)
                return error_set(err, ERR_INVALID, "the value is empty");
        if (value->size > SEAL_VALUE_MAX)
                return error_set(err, ERR_INVALID, "the value has more than %d bytes", SEAL_VALUE_MAX);
        return 0;
}

int secret_add(const Vault *vault, const char *name, const Value *value, Error *err) {
        Secret secret = {.version = 1, .created = clock_realtime()};
        _cleanup_error_ Error e = ERROR_NULL;
        int r = valid_check(VALID_NAME, "secret", name, err);

        if (r == 0)
                r = value_allowed(value, err);
        if (r < 0)
                return r;
        r = secret_get(vault, name, &(Secret) {0}, &e);
        if (r >= 0)
                return error_set(err, ERR_EXISTS, "secret \"%s\" exists already: a new value is put in its place by \"secret rotate\"", name);
        if (e.code != ERR_NOT_FOUND) {
                error_move(err, &e);
                return r;
        }
        secret.rotated = secret.created;
        (void) snprintf(secret.name, sizeof(secret.name), "%s", name);
        return secret_write(vault, &secret, value, err);
}

int secret_rotate(const Vault *vault, const char *name, const Value *value, Error *err) {
        Secret secret;
        int r = value_allowed(value, err);

        if (r == 0)
                r = secret_get(vault, name, &secret, err);
        if (r < 0)
                return r;
        secret.version++;
        secret.rotated = clock_realtime();
        return secret_write(vault, &secret, value, err);
}

int secret_remove(const Vault *vault, const char *name, Error *err) {
        char key[CONTEXT_SIZE];

        return store_value_keep(vault->store, secret_key(name, key), NULL, err);
}

int secret_get(const Vault *vault, const char *name, Secret *ret, Error *err) {
        return secret_read(vault, name, ret, NULL, err);
}

int secret_value(const Vault *vault, const char *name, Value **ret, Error *err) {
        _cleanup_free_ char *sealed = NULL;
        char context[CONTEXT_SIZE];
        Secret secret;
        int r = secret_read(vault, name, &secret, &sealed, err);

        return r < 0 ? r : seal_decrypt(vault->seal, secret_context(&secret, context), sealed, ret, err);
}

int secret_list(const Vault *vault, Secret **ret, size_t *ret_n, Error *err) {
        _cleanup_strv_ char **keys = NULL;
        _cleanup_free_ Secret *list = NULL;
        size_t n = 0;
        int r = store_value_list(vault->store, PREFIX, &keys, err);

        if (r < 0)
                return r;
        list = calloc(strv_length(keys) + 1, sizeof(Secret));
        if (!list)
                return error_set_errno(err, ENOMEM, "cannot list the secrets");
        for (char **key = keys; key && *key; key++) {
                r = secret_get(vault, *key + strlen(PREFIX), &list[n++], err);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(list);
        *ret_n = n;
        return 0;
}

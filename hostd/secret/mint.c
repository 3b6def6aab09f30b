// SPDX-License-Identifier: GPL-2.0-or-later
// Mint: see mint.h. One value of the store each, "mint/NAME", as JSON; what is read is checked as what was asked.
#include "secret/mint.h"

#include <jansson.h>
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"

#define PREFIX "mint/"

void mint_done(Mint *mint) {
        free(mint->command);
        *mint = (Mint) {0};
}

static char *mint_key(const char *secret, char ret[48]) {
        (void) snprintf(ret, 48, PREFIX "%.32s", secret);
        return ret;
}

int mint_check(const Mint *mint, Error *err) {
        int r = valid_check(VALID_NAME, "secret", mint->secret, err);

        if (r == 0)
                r = valid_check(VALID_PATH, "command", mint->command, err);
        if (r == 0)
                r = valid_check(VALID_USER, "user", mint->user, err);
        if (r < 0)
                return r;
        if (mint->life < MINT_LIFE_MIN || mint->life > MINT_LIFE_MAX)
                return error_set_field(err, "for", "a value that a command mints is good for 10 s to 12 h");
        return 0;
}

int mint_keep(const Vault *vault, const Mint *mint, Error *err) {
        json_t *object = json_pack("{s:s, s:s, s:I, s:I}", "command", mint->command, "user", mint->user, "life", (json_int_t) mint->life, "ends", (json_int_t) mint->ends);
        _cleanup_free_ char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
        char key[48];

        json_decref(object);
        if (!text)
                return error_set_errno(err, ENOMEM, "cannot keep how %s is minted", mint->secret);
        return store_value_keep(vault->store, mint_key(mint->secret, key), text, err);
}

int mint_remove(const Vault *vault, const char *secret, Error *err) {
        char key[48];

        return store_value_keep(vault->store, mint_key(secret, key), NULL, err);
}

// -EBADMSG: damaged.
static int mint_read(const Vault *vault, const char *key, Mint *ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        const char *command = NULL, *user = NULL;
        json_int_t life = 0, ends = 0;
        json_t *object;
        int r = store_value_get(vault->store, key, &text, err);

        if (r < 0)
                return r;
        object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        r = json_unpack(object, "{s:s, s:s, s:I, s:I}", "command", &command, "user", &user, "life", &life, "ends", &ends) == 0 && life > 0 && ends >= 0 ? 0 : -EBADMSG;
        if (r == 0) {
                (void) snprintf(ret->secret, sizeof(ret->secret), "%s", key + strlen(PREFIX));
                (void) snprintf(ret->user, sizeof(ret->user), "%s", user);
                ret->life = (usec_t) life;
                ret->ends = (usec_t) ends;
                ret->command = strdup(command);
                r = !ret->command ? -ENOMEM : mint_check(ret, NULL) < 0 ? -EBADMSG : 0;
        }
        json_decref(object);
        if (r < 0)
                mint_done(ret);
        return r;
}

int mint_list(const Vault *vault, Mint **ret, size_t *ret_n, unsigned *ret_damaged, Error *err) {
        _cleanup_strv_ char **keys = NULL;
        Mint *list;
        size_t n = 0;
        int r = store_value_list(vault->store, PREFIX, &keys, err);

        if (r < 0)
                return r;
        list = calloc(strv_length(keys) + 1, sizeof(Mint));
        if (!list)
                return error_set_errno(err, ENOMEM, "cannot list how secrets are minted");
        *ret_damaged = 0;
        for (char **key = keys; key && *key; key++) {
                r = mint_read(vault, *key, &list[n], err);
                if (r == -EBADMSG)
                        (*ret_damaged)++;
                else if (r >= 0)
                        n++;
                else {
                        while (n > 0)
                                mint_done(&list[--n]);
                        free(list);
                        return r;
                }
        }
        *ret = list;
        *ret_n = n;
        return 0;
}

// With a quarter of its life left.
usec_t mint_renew_at(const Mint *mint) {
        return mint->ends - mint->life / 4;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Mint: where the values of a secret come from by themselves: a command of the operator's, and how long what it says is good for. Beside the secret of the
// same name, as a plain record of the store.
#pragma once

#include "secret/secret.h"

#define MINT_LIFE_MIN (10 * USEC_PER_SEC)
#define MINT_LIFE_MAX (12 * 3600 * USEC_PER_SEC)
#define MINT_USER "nobody" // whom the command runs as where nobody says otherwise

typedef struct Mint {
        char secret[33];
        char *command; // absolute path
        char user[33];
        usec_t life, ends; // ends: realtime, of the present value; 0: there is none yet
} Mint;
void mint_done(Mint *mint);

int mint_check(const Mint *mint, Error *err);
int mint_keep(const Vault *vault, const Mint *mint, Error *err);
int mint_remove(const Vault *vault, const char *secret, Error *err); // absent is success
// All that are kept, by name; a damaged record is passed over and counted. Caller frees, each with mint_done().
int mint_list(const Vault *vault, Mint **ret, size_t *ret_n, unsigned *ret_damaged, Error *err);
// When a value that was minted at `now` is to be renewed, well before it ends.
usec_t mint_renew_at(const Mint *mint);

// SPDX-License-Identifier: GPL-2.0-or-later
// Minting: runs the commands that values of secrets come from (secret/mint.h): for a new secret, and again well before each value ends. A value that has ended is
// in force nowhere: grants of its secret rest until there is a new one.
//
// The command is a child without rights, as the user that was named, never as root: no capabilities, no core files, an environment of nothing but PATH, LANG, HOME and HOSTD_SECRET,
// no input, at most 60 s. What it prints is the value, at most 16 KiB; what it complains of is read by nobody, since it might be the value, too.
#pragma once

#include "core/secrets.h"
#include "secret/mint.h"

typedef struct Minting Minting;

typedef void (*MintingDone)(void *userdata, int r, Error *err);

void mintings_open(Secrets *secrets);
void mintings_free(Secrets *secrets);
// Makes the secret with the first value that the command says; `done` is called from the loop when there is one, or none. ERR_EXISTS, ERR_INVALID at once.
int minting_add(Secrets *secrets, Mint *mint /* taken when it succeeds */, MintingDone done, void *userdata, Error *err);
// It is to be minted no more: its record goes, and what runs for it is ended.
int minting_remove(Secrets *secrets, const char *secret, Error *err);
const Mint *minting_find(const Secrets *secrets, const char *secret); // NULL: its values come from people

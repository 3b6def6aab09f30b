// SPDX-License-Identifier: GPL-2.0-or-later
// Ca: the certificate authority of one instance, which speaks for the hosts that its grants name, inside that instance only.
//
// The key is made here, sealed at once, and in the open only while a leaf is signed: neither the instance nor the proxy ever sees it. The proxy gets
// leaves, one for each host, that live for days. ECDSA on P-256 throughout.
#pragma once

#include "base/clock.h"
#include "secret/secret.h"

#define CA_DAYS 1826  // of the authority
#define LEAF_DAYS 7   // of a leaf
#define LEAF_RENEW_DAYS 3 // a leaf that has no more than this left is to be made anew
#define CA_BACKDATE (300 * USEC_PER_SEC) // for clocks that are behind

typedef struct Ca {
        char *certificate; // PEM
        Value *key;        // PEM, in the open
} Ca;
Ca *ca_free(Ca *ca);
DEFINE_CLEANUP(Ca, ca_free)

int ca_new(const char *instance, usec_t now, Ca **ret, Error *err);
// The instance's, from the store. It is made when there is none, or when it has less than a leaf's life left.
int ca_open(const Vault *vault, const char *instance, usec_t now, Ca **ret, Error *err);
int ca_remove(const Vault *vault, const char *instance, Error *err); // absent is success
// A leaf for one exact host: PEM of certificate and key, as HAProxy wants it.
int ca_issue(const Ca *ca, const char *host, usec_t now, Value **ret, Error *err);
// When the first certificate of a PEM text ends; realtime.
int ca_certificate_end(const char *pem, usec_t *ret, Error *err);

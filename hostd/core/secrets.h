// SPDX-License-Identifier: GPL-2.0-or-later
// Secrets: the daemon's side of secret/: which bindings are in force, and their end when their time is over.
#pragma once

#include "core/manager.h"
#include "secret/binding.h"

typedef struct Secrets {
        Manager *manager; // borrowed
        Vault vault;
        Binding **bindings;   // owned; none that is over. First those for the wire,
        size_t n, n_all;      // and behind the n-th those that are files
        Binding **resting; // owned; kept, but not in force: the value of their secret has ended. Room for all of `bindings`, too
        size_t n_resting;
        Binding **leaving; // owned; in force no more, but still in the store. Room for all of `bindings`, too
        size_t n_leaving;
        struct Ended *ended; // ids of those in `leaving`, for the next hostd
        struct FlowSender *records; // to hostd-flow
        sd_event_source *ending; // of the binding that ends next, or when the store is tried again
        sd_event_source *sync;   // interceptors_sync() soon
        struct Interceptor *interceptors; // see core/interceptor.h
        struct Delivery *deliveries;      // see core/delivery.h
        bool swept; // what an earlier hostd left of interceptors is taken over or gone
        struct Minting *mintings;         // see core/minting.h
} Secrets;

// Opens the seal and reads the bindings. A failure leaves hostd without secrets, with a warning: it does not stop it.
void secrets_open(Manager *manager);
Secrets *secrets_free(Secrets *secrets);

int secrets_grant(Secrets *secrets, Binding *binding, Error *err); // takes the binding when it succeeds
// These end grants at once, also where they fail because the store cannot be written: that is tried again, and a new start of hostd does not have them back (secret/ended.h).
int secrets_ungrant(Secrets *secrets, const char *id, Error *err); // ERR_NOT_FOUND
int secrets_revoke(Secrets *secrets, const char *name, unsigned *ret_ended, Error *err); // with all its bindings
int secrets_forget_instance(Manager *manager, const char *instance, Error *err); // also without `secrets`: a new one of the name inherits nothing
// The secret has no value that may be used, or has one again: its grants rest, or are in force again.
void secrets_rest(Secrets *secrets, const char *name, bool rest);
int secrets_rotate(Secrets *secrets, const char *name, const Value *value, Error *err);
void secrets_plan(Manager *manager); // an instance has changed its state: interceptors are looked at, from the loop
const Binding *secrets_find(const Secrets *secrets, const char *id); // NULL if absent

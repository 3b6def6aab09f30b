// SPDX-License-Identifier: GPL-2.0-or-later
// Delivery: what hostd hands into a running instance and keeps up to date there: the certificate of its authority while it has grants for the wire,
// secrets that were granted as files, and its package policy. hostd-guest writes it, from inside (guest/deliver.h).
//
// It is always the whole, so that a start, a grant, a rotation, an end and a try again are one path. What has been delivered to an instance is marked
// in the store until it is known to be gone from there, so that a hostd that comes later takes it away.
#pragma once

#include "core/secrets.h"

#define DELIVERY_FILES_MAX 32 // of one instance

typedef struct DeliveryWaiter {
        struct DeliveryWaiter *next;
        InstanceDone done;
        void *userdata;
        bool counted; // in the round that runs
} DeliveryWaiter;

typedef struct Delivery {
        struct Delivery *next;
        Secrets *secrets; // borrowed
        char instance[33];
        struct Command *putting, *adopting; // borrowed; they end by their callbacks
        bool due, adopt_due; // something has changed since the last one began
        bool first;          // of this helper: commands wait for it
        bool marked;         // in the store: there may be something inside
        bool empty;          // what runs takes everything away
        bool done;           // all is there as it should be
        bool authority;          // what was put there last, or is being put: with one
        bool adopted, adopting_authority; // the same of what programs of the instance took up,
        bool unknown;                     // unless that is not known
        unsigned failures;   // in a row
        sd_event_source *again;
        DeliveryWaiter *waiters;
} Delivery;

// An instance has its helper. True: commands have to wait until guest_link_open() is called.
bool delivery_link_up(Instance *instance);
void delivery_link_down(Instance *instance);
// Grants or values of the instance have changed.
void delivery_plan(Secrets *secrets, const char *instance);
void delivery_plan_secret(Secrets *secrets, const char *secret); // of every instance that has it as a file
void deliveries_sync(Manager *manager);
// Calls `done` when what is due now has been delivered, or could not be, at once if nothing is.
void delivery_wait(Secrets *secrets, const char *instance, InstanceDone done, void *userdata);
const char *delivery_state(const Secrets *secrets, const char *instance); // "none", "pending", "delivered", "failed"
void delivery_forget(Secrets *secrets, const char *instance);             // it is deleted
void deliveries_free(Secrets *secrets);

// SPDX-License-Identifier: GPL-2.0-or-later
// Store: runtime state in SQLite (/var/lib/hostd/state.db, WAL). Losing it loses no instance: what cannot be derived again (slots)
// is also written to instances/NAME/slot; after STORE_CREATED or STORE_REBUILT the daemon gives each back with
// store_instance_restore() (or store_slot_retire() for leftovers without a configuration) and ends with store_rebuild_done().
//
// Writes are synchronous=NORMAL: never torn, but a power cut may lose the last ones. What waits for the disk: store_instance_add(),
// because a forgotten slot would be given out twice; what an answer promises beyond the power cut (whether an instance is to run,
// of which template it is); and that a deletion has begun. One process, one connection, one thread: a second one is ERR_BUSY. A full
// disk is ERR_QUOTA and changes nothing.
//
// Slot: a small number (1..1023) that names every kernel object of an instance and gives its id range and addresses. A slot is
// not reused while files of its range may exist: it stays "retired" until store_slot_release().
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

#define SLOT_MAX 1023
#define SLOT_BUILDS 16 // more, of builds of templates, which no instance has: for a network alone (core/build_wire.h)
#define SLOT_LAST (SLOT_MAX + SLOT_BUILDS)
#define SLOT_IDS (1u << 20) // host ids per instance

typedef struct Store Store;
// Outcomes of store_open(); they are repeated at each open until store_rebuild_done().
typedef enum StoreOutcome {
        STORE_OPENED,
        STORE_REBUILT, // it was corrupt or no database of ours: moved to PATH.corrupt-TIME, a new and empty one is open
        STORE_CREATED, // there was none: the first start, or somebody removed it
} StoreOutcome;
// Runs migrations; a newer schema than ours is refused and left alone. ":memory:" is for tests.
int store_open(const char *path, Store **ret, Error *err);
int store_rebuild_done(Store *store, Error *err);
Store *store_close(Store *store);
DEFINE_CLEANUP(Store, store_close)

typedef struct StoreInstance {
        char name[33];
        uint16_t slot;
        uint32_t generation;  // counts starts
        bool wanted;          // last state: running
        usec_t created, started; // realtime; 0 = never
        char template_digest[65];
} StoreInstance;
// Fills slot: the lowest that was never used, then the one released longest ago. ERR_EXISTS, ERR_QUOTA. The instance is condemned.
int store_instance_add(Store *store, StoreInstance *instance, Error *err);
int store_instance_restore(Store *store, const StoreInstance *instance, Error *err); // keeps its slot; ERR_CONFLICT if that is taken
int store_instance_update(Store *store, const StoreInstance *instance, Error *err); // by name
// An instance is condemned from store_instance_add() until its file is there, and again from the beginning of its deletion: the next
// hostd removes what is left of a condemned one without a file. The note goes with the instance.
int store_instance_condemn(Store *store, const char *name, Error *err);
bool store_instance_is_condemned(Store *store, const char *name);
int store_instance_pardon(Store *store, const char *name, Error *err);
int store_instance_retire(Store *store, const char *name, Error *err); // the name is free at once, the slot stays taken
int store_slot_retire(Store *store, uint16_t slot, Error *err); // a leftover of unknown name; ERR_CONFLICT if an instance has it
int store_slot_release(Store *store, uint16_t slot, Error *err); // only a retired one; ERR_NOT_FOUND
int store_instance_list(Store *store, StoreInstance **ret, size_t *ret_n, Error *err); // caller frees; retired ones are not listed
int store_slot_retired(Store *store, uint16_t **ret, size_t *ret_n, Error *err);

typedef struct StoreWarning {
        int64_t id; // stable while the warning is there
        char *kind, *entity, *text; // owned; kind is [a-z-]+; entity an instance name or "host"
        usec_t first_seen, last_seen;
        uint64_t count;
} StoreWarning;
int store_warning_note(Store *store, const char *kind, const char *entity, const char *text, Error *err); // same kind+entity counts up
int store_warning_clear(Store *store, const char *kind, const char *entity, Error *err); // NULL entity: all of the kind
int store_warning_list(Store *store, StoreWarning **ret, size_t *ret_n, Error *err);
void store_warnings_free(StoreWarning *warnings, size_t n);

// Small values that must outlive hostd (command deadlines, rule ids): key/value text. Keys: 1..128 of [A-Za-z0-9._:/-]; values:
// UTF-8, at most 64 KiB. Keys below "store." are the store's own.
int store_value_set(Store *store, const char *key, const char *value, Error *err); // NULL removes
int store_value_keep(Store *store, const char *key, const char *value, Error *err); // the same, on disk when it returns
int store_value_get(Store *store, const char *key, char **ret, Error *err);        // ERR_NOT_FOUND
int store_value_list(Store *store, const char *prefix, char ***ret_keys, Error *err);

// The pool of host ids: the one `root:` line that /etc/subuid and /etc/subgid share. Refuses (ERR_DEGRADED with the fix) when
// there is none of at least 2^20 * 64 ids or any other line overlaps it. Pure reader with injectable root directory.
typedef struct IdPool {
        uint32_t base, count;
        unsigned ignored; // lines with wrong syntax in the two files
} IdPool;
int idpool_load(const char *etc, IdPool *ret, Error *err);
uint32_t idpool_slot_base(const IdPool *pool, uint16_t slot); // 0 if the slot does not fit
// Another owner's range of at least `least` ids, in the same files, by the same rules. ERR_DEGRADED.
int idpool_load_range(const char *etc, const char *owner, uint32_t least, uint32_t *ret_base, Error *err);

// SPDX-License-Identifier: GPL-2.0-or-later
// Store: runtime state in SQLite; see store.h for what it promises.
//
// One row of `statements` per statement and one of `migrations` per schema version; everything else is small functions that
// bind, step and reset. Every slot number has a row from the first day, so that "never used before" is a state and not the
// absence of a row, and picking the next one is a look at an index.
#include "state/store.h"

#include <ctype.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "base/valid.h"

#define STORE_APPLICATION 0x686f7364 // "hosd" in the file header tells our databases from others
#define STORE_BUSY_MSEC 2000
#define STORE_VALUE_MAX 65536
#define STORE_TEXT_MAX 1024
#define STORE_REBUILD_KEY "store.rebuild"
#define STORE_CONDEMNED "store.condemned/" // and the name

// In the order in which they are given out.
typedef enum SlotState { SLOT_NEVER, SLOT_RELEASED, SLOT_LIVE, SLOT_RETIRED } SlotState;

// Append only: what was released is never edited.
static const char *const migrations[] = {
        "CREATE TABLE slot (slot INTEGER PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),"
        " released INTEGER NOT NULL DEFAULT 0);"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1023) INSERT INTO slot (slot) SELECT i FROM n;"
        "CREATE INDEX slot_next ON slot (state, released, slot);"
        "CREATE TABLE instance (name TEXT PRIMARY KEY, slot INTEGER NOT NULL UNIQUE REFERENCES slot (slot),"
        " generation INTEGER NOT NULL, wanted INTEGER NOT NULL, created INTEGER NOT NULL, started INTEGER NOT NULL,"
        " template TEXT NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE warning (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, entity TEXT NOT NULL,"
        " text TEXT NOT NULL, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL, count INTEGER NOT NULL,"
        " UNIQUE (kind, entity));"
        "CREATE TABLE value (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
};

// Prepared once at open: a table that is missing is found then, and no request ever waits for the SQL parser.
typedef enum Statement {
        ST_SLOT_NEXT,
        ST_SLOT_SET,
        ST_SLOT_RETIRE,
        ST_SLOT_RETIRE_OF,
        ST_SLOT_RELEASE,
        ST_SLOT_LIST,
        ST_INSTANCE_ADD,
        ST_INSTANCE_UPDATE,
        ST_INSTANCE_SAME,
        ST_INSTANCE_REMOVE,
        ST_INSTANCE_LIST,
        ST_WARNING_NOTE,
        ST_WARNING_CLEAR,
        ST_WARNING_LIST,
        ST_VALUE_SET,
        ST_VALUE_REMOVE,
        ST_VALUE_GET,
        ST_VALUE_LIST,
        ST_BEGIN,
        ST_COMMIT,
        ST_ROLLBACK,
        _ST_MAX,
} Statement;

static const char *const statements[_ST_MAX] = {
        [ST_SLOT_NEXT] = "SELECT slot FROM slot WHERE state <= 1 ORDER BY state, released, slot LIMIT 1",
        [ST_SLOT_SET] = "UPDATE slot SET state = 2 WHERE slot = ? AND state <> 2",
        [ST_SLOT_RETIRE] = "UPDATE slot SET state = 3 WHERE slot = ? AND state <> 2",
        [ST_SLOT_RETIRE_OF] = "UPDATE slot SET state = 3 WHERE slot = (SELECT slot FROM instance WHERE name = ?)",
        [ST_SLOT_RELEASE] = "UPDATE slot SET state = 1, released = 1 + (SELECT coalesce(max(released), 0) FROM slot"
                            " WHERE state = 1) WHERE slot = ? AND state = 3",
        [ST_SLOT_LIST] = "SELECT slot FROM slot WHERE state = 3 ORDER BY slot",
        [ST_INSTANCE_ADD] = "INSERT INTO instance (name, slot, generation, wanted, created, started, template)"
                            " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [ST_INSTANCE_UPDATE] = "UPDATE instance SET generation = ?, wanted = ?, created = ?, started = ?, template = ?"
                               " WHERE name = ?",
        [ST_INSTANCE_SAME] = "SELECT 1 FROM instance WHERE name = ? AND wanted = ? AND template = ?",
        [ST_INSTANCE_REMOVE] = "DELETE FROM instance WHERE name = ?",
        [ST_INSTANCE_LIST] = "SELECT name, slot, generation, wanted, created, started, template FROM instance ORDER BY name",
        [ST_WARNING_NOTE] = "INSERT INTO warning (kind, entity, text, first_seen, last_seen, count) VALUES (?1, ?2, ?3, ?4, ?4, 1)"
                            " ON CONFLICT (kind, entity) DO UPDATE SET text = ?3, last_seen = ?4, count = count + 1",
        [ST_WARNING_CLEAR] = "DELETE FROM warning WHERE kind = ?1 AND (?2 IS NULL OR entity = ?2)",
        [ST_WARNING_LIST] = "SELECT id, kind, entity, text, first_seen, last_seen, count FROM warning ORDER BY id",
        [ST_VALUE_SET] = "INSERT INTO value (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
        [ST_VALUE_REMOVE] = "DELETE FROM value WHERE key = ?",
        [ST_VALUE_GET] = "SELECT value FROM value WHERE key = ?",
        [ST_VALUE_LIST] = "SELECT key FROM value WHERE key >= ?1 AND substr(key, 1, length(?1)) = ?1 ORDER BY key",
        [ST_BEGIN] = "BEGIN IMMEDIATE",
        [ST_COMMIT] = "COMMIT",
        [ST_ROLLBACK] = "ROLLBACK",
};

struct Store {
        sqlite3 *db;
        sqlite3_stmt *stmt[_ST_MAX];
        bool memory;
};

// ---- SQLite's answers ----

// What moving the file aside can cure. A locked, full or unreachable file is not among it: its content may be sound.
static bool is_corrupt(int rc) {
        return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB || rc == SQLITE_IOERR_READ ||
               rc == SQLITE_IOERR_CORRUPTFS;
}

// SQLite has a code for ENOSPC only; quotas and file size limits come as plain write errors.
static bool is_full(sqlite3 *db, int rc) {
        int e = sqlite3_system_errno(db) ?: errno; // the WAL does not report its errno

        if ((rc & 0xff) == SQLITE_FULL)
                return true;
        return (rc & 0xff) == SQLITE_IOERR && (e == ENOSPC || e == EDQUOT || e == EFBIG);
}

// Must be called before the statement is reset: only then does the connection still know what happened.
static int store_fail(sqlite3 *db, Error *err) {
        int rc = sqlite3_extended_errcode(db);

        if (is_full(db, rc))
                return error_set(err, ERR_QUOTA, "the state database cannot grow: its file system is full; nothing was changed");
        if ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
                return error_set(err, ERR_BUSY, "the state database is in use by another process: is a second hostd running?");
        if ((rc & 0xff) == SQLITE_NOMEM)
                return -ENOMEM;
        return error_set(err, ERR_INTERNAL, "state database: %s", sqlite3_errmsg(db));
}

// A statement that is taken from the table is given back when the scope ends, or it would hold its read lock for ever.
static void statement_reset(sqlite3_stmt **stmt) {
        if (*stmt) {
                (void) sqlite3_reset(*stmt); // the code of the last step, already seen
                (void) sqlite3_clear_bindings(*stmt);
        }
}
#define _cleanup_stmt_ _cleanup_(statement_reset)

// Types: t = text (NULL allowed), i = int64_t. Texts are borrowed until the reset. A failed bind leaves NULL, which the
// NOT NULL columns refuse.
static sqlite3_stmt *statement_bind(Store *store, Statement id, const char *types, ...) {
        sqlite3_stmt *stmt = store->stmt[id];
        va_list ap;

        va_start(ap, types);
        for (int i = 0; types[i]; i++)
                if (types[i] == 't')
                        (void) sqlite3_bind_text(stmt, i + 1, va_arg(ap, const char *), -1, SQLITE_STATIC);
                else
                        (void) sqlite3_bind_int64(stmt, i + 1, va_arg(ap, int64_t));
        va_end(ap);
        return stmt;
}

// 1: a row is there, 0: the end.
static int statement_step(Store *store, sqlite3_stmt *stmt, Error *err) {
        int rc = sqlite3_step(stmt);

        return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : store_fail(store->db, err);
}

// For statements without rows. Returns how many rows changed.
static int statement_run(Store *store, sqlite3_stmt *stmt_, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = stmt_;
        int r = statement_step(store, stmt, err);

        return r < 0 ? r : sqlite3_changes(store->db);
}

#define store_run(store, id, err, ...) statement_run(store, statement_bind(store, id, __VA_ARGS__), err)

// Columns are NOT NULL, but the file may have been edited: no pointer of SQLite's is used unchecked.
static void column_text(sqlite3_stmt *stmt, int column, char *ret, size_t size) {
        const char *text = (const char *) sqlite3_column_text(stmt, column);

        snprintf(ret, size, "%s", text ?: "");
}

static int column_dup(sqlite3_stmt *stmt, int column, char **ret) {
        const char *text = (const char *) sqlite3_column_text(stmt, column);

        *ret = strdup(text ?: "");
        return *ret ? 0 : -ENOMEM;
}

// ---- transactions ----

// IMMEDIATE, so that a transaction which reads first cannot fail for the lock when it comes to write. `durable` waits for the
// disk at commit; see store.h for who needs that.
static int store_begin(Store *store, bool durable, Error *err) {
        // Outside a transaction only; a failure would only make the commit less durable than asked, and is seen there.
        if (durable && !store->memory)
                (void) sqlite3_exec(store->db, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
        return store_run(store, ST_BEGIN, err, "");
}

static int store_end(Store *store, int r, bool durable, Error *err) {
        if (r >= 0) {
                int k = store_run(store, ST_COMMIT, err, "");
                r = k < 0 ? k : r;
        }
        // A full disk may have rolled back by itself already.
        if (r < 0 && !sqlite3_get_autocommit(store->db))
                (void) store_run(store, ST_ROLLBACK, NULL, "");
        if (durable && !store->memory)
                (void) sqlite3_exec(store->db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
        return r;
}

// ---- opening ----

// First column of the first row, as a SQLite code.
static int pragma_int(sqlite3 *db, const char *sql, int64_t *ret) {
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

        if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                *ret = sqlite3_column_int64(stmt, 0);
                rc = SQLITE_OK;
        }
        (void) sqlite3_finalize(stmt);
        return rc;
}

// SQLITE_CORRUPT also for files that are sound but not ours.
static int store_check(sqlite3 *db, int64_t *ret_version) {
        sqlite3_stmt *stmt = NULL;
        int64_t tables = 0, application = 0;
        int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &stmt, NULL);

        if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                const char *text = (const char *) sqlite3_column_text(stmt, 0);
                rc = text && strcmp(text, "ok") == 0 ? SQLITE_OK : SQLITE_CORRUPT;
        }
        (void) sqlite3_finalize(stmt);
        if (rc == SQLITE_OK)
                rc = pragma_int(db, "PRAGMA user_version", ret_version);
        if (rc == SQLITE_OK)
                rc = pragma_int(db, "PRAGMA application_id", &application);
        if (rc == SQLITE_OK)
                rc = pragma_int(db, "SELECT count(*) FROM sqlite_schema", &tables);
        if (rc == SQLITE_OK && (*ret_version < 0 || (tables > 0 && application != STORE_APPLICATION)))
                rc = SQLITE_CORRUPT;
        return rc;
}

// All steps in one transaction: a power cut in the middle leaves the old schema.
static int store_migrate(sqlite3 *db, int64_t version, StoreOutcome fresh) {
        _cleanup_free_ char *tail = NULL;
        int rc;

        if (version == (int64_t) ELEMENTS(migrations))
                return SQLITE_OK;
        rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        for (size_t i = (size_t) version; rc == SQLITE_OK && i < ELEMENTS(migrations); i++)
                rc = sqlite3_exec(db, migrations[i], NULL, NULL, NULL);
        // The note that a rebuild is due is part of the creation, so that dying before the rebuild does not lose it.
        if (rc == SQLITE_OK && version == 0)
                rc = sqlite3_exec(db, fresh == STORE_REBUILT ? "INSERT INTO value VALUES ('" STORE_REBUILD_KEY "', '1')"
                                                             : "INSERT INTO value VALUES ('" STORE_REBUILD_KEY "', '2')",
                                  NULL, NULL, NULL);
        if (asprintf(&tail, "PRAGMA user_version = %zu; PRAGMA application_id = %d; COMMIT", ELEMENTS(migrations),
                     STORE_APPLICATION) < 0) {
                tail = NULL;
                rc = SQLITE_NOMEM;
        }
        return rc == SQLITE_OK ? sqlite3_exec(db, tail, NULL, NULL, NULL) : rc;
}

#define STORE_RESERVE (1 << 20)   // of the journal
#define STORE_CHECKPOINT 200      // pages, which are 800 KiB

// On a full disk what hostd writes must still go somewhere: the journal keeps its file and its room, and is emptied before it is full.
static void store_reserve(Store *store, const char *path) {
        _cleanup_free_ char *journal = NULL;
        _cleanup_close_ int fd = -EBADF;
        int keep = 1;

        (void) sqlite3_file_control(store->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
        (void) sqlite3_wal_autocheckpoint(store->db, STORE_CHECKPOINT);
        if (asprintf(&journal, "%s-wal", path) < 0) {
                journal = NULL;
                return;
        }
        fd = open(journal, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0)
                (void) fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, STORE_RESERVE); // without it a full disk is only met earlier
}

static int store_prepare(Store *store) {
        int rc = SQLITE_OK;

        for (int i = 0; rc == SQLITE_OK && i < _ST_MAX; i++)
                rc = sqlite3_prepare_v3(store->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &store->stmt[i], NULL);
        // Our version number over other tables than ours.
        return rc == SQLITE_ERROR ? SQLITE_CORRUPT : rc;
}

// The file must be ours and plain before SQLite sees it: it is opened as root.
static int store_touch(const char *path, bool *ret_created, Error *err) {
        _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat st;

        *ret_created = fd >= 0;
        if (fd < 0 && errno == EEXIST)
                fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
                return error_set_errno(err, errno, "opening %s", path);
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return error_set(err, ERR_UNAVAILABLE, "%s is not a plain file", path);
        return 0;
}

// -EUCLEAN: corrupt or not ours, nothing was written to it.
static int store_open_one(const char *path, StoreOutcome fresh, Store **ret, Error *err) {
        _cleanup_(store_closep) Store *store = calloc(1, sizeof(Store));
        int64_t version = 0;
        int rc;

        if (!store)
                return -ENOMEM;
        store->memory = strcmp(path, ":memory:") == 0;
        rc = sqlite3_open_v2(path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
        if (rc == SQLITE_OK) {
                (void) sqlite3_extended_result_codes(store->db, 1);
                (void) sqlite3_busy_timeout(store->db, STORE_BUSY_MSEC);
                rc = sqlite3_exec(store->db,
                                  // Exclusive: a second hostd is refused, and there is no shared-memory file, so that
                                  // opening needs no free space. What is deleted is overwritten: sealed values of before are among it.
                                  "PRAGMA trusted_schema = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                                  "PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 1048576",
                                  NULL, NULL, NULL);
        }
        if (rc == SQLITE_OK)
                rc = store_check(store->db, &version);
        if (rc == SQLITE_OK && version > (int64_t) ELEMENTS(migrations))
                return error_set(err, ERR_CONFLICT,
                                 "%s has schema %lld and this hostd knows only %zu; install the newer hostd again or move the "
                                 "file away", path, (long long) version, ELEMENTS(migrations));
        if (rc == SQLITE_OK)
                rc = store_migrate(store->db, version, fresh);
        if (rc == SQLITE_OK)
                rc = store_prepare(store);
        if (rc == SQLITE_OK && !store->memory)
                store_reserve(store, path);
        if (is_corrupt(rc))
                return -EUCLEAN;
        if (rc != SQLITE_OK)
                return store_fail(store->db, err);
        *ret = TAKE_PTR(store);
        return 0;
}

// -wal and -shm go along under the names that let `sqlite3 PATH.corrupt-TIME` find them.
static int store_move_aside(const char *path, Error *err) {
        static const char *const suffixes[] = {"", "-wal", "-shm"};
        char when[CLOCK_TEXT_MAX];

        clock_format(clock_realtime(), when);
        for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
                _cleanup_free_ char *from = NULL, *to = NULL;
                if (asprintf(&from, "%s%s", path, suffixes[i]) < 0 ||
                    asprintf(&to, "%s.corrupt-%s%s", path, when, suffixes[i]) < 0)
                        return -ENOMEM;
                if (rename(from, to) < 0 && errno != ENOENT)
                        return error_set_errno(err, errno, "moving the corrupt %s aside", from);
        }
        return 0;
}

// A rebuild that was cut short by a crash is still due; the note in the database says so.
static int store_outcome(Store *store) {
        _cleanup_free_ char *value = NULL;

        if (store_value_get(store, STORE_REBUILD_KEY, &value, NULL) < 0)
                return STORE_OPENED;
        return strcmp(value, "1") == 0 ? STORE_REBUILT : STORE_CREATED;
}

int store_open(const char *path, Store **ret, Error *err) {
        bool created = true;
        int r;

        if (strcmp(path, ":memory:") != 0) {
                r = store_touch(path, &created, err);
                if (r < 0)
                        return r;
        }
        r = store_open_one(path, STORE_CREATED, ret, err);
        if (r == -EUCLEAN) {
                r = store_move_aside(path, err);
                if (r == 0)
                        r = store_touch(path, &created, err);
                if (r == 0)
                        r = store_open_one(path, STORE_REBUILT, ret, err);
        }
        if (r == -EUCLEAN)
                return error_set(err, ERR_UNAVAILABLE, "%s cannot be read back after it was made anew", path);
        return r < 0 ? r : store_outcome(*ret);
}

int store_rebuild_done(Store *store, Error *err) {
        int r = store_run(store, ST_VALUE_REMOVE, err, "t", STORE_REBUILD_KEY);

        return r < 0 ? r : 0;
}

Store *store_close(Store *store) {
        if (!store)
                return NULL;
        for (int i = 0; i < _ST_MAX; i++)
                (void) sqlite3_finalize(store->stmt[i]);
        (void) sqlite3_close(store->db);
        free(store);
        return NULL;
}

// ---- instances and slots ----

// Inside the caller's transaction; nobody else can take the slot before it is marked.
static int slot_next(Store *store, uint16_t *ret, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = statement_bind(store, ST_SLOT_NEXT, "");
        int r = statement_step(store, stmt, err);

        if (r < 0)
                return r;
        if (r == 0)
                return error_set(err, ERR_QUOTA, "all %d instance slots of this host are in use or not yet cleaned up", SLOT_MAX);
        *ret = (uint16_t) sqlite3_column_int(stmt, 0);
        return 0;
}

// The slot first: its UPDATE tells whether it was free, and the rollback of a duplicate name gives it back.
static int instance_insert(Store *store, const StoreInstance *instance, uint16_t slot, Error *err) {
        _cleanup_error_ Error e = ERROR_NULL;
        int r = store_run(store, ST_SLOT_SET, err, "i", (int64_t) slot);

        if (r < 0)
                return r;
        if (r == 0)
                return error_set(err, ERR_CONFLICT, "slot %u is taken by another instance", slot);
        r = store_run(store, ST_INSTANCE_ADD, &e, "tiiiiit", instance->name, (int64_t) slot, (int64_t) instance->generation,
                      (int64_t) instance->wanted, (int64_t) instance->created, (int64_t) instance->started,
                      instance->template_digest);
        if (r < 0 && (sqlite3_errcode(store->db) & 0xff) == SQLITE_CONSTRAINT)
                return error_set(err, ERR_EXISTS, "instance %s exists", instance->name);
        if (r < 0)
                error_move(err, &e);
        return r < 0 ? r : 0;
}

static char *condemned_key(const char *name, char ret[64]) {
        (void) snprintf(ret, 64, STORE_CONDEMNED "%.33s", name);
        return ret;
}

static int condemned_set(Store *store, const char *name, const char *value, Error *err) {
        char key[64];

        return store_value_set(store, condemned_key(name, key), value, err);
}

int store_instance_add(Store *store, StoreInstance *instance, Error *err) {
        uint16_t slot = 0;
        int r = valid_check(VALID_NAME, "name", instance->name, err);

        if (r == 0)
                r = store_begin(store, true, err);
        if (r < 0)
                return r;
        r = slot_next(store, &slot, err);
        if (r == 0)
                r = instance_insert(store, instance, slot, err);
        if (r == 0)
                r = condemned_set(store, instance->name, "1", err);
        r = store_end(store, r, true, err);
        if (r == 0)
                instance->slot = slot;
        return r;
}

static int slot_check(uint16_t slot, Error *err) {
        if (slot < 1 || slot > SLOT_MAX)
                return error_set_field(err, "slot", "slot %u is out of range: it must be 1 to %d", slot, SLOT_MAX);
        return 0;
}

int store_instance_restore(Store *store, const StoreInstance *instance, Error *err) {
        int r = valid_check(VALID_NAME, "name", instance->name, err);

        if (r == 0)
                r = slot_check(instance->slot, err);
        if (r == 0)
                r = store_begin(store, true, err);
        if (r < 0)
                return r;
        return store_end(store, instance_insert(store, instance, instance->slot, err), true, err);
}

static bool instance_promises_the_same(Store *store, const StoreInstance *instance) {
        _cleanup_stmt_ sqlite3_stmt *stmt =
                statement_bind(store, ST_INSTANCE_SAME, "tit", instance->name, (int64_t) instance->wanted, instance->template_digest);

        return statement_step(store, stmt, NULL) > 0;
}

// Never touches the slot: an instance keeps it for life.
int store_instance_update(Store *store, const StoreInstance *instance, Error *err) {
        bool durable = !instance_promises_the_same(store, instance);
        int r = store_begin(store, durable, err);

        if (r < 0)
                return r;
        r = store_run(store, ST_INSTANCE_UPDATE, err, "iiiitt", (int64_t) instance->generation, (int64_t) instance->wanted,
                      (int64_t) instance->created, (int64_t) instance->started, instance->template_digest, instance->name);
        if (r == 0)
                r = error_set(err, ERR_NOT_FOUND, "instance %s is not known", instance->name);
        r = store_end(store, r, durable, err);
        return r < 0 ? r : 0;
}

int store_instance_condemn(Store *store, const char *name, Error *err) {
        int r = store_begin(store, true, err);

        return r < 0 ? r : store_end(store, condemned_set(store, name, "1", err), true, err);
}

bool store_instance_is_condemned(Store *store, const char *name) {
        _cleanup_free_ char *value = NULL;
        char key[64];

        return store_value_get(store, condemned_key(name, key), &value, NULL) >= 0;
}

int store_instance_pardon(Store *store, const char *name, Error *err) {
        return condemned_set(store, name, NULL, err);
}

// Not durable on purpose: after a power cut the instance is back in the list without storage, which the daemon sees and retires
// again. The other way round, a slot given out twice, cannot come of it.
int store_instance_retire(Store *store, const char *name, Error *err) {
        int r = store_begin(store, false, err);

        if (r < 0)
                return r;
        r = store_run(store, ST_SLOT_RETIRE_OF, err, "t", name);
        if (r == 0)
                r = error_set(err, ERR_NOT_FOUND, "instance %s is not known", name);
        if (r > 0)
                r = store_instance_pardon(store, name, err);
        if (r >= 0)
                r = store_run(store, ST_INSTANCE_REMOVE, err, "t", name);
        r = store_end(store, r, false, err);
        return r < 0 ? r : 0;
}

int store_slot_retire(Store *store, uint16_t slot, Error *err) {
        int r = slot_check(slot, err);

        if (r == 0)
                r = store_run(store, ST_SLOT_RETIRE, err, "i", (int64_t) slot);
        return r < 0 ? r : r > 0 ? 0 : error_set(err, ERR_CONFLICT, "slot %u is taken by an instance", slot);
}

int store_slot_release(Store *store, uint16_t slot, Error *err) {
        int r = store_run(store, ST_SLOT_RELEASE, err, "i", (int64_t) slot);

        return r < 0 ? r : r > 0 ? 0 : error_set(err, ERR_NOT_FOUND, "slot %u is not a retired one", slot);
}

// Doubles an array of n elements when it is full. `size` is of one element.
static int array_grow(void **array, size_t n, size_t size) {
        void *grown;

        if (n & (n - 1)) // room is the next power of two
                return 0;
        grown = reallocarray(*array, n ? n * 2 : 1, size);
        if (!grown)
                return -ENOMEM;
        *array = grown;
        return 0;
}

int store_instance_list(Store *store, StoreInstance **ret, size_t *ret_n, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = statement_bind(store, ST_INSTANCE_LIST, "");
        _cleanup_free_ void *array = NULL;
        size_t n = 0;
        int r;

        while ((r = statement_step(store, stmt, err)) > 0) {
                r = array_grow(&array, n, sizeof(StoreInstance));
                if (r < 0)
                        return r;
                StoreInstance *i = (StoreInstance *) array + n++;
                *i = (StoreInstance) {
                        .slot = (uint16_t) sqlite3_column_int(stmt, 1),
                        .generation = (uint32_t) sqlite3_column_int64(stmt, 2),
                        .wanted = sqlite3_column_int(stmt, 3),
                        .created = (usec_t) sqlite3_column_int64(stmt, 4),
                        .started = (usec_t) sqlite3_column_int64(stmt, 5),
                };
                column_text(stmt, 0, i->name, sizeof(i->name));
                column_text(stmt, 6, i->template_digest, sizeof(i->template_digest));
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(array);
        *ret_n = n;
        return 0;
}

int store_slot_retired(Store *store, uint16_t **ret, size_t *ret_n, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = statement_bind(store, ST_SLOT_LIST, "");
        _cleanup_free_ void *array = NULL;
        size_t n = 0;
        int r;

        while ((r = statement_step(store, stmt, err)) > 0) {
                r = array_grow(&array, n, sizeof(uint16_t));
                if (r < 0)
                        return r;
                ((uint16_t *) array)[n++] = (uint16_t) sqlite3_column_int(stmt, 0);
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(array);
        *ret_n = n;
        return 0;
}

// ---- warnings ----

static int warning_check(const char *kind, const char *entity, Error *err) {
        if (!*kind || kind[strspn(kind, "abcdefghijklmnopqrstuvwxyz-")] || strlen(kind) > 64)
                return error_set_field(err, "kind", "kind of a warning must be 1 to 64 of a-z and -");
        return entity ? valid_check(VALID_NAME, "entity", entity, err) : 0; // "host" is a valid name, too
}

int store_warning_note(Store *store, const char *kind, const char *entity, const char *text, Error *err) {
        _cleanup_free_ char *shown = NULL;
        int r = warning_check(kind, entity ?: "", err);

        if (r < 0)
                return r;
        // The text may quote a kernel or a file name; a warning is never lost for that.
        shown = valid_printable(text);
        if (!shown)
                return -ENOMEM;
        if (strlen(shown) > STORE_TEXT_MAX) {
                size_t cut = STORE_TEXT_MAX;
                while ((shown[cut] & 0xc0) == 0x80)
                        cut--;
                shown[cut] = 0;
        }
        r = store_run(store, ST_WARNING_NOTE, err, "ttti", kind, entity, shown, (int64_t) clock_realtime());
        return r < 0 ? r : 0;
}

int store_warning_clear(Store *store, const char *kind, const char *entity, Error *err) {
        int r = warning_check(kind, entity, err);

        if (r == 0)
                r = store_run(store, ST_WARNING_CLEAR, err, "tt", kind, entity);
        return r < 0 ? r : 0;
}

void store_warnings_free(StoreWarning *warnings, size_t n) {
        for (size_t i = 0; warnings && i < n; i++) {
                free(warnings[i].kind);
                free(warnings[i].entity);
                free(warnings[i].text);
        }
        free(warnings);
}

static int warning_read(sqlite3_stmt *stmt, StoreWarning *w) {
        *w = (StoreWarning) {
                .id = sqlite3_column_int64(stmt, 0),
                .first_seen = (usec_t) sqlite3_column_int64(stmt, 4),
                .last_seen = (usec_t) sqlite3_column_int64(stmt, 5),
                .count = (uint64_t) sqlite3_column_int64(stmt, 6),
        };
        return column_dup(stmt, 1, &w->kind) < 0 || column_dup(stmt, 2, &w->entity) < 0 || column_dup(stmt, 3, &w->text) < 0
                       ? -ENOMEM
                       : 0;
}

int store_warning_list(Store *store, StoreWarning **ret, size_t *ret_n, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = statement_bind(store, ST_WARNING_LIST, "");
        void *array = NULL;
        size_t n = 0;
        int r;

        while ((r = statement_step(store, stmt, err)) > 0) {
                r = array_grow(&array, n, sizeof(StoreWarning));
                if (r == 0)
                        r = warning_read(stmt, (StoreWarning *) array + n++);
                if (r < 0)
                        break;
        }
        if (r < 0) {
                store_warnings_free(array, n);
                return r;
        }
        *ret = array;
        *ret_n = n;
        return 0;
}

// ---- values ----

// Keys are plain so that they can be listed by prefix and shown anywhere.
static int value_check(const char *key, const char *value, Error *err) {
        size_t n = strlen(key);

        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char) key[i]) && !strchr("._:/-", key[i]))
                        n = 0;
        if (n < 1 || n > 128)
                return error_set_field(err, "key", "key must be 1 to 128 of letters, digits and ._:/-");
        n = value ? strlen(value) : 0;
        if (n > STORE_VALUE_MAX || (n > 0 && !valid_utf8(value, n)))
                return error_set_field(err, key, "value of %s must be UTF-8 of at most %d bytes", key, STORE_VALUE_MAX);
        return 0;
}

int store_value_set(Store *store, const char *key, const char *value, Error *err) {
        int r = value_check(key, value, err);

        if (r < 0)
                return r;
        r = value ? store_run(store, ST_VALUE_SET, err, "tt", key, value) : store_run(store, ST_VALUE_REMOVE, err, "t", key);
        return r < 0 ? r : 0;
}

int store_value_keep(Store *store, const char *key, const char *value, Error *err) {
        int r = store_begin(store, true, err);

        return r < 0 ? r : store_end(store, store_value_set(store, key, value, err), true, err);
}

int store_value_get(Store *store, const char *key, char **ret, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = statement_bind(store, ST_VALUE_GET, "t", key);
        int r = statement_step(store, stmt, err);

        if (r < 0)
                return r;
        return r > 0 ? column_dup(stmt, 0, ret) : error_set(err, ERR_NOT_FOUND, "no value is stored under %s", key);
}

int store_value_list(Store *store, const char *prefix, char ***ret_keys, Error *err) {
        _cleanup_stmt_ sqlite3_stmt *stmt = statement_bind(store, ST_VALUE_LIST, "t", prefix);
        _cleanup_strv_ char **keys = NULL;
        int r;

        while ((r = statement_step(store, stmt, err)) > 0) {
                r = strv_append(&keys, (const char *) sqlite3_column_text(stmt, 0));
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        *ret_keys = TAKE_PTR(keys);
        return 0;
}

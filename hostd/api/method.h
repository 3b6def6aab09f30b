// SPDX-License-Identifier: GPL-2.0-or-later
// Method: the one table of what hostd can be asked. From its rows come the check of parameters, access, the audit line, hostctl's
// words, --help, bash completion and the API manual. A row without a handler in core, or a handler without a row, fails a test.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/valid.h"
#include "wire/server.h"

typedef enum MethodId {
        METHOD_INSTANCE_CREATE,
        METHOD_INSTANCE_LAUNCH,
        METHOD_INSTANCE_START,
        METHOD_INSTANCE_STOP,
        METHOD_INSTANCE_RESTART,
        METHOD_INSTANCE_PAUSE,
        METHOD_INSTANCE_RESUME,
        METHOD_INSTANCE_DELETE,
        METHOD_INSTANCE_REBUILD,
        METHOD_INSTANCE_LIST,
        METHOD_INSTANCE_SHOW,
        METHOD_INSTANCE_SET,
        METHOD_INSTANCE_UNSET,
        METHOD_INSTANCE_LABEL,
        METHOD_INSTANCE_CONSOLE,
        METHOD_INSTANCE_LOG,
        METHOD_INSTANCE_DIFF, // fds: the pipe that the list of changes (guest/tree.h) is written to
        METHOD_INSTANCE_FLOWS, // fds: the pipe that the lines (JSON, the newest first) are written to
        METHOD_INSTANCE_WHY,
        METHOD_COMMAND_EXEC,   // more: {id} then the record; fds: stdin, stdout, stderr (guest ends of pipes, or one pty thrice)
        METHOD_COMMAND_SHELL,  // the same through PAM
        METHOD_COMMAND_START,  // in the background: {id} once it runs
        METHOD_COMMAND_LOGS,   // fds: the pipe that frames of output (io/proto.h) are written to
        METHOD_COMMAND_KEPT,
        METHOD_COMMAND_ATTACH, // more: waits for a command again after hostd restarted
        METHOD_COMMAND_SIGNAL,
        METHOD_COMMAND_LIST,
        METHOD_FILE_PUSH, // fds: the stream hostd-guest reads from
        METHOD_FILE_PULL, // fds: the stream hostd-guest writes to
        METHOD_FILE_LIST,
        METHOD_FILE_REMOVE,
        METHOD_FILE_STAT, // fds, of this and the next two: the pipe that the list (guest/tree_list.h) is written to
        METHOD_FILE_SEARCH,
        METHOD_FILE_REPLACE,
        METHOD_FILE_MOVE,
        METHOD_FILE_MKDIR,
        METHOD_FILE_CHMOD,
        METHOD_FILE_CHOWN,
        METHOD_FILE_WATCH, // fds: the pipe that the list of events is written to; the answer comes when it ends
        METHOD_SANDBOX_CREATE,
        METHOD_SANDBOX_LIST,
        METHOD_SANDBOX_SHOW,
        METHOD_SANDBOX_WHY,
        METHOD_SANDBOX_EXEC, // as METHOD_COMMAND_EXEC
        METHOD_SANDBOX_DELETE,
        METHOD_SANDBOX_RENEW,
        METHOD_SANDBOX_PAUSE,
        METHOD_SANDBOX_RESUME,
        METHOD_TEMPLATE_BUILD, // more: {line, percent} then {digest}
        METHOD_TEMPLATE_IMPORT, // fds: the tarball, or a directory
        METHOD_TEMPLATE_LIST,
        METHOD_TEMPLATE_SHOW,
        METHOD_TEMPLATE_DELETE,
        METHOD_TEMPLATE_PRUNE,
        METHOD_CONFIG_LOG,
        METHOD_CONFIG_DIFF,
        METHOD_CONFIG_ROLLBACK,
        METHOD_CONFIG_APPLY,
        METHOD_POLICY_LIST,
        METHOD_POLICY_SHOW,
        METHOD_POLICY_SET,
        METHOD_POLICY_DELETE,
        METHOD_POLICY_EXPLAIN,
        METHOD_NETWORK_SHOW,
        METHOD_NETWORK_PACKAGES,
        METHOD_NETWORK_CUT,
        METHOD_NETWORK_RESTORE,
        METHOD_NETWORK_EXPOSE,
        METHOD_NETWORK_UNEXPOSE,
        METHOD_NETWORK_EXPOSED,
        METHOD_APPROVAL_LIST,
        METHOD_APPROVAL_APPROVE,
        METHOD_APPROVAL_DENY,
        METHOD_HOST_CARVE,
        METHOD_HOST_DOCTOR,
        METHOD_HOST_LEAKS,
        METHOD_HOST_INFO,
        METHOD_EVENTS_FOLLOW, // more
        METHOD_AUDIT_VERIFY,
        METHOD_AUDIT_TAIL,
        METHOD_AUDIT_QUERY,
        METHOD_WARNING_LIST,
        METHOD_WARNING_CLEAR,
        METHOD_SECRET_SET,    // fds: a pipe with the value, whose other end is closed
        METHOD_SECRET_ROTATE, // the same
        METHOD_SECRET_REVOKE,
        METHOD_SECRET_LIST,
        METHOD_SECRET_GRANT,
        METHOD_SECRET_UNGRANT,
        METHOD_SECRET_GRANTS,
        METHOD_SECRET_AUTHORITY,
        _METHOD_MAX,
        _METHOD_INVALID = -EINVAL,
} MethodId;

typedef enum ParamType {
        PARAM_STRING,
        PARAM_STRINGS, // JSON array of strings
        PARAM_INT,     // JSON integer; CLI: decimal
        PARAM_SIZE,    // JSON integer (bytes); CLI: "8GiB"
        PARAM_SPAN,    // JSON integer (microseconds); CLI: "90s"
        PARAM_BOOL,    // CLI: a flag without a value
        PARAM_PAIRS,   // JSON object of strings; CLI: KEY=VALUE words or repeated options
} ParamType;

typedef enum ParamFlags {
        PARAM_REQUIRED = 1 << 0,
        PARAM_POSITIONAL = 1 << 1, // CLI: a word, not an option, in the order of the rows
        PARAM_REST = 1 << 2,       // CLI: takes all remaining words (STRINGS, PAIRS)
        PARAM_MANY = 1 << 3,       // CLI: the positional `name` may be given several times: hostctl makes one call each
        PARAM_LOCAL = 1 << 4,      // hostctl's own option, never sent
        PARAM_NEW = 1 << 5,        // names what is not there yet
        PARAM_SINCE = 1 << 6,      // of a SPAN; CLI: also the moment so long ago
} ParamFlags;

typedef struct Param {
        const char *name; // JSON key; CLI option --name (underscores become dashes)
        char letter;      // short option or 0
        ParamType type;
        unsigned flags;
        ValidKind valid;  // of a string, of each string, of a pair's value
        int64_t min, max; // of integers; both 0: 0..INT64_MAX
        const char *meta; // "NAME", "SIZE" in the usage line
        const char *doc;
        const char *const *choices; // of a string: all there are, ends with NULL; NULL: whatever is valid
} Param;

typedef enum MethodFlags {
        METHOD_MORE = 1 << 0,     // answers may continue
        METHOD_MUTATES = 1 << 1,  // changes or enters something: audited
        METHOD_ALL = 1 << 2,      // hostctl accepts --all
        METHOD_SPECIAL = 1 << 3,  // hostctl has code of its own for it
        METHOD_ONCE = 1 << 4,     // with METHOD_MORE: a call without "more" gets the first answer only
} MethodFlags;

typedef struct Column {
        const char *path;  // key of the objects in the reply's list, dots for nesting
        const char *title;
        bool hidden;       // only with --columns
        ParamType type;    // SIZE and SPAN are formatted for people in tables
} Column;

typedef struct Method {
        const char *name;  // "io.hostd.Instance.Start"
        const char *words; // "start", "template build"
        Access access;
        unsigned flags;
        unsigned n_fds;        // exact number of descriptors; 0: none accepted
        const Param *params;   // ends with a NULL name
        const char *list;      // key of the reply's array shown as a table, NULL: shown as key-value
        const Column *columns; // ends with a NULL path
        const char *doc;       // one line
        const char *manual;    // a paragraph for manual and --help, may be NULL
} Method;

const Method *method_get(MethodId id);
MethodId method_from_name(const char *name); // _METHOD_INVALID if unknown
// Types, bounds, validators, unknown and missing keys. On success the object holds just what the row allows.
int method_check(const Method *method, const json_t *parameters, Error *err);
// Whether it is one of the row's choices, if that has any; the error lists them.
int param_check_choice(const Param *param, const char *text, Error *err);
const char *method_access_name(Access access); // as access_to_string(), for programs without the server
// The interfaces of the table for org.varlink.service, for server_set_description().
const ServerDescription *method_description(void);

// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, files: hostd reads no byte of them. Each verb is a command of hostd-guest's with a pipe of the caller's, and what hostd adds are
// its limits, its record, and a sentence made of numbers.
#include "core/handle_file.h"

#include <string.h>

#include "base/strv.h"
#include "core/guest_link.h"

// Of what asks or changes one thing: longer than that only a file system takes that does not answer.
#define FILE_SHORT (60 * USEC_PER_SEC)

static void file_done(Command *command, const CommandRecord *record, void *userdata);

static const char *const words_none[] = {NULL};
static const char *const words_read[] = {"offset", "length", NULL};
static const char *const words_list[] = {"depth", NULL};
static const char *const words_search[] = {"pattern", "max", NULL};
static const char *const words_owner[] = {"owner", "group", NULL};
static const char *const words_move[] = {"to", NULL};
static const char *const words_replace[] = {"old", "new", NULL};

#define UNCHANGED "what was there before is unchanged"

static const Entering file_ways[_GUEST_VERB_MAX] = {
        [GUEST_PACKAGES] = {GUEST_PACKAGES, .done = file_done, .options = words_none, .path = "/", .timeout = FILE_SHORT},
        [GUEST_WRITE] = {GUEST_WRITE, .done = file_done, .stream_is_input = true, .options = words_owner, .unchanged = UNCHANGED},
        [GUEST_READ] = {GUEST_READ, .done = file_done, .options = words_read},
        [GUEST_LIST] = {GUEST_LIST, .done = file_done, .options = words_list},
        [GUEST_REMOVE] = {GUEST_REMOVE, .done = file_done, .options = words_none},
        [GUEST_STAT] = {GUEST_STAT, .done = file_done, .options = words_none, .timeout = FILE_SHORT},
        [GUEST_SEARCH] = {GUEST_SEARCH, .done = file_done, .options = words_search},
        [GUEST_REPLACE] = {GUEST_REPLACE, .done = file_done, .options = words_replace, .unchanged = UNCHANGED},
        [GUEST_MOVE] = {GUEST_MOVE, .done = file_done, .options = words_move, .timeout = FILE_SHORT},
        [GUEST_MKDIR] = {GUEST_MKDIR, .done = file_done, .options = words_owner, .timeout = FILE_SHORT},
        [GUEST_CHMOD] = {GUEST_CHMOD, .done = file_done, .options = words_none},
        [GUEST_CHOWN] = {GUEST_CHOWN, .done = file_done, .options = words_owner},
        [GUEST_WATCH] = {GUEST_WATCH, .done = file_done, .options = words_none},
};

const Entering *file_way(GuestVerb verb) {
        return &file_ways[verb];
}

char **file_words(const Request *request, const char *const *options) {
        char **words = NULL;

        for (; *options; options++) {
                const json_t *value = json_object_get(request->parameters, *options);
                int r = json_is_string(value)    ? strv_append_format(&words, "%s=%s", *options, json_string_value(value))
                        : json_is_integer(value) ? strv_append_format(&words, "%s=%lld", *options, (long long) json_integer_value(value))
                                                 : 0;
                if (r < 0)
                        return strv_free(words);
        }
        return words;
}

// What some numbers mean where they are about files.
typedef struct FileReason {
        int errnum;
        ErrorCode code;
        const char *text;
} FileReason;

static FileReason file_reason(int errnum) {
        static const FileReason reasons[] = {
                {EOPNOTSUPP, ERR_INVALID, "it is a pipe, a socket or a device, which are not opened"},
                {ELOOP, ERR_INVALID, "it is a link, or one that root does not follow, as it is another user's, is on the way"},
                {EXDEV, ERR_INVALID, "another file system begins there, and none is crossed"},
                {ENOKEY, ERR_NOT_FOUND, "there is no user or group of that name inside"},
                {ESTALE, ERR_CONFLICT, "somebody else changed it meanwhile"},
        };

        for (size_t i = 0; i < ELEMENTS(reasons); i++)
                if (reasons[i].errnum == errnum)
                        return reasons[i];
        return (FileReason) {errnum, error_code_from_errno(errnum), strerror(errnum)};
}

static const char *file_subject(const Request *request, const CommandRecord *record) {
        const char *to = record->stage == GUEST_STAGE_TARGET ? request_string(request, "to") : NULL;

        return to ?: request_string(request, "path") ?: "the settings of package clients";
}

static int file_error(const Request *request, const CommandRecord *record, Error *err) {
        const char *path = file_subject(request, record), *unchanged = file_way(request->verb)->unchanged;
        bool full = record->errnum == ENOSPC || record->errnum == EDQUOT || record->errnum == EFBIG;
        FileReason reason = file_reason(record->errnum);

        if (!record->errnum)
                return error_set(err, ERR_UNAVAILABLE, "%s in %s: %s", path, request->target, record->message ?: "the helper ended early");
        if (record->stage == GUEST_STAGE_FORK && record->errnum == EBADMSG)
                return error_set(err, ERR_UNAVAILABLE, "the helper in %s is of an older hostd: %s", request->target,
                                 request->in_sandbox ? "a new sandbox can do this" : "it can do this after the instance's next start");
        if (full && unchanged && !request_bool(request, "recursive"))
                return error_set(err, ERR_QUOTA, "%s in %s: %s; %s", path, request->target, reason.text, unchanged);
        return error_set(err, reason.code, "%s in %s: %s", path, request->target, reason.text);
}

// File verbs answer with an error instead of a record.
static void file_done(Command *command, const CommandRecord *record, void *userdata) {
        Request *request = userdata;

        (void) json_object_set_new(request->detail, "record", command_record_json(record));
        request->command = NULL;
        if (record->timed_out)
                request_failf(request, ERR_TIMEOUT, "%s in %s: it did not end in time", file_subject(request, record), request->target);
        else if (record->message || record->exit != 0 || record->signal != 0) {
                Error err = ERROR_NULL;
                int r = file_error(request, record, &err);
                (void) request_fail(request, r, &err);
        }
        request_release(request);
}

void handle_file(Request *request) {
        static const GuestVerb verbs[_METHOD_MAX] = {
                [METHOD_FILE_PUSH] = GUEST_WRITE,     [METHOD_FILE_PULL] = GUEST_READ,       [METHOD_FILE_LIST] = GUEST_LIST,   [METHOD_FILE_REMOVE] = GUEST_REMOVE,
                [METHOD_FILE_STAT] = GUEST_STAT,      [METHOD_FILE_SEARCH] = GUEST_SEARCH,   [METHOD_FILE_MOVE] = GUEST_MOVE,   [METHOD_FILE_MKDIR] = GUEST_MKDIR,
                [METHOD_FILE_CHMOD] = GUEST_CHMOD,    [METHOD_FILE_CHOWN] = GUEST_CHOWN,     [METHOD_FILE_WATCH] = GUEST_WATCH, [METHOD_FILE_REPLACE] = GUEST_REPLACE,
        };

        request_enter(request, verbs[request->id]);
}

void handle_file_replace(Request *request) {
        if (!*request_string(request, "old"))
                request_failf(request, ERR_INVALID, "the text to replace must not be empty");
        else
                handle_file(request);
}

void handle_file_chown(Request *request) {
        if (!request_string(request, "owner") && !request_string(request, "group"))
                request_failf(request, ERR_INVALID, "neither an owner nor a group is given");
        else
                handle_file(request);
}

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

static const Entering file_ways[_GUEST_VERB_MAX] = {
        [GUEST_WRITE] = {GUEST_WRITE, .done = file_done, .stream_is_input = true, .options = words_none, .unchanged = "what was there before is unchanged"},
        [GUEST_READ] = {GUEST_READ, .done = file_done, .options = words_read},
        [GUEST_LIST] = {GUEST_LIST, .done = file_done, .options = words_list},
        [GUEST_REMOVE] = {GUEST_REMOVE, .done = file_done, .options = words_none},
        [GUEST_STAT] = {GUEST_STAT, .done = file_done, .options = words_none, .timeout = FILE_SHORT},
        [GUEST_SEARCH] = {GUEST_SEARCH, .done = file_done, .options = words_search},
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
static const struct {
        int errnum;
        const char *text;
} file_reasons[] = {
        {EOPNOTSUPP, "it is a pipe, a socket or a device, which are not opened"},
        {ELOOP, "it is a link, or there are too many on the way"},
};

static const char *file_reason(int errnum) {
        for (size_t i = 0; i < ELEMENTS(file_reasons); i++)
                if (file_reasons[i].errnum == errnum)
                        return file_reasons[i].text;
        return strerror(errnum);
}

static int file_error(const Request *request, const CommandRecord *record, Error *err) {
        const char *path = request_string(request, "path"), *unchanged = file_way(request->verb)->unchanged;
        bool full = record->errnum == ENOSPC || record->errnum == EDQUOT || record->errnum == EFBIG;

        if (!record->errnum)
                return error_set(err, ERR_UNAVAILABLE, "%s in %s: %s", path, request->target, record->message ?: "the helper ended early");
        if (record->stage == GUEST_STAGE_FORK && record->errnum == EBADMSG)
                return error_set(err, ERR_UNAVAILABLE, "the helper in %s is of an older hostd: it can do this after the instance's next start", request->target);
        if (full && unchanged && !request_bool(request, "recursive"))
                return error_set(err, ERR_QUOTA, "%s in %s: %s; %s", path, request->target, file_reason(record->errnum), unchanged);
        return error_set(err, error_code_from_errno(record->errnum), "%s in %s: %s", path, request->target, file_reason(record->errnum));
}

// File verbs answer with an error instead of a record.
static void file_done(Command *command, const CommandRecord *record, void *userdata) {
        Request *request = userdata;

        (void) json_object_set_new(request->detail, "record", command_record_json(record));
        request->command = NULL;
        if (record->timed_out)
                request_failf(request, ERR_TIMEOUT, "%s in %s: it did not end in time", request_string(request, "path"), request->target);
        else if (record->message || record->exit != 0 || record->signal != 0) {
                Error err = ERROR_NULL;
                int r = file_error(request, record, &err);
                (void) request_fail(request, r, &err);
        }
        request_release(request);
}

void handle_file_push(Request *request) {
        request_enter(request, GUEST_WRITE);
}

void handle_file_pull(Request *request) {
        request_enter(request, GUEST_READ);
}

void handle_file_list(Request *request) {
        request_enter(request, GUEST_LIST);
}

void handle_file_remove(Request *request) {
        request_enter(request, GUEST_REMOVE);
}

void handle_file_stat(Request *request) {
        request_enter(request, GUEST_STAT);
}

void handle_file_search(Request *request) {
        request_enter(request, GUEST_SEARCH);
}

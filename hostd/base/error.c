// SPDX-License-Identifier: GPL-2.0-or-later
// Error: the one table that says what each code is called on the wire, over HTTP and to a shell.
#include "base/error.h"

#include <stdarg.h>
#include <string.h>

static const ErrorInfo error_table[_ERR_MAX] = {
        [ERR_NONE] = {"None", 0, 200, 0},
        [ERR_INTERNAL] = {"Internal", EIO, 500, 1},
        [ERR_INVALID] = {"Invalid", EINVAL, 400, 2},
        [ERR_NOT_FOUND] = {"NotFound", ENOENT, 404, 3},
        [ERR_EXISTS] = {"Exists", EEXIST, 409, 4},
        [ERR_DENIED] = {"Denied", EACCES, 403, 5},
        [ERR_QUOTA] = {"Quota", EDQUOT, 429, 6},
        [ERR_BUSY] = {"Busy", EBUSY, 409, 7},
        [ERR_CONFLICT] = {"Conflict", ESTALE, 409, 8},
        [ERR_UNAVAILABLE] = {"Unavailable", EHOSTDOWN, 503, 9},
        [ERR_DEGRADED] = {"Degraded", EOPNOTSUPP, 412, 10},
        [ERR_TIMEOUT] = {"Timeout", ETIMEDOUT, 504, 11},
        [ERR_CANCELLED] = {"Cancelled", ECANCELED, 499, 12},
};

const ErrorInfo *error_code_info(ErrorCode code) {
        if (code < 0 || code >= _ERR_MAX)
                code = ERR_INTERNAL;
        return &error_table[code];
}

ErrorCode error_code_from_name(const char *name) {
        for (int i = 0; i < _ERR_MAX; i++)
                if (name && strcmp(error_table[i].name, name) == 0)
                        return i;
        return _ERR_INVALID;
}

static const struct {
        int errnum;
        ErrorCode code;
} errno_table[] = {
        {ENOENT, ERR_NOT_FOUND},     {ESRCH, ERR_NOT_FOUND},       {EEXIST, ERR_EXISTS},
        {EINVAL, ERR_INVALID},       {EACCES, ERR_DENIED},         {EPERM, ERR_DENIED},
        {EDQUOT, ERR_QUOTA},         {ENOSPC, ERR_QUOTA},          {EAGAIN, ERR_BUSY},
        {EBUSY, ERR_BUSY},           {ESTALE, ERR_CONFLICT},       {ECONNREFUSED, ERR_UNAVAILABLE},
        {EHOSTDOWN, ERR_UNAVAILABLE}, {EOPNOTSUPP, ERR_DEGRADED},  {ENOSYS, ERR_DEGRADED},
        {ETIMEDOUT, ERR_TIMEOUT},    {ECANCELED, ERR_CANCELLED},
};

ErrorCode error_code_from_errno(int errnum) {
        errnum = abs(errnum);
        for (size_t i = 0; i < ELEMENTS(errno_table); i++)
                if (errno_table[i].errnum == errnum)
                        return errno_table[i].code;
        return ERR_INTERNAL;
}

static int error_fill(Error *err, ErrorCode code, int errnum, const char *field, char *message) {
        if (!err || err->code != ERR_NONE) {
                free(message);
                return -errnum;
        }
        err->code = code;
        err->errnum = errnum;
        err->message = message; // NULL on OOM: error_message() then falls back to strerror
        err->field = field ? strdup(field) : NULL;
        return -errnum;
}

int error_set(Error *err, ErrorCode code, const char *format, ...) {
        char *message = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&message, format, ap) < 0)
                message = NULL;
        va_end(ap);
        return error_fill(err, code, error_code_info(code)->errnum, NULL, message);
}

int error_set_field(Error *err, const char *field, const char *format, ...) {
        char *message = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&message, format, ap) < 0)
                message = NULL;
        va_end(ap);
        return error_fill(err, ERR_INVALID, EINVAL, field, message);
}

int error_set_errno(Error *err, int errnum, const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        char *message = NULL;
        va_list ap;

        errnum = abs(errnum);
        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        if (text && asprintf(&message, "%s: %s", text, strerror(errnum)) < 0)
                message = NULL;
        return error_fill(err, error_code_from_errno(errnum), errnum, NULL, message);
}

int error_wrap(Error *err, const char *format, ...) {
        _cleanup_free_ char *prefix = NULL;
        char *message = NULL;
        va_list ap;

        if (!err)
                return -EIO;
        va_start(ap, format);
        if (vasprintf(&prefix, format, ap) < 0)
                prefix = NULL;
        va_end(ap);
        if (prefix && err->message && asprintf(&message, "%s: %s", prefix, err->message) >= 0) {
                free(err->message);
                err->message = message;
        }
        return -err->errnum;
}

const char *error_message(const Error *err, int r) {
        if (err && err->message)
                return err->message;
        return strerror(abs(r));
}

void error_done(Error *err) {
        if (!err)
                return;
        free(err->message);
        free(err->field);
        *err = ERROR_NULL;
}

void error_move(Error *to, Error *from) {
        if (to && to->code == ERR_NONE)
                *to = *from;
        else
                error_done(from);
        *from = ERROR_NULL;
}

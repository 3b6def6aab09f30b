// SPDX-License-Identifier: GPL-2.0-or-later
// Packages: whether an instance's package clients keep to its package policy, from the rows that hostd-guest writes into our pipe. They are the guest's: each is
// of one size and checked, and what is odd in them is shown as such.
#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "base/valid.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "guest/proto.h"

#define ROWS_MAX 64

static const char *const claims[_GUEST_PACKAGE_CLAIM_MAX] = {
        [GUEST_PACKAGE_KEPT] = "kept",
        [GUEST_PACKAGE_NO_SETTING] = "no setting",
        [GUEST_PACKAGE_NOT_INSTALLED] = "not installed",
        [GUEST_PACKAGE_MISSING] = "missing",
        [GUEST_PACKAGE_UNREADABLE] = "unreadable",
        [GUEST_PACKAGE_OVERRIDDEN] = "overridden",
};

static json_t *shown(const char *text) {
        _cleanup_free_ char *printable = valid_printable(text);

        return json_string(printable ?: "?");
}

static bool is_a_row(const GuestPackage *row) {
        return row->magic == GUEST_PACKAGE_MAGIC && row->claim < _GUEST_PACKAGE_CLAIM_MAX && memchr(row->user, 0, sizeof(row->user)) &&
               memchr(row->client, 0, sizeof(row->client)) && memchr(row->setting, 0, sizeof(row->setting)) && memchr(row->file, 0, sizeof(row->file));
}

// The policy is hostd's word, and known only behind the rows.
static json_t *row_of(const GuestPackage *row, uint32_t wanted) {
        bool asked = row->flag == 0 || (row->flag & wanted) || row->claim == GUEST_PACKAGE_NOT_INSTALLED;

        return json_pack("{s:o, s:o, s:o, s:s, s:o}", "user", shown(row->user), "client", shown(row->client), "setting", shown(row->setting), "claim",
                         asked ? claims[row->claim] : "not asked for", "by", asked ? shown(row->file) : json_string(""));
}

static int rows_read(int fd, GuestPackage rows[ROWS_MAX], size_t *ret_n, Error *err) {
        _cleanup_free_ char *bytes = NULL;
        size_t size;
        int r = io_read_all(fd, ROWS_MAX * sizeof(GuestPackage), &bytes, &size);

        if (r < 0)
                return error_set_errno(err, r, "cannot read what the instance says");
        if (size % sizeof(GuestPackage) != 0)
                return error_set(err, ERR_UNAVAILABLE, "what the instance says ends in the middle");
        memcpy(rows, bytes, size);
        *ret_n = size / sizeof(GuestPackage);
        for (size_t i = 0; i < *ret_n; i++)
                if (!is_a_row(&rows[i]))
                        return error_set(err, ERR_UNAVAILABLE, "what the instance says is no answer to this");
        return 0;
}

static int ask(Cli *cli, const Args *args, json_t *list, Error *err) {
        _cleanup_error_ Error local_err = ERROR_NULL;
        _cleanup_close_ int in = -EBADF;
        GuestPackage rows[ROWS_MAX];
        json_t *reply = NULL;
        uint32_t wanted = 0;
        size_t n = 0;
        int local, r = cli_send_pipe(cli, args->method, args->parameters, false, &in, err);

        if (r < 0)
                return r;
        local = rows_read(in, rows, &n, &local_err);
        in = close_fd(in); // if we gave up, so does the writer
        r = cli_receive(cli, local, &local_err, &reply, err);
        wanted |= json_is_true(json_object_get(reply, "lock_only")) ? (uint32_t) GUEST_PACKAGES_LOCKED : 0;
        wanted |= json_is_true(json_object_get(reply, "no_scripts")) ? (uint32_t) GUEST_PACKAGES_NO_SCRIPTS : 0;
        json_decref(reply);
        for (size_t i = 0; r >= 0 && i < n; i++)
                (void) json_array_append_new(list, row_of(&rows[i], wanted));
        return r;
}

int command_packages(Cli *cli, Args *args) {
        json_t *rows = json_array(), *reply = json_pack("{s:O}", args->method->list, rows);
        _cleanup_error_ Error err = ERROR_NULL;
        int r = ask(cli, args, rows, &err);

        if (r >= 0)
                r = output_reply(stdout, args->method, args->local, reply, &err);
        json_decref(rows);
        json_decref(reply);
        return r < 0 ? cli_fail(&err, r) : 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// File: list, stat and search. What comes is a guest's word, read by the one reader of guest/tree.h and shown without its control characters.
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/file.h"
#include "cli/output.h"
#include "guest/tree_list.h"

typedef struct FileRows {
        json_t *rows;
        const char *place; // NULL: paths are shown as they come, below it
} FileRows;

static void mode_text(uint32_t mode, char buf[11]) {
        static const char types[] = "?pc?d?b?-?l?s???", bits[] = "rwxrwxrwx";

        buf[0] = types[mode >> 12 & 15];
        for (int i = 0; i < 9; i++)
                buf[i + 1] = mode & (0400u >> i) ? bits[i] : '-';
        if (mode & 04000)
                buf[3] = mode & 0100 ? 's' : 'S';
        if (mode & 02000)
                buf[6] = mode & 0010 ? 's' : 'S';
        if (mode & 01000)
                buf[9] = mode & 0001 ? 't' : 'T';
        buf[10] = 0;
}

// Seconds are enough; "" before 1970, of what is not known, and after the year 9999.
static const char *time_text(int64_t sec, bool known, char buf[CLOCK_TEXT_MAX]) {
        buf[0] = 0;
        if (known && sec >= 0 && sec < 253402300800) {
                clock_format((usec_t) sec * USEC_PER_SEC, buf);
                memcpy(buf + 19, "Z", 2);
        }
        return buf;
}

// A name that is no UTF-8 is shown with its bytes escaped.
static void set_text(json_t *row, const char *key, const char *text) {
        if (json_object_set_new(row, key, json_string(text)) < 0) {
                _cleanup_free_ char *shown = valid_printable(text);
                (void) json_object_set_new(row, key, json_string(shown ?: "?"));
        }
}

static void set_owner(json_t *row, const char *key, const char *name, uint32_t id) {
        char number[16];

        (void) snprintf(number, sizeof(number), "%u", id);
        (void) json_object_set_new(row, key, json_string(*name ? name : number));
}

static void set_path(json_t *row, const FileRows *rows, const char *path) {
        char whole[2 * TREE_PATH_MAX + 8];
        const char *place = rows->place;

        if (!place)
                (void) snprintf(whole, sizeof(whole), "%s", path);
        else if (strcmp(path, ".") == 0)
                (void) snprintf(whole, sizeof(whole), "%s", place);
        else
                (void) snprintf(whole, sizeof(whole), "%s%s%s", place, place[strlen(place) - 1] == '/' ? "" : "/", path);
        set_text(row, "path", whole);
}

static int list_entry(const TreeEntry *entry, void *userdata) {
        static const char *const types[_TREE_TYPE_MAX] = {[TREE_DIR] = "directory", [TREE_FILE] = "file", [TREE_LINK] = "symlink", [TREE_OTHER] = "other"};
        const FileRows *rows = userdata;
        char mode[11], permissions[8], modified[CLOCK_TEXT_MAX], created[CLOCK_TEXT_MAX];
        bool born = entry->btime_sec != 0 || entry->btime_nsec != 0;
        json_t *row;

        mode_text(entry->mode, mode);
        (void) snprintf(permissions, sizeof(permissions), "%04o", entry->mode & 07777);
        row = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:I}", "type", types[entry->type], "mode", mode, "permissions", permissions, "uid",
                        (json_int_t) entry->uid, "gid", (json_int_t) entry->gid, "size", (json_int_t) entry->size, "modified",
                        time_text(entry->mtime_sec, true, modified), "created", time_text(entry->btime_sec, born, created), "links", (json_int_t) entry->links);
        if (!row)
                return -ENOMEM;
        set_owner(row, "owner", entry->owner, entry->uid);
        set_owner(row, "group", entry->group, entry->gid);
        set_path(row, rows, entry->path);
        set_text(row, "target", entry->target);
        return json_array_append_new(rows->rows, row);
}

// One call, whose rows are added.
static int list_call(FileTransfer *t, FileRows *rows, const char *what, Error *err) {
        TreeListing listing = {.fn = list_entry, .userdata = rows};
        _cleanup_error_ Error local_err = ERROR_NULL;
        _cleanup_close_ int in = -EBADF;
        int r = file_transfer_start(t, false, &in, err);

        if (r >= 0) {
                r = tree_listing_read(&listing, in, &local_err);
                in = close_fd(in); // a list that we refuse is not waited for
                r = file_transfer_end(t, r, &local_err, err);
        }
        if (r >= 0 && listing.cut)
                cli_complain("%s: there is more than these", what);
        if (r >= 0 && listing.unread > 0)
                cli_complain("%s: %llu directories could not be read", what, (unsigned long long) listing.unread);
        return r;
}

static int list_words(Cli *cli, Args *args, bool whole_paths) {
        json_t *rows = json_array(), *reply = json_pack("{s:O}", args->method->list, rows);
        FileTransfer t = {.cli = cli, .args = args, .parameters = args->parameters};
        _cleanup_error_ Error err = ERROR_NULL;
        int first = 0, r = 0;

        for (char **word = args->words; *word; word++) {
                _cleanup_error_ Error one = ERROR_NULL;
                r = file_transfer_place(&t, *word, &one);
                if (r >= 0) {
                        FileRows to = {rows, whole_paths ? json_string_value(json_object_get(t.parameters, "path")) : NULL};
                        r = list_call(&t, &to, *word, &one);
                }
                if (r < 0) {
                        int status = cli_fail(&one, r);
                        first = first ?: status;
                        cli->client = client_free(cli->client); // it may have an answer on its way
                }
        }
        r = json_array_size(rows) > 0 || !first ? output_reply(stdout, args->method, args->local, reply, &err) : 0;
        json_decref(rows);
        json_decref(reply);
        return r < 0 ? cli_fail(&err, r) : first;
}

static int usage(const Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;

        return cli_fail(&err, error_set(&err, ERR_INVALID, "usage: hostctl %s %s", args->method->words, args_syntax(args->method)));
}

int command_file_list(Cli *cli, Args *args) {
        return strv_length(args->words) == 1 ? list_words(cli, args, false) : usage(args);
}

int command_file_search(Cli *cli, Args *args) {
        return strv_length(args->words) == 1 ? list_words(cli, args, true) : usage(args);
}

int command_file_stat(Cli *cli, Args *args) {
        return strv_length(args->words) >= 1 ? list_words(cli, args, true) : usage(args);
}

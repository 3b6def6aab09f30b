// SPDX-License-Identifier: GPL-2.0-or-later
// File: list, stat, search, replace and watch. What comes is a guest's word, read by the one reader of guest/tree.h and shown without its control characters.
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/file.h"
#include "cli/output.h"
#include "guest/tree_list.h"

typedef struct FileRows {
        TreeListFn add;
        json_t *rows;
        bool json; // a watch: an object a line
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

static int replaced_entry(const TreeEntry *entry, void *userdata) {
        const FileRows *rows = userdata;
        json_t *row = json_pack("{s:I}", "replaced", (json_int_t) MIN2(entry->count, (uint64_t) INT64_MAX));

        set_path(row, rows, entry->path);
        return json_array_append_new(rows->rows, row);
}

static json_t *entry_row(const TreeEntry *entry, const FileRows *rows) {
        static const char *const types[_TREE_TYPE_MAX] = {[TREE_DIR] = "directory", [TREE_FILE] = "file", [TREE_LINK] = "symlink", [TREE_OTHER] = "other"};
        char mode[11], permissions[8], modified[CLOCK_TEXT_MAX], created[CLOCK_TEXT_MAX];
        bool born = entry->btime_sec != 0 || entry->btime_nsec != 0;
        json_t *row;

        mode_text(entry->mode, mode);
        (void) snprintf(permissions, sizeof(permissions), "%04o", entry->mode & 07777);
        row = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:I}", "type", types[entry->type], "mode", mode, "permissions", permissions, "uid",
                        (json_int_t) entry->uid, "gid", (json_int_t) entry->gid, "size", (json_int_t) entry->size, "modified",
                        time_text(entry->mtime_sec, true, modified), "created", time_text(entry->btime_sec, born, created), "links", (json_int_t) entry->links);
        if (!row)
                return NULL;
        set_owner(row, "owner", entry->owner, entry->uid);
        set_owner(row, "group", entry->group, entry->gid);
        set_path(row, rows, entry->path);
        set_text(row, "target", entry->target);
        return row;
}

static int list_entry(const TreeEntry *entry, void *userdata) {
        const FileRows *rows = userdata;
        json_t *row = entry_row(entry, rows);

        return row ? json_array_append_new(rows->rows, row) : -ENOMEM;
}

static const char *event_word(char letter) {
        static const char *const words[] = {"created", "written", "attributes", "deleted", "moved-from", "moved-to", "lost", "gone"};
        const char *at = strchr(TREE_EVENTS, letter);

        return at && letter ? words[at - TREE_EVENTS] : "?";
}

static int event_entry(const TreeEntry *entry, void *userdata) {
        const FileRows *rows = userdata;
        const char *word = event_word(entry->change);
        json_t *row = entry->mode ? entry_row(entry, rows) : json_object(); // without a mode it was not there any more

        if (!row)
                return -ENOMEM;
        if (!entry->mode)
                set_path(row, rows, entry->path);
        (void) json_object_set_new(row, "event", json_string(word));
        if (rows->json)
                (void) json_dumpf(row, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_SORT_KEYS);
        else {
                _cleanup_free_ char *shown = valid_printable(json_string_value(json_object_get(row, "path")));
                printf("%-10s  %s", word, shown ?: "?");
        }
        json_decref(row);
        return putchar('\n') < 0 || fflush(stdout) != 0 ? -EPIPE : 0;
}

// One call, whose rows are added.
static int list_call(FileTransfer *t, FileRows *rows, const char *what, Error *err) {
        TreeListing listing = {.limits.max_entries = TREE_LIST_MAX, .fn = rows->add, .userdata = rows};
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

static int list_words(Cli *cli, Args *args, TreeListFn add, bool whole_paths) {
        json_t *rows = json_array(), *reply = json_pack("{s:O}", args->method->list, rows);
        FileTransfer t = {.cli = cli, .args = args, .parameters = args->parameters};
        _cleanup_error_ Error err = ERROR_NULL;
        int first = 0, r = 0;

        for (char **word = args->words; *word; word++) {
                _cleanup_error_ Error one = ERROR_NULL;
                r = file_transfer_place(&t, *word, &one);
                if (r >= 0) {
                        FileRows to = {add, rows, false, whole_paths ? json_string_value(json_object_get(t.parameters, "path")) : NULL};
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

int file_usage(const Args *args) {
        _cleanup_error_ Error err = ERROR_NULL;

        return cli_fail(&err, error_set(&err, ERR_INVALID, "usage: hostctl %s %s", args->method->words, args_syntax(args->method)));
}

int command_file_list(Cli *cli, Args *args) {
        return strv_length(args->words) == 1 ? list_words(cli, args, list_entry, false) : file_usage(args);
}

int command_file_search(Cli *cli, Args *args) {
        return strv_length(args->words) == 1 ? list_words(cli, args, list_entry, true) : file_usage(args);
}

int command_file_stat(Cli *cli, Args *args) {
        return strv_length(args->words) >= 1 ? list_words(cli, args, list_entry, true) : file_usage(args);
}

int command_file_replace(Cli *cli, Args *args) {
        return strv_length(args->words) >= 1 ? list_words(cli, args, replaced_entry, true) : file_usage(args);
}

int command_file_watch(Cli *cli, Args *args) {
        FileTransfer t = {.cli = cli, .args = args, .parameters = args->parameters};
        TreeListing listing = {.limits = {.max_entries = UINT64_MAX, .max_depth = TREE_PATH_MAX}, .events = true, .fn = event_entry};
        _cleanup_error_ Error err = ERROR_NULL, local_err = ERROR_NULL;
        _cleanup_close_ int in = -EBADF;
        OutputFormat format;
        FileRows rows = {0};
        int r;

        if (strv_length(args->words) != 1)
                return file_usage(args);
        r = output_format_parse(args->method, args->local, &format, &err);
        if (r >= 0)
                r = file_transfer_place(&t, args->words[0], &err);
        if (r >= 0)
                r = file_transfer_start(&t, false, &in, &err);
        if (r < 0)
                return cli_fail(&err, r);
        rows.json = format == OUTPUT_JSON;
        rows.place = json_string_value(json_object_get(t.parameters, "path"));
        listing.userdata = &rows;
        r = tree_listing_read(&listing, in, &local_err);
        in = close_fd(in);
        r = file_transfer_end(&t, r, &local_err, &err);
        return r < 0 ? cli_fail(&err, r) : 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Diff: what an instance changed, from the list that hostd-diff writes into our pipe. Names in it are the guest's: whatever they
// hold, one change is one line.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "guest/tree.h"

typedef struct Change {
        char letter;
        uint32_t mode, uid, gid;
        uint64_t size;
        int64_t mtime;
        char *path, *target; // owned; target may be NULL
} Change;

typedef struct ChangeList {
        Change *items;
        size_t n, room;
        bool cut;
} ChangeList;

static void change_list_done(ChangeList *list) {
        for (size_t i = 0; i < list->n; i++) {
                free(list->items[i].path);
                free(list->items[i].target);
        }
        free(list->items);
}

static int change_add(const TreeEntry *entry, void *userdata) {
        ChangeList *list = userdata;
        Change *c;

        if (list->n == list->room) {
                size_t room = list->room ? 2 * list->room : 256;
                Change *items = reallocarray(list->items, room, sizeof(Change));
                if (!items)
                        return -ENOMEM;
                list->items = items;
                list->room = room;
        }
        c = &list->items[list->n];
        *c = (Change) {.letter = entry->change, .mode = entry->mode, .uid = entry->uid, .gid = entry->gid, .size = entry->size, .mtime = entry->mtime_sec};
        if (asprintf(&c->path, "/%s", strcmp(entry->path, ".") == 0 ? "" : entry->path) < 0)
                return -ENOMEM;
        list->n++;
        if (entry->target[0] && !(c->target = strdup(entry->target)))
                return -ENOMEM;
        return 0;
}

static int change_compare(const void *a, const void *b) {
        return strcmp(((const Change *) a)->path, ((const Change *) b)->path);
}

// A text that is no UTF-8 is shown with \xNN, as everywhere.
static json_t *json_bytes(const char *text) {
        _cleanup_free_ char *shown = NULL;
        json_t *value = json_string(text);

        if (value)
                return value;
        shown = valid_printable(text);
        return json_string(shown ?: "?");
}

static const char *type_name(uint32_t mode) {
        static const struct {
                mode_t type;
                const char *name;
        } types[] = {{S_IFDIR, "directory"}, {S_IFREG, "file"}, {S_IFLNK, "link"}, {S_IFIFO, "fifo"}, {S_IFSOCK, "socket"},
                     {S_IFCHR, "device"},    {S_IFBLK, "device"}};

        for (size_t i = 0; i < ELEMENTS(types); i++)
                if ((mode & S_IFMT) == types[i].type)
                        return types[i].name;
        return "unknown";
}

static void print_json(const ChangeList *list) {
        json_t *array = json_array(), *reply = json_pack("{s:o, s:b}", "changes", array, "complete", !list->cut);

        for (size_t i = 0; i < list->n; i++) {
                const Change *c = &list->items[i];
                const char letter[] = {c->letter, 0};
                json_t *row = json_pack("{s:s, s:o, s:s, s:i, s:I, s:I, s:I, s:I}", "change", letter, "path", json_bytes(c->path), "type",
                                        type_name(c->mode), "mode", (int) (c->mode & 07777), "owner", (json_int_t) c->uid, "group",
                                        (json_int_t) c->gid, "size", (json_int_t) c->size, "modified", (json_int_t) c->mtime);
                if (c->target)
                        (void) json_object_set_new(row, "target", json_bytes(c->target));
                (void) json_array_append_new(array, row);
        }
        output_json(stdout, reply);
        json_decref(reply);
}

static void print_lines(const ChangeList *list) {
        for (size_t i = 0; i < list->n; i++) {
                _cleanup_free_ char *path = valid_printable(list->items[i].path);
                printf("%c %s\n", list->items[i].letter, path ?: "?");
        }
        if (list->cut)
                cli_complain("only the first %zu changes are listed", list->n);
}

static int diff_read(Cli *cli, const Args *args, ChangeList *list, Error *err) {
        _cleanup_error_ Error local_err = ERROR_NULL;
        _cleanup_close_ int in = -EBADF;
        int local, r = cli_send_pipe(cli, args->method, args->parameters, false, &in, err);

        if (r < 0)
                return r;
        local = tree_changes_read(in, change_add, list, &list->cut, &local_err);
        in = close_fd(in); // if we gave up, so does the writer
        return cli_receive(cli, local, &local_err, NULL, err);
}

int command_diff(Cli *cli, Args *args) {
        _cleanup_(change_list_done) ChangeList list = {0};
        _cleanup_error_ Error err = ERROR_NULL;
        OutputFormat format;
        int r = output_format_parse(args->method, args->local, &format, &err);

        if (r >= 0)
                r = diff_read(cli, args, &list, &err);
        if (r < 0)
                return cli_fail(&err, r);
        if (list.n > 0)
                qsort(list.items, list.n, sizeof(Change), change_compare);
        if (format == OUTPUT_JSON)
                print_json(&list);
        else
                print_lines(&list);
        return 0;
}

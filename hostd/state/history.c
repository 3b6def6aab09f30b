// SPDX-License-Identifier: GPL-2.0-or-later
// History: see history.h.
//
// history_write() asks git for the present texts of the files in question (the tips), makes in memory of them and of the
// commits one stream for git fast-import, and follows with each tip what the commits do to it. The stream goes to a reference of its
// own. The branch is moved once, when everything it then names is on the disk, and not when somebody else moved it meanwhile: git
// syncs the files that it writes, but not the names that it gives them, and a power cut must leave neither a branch that names a
// missing commit nor, after the answer, one without the commit.
#include "state/history.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/strv.h"
#include "base/valid.h"
#include "state/confdir.h"

#define HISTORY_TRIES 3
#define INDEX_TRIES 8
#define HISTORY_PAUSE_USEC 50000
#define NEXT "refs/hostd/next" // what fast-import writes to; there only while it does, or after a crash
#define HAND "root <0@host>" // who changes files by hand, as far as anybody can tell

// ---- changes and commits -----------------------------------------------------------------------------------------------------

static HistoryChange *change_free(HistoryChange *change) {
        if (!change)
                return NULL;
        free(change->path);
        free(change->before);
        free(change->after);
        free(change);
        return NULL;
}
DEFINE_CLEANUP(HistoryChange, change_free)

HistoryChange *history_changes_free(HistoryChange *changes) {
        while (changes) {
                HistoryChange *next = changes->next;
                (void) change_free(changes);
                changes = next;
        }
        return NULL;
}

static int change_add(HistoryChange **list, const HistoryChange *what) {
        _cleanup_(change_freep) HistoryChange *change = calloc(1, sizeof(*change));

        if (!change)
                return -ENOMEM;
        change->kind = what->kind;
        change->path = strdup(what->path);
        change->before = what->before ? strdup(what->before) : NULL;
        change->after = what->after ? strdup(what->after) : NULL;
        if (!change->path || (what->before && !change->before) || (what->after && !change->after))
                return -ENOMEM;
        while (*list)
                list = &(*list)->next;
        *list = TAKE_PTR(change);
        return 0;
}

static HistoryChange **change_find(HistoryChange **changes, const char *path) {
        while (*changes && strcmp((*changes)->path, path) != 0)
                changes = &(*changes)->next;
        return changes;
}

static int change_set(HistoryChange *change, const char *after) {
        char *copy = after ? strdup(after) : NULL;

        if (after && !copy)
                return -ENOMEM;
        free(change->after);
        change->after = copy;
        return 0;
}

int history_note(HistoryChange **changes, const char *path, const char *before, const char *after) {
        HistoryChange **place = change_find(changes, path), *change = *place;
        int r;

        if (!change)
                return text_equal(before, after) ? 0
                                                 : change_add(changes, &(HistoryChange) {NULL, CHANGE_EXACT, (char *) path, (char *) before, (char *) after});
        r = change_set(change, after);
        // What is refused is put back as it was: then there is nothing to tell.
        if (r >= 0 && change->kind == CHANGE_EXACT && text_equal(change->before, change->after)) {
                *place = change->next;
                (void) change_free(change);
        }
        return r;
}

int history_note_kind(HistoryChange **changes, ChangeKind kind, const char *path, const char *after) {
        HistoryChange *change = *change_find(changes, path);

        if (!change)
                return change_add(changes, &(HistoryChange) {NULL, kind, (char *) path, NULL, (char *) after});
        change->kind = kind;
        return change_set(change, after);
}

HistoryCommit *history_commit_free(HistoryCommit *commit) {
        if (!commit)
                return NULL;
        (void) history_changes_free(commit->changes);
        free(commit->author);
        free(commit->message);
        free(commit);
        return NULL;
}

// "NAME <uid@host>", which goes into the stream as it is.
static bool author_is_valid(const char *author) {
        const char *open = strchr(author, '<');
        size_t size = strlen(author);

        return valid_is(VALID_TEXT, author) && open && open - author >= 2 && open[-1] == ' ' && author[size - 1] == '>' &&
               strcspn(open + 1, "<>") == size - 2 - (size_t) (open - author) && strchr(author, '>') == author + size - 1;
}

int history_commit_new(const char *author, const char *message, HistoryChange **changes, HistoryCommit **ret, Error *err) {
        _cleanup_(history_commit_freep) HistoryCommit *commit = NULL;

        if (!author_is_valid(author))
                return error_set_field(err, "author", "author must be of the form \"NAME <UID@HOST>\"");
        if (!valid_is(VALID_TEXT, message) || !message[0])
                return error_set_field(err, "message", "message must be one line of text");
        commit = calloc(1, sizeof(*commit));
        if (!commit || !(commit->author = strdup(author)) || !(commit->message = strdup(message)))
                return error_set_errno(err, ENOMEM, "cannot commit");
        commit->when = (int64_t) (clock_realtime() / USEC_PER_SEC);
        commit->changes = TAKE_PTR(*changes);
        *ret = TAKE_PTR(commit);
        return 0;
}

// ---- tips --------------------------------------------------------------------------------------------------------------------

// A file as history has it, after the commits so far. What is not text cannot equal any text.
typedef struct Tip {
        const char *path; // borrowed
        char *text;       // NULL: no such file
        size_t size;
} Tip;

typedef struct Tips {
        Tip *tips;
        size_t n, room;
        char **listed; // owns the paths that only history knows
        char head[65]; // the commit they are of
} Tips;

static void tips_done(Tips *tips) {
        for (size_t i = 0; i < tips->n; i++)
                free(tips->tips[i].text);
        free(tips->tips);
        strv_free(tips->listed);
}

static Tip *tips_find(Tips *tips, const char *path) {
        for (size_t i = 0; i < tips->n; i++)
                if (strcmp(tips->tips[i].path, path) == 0)
                        return &tips->tips[i];
        return NULL;
}

static int tips_add(Tips *tips, const char *path) {
        if (tips_find(tips, path))
                return 0;
        if (tips->n == tips->room) {
                Tip *grown = realloc(tips->tips, (tips->room * 2 + 16) * sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                tips->tips = grown;
                tips->room = tips->room * 2 + 16;
        }
        tips->tips[tips->n++] = (Tip) {.path = path};
        return 0;
}

static bool tip_is(const Tip *tip, const char *text) {
        if (!tip->text || !text)
                return !tip->text && !text;
        return tip->size == strlen(text) && memcmp(tip->text, text, tip->size) == 0;
}

static int tip_set(Tip *tip, const char *text) {
        char *copy = text ? strdup(text) : NULL;

        if (text && !copy)
                return -ENOMEM;
        free(tip->text);
        tip->text = copy;
        tip->size = text ? strlen(text) : 0;
        return 0;
}

// The paths of all commits and, if one of them is whole, all that history has.
static int tips_name(Tips *tips, const Git *git, const HistoryCommit *commits, Error *err) {
        _cleanup_free_ char *output = NULL;
        bool whole = false;
        int r = 0;

        for (const HistoryCommit *commit = commits; commit; commit = commit->next) {
                whole = whole || commit->whole;
                for (const HistoryChange *change = commit->changes; r >= 0 && change; change = change->next)
                        r = tips_add(tips, change->path);
        }
        if (r >= 0 && whole) {
                r = git_check(git, GIT_ARGUMENTS("ls-tree", "-r", "--name-only", "HEAD"), &output, err);
                if (r < 0)
                        return r;
                r = strv_split(output, "\n", &tips->listed);
                for (char **p = tips->listed; r >= 0 && p && *p; p++)
                        if (confdir_path_is_ours(*p)) // a person may have committed other files
                                r = tips_add(tips, *p);
        }
        return r < 0 ? error_set_errno(err, r, "cannot commit") : 0;
}

// "OID commit SIZE\nTEXT\n", and "OID blob SIZE\nTEXT\n" or "HEAD:PATH missing\n" for each, in the order they were asked for.
static int tips_parse(Tips *tips, const GitText *output, Error *err) {
        const char *p = output->data ?: "", *end = p + output->size;
        unsigned long long head_size;
        int head_line = 0;

        if (sscanf(p, "%64[0-9a-f] commit %llu%n", tips->head, &head_size, &head_line) != 2 || head_size >= output->size - (size_t) head_line - 1)
                return error_set(err, ERR_INTERNAL, "git cannot read the commit that HEAD names");
        p += (size_t) head_line + 1 + head_size + 1;

        for (size_t i = 0; i < tips->n; i++) {
                const char *line_end = memchr(p, '\n', (size_t) (end - p));
                unsigned long long size;
                char type[8];
                if (!line_end)
                        return error_set(err, ERR_INTERNAL, "git cat-file broke off");
                int fields = sscanf(p, "%*[0-9a-f] %7s %llu\n", type, &size); // the line is within a text that ends with a NUL
                p = line_end + 1;
                if (fields != 2)
                        continue;
                if (size >= (unsigned long long) (end - p))
                        return error_set(err, ERR_INTERNAL, "git cat-file broke off");
                tips->tips[i].text = malloc(size + 1);
                if (!tips->tips[i].text)
                        return error_set_errno(err, ENOMEM, "cannot commit");
                memcpy(tips->tips[i].text, p, size);
                tips->tips[i].text[size] = 0;
                tips->tips[i].size = size;
                p += size + 1;
        }
        return 0;
}

static void git_text_done(GitText *text) {
        free(text->data);
}

static int tips_load(Tips *tips, const Git *git, const HistoryCommit *commits, Error *err) {
        _cleanup_(git_text_done) GitText input = {0}, output = {0};
        int r = tips_name(tips, git, commits, err);
        FILE *f;

        if (r < 0)
                return r;
        f = open_memstream(&input.data, &input.size);
        if (!f)
                return error_set_errno(err, errno, "cannot commit");
        fputs("HEAD\n", f);
        for (size_t i = 0; i < tips->n; i++)
                fprintf(f, "HEAD:%s\n", tips->tips[i].path);
        if (fclose(f) != 0)
                return error_set_errno(err, ENOMEM, "cannot commit");
        r = git_filter(git, GIT_ARGUMENTS("cat-file", "--batch"), &input, &output, err);
        return r < 0 ? r : tips_parse(tips, &output, err);
}

// ---- the stream --------------------------------------------------------------------------------------------------------------

// Paths are ours, so that none needs quoting; author and message were checked; texts have their size before them.
static void put_commit(FILE *f, bool first, const HistoryCommit *commit, const char *author, const char *message) {
        fprintf(f, "commit " NEXT "\nmark :1\nauthor %s %lld +0000\ncommitter hostd <hostd@localhost> %lld +0000\ndata %zu\n%s\n\n", author,
                (long long) commit->when, (long long) commit->when, strlen(message) + 1, message);
        if (first)
                fputs("from HEAD^0\n", f);
}

static int put_change(FILE *f, Tip *tip, const char *text) {
        if (text)
                fprintf(f, "M 100644 inline %s\ndata %zu\n%s\n", tip->path, strlen(text), text);
        else
                fprintf(f, "D %s\n", tip->path);
        return tip_set(tip, text);
}

// What a person did before hostd changed the same file.
static int put_found(FILE *f, unsigned *n, Tips *tips, const HistoryCommit *commit) {
        int r = 0;

        for (const HistoryChange *change = commit->changes; r >= 0 && change; change = change->next) {
                Tip *tip = tips_find(tips, change->path);
                char message[96];
                if (change->kind != CHANGE_EXACT || tip_is(tip, change->before))
                        continue;
                snprintf(message, sizeof(message), "%s: found %s by hand", change->path, change->before ? "changed" : "removed");
                put_commit(f, (*n)++ == 0, commit, HAND, message);
                r = put_change(f, tip, change->before);
        }
        return r;
}

static const HistoryChange *change_of(const HistoryCommit *commit, const char *path) {
        for (const HistoryChange *change = commit->changes; change; change = change->next)
                if (strcmp(change->path, path) == 0)
                        return change;
        return NULL;
}

// The head of a commit is written with its first difference, so that none is empty.
static int put_difference(FILE *f, unsigned *n, Tips *tips, const HistoryCommit *commit) {
        bool begun = false;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < tips->n; i++) {
                Tip *tip = &tips->tips[i];
                const HistoryChange *change = change_of(commit, tip->path);
                if (change ? change->kind == CHANGE_LEAVE || tip_is(tip, change->after) : !commit->whole || !tip->text)
                        continue;
                if (!begun)
                        put_commit(f, (*n)++ == 0, commit, commit->author, commit->message);
                begun = true;
                r = put_change(f, tip, change ? change->after : NULL);
        }
        return r;
}

// How many commits it is; 0: nothing to do.
static int make_stream(Tips *tips, const HistoryCommit *commits, GitText *ret, Error *err) {
        FILE *f = open_memstream(&ret->data, &ret->size);
        unsigned n = 0;
        int r = 0;

        if (!f)
                return error_set_errno(err, errno, "cannot commit");
        for (; r >= 0 && commits; commits = commits->next) {
                r = put_found(f, &n, tips, commits);
                if (r >= 0)
                        r = put_difference(f, &n, tips, commits);
        }
        fputs("get-mark :1\ndone\n", f);
        if (fclose(f) != 0 || r < 0)
                return error_set_errno(err, r < 0 ? r : ENOMEM, "cannot commit");
        return (int) n;
}

// ---- the disk ----------------------------------------------------------------------------------------------------------------

static int sync_directory(int dir, const char *path) {
        _cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        return fd < 0 ? (errno == ENOENT ? 0 : -errno) : fsync(fd) < 0 ? -errno : 0;
}

// Of the 256 directories of objects those count that changed since `since`.
static int sync_objects(int dir, const struct timespec *since) {
        char path[sizeof("objects/00")];
        struct stat st;
        int r = 0;

        for (unsigned i = 0; i < 256 && r == 0; i++) {
                (void) snprintf(path, sizeof(path), "objects/%02x", i & 0xff);
                if (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    (st.st_mtim.tv_sec > since->tv_sec || (st.st_mtim.tv_sec == since->tv_sec && st.st_mtim.tv_nsec >= since->tv_nsec)))
                        r = sync_directory(dir, path);
        }
        if (r == 0)
                r = sync_directory(dir, "objects/pack");
        return r < 0 ? r : sync_directory(dir, "objects");
}

static int sync_references(int dir) {
        int r = sync_directory(dir, "refs/heads");

        return r < 0 ? r : sync_directory(dir, ".");
}

// Moves the branch from `old` to `new`, which ends with a newline.
static int move_branch(const Git *git, const char *old, const char *new, Error *err) {
        _cleanup_free_ char *text = NULL;
        GitText input;

        if (asprintf(&text, "start\nupdate HEAD %.*s %s\ndelete " NEXT " %sprepare\ncommit\n", (int) strcspn(new, "\n"), new, old, new) < 0) {
                text = NULL;
                return error_set_errno(err, ENOMEM, "cannot commit");
        }
        input = (GitText) {text, strlen(text)};
        return git_filter(git, GIT_ARGUMENTS("update-ref", "--stdin"), &input, NULL, err);
}

static int write_stream(const Git *git, const GitText *stream, const char *old, Error *err) {
        _cleanup_(git_text_done) GitText new = {0};
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int dir = -EBADF;
        struct timespec start;
        int r;

        if (asprintf(&path, "%s/.git", git->path) < 0)
                path = NULL;
        dir = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (dir < 0)
                return error_set_errno(err, path ? errno : ENOMEM, "cannot commit");
        (void) clock_gettime(CLOCK_REALTIME_COARSE, &start); // the clock of files' times
        r = git_filter(git, GIT_ARGUMENTS("fast-import", "--force", "--quiet", "--done", "--date-format=raw"), stream, &new, err);
        if (r < 0)
                return r;
        if (!new.data || new.size < 40)
                return error_set(err, ERR_INTERNAL, "git fast-import does not tell what it wrote");
        if ((r = sync_objects(dir, &start)) < 0)
                return error_set_errno(err, r, "cannot sync the history");
        r = move_branch(git, old, new.data, err);
        if (r >= 0 && (r = sync_references(dir)) < 0)
                return error_set_errno(err, r, "cannot sync the history");
        return r;
}

// For people who look with git: else it would show the commits as changes to be taken back. They lock the index while they look, and a
// later commit makes up for what is missed.
static void set_index(const Git *git) {
        for (unsigned i = 0; i < INDEX_TRIES && git_run(git, GIT_ARGUMENTS("read-tree", "HEAD"), NULL, NULL) != 0; i++)
                (void) usleep(HISTORY_PAUSE_USEC);
}

static int write_once(const Git *git, const HistoryCommit *commits, Error *err) {
        _cleanup_(git_text_done) GitText stream = {0};
        _cleanup_(tips_done) Tips tips = {0};
        int r = tips_load(&tips, git, commits, err);

        if (r >= 0)
                r = make_stream(&tips, commits, &stream, err);
        if (r > 0)
                r = write_stream(git, &stream, tips.head, err);
        else if (r == 0 && !tips.listed) // a whole one comes at each start, when the index may be behind
                return 0;
        if (r < 0)
                return r;
        set_index(git);
        return 0;
}

// A person who commits here at the same moment has the branch for milliseconds.
int history_write(const Git *git, const HistoryCommit *commits, Error *err) {
        int r;

        for (unsigned i = 0;; i++) {
                Error why = ERROR_NULL;
                r = write_once(git, commits, &why);
                if (r >= 0 || r == -EINTR || i + 1 == HISTORY_TRIES) {
                        if (err)
                                error_move(err, &why);
                        error_done(&why);
                        return r;
                }
                error_done(&why);
                (void) usleep(HISTORY_PAUSE_USEC);
        }
}

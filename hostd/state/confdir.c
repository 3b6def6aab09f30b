// SPDX-License-Identifier: GPL-2.0-or-later
// ConfDir: see confdir.h.
//
// The repository's own exclude file names what is ours, so that editors' backups, half-written files and anything else that
// somebody puts into the directory is neither committed nor touched. No path is ever resolved through a link: the folders
// are opened by O_NOFOLLOW each time, since a person may replace them while hostd runs.
#include "state/confdir.h"

#include <dirent.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/io.h"
#include "base/strv.h"
#include "base/valid.h"
#include "state/git.h"

#define CONFDIR_TEXT_MAX (1 << 20) // as the parser's; what it would refuse is not written either
#define CONFDIR_LOG_MAX 10000      // lines; the text must fit what git_check() takes

// The only folders there are. A file's path is one of them, a slash, a valid name and ".conf".
static const char *const folders[] = {"categories.d", "instances.d", "policies.d", "templates.d"};

static const char exclude_text[] = "# Written by hostd: only its own files are kept in history.\n"
                                   "/*\n!/hostd.conf\n!/categories.d/\n!/instances.d/\n!/policies.d/\n!/templates.d/\n"
                                   "/*.d/*\n!/categories.d/*.conf\n!/instances.d/*.conf\n!/policies.d/*.conf\n!/templates.d/*.conf\n.*\n";

// Locks that a killed git leaves behind; none of them is ever ours between two commits.
static const char *const lock_files[] = {".git/index.lock", ".git/HEAD.lock", ".git/config.lock", ".git/packed-refs.lock", ".git/refs/heads/main.lock",
                                          ".git/refs/hostd/next.lock"};

struct ConfDir {
        char *path; // absolute
        int fd;
        struct timespec opened; // real time, as files' times are
        int commit_pidfd; // of the last commit; it may be over
        HistoryChange *changes; // written, and not taken yet
        char *no_history;       // why there is none, or NULL
};

// What the commit child's exit status means.
typedef enum CommitExit { COMMIT_OK = 0, COMMIT_FAILED = 10, COMMIT_DISK_FULL, COMMIT_KILLED, COMMIT_NO_HISTORY } CommitExit;

ConfDir *confdir_free(ConfDir *dir) {
        if (!dir)
                return NULL;
        (void) close_fd(dir->commit_pidfd);
        (void) close_fd(dir->fd);
        (void) history_changes_free(dir->changes);
        free(dir->no_history);
        free(dir->path);
        free(dir);
        return NULL;
}

int confdir_fd(const ConfDir *dir) {
        return dir->fd;
}

static Git git_of(const ConfDir *dir) {
        return (Git) {.path = dir->path};
}

static int check_directory(int dir, const char *name, Error *err) {
        struct stat st;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return error_set_errno(err, errno, "cannot look at %s", name);
        if (S_ISLNK(st.st_mode))
                return error_set(err, ERR_INVALID, "%s is a symbolic link, and must be a directory", name);
        if (!S_ISDIR(st.st_mode))
                return error_set(err, ERR_INVALID, "%s is not a directory", name);
        return 0;
}

static int make_folder(int dir, const char *name, Error *err) {
        if (mkdirat(dir, name, 0755) == 0)
                return fchmodat(dir, name, 0755, 0) < 0 ? error_set_errno(err, errno, "cannot set the mode of %s", name) : 0;
        if (errno != EEXIST)
                return error_set_errno(err, errno, "cannot make %s", name);
        return check_directory(dir, name, err);
}

static bool file_has_text(int dir, const char *path, const char *text) {
        _cleanup_free_ char *now = NULL;

        return io_read_file(dir, path, CONFDIR_TEXT_MAX, &now, NULL) == 0 && strcmp(now, text) == 0;
}

// Safe on an existing repository, and repairs one whose creation was cut short, except where its files are there and empty. Such a
// one never had a commit, because the first is made after the sync, and may go.
static int make_repository(ConfDir *dir, Error *err) {
        const char *const *init = GIT_ARGUMENTS("init", "--quiet", "--initial-branch=main", "--template=");
        const char *const *look = GIT_ARGUMENTS("rev-parse", "--git-dir");
        Git git = git_of(dir);
        bool had_commits = faccessat(dir->fd, ".git/refs/heads/main", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
                           faccessat(dir->fd, ".git/packed-refs", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        int r = git_run(&git, init, NULL, err);

        if (r == 0)
                r = git_run(&git, look, NULL, err);
        if (r > 0 && !had_commits) {
                r = io_remove_tree(dir->fd, ".git");
                if (r < 0)
                        return error_set_errno(err, r, "cannot remove .git, which git cannot read");
                r = git_check(&git, init, NULL, err);
        } else if (r > 0)
                r = git_check(&git, look, NULL, err); // says why
        // Once in the life of a host: git does not sync what it makes a repository of.
        if (r >= 0 && syncfs(dir->fd) < 0)
                r = error_set_errno(err, errno, "cannot sync the new repository");
        return r;
}

static int prepare_repository(ConfDir *dir, Error *err) {
        Git git = git_of(dir);
        struct stat st;
        int r;

        if (fstatat(dir->fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno != ENOENT)
                        return error_set_errno(err, errno, "cannot look at .git");
        } else {
                // A file or link here would send git to a repository of somebody else's making.
                r = check_directory(dir->fd, ".git", err);
                if (r < 0)
                        return r;
        }
        // Not where there is one: that always writes, and hostd must come up on a full disk, too.
        r = git_run(&git, GIT_ARGUMENTS("rev-parse", "--git-dir"), NULL, err);
        if (r > 0)
                r = make_repository(dir, err);
        if (r < 0)
                return r;
        // Only if it differs: hostd must come up on a read-only /etc as well.
        if (fstatat(dir->fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            ((st.st_mode & 07777) != 0700 && fchmodat(dir->fd, ".git", 0700, 0) < 0))
                return error_set_errno(err, errno, "cannot set the mode of .git");
        if (mkdirat(dir->fd, ".git/info", 0700) < 0 && errno != EEXIST)
                return error_set_errno(err, errno, "cannot make .git/info");
        if (file_has_text(dir->fd, ".git/info/exclude", exclude_text))
                return 0;
        r = io_write_atomic(dir->fd, ".git/info/exclude", exclude_text, strlen(exclude_text), 0600);
        return r < 0 ? error_set_errno(err, r, "cannot write .git/info/exclude") : 0;
}

// HEAD must exist before anything else asks for it: an empty history has no revision to compare with. What is there already goes
// into history by the first commit that finds it.
static int first_commit(ConfDir *dir, Error *err) {
        Git git = git_of(dir);
        int r = git_run(&git, GIT_ARGUMENTS("rev-parse", "--quiet", "--verify", "HEAD"), NULL, err);

        if (r <= 0)
                return r;
        return git_check(&git, GIT_ARGUMENTS("commit", "--quiet", "--no-verify", "--allow-empty", "-m", "Begin the history of the configuration"), NULL,
                         err);
}

static int prepare_history(ConfDir *dir, Error *err) {
        int r;

        if (!git_is_installed())
                return error_set(err, ERR_UNAVAILABLE, "git is not installed");
        r = prepare_repository(dir, err);
        return r < 0 ? r : first_commit(dir, err);
}

// Strictly: a lock of the very moment hostd started is left to its owner.
static bool earlier(const struct timespec *a, const struct timespec *b) {
        return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

// Removes locks last touched before `until`. A lock that is younger may belong to a person who runs git here.
static void remove_stale_locks(int dir, const struct timespec *from, const struct timespec *until) {
        for (size_t i = 0; i < ELEMENTS(lock_files); i++) {
                struct stat st;
                if (fstatat(dir, lock_files[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                        continue;
                if (earlier(&st.st_mtim, until) && !(from && earlier(&st.st_mtim, from)))
                        (void) unlinkat(dir, lock_files[i], 0); // if it stays, git says so
        }
}

// Files that a killed or failed fast-import leaves behind.
static void remove_matching(int dir, const char *folder, const char *prefix, const struct timespec *until) {
        _cleanup_close_ int fd = openat(dir, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;

        if (!d)
                return;
        fd = -EBADF;
        while ((e = readdir(d))) {
                struct stat st;
                if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    (!until || earlier(&st.st_mtim, until)))
                        (void) unlinkat(dirfd(d), e->d_name, 0);
        }
        (void) closedir(d);
}

static bool commit_is_running(ConfDir *dir) {
        struct pollfd p = {.fd = dir->commit_pidfd, .events = POLLIN};

        if (dir->commit_pidfd < 0)
                return false;
        if (poll(&p, 1, 0) == 0)
                return true;
        dir->commit_pidfd = close_fd(dir->commit_pidfd);
        return false;
}

// Asked after a failure only, to name its reason: git's own words for a full disk differ by the file it wrote.
static bool disk_is_full(int fd) {
        struct statvfs st;

        return fstatvfs(fd, &st) == 0 && (st.f_bavail == 0 || (st.f_files > 0 && st.f_favail == 0));
}

// The exit status has no room for what git said: it goes to standard error, which is the journal.
static CommitExit run_commit(ConfDir *dir, const Git *git, const HistoryCommit *commits) {
        _cleanup_error_ Error err = ERROR_NULL;
        CommitExit otherwise = COMMIT_FAILED;
        int r = 0;

        if (dir->no_history && (r = prepare_history(dir, &err)) < 0)
                otherwise = COMMIT_NO_HISTORY;
        if (r >= 0)
                r = history_write(git, commits, &err);
        if (r >= 0)
                return COMMIT_OK;
        dprintf(STDERR_FILENO, "hostd: committing the configuration: %s\n", error_message(&err, r));
        remove_matching(dir->fd, ".git", "fast_import_crash_", NULL);
        return r == -EINTR ? COMMIT_KILLED : disk_is_full(dir->fd) ? COMMIT_DISK_FULL : otherwise;
}

// Keeps standard error (the journal) and the directory; nothing else of hostd's may live on in this child, least of all clients'
// sockets, whose closing must be seen at once.
static void child_isolate(ConfDir *dir) {
        sigset_t none;

        for (int s = 1; s < _NSIG; s++)
                (void) signal(s, SIG_DFL);
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) prctl(PR_SET_NAME, "hostd-commit");
        int fd = fcntl(dir->fd, F_DUPFD, 3);
        if (fd > 3)
                (void) dup3(fd, 3, O_CLOEXEC);
        dir->fd = 3;
        (void) syscall(SYS_close_range, 4U, ~0U, 0);
}

// Never returns. The child waits for git, so that the loop has one process to wait for.
static void commit_child(ConfDir *dir, const HistoryCommit *commits) {
        Git git = git_of(dir);
        struct timespec start, end;
        CommitExit code;

        child_isolate(dir);
        (void) clock_gettime(CLOCK_REALTIME_COARSE, &start); // the clock of files' times
        code = run_commit(dir, &git, commits);
        if (code == COMMIT_KILLED) {
                // Our git is dead: what it locked between then and now is nobody's.
                (void) clock_gettime(CLOCK_REALTIME, &end);
                remove_stale_locks(dir->fd, &start, &end);
        }
        _exit(code);
}

int confdir_commit(ConfDir *dir, const HistoryCommit *commits, pid_t *ret_pid, int *ret_pidfd, Error *err) {
        _cleanup_close_ int pidfd = -EBADF;
        pid_t pid;

        if (commit_is_running(dir))
                return error_set(err, ERR_BUSY, "a commit of the configuration is running");
        remove_stale_locks(dir->fd, NULL, &dir->opened);
        pid = fork();
        if (pid < 0)
                return error_set_errno(err, errno, "cannot fork for a commit");
        if (pid == 0)
                commit_child(dir, commits);
        pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        if (pidfd >= 0)
                dir->commit_pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
        if (pidfd < 0 || dir->commit_pidfd < 0) {
                int saved = errno;
                (void) waitpid(pid, NULL, 0); // it takes milliseconds, and killing it would leave locks
                return error_set_errno(err, saved, "cannot open a pidfd for a commit");
        }
        *ret_pid = pid;
        *ret_pidfd = TAKE_FD(pidfd);
        return 0;
}

int confdir_commit_result(ConfDir *dir, int wait_status, Error *err) {
        int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : COMMIT_KILLED;

        if (code == COMMIT_NO_HISTORY)
                return CONFDIR_NO_HISTORY;
        if (code == COMMIT_OK) {
                free(TAKE_PTR(dir->no_history));
                return 0;
        }
        if (code == COMMIT_KILLED) {
                (void) error_set(err, ERR_INTERNAL, "the files are in force, but git was killed, and the change may not be in the configuration's history");
                return -EINTR;
        }
        return error_set(err, code == COMMIT_DISK_FULL ? ERR_QUOTA : ERR_INTERNAL,
                         "the files are in force, but the change is not yet in the configuration's history: %s; hostd tries again by itself",
                         code == COMMIT_DISK_FULL ? "the disk is full" : "git failed");
}

int confdir_open(const char *path, ConfDir **ret, Error *err) {
        _cleanup_(confdir_freep) ConfDir *dir = calloc(1, sizeof(*dir));
        _cleanup_error_ Error why = ERROR_NULL;
        int r;

        if (!dir)
                return error_set_errno(err, ENOMEM, "cannot open %s", path);
        dir->fd = dir->commit_pidfd = -EBADF;
        if (!valid_is(VALID_PATH, path))
                return valid_check(VALID_PATH, "path", path, err);
        dir->path = strdup(path);
        if (!dir->path)
                return error_set_errno(err, ENOMEM, "cannot open %s", path);
        r = io_mkdir_p(AT_FDCWD, path, 0755);
        if (r < 0)
                return error_set_errno(err, r, "cannot make %s", path);
        dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir->fd < 0)
                return error_set_errno(err, errno, "cannot open %s", path);
        (void) clock_gettime(CLOCK_REALTIME_COARSE, &dir->opened);
        io_sweep_temporaries(dir->fd, ".");
        for (size_t i = 0; r >= 0 && i < ELEMENTS(folders); i++) {
                r = make_folder(dir->fd, folders[i], err);
                io_sweep_temporaries(dir->fd, folders[i]);
        }
        if (r < 0) {
                (void) error_wrap(err, "%s", path);
                return r;
        }
        remove_stale_locks(dir->fd, NULL, &dir->opened);
        remove_matching(dir->fd, ".git/objects/pack", "tmp_pack_", &dir->opened);
        r = prepare_history(dir, &why);
        if (r < 0 && !(dir->no_history = strdup(error_message(&why, r))))
                return error_set_errno(err, ENOMEM, "cannot open %s", path);
        *ret = TAKE_PTR(dir);
        return r < 0 ? CONFDIR_NO_HISTORY : 0;
}

const char *confdir_no_history(const ConfDir *dir) {
        return dir->no_history;
}

// The folder of a legal path, and the file's name in it; `folder` is NULL for the directory itself.
static bool path_split(const char *path, const char **ret_folder, const char **ret_name) {
        const char *slash = strchr(path, '/');
        char name[33];
        size_t size;

        if (strcmp(path, "hostd.conf") == 0) {
                *ret_folder = NULL;
                *ret_name = path;
                return true;
        }
        if (!slash)
                return false;
        size = strlen(slash + 1);
        if (size <= 5 || size - 5 >= sizeof(name) || strcmp(slash + 1 + size - 5, ".conf") != 0)
                return false;
        memcpy(name, slash + 1, size - 5);
        name[size - 5] = 0;
        if (!valid_is(VALID_NAME, name))
                return false;
        for (size_t i = 0; i < ELEMENTS(folders); i++) {
                if (strncmp(folders[i], path, (size_t) (slash - path)) != 0 || folders[i][slash - path])
                        continue;
                *ret_folder = folders[i];
                *ret_name = slash + 1;
                return true;
        }
        return false;
}

// Opens the folder of `path`, anew each time and never through a link.
static int open_folder(ConfDir *dir, const char *path, const char **ret_name, int *ret_fd, Error *err) {
        const char *folder = NULL;
        int fd;

        if (!path_split(path, &folder, ret_name)) {
                _cleanup_free_ char *shown = valid_printable(path);
                return error_set_field(err, "path", "\"%s\" is not a configuration file's path", shown ?: "");
        }
        fd = openat(dir->fd, folder ?: ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return error_set_errno(err, errno, "cannot open %s", folder ?: dir->path);
        *ret_fd = fd;
        return 0;
}

// A link in a file's place is refused and not followed; what a reader of the file would see is not ours to decide.
int confdir_read(ConfDir *dir, const char *path, char **ret, Error *err) {
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        const char *name = NULL;
        struct stat st;
        size_t size;
        int r = open_folder(dir, path, &name, &fd, err);

        if (r < 0)
                return r;
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return error_set_errno(err, errno, "cannot read %s", path);
        if (!S_ISREG(st.st_mode))
                return error_set(err, ERR_INVALID, "%s is not a regular file", path);
        r = io_read_file(fd, name, CONFDIR_TEXT_MAX, &text, &size);
        if (r < 0)
                return error_set_errno(err, r, "cannot read %s", path);
        if (strlen(text) != size)
                return error_set(err, ERR_INVALID, "%s contains a NUL byte", path);
        *ret = TAKE_PTR(text);
        return 0;
}

// What is there now, for the change that follows; NULL and true: nothing. What is no text is replaced without being told of.
static bool text_before(int fd, const char *name, char **ret) {
        struct stat st;
        size_t size;

        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT;
        return S_ISREG(st.st_mode) && io_read_file(fd, name, CONFDIR_TEXT_MAX, ret, &size) == 0 && strlen(*ret) == size;
}

// The file is written: without memory for the note it is committed as found by hand, later.
static void note_change(ConfDir *dir, const char *path, bool known, const char *before, const char *after) {
        if (known)
                (void) history_note(&dir->changes, path, before, after);
        else
                (void) history_note_kind(&dir->changes, CHANGE_FOUND, path, after);
}

int confdir_write(ConfDir *dir, const char *path, const char *text, Error *err) {
        _cleanup_free_ char *before = NULL;
        _cleanup_close_ int fd = -EBADF;
        const char *name = NULL;
        int r = open_folder(dir, path, &name, &fd, err);

        if (r < 0)
                return r;
        if (strlen(text) > CONFDIR_TEXT_MAX)
                return error_set(err, ERR_INVALID, "%s would be larger than 1 MiB", path);
        bool known = text_before(fd, name, &before);
        r = io_write_atomic(fd, name, text, strlen(text), 0644);
        if (r < 0)
                return error_set_errno(err, r, "cannot write %s", path);
        note_change(dir, path, known, before, text);
        return 0;
}

int confdir_remove(ConfDir *dir, const char *path, Error *err) {
        _cleanup_free_ char *before = NULL;
        _cleanup_close_ int fd = -EBADF;
        const char *name = NULL;
        int r = open_folder(dir, path, &name, &fd, err);

        if (r < 0)
                return r;
        bool known = text_before(fd, name, &before);
        if (unlinkat(fd, name, 0) < 0)
                return error_set_errno(err, errno, "cannot remove %s", path);
        note_change(dir, path, known, before, NULL);
        return fsync(fd) < 0 ? error_set_errno(err, errno, "cannot remove %s", path) : 0;
}

HistoryChange *confdir_take_changes(ConfDir *dir) {
        return TAKE_PTR(dir->changes);
}

bool confdir_has_changes(const ConfDir *dir) {
        return dir && dir->changes != NULL;
}

bool confdir_path_is_ours(const char *path) {
        const char *folder, *name;

        return path_split(path, &folder, &name);
}

static int snapshot_file(ConfDir *dir, const char *path, char *const *except, HistoryChange **changes) {
        _cleanup_free_ char *text = NULL;

        if (!confdir_path_is_ours(path))
                return 0;
        if (strv_contains(except, path))
                return history_note_kind(changes, CHANGE_LEAVE, path, NULL);
        int r = confdir_read(dir, path, &text, NULL);
        if (r == -ENOENT)
                return 0;
        return history_note_kind(changes, r < 0 ? CHANGE_LEAVE : CHANGE_FOUND, path, text);
}

static int snapshot_folder(ConfDir *dir, const char *folder, char *const *except, HistoryChange **changes) {
        int fd = openat(dir->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *e;

        if (!d) {
                r = -errno;
                (void) close_fd(fd);
                return r;
        }
        while (r >= 0 && (e = readdir(d))) {
                char path[300];
                if (snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) < (int) sizeof(path))
                        r = snapshot_file(dir, path, except, changes);
        }
        (void) closedir(d);
        return r;
}

int confdir_snapshot(ConfDir *dir, char *const *except, HistoryChange **ret, Error *err) {
        _cleanup_(history_changes_freep) HistoryChange *changes = NULL;
        int r = snapshot_file(dir, "hostd.conf", except, &changes);

        for (size_t i = 0; r >= 0 && i < ELEMENTS(folders); i++)
                r = snapshot_folder(dir, folders[i], except, &changes);
        // A file that is excepted and gone is left alone as well.
        for (char *const *p = except; r >= 0 && p && *p; p++)
                if (faccessat(dir->fd, *p, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                        r = history_note_kind(&changes, CHANGE_LEAVE, *p, NULL);
        if (r < 0)
                return error_set_errno(err, r, "cannot read %s", dir->path);
        *ret = TAKE_PTR(changes);
        return 0;
}

int confdir_log(ConfDir *dir, unsigned max, char **ret_text, Error *err) {
        Git git = git_of(dir);
        char count[32];

        snprintf(count, sizeof(count), "--max-count=%u", MIN2(MAX2(max, 1U), CONFDIR_LOG_MAX));
        return git_check(&git, GIT_ARGUMENTS("log", count, "--no-color", "--no-decorate", "--abbrev=12",
                                             "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%h %ad %an %s", "HEAD"),
                         ret_text, err);
}

// A closed list of forms, because git's own language of revisions can name anything (":/text", "@{…}") and options.
static bool rev_is_valid(const char *rev) {
        size_t size = strlen(rev);

        if (strcmp(rev, "HEAD") == 0)
                return true;
        if (strncmp(rev, "HEAD~", 5) == 0)
                return size > 5 && size <= 10 && strspn(rev + 5, "0123456789") == size - 5;
        return size >= 4 && size <= 40 && strspn(rev, "0123456789abcdef") == size;
}

int confdir_resolve(ConfDir *dir, const char *rev, char **ret, Error *err) {
        _cleanup_free_ char *output = NULL;
        Git git = git_of(dir);
        char spec[64];
        int r;

        if (!rev_is_valid(rev))
                return error_set_field(err, "rev", "rev must be 4 to 40 lower-case hex digits, HEAD or HEAD~N");
        snprintf(spec, sizeof(spec), "%s^{commit}", rev);
        r = git_run(&git, GIT_ARGUMENTS("rev-parse", "--quiet", "--verify", "--end-of-options", spec), &output, err);
        if (r < 0)
                return r;
        output[strcspn(output, "\n")] = 0;
        if (r > 0 || !rev_is_valid(output))
                return error_set(err, ERR_NOT_FOUND, "there is no revision %s in the configuration's history", rev);
        *ret = TAKE_PTR(output);
        return 0;
}

// The n-th newest commit that wrote the file. What was there before the file's removal was of another instance or policy of that name;
// of hostd.conf there is just one.
static const char *earlier_rev(char *const *lines, const char *path, unsigned n) {
        bool removal_ends = strcmp(path, "hostd.conf") != 0;
        const char *rev = NULL;

        for (char *const *line = lines; line && *line; line++)
                if (strlen(*line) == 40)
                        rev = *line;
                else if (strncmp(*line, "D\t", 2) == 0 ? removal_ends : n-- == 0)
                        return **line == 'D' ? NULL : rev;
        return NULL;
}

char *confdir_earlier(ConfDir *dir, const char *path, unsigned n) {
        _cleanup_free_ char *output = NULL, *text = NULL;
        _cleanup_strv_ char **lines = NULL;
        const char *rev;
        Git git = git_of(dir);
        char spec[400];

        if (dir->no_history || !confdir_path_is_ours(path))
                return NULL;
        // Not git's own count and skip: they count what the filter leaves out.
        if (git_check(&git, GIT_ARGUMENTS("log", "--no-renames", "--diff-filter=AMD", "--name-status", "--format=%H", "HEAD", "--", path), &output, NULL) < 0 ||
            strv_split(output, "\n", &lines) < 0 || !(rev = earlier_rev(lines, path, n)))
                return NULL;
        snprintf(spec, sizeof(spec), "%s:%s", rev, path);
        return git_check(&git, GIT_ARGUMENTS("cat-file", "blob", spec), &text, NULL) < 0 ? NULL : TAKE_PTR(text);
}

static void unlinkp(char **path) {
        if (*path)
                (void) unlink(*path);
        free(*path);
}

// Compares the files as they are with a commit, in an index of its own: new files count, and no lock of the repository is taken.
static int diff_files(ConfDir *dir, const char *rev, const char *const *options, char **ret, Error *err) {
        _cleanup_(unlinkp) char *index = NULL;
        Git git = git_of(dir);
        int r;

        if (asprintf(&index, "%s/.git/index.%d", dir->path, getpid()) < 0) {
                index = NULL;
                return error_set_errno(err, ENOMEM, "cannot compare");
        }
        git.index = index;
        (void) unlink(index);
        r = git_check(&git, GIT_ARGUMENTS("add", "--all", "--", "."), NULL, err);
        if (r < 0)
                return r;
        return git_check(&git, GIT_ARGUMENTS("diff", "--cached", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
                                             options[0], options[1], rev), ret, err);
}

int confdir_diff(ConfDir *dir, const char *rev, char **ret_text, Error *err) {
        _cleanup_free_ char *commit = NULL;
        Git git = git_of(dir);
        int r;

        if (!rev)
                return diff_files(dir, "HEAD", GIT_ARGUMENTS("--patch", "--src-prefix=a/"), ret_text, err);
        r = confdir_resolve(dir, rev, &commit, err);
        if (r < 0)
                return r;
        return git_check(&git, GIT_ARGUMENTS("show", "--format=", "--patch", "--no-color", "--no-ext-diff", "--no-textconv",
                                             "--no-renames", commit), ret_text, err);
}

// One file as it was in `commit`: written whole or, if it was not there, removed.
static int checkout_file(ConfDir *dir, const char *commit, const char *path, Error *err) {
        _cleanup_free_ char *spec = NULL, *text = NULL;
        const char *folder, *name;
        Git git = git_of(dir);
        int r;

        // The history may hold what a person committed by hand; only our files are touched.
        if (!path_split(path, &folder, &name))
                return 0;
        if (asprintf(&spec, "%s:%s", commit, path) < 0) {
                spec = NULL;
                return error_set_errno(err, ENOMEM, "cannot restore %s", path);
        }
        r = git_run(&git, GIT_ARGUMENTS("cat-file", "-e", spec), NULL, err);
        if (r < 0)
                return r;
        if (r > 0) {
                r = confdir_remove(dir, path, err);
                return r == -ENOENT ? 0 : r;
        }
        r = git_check(&git, GIT_ARGUMENTS("cat-file", "blob", spec), &text, err);
        return r < 0 ? r : confdir_write(dir, path, text, err);
}

int confdir_checkout(ConfDir *dir, const char *rev, Error *err) {
        _cleanup_free_ char *commit = NULL, *output = NULL;
        _cleanup_strv_ char **paths = NULL;
        int r = confdir_resolve(dir, rev, &commit, err);

        if (r < 0)
                return r;
        // Our paths need no quoting, so lines are as good as NULs; a quoted one is not ours.
        r = diff_files(dir, commit, GIT_ARGUMENTS("--name-only", "--src-prefix=a/"), &output, err);
        if (r >= 0 && strv_split(output, "\n", &paths) < 0)
                r = error_set_errno(err, ENOMEM, "cannot restore %s", rev);
        for (char **p = paths; r >= 0 && p && *p; p++)
                r = checkout_file(dir, commit, *p, err);
        return r;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Minting: see minting.h.
#include "core/minting.h"

#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/process.h"

#define RUN_TIMEOUT (60 * USEC_PER_SEC)
#define RETRY_FIRST (5 * USEC_PER_SEC)
#define RETRY_LAST (300 * USEC_PER_SEC)
#define MEMORY_MAX (UINT64_C(2) << 30) // address space: runtimes with garbage collectors reserve much
#define NO_CAPABILITIES (UINT64_C(1) << 63) // is none: 0 would leave all to set-uid programs

struct Minting {
        Minting *next;
        Secrets *secrets; // borrowed
        Mint mint;
        bool is_new; // there is no secret yet
        pid_t pid;   // 0: does not run
        int pidfd, out;
        Value *value;
        size_t n;
        bool too_long, timed_out;
        unsigned failures; // in a row
        sd_event_source *io, *exit, *timer;
        MintingDone done;
        void *userdata;
};

static void plan(Minting *m);

static Minting **place_of(Secrets *s, const char *secret) {
        Minting **p = &s->mintings;

        while (*p && strcmp((*p)->mint.secret, secret) != 0)
                p = &(*p)->next;
        return p;
}

const Mint *minting_find(const Secrets *s, const char *secret) {
        for (const Minting *m = s->mintings; m; m = m->next)
                if (strcmp(m->mint.secret, secret) == 0)
                        return &m->mint;
        return NULL;
}

// ---- the command ----

static void stop(Minting *m) {
        m->io = sd_event_source_disable_unref(m->io);
        m->exit = sd_event_source_disable_unref(m->exit);
        m->timer = sd_event_source_disable_unref(m->timer);
        if (m->pid > 0) { // unreaped, so the group is its own
                (void) kill(-m->pid, SIGKILL);
                (void) waitpid(m->pid, NULL, 0);
        }
        m->pid = 0;
        m->pidfd = close_fd(m->pidfd);
        m->out = close_fd(m->out);
        m->value = value_free(m->value);
}

static Minting *minting_free(Minting *m) {
        if (!m)
                return NULL;
        stop(m);
        mint_done(&m->mint);
        free(m);
        return NULL;
}

static void read_output(Minting *m) {
        for (;;) {
                char beyond[512];
                bool room = m->n < m->value->size;
                ssize_t k = room ? read(m->out, m->value->data + m->n, m->value->size - m->n) : read(m->out, beyond, sizeof(beyond));
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0) {
                        if (k == 0)
                                m->io = sd_event_source_disable_unref(m->io);
                        return;
                }
                if (room)
                        m->n += (size_t) k;
                else
                        m->too_long = true;
                if (m->too_long)
                        return; // a flood is left in the pipe
        }
}

static int output_ready(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Minting *m = userdata;

        read_output(m);
        if (m->too_long)
                m->io = sd_event_source_disable_unref(m->io);
        return 0;
}

static int judge(Minting *m, int status, Error *err) {
        if (m->timed_out)
                return error_set(err, ERR_TIMEOUT, "%s did not end in time", m->mint.command);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return error_set(err, ERR_UNAVAILABLE, "%s %s %d", m->mint.command, WIFEXITED(status) ? "exited with" : "was killed by signal",
                                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        if (m->n > 0 && !m->too_long && m->value->data[m->n - 1] == '\n')
                m->n--;
        if (m->n == 0 || m->n > SEAL_VALUE_MAX || m->too_long)
                return error_set(err, ERR_INVALID, "%s printed %s", m->mint.command, m->n == 0 ? "nothing" : "more than a value has");
        m->value->size = m->n;
        return 0;
}

// For a new secret the record first: it is nothing without a secret. Then the value first: with a record that says less of its life than is true it is
// only renewed too early.
static int take_first(Minting *m, Error *err) {
        int r = mint_keep(&m->secrets->vault, &m->mint, err);

        if (r < 0)
                return r;
        r = secret_add(&m->secrets->vault, m->mint.secret, m->value, err);
        if (r < 0)
                (void) mint_remove(&m->secrets->vault, m->mint.secret, NULL); // the next hostd passes over it
        else
                m->is_new = false;
        return r;
}

static int take(Minting *m, Error *err) {
        usec_t now = clock_realtime();
        int r;

        if (m->is_new) {
                m->mint.ends = now + m->mint.life;
                return take_first(m, err);
        }
        r = secrets_rotate(m->secrets, m->mint.secret, m->value, err);
        if (r < 0)
                return r;
        m->mint.ends = now + m->mint.life;
        secrets_rest(m->secrets, m->mint.secret, false);
        return mint_keep(&m->secrets->vault, &m->mint, err);
}

static void answer(Minting *m, int r, Error *err) {
        MintingDone done = m->done;

        m->done = NULL;
        if (done)
                done(m->userdata, r, err);
}

static void finish(Minting *m, int status) {
        Manager *manager = m->secrets->manager;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = judge(m, status, &err);

        if (r >= 0)
                r = take(m, &err);
        m->pid = 0;
        stop(m);
        if (r >= 0) {
                m->failures = 0;
                manager_unwarn(manager, "mint", m->mint.secret);
                event_publish(manager->bus, "secret-minted", NULL, json_pack("{s:s}", "secret", m->mint.secret));
                answer(m, 0, NULL);
                plan(m);
                return;
        }
        if (m->is_new) { // nobody has it yet: whoever asked may ask again
                Minting **p = place_of(m->secrets, m->mint.secret);
                *p = m->next;
                answer(m, r, &err);
                (void) minting_free(m);
                return;
        }
        m->failures++;
        manager_warn(manager, "mint", m->mint.secret, "no new value of secret \"%s\": %s", m->mint.secret, error_message(&err, r));
        plan(m);
}

static int exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        Minting *m = userdata;
        int status = 0;

        read_output(m); // what is still in the pipe; what it left in the background is not waited for
        (void) kill(-m->pid, SIGKILL);
        if (waitpid(m->pid, &status, 0) != m->pid)
                status = -1;
        finish(m, status);
        return 0;
}

static int too_late(sd_event_source *source, uint64_t usec, void *userdata) {
        Minting *m = userdata;

        m->timed_out = true;
        (void) kill(-m->pid, SIGKILL); // then it exits
        return 0;
}

static int account_of(const char *user, ProcessSpec *spec, Error *err) {
        char *end;
        unsigned long number = strtoul(user, &end, 10);
        const struct passwd *entry = *end ? getpwnam(user) : getpwuid((uid_t) number);

        if (!entry)
                return error_set_field(err, "user", "there is no user \"%s\"", user);
        if (entry->pw_uid == 0)
                return error_set_field(err, "user", "a command that mints does not run as root");
        spec->uid = entry->pw_uid;
        spec->gid = entry->pw_gid;
        return 0;
}

static void limit_child(pid_t pid) {
        char path[64];

        (void) prlimit(pid, RLIMIT_CORE, &(struct rlimit) {0, 0}, NULL);
        (void) prlimit(pid, RLIMIT_AS, &(struct rlimit) {MEMORY_MAX, MEMORY_MAX}, NULL);
        (void) prlimit(pid, RLIMIT_CPU, &(struct rlimit) {60, 60}, NULL);
        (void) snprintf(path, sizeof(path), "/proc/%d/coredump_filter", pid);
        (void) io_write_file(AT_FDCWD, path, "0");
}

// setpriv, because nothing that is set-uid below it is to gain anything, also where hostd's unit does not say so.
static int spawn(Minting *m, int wr, int null, Error *err) {
        char variable[64];
        char *const argv[] = {(char *) "/usr/bin/setpriv", (char *) "--no-new-privs", m->mint.command, NULL};
        char *const env[] = {(char *) "PATH=/usr/local/bin:/usr/bin:/bin", (char *) "LANG=C.UTF-8", (char *) "HOME=/", variable, NULL};
        ProcessSpec spec = PROCESS_SPEC_NULL;
        int r = account_of(m->mint.user, &spec, err);

        if (r < 0)
                return r;
        (void) snprintf(variable, sizeof(variable), "HOSTD_SECRET=%s", m->mint.secret);
        spec.argv = argv;
        spec.env = env;
        spec.stdout_fd = wr;
        spec.stderr_fd = null;
        spec.die_with_parent = spec.new_session = true;
        spec.bounding = NO_CAPABILITIES;
        r = process_spawn(&spec, &m->pid, &m->pidfd, err);
        if (r >= 0)
                limit_child(m->pid);
        return r;
}

// It does not outlast the value that it is to replace.
static usec_t patience(const Minting *m) {
        usec_t now = clock_realtime();

        return !m->is_new && m->mint.ends > now ? MIN2(RUN_TIMEOUT, m->mint.ends - now) : RUN_TIMEOUT;
}

static int start(Minting *m, Error *err) {
        sd_event *event = m->secrets->manager->event;
        _cleanup_close_ int wr = -EBADF, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        int p[2], r;

        stop(m);
        m->n = 0;
        m->too_long = m->timed_out = false;
        if (null < 0 || value_new(SEAL_VALUE_MAX + 1, &m->value) < 0 || pipe2(p, O_CLOEXEC) < 0)
                return error_set_errno(err, ENOMEM, "cannot run %s", m->mint.command);
        m->out = p[0];
        wr = p[1];
        r = io_set_nonblock(m->out, true);
        if (r < 0)
                return error_set_errno(err, r, "cannot run %s", m->mint.command);
        r = spawn(m, wr, null, err);
        if (r < 0)
                return r;
        r = sd_event_add_io(event, &m->io, m->out, EPOLLIN, output_ready, m);
        if (r >= 0)
                r = sd_event_add_io(event, &m->exit, m->pidfd, EPOLLIN, exited, m);
        if (r >= 0)
                r = sd_event_add_time_relative(event, &m->timer, CLOCK_MONOTONIC, patience(m), 0, too_late, m);
        return r < 0 ? error_set_errno(err, r, "cannot watch %s", m->mint.command) : 0;
}

// ---- when ----

static int due(sd_event_source *source, uint64_t usec, void *userdata) {
        Minting *m = userdata;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (m->mint.ends <= clock_realtime())
                secrets_rest(m->secrets, m->mint.secret, true);
        r = start(m, &err);
        if (r >= 0)
                return 0;
        stop(m);
        m->failures++;
        manager_warn(m->secrets->manager, "mint", m->mint.secret, "no new value of secret \"%s\": %s", m->mint.secret, error_message(&err, r));
        plan(m);
        return 0;
}

// By the wall clock, as what it is good for is. Not later than its end, when it is to rest.
static void plan(Minting *m) {
        usec_t now = clock_realtime(), at = mint_renew_at(&m->mint);

        m->timer = sd_event_source_disable_unref(m->timer);
        if (m->mint.ends <= now)
                secrets_rest(m->secrets, m->mint.secret, true);
        if (m->failures > 0)
                at = now + MIN2(MIN2(RETRY_FIRST << MIN2(m->failures - 1, 7u), RETRY_LAST), MAX2(m->mint.life / 8, USEC_PER_SEC));
        if (m->mint.ends > now)
                at = MIN2(at, m->mint.ends);
        (void) sd_event_add_time(m->secrets->manager->event, &m->timer, CLOCK_REALTIME, at, USEC_PER_SEC / 4, due, m);
}

static Minting *add(Secrets *s, Mint *mint) {
        Minting *m = calloc(1, sizeof(Minting));

        if (!m)
                return NULL;
        m->secrets = s;
        m->pidfd = m->out = -EBADF;
        m->mint = *mint;
        *mint = (Mint) {0};
        m->next = s->mintings;
        s->mintings = m;
        return m;
}

// A record without a secret is of a `set` that a crash cut short.
void mintings_open(Secrets *s) {
        _cleanup_error_ Error err = ERROR_NULL;
        unsigned damaged = 0;
        Mint *list = NULL;
        size_t n = 0;
        int r = mint_list(&s->vault, &list, &n, &damaged, &err);

        if (r >= 0 && damaged > 0)
                r = error_set(&err, ERR_CONFLICT, "%u records of how secrets are minted are damaged: these secrets are not renewed", damaged);
        if (r < 0)
                manager_warn(s->manager, "mint", "host", "%s", error_message(&err, r));
        for (size_t i = 0; i < n; i++) {
                Minting *m = secret_get(&s->vault, list[i].secret, &(Secret) {0}, NULL) >= 0 ? add(s, &list[i]) : NULL;
                if (m)
                        plan(m);
                mint_done(&list[i]);
        }
        free(list);
}

void mintings_free(Secrets *s) {
        while (s->mintings) {
                Minting *m = s->mintings;
                s->mintings = m->next;
                (void) minting_free(m);
        }
}

int minting_add(Secrets *s, Mint *mint, MintingDone done, void *userdata, Error *err) {
        int r = mint_check(mint, err);
        Minting *m;

        if (r < 0)
                return r;
        if (minting_find(s, mint->secret) || secret_get(&s->vault, mint->secret, &(Secret) {0}, NULL) >= 0)
                return error_set(err, ERR_EXISTS, "secret \"%s\" exists already", mint->secret);
        m = add(s, mint);
        if (!m)
                return error_set_errno(err, ENOMEM, "cannot run a command");
        m->is_new = true;
        r = start(m, err);
        if (r < 0) {
                s->mintings = m->next;
                (void) minting_free(m);
                return r;
        }
        m->done = done;
        m->userdata = userdata;
        return 0;
}

int minting_remove(Secrets *s, const char *secret, Error *err) {
        Minting **p = place_of(s, secret), *m = *p;
        int r = m ? mint_remove(&s->vault, secret, err) : 0;

        if (!m || r < 0)
                return r;
        *p = m->next;
        manager_unwarn(s->manager, "mint", secret);
        _cleanup_error_ Error gone = ERROR_NULL;
        r = error_set(&gone, ERR_CANCELLED, "the secret was revoked meanwhile");
        answer(m, r, &gone);
        (void) minting_free(m);
        return 0;
}

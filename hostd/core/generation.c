// SPDX-License-Identifier: GPL-2.0-or-later
// Generation: see generation.h.
#include "core/generation.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/log.h"
#include "base/process.h"
#include "border/border.h"
#include "core/border.h"
#include "core/interceptor.h"
#include "core/service_unit.h"

#define FILL_PAUSE (20 * USEC_PER_MSEC)
#define FILL_TIMEOUT (15 * USEC_PER_SEC) // from a start to its values
#define LOOK_EVERY (10 * USEC_PER_SEC)   // whether one that closes has connections left
#define HAPROXY_PROGRAM "/usr/sbin/haproxy"
#define HOSTS "hosts"
#define PID "pid"
#define FILLED "filled"
#define TEXT_MAX (1 << 20)

static Manager *manager_of(const Generation *g) {
        return g->interceptor->secrets->manager;
}

// ---- process ----

static int buried(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        (void) waitpid((pid_t) (intptr_t) userdata, NULL, WNOHANG); // ours
        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        (void) sd_event_source_set_floating(source, false); // was its last reference
        return 0;
}

// One that is killed dies in milliseconds, but not while it waits for a disk: hostd's loop does not wait with it.
static void bury(Generation *g) {
        sd_event_source *source = NULL;

        if (!g->child || waitpid(g->pid, NULL, WNOHANG) != 0 ||
            sd_event_add_io(manager_of(g)->event, &source, g->pidfd, EPOLLIN, buried, (void *) (intptr_t) g->pid) < 0) // out of memory: it stays a zombie
                return;
        (void) sd_event_source_set_io_fd_own(source, true);
        g->pidfd = -EBADF;
        (void) sd_event_source_set_floating(source, true);
        (void) sd_event_source_unref(source);
}

static void unit_name(const Generation *g, char *ret, size_t size) {
        (void) snprintf(ret, size, "hostd-haproxy@%u-%u.service", g->interceptor->slot, g->number);
}

// It holds nothing that has to be said to anybody, so it is killed. One that has not come yet is not to come.
static void kill_it(Generation *g) {
        char name[64];

        if (g->pidfd >= 0)
                (void) syscall(SYS_pidfd_send_signal, g->pidfd, SIGKILL, NULL, 0);
        else if (g->unit) {
                unit_name(g, name, sizeof(name));
                service_unit_stop(name);
        }
}

Generation *generation_forget(Generation *g) {
        if (!g)
                return NULL;
        g->filling = runtime_free(g->filling);
        runtime_commands_free(&g->commands);
        g->unit = service_unit_free(g->unit);
        (void) sd_event_source_disable_unref(g->exit);
        (void) sd_event_source_disable_unref(g->again);
        (void) close_fd(g->pidfd);
        (void) close_fd(g->directory);
        site_hosts_free(g->hosts, g->n_hosts);
        free(g->config);
        free(g->path);
        free(g);
        return NULL;
}

// What is left is made over by the next. HAProxy owns some of it, and one that was conquered may have made it hard to remove.
Generation *generation_end(Generation *g) {
        int r;

        if (!g)
                return NULL;
        kill_it(g);
        g->exit = sd_event_source_disable_unref(g->exit);
        bury(g);
        r = g->path ? io_remove_tree(AT_FDCWD, g->path) : 0;
        if (r < 0)
                log_warning("%s cannot be removed: %s", g->path, strerror(-r));
        return generation_forget(g);
}

static int exited(sd_event_source *source, int fd, uint32_t events, void *userdata) {
        interceptor_ended(userdata, NULL);
        return 0;
}

static int watch(Generation *g, Error *err) {
        int r = sd_event_add_io(manager_of(g)->event, &g->exit, g->pidfd, EPOLLIN, exited, g);

        return r < 0 ? error_set_errno(err, r, "cannot watch it") : 0;
}

static char *program_path(void) {
        char *path;

        return asprintf(&path, "%s/" BORDER_HAPROXY, getenv("HOSTD_BORDER_PROGRAMS") ?: HOSTD_LIBEXECDIR) < 0 ? NULL : path;
}

// With the right to become its slot's user, and nothing else.
static int fork_it(Generation *g, Error *err) {
        const uint64_t right = UINT64_C(1) << 7 | UINT64_C(1) << 6; // CAP_SETUID, CAP_SETGID
        _cleanup_free_ char *program = program_path();
        char *argv[] = {program, g->path, NULL};
        ProcessSpec spec = PROCESS_SPEC_NULL;
        char text[16];
        size_t size;
        int r;

        if (!program)
                return error_set_errno(err, ENOMEM, "cannot start");
        if (border_account(BORDER_HAPROXY, &spec.uid, &spec.gid) < 0)
                return error_set(err, ERR_UNAVAILABLE, "there is no user " BORDER_HAPROXY);
        spec.argv = argv;
        spec.new_session = true; // a terminal's Ctrl-C is for hostd alone
        spec.ambient = spec.bounding = right;
        r = process_spawn(&spec, &g->pid, &g->pidfd, err);
        if (r < 0)
                return r;
        g->child = true;
        size = (size_t) snprintf(text, sizeof(text), "%d", (int) g->pid);
        (void) io_write_atomic(g->directory, PID, text, size, 0600);
        return watch(g, err);
}

static int unit_it(Generation *g, Error *err) {
        char name[64];

        unit_name(g, name, sizeof(name));
        return service_unit_start(manager_of(g)->event, name, &g->unit, err);
}

// Also one whose program did so for itself: what reads core files is told twice rather than once.
static void no_core_of(pid_t pid) {
        char path[64];

        (void) prlimit(pid, RLIMIT_CORE, &(struct rlimit) {0, 0}, NULL);
        (void) snprintf(path, sizeof(path), "/proc/%d/coredump_filter", pid);
        (void) io_write_file(AT_FDCWD, path, "0");
}

// Who listens there. A process that is still the listener after a descriptor for it was taken is the one that the descriptor is for.
static int find_process(Generation *g, Error *err) {
        _cleanup_free_ char *admin = site_admin(&(Site) {.path = g->path});
        _cleanup_close_ int first = -EBADF, second = -EBADF, pidfd = -EBADF;
        pid_t pid, again;

        if (!admin)
                return error_set_errno(err, ENOMEM, "cannot find it");
        first = runtime_dial(admin, g->uid, &pid, err);
        if (first < 0 || g->pid > 0)
                return first < 0 ? first : 0;
        pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        second = runtime_dial(admin, g->uid, &again, err);
        if (second < 0)
                return second;
        if (pidfd < 0 || pid != again)
                return error_set(err, ERR_UNAVAILABLE, "it has ended");
        g->pid = pid;
        g->pidfd = TAKE_FD(pidfd);
        return watch(g, err);
}

// ---- what the next hostd has to know ----

// An upgrade puts another file there: what is started then is not what runs. The same words for the same file.
static void name_program(char ret[80]) {
        struct stat st = {0};

        (void) stat(HAPROXY_PROGRAM, &st);
        (void) snprintf(ret, 80, "%llx:%llu:%lld", (unsigned long long) st.st_dev, (unsigned long long) st.st_ino, (long long) st.st_mtime);
}

static char *hosts_text(const Generation *g) {
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        bool failed;

        if (!f)
                return NULL;
        fprintf(f, "instance %s %llu %s\n", g->interceptor->instance, (unsigned long long) g->renew, g->program);
        for (size_t i = 0; i < g->n_hosts; i++)
                fprintf(f, "%s %s %s\n", g->hosts[i].id, g->hosts[i].digest, g->hosts[i].host);
        failed = ferror(f);
        if (fclose(f) == 0 && !failed)
                return text;
        free(text);
        return NULL;
}

static int write_hosts(const Generation *g, Error *err) {
        _cleanup_free_ char *text = hosts_text(g);
        int r = text ? io_write_atomic(g->directory, HOSTS, text, strlen(text), 0600) : -ENOMEM;

        return r < 0 ? error_set_errno(err, r, "cannot write " HOSTS) : 0;
}

static int read_host(Generation *g, const char *line) {
        SiteHost *hosts = reallocarray(g->hosts, g->n_hosts + 1, sizeof(SiteHost)), *host;
        char name[256];

        if (!hosts)
                return -ENOMEM;
        g->hosts = hosts;
        host = &hosts[g->n_hosts];
        *host = (SiteHost) {0};
        if (sscanf(line, "%16[0-9a-f] %32[0-9a-f] %255s", host->id, host->digest, name) != 3)
                return -EINVAL;
        host->host = strdup(name);
        if (!host->host)
                return -ENOMEM;
        g->n_hosts++;
        return 0;
}

static int read_hosts(Generation *g) {
        _cleanup_free_ char *text = NULL;
        unsigned long long renew;
        char instance[33], *line;
        int r = io_read_file(g->directory, HOSTS, TEXT_MAX, &text, NULL);

        if (r < 0)
                return r;
        if (sscanf(text, "instance %32s %llu %79s", instance, &renew, g->program) != 3 || strcmp(instance, g->interceptor->instance) != 0)
                return -EINVAL;
        g->renew = renew;
        for (line = strchr(text, '\n'); r >= 0 && line && line[1]; line = strchr(line + 1, '\n'))
                r = read_host(g, line + 1);
        return r;
}

// Which values it has, by their versions; NULL: they cannot be told.
static char *versions(const Generation *g) {
        const Secrets *s = g->interceptor->secrets;
        size_t size, n;
        _cleanup_free_ const Binding **grants = interceptor_grants(s, g->interceptor->instance, &n);
        char *text = NULL;
        FILE *f = open_memstream(&text, &size);
        int r = grants ? 0 : -ENOMEM;

        for (size_t i = 0; f && r >= 0 && i < n; i++) {
                Secret secret;
                r = secret_get(&s->vault, grants[i]->secret, &secret, NULL);
                if (r >= 0)
                        fprintf(f, "%s %llu\n", grants[i]->id, (unsigned long long) secret.version);
        }
        if (f && (fclose(f) != 0 || r < 0)) {
                free(text);
                return NULL;
        }
        return text;
}

// Without the note it is filled once more than needed.
static void note_filled(const Generation *g) {
        _cleanup_free_ char *text = versions(g);

        if (text)
                (void) io_write_atomic(g->directory, FILLED, text, strlen(text), 0600);
}

static bool is_filled(const Generation *g) {
        _cleanup_free_ char *noted = NULL, *now = versions(g);

        return now && io_read_file(g->directory, FILLED, TEXT_MAX, &noted, NULL) >= 0 && strcmp(noted, now) == 0;
}

// ---- values ----

static int again_due(sd_event_source *source, uint64_t usec, void *userdata);

static void again_in(Generation *g, usec_t span) {
        g->again = sd_event_source_disable_unref(g->again);
        (void) sd_event_add_time_relative(manager_of(g)->event, &g->again, CLOCK_MONOTONIC, span, 1, again_due, g);
}

static void filled(void *userdata, int r, Error *err) {
        Generation *g = userdata;

        g->filling = runtime_free(g->filling);
        if (r < 0) {
                interceptor_ended(g, error_message(err, r));
                return;
        }
        if (g->overtaken) {
                again_in(g, 0);
                return;
        }
        g->filled = true;
        note_filled(g);
        if (g->closing)
                again_in(g, LOOK_EVERY);
        else
                interceptor_filled(g);
}

static int try_fill(Generation *g, Error *err) {
        Site site = {.path = g->path};
        _cleanup_free_ char *admin = site_admin(&site), *map = site_map(&site);
        _cleanup_free_ const Binding **grants = NULL;
        RuntimeSpec spec = {.socket = admin, .map = map, .uid = g->uid, .done = filled, .userdata = g};
        int r = find_process(g, err);

        if (r < 0)
                return r;
        grants = interceptor_grants(g->interceptor->secrets, g->interceptor->instance, &spec.n_entries);
        if (!grants || !admin || !map)
                return error_set_errno(err, ENOMEM, "cannot hand values on");
        r = site_entries(&g->interceptor->secrets->vault, grants, spec.n_entries, &spec.entries, err);
        if (r < 0)
                return r;
        no_core_of(g->pid);
        g->overtaken = false;
        g->filling = runtime_free(g->filling);
        return runtime_fill(manager_of(g)->event, &spec, &g->filling, err);
}

static void fill(Generation *g) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r = try_fill(g, &err);

        if (r >= 0)
                return;
        // It is not listening yet.
        if (err.code == ERR_UNAVAILABLE && clock_monotonic() - g->started < FILL_TIMEOUT)
                again_in(g, FILL_PAUSE);
        else
                interceptor_ended(g, error_message(&err, r));
}

// What is on its way is not cut short: HAProxy might still put it in force, after what follows.
void generation_refill(Generation *g) {
        g->filled = false;
        g->overtaken = true;
        if (!g->filling)
                again_in(g, 0);
}

// ---- the end of what it serves ----

// What did not answer may go on with what it was told to end.
static void told(void *userdata, int r, const char *answer) {
        if (r < 0)
                interceptor_ended(userdata, "it does not answer");
}

static int tell(Generation *g, const char *text, RuntimeAnswered done) {
        _cleanup_free_ char *admin = site_admin(&(Site) {.path = g->path});
        RuntimeCommandSpec spec = {.socket = admin, .uid = g->uid, .text = text, .done = done, .userdata = g};

        return admin ? runtime_command(manager_of(g)->event, &spec, &g->commands, NULL) : -ENOMEM;
}

// By the name of its backend. What it answers is for people: that it answers is what counts.
static int retire(Generation *g, const SiteHost *host) {
        static const char *const servers[] = {HAPROXY_SERVER, HAPROXY_SERVER_H2};
        char text[512];
        size_t used = 0;

        for (size_t i = 0; i < ELEMENTS(servers); i++)
                used += (size_t) snprintf(text + used, sizeof(text) - used, "disable server host_%s/%s; ", host->id, servers[i]);
        for (size_t i = 0; i < ELEMENTS(servers); i++)
                used += (size_t) snprintf(text + used, sizeof(text) - used, "shutdown sessions server host_%s/%s; ", host->id, servers[i]);
        return tell(g, text, told);
}

int generation_retire(Generation *g, const char *host) {
        for (size_t i = 0; i < g->n_hosts; i++)
                if (strcmp(g->hosts[i].host, host) == 0 && retire(g, &g->hosts[i]) < 0) {
                        kill_it(g);
                        return -1;
                }
        return 0;
}

static void counted(void *userdata, int r, const char *answer) {
        Generation *g = userdata;
        const char *count = strstr(answer, "CurrConns: ");

        if (r < 0 || (count && strtoul(count + strlen("CurrConns: "), NULL, 10) == 0))
                interceptor_ended(g, NULL);
        else
                again_in(g, LOOK_EVERY);
}

// Not the signal for it: after that HAProxy does not listen to hostd any more either.
void generation_close(Generation *g) {
        if (g->closing)
                return;
        g->closing = true;
        again_in(g, USEC_PER_SEC); // who has just connected is still to be taken
}

static int again_due(sd_event_source *source, uint64_t usec, void *userdata) {
        Generation *g = userdata;

        g->again = sd_event_source_disable_unref(g->again);
        if (!g->filled)
                fill(g);
        else if (g->closing && tell(g, "shutdown frontend front; show info", counted) < 0)
                interceptor_ended(g, NULL);
        return 0;
}

// ---- beginning ----

static Generation *generation_make(Interceptor *i, unsigned number) {
        Generation *g = calloc(1, sizeof(Generation));

        if (!g)
                return NULL;
        g->interceptor = i;
        g->number = number;
        g->directory = g->pidfd = -EBADF;
        g->uid = i->uid;
        g->started = clock_monotonic();
        if (asprintf(&g->path, "%s/%u", i->path, number) >= 0)
                return g;
        g->path = NULL;
        return generation_forget(g);
}

static int open_directory(Generation *g, bool make) {
        char name[16];

        (void) snprintf(name, sizeof(name), "%u", g->number);
        if (make && mkdirat(g->interceptor->directory, name, 0711) < 0)
                return -errno;
        g->directory = openat(g->interceptor->directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return g->directory < 0 || (make && fchmod(g->directory, 0711) < 0) ? -errno : 0;
}

static int set_up(Generation *g, const GenerationPlan *plan, Error *err) {
        Site site = plan->site;
        int r = open_directory(g, true);

        if (r < 0)
                return error_set_errno(err, r, "cannot make %s", g->path);
        site.directory = g->directory;
        site.path = g->path;
        name_program(g->program);
        r = site_hosts(&site, plan->grants, plan->n_grants, &g->hosts, &g->n_hosts, err);
        if (r >= 0)
                r = site_config(&site, plan->grants, plan->n_grants, &g->config, err);
        if (r >= 0)
                r = site_write(&site, &g->interceptor->secrets->vault, plan->grants, plan->n_grants, &g->renew, err);
        return r < 0 ? r : write_hosts(g, err);
}

int generation_new(Interceptor *i, unsigned number, const GenerationPlan *plan, Generation **ret, Error *err) {
        Generation *g = generation_make(i, number);
        int r;

        if (!g)
                return error_set_errno(err, ENOMEM, "cannot start");
        r = set_up(g, plan, err);
        if (r >= 0)
                r = manager_of(g)->systemd ? unit_it(g, err) : fork_it(g, err);
        if (r < 0) {
                (void) generation_end(g);
                return r;
        }
        again_in(g, FILL_PAUSE);
        *ret = g;
        return 0;
}

// Its slot's user, or still the one that it was started as. Whose /proc/PID is says neither until HAProxy runs in it.
static bool runs_as_its(const Generation *g, int pid) {
        _cleanup_free_ char *status = NULL;
        const char *line;
        char path[32];
        unsigned long uid;
        uid_t first;
        gid_t gid;

        (void) snprintf(path, sizeof(path), "/proc/%d/status", pid);
        if (io_read_file(AT_FDCWD, path, 65536, &status, NULL) < 0 || !(line = strstr(status, "\nUid:\t")))
                return false;
        uid = strtoul(line + strlen("\nUid:\t"), NULL, 10);
        return uid == g->uid || (border_account(BORDER_HAPROXY, &first, &gid) >= 0 && uid == first);
}

// One that hostd was killed beside before it listened. A number that is another's by now is not its user's.
static void kill_unheard(const Generation *g) {
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int pidfd = -EBADF;
        char name[64];
        int pid;

        unit_name(g, name, sizeof(name));
        if (manager_of(g)->systemd)
                service_unit_stop(name);
        if (g->directory < 0 || io_read_file(g->directory, PID, 16, &text, NULL) < 0 || (pid = (int) strtol(text, NULL, 10)) <= 1)
                return;
        pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        if (pidfd >= 0 && runs_as_its(g, pid))
                (void) syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

int generation_adopt(Interceptor *i, unsigned number, Generation **ret) {
        Generation *g = generation_make(i, number);
        int r;

        if (!g)
                return -ENOMEM;
        r = open_directory(g, false);
        if (r >= 0)
                r = find_process(g, NULL);
        if (r >= 0)
                r = read_hosts(g);
        if (r >= 0)
                r = io_read_file(g->directory, "conf/haproxy.cfg", TEXT_MAX, &g->config, NULL);
        if (r < 0) {
                if (g->pid <= 0)
                        kill_unheard(g);
                (void) generation_end(g);
                return r;
        }
        g->filled = is_filled(g);
        if (!g->filled)
                again_in(g, 0);
        *ret = g;
        return 0;
}

bool generation_is_as(const Generation *g, const GenerationPlan *plan, const char *config) {
        char program[80];

        name_program(program);
        return clock_realtime() < g->renew && strcmp(g->program, program) == 0 && strcmp(g->config, config) == 0;
}

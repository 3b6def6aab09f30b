// SPDX-License-Identifier: GPL-2.0-or-later
// The life of an instance's HAProxy, as hostd keeps it: there while the instance runs and has grants, and no longer; filled after each start and each
// rotation; back after its death. A manager with a store and without a kernel, the real HAProxy. Started by interceptor.sh, which makes the users.
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/io.h"
#include "border/record.h"
#include "core/interceptor.h"
#include "tests/integration/report.h"

typedef struct World {
        char directory[64], run[96], store[96];
        Manager m;
        Instance *instance;
        pid_t old; // a HAProxy that was
        int flow;  // in hostd-flow's place
} World;

static usec_t limit(void) {
        return 30 * USEC_PER_SEC * report_slow();
}

static const Interceptor *it(const World *w) {
        return interceptor_find(w->m.secrets, "one");
}

// The newest; NULL: none.
static const Generation *newest(const World *w) {
        return it(w) ? it(w)->generations : NULL;
}

static pid_t pid_of(const World *w) {
        return newest(w) ? newest(w)->pid : 0;
}

typedef bool (*Condition)(const World *w);

static bool is_ready(const World *w) {
        return strcmp(interceptor_state(it(w)), "ready") == 0;
}

static bool is_gone(const World *w) {
        return !it(w);
}

static bool is_reaped(const World *w) {
        return kill(w->old, 0) < 0;
}

static bool wait_for(World *w, Condition condition) {
        for (usec_t end = clock_monotonic() + limit(); clock_monotonic() < end;) {
                if (condition(w))
                        return true;
                if (sd_event_run(w->m.event, 50 * USEC_PER_MSEC) < 0)
                        return false;
        }
        return false;
}

static void run_for(World *w, usec_t span) {
        for (usec_t end = clock_monotonic() + span; clock_monotonic() < end;)
                (void) sd_event_run(w->m.event, 10 * USEC_PER_MSEC);
}

// What HAProxy holds; caller frees.
static char *show_map(World *w) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char command[256], *text = NULL;
        const Generation *g = newest(w);
        size_t size;

        if (!g)
                return strdup("");
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock/admin.sock", g->path);
        snprintf(command, sizeof(command), "show map %s/conf/secret.map\n", g->path);
        if (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || io_write_all(fd, command, strlen(command)) < 0 || io_read_all(fd, 65536, &text, &size) < 0)
                return strdup("");
        return text;
}

static bool map_has(World *w, const char *text) {
        _cleanup_free_ char *map = show_map(w);

        return strstr(map, text) != NULL;
}

static Value *value_of(const char *text) {
        Value *value = NULL;

        if (value_new(strlen(text), &value) < 0)
                abort();
        memcpy(value->data, text, strlen(text));
        return value;
}

static char *net; // interceptor_net.py

typedef struct Talk {
        char path[128];
        pid_t pid;
} Talk;

// One in hostd-proxy's place.
static Talk talk(World *w, const char *verb, const char *host, const char *id) {
        static int n;
        char front[160];
        const Binding *b = w->m.secrets ? secrets_find(w->m.secrets, id) : NULL;
        char token[64];
        Talk t;

        snprintf(token, sizeof(token), "%s", b ? b->placeholder : id);
        snprintf(t.path, sizeof(t.path), "%s/talk%d", w->directory, n++);
        snprintf(front, sizeof(front), "%s/haproxy/7/front.sock", w->run);
        t.pid = fork();
        if (t.pid == 0) {
                execl("/usr/bin/python3", "python3", net, verb, front, host, token, t.path, NULL);
                _exit(127);
        }
        return t;
}

// "end": it was cut.
static char *said(const Talk *t) {
        char *text = NULL;

        return io_read_file(AT_FDCWD, t->path, 4096, &text, NULL) < 0 ? strdup("") : text;
}

static bool has_said(World *w, const Talk *t, const char *text) {
        for (usec_t end = clock_monotonic() + limit(); clock_monotonic() < end;) {
                _cleanup_free_ char *now = said(t);
                if (strstr(now, text))
                        return true;
                run_for(w, 20 * USEC_PER_MSEC);
        }
        return false;
}

static bool goes_on(World *w, const Talk *t) {
        _cleanup_free_ char *before = said(t), *after = NULL;

        run_for(w, 500 * USEC_PER_MSEC * report_slow());
        after = said(t);
        if (strtoul(after, NULL, 10) > strtoul(before, NULL, 10))
                return true;
        printf("it said \"%s\", then \"%s\"\n", before, after);
        return false;
}

static void hang_up(Talk *t) {
        (void) kill(t->pid, SIGKILL);
        (void) waitpid(t->pid, NULL, 0);
}

static bool grant(World *w, const char *host, char ret_id[17]) {
        Binding *b = calloc(1, sizeof(Binding));

        *b = (Binding) {.secret = "token", .instance = "one", .host = strdup(host), .port = 443, .place = BINDING_HEADER, .field = strdup("X-Key")};
        if (secrets_grant(w->m.secrets, b, NULL) < 0)
                return false;
        memcpy(ret_id, b->id, 17);
        return true;
}

static bool setup(World *w) {
        StoreInstance record = {.name = "one", .slot = 7};

        snprintf(w->directory, sizeof(w->directory), "/tmp/hostd-interceptor.XXXXXX");
        if (!mkdtemp(w->directory) || chmod(w->directory, 0711) < 0)
                return false;
        snprintf(w->store, sizeof(w->store), "%s/state.db", w->directory);
        snprintf(w->run, sizeof(w->run), "%s/audit", w->directory);
        if (audit_open(w->run, &w->m.audit, NULL) < 0)
                return false;
        snprintf(w->run, sizeof(w->run), "%s/run", w->directory);
        (void) umask(0077);
        if (mkdir(w->run, 0755) < 0 || chmod(w->run, 0755) < 0)
                return false;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/flow-records.sock", w->run);
        w->flow = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (bind(w->flow, (struct sockaddr *) &address, sizeof(address)) < 0)
                return false;
        w->m.paths.run = w->run;
        w->m.state_fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        w->m.bus = event_bus_new();
        if (sd_event_new(&w->m.event) < 0 || store_open(w->store, &w->m.store, NULL) < 0)
                return false;
        secrets_open(&w->m);
        w->instance = instance_new(&w->m, &record, NULL);
        return w->m.secrets && w->instance;
}

static void teardown(World *w) {
        w->m.secrets = secrets_free(w->m.secrets);
        w->m.stopping = true;
        (void) instance_free(w->instance);
        (void) store_close(w->m.store);
        (void) audit_close(w->m.audit);
        event_bus_free(w->m.bus);
        sd_event_unref(w->m.event);
        (void) close_fd(w->m.state_fd);
        (void) close_fd(w->flow);
        (void) io_remove_tree(AT_FDCWD, w->directory);
}

static bool others_read_nothing(World *w) {
        static const char *const files[] = {"conf/haproxy.cfg", "conf/crt", "conf/secret.map", "hosts", "filled", "../log", "../log.fifo"};

        for (size_t k = 0; k < ELEMENTS(files); k++) {
                struct stat st;
                if (fstatat(newest(w)->directory, files[k], &st, 0) < 0 || (st.st_mode & 07) || (st.st_gid != 0 && st.st_gid != it(w)->uid))
                        return false;
        }
        return true;
}

// By the name that hostd-proxy knows, which is a link.
static bool proxy_may_connect(World *w) {
        const struct passwd *proxy = getpwnam("hostd-proxy");
        struct stat st, above;

        return proxy && fstatat(it(w)->directory, "front.sock", &st, 0) == 0 && S_ISSOCK(st.st_mode) && st.st_gid == proxy->pw_gid && (st.st_mode & 0777) == 0660 &&
               fstatat(newest(w)->directory, "sock", &above, AT_SYMLINK_NOFOLLOW) == 0 && above.st_gid == proxy->pw_gid && (above.st_mode & 0777) == 0750;
}

// No file of this process takes anything behind that.
static void files_end_at(rlim_t size) {
        struct rlimit limit;

        (void) signal(SIGXFSZ, SIG_IGN);
        (void) getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = MIN2(size, limit.rlim_max);
        (void) setrlimit(RLIMIT_FSIZE, &limit);
}

static void disk_is_full(bool full) {
        files_end_at(full ? 0 : RLIM_INFINITY);
}

static unsigned stored(World *w) {
        Binding **list = NULL;
        unsigned damaged;
        size_t n = 0;

        if (binding_list(&w->m.secrets->vault, &list, &n, &damaged, NULL) < 0)
                return 1000;
        bindings_free(list, n);
        return (unsigned) n;
}

// The answer of the oldest to how the server of the first host is.
static bool is_refused(const World *w) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        _cleanup_free_ char *text = NULL;
        const Generation *g = it(w)->serving;
        char command[128];
        size_t size;

        for (size_t i = 0; g && i < g->n_hosts; i++)
                if (strcmp(g->hosts[i].host, "a.example.com") == 0) {
                        snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock/admin.sock", g->path);
                        snprintf(command, sizeof(command), "show servers state host_%s\n", g->hosts[i].id);
                        return connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0 && io_write_all(fd, command, strlen(command)) == 0 &&
                               io_read_all(fd, 65536, &text, &size) == 0 && strstr(text, "origin 0.0.0.0 0 1 ");
                }
        return true;
}

static bool all_settled(const World *w) {
        return w->m.secrets->n_leaving == 0;
}

#define ROOM 4352 // what was made for grants.ended at the first start; the store has far more

// A disk without room, and another hostd: it knows that the grant has ended although the store does not.
static void comes_not_back(World *w, const char *id) {
        unsigned before = stored(w);
        int r;

        files_end_at(ROOM);
        r = secrets_ungrant(w->m.secrets, id, NULL);
        CHECK(r < 0 && stored(w) == before, "no room: an ungrant fails, and the store has it");
        w->m.secrets = secrets_free(w->m.secrets);
        secrets_open(&w->m);
        CHECK(w->m.secrets && !secrets_find(w->m.secrets, id) && stored(w) == before, "a hostd that is started then does not have it back");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(!it(w) || !map_has(w, id), "nor has its HAProxy");
        w->m.secrets = secrets_free(w->m.secrets);
        files_end_at(RLIM_INFINITY);
        secrets_open(&w->m);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && wait_for(w, all_settled) && stored(w) == before - 1, "with room it goes from the store");
}

// What ends does so although the disk is full, and is gone from there when it is not.
static void ends_on_a_full_disk(World *w) {
        char ids[3][17];
        unsigned before = stored(w);

        CHECK(grant(w, "a.example.com", ids[0]) && grant(w, "b.example.com", ids[1]) && grant(w, "c.example.com", ids[2]), "three more grants");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && map_has(w, ids[0]), "are served");
        w->old = pid_of(w);
        disk_is_full(true);
        CHECK(secrets_ungrant(w->m.secrets, ids[0], NULL) < 0, "the disk is full: an ungrant says that it failed");
        CHECK(!secrets_find(w->m.secrets, ids[0]) && wait_for(w, is_refused), "but nothing serves it any more");
        disk_is_full(false);
        CHECK(strcmp(w->m.secrets->bindings[1]->id, ids[1]) == 0 && strcmp(w->m.secrets->bindings[2]->id, ids[2]) == 0, "the others are in their order");
        CHECK(stored(w) == before + 3, "it is still on disk");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && !map_has(w, ids[0]) && map_has(w, ids[1]), "the others are served again");
        CHECK(wait_for(w, all_settled) && stored(w) == before + 2, "when the disk has room it goes from there");
        comes_not_back(w, ids[1]);
        disk_is_full(true);
        CHECK(secrets_forget_instance(&w->m, "one", NULL) < 0 && w->m.secrets->n == 0, "a deletion on a full disk fails, and ends them");
        disk_is_full(false);
        CHECK(secrets_forget_instance(&w->m, "one", NULL) == 0 && stored(w) == 0, "and again, with room: nothing is left for another of its name");
        CHECK(wait_for(w, is_gone), "and nothing serves it");
}

// HAProxy has the values of the one, and hostd has not read yet that it has.
static bool is_at_its_end(World *w) {
        while (!newest(w)->filling && sd_event_run(w->m.event, limit()) > 0)
                ;
        while (newest(w)->filling && !map_has(w, "dmFsdWUtdGhyZWU="))
                if (sd_event_run(w->m.event, limit()) <= 0)
                        return false;
        return newest(w)->filling;
}

// One rotation while the values of another are on their way, at the moment in which their end would be taken for its own: the newest is what stays.
static void rotates_twice(World *w) {
        Value *three = value_of("value-three"), *four = value_of("value-four");
        bool met = false;

        for (int i = 0; i < 20 && !met; i++) { // hostd may be the faster one
                usec_t begun = clock_monotonic();
                if (secrets_rotate(w->m.secrets, "token", three, NULL) < 0)
                        break;
                met = is_at_its_end(w);
                if (i == 0)
                        CHECK(clock_monotonic() - begun < 200 * USEC_PER_MSEC * report_slow(), "one rotation is on its way at once");
                CHECK(secrets_rotate(w->m.secrets, "token", four, NULL) == 0 && wait_for(w, is_ready), "when another comes");
                CHECK(map_has(w, "dmFsdWUtZm91cg==") && !map_has(w, "dmFsdWUtdGhyZWU="), "the newest value is there");
        }
        CHECK(met, "it came while the values of the one were at their end");
        (void) value_free(three);
        (void) value_free(four);
}

static bool has_no_core(World *w) {
        _cleanup_free_ char *filter = NULL;
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/coredump_filter", pid_of(w));
        return io_read_file(AT_FDCWD, path, 64, &filter, NULL) >= 0 && filter[0] && strtoul(filter, NULL, 16) == 0;
}

// A policy that is not there any more: what HAProxy runs with are rules of before.
static void knows_no_rules(World *w) {
        char *policies[] = {(char *) "absent", NULL};
        InstanceConfig config = {.policies = policies};
        Desired desired = {.n_policies = 0};

        w->m.desired = &desired;
        w->instance->config = &config;
        interceptors_sync(&w->m);
        CHECK(!newest(w) && strcmp(interceptor_state(it(w)), "failed") == 0, "no one knows the rules: HAProxy ends, and serves nothing by old ones");
        config.policies = NULL;
        CHECK(wait_for(w, is_ready), "it is back when they are known");
        w->instance->config = NULL;
        w->m.desired = NULL;
        interceptors_sync(&w->m);
        CHECK(wait_for(w, is_ready), "and with the next change");
}

static bool log_has_error(const World *w) {
        _cleanup_free_ char *text = NULL;

        return io_read_file(it(w)->directory, "log", 1 << 20, &text, NULL) >= 0 && strstr(text, "\"error\":") != NULL;
}

// Whatever the guest sends: what HAProxy says of it comes through the pipe.
static void says_what_is_wrong(World *w) {
        static const char head[] = "PROXY TCP4 192.0.2.7 192.0.2.8 1 443\r\nthis is no TLS\r\n";
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/front.sock", it(w)->path);
        CHECK(connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0 && io_write_all(fd, head, strlen(head)) == 0, "a guest speaks no TLS");
        CHECK(wait_for(w, log_has_error), "the log says so");
}

// Whatever the next hostd does, they are the same process, with the values that they have.
static void restarts(World *w, const Talk *a, const Talk *b) {
        unsigned number = newest(w)->number;
        struct stat before, after;
        pid_t pid = pid_of(w);

        CHECK(fstatat(newest(w)->directory, "filled", &before, 0) == 0, "hostd ends");
        w->m.secrets = secrets_free(w->m.secrets);
        usleep(200000);
        secrets_open(&w->m);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && pid_of(w) == pid && newest(w)->number == number, "the next takes the same HAProxy over");
        CHECK(goes_on(w, a) && goes_on(w, b), "no connection ended");
        CHECK(fstatat(newest(w)->directory, "filled", &after, 0) == 0 && after.st_ino == before.st_ino, "and nothing was handed on again");
        CHECK(it(w)->serving && it(w)->serving->next && it(w)->serving->next->closing, "the older one is known, too");
}

static bool is_alone(const World *w) {
        return newest(w) && !newest(w)->next;
}

static bool all_have(World *w, const char *text) {
        for (const Generation *g = newest(w); g; g = g->next) {
                Generation *first = it(w)->generations;
                bool has;
                ((Interceptor *) it(w))->generations = (Generation *) g;
                has = map_has(w, text);
                ((Interceptor *) it(w))->generations = first;
                if (!has)
                        return false;
        }
        return true;
}

static bool is_confined(World *w) {
        _cleanup_free_ char *status = NULL, *limits = NULL;
        char path[64], uids[128];

        snprintf(path, sizeof(path), "/proc/%d/status", pid_of(w));
        snprintf(uids, sizeof(uids), "Uid:\t%1$u\t%1$u\t%1$u\t%1$u\nGid:\t%1$u\t%1$u\t%1$u\t%1$u\n", 2000007);
        if (io_read_file(AT_FDCWD, path, 65536, &status, NULL) < 0)
                return false;
        snprintf(path, sizeof(path), "/proc/%d/limits", pid_of(w));
        return io_read_file(AT_FDCWD, path, 65536, &limits, NULL) >= 0 && strstr(status, uids) && strstr(status, "CapPrm:\t0000000000000000") &&
               strstr(status, "CapEff:\t0000000000000000") && strstr(status, "CapAmb:\t0000000000000000") && strstr(status, "NoNewPrivs:\t1") &&
               strstr(status, "Groups:\t \n") && strstr(limits, "Max core file size        0                    0") && strstr(limits, "Max file size             65536                65536");
}

// hostd is killed between the start of a HAProxy and its first word: the next hostd ends that one, be it its slot's user already or still root.
static void never_heard(World *w, bool as_user) {
        char more[17], path[64];
        struct stat st;
        int n = 0;

        CHECK(grant(w, "other.example.com", more), "a grant");
        while (newest(w)->pid <= 0 || newest(w)->filled)
                (void) sd_event_run(w->m.event, 10 * USEC_PER_MSEC);
        w->old = pid_of(w);
        snprintf(path, sizeof(path), "/proc/%d", w->old);
        while (as_user && stat(path, &st) == 0 && st.st_uid != it(w)->uid && n++ < 100000) // 10 s: a busy machine takes its time
                usleep(100);
        w->m.secrets = secrets_free(w->m.secrets);
        secrets_open(&w->m);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && pid_of(w) != w->old && waitpid(w->old, NULL, 0) == w->old, "its HAProxy, which nobody has heard of yet, is ended by the next hostd");
        CHECK(secrets_ungrant(w->m.secrets, more, NULL) == 0, "it ends");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "the others are served");
}

// Another file where HAProxy is: the same program, copied.
static void is_upgraded(World *w) {
        pid_t before = pid_of(w);
        Talk a;
        char id[17];

        CHECK(grant(w, "stay.example.com", id), "a grant");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "is served");
        before = pid_of(w);
        a = talk(w, "stream", "stay.example.com", id);
        CHECK(has_said(w, &a, "value-five") && utimensat(AT_FDCWD, "/usr/sbin/haproxy", NULL, 0) == 0, "HAProxy is another file");
        interceptors_sync(&w->m);
        CHECK(wait_for(w, is_ready) && pid_of(w) != before, "another one is started");
        CHECK(goes_on(w, &a), "and no stream ends");
        CHECK(secrets_ungrant(w->m.secrets, id, NULL) == 0, "it ends");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "the others are served");
        hang_up(&a);
}

// By HAProxy's clock: there is no hostd.
static void ends_alone(World *w) {
        Binding *brief = calloc(1, sizeof(Binding));
        usec_t until = clock_realtime() + 6 * USEC_PER_SEC * report_slow();
        char token[64];
        Talk a, b;

        *brief = (Binding) {.secret = "token", .instance = "one", .host = strdup("stay.example.com"), .port = 443, .place = BINDING_HEADER, .field = strdup("X-Key"),
                            .until = until};
        CHECK(secrets_grant(w->m.secrets, brief, NULL) == 0, "a brief grant");
        snprintf(token, sizeof(token), "%s", brief->placeholder);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "is served");
        a = talk(w, "once", "stay.example.com", token);
        CHECK(has_said(w, &a, "200 value-five"), "has its value");
        w->m.secrets = secrets_free(w->m.secrets);
        while (clock_realtime() < until + USEC_PER_SEC)
                usleep(100000);
        b = talk(w, "once", "stay.example.com", token);
        CHECK(has_said(w, &b, "403"), "hostd is away at its end, and it is over");
        secrets_open(&w->m);
        hang_up(&a);
        hang_up(&b);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "the next hostd has one for the others");
}

// Records of the audit log with this text.
static unsigned audited(World *w, const char *text) {
        char path[128];
        unsigned n = 0;
        glob_t files;

        snprintf(path, sizeof(path), "%s/audit/*.jsonl", w->directory);
        if (glob(path, 0, NULL, &files) != 0)
                return 0;
        for (size_t i = 0; i < files.gl_pathc; i++) {
                _cleanup_free_ char *said = NULL;
                if (io_read_file(AT_FDCWD, files.gl_pathv[i], 1 << 20, &said, NULL) >= 0)
                        for (const char *p = said; (p = strstr(p, text)); p++)
                                n++;
        }
        globfree(&files);
        return n;
}

static bool flow_has(World *w, const char *id) {
        FlowRecord record;

        return recv(w->flow, &record, sizeof(record), MSG_DONTWAIT) == sizeof(record) && flow_record_valid(&record, sizeof(record)) && record.slot == 7 &&
               record.verdict == FLOW_DENY && strcmp(record.name, "come.example.com") == 0 && strstr(record.reason, id);
}

// A placeholder for the one host, sent to the other: refused, and told, but not as often as it is done.
static void alerts(World *w, const char *stay) {
        char come[17], token[64];
        unsigned refused = 0;
        Talk t;

        CHECK(grant(w, "come.example.com", come), "a grant for another host");
        run_for(w, 200 * USEC_PER_MSEC);
        snprintf(token, sizeof(token), "%s", secrets_find(w->m.secrets, stay)->placeholder);
        CHECK(wait_for(w, is_ready) && audited(w, "io.hostd.Secret.Alert") == 0, "nothing was told");
        t = talk(w, "once", "come.example.com", token);
        CHECK(has_said(w, &t, "403"), "a placeholder of the one for the other is refused");
        hang_up(&t);
        run_for(w, 500 * USEC_PER_MSEC);
        CHECK(flow_has(w, stay), "hostd-flow gets a record of it");
        CHECK(audited(w, "io.hostd.Secret.Alert") == 1 && audited(w, stay) == 1 && audited(w, "\"host\":\"come.example.com\"") == 1, "and told, with the grant and the host");
        for (int i = 0; i < 12; i++) {
                t = talk(w, "once", "come.example.com", token);
                refused += has_said(w, &t, "403");
                hang_up(&t);
        }
        run_for(w, 500 * USEC_PER_MSEC);
        CHECK(refused == 12 && audited(w, "io.hostd.Secret.Alert") == 10, "often: all are refused, ten of them are told");
        CHECK(secrets_ungrant(w->m.secrets, come, NULL) == 0, "it ends");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "what is left is served");
}

// A value that a host sends back has a name in its place, and that is told by the name of the secret, in sums.
static void redacted(World *w, const char *stay) {
        Value *five = value_of("value-five"), *six = value_of("value-nr-six");
        unsigned before;
        Talk t;

        run_for(w, 11 * USEC_PER_SEC); // what came back until now is told
        before = audited(w, "io.hostd.Secret.Redact");
        CHECK(before > 0, "values that came back were told");
        t = talk(w, "once", "stay.example.com", stay);
        CHECK(has_said(w, &t, "200 value-five [secret token]"), "a value comes back as a name");
        hang_up(&t);
        run_for(w, 500 * USEC_PER_MSEC);
        CHECK(audited(w, "io.hostd.Secret.Redact") == before + 1, "which is told");
        CHECK(secrets_rotate(w->m.secrets, "token", six, NULL) == 0 && wait_for(w, is_ready), "a rotation");
        for (int i = 0; i < 3; i++) {
                t = talk(w, "once", "stay.example.com", stay);
                CHECK(has_said(w, &t, "200 value-nr-six [secret token]"), "the new value comes back as a name, too");
                hang_up(&t);
        }
        run_for(w, 11 * USEC_PER_SEC);
        CHECK(audited(w, "{\"token\":3}") + audited(w, "{\"token\":2}") == 1 && audited(w, "io.hostd.Secret.Redact") <= before + 3, "which is told in sums");
        CHECK(secrets_rotate(w->m.secrets, "token", five, NULL) == 0 && wait_for(w, is_ready), "and back");
        (void) value_free(five);
        (void) value_free(six);
}

// A change of one host's grants is nothing to the others'.
static void streams(World *w) {
        Value *five = value_of("value-five");
        char stay[17], come[17], more[17];
        Talk a, b, c;

        CHECK(grant(w, "stay.example.com", stay), "a grant");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && is_confined(w), "its HAProxy is a user of the slot's own, without rights");
        a = talk(w, "stream", "stay.example.com", stay);
        CHECK(has_said(w, &a, "value-two"), "a stream that was let in by its value");
        CHECK(grant(w, "come.example.com", come), "a grant for another host");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "is served");
        b = talk(w, "stream", "come.example.com", come);
        CHECK(has_said(w, &b, "value-two") && goes_on(w, &a), "has a stream of its own, and the first goes on");
        restarts(w, &a, &b);
        CHECK(secrets_rotate(w->m.secrets, "token", five, NULL) == 0 && wait_for(w, is_ready), "a rotation");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(all_have(w, "dmFsdWUtZml2ZQ=="), "reaches those that only serve what they have");
        CHECK(secrets_ungrant(w->m.secrets, come, NULL) == 0, "the other grant ends");
        CHECK(has_said(w, &b, "end"), "its stream is cut");
        CHECK(goes_on(w, &a), "and the first goes on");
        CHECK(wait_for(w, is_ready), "what is left is served");
        c = talk(w, "once", "come.example.com", "hostd-ph-00");
        CHECK(has_said(w, &c, "closed"), "what is not granted is closed");
        hang_up(&c);
        c = talk(w, "once", "stay.example.com", stay);
        CHECK(has_said(w, &c, "200 value-five"), "a new request has the new value");
        hang_up(&c);
        alerts(w, stay);
        redacted(w, stay);
        CHECK(grant(w, "stay.example.com", more), "another grant for the same host");
        CHECK(has_said(w, &a, "end"), "does end the stream to that");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && secrets_ungrant(w->m.secrets, stay, NULL) == 0 && secrets_ungrant(w->m.secrets, more, NULL) == 0 && wait_for(w, is_gone), "without grants there is no HAProxy");
        hang_up(&a);
        hang_up(&b);
        CHECK(grant(w, "stay.example.com", stay), "again");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && grant(w, "come.example.com", come), "and another");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && !is_alone(w) && wait_for(w, is_alone), "one that serves nobody ends by itself");
        never_heard(w, true);
        never_heard(w, false);
        is_upgraded(w);
        ends_alone(w);
        w->old = pid_of(w);
        w->m.secrets = secrets_free(w->m.secrets);
        instance_set_state(w->instance, INSTANCE_STOPPED);
        CHECK(kill(w->old, 0) == 0, "hostd is away, HAProxy is there");
        secrets_open(&w->m);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(is_gone(w) && (waitpid(w->old, NULL, 0), wait_for(w, is_reaped)), "an instance that stopped meanwhile has none any more");
        instance_set_state(w->instance, INSTANCE_RUNNING);
        CHECK(wait_for(w, is_ready), "and has one when it runs");
        CHECK(secrets_ungrant(w->m.secrets, stay, NULL) == 0 && secrets_ungrant(w->m.secrets, come, NULL) == 0 && wait_for(w, is_gone), "all end");
        (void) value_free(five);
}

static void life(World *w) {
        Value *one = value_of("value-one"), *two = value_of("value-two");
        char first[17], second[17];
        pid_t pid;

        CHECK(secret_add(&w->m.secrets->vault, "token", one, NULL) == 0, "the secret is kept");
        CHECK(grant(w, "api.example.com", first), "a grant is taken while the instance does not run");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(is_gone(w), "and starts nothing");
        instance_set_state(w->instance, INSTANCE_RUNNING);
        CHECK(wait_for(w, is_ready), "the instance runs: HAProxy is ready");
        if (!it(w))
                return;
        CHECK(map_has(w, "dmFsdWUtb25l"), "it has the value");
        CHECK(has_no_core(w), "no dump would have its memory in it");
        CHECK(others_read_nothing(w), "others read none of its files");
        CHECK(proxy_may_connect(w), "hostd-proxy may connect, and no other");
        pid = pid_of(w);
        CHECK(secrets_rotate(w->m.secrets, "token", two, NULL) == 0 && wait_for(w, is_ready), "rotation");
        CHECK(map_has(w, "dmFsdWUtdHdv") && !map_has(w, "dmFsdWUtb25l"), "the new value is there and the old one is not");
        CHECK(pid_of(w) == pid, "in the same process");
        (void) kill(pid, SIGKILL);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && pid_of(w) != pid && map_has(w, "dmFsdWUtdHdv"), "it is killed: it comes back with the value");
        CHECK(grant(w, "other.example.com", second), "another grant");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && map_has(w, first) && map_has(w, second), "HAProxy serves both");
        CHECK(secrets_ungrant(w->m.secrets, first, NULL) == 0, "the first grant ends");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && !map_has(w, first) && map_has(w, second), "HAProxy serves the other");
        w->old = pid_of(w);
        instance_set_state(w->instance, INSTANCE_STOPPED);
        CHECK(wait_for(w, is_gone) && wait_for(w, is_reaped), "the instance stops: HAProxy is gone");
        instance_set_state(w->instance, INSTANCE_RUNNING);
        CHECK(wait_for(w, is_ready), "and back with it");
        says_what_is_wrong(w);
        CHECK(secrets_ungrant(w->m.secrets, second, NULL) == 0 && wait_for(w, is_gone), "the second ends");
        streams(w);
        CHECK(grant(w, "other.example.com", second), "a grant as before");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready), "is served");
        knows_no_rules(w);
        rotates_twice(w);
        ends_on_a_full_disk(w);
        CHECK(grant(w, "again.example.com", second), "a grant to the instance that is there");
        unsigned ended = 0;
        CHECK(secrets_revoke(w->m.secrets, "token", &ended, NULL) == 0 && ended == 1, "the secret is revoked");
        CHECK(wait_for(w, is_gone), "nothing is left of it");
        (void) value_free(one);
        (void) value_free(two);
}

int main(int argc, char **argv) {
        World w = {.m.state_fd = -EBADF};

        net = argc > 1 ? argv[1] : NULL;
        if (!net || !setup(&w)) {
                puts("FAILED: no world");
                return 1;
        }
        life(&w);
        teardown(&w);
        return report_end();
}

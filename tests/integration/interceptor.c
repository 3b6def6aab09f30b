// SPDX-License-Identifier: GPL-2.0-or-later
// The life of an instance's HAProxy, as hostd keeps it: there while the instance runs and has grants, and no longer; filled after each start and each
// rotation; back after its death. A manager with a store and without a kernel, the real HAProxy. Started by interceptor.sh, which makes the users.
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/io.h"
#include "core/interceptor.h"
#include "tests/integration/report.h"

typedef struct World {
        char directory[64], run[96], store[96];
        Manager m;
        Instance *instance;
        pid_t old; // a HAProxy that was
} World;

static usec_t limit(void) {
        return 30 * USEC_PER_SEC * report_slow();
}

static const Interceptor *it(const World *w) {
        return interceptor_find(w->m.secrets, "one");
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
        const Interceptor *i = it(w);
        size_t size;

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock/admin.sock", i->path);
        snprintf(command, sizeof(command), "show map %s/conf/secret.map\n", i->path);
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
        snprintf(w->run, sizeof(w->run), "%s/run", w->directory);
        (void) umask(0077);
        if (mkdir(w->run, 0755) < 0 || chmod(w->run, 0755) < 0)
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
        event_bus_free(w->m.bus);
        sd_event_unref(w->m.event);
        (void) close_fd(w->m.state_fd);
        (void) io_remove_tree(AT_FDCWD, w->directory);
}

static bool others_read_nothing(World *w) {
        static const char *const files[] = {"conf/haproxy.cfg", "conf/crt", "conf/secret.map", "log"};
        const Interceptor *i = it(w);

        for (size_t k = 0; k < ELEMENTS(files); k++) {
                struct stat st;
                if (fstatat(i->directory, files[k], &st, 0) < 0 || (st.st_mode & 07))
                        return false;
        }
        return true;
}

// By the name that hostd-proxy knows, which is a link.
static bool proxy_may_connect(World *w) {
        const struct passwd *proxy = getpwnam("hostd-proxy");
        struct stat st, above;

        return proxy && fstatat(it(w)->directory, "front.sock", &st, 0) == 0 && S_ISSOCK(st.st_mode) && st.st_gid == proxy->pw_gid && (st.st_mode & 0777) == 0660 &&
               fstatat(it(w)->directory, "sock", &above, AT_SYMLINK_NOFOLLOW) == 0 && above.st_gid == proxy->pw_gid && (above.st_mode & 0777) == 0750;
}

// No file of this process can grow.
static void disk_is_full(bool full) {
        struct rlimit limit;

        (void) signal(SIGXFSZ, SIG_IGN);
        (void) getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = full ? 0 : limit.rlim_max;
        (void) setrlimit(RLIMIT_FSIZE, &limit);
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

static bool all_settled(const World *w) {
        return w->m.secrets->n_leaving == 0;
}

// What ends does so although the disk is full, and is gone from there when it is not.
static void ends_on_a_full_disk(World *w) {
        char ids[3][17];
        unsigned before = stored(w);

        CHECK(grant(w, "a.example.com", ids[0]) && grant(w, "b.example.com", ids[1]) && grant(w, "c.example.com", ids[2]), "three more grants");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && map_has(w, ids[0]), "are served");
        w->old = it(w)->pid;
        disk_is_full(true);
        CHECK(secrets_ungrant(w->m.secrets, ids[0], NULL) < 0, "the disk is full: an ungrant says that it failed");
        CHECK(it(w)->pid <= 0 && !secrets_find(w->m.secrets, ids[0]), "but nothing serves it any more, from this moment on");
        disk_is_full(false);
        CHECK(wait_for(w, is_reaped), "its HAProxy is dead");
        CHECK(strcmp(w->m.secrets->bindings[1]->id, ids[1]) == 0 && strcmp(w->m.secrets->bindings[2]->id, ids[2]) == 0, "the others are in their order");
        CHECK(stored(w) == before + 3, "it is still on disk");
        CHECK(wait_for(w, is_ready) && !map_has(w, ids[0]) && map_has(w, ids[1]), "the others are served again");
        CHECK(wait_for(w, all_settled) && stored(w) == before + 2, "when the disk has room it goes from there");
        disk_is_full(true);
        CHECK(secrets_forget_instance(&w->m, "one", NULL) < 0 && w->m.secrets->n == 0, "a deletion on a full disk fails, and ends them");
        disk_is_full(false);
        CHECK(secrets_forget_instance(&w->m, "one", NULL) == 0 && stored(w) == 0, "and again, with room: nothing is left for another of its name");
        CHECK(wait_for(w, is_gone), "and nothing serves it");
}

// HAProxy has the values of the one, and hostd has not read yet that it has.
static bool is_at_its_end(World *w) {
        while (!it(w)->filling && sd_event_run(w->m.event, limit()) > 0)
                ;
        while (it(w)->filling && !map_has(w, "dmFsdWUtdGhyZWU="))
                if (sd_event_run(w->m.event, limit()) <= 0)
                        return false;
        return it(w)->filling;
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

        snprintf(path, sizeof(path), "/proc/%d/coredump_filter", it(w)->pid);
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
        CHECK(it(w)->pid <= 0 && strcmp(interceptor_state(it(w)), "failed") == 0, "no one knows the rules: HAProxy ends, and serves nothing by old ones");
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

        snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock/front.sock", it(w)->path);
        CHECK(connect(fd, (struct sockaddr *) &address, sizeof(address)) == 0 && io_write_all(fd, head, strlen(head)) == 0, "a guest speaks no TLS");
        CHECK(wait_for(w, log_has_error), "the log says so");
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
        pid = it(w)->pid;
        CHECK(secrets_rotate(w->m.secrets, "token", two, NULL) == 0 && wait_for(w, is_ready), "rotation");
        CHECK(map_has(w, "dmFsdWUtdHdv") && !map_has(w, "dmFsdWUtb25l"), "the new value is there and the old one is not");
        CHECK(it(w)->pid == pid, "in the same process");
        (void) kill(pid, SIGKILL);
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && it(w)->pid != pid && map_has(w, "dmFsdWUtdHdv"), "it is killed: it comes back with the value");
        CHECK(grant(w, "other.example.com", second), "another grant");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && map_has(w, first) && map_has(w, second), "HAProxy serves both");
        CHECK(secrets_ungrant(w->m.secrets, first, NULL) == 0, "the first grant ends");
        run_for(w, 200 * USEC_PER_MSEC);
        CHECK(wait_for(w, is_ready) && !map_has(w, first) && map_has(w, second), "HAProxy serves the other");
        w->old = it(w)->pid;
        instance_set_state(w->instance, INSTANCE_STOPPED);
        CHECK(wait_for(w, is_gone) && wait_for(w, is_reaped), "the instance stops: HAProxy is gone");
        instance_set_state(w->instance, INSTANCE_RUNNING);
        CHECK(wait_for(w, is_ready), "and back with it");
        says_what_is_wrong(w);
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

int main(void) {
        World w = {.m.state_fd = -EBADF};

        if (!setup(&w)) {
                puts("FAILED: no world");
                return 1;
        }
        life(&w);
        teardown(&w);
        return report_end();
}

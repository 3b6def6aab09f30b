// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-proxy: the TLS, HTTP and CONNECT connections of the instances, each let through or refused by its name. No rights, no configuration of
// its own: hostd sends the rules (border/control.h), the resolver the addresses.
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "border/border.h"
#include "border/confine.h"
#include "proxy/proxy.h"

#define FILES_MAX 65536
#define FILES_RESERVED 512 // listeners of 64 slots, and what else is open
#define MEMORY_MAX (384ull << 20) // the rules of thousands of slots at once, and their text

// What is used of today's budgets outlives this process where it was given a directory to write to; elsewhere they begin anew with it.
static int open_meters(void) {
        const char *directory = getenv("STATE_DIRECTORY");
        _cleanup_free_ char *path = NULL;
        int fd;

        if (!directory || *directory != '/')
                return -EBADF;
        if (asprintf(&path, "%s/budgets", directory) < 0) {
                path = NULL;
                return -EBADF;
        }
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0)
                log_warning("Budgets of a day begin anew with this process: cannot open %s: %s", path, strerror(errno));
        return fd < 0 ? -EBADF : fd;
}

static size_t connections_max(void) {
        struct rlimit files;
        rlim_t room;

        if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur < 2 * FILES_RESERVED)
                return 64;
        room = (files.rlim_cur - FILES_RESERVED) / PROXY_CONNECTION_FDS;
        return (size_t) MIN2(room, (rlim_t) PROXY_CONNECTIONS);
}

static int run(const ProxyConfig *config, Error *err) {
        _cleanup_(proxy_freep) Proxy *proxy = NULL;
        int r = proxy_new(config, &proxy);

        if (r < 0)
                return error_set_errno(err, r, "cannot begin");
        r = sd_event_loop(config->event);
        return r < 0 ? error_set_errno(err, r, "the loop ended") : 0;
}

static int prepare(ProxyConfig *config, Error *err) {
        BorderConfine confine = {.files_max = FILES_MAX, .memory_bytes = MEMORY_MAX};
        int r;

        config->control = border_listen_fd(BORDER_FD_CONTROL);
        if (config->control < 0)
                return error_set_errno(err, config->control, "no control socket was handed over");
        config->meters = open_meters();
        r = border_confine(&confine, err);
        config->connections_max = connections_max();
        return r;
}

int main(void) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        char resolve[PATH_MAX], records[PATH_MAX], interceptors[PATH_MAX];
        ProxyConfig config = {
                .resolve = border_socket_path(BORDER_RESOLVE_SOCKET, resolve, sizeof(resolve)),
                .records = border_socket_path(BORDER_RECORDS_SOCKET, records, sizeof(records)),
                .interceptors = border_socket_path(BORDER_RUN "/haproxy", interceptors, sizeof(interceptors)),
        };
        int r = border_event_new(&event);

        if (r < 0)
                (void) error_set_errno(&err, r, "cannot begin");
        config.event = event;
        if (r >= 0)
                r = prepare(&config, &err);
        if (r >= 0)
                r = run(&config, &err);
        if (r < 0)
                log_error("%s", error_message(&err, r));
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

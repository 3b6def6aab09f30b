// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-flow: the record of what instances reach for. Started with its sockets, as border/border.h says.
//
// It starts with CAP_NET_ADMIN and nothing else, opens the kernel's sockets, leaves that right to its keeper and gives it up. $LOGS_DIRECTORY is
// where the logs are. $HOSTD_FLOW_TEST=1, for tests: it may be root, writers of records may have its own user, and connections that live
// are asked for each second.
#include <fcntl.h>
#include <pwd.h>
#include <string.h>

#include "border/border.h"
#include "border/confine.h"
#include "flow/evidence.h"
#include "flow/keeper.h"
#include "flow/recorder.h"

#define DUMP_INTERVAL (60 * USEC_PER_SEC)

static bool is_test(void) {
        const char *value = secure_getenv("HOSTD_FLOW_TEST");

        return value && strcmp(value, "1") == 0;
}

static const char *logs_directory(void) {
        return secure_getenv("LOGS_DIRECTORY") ?: "/var/log/hostd";
}

static int complain(Error *err, int r) {
        fprintf(stderr, "hostd-flow: %s\n", error_message(err, r));
        return 1;
}

static void add_writer(RecorderConfig *config, const char *user) {
        const struct passwd *entry = getpwnam(user);

        if (entry)
                config->writers[config->n_writers++] = entry->pw_uid;
}

// What the kernel refuses here stays missing until the next start; the logs say so.
static void open_kernel(RecorderConfig *config) {
        int r = evidence_open_packets(&config->packets);

        if (r < 0)
                config->blind = r == -EBUSY ? "denied packets: another program reads the NFLOG group of hostd" : "denied packets: the kernel does not tell";
        r = evidence_open_ends(&config->ends);
        if (r < 0)
                config->blind = "ends of connections: the kernel does not tell";
        if (config->blind)
                fprintf(stderr, "hostd-flow: not recorded: %s\n", config->blind);
}

static int prepare(RecorderConfig *config, Error *err) {
        bool test = is_test();
        int r;

        config->control = border_listen_fd(BORDER_FD_CONTROL);
        config->records = border_listen_fd(BORDER_FD_RECORDS);
        if (config->control < 0 || config->records < 0)
                return error_set(err, ERR_INVALID, "the sockets are missing: hostd or systemd starts this program");
        config->logs = open(logs_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (config->logs < 0)
                return error_set_errno(err, errno, "opening %s", logs_directory());
        add_writer(config, BORDER_RESOLVER);
        add_writer(config, BORDER_PROXY);
        config->writers[config->n_writers++] = 0; // hostd tells of placeholders in wrong places
        if (test) {
                config->writers[0] = geteuid();
                config->n_writers = 1;
        }
        open_kernel(config);
        r = evidence_open_dump(&config->dump);
        if (r < 0)
                return error_set_errno(err, r, "opening a socket");
        return keeper_start(config->dump, test ? USEC_PER_SEC : DUMP_INTERVAL, err);
}

static int record(Error *err) {
        RecorderConfig config = {.packets = -EBADF, .ends = -EBADF, .dump = -EBADF, .settings = FLOW_LOG_DEFAULTS};
        const BorderConfine confine = {.files_max = 4096, .memory_bytes = 128 << 20, .netlink = true, .write_files = true, .allow_root = is_test()};
        _cleanup_(recorder_freep) Recorder *recorder = NULL;
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        int r = prepare(&config, err);

        if (r < 0)
                return r;
        r = border_event_new(&event);
        if (r < 0)
                return error_set_errno(err, r, "making the event loop");
        config.event = event;
        r = border_confine(&confine, err);
        if (r < 0)
                return r;
        r = recorder_new(&config, &recorder);
        if (r >= 0)
                r = sd_event_loop(event);
        return r < 0 ? error_set_errno(err, r, "recording") : 0;
}

int main(int argc, char **argv) {
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (argc != 1)
                r = error_set(&err, ERR_INVALID, "hostd starts this program");
        else
                r = record(&err);
        return r < 0 ? complain(&err, r) : 0;
}

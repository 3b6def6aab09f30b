// SPDX-License-Identifier: GPL-2.0-or-later
// Events: one line each; --follow stays through restarts of hostd.
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/output.h"

#define EVENTS_RETRIES 300
#define EVENTS_RETRY_MSEC 100

// time, type and name first, then whatever else the event has.
static void print_event(const json_t *event, OutputFormat format) {
        static const char *const first[] = {"time", "type", "name"};
        const char *key;
        json_t *value;

        if (format == OUTPUT_JSON) {
                (void) json_dumpf(event, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0));
                putchar('\n');
                return;
        }
        for (size_t i = 0; i < ELEMENTS(first); i++) {
                _cleanup_free_ char *text = output_value(json_object_get(event, first[i]), PARAM_STRING, true);
                _cleanup_free_ char *shown = text ? valid_printable(text) : NULL;
                if (shown && *shown)
                        printf("%s%s", i ? "  " : "", shown);
        }
        json_object_foreach((json_t *) event, key, value) {
                bool printed = false;
                for (size_t i = 0; i < ELEMENTS(first); i++)
                        printed |= strcmp(key, first[i]) == 0;
                _cleanup_free_ char *text = printed ? NULL : output_value(value, PARAM_STRING, true);
                _cleanup_free_ char *shown = text ? valid_printable(text) : NULL;
                if (shown && *shown)
                        printf("  %s=%s", key, shown);
        }
        putchar('\n');
}

// An answer is {"event": {...}}, or {"events": [...]} with those that are still remembered.
static void print_events(const json_t *reply, OutputFormat format) {
        const json_t *events = json_object_get(reply, "events"), *one = json_object_get(reply, "event");
        json_t *event;
        size_t i;

        json_array_foreach(events, i, event)
                print_event(event, format);
        if (one)
                print_event(one, format);
        (void) fflush(stdout);
}

static int events_once(Cli *cli, Args *args, bool follow, Error *err) {
        OutputFormat format;
        json_t *reply = NULL;
        int r = output_format_parse(args->method, args->local, &format, err);

        if (r >= 0)
                r = method_check(args->method, args->parameters, err);
        if (r >= 0)
                r = cli_connect(cli, err);
        if (r >= 0)
                r = client_send(cli->client, args->method->name, args->parameters, follow, NULL, 0, err);
        while (r >= 0 && (r = client_receive(cli->client, &reply, err)) >= 0) {
                print_events(reply, format);
                json_decref(reply);
                if (r == 0)
                        break;
                if (ferror(stdout))
                        return 0; // the reader has gone
        }
        return r;
}

int command_events(Cli *cli, Args *args) {
        bool follow = args_local_bool(args, "follow"), was_connected = false;
        int left = EVENTS_RETRIES;

        for (;;) {
                _cleanup_error_ Error err = ERROR_NULL;
                struct timespec pause = {.tv_nsec = EVENTS_RETRY_MSEC * 1000000L};
                int r = events_once(cli, args, follow, &err);
                bool lost = cli->client && client_is_lost(cli->client);
                if (r >= 0)
                        return 0;
                if (lost)
                        left = EVENTS_RETRIES;
                was_connected |= lost;
                // Only a hostd that was there and went is waited for.
                if (!follow || !was_connected || (cli->client && !lost) || left-- == 0)
                        return cli_fail(&err, r);
                cli->client = client_free(cli->client);
                (void) nanosleep(&pause, NULL);
        }
}

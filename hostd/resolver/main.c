// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-resolver: answers the questions of all instances, each by its own policies. It runs as a user of its own without any right, has
// listening sockets for hostd and for hostd-proxy when it starts, and opens those of the instances itself, on their devices.
//
// It takes no arguments and reads no files. hostd connects and sends views; without hostd it goes on with those that it has.
#include <malloc.h>
#include <string.h>

#include "base/log.h"
#include "border/border.h"
#include "border/confine.h"
#include "resolver/resolver.h"

#define CACHE_BYTES (3u << 19) // one and a half MiB
#define MEMORY_BYTES (256u << 20) // views of many slots are large while they are read
#define FILES_MAX 16384

static int views_apply(Resolver *resolver, View *view) {
        int result = 0;

        result = view_lists_apply(&resolver->lists, view);
        for (Slot *slot = resolver->slots, *next; slot; slot = next) {
                next = slot->next;
                if (result < 0 || view_ends(view, slot->view.slot)) // rather none than with the rules that it had
                        slot_free(slot);
        }
        if (view->whole || view->upstreams)
                upstreams_set(resolver->upstreams, view->upstreams);
        for (size_t i = 0; i < view->n_slots && result >= 0; i++)
                if (!view->slots[i].within) // a profile has no wire
                        result = slot_apply(resolver, &view->slots[i]) < 0 ? -ENOMEM : result;
        return result;
}

static void control_on_views(Resolver *resolver, const ControlFrame *frame) {
        _cleanup_(view_freep) View *view = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r = view_parse(frame->payload, frame->header.length, &view, &err);

        if (r < 0)
                log_error("views were refused: %s", error_message(&err, r));
        else {
                r = views_apply(resolver, view);
                if (r < 0)
                        log_error("views: %s", strerror(-r));
        }
        (void) control_server_applied(resolver->control, frame->header.cookie, r); // without hostd there is nobody to tell
        (void) malloc_trim(0);
}

static void control_on_frame(ControlServer *server, const ControlFrame *frame, void *userdata) {
        Resolver *resolver = userdata;
        BorderResult result;

        if (frame->header.type == BORDER_VIEWS)
                control_on_views(resolver, frame);
        else if (frame->header.type == BORDER_ACK) {
                memcpy(&result, frame->payload, sizeof(result)); // its length was checked
                question_on_ack(resolver, frame->header.cookie, result.error);
        }
}

static void control_on_gone(ControlServer *server, void *userdata) {
        question_on_control_lost(userdata);
}

static void proxy_on_question(ResolveServer *server, uint64_t connection, const ResolveQuestion *question, void *userdata) {
        question_proxy(userdata, connection, question);
}

static int resolver_open(Resolver *resolver) {
        int control = border_listen_fd(BORDER_FD_CONTROL), proxy = border_listen_fd(BORDER_FD_RESOLVE), links = links_open(), r = links;

        if (control < 0)
                return control;
        if (r >= 0)
                r = links_watch(resolver, links);
        if (r >= 0)
                r = flow_sender_new(BORDER_RECORDS_SOCKET, &resolver->flows);
        if (r >= 0)
                r = cache_new(CACHE_BYTES, &resolver->cache);
        if (r >= 0)
                r = upstreams_new(resolver->event, &resolver->upstreams);
        if (r >= 0)
                r = lookups_new(resolver->upstreams, resolver->cache, &resolver->lookups);
        if (r >= 0 && proxy >= 0)
                r = resolve_server_new(resolver->event, proxy, proxy_on_question, resolver, &resolver->proxy);
        if (r >= 0)
                r = control_server_new(&(ControlServerConfig) {.event = resolver->event, .fd = control, .frame = control_on_frame, .gone = control_on_gone, .userdata = resolver},
                                       &resolver->control);
        return r;
}

static void resolver_close(Resolver *resolver) {
        while (resolver->slots)
                slot_free(resolver->slots);
        view_lists_done(&resolver->lists);
        sd_event_source_disable_unref(resolver->retry);
        control_server_free(resolver->control);
        resolve_server_free(resolver->proxy);
        lookups_free(resolver->lookups);
        upstreams_free(resolver->upstreams);
        cache_free(resolver->cache);
        flow_sender_free(resolver->flows);
        sd_event_unref(resolver->event);
}

static int resolver_run(Resolver *resolver) {
        const BorderConfine confine = {.files_max = FILES_MAX, .memory_bytes = MEMORY_BYTES};
        _cleanup_error_ Error err = ERROR_NULL;
        int r = border_event_new(&resolver->event);

        if (r >= 0)
                r = resolver_open(resolver);
        if (r < 0) {
                log_error("cannot start: %s", r == -ENOENT ? "hostd hands over the sockets, by LISTEN_FDS" : strerror(-r));
                return r;
        }
        r = border_confine(&confine, &err);
        if (r < 0) {
                log_error("%s", error_message(&err, r));
                return r;
        }
        (void) malloc_trim(0);
        return sd_event_loop(resolver->event);
}

int main(int argc, char **argv) {
        Resolver resolver = {0};
        int r;

        if (argc > 1) {
                fprintf(stderr, "usage: %s (started by hostd, with its sockets; it takes no arguments)\n", argv[0]);
                return 2;
        }
        r = resolver_run(&resolver);
        resolver_close(&resolver);
        return r < 0;
}

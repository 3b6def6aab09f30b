// SPDX-License-Identifier: GPL-2.0-or-later
// Console sessions: see console.h.
#include "core/console.h"

#include "core/request.h"

typedef struct ConsoleSession {
        struct ConsoleSession *next;
        uint64_t cookie;
        Request *request;
} ConsoleSession;

int console_session_start(Instance *instance, Request *request, Error *err) {
        ConsoleSession *session = calloc(1, sizeof(ConsoleSession));
        int r;

        if (!session)
                return error_set_errno(err, ENOMEM, "cannot open a console");
        r = instance_control_send(instance, CONTROL_CONSOLE, request->fds, 3, err);
        for (unsigned i = 0; i < 3; i++)
                request->fds[i] = close_fd(request->fds[i]);
        if (r < 0) {
                free(session);
                return r;
        }
        session->cookie = instance->cookie;
        session->request = request_hold(request);
        session->next = instance->consoles;
        instance->consoles = session;
        call_reply_continues(request->call, json_pack("{s:s}", "name", instance->record.name));
        return 0;
}

void console_session_ended(Instance *instance, uint64_t cookie) {
        for (ConsoleSession **p = &instance->consoles; *p; p = &(*p)->next) {
                ConsoleSession *session = *p;
                if (session->cookie != cookie)
                        continue;
                *p = session->next;
                request_release(session->request);
                free(session);
                return;
        }
}

void console_sessions_end(Instance *instance) {
        while (instance->consoles)
                console_session_ended(instance, instance->consoles->cookie);
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Request: see request.h.
#include "guest/request.h"

#include <string.h>

bool request_id_valid(const char id[GUEST_ID_MAX + 3]) {
        size_t n = strnlen(id, GUEST_ID_MAX);

        if (n == 0 || n >= GUEST_ID_MAX)
                return false;
        for (size_t i = 0; i < n; i++)
                if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= '0' && id[i] <= '9')))
                        return false;
        return true;
}

void request_done(Request *request) {
        if (request->data) // secrets may be among it, and forks of this process are looked into by others
                explicit_bzero(request->data, request->header.size - sizeof(request->header));
        free(request->data);
        free(request->argv);
        free(request->env);
        *request = (Request) {0};
}

static char *request_string(char **at, char *end) {
        char *text = *at, *nul = text < end ? memchr(text, 0, (size_t) (end - text)) : NULL;

        if (!nul)
                return NULL;
        *at = nul + 1;
        return text;
}

static char **request_strings(char **at, char *end, size_t n) {
        char **v;

        // Each string takes a byte at least, which bounds the array.
        if (n > (size_t) (end - *at) || !(v = calloc(n + 1, sizeof(char *))))
                return NULL;
        for (size_t i = 0; i < n; i++)
                if (!(v[i] = request_string(at, end))) {
                        free(v);
                        return NULL;
                }
        return v;
}

int request_decode(const void *packet, size_t size, Request *ret) {
        _cleanup_(request_done) Request request = {0};
        GuestHeader *h = &request.header;
        char *at, *end;

        if (size < sizeof(*h) || size > sizeof(*h) + GUEST_BODY_MAX)
                return -EBADMSG;
        memcpy(h, packet, sizeof(*h));
        if (h->magic != GUEST_MAGIC || h->version != GUEST_VERSION || h->type != GUEST_EXEC || h->size != size ||
            h->value >= _GUEST_VERB_MAX || !request_id_valid(h->id))
                return -EBADMSG;
        size -= sizeof(*h);
        request.data = malloc(size + 1);
        if (!request.data)
                return -ENOMEM;
        memcpy(request.data, (const char *) packet + sizeof(*h), size);
        at = request.data;
        end = at + size;
        request.user = request_string(&at, end);
        request.cwd = request_string(&at, end);
        request.path = request_string(&at, end);
        if (!request.user || !request.cwd || !request.path)
                return -EBADMSG;
        request.argv = request_strings(&at, end, h->n_argv);
        request.env = request.argv ? request_strings(&at, end, h->n_env) : NULL;
        if (!request.env || at != end)
                return -EBADMSG;
        if ((h->value == GUEST_RUN && h->n_argv == 0) || (h->value >= GUEST_WRITE && request.path[0] != '/'))
                return -EBADMSG;
        *ret = request;
        request = (Request) {0};
        return 0;
}

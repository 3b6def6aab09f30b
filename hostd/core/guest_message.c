// SPDX-License-Identifier: GPL-2.0-or-later
// GuestMessage: the packets as pure functions: what a guest may say, and how a request is laid out. See core/guest.h.
#include <netinet/in.h>
#include <signal.h>
#include <string.h>

#include "base/strv.h"
#include "base/valid.h"
#include "core/guest.h"

bool guest_id_valid(const char *id) {
        size_t n = id ? strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") : 0;

        return n > 0 && n < GUEST_ID_MAX && id[n] == 0;
}

static bool guest_message_any(const GuestHeader *h) {
        return true;
}

static bool guest_message_failed(const GuestHeader *h) {
        return h->flags >= GUEST_STAGE_FORK && h->flags < _GUEST_STAGE_MAX && h->value < 4096;
}

static bool guest_message_exited(const GuestHeader *h) {
        // A wait status is 16 bits: exit code or signal, with the core flag.
        return h->value <= 0xffff && ((h->value & 0x7f) == 0 || (h->value >> 8) == 0) && (h->value & 0xff) != 0x7f;
}

static const struct {
        bool allowed, has_id;
        bool (*check)(const GuestHeader *h);
} guest_message_table[_GUEST_TYPE_MAX] = {
        [GUEST_HELLO] = {true, false, guest_message_any},   [GUEST_READY] = {true, true, guest_message_any},
        [GUEST_FAILED] = {true, true, guest_message_failed}, [GUEST_EXITED] = {true, true, guest_message_exited},
        [GUEST_LIVE] = {true, true, guest_message_any},
};

int guest_message_decode(const void *data, size_t size, GuestHeader *ret) {
        GuestHeader h;

        if (size != sizeof(h))
                return -EBADMSG;
        memcpy(&h, data, sizeof(h));
        if (h.magic != GUEST_MAGIC || h.version != GUEST_VERSION || h.size != sizeof(h) || h.type >= _GUEST_TYPE_MAX ||
            !guest_message_table[h.type].allowed)
                return -EBADMSG;
        // All bytes behind the id are NUL, so that an id has one spelling only.
        size_t n = strnlen(h.id, sizeof(h.id));
        for (size_t i = n; i < sizeof(h.id); i++)
                if (h.id[i])
                        return -EBADMSG;
        if (n == sizeof(h.id) || (guest_message_table[h.type].has_id ? !guest_id_valid(h.id) : n != 0))
                return -EBADMSG;
        if (!guest_message_table[h.type].check(&h))
                return -EBADMSG;
        *ret = h;
        return 0;
}

// A text of the field and nothing but zeros behind it.
static bool guest_field(const char *field, size_t size) {
        size_t n = strnlen(field, size);

        if (n == size)
                return false;
        for (; n < size; n++)
                if (field[n])
                        return false;
        return true;
}

int guest_ask_decode(const void *data, size_t size, GuestAsk *ret) {
        static const GuestAsk empty;
        GuestAsk ask;

        if (size != sizeof(ask))
                return -EBADMSG;
        memcpy(&ask, data, sizeof(ask));
        if (ask.header.magic != GUEST_MAGIC || ask.header.version != GUEST_VERSION || ask.header.size != sizeof(ask) || ask.header.type != GUEST_ASK)
                return -EBADMSG;
        if (!guest_field(ask.header.id, sizeof(ask.header.id)) || !guest_id_valid(ask.header.id))
                return -EBADMSG;
        if (ask.header.flags == 0) {
                if (ask.port == 0 || (ask.protocol != IPPROTO_TCP && ask.protocol != IPPROTO_UDP) || memcmp(ask.zero, empty.zero, sizeof(ask.zero)) != 0)
                        return -EBADMSG;
                if (!guest_field(ask.to, sizeof(ask.to)) || !guest_field(ask.reason, sizeof(ask.reason)) || !valid_is(VALID_DESTINATION, ask.to) || !valid_is(VALID_REASON, ask.reason))
                        return -EBADMSG;
        } else if (memcmp((const char *) &ask + sizeof(ask.header), (const char *) &empty + sizeof(ask.header), sizeof(ask) - sizeof(ask.header)) != 0)
                return -EBADMSG;
        *ret = ask;
        return 0;
}

static char *guest_message_put(char *p, const char *text) {
        size_t n = strlen(text ?: "") + 1;

        memcpy(p, text ?: "", n);
        return p + n;
}

static size_t guest_message_measure(char *const *v) {
        size_t n = 0;

        for (; v && *v; v++)
                n += strlen(*v) + 1;
        return n;
}

int guest_message_encode(const GuestRequest *request, void **ret, size_t *ret_size, Error *err) {
        size_t body = strlen(request->user ?: "") + strlen(request->cwd ?: "") + strlen(request->path ?: "") + 3 +
                      guest_message_measure(request->argv) + guest_message_measure(request->env);
        GuestHeader *h;
        char *p;

        if (!guest_id_valid(request->id))
                return error_set_field(err, "id", "\"%s\" is no id of a command", request->id ?: "");
        if (body > GUEST_BODY_MAX)
                return error_set_field(err, "command", "the command, its environment and paths take %zu bytes, at most %d are allowed",
                                       body, GUEST_BODY_MAX);
        h = calloc(1, sizeof(*h) + body);
        if (!h)
                return error_set_errno(err, ENOMEM, "cannot send a command");
        *h = (GuestHeader) {
                .magic = GUEST_MAGIC,
                .version = GUEST_VERSION,
                .type = GUEST_EXEC,
                .size = (uint32_t) (sizeof(*h) + body),
                .value = request->verb,
                .flags = request->flags,
                .mode = request->mode,
                .n_argv = (uint32_t) strv_length(request->argv),
                .n_env = (uint32_t) strv_length(request->env),
        };
        memcpy(h->id, request->id, strlen(request->id));
        p = guest_message_put((char *) (h + 1), request->user);
        p = guest_message_put(p, request->cwd);
        p = guest_message_put(p, request->path);
        for (char *const *v = request->argv; v && *v; v++)
                p = guest_message_put(p, *v);
        for (char *const *v = request->env; v && *v; v++)
                p = guest_message_put(p, *v);
        *ret_size = h->size;
        *ret = h;
        return 0;
}

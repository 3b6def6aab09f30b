// SPDX-License-Identifier: GPL-2.0-or-later
// ClientHello: see clienthello.h.
#include "proxy/clienthello.h"

#include <string.h>

#define RECORD_HEADER 5
#define RECORD_HANDSHAKE 22
#define HANDSHAKE_HEADER 4
#define HANDSHAKE_CLIENT_HELLO 1
#define EXTENSION_SERVER_NAME 0
#define EXTENSION_ECH 0xfe0d
#define EXTENSION_ESNI 0xffce // its forerunner
#define NAME_TYPE_HOST 0

// ---- a cursor that cannot leave its bytes

typedef struct Cursor {
        const uint8_t *at;
        size_t left;
        bool failed;
} Cursor;

static const uint8_t *cursor_take(Cursor *c, size_t n) {
        const uint8_t *at = c->at;

        if (c->failed || n > c->left) {
                c->failed = true;
                return NULL;
        }
        c->at += n;
        c->left -= n;
        return at;
}

static unsigned cursor_number(Cursor *c, size_t bytes) {
        const uint8_t *at = cursor_take(c, bytes);
        unsigned n = 0;

        for (size_t i = 0; at && i < bytes; i++)
                n = n << 8 | at[i];
        return n;
}

// What a length of `bytes` bytes announces.
static Cursor cursor_vector(Cursor *c, size_t bytes) {
        size_t n = cursor_number(c, bytes);
        const uint8_t *at = cursor_take(c, n);

        return at ? (Cursor) {.at = at, .left = n} : (Cursor) {.failed = true};
}

// ---- the message

static HelloResult server_name_parse(Cursor extension, Host *ret) {
        Cursor list = cursor_vector(&extension, 2), name;
        unsigned type = cursor_number(&list, 1);

        name = cursor_vector(&list, 2);
        if (list.failed || extension.failed || extension.left > 0)
                return HELLO_MALFORMED;
        // RFC 6066 allows one name of each type and defines one type. A second one could be what the server takes.
        if (type != NAME_TYPE_HOST || list.left > 0)
                return HELLO_BAD_NAME;
        *ret = host_parse((const char *) name.at, name.left);
        switch (ret->kind) {
        case HOST_NAME:
                return HELLO_NAMED;
        case HOST_ADDRESS:
                return HELLO_ADDRESS;
        default:
                return HELLO_BAD_NAME;
        }
}

static HelloResult extensions_parse(Cursor extensions, ClientHello *hello) {
        HelloResult result = HELLO_NAMELESS;
        bool seen = false;

        while (extensions.left > 0) {
                unsigned type = cursor_number(&extensions, 2);
                Cursor data = cursor_vector(&extensions, 2);
                if (extensions.failed)
                        return HELLO_MALFORMED;
                if (type == EXTENSION_ECH || type == EXTENSION_ESNI)
                        hello->ech = true;
                if (type != EXTENSION_SERVER_NAME)
                        continue;
                if (seen)
                        return HELLO_MALFORMED;
                seen = true;
                result = server_name_parse(data, &hello->host);
                if (result == HELLO_MALFORMED)
                        return result;
        }
        return result;
}

static HelloResult message_parse(const uint8_t *message, size_t size, ClientHello *hello) {
        Cursor c = {.at = message + HANDSHAKE_HEADER, .left = size - HANDSHAKE_HEADER}, session, suites, methods, extensions;
        const uint8_t *version = cursor_take(&c, 2);

        (void) cursor_take(&c, 32); // random
        session = cursor_vector(&c, 1);
        suites = cursor_vector(&c, 2);
        methods = cursor_vector(&c, 1);
        if (c.failed || version[0] != 3 || session.left > 32 || suites.left < 2 || suites.left % 2 != 0 || methods.left == 0)
                return HELLO_MALFORMED;
        if (c.left == 0)
                return HELLO_NAMELESS; // before there were extensions
        extensions = cursor_vector(&c, 2);
        if (c.failed || c.left > 0)
                return HELLO_MALFORMED;
        return extensions_parse(extensions, hello);
}

// ---- records

// The first bytes, before there is a whole record header.
static HelloResult head_check(const uint8_t *data, size_t size) {
        if (size >= 1 && data[0] != RECORD_HANDSHAKE)
                return HELLO_NOT_TLS;
        if (size >= 2 && data[1] != 3)
                return HELLO_NOT_TLS;
        return HELLO_MORE;
}

static void message_copy(const uint8_t *data, size_t end, uint8_t *ret) {
        size_t n = 0;

        for (size_t at = 0; at < end;) {
                size_t length = (size_t) data[at + 3] << 8 | data[at + 4];
                memcpy(ret + n, data + at + RECORD_HEADER, length);
                n += length;
                at += RECORD_HEADER + length;
        }
}

// The type and length of the message, which records may cut, too; 0 while they are not there.
static size_t message_size(const uint8_t *message, size_t have) {
        return have < HANDSHAKE_HEADER ? 0 : HANDSHAKE_HEADER + ((size_t) message[1] << 16 | (size_t) message[2] << 8 | message[3]);
}

// Of the first `record` bytes, which are whole records.
static HelloResult message_try(ClientHello *hello, const uint8_t *data) {
        uint8_t message[CLIENTHELLO_MAX];

        // Records can be of one byte: what is known not to be whole is not put together again for each of them.
        if (hello->have < hello->need)
                return HELLO_MORE;
        message_copy(data, hello->record, message);
        if (message[0] != HANDSHAKE_CLIENT_HELLO)
                return HELLO_MALFORMED;
        hello->need = message_size(message, hello->have);
        if (hello->need > CLIENTHELLO_MAX)
                return HELLO_TOO_LONG;
        if (hello->need == 0 || hello->have < hello->need)
                return HELLO_MORE;
        // More of the handshake in the same record: no client says anything before the answer.
        if (hello->have > hello->need)
                return HELLO_MALFORMED;
        return message_parse(message, hello->need, hello);
}

HelloResult clienthello_parse(ClientHello *hello, const uint8_t *data, size_t size) {
        HelloResult result = head_check(data, size);

        while (result == HELLO_MORE && size >= hello->record + RECORD_HEADER) {
                const uint8_t *head = data + hello->record;
                size_t length = (size_t) head[3] << 8 | head[4];
                if (head[0] != RECORD_HANDSHAKE || head[1] != 3 || length == 0 || length > 16384)
                        return HELLO_MALFORMED;
                if (hello->record + RECORD_HEADER + length > CLIENTHELLO_MAX)
                        return HELLO_TOO_LONG;
                if (size < hello->record + RECORD_HEADER + length)
                        return HELLO_MORE;
                hello->record += RECORD_HEADER + length;
                hello->have += length;
                result = message_try(hello, data);
        }
        // Whoever routes by the host alone must not find the first of two names.
        if (result != HELLO_NAMED && result != HELLO_ADDRESS)
                hello->host = HOST_NULL;
        return result;
}

const char *hello_result_text(HelloResult result) {
        static const char *const texts[_HELLO_MAX] = {
                [HELLO_MORE] = "the client did not say whom it wants in time",
                [HELLO_NAMED] = "a server name",
                [HELLO_ADDRESS] = "an address instead of a server name",
                [HELLO_NAMELESS] = "no server name",
                [HELLO_BAD_NAME] = "an invalid server name",
                [HELLO_NOT_TLS] = "not TLS",
                [HELLO_MALFORMED] = "a malformed ClientHello",
                [HELLO_TOO_LONG] = "a ClientHello that is too long",
        };

        return (unsigned) result < _HELLO_MAX ? texts[result] : "?";
}

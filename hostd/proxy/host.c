// SPDX-License-Identifier: GPL-2.0-or-later
// Host: see host.h.
#include "proxy/host.h"

#include <arpa/inet.h>
#include <string.h>

static char lower(char c) {
        return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

static bool is_digit(char c) {
        return c >= '0' && c <= '9';
}

static bool label_byte(char c) {
        return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}

static bool label_valid(const char *label, size_t size) {
        if (size == 0 || size > 63 || label[0] == '-' || label[size - 1] == '-')
                return false;
        for (size_t i = 0; i < size; i++)
                if (!label_byte(label[i]))
                        return false;
        return true;
}

// All digits, or hexadecimal as inet_aton(3) reads it.
static bool label_is_number(const char *label, size_t size) {
        size_t digits = 0;

        if (size >= 2 && label[0] == '0' && label[1] == 'x')
                return true;
        while (digits < size && is_digit(label[digits]))
                digits++;
        return digits == size;
}

static bool name_valid(const char *name) {
        const char *label = name;

        for (;;) {
                size_t size = strcspn(label, ".");
                if (!label_valid(label, size))
                        return false;
                if (label[size] == 0)
                        return !label_is_number(label, size);
                label += size + 1;
        }
}

static bool host_set_address(Host *host, const char *text) {
        if (inet_pton(AF_INET, text, host->address) == 1)
                host->family = 4;
        else if (inet_pton(AF_INET6, text, host->address) == 1)
                host->family = 6;
        else
                return false;
        host->kind = HOST_ADDRESS;
        (void) inet_ntop(host->family == 4 ? AF_INET : AF_INET6, host->address, host->name, sizeof(host->name));
        return true;
}

Host host_parse(const char *text, size_t size) {
        Host host = HOST_NULL;
        char name[HOST_NAME_MAX_BYTES + 1];

        if (size == 0 || size > HOST_NAME_MAX_BYTES || memchr(text, 0, size))
                return host;
        for (size_t i = 0; i < size; i++)
                name[i] = lower(text[i]);
        name[size] = 0;
        if (host_set_address(&host, name))
                return host;
        if (!name_valid(name))
                return HOST_NULL;
        host.kind = HOST_NAME;
        memcpy(host.name, name, size + 1);
        return host;
}

static bool port_parse(const char *text, size_t size, uint16_t *ret) {
        unsigned port = 0;

        if (size == 0 || size > 5)
                return false;
        for (size_t i = 0; i < size; i++) {
                if (!is_digit(text[i]))
                        return false;
                port = port * 10 + (unsigned) (text[i] - '0');
        }
        if (port == 0 || port > UINT16_MAX)
                return false;
        *ret = (uint16_t) port;
        return true;
}

Host host_parse_authority(const char *text, size_t size, uint16_t *ret_port) {
        const char *colon, *end;
        bool brackets = size > 0 && text[0] == '[';
        uint16_t port = 0;
        Host host;

        if (brackets) {
                end = memchr(text, ']', size);
                if (!end)
                        return HOST_NULL;
                colon = end + 1 < text + size ? end + 1 : NULL;
                if (colon && *colon != ':')
                        return HOST_NULL;
                host = host_parse(text + 1, (size_t) (end - text) - 1);
                if (host.kind != HOST_ADDRESS || host.family != 6)
                        return HOST_NULL;
        } else {
                colon = memchr(text, ':', size);
                end = colon ?: text + size;
                if (end - text > 1 && end[-1] == '.')
                        end--;
                host = host_parse(text, (size_t) (end - text));
        }
        if (colon && !port_parse(colon + 1, (size_t) (text + size - colon) - 1, &port))
                return HOST_NULL;
        *ret_port = port;
        return host;
}

bool host_equal(const Host *a, const Host *b) {
        return a->kind == b->kind && a->kind != HOST_BAD && strcmp(a->name, b->name) == 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Host: see host.h.
#include "proxy/host.h"

#include <arpa/inet.h>
#include <string.h>

static bool is_digit(char c) {
        return c >= '0' && c <= '9';
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
        char address[INET6_ADDRSTRLEN];

        if (size > 0 && size < sizeof(address) && !memchr(text, 0, size)) {
                memcpy(address, text, size);
                address[size] = 0;
                if (host_set_address(&host, address))
                        return host;
        }
        if (name_normalise(text, size, host.name) >= 0)
                host.kind = HOST_NAME;
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

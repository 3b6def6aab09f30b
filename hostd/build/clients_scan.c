// SPDX-License-Identifier: GPL-2.0-or-later
// Clients, what they print: see clients.h. Bytes of a stranger's program; a host that is none is not taken, and nothing else is.
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/strv.h"
#include "build/clients.h"
#include "build/manifest.h"

#define HOST_MAX 260

static int add(char ***mirrors, const char *host, size_t n, unsigned port) {
        char text[HOST_MAX + 8];

        if (n == 0 || n >= HOST_MAX)
                return 0;
        (void) snprintf(text, sizeof(text), "%.*s:%u", (int) n, host, port);
        for (char *p = text; *p; p++)
                *p = (char) tolower((unsigned char) *p);
        if (!manifest_mirror_is_valid(text) || strv_contains(*mirrors, text) || strv_length(*mirrors) >= MANIFEST_MIRRORS_MAX)
                return 0;
        return strv_append(mirrors, text);
}

// The scheme ends at `end` ("://"); what stands in front of a '+' says how ("mirror+http", "sparse+https").
static unsigned port_of_scheme(const char *begin, const char *end) {
        const char *p = end;

        while (p > begin && isalnum((unsigned char) p[-1]))
                p--;
        if (end - p == 5 && strncasecmp(p, "https", 5) == 0)
                return 443;
        return end - p == 4 && strncasecmp(p, "http", 4) == 0 ? 80 : 0;
}

// "[USER[:PASSWORD]@]HOST[:PORT]"
static int add_authority(char ***mirrors, const char *text, unsigned port) {
        size_t n = strcspn(text, "/?#\"'` \t\r\n<>,|;(){}\\"), host;
        const char *at = memrchr(text, '@', n);

        if (at) {
                n -= (size_t) (at + 1 - text);
                text = at + 1;
        }
        host = strcspn(text, ":");
        if (host < n) {
                char *end;
                unsigned long number = strtoul(text + host + 1, &end, 10);
                if (!isdigit((unsigned char) text[host + 1]) || end != text + n || number > 65535)
                        return 0;
                port = (unsigned) number;
                n = host;
        }
        return add(mirrors, text, n, port);
}

static int scan_line(const char *line, bool quoted, char ***mirrors) {
        int r = 0;

        for (const char *p = strstr(line, "://"); p && r >= 0; p = strstr(p + 3, "://")) {
                unsigned port = port_of_scheme(line, p);
                const char *begin = p;
                while (begin > line && (isalnum((unsigned char) begin[-1]) || begin[-1] == '+'))
                        begin--;
                if (port > 0 && (!quoted || (begin > line && begin[-1] == '`')))
                        r = add_authority(mirrors, p + 3, port);
        }
        return r;
}

static bool is_setting(const char *line) {
        static const char *const keys[] = {"registry", "index", "proxy", "https-proxy"};
        size_t skip = strspn(line, " \t"), n = strcspn(line + skip, "=");

        while (n > 0 && strchr(" \t\"", line[skip + n - 1]))
                n--;
        for (size_t i = 0; i < ELEMENTS(keys); i++) {
                size_t k = strlen(keys[i]);
                char before = n > k ? line[skip + n - k - 1] : '.';
                if (n >= k && strncmp(line + skip + n - k, keys[i], k) == 0 && strchr(".:", before))
                        return true;
        }
        return false;
}

static int scan_words(const char *line, char ***mirrors) {
        int r = scan_line(line, false, mirrors);

        for (const char *p = line; *p && r >= 0;) {
                size_t n = strcspn(p, " \t,|+'\"");
                if (n > 0 && !memchr(p, ':', n) && !memchr(p, '/', n))
                        r = add(mirrors, p, n, 443);
                p += n + (p[n] != 0);
        }
        return r;
}

static int scan_index(const char *text, char ***mirrors) {
        const char *dl = strstr(text, "\"dl\""), *open = dl ? strchr(dl + 4, '"') : NULL, *close = open ? strchr(open + 1, '"') : NULL;
        _cleanup_free_ char *value = close ? strndup(open + 1, (size_t) (close - open - 1)) : NULL;

        return !close ? 0 : !value ? -ENOMEM : scan_line(value, false, mirrors);
}

int clients_scan(ClientScan how, const char *text, char ***mirrors) {
        _cleanup_free_ char *copy = strdup(text);
        char *save = NULL;
        int r = 0;

        if (!copy)
                return -ENOMEM;
        if (how == SCAN_INDEX)
                return scan_index(copy, mirrors);
        for (char *line = strtok_r(copy, "\n", &save); line && r >= 0; line = strtok_r(NULL, "\n", &save))
                if (how == SCAN_WORDS)
                        r = scan_words(line, mirrors);
                else if (how != SCAN_SETTINGS || is_setting(line))
                        r = scan_line(line, how == SCAN_QUOTED, mirrors);
        return r;
}

static int take_line(const char *line, char ***mirrors, bool *whole) {
        *whole = *whole || strcmp(line, CLIENTS_END) == 0;
        if (!manifest_mirror_is_valid(line) || strv_contains(*mirrors, line) || strv_length(*mirrors) >= MANIFEST_MIRRORS_MAX)
                return 0;
        return strv_append(mirrors, line);
}

int clients_take(int in, char ***mirrors, bool *ret_whole) {
        char line[HOST_MAX + 8], buf[4096];
        size_t used = 0;
        ssize_t n;
        int r = 0;

        *ret_whole = false;
        while (r >= 0 && ((n = read(in, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR)))
                for (ssize_t i = 0; i < n && r >= 0; i++) {
                        if (buf[i] != '\n') {
                                used = used < sizeof(line) ? used + 1 : used;
                                line[used - 1] = buf[i];
                                continue;
                        }
                        if (used < sizeof(line)) { // else cut off
                                line[used] = 0;
                                r = take_line(line, mirrors, ret_whole);
                        }
                        used = 0;
                }
        return r;
}

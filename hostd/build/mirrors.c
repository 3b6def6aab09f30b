// SPDX-License-Identifier: GPL-2.0-or-later
// Mirrors: see mirrors.h. Only what a URI says is taken: what a mirror redirects to, or a program finds out as a proxy, is not known here, and denied.
#include "build/mirrors.h"

#include <string.h>

#include "base/strv.h"

// Where apt connects to without a port in the URI. Other methods reach no host, or one that nobody vouches for.
static const struct {
        const char *scheme;
        uint16_t port;
} mirror_schemes[] = {{"http", 80}, {"https", 443}, {"mirror+http", 80}, {"mirror+https", 443}, {"socks5h", 1080}};

static uint16_t scheme_port(const char *uri, size_t n) {
        for (size_t i = 0; i < ELEMENTS(mirror_schemes); i++)
                if (strlen(mirror_schemes[i].scheme) == n && strncasecmp(mirror_schemes[i].scheme, uri, n) == 0)
                        return mirror_schemes[i].port;
        return 0;
}

static int mirror_add(Mirrors *mirrors, const char *host, size_t size, Mirror mirror) {
        _cleanup_free_ char *name = strndup(host, size);
        Mirror *grown;

        if (!name)
                return -ENOMEM;
        for (char *p = name; *p; p++)
                if (*p >= 'A' && *p <= 'Z')
                        *p += 'a' - 'A';
        for (size_t i = 0; i < mirrors->n; i++)
                if (mirrors->list[i].port == mirror.port && strcmp(mirrors->list[i].host, name) == 0) {
                        mirrors->list[i].optional &= mirror.optional;
                        return 0;
                }
        if (mirrors->n == MIRRORS_MAX)
                return -E2BIG;
        grown = reallocarray(mirrors->list, mirrors->n + 1, sizeof(Mirror));
        if (!grown)
                return -ENOMEM;
        mirrors->list = grown;
        mirror.host = TAKE_PTR(name);
        mirrors->list[mirrors->n++] = mirror;
        return 0;
}

// "SCHEME://[USER@]HOST[:PORT][/…]", HOST perhaps in brackets. One that is none, or has no host, is skipped: apt says so itself.
static int mirror_uri(Mirrors *mirrors, const char *uri) {
        const char *scheme = strstr(uri, "://"), *host, *end, *at, *stop;
        unsigned long port = scheme ? scheme_port(uri, (size_t) (scheme - uri)) : 0;
        char *rest;

        if (port == 0)
                return 0;
        host = scheme + 3;
        end = host + strcspn(host, "/?#");
        at = memrchr(host, '@', (size_t) (end - host));
        host = at ? at + 1 : host;
        host += *host == '[';
        stop = host[-1] == '[' ? memchr(host, ']', (size_t) (end - host)) : memchr(host, ':', (size_t) (end - host)) ?: end;
        if (!stop || stop == host)
                return 0;
        rest = (char *) stop + (*stop == ']');
        if (rest < end && *rest == ':' && rest + 1 < end) {
                port = strtoul(rest + 1, &rest, 10);
                if (rest != end || port < 1 || port > UINT16_MAX)
                        return 0;
        }
        return mirror_add(mirrors, host, (size_t) (stop - host), (Mirror) {.port = (uint16_t) port});
}

// "deb [OPTIONS] URI SUITE COMPONENT": the first word with a scheme that is not among the options.
static int mirror_source(Mirrors *mirrors, const char *line) {
        const char *open = line + strcspn(line, " \t"), *close;
        _cleanup_strv_ char **words = NULL;
        int r;

        open += strspn(open, " \t");
        close = *open == '[' ? strchr(open, ']') : NULL;
        r = strv_split(close ? close + 1 : open, " \t", &words);
        for (char **word = words; r >= 0 && word && *word; word++)
                if (strstr(*word, "://"))
                        return mirror_uri(mirrors, *word);
        return r;
}

// "Acquire::http::Proxy "URI";", or for one host "Acquire::http::Proxy::HOST "URI";". "DIRECT" there names a host that is reached without a
// proxy: the way to name what a mirror redirects to.
static int mirror_option(Mirrors *mirrors, const char *line) {
        static const struct {
                const char *prefix;
                uint16_t port;
        } rows[] = {{"Acquire::http::Proxy", 80}, {"Acquire::https::Proxy", 443}};
        _cleanup_free_ char *uri = NULL;
        const char *value = strchr(line, '"');

        for (size_t i = 0; value && i < ELEMENTS(rows); i++) {
                const char *host = line + strlen(rows[i].prefix) + 2;
                if (strncasecmp(line, rows[i].prefix, strlen(rows[i].prefix)) != 0 || (host[-2] != ' ' && strncmp(host - 2, "::", 2) != 0))
                        continue;
                uri = strndup(value + 1, strcspn(value + 1, "\""));
                if (!uri)
                        return -ENOMEM;
                if (host[-2] == ':' && strcspn(host, " ") > 0 && strcasecmp(uri, "DIRECT") == 0)
                        return mirror_add(mirrors, host, strcspn(host, " "), (Mirror) {.port = rows[i].port, .optional = true});
                return mirror_uri(mirrors, uri);
        }
        return 0;
}

static int each_line(Mirrors *mirrors, const char *text, int (*fn)(Mirrors *mirrors, const char *line)) {
        _cleanup_strv_ char **lines = NULL;
        int r = strv_split(text, "\n", &lines);

        for (char **line = lines; r >= 0 && line && *line; line++)
                r = fn(mirrors, *line);
        return r;
}

int mirrors_parse(const char *sources, const char *options, Mirrors *ret, Error *err) {
        Mirrors mirrors = {0};
        int r = each_line(&mirrors, sources, mirror_source);

        if (r >= 0)
                r = each_line(&mirrors, options, mirror_option);
        if (r < 0) {
                mirrors_done(&mirrors);
                return r == -E2BIG ? error_set(err, ERR_QUOTA, "the host's package sources have more than %d hosts", MIRRORS_MAX)
                                   : error_set_errno(err, r, "cannot read the package sources");
        }
        *ret = mirrors;
        return 0;
}

void mirrors_done(Mirrors *mirrors) {
        for (size_t i = 0; i < mirrors->n; i++)
                free(mirrors->list[i].host);
        free(mirrors->list);
        *mirrors = (Mirrors) {0};
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Strv: see strv.h.
#include "base/strv.h"

#include <stdarg.h>
#include <string.h>

char **strv_free(char **v) {
        for (char **p = v; p && *p; p++)
                free(*p);
        free(v);
        return NULL;
}

size_t strv_length(char *const *v) {
        size_t n = 0;

        while (v && v[n])
                n++;
        return n;
}

static int strv_take(char ***v, char *text) {
        size_t n = strv_length(*v);
        char **grown;

        if (!text)
                return -ENOMEM;
        grown = reallocarray(*v, n + 2, sizeof(char *));
        if (!grown) {
                free(text);
                return -ENOMEM;
        }
        grown[n] = text;
        grown[n + 1] = NULL;
        *v = grown;
        return 0;
}

int strv_append(char ***v, const char *text) {
        return strv_take(v, strdup(text));
}

int strv_append_format(char ***v, const char *format, ...) {
        char *text = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        return strv_take(v, text);
}

bool strv_contains(char *const *v, const char *text) {
        for (; v && *v; v++)
                if (strcmp(*v, text) == 0)
                        return true;
        return false;
}

bool strv_equal(char *const *a, char *const *b) {
        size_t n = strv_length(a);

        if (n != strv_length(b))
                return false;
        for (size_t i = 0; i < n; i++)
                if (strcmp(a[i], b[i]) != 0)
                        return false;
        return true;
}

bool text_equal(const char *a, const char *b) {
        return a == b || (a && b && strcmp(a, b) == 0);
}

char **strv_copy(char *const *v) {
        char **copy = NULL;

        for (; v && *v; v++)
                if (strv_append(&copy, *v) < 0)
                        return strv_free(copy);
        return copy;
}

char *strv_join(char *const *v, const char *separator) {
        size_t size = 1;
        char *out, *p;

        for (size_t i = 0; v && v[i]; i++)
                size += strlen(v[i]) + strlen(separator);
        out = p = malloc(size);
        if (!out)
                return NULL;
        *p = 0;
        for (size_t i = 0; v && v[i]; i++) {
                if (i)
                        p = stpcpy(p, separator);
                p = stpcpy(p, v[i]);
        }
        return out;
}

int strv_split(const char *text, const char *separators, char ***ret) {
        _cleanup_strv_ char **v = NULL;

        for (const char *p = text; *p;) {
                size_t n = strcspn(p, separators);
                if (n > 0) {
                        int r = strv_take(&v, strndup(p, n));
                        if (r < 0)
                                return r;
                }
                p += n;
                p += strspn(p, separators);
        }
        *ret = TAKE_PTR(v);
        return 0;
}

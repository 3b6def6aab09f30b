// SPDX-License-Identifier: GPL-2.0-or-later
// Name: see name.h.
#include "network/name.h"

#include <string.h>

#include "base/valid.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz"

static size_t label_bytes(const char *p) {
        size_t n = 0;

        while ((p[n] >= 'a' && p[n] <= 'z') || (p[n] >= '0' && p[n] <= '9') || p[n] == '-' || p[n] == '_')
                n++;
        return n;
}

// What is wrong with a name, or NULL.
static const char *name_fault(const char *name) {
        size_t size = strlen(name), label;

        if (size == 0)
                return "is empty";
        if (size >= NAME_TEXT_MAX)
                return "is longer than 253 bytes";
        if (name[size - 1] == '.')
                return "ends with a dot: write it without";
        for (const char *p = name;; p += label + 1) {
                label = strcspn(p, ".");
                if (label == 0)
                        return "has an empty label";
                if (label > NAME_LABEL_MAX)
                        return "has a label longer than 63 bytes";
                if (label_bytes(p) < label)
                        return "may only have lower-case letters, digits, '-', '_' and dots (international names as \"xn--…\")";
                if (p[0] == '-' || p[label - 1] == '-')
                        return "has a label that begins or ends with '-'";
                if (p[label] == 0)
                        return strchr(LETTERS, p[0]) ? NULL : "does not end with a label that begins with a letter";
        }
}

int name_normalise(const void *text, size_t size, char ret[NAME_TEXT_MAX]) {
        const unsigned char *bytes = text;
        char name[NAME_TEXT_MAX];

        if (size >= sizeof(name) || memchr(bytes, 0, size))
                return -EINVAL;
        for (size_t i = 0; i < size; i++)
                name[i] = (char) (bytes[i] >= 'A' && bytes[i] <= 'Z' ? bytes[i] - 'A' + 'a' : bytes[i]);
        name[size] = 0;
        if (name_fault(name))
                return -EINVAL;
        memcpy(ret, name, size + 1);
        return 0;
}

const char *name_parent(const char *name) {
        const char *dot = strchr(name, '.');

        return dot ? dot + 1 : NULL;
}

bool name_is_below(const char *name, const char *zone) {
        size_t n = strlen(name), z = strlen(zone);

        return n > z + 1 && name[n - z - 1] == '.' && strcmp(name + n - z, zone) == 0;
}

// An address of IPv6 with a port has brackets; without them all of it is address.
int name_split_port(const char *text, char ret_host[NAME_TEXT_MAX], uint16_t *ret_port) {
        bool brackets = text[0] == '[';
        const char *host = text + brackets, *end = brackets ? strchr(text, ']') : strchr(text, ':'), *port = NULL;
        size_t digits;

        if (brackets && (!end || (end[1] && end[1] != ':')))
                return -EINVAL;
        if (brackets)
                port = end[1] ? end + 2 : NULL;
        else if (end && !strchr(end + 1, ':'))
                port = end + 1;
        else
                end = text + strlen(text);
        if (end == host || end - host >= NAME_TEXT_MAX)
                return -EINVAL;
        digits = port ? strspn(port, "0123456789") : 0;
        if (port && (digits == 0 || digits > 5 || port[digits] || strtoul(port, NULL, 10) < 1 || strtoul(port, NULL, 10) > UINT16_MAX))
                return -EINVAL;
        memcpy(ret_host, host, (size_t) (end - host));
        ret_host[end - host] = 0;
        *ret_port = (uint16_t) (port ? strtoul(port, NULL, 10) : 0);
        return 0;
}

NameKind name_kind(const char *pattern) {
        if (pattern[0] != '*')
                return NAME_EXACT;
        return pattern[1] == 0 ? NAME_ANY : NAME_SUFFIX;
}

static int name_check(const char *field, const char *name, Error *err) {
        const char *fault = name ? name_fault(name) : "is missing";
        _cleanup_free_ char *shown = NULL;

        if (!fault && !strchr(name, '.'))
                fault = "has one label only: a host name has two at least, and a category is written with '@'";
        if (!fault)
                return 0;
        shown = valid_printable(name ?: "");
        return error_set_field(err, field, "%s \"%s\" is no host name: it %s", field, shown ?: "", fault);
}

int name_pattern_check(const char *field, const char *pattern, Error *err) {
        if (!pattern || name_kind(pattern) == NAME_EXACT)
                return name_check(field, pattern, err);
        if (name_kind(pattern) == NAME_ANY)
                return 0;
        if (pattern[1] != '.' || name_fault(pattern + 2)) {
                _cleanup_free_ char *shown = valid_printable(pattern);
                return error_set_field(err, field, "%s \"%s\" is no pattern: a star stands alone, or before a dot and a name, as in \"*.example.org\"",
                                       field, shown ?: "");
        }
        return 0;
}

bool name_pattern_matches(const char *pattern, const char *name) {
        switch (name_kind(pattern)) {
        case NAME_EXACT:
                return strcmp(pattern, name) == 0;
        case NAME_SUFFIX:
                return name_is_below(name, pattern + 2);
        case NAME_ANY:
                return true;
        }
        return false;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Valid: one row per kind of string; the walkers are small, the facts are in the table.
#include "base/valid.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

// Decodes one code point of at most `size` bytes; returns its length or 0 (overlong, surrogate, out of range).
static size_t utf8_decode(const unsigned char *s, size_t size, uint32_t *ret) {
        static const struct {
                unsigned char mask, lead;
                uint32_t min;
        } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

        if (s[0] < 0x80) {
                *ret = s[0];
                return 1;
        }
        for (size_t n = 1; n < ELEMENTS(forms); n++) {
                if ((s[0] & forms[n].mask) != forms[n].lead)
                        continue;
                if (n + 1 > size)
                        return 0;
                uint32_t c = s[0] & (unsigned char) ~forms[n].mask;
                for (size_t i = 1; i <= n; i++) {
                        if ((s[i] & 0xc0) != 0x80)
                                return 0;
                        c = c << 6 | (s[i] & 0x3f);
                }
                if (c < forms[n].min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                        return 0;
                *ret = c;
                return n + 1;
        }
        return 0;
}

bool valid_utf8(const char *text, size_t size) {
        const unsigned char *s = (const unsigned char *) text;
        uint32_t c;

        for (size_t i = 0; i < size;) {
                size_t n = utf8_decode(s + i, size - i, &c);
                if (n == 0)
                        return false;
                i += n;
        }
        return true;
}

static bool is_control(uint32_t c) {
        // U+2028/9 and the bidirectional overrides end or reorder a line on many terminals.
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
               (c >= 0x2066 && c <= 0x2069);
}

static bool text_plain(const char *value, const char *reject) {
        size_t size = strlen(value);
        uint32_t c;

        for (size_t i = 0; i < size;) {
                size_t n = utf8_decode((const unsigned char *) value + i, size - i, &c);
                if (n == 0 || is_control(c) || (c < 0x80 && strchr(reject, (int) c)))
                        return false;
                i += n;
        }
        return true;
}

static bool check_text(const char *v) {
        return text_plain(v, "");
}

static bool check_label_value(const char *v) {
        return text_plain(v, "\"'\\");
}

static bool check_argument(const char *v) {
        return valid_utf8(v, strlen(v));
}

static bool check_template(const char *v) {
        return valid_is(VALID_NAME, v) || valid_is(VALID_DIGEST, v);
}

static bool check_digest(const char *v) {
        return strlen(v) == 64 && strspn(v, DIGIT "abcdef") == 64;
}

static bool check_user(const char *v) {
        if (isdigit((unsigned char) v[0]))
                return strspn(v, DIGIT) == strlen(v) && strlen(v) <= 9;
        return strchr(LOWER "_", v[0]) && strspn(v, LOWER DIGIT "_-") == strlen(v);
}

static bool check_path(const char *v) {
        if (v[0] != '/' || !text_plain(v, ""))
                return false;
        if (strstr(v, "//"))
                return false;
        for (const char *p = v; (p = strstr(p, "/.")); p++) {
                const char *q = p + 2;
                if (*q == '.')
                        q++;
                if (*q == '/' || *q == 0)
                        return false;
        }
        return true;
}

// "0-3,7", without blanks.
static bool check_ranges(const char *v, unsigned long min, unsigned long max) {
        for (;;) {
                char *end;
                if (!isdigit((unsigned char) *v))
                        return false;
                unsigned long a = strtoul(v, &end, 10), b = a;
                if (*end == '-') {
                        if (!isdigit((unsigned char) end[1]))
                                return false;
                        b = strtoul(end + 1, &end, 10);
                }
                if (a < min || b < a || b > max)
                        return false;
                if (*end == 0)
                        return true;
                if (*end != ',')
                        return false;
                v = end + 1;
        }
}

static bool check_cpuset(const char *v) {
        return check_ranges(v, 0, 8191);
}

static bool check_ifname(const char *v) {
        return strcmp(v, ".") != 0 && strcmp(v, "..") != 0 && strspn(v, LOWER UPPER DIGIT "._-") == strlen(v);
}

static bool check_cidr(const char *v) {
        char address[INET6_ADDRSTRLEN], binary[16];
        const char *slash = strchr(v, '/');
        size_t n = slash ? (size_t) (slash - v) : strlen(v);
        bool six = memchr(v, ':', n) != NULL;

        if (n >= sizeof(address))
                return false;
        memcpy(address, v, n);
        address[n] = 0;
        if (inet_pton(six ? AF_INET6 : AF_INET, address, binary) != 1)
                return false;
        if (!slash)
                return true;
        if (strspn(slash + 1, DIGIT) != strlen(slash + 1) || strlen(slash + 1) > 3 || !slash[1])
                return false;
        return strtoul(slash + 1, NULL, 10) <= (six ? 128 : 32);
}

static bool check_ports(const char *v) {
        return check_ranges(v, 1, 65535);
}

static bool check_package(const char *v) {
        size_t n = strspn(v, LOWER DIGIT "+.-");

        if (n < 2 || !strchr(LOWER DIGIT, v[0]))
                return false;
        if (v[n] == ':') {
                size_t k = strspn(v + n + 1, LOWER DIGIT "-");
                if (k == 0)
                        return false;
                n += 1 + k;
        }
        if (v[n] == '=') {
                size_t k = strspn(v + n + 1, LOWER UPPER DIGIT ".+-:~");
                if (k == 0)
                        return false;
                n += 1 + k;
        }
        return v[n] == 0;
}

static bool check_unit(const char *v) {
        static const char *const suffixes[] = {".service", ".socket", ".timer", ".target", ".mount", ".path", ".slice"};
        size_t n = strlen(v);

        if (v[0] == '.' || strspn(v, LOWER UPPER DIGIT "@._:-") != n)
                return false;
        for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
                size_t k = strlen(suffixes[i]);
                if (n > k && strcmp(v + n - k, suffixes[i]) == 0)
                        return true;
        }
        return false;
}

// Labels of letters, digits, dashes and underscores. A last label of digits only would be an address to some resolvers.
static bool check_host(const char *v) {
        size_t labels = 0;

        for (;;) {
                size_t n = strcspn(v, ".");
                if (n < 1 || n > 63 || v[0] == '-' || v[n - 1] == '-')
                        return false;
                labels++;
                if (v[n] == 0)
                        return labels > 1 && strspn(v, DIGIT) != n;
                v += n + 1;
        }
}

// Two spellings of one path would be two answers of one rule: what a server may decode or fold is not written.
static bool check_url_path(const char *v) {
        if (v[0] != '/' || strspn(v, LOWER UPPER DIGIT "/._~!$&'()*+=:@-") != strlen(v) || strstr(v, "//"))
                return false;
        for (const char *p = v; p; p = strchr(p + 1, '/')) {
                size_t n = strcspn(p + 1, "/");
                if ((n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.'))
                        return false;
        }
        return true;
}

// What hostd-resolver can copy the records of and does not answer anyway; a test holds both lists together.
static bool check_dns_type(const char *v) {
        static const char *const types[] = {"TXT", "NS", "PTR", "CAA", "TLSA", "SSHFP", "NAPTR", "URI", "SMIMEA", "OPENPGPKEY"};

        for (size_t i = 0; i < ELEMENTS(types); i++)
                if (strcmp(types[i], v) == 0)
                        return true;
        return false;
}

typedef struct ValidRow {
        const char *first; // allowed first characters, NULL for any
        const char *rest;  // allowed further characters, NULL for any
        size_t max;        // bytes
        bool empty;        // the empty string is allowed
        bool (*check)(const char *value);
        const char *wanted; // completes "must be …"
} ValidRow;

static const ValidRow valid_table[_VALID_MAX] = {
        [VALID_TEXT] = {NULL, NULL, 1024, true, check_text, "UTF-8 text without control characters, at most 1024 bytes"},
        [VALID_NAME] = {LOWER, LOWER DIGIT "-", 32, false, NULL,
                        "1 to 32 lower-case letters, digits and dashes, beginning with a letter"},
        [VALID_DIGEST] = {NULL, NULL, 64, false, check_digest, "64 lower-case hex digits"},
        [VALID_TEMPLATE] = {NULL, NULL, 64, false, check_template, "a template's name or its digest of 64 hex digits"},
        [VALID_USER] = {NULL, NULL, 32, false, check_user, "a user name or a decimal uid"},
        [VALID_LABEL_KEY] = {LOWER, LOWER DIGIT "._-", 63, false, NULL,
                             "1 to 63 lower-case letters, digits, dots, dashes and underscores, beginning with a letter"},
        [VALID_LABEL_VALUE] = {NULL, NULL, 255, true, check_label_value,
                               "UTF-8 text without control characters, quotes and backslashes, at most 255 bytes"},
        [VALID_PATH] = {NULL, NULL, 4095, false, check_path,
                        "an absolute path without \"..\", \".\", \"//\" and control characters"},
        [VALID_ENV_NAME] = {LOWER UPPER "_", LOWER UPPER DIGIT "_", 128, false, NULL,
                            "letters, digits and underscores, not beginning with a digit"},
        [VALID_CPUSET] = {NULL, NULL, 255, false, check_cpuset, "a list of CPUs such as \"0-3,7\""},
        [VALID_IFNAME] = {NULL, NULL, 15, false, check_ifname, "a network interface name"},
        [VALID_CIDR] = {NULL, NULL, 49, false, check_cidr, "an IPv4 or IPv6 address, with or without a prefix length"},
        [VALID_PORTS] = {NULL, NULL, 255, false, check_ports, "ports such as \"443\" or \"80,8000-8010\""},
        [VALID_PACKAGE] = {NULL, NULL, 255, false, check_package, "a Debian package name"},
        [VALID_UNIT] = {NULL, NULL, 255, false, check_unit, "a systemd unit name with its suffix"},
        [VALID_SUITE] = {LOWER, LOWER DIGIT ".-", 32, false, NULL, "a suite such as \"trixie\""},
        [VALID_ARGUMENT] = {NULL, NULL, 131071, true, check_argument, "UTF-8 text of at most 128 KiB"},
        [VALID_DESTINATION] = {LOWER UPPER DIGIT "*@:_", LOWER UPPER DIGIT ".:/*@_-", 255, false, NULL,
                               "an address, a network, a host name, \"*.suffix\", \"*\" or \"@category\""},
        [VALID_METHOD] = {UPPER, UPPER "-", 16, false, NULL, "an HTTP method in capital letters"},
        [VALID_URL_PATH] = {NULL, NULL, 255, false, check_url_path, "the beginning of a path such as \"/api/v1\", without \"%\", \"?\", \";\", \",\", \"//\" and \"..\""},
        [VALID_ID] = {LOWER DIGIT, LOWER DIGIT, 32, false, NULL, "1 to 32 lower-case letters and digits"},
        [VALID_HOST] = {LOWER DIGIT "_", LOWER DIGIT "_-.", 253, false, check_host, "an exact host name in lower case such as \"api.example.com\""},
        [VALID_HEADER] = {LOWER UPPER, LOWER UPPER DIGIT "-", 64, false, NULL, "letters, digits and dashes, beginning with a letter"},
        [VALID_QUERY] = {NULL, LOWER UPPER DIGIT "_.~-", 64, false, NULL, "letters, digits and any of _ . ~ -"},
        [VALID_DNS_TYPE] = {UPPER, UPPER, 16, false, check_dns_type, "one of TXT, NS, PTR, CAA, TLSA, SSHFP, NAPTR, URI, SMIMEA and OPENPGPKEY"},
        [VALID_REASON] = {NULL, NULL, 200, false, check_text, "UTF-8 text without control characters, 1 to 200 bytes"},
        [VALID_LOGIN] = {NULL, LOWER UPPER DIGIT "._@+-", 64, false, NULL, "letters, digits and any of . _ @ + -"},
};

// strspn() makes its table of the characters anew at each call, which costs more than a short value does; here it is made once.
static bool has_only(ValidKind kind, const char *value) {
        static unsigned char tables[_VALID_MAX][UCHAR_MAX + 1];
        unsigned char *table = tables[kind];

        if (!table[0]) { // NUL ends each value, so its place is free to say that the table is made
                for (const char *p = valid_table[kind].rest; *p; p++)
                        table[(unsigned char) *p] = 1;
                table[0] = 1;
        }
        while (*value && table[(unsigned char) *value])
                value++;
        return *value == 0;
}

bool valid_is(ValidKind kind, const char *value) {
        const ValidRow *row = &valid_table[kind];
        size_t n;

        if (!value)
                return false;
        n = strlen(value);
        if (n == 0)
                return row->empty;
        if (n > row->max)
                return false;
        if (row->first && !strchr(row->first, value[0]))
                return false;
        if (row->rest && !has_only(kind, value))
                return false;
        return !row->check || row->check(value);
}

int valid_check(ValidKind kind, const char *field, const char *value, Error *err) {
        _cleanup_free_ char *shown = NULL;

        if (valid_is(kind, value))
                return 0;
        if (!value)
                return error_set_field(err, field, "%s is missing", field);
        shown = valid_printable(value);
        if (shown && strlen(shown) > 80)
                memcpy(shown + 77, "...", 4);
        return error_set_field(err, field, "%s \"%s\" is not valid: it must be %s", field, shown ?: "",
                               valid_table[kind].wanted);
}

char *valid_printable(const char *text) {
        size_t size = strlen(text), used = 0;
        char *out = malloc(size * 4 + 1);
        uint32_t c;

        if (!out)
                return NULL;
        for (size_t i = 0; i < size;) {
                size_t n = utf8_decode((const unsigned char *) text + i, size - i, &c);
                if (n == 0 || is_control(c)) {
                        n = n ?: 1;
                        for (size_t k = 0; k < n; k++)
                                used += (size_t) snprintf(out + used, 5, "\\x%02x", (unsigned char) text[i + k]);
                } else {
                        memcpy(out + used, text + i, n);
                        used += n;
                }
                i += n;
        }
        out[used] = 0;
        return out;
}

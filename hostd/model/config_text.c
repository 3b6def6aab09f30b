// SPDX-License-Identifier: GPL-2.0-or-later
// ConfigText: see config_text.h.
#include "model/config_text.h"

#include <ctype.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/valid.h"

typedef enum TokenType {
        TOKEN_END,
        TOKEN_WORD, // a name, a number, a boolean
        TOKEN_STRING,
        TOKEN_OPEN,
        TOKEN_CLOSE,
        TOKEN_ASSIGN,
        TOKEN_TERMINATOR,
        TOKEN_BAD,
} TokenType;

typedef struct Token {
        TokenType type;
        const char *start, *end;
        const char *reason; // of TOKEN_BAD
} Token;

// libconfig's own ideas of blanks and of characters that end a word.
#define BLANKS " \t\n\r\f"
enum { BLANK = 1, SPECIAL, END };
static const unsigned char kinds[UCHAR_MAX + 1] = {
        [' '] = BLANK,   ['\t'] = BLANK,  ['\n'] = BLANK,  ['\r'] = BLANK,  ['\f'] = BLANK,  ['"'] = SPECIAL, ['{'] = SPECIAL, ['}'] = SPECIAL, ['('] = SPECIAL,
        [')'] = SPECIAL, ['['] = SPECIAL, [']'] = SPECIAL, ['='] = SPECIAL, [':'] = SPECIAL, [';'] = SPECIAL, [','] = SPECIAL, ['#'] = SPECIAL, [0] = END,
};

static unsigned kind_of(const char *p) {
        return kinds[(unsigned char) *p];
}

// Comments count as blanks. Returns NULL for a comment that does not end.
static const char *skip_blanks(const char *p) {
        for (;;) {
                while (kind_of(p) == BLANK)
                        p++;
                if (p[0] == '#' || (p[0] == '/' && p[1] == '/')) {
                        p += strcspn(p, "\n");
                } else if (p[0] == '/' && p[1] == '*') {
                        p = strstr(p + 2, "*/");
                        if (!p)
                                return NULL;
                        p += 2;
                } else {
                        return p;
                }
        }
}

// From quote to quote. libconfig knows more escapes, but only a quote and a backslash change where the string ends.
static Token scan_string(const char *p) {
        Token token = {TOKEN_STRING, p, NULL, NULL};

        for (p++; *p && *p != '"'; p++) {
                if (*p != '\\' || !p[1])
                        continue;
                p++;
                if ((*p == 'x' || *p == 'X') && p[1] == '0' && p[2] == '0')
                        return (Token) {TOKEN_BAD, p, p, "a string must not contain a NUL byte"};
        }
        if (!*p)
                return (Token) {TOKEN_BAD, token.start, p, "a string is not closed"};
        token.end = p + 1;
        return token;
}

// One token from `p` on. Names, numbers and booleans are all words: libconfig tells them apart.
static Token scan_token(const char *p) {
        static const char characters[] = "{([})]=:;,";
        static const TokenType types[] = {TOKEN_OPEN,   TOKEN_OPEN,   TOKEN_OPEN,       TOKEN_CLOSE,      TOKEN_CLOSE,
                                          TOKEN_CLOSE,  TOKEN_ASSIGN, TOKEN_ASSIGN,     TOKEN_TERMINATOR, TOKEN_TERMINATOR};
        const char *start = p, *c;

        p = skip_blanks(p);
        if (!p)
                return (Token) {TOKEN_BAD, start, start, "a comment is not closed"};
        if (!*p)
                return (Token) {TOKEN_END, p, p, NULL};
        if (*p == '"')
                return scan_string(p);
        c = kind_of(p) == SPECIAL ? strchr(characters, *p) : NULL;
        if (c)
                return (Token) {types[c - characters], p, p + 1, NULL};
        size_t n = 0;
        while (!kind_of(p + n) && !(p[n] == '/' && (p[n + 1] == '/' || p[n + 1] == '*')))
                n++;
        return (Token) {TOKEN_WORD, p, p + n, NULL};
}

// What was wrong inside a token says more than what was expected in its place.
static Token bad_token(Token at, const char *reason) {
        if (at.type == TOKEN_BAD)
                return at;
        return (Token) {TOKEN_BAD, at.start, at.end, reason};
}

// The matching bracket, counted without regard to its shape; a wrong shape is libconfig's to refuse. The depth is bounded
// because both libconfig's parser and its destructor recurse.
static Token scan_brackets(Token token) {
        const char *start = token.start;
        unsigned depth = 1;

        while (depth > 0) {
                token = scan_token(token.end);
                if (token.type == TOKEN_BAD)
                        return token;
                if (token.type == TOKEN_END)
                        return (Token) {TOKEN_BAD, start, start, "a bracket is not closed"};
                if (token.type == TOKEN_OPEN && ++depth > CONFIG_TEXT_DEPTH)
                        return bad_token(token, "brackets are nested too deep");
                if (token.type == TOKEN_CLOSE)
                        depth--;
        }
        return token;
}

// The last token of a value; strings that follow each other are one value.
static Token scan_value(const char *p) {
        Token token = scan_token(p), next;

        switch (token.type) {
        case TOKEN_WORD:
                return token;
        case TOKEN_OPEN:
                return scan_brackets(token);
        case TOKEN_STRING:
                while ((next = scan_token(token.end)).type == TOKEN_STRING)
                        token = next;
                return next.type == TOKEN_BAD ? next : token;
        default:
                return bad_token(token, "a value is missing");
        }
}

// Lines are counted only when something is refused.
static unsigned line_of(const char *text, const char *at) {
        unsigned line = 1;

        for (const char *p = text; p < at; p++)
                line += *p == '\n';
        return line;
}

// A text from a request has no file; then the line alone says where.
static int refuse_at(const ConfigText *ct, unsigned line, const char *reason, Error *err) {
        if (ct->file)
                return error_set(err, ERR_INVALID, "%s:%u: %s", ct->file, line, reason);
        return error_set(err, ERR_INVALID, "line %u: %s", line, reason);
}

static int add_span(ConfigText *ct, const ConfigSpan *span, size_t *room) {
        if (ct->n_spans == *room) {
                size_t grown = *room ? *room * 2 : 32;
                ConfigSpan *spans = reallocarray(ct->spans, grown, sizeof(*spans));
                if (!spans)
                        return -ENOMEM;
                ct->spans = spans;
                *room = grown;
        }
        ct->spans[ct->n_spans++] = *span;
        return 0;
}

// Fills `spans`: KEY = VALUE [;] until the end of the text.
static int scan_settings(ConfigText *ct, const char *text, Error *err) {
        const char *p = text;
        size_t room = 0;

        for (;;) {
                Token name = scan_token(p), token;
                if (name.type == TOKEN_END)
                        return 0;
                token = name.type == TOKEN_WORD ? scan_token(name.end) : bad_token(name, "a key is missing");
                if (name.type == TOKEN_WORD && token.type != TOKEN_ASSIGN)
                        token = bad_token(token, "\"=\" is missing after a key");
                if (token.type != TOKEN_BAD)
                        token = scan_value(token.end);
                if (token.type == TOKEN_BAD)
                        return refuse_at(ct, line_of(text, token.start), token.reason, err);
                p = token.end;
                // One terminator belongs to the setting; a comment before it too.
                token = scan_token(p);
                if (token.type == TOKEN_TERMINATOR)
                        p = token.end;
                ConfigSpan span = {(size_t) (name.start - text), (size_t) (name.end - name.start), (size_t) (p - text)};
                if (add_span(ct, &span, &room) < 0)
                        return error_set_errno(err, ENOMEM, "cannot read the configuration");
        }
}

// libconfig obeys @include at the beginning of a line, whatever stands around it.
static const char *find_include(const char *text) {
        for (const char *p = text; p; p = strchr(p, '\n')) {
                p += strspn(p, BLANKS "\v");
                if (strncasecmp(p, "@include", 8) == 0)
                        return p;
        }
        return NULL;
}

// What can be refused without knowing the language.
static int check_bytes(const ConfigText *ct, const char *text, Error *err) {
        size_t size = strlen(text), good = 0;
        const char *at;

        if (size > CONFIG_TEXT_MAX)
                return refuse_at(ct, 1, "the text is larger than 1 MiB", err);
        if (!valid_utf8(text, size)) {
                // Lines are checked one by one only to say where.
                while (good < size) {
                        size_t n = strcspn(text + good, "\n") + 1;
                        n = MIN2(n, size - good);
                        if (!valid_utf8(text + good, n))
                                break;
                        good += n;
                }
                return refuse_at(ct, line_of(text, text + good), "the text is not valid UTF-8", err);
        }
        at = find_include(text);
        if (at)
                return refuse_at(ct, line_of(text, at), "@include is not supported", err);
        return 0;
}

// The same settings in the same order, or our idea of their extents is wrong.
static int compare_settings(const ConfigText *ct, const char *text, Error *err) {
        const config_setting_t *root = config_root_setting(&ct->config);
        size_t n = (size_t) config_setting_length(root);

        for (size_t i = 0; i < MAX2(n, ct->n_spans); i++) {
                const config_setting_t *setting = i < n ? config_setting_get_elem(root, (unsigned) i) : NULL;
                const ConfigSpan *span = i < ct->n_spans ? &ct->spans[i] : NULL;
                if (setting && span && strlen(config_setting_name(setting)) == span->name_size &&
                    memcmp(config_setting_name(setting), text + span->name, span->name_size) == 0)
                        continue;
                return refuse_at(ct, span ? line_of(text, text + span->name) : 1,
                                 "settings must be separated by \";\" or a new line", err);
        }
        return 0;
}

// The scanner has refused @include already; this is for the day when it and libconfig disagree. Debian 12's version has no
// such hook, so there it looks below a directory that does not exist.
#if LIBCONFIG_VER_MAJOR > 1 || LIBCONFIG_VER_MINOR >= 7
static const char **refuse_include(config_t *config, const char *dir, const char *path, const char **error) {
        *error = "@include is not supported";
        return NULL;
}
#endif

// A whole number that does not fit 32 bits: libconfig 1.5 cuts it off without a word unless an L says that it is long. 1: it
// wants one; -ERANGE: not even that would do.
static int number_is_long(const Token *token) {
        size_t sign = *token->start == '-' || *token->start == '+', size = (size_t) (token->end - token->start);
        bool hex = size > sign + 2 && token->start[sign] == '0' && (token->start[sign + 1] | 0x20) == 'x';
        size_t from = hex ? sign + 2 : sign;
        long long value;

        if (token->type != TOKEN_WORD || from == size || strspn(token->start + from, hex ? "0123456789abcdefABCDEF" : "0123456789") < size - from)
                return 0;
        errno = 0;
        value = strtoll(token->start, NULL, hex ? 16 : 10);
        if (errno)
                return -ERANGE;
        return value < INT32_MIN || value > INT32_MAX;
}

// The shortest number that does not fit has eight hex digits in a row; so hardly any text has to be looked through token by token.
static bool has_long_digits(const char *text) {
        size_t n = 0;

        for (; *text && n < 8; text++)
                n = isxdigit((unsigned char) *text) ? n + 1 : 0;
        return n >= 8;
}

// The text as libconfig 1.5 understands it: long numbers are marked, and a comment on the last line has a newline behind it.
static int text_for_libconfig(const ConfigText *ct, const char *text, char **ret, Error *err) {
        bool has_long = has_long_digits(text);
        const char *from = text;
        char *copy = NULL;
        size_t size;
        FILE *f = open_memstream(&copy, &size);
        int r = 0;

        if (!f)
                return error_set_errno(err, ENOMEM, "cannot read the configuration");
        for (Token token = scan_token(text); has_long && r >= 0 && token.type != TOKEN_END; token = scan_token(token.end)) {
                r = number_is_long(&token);
                if (r > 0)
                        fprintf(f, "%.*sL", (int) (token.end - from), from);
                if (r > 0)
                        from = token.end;
                if (r < 0)
                        r = refuse_at(ct, line_of(text, token.start), "a number is too large", err);
        }
        fprintf(f, "%s\n", from);
        if (fclose(f) != 0 && r >= 0)
                r = error_set_errno(err, ENOMEM, "cannot read the configuration");
        if (r < 0) {
                free(copy);
                return r;
        }
        *ret = copy;
        return 0;
}

int config_text_parse(ConfigText *ret, const char *file, const char *text, Error *err) {
        _cleanup_free_ char *copy = NULL;
        int r;

        ret->file = file;
        r = check_bytes(ret, text, err);
        if (r < 0)
                return r;
        r = scan_settings(ret, text, err);
        if (r >= 0)
                r = text_for_libconfig(ret, text, &copy, err);
        if (r < 0)
                return r;
        config_init(&ret->config);
        ret->ready = true;
#if LIBCONFIG_VER_MAJOR > 1 || LIBCONFIG_VER_MINOR >= 7
        config_set_include_func(&ret->config, refuse_include);
#else
        config_set_include_dir(&ret->config, "/nonexistent");
#endif
        if (config_read_string(&ret->config, copy) != CONFIG_TRUE)
                return refuse_at(ret, (unsigned) MAX2(config_error_line(&ret->config), 1),
                                 config_error_text(&ret->config) ?: "syntax error", err);
        return compare_settings(ret, text, err);
}

void config_text_done(ConfigText *text) {
        if (text->ready)
                config_destroy(&text->config);
        free(text->spans);
        *text = CONFIG_TEXT_NULL;
}

int config_text_locate(const ConfigText *text, const config_setting_t *setting, int r, Error *err) {
        // Without a file there is no text that a person could look at: the field says enough.
        if (text->file)
                (void) error_wrap(err, "%s:%u", text->file, setting ? config_setting_source_line(setting) : 1);
        return r;
}

static const ConfigSpan *find_span(const ConfigText *parsed, const char *text, const char *key) {
        for (size_t i = 0; i < parsed->n_spans; i++) {
                const ConfigSpan *span = &parsed->spans[i];
                if (strlen(key) == span->name_size && memcmp(text + span->name, key, span->name_size) == 0)
                        return span;
        }
        return NULL;
}

// Takes the rest of the line along when nothing else stands on it.
static void widen_to_line(const char *text, size_t *start, size_t *end) {
        size_t a = *start, b = *end;

        while (a > 0 && (text[a - 1] == ' ' || text[a - 1] == '\t'))
                a--;
        b += strspn(text + b, " \t\r");
        if ((a == 0 || text[a - 1] == '\n') && (text[b] == '\n' || !text[b])) {
                *start = a;
                *end = b + (text[b] == '\n');
        }
}

// A replaced setting takes its old one's place with one terminator, whatever stood there; a new one gets a line of its own.
int config_text_edit(const char *text, const ConfigText *parsed, const char *key, const char *value, char **ret) {
        const ConfigSpan *span = find_span(parsed, text, key);
        size_t size = strlen(text), start = span ? span->name : size, end = span ? span->end : size;
        _cleanup_free_ char *setting = NULL;
        bool fresh_line = !span && size > 0 && text[size - 1] != '\n';

        if (value && asprintf(&setting, "%s%s = %s;%s", fresh_line ? "\n" : "", key, value, span ? "" : "\n") < 0) {
                setting = NULL;
                return -ENOMEM;
        }
        if (!value && span)
                widen_to_line(text, &start, &end);
        if (asprintf(ret, "%.*s%s%s", (int) start, text, setting ?: "", text + end) < 0)
                return -ENOMEM;
        return 0;
}

// Control characters never come here: every kind of string that is written refuses them.
char *config_text_quote(const char *value) {
        char *out = malloc(strlen(value) * 2 + 3), *p = out;

        if (!out)
                return NULL;
        *p++ = '"';
        for (; *value; value++) {
                if (*value == '"' || *value == '\\')
                        *p++ = '\\';
                *p++ = *value;
        }
        *p++ = '"';
        *p = 0;
        return out;
}

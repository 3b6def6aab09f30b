// SPDX-License-Identifier: GPL-2.0-or-later
// Args: see args.h. One reader for each kind of parameter, in a table; the walker below knows only options and positions.
#include "cli/args.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"

typedef struct Reader {
        const Method *method;
        char *const *argv; // next word
        Args *args;
        const Param *position; // next positional row, or the end
        bool options_ended;
} Reader;

static const struct {
        const char *method, *syntax;
} syntax_table[] = {
        {"io.hostd.File.Push", "LOCAL... NAME:PATH"},
        {"io.hostd.File.Pull", "NAME:PATH... LOCAL"},
        {"io.hostd.File.List", "NAME:PATH"},
        {"io.hostd.File.Remove", "NAME:PATH..."},
        {"io.hostd.File.Stat", "NAME:PATH..."},
        {"io.hostd.File.Search", "NAME:PATH"},
        {"io.hostd.File.Replace", "NAME:PATH..."},
        {"io.hostd.File.Move", "NAME:PATH... NAME:PATH"},
        {"io.hostd.File.Mkdir", "NAME:PATH..."},
        {"io.hostd.File.Chmod", "MODE NAME:PATH..."},
        {"io.hostd.File.Chown", "USER[:GROUP] NAME:PATH..."},
        {"io.hostd.File.Watch", "NAME:PATH"},
};

const char *args_syntax(const Method *method) {
        for (size_t i = 0; i < ELEMENTS(syntax_table); i++)
                if (strcmp(syntax_table[i].method, method->name) == 0)
                        return syntax_table[i].syntax;
        return NULL;
}

void args_done(Args *args) {
        json_decref(args->parameters);
        json_decref(args->local);
        args->names = strv_free(args->names);
        args->words = strv_free(args->words);
        free(args->socket);
        *args = (Args) {0};
}

char *args_usage(const Method *method) {
        _cleanup_strv_ char **parts = NULL;

        if (args_syntax(method))
                return strdup(args_syntax(method));
        for (const Param *p = method->params; p->name; p++) {
                const char *dots = p->flags & (PARAM_REST | PARAM_MANY) ? "..." : "";
                bool optional = !(p->flags & PARAM_REQUIRED);
                if (p->flags & PARAM_POSITIONAL &&
                    strv_append_format(&parts, "%s%s%s%s", optional ? "[" : "", p->meta, dots, optional ? "]" : "") < 0)
                        return NULL;
        }
        return strv_join(parts, " ");
}

static int read_text(const Param *p, const char *word, json_t **value, Error *err) {
        int r = valid_check(p->valid, p->name, word, err);

        if (r >= 0)
                *value = json_string(word);
        return r;
}

static int read_strings(const Param *p, const char *word, json_t **value, Error *err) {
        json_t *element = NULL;
        int r = read_text(p, word, &element, err);

        if (r < 0)
                return r;
        if (!*value)
                *value = json_array();
        return json_array_append_new(*value, element) < 0 ? -ENOMEM : 0;
}

static int read_signal(const char *word) {
        const char *name = strncasecmp(word, "SIG", 3) == 0 ? word + 3 : word;

        for (int s = 1; s < NSIG; s++) {
                const char *known = sigabbrev_np(s);
                if (known && strcasecmp(known, name) == 0)
                        return s;
        }
        return -EINVAL;
}

static int read_int(const Param *p, const char *word, json_t **value, Error *err) {
        bool octal = strcmp(p->meta, "MODE") == 0; // as chmod(1) reads it
        int64_t max = p->min == 0 && p->max == 0 ? INT64_MAX : p->max;
        char *end;
        long long n;

        errno = 0;
        n = strtoll(word, &end, octal ? 8 : 10);
        if (strcmp(p->meta, "SIGNAL") == 0 && end == word && (n = read_signal(word)) > 0)
                end = (char *) word + strlen(word);
        if (end == word || *end || errno || word[0] == ' ' || word[0] == '+')
                return error_set_field(err, p->name, "%s \"%s\" is not %s", p->name, word,
                                       octal ? "an octal number" : "a whole number");
        if (n < p->min || n > max)
                return error_set_field(err, p->name, "%s must be from %lld to %lld", p->name, (long long) p->min, (long long) max);
        *value = json_integer(n);
        return 0;
}

static int read_size(const Param *p, const char *word, json_t **value, Error *err) {
        uint64_t n;
        int r = size_parse(word, &n);

        if (r < 0)
                return error_set_field(err, p->name, "%s \"%s\" is not a size such as \"8GiB\"", p->name, word);
        *value = json_integer((json_int_t) n);
        return 0;
}

static int read_span(const Param *p, const char *word, json_t **value, Error *err) {
        usec_t n, now = clock_realtime();
        int r = clock_parse_span(word, &n);

        if (r < 0 && p->flags & PARAM_SINCE) {
                r = clock_parse_moment(word, now, &n);
                if (r == -ERANGE)
                        return error_set_field(err, p->name, "%s \"%s\" is still to come", p->name, word);
                if (r < 0)
                        return error_set_field(err, p->name, "%s \"%s\" is neither a time span such as \"2h\" nor a time such as \"14:30\" or \"2026-01-31 14:30\"", p->name, word);
                n = MAX2(now - n, (usec_t) 1);
        }
        if (r < 0 || n > INT64_MAX)
                return error_set_field(err, p->name, "%s \"%s\" is not a time span such as \"90s\" or \"5min\"", p->name, word);
        *value = json_integer((json_int_t) n);
        return 0;
}

static int read_pair(const Param *p, const char *word, json_t **value, Error *err) {
        const char *equals = strchr(word, '=');
        _cleanup_free_ char *key = equals ? strndup(word, (size_t) (equals - word)) : NULL;
        json_t *text = NULL;
        char field[256];
        int r;

        if (!equals)
                return error_set_field(err, p->name, "%s \"%s\" is not %s", p->name, word, p->meta);
        r = valid_check(p->valid == VALID_ARGUMENT ? VALID_ENV_NAME : VALID_LABEL_KEY, p->name, key, err);
        if (r < 0)
                return r;
        snprintf(field, sizeof(field), "%s.%s", p->name, key);
        r = valid_check(p->valid, field, equals + 1, err);
        if (r < 0)
                return r;
        text = json_string(equals + 1);
        if (!*value)
                *value = json_object();
        return json_object_set_new(*value, key, text) < 0 ? -ENOMEM : 0;
}

static int read_bool(const Param *p, const char *word, json_t **value, Error *err) {
        *value = json_true();
        return 0;
}

static int (*const read_table[])(const Param *p, const char *word, json_t **value, Error *err) = {
        [PARAM_STRING] = read_text, [PARAM_STRINGS] = read_strings, [PARAM_INT] = read_int,   [PARAM_SIZE] = read_size,
        [PARAM_SPAN] = read_span,   [PARAM_BOOL] = read_bool,       [PARAM_PAIRS] = read_pair,
};

// Options that may be repeated add to what is there; others may be given once.
static int reader_take(Reader *reader, const Param *p, const char *word, Error *err) {
        json_t *object = p->flags & PARAM_LOCAL ? reader->args->local : reader->args->parameters;
        json_t *value = json_object_get(object, p->name);
        bool collects = p->type == PARAM_STRINGS || p->type == PARAM_PAIRS;
        bool fresh = !value;
        int r;

        if (value && !collects && p->type != PARAM_BOOL)
                return error_set_field(err, p->name, "%s is given twice", p->name);
        r = read_table[p->type](p, word, &value, err);
        if (fresh && r >= 0)
                r = value ? json_object_set(object, p->name, value) : -ENOMEM;
        if (fresh)
                json_decref(value);
        return r < 0 && (!err || err->code == ERR_NONE) ? error_set_errno(err, r, "cannot keep %s", p->name) : r;
}

// Underscores of a key are dashes on the command line.
static bool option_is(const char *name, const char *word, size_t n) {
        if (strlen(name) != n)
                return false;
        for (size_t i = 0; i < n; i++)
                if ((name[i] == '_' ? '-' : name[i]) != word[i])
                        return false;
        return true;
}

static const Param *option_find(const Method *method, const char *word, size_t n, char letter) {
        for (const Param *p = method->params; p->name; p++)
                if (!(p->flags & PARAM_POSITIONAL) && (letter ? p->letter == letter : option_is(p->name, word, n)))
                        return p;
        return NULL;
}

static int reader_unknown(const Reader *reader, const char *word, Error *err) {
        const char *best = NULL;
        size_t distance = 4;

        for (const Param *p = reader->method->params; p->name; p++) {
                size_t d = p->flags & PARAM_POSITIONAL ? SIZE_MAX : words_distance(p->name, word + strspn(word, "-"));
                if (d < distance) {
                        distance = d;
                        best = p->name;
                }
        }
        if (best) {
                _cleanup_free_ char *shown = strdup(best);
                for (char *c = shown; c && *c; c++)
                        *c = *c == '_' ? '-' : *c;
                return error_set(err, ERR_INVALID, "unknown option %s; did you mean --%s?", word, shown ?: best);
        }
        return error_set(err, ERR_INVALID, "unknown option %s; see `hostctl %s --help`", word, reader->method->words);
}

static int reader_value(Reader *reader, const Param *p, const char *attached, const char *shown, Error *err) {
        const char *value = attached;

        if (p->type == PARAM_BOOL)
                return attached ? error_set_field(err, p->name, "%s takes no value", shown) : reader_take(reader, p, "", err);
        if (!value) {
                value = *reader->argv;
                if (!value)
                        return error_set_field(err, p->name, "%s needs a value (%s)", shown, p->meta);
                reader->argv++;
        }
        return reader_take(reader, p, value, err);
}

static int reader_socket(Reader *reader, const char *attached, Error *err) {
        const char *value = attached ?: *reader->argv;

        if (!value)
                return error_set_field(err, "socket", "--socket needs a value (PATH)");
        if (!attached)
                reader->argv++;
        free(reader->args->socket);
        reader->args->socket = strdup(value);
        return reader->args->socket ? 0 : error_set_errno(err, ENOMEM, "--socket");
}

static int reader_long(Reader *reader, const char *word, Error *err) {
        const char *equals = strchr(word, '=');
        size_t n = equals ? (size_t) (equals - word) - 2 : strlen(word) - 2;
        const Param *p = option_find(reader->method, word + 2, n, 0);

        if (option_is("help", word + 2, n)) {
                reader->args->help = true;
                return 0;
        }
        if (option_is("socket", word + 2, n))
                return reader_socket(reader, equals ? equals + 1 : NULL, err);
        if (option_is("all", word + 2, n) && reader->method->flags & METHOD_ALL) {
                reader->args->all = true;
                return 0;
        }
        return p ? reader_value(reader, p, equals ? equals + 1 : NULL, word, err) : reader_unknown(reader, word, err);
}

static int reader_short(Reader *reader, const char *word, Error *err) {
        int r = 0;

        for (const char *c = word + 1; *c && r >= 0; c++) {
                const Param *p = option_find(reader->method, NULL, 0, *c);
                if (!p && *c == 'h') {
                        reader->args->help = true;
                        return 0;
                }
                if (!p)
                        return reader_unknown(reader, word, err);
                if (p->type != PARAM_BOOL)
                        return reader_value(reader, p, c[1] ? c + 1 : NULL, word, err);
                r = reader_take(reader, p, "", err);
        }
        return r;
}

static void reader_skip_options(Reader *reader) {
        while (reader->position->name && !(reader->position->flags & PARAM_POSITIONAL))
                reader->position++;
}

static int reader_word(Reader *reader, const char *word, Error *err) {
        const Param *p = reader->position;
        int r;

        if (args_syntax(reader->method))
                return strv_append(&reader->args->words, word) < 0 ? error_set_errno(err, ENOMEM, "%s", word) : 0;
        if (!p->name)
                return error_set(err, ERR_INVALID, "unexpected word \"%s\"; see `hostctl %s --help`", word, reader->method->words);
        if (p->flags & PARAM_MANY) {
                r = valid_check(p->valid, p->name, word, err);
                if (r < 0)
                        return r;
                reader->args->many = p->name;
                return strv_append(&reader->args->names, word) < 0 ? error_set_errno(err, ENOMEM, "%s", word) : 0;
        }
        // What follows is another program's command line; its options are its own.
        if (p->flags & PARAM_REST && p->valid == VALID_ARGUMENT)
                reader->options_ended = true;
        r = reader_take(reader, p, word, err);
        if (r >= 0 && !(p->flags & PARAM_REST)) {
                reader->position++;
                reader_skip_options(reader);
        }
        return r;
}

static int args_complete(Args *args, Error *err) {
        const Method *method = args->method;

        if (args->help || args_syntax(method))
                return 0;
        for (const Param *p = method->params; p->name; p++) {
                bool given = json_object_get(p->flags & PARAM_LOCAL ? args->local : args->parameters, p->name) ||
                             (p->flags & PARAM_MANY && (args->names || args->all));
                if (p->flags & PARAM_MANY)
                        args->many = p->name;
                if (!given && p->flags & PARAM_REQUIRED) {
                        _cleanup_free_ char *usage = args_usage(method);
                        return error_set_field(err, p->name, "%s%s is missing; usage: hostctl %s %s",
                                               p->flags & PARAM_POSITIONAL ? "" : "--",
                                               p->flags & PARAM_POSITIONAL ? p->meta : p->name, method->words, usage ?: "");
                }
        }
        if (args->all && args->names)
                return error_set(err, ERR_INVALID, "give names or --all, not both");
        return 0;
}

int args_parse(const Method *method, char *const *argv, Args *ret, Error *err) {
        _cleanup_args_ Args args = {.method = method, .parameters = json_object(), .local = json_object()};
        Reader reader = {.method = method, .argv = argv, .args = &args, .position = method->params};
        int r = 0;

        reader_skip_options(&reader);
        while (*reader.argv && r >= 0) {
                const char *word = *reader.argv++;
                if (reader.options_ended || word[0] != '-' || !word[1])
                        r = reader_word(&reader, word, err);
                else if (strcmp(word, "--") == 0)
                        reader.options_ended = true;
                else if (word[1] == '-')
                        r = reader_long(&reader, word, err);
                else
                        r = reader_short(&reader, word, err);
        }
        if (r >= 0)
                r = args_complete(&args, err);
        if (r < 0)
                return r;
        *ret = args;
        args = (Args) {0};
        return 0;
}

const char *args_local_string(const Args *args, const char *name) {
        return json_string_value(json_object_get(args->local, name));
}

bool args_local_bool(const Args *args, const char *name) {
        return json_is_true(json_object_get(args->local, name));
}

int args_split_location(const char *word, char **ret_name, char **ret_path, Error *err) {
        const char *colon = strchr(word, ':');
        _cleanup_free_ char *name = colon ? strndup(word, (size_t) (colon - word)) : NULL;
        int r;

        if (!colon)
                return error_set_field(err, "path", "\"%s\" is not NAME:PATH", word);
        r = valid_check(VALID_NAME, "name", name, err);
        if (r < 0)
                return r;
        r = valid_check(VALID_PATH, "path", colon + 1, err);
        if (r < 0)
                return r;
        *ret_path = strdup(colon + 1);
        if (!*ret_path)
                return error_set_errno(err, ENOMEM, "%s", word);
        *ret_name = TAKE_PTR(name);
        return 0;
}

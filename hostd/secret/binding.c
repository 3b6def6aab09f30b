// SPDX-License-Identifier: GPL-2.0-or-later
// Binding: see binding.h. One value of the store each, "binding/ID", as JSON; what is read is checked as what was asked.
#include "secret/binding.h"

#include <string.h>
#include <strings.h>

#include "base/digest.h"
#include "base/strv.h"
#include "base/valid.h"

#define PREFIX "binding/"

static const char *const place_names[_BINDING_PLACE_MAX] = {
        [BINDING_HEADER] = "header",
        [BINDING_BASIC] = "basic",
        [BINDING_QUERY] = "query",
        [BINDING_FILE] = "file",
};

const char *binding_place_to_string(BindingPlace place) {
        return place_names[place];
}

BindingPlace binding_place_from_string(const char *text) {
        for (int i = 0; i < _BINDING_PLACE_MAX; i++)
                if (text && strcmp(place_names[i], text) == 0)
                        return i;
        return _BINDING_PLACE_INVALID;
}

Binding *binding_free(Binding *b) {
        if (!b)
                return NULL;
        free(b->host);
        free(b->field);
        free(b->word);
        free(b->user);
        strv_free(b->methods);
        strv_free(b->paths);
        free(b);
        return NULL;
}

void bindings_free(Binding **bindings, size_t n) {
        for (size_t i = 0; bindings && i < n; i++)
                (void) binding_free(bindings[i]);
        free(bindings);
}

// ---- checks ----

// What frames a request or names its target is not a place for a credential.
static bool header_is_framing(const char *name) {
        static const char *const names[] = {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
                                            "proxy-connection", "proxy-authorization", "http2-settings"};

        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (strcasecmp(names[i], name) == 0)
                        return true;
        return false;
}

static int check_list(char *const *list, ValidKind kind, const char *field, size_t max, Error *err) {
        if (strv_length(list) > max)
                return error_set_field(err, field, "%s has more than %zu entries", field, max);
        for (char *const *s = list; s && *s; s++) {
                int r = valid_check(kind, field, *s, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

// Narrower than what a URL may have: these words stand in a configuration of another program.
static int check_paths(char *const *paths, Error *err) {
        static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_.~-";
        int r = check_list(paths, VALID_URL_PATH, "paths", BINDING_PATHS_MAX, err);

        for (char *const *s = paths; r == 0 && s && *s; s++)
                if (strspn(*s, plain) != strlen(*s) || strstr(*s, "/."))
                        r = error_set_field(err, "paths", "paths \"%s\" is not valid: a path of a grant has letters, digits and any of / _ . ~ -, and no segment begins with a dot", *s);
        return r;
}

static int check_place(const Binding *b, Error *err) {
        int r = 0;

        if (b->place < 0 || b->place >= _BINDING_PLACE_MAX)
                return error_set_field(err, "header", "a place is needed: --header NAME, --basic, --query NAME or --file");
        if (b->place != BINDING_BASIC)
                r = valid_check(b->place == BINDING_HEADER ? VALID_HEADER : VALID_QUERY, binding_place_to_string(b->place), b->field, err);
        else if (b->field)
                r = error_set_field(err, "basic", "basic has no name");
        if (r < 0)
                return r;
        if (b->place == BINDING_HEADER && header_is_framing(b->field))
                return error_set_field(err, "header", "header \"%s\" is part of how requests are framed: no credential belongs there", b->field);
        if (b->inject && b->place == BINDING_QUERY)
                return error_set_field(err, "inject", "a query parameter needs a placeholder: inject is for headers");
        return 0;
}

static int check_inject(const Binding *b, Error *err) {
        bool user = b->inject && b->place == BINDING_BASIC;
        int r;

        if (b->word && (!b->inject || b->place != BINDING_HEADER))
                return error_set_field(err, "word", "word is for a header that is injected: the workload writes its own in front of a placeholder");
        r = b->word ? valid_check(VALID_HEADER, "word", b->word, err) : 0;
        if (r < 0)
                return r;
        if (b->user && !user)
                return error_set_field(err, "login", "login is for an injected Basic: the workload writes its own in front of a placeholder");
        return user ? valid_check(VALID_LOGIN, "login", b->user, err) : 0;
}

static int check_placeholder(const Binding *b, Error *err) {
        size_t n = strlen(BINDING_PLACEHOLDER);

        if (b->inject || b->place == BINDING_FILE ? *b->placeholder == 0
                      : strncmp(b->placeholder, BINDING_PLACEHOLDER, n) == 0 && strlen(b->placeholder) == n + 32 && valid_is(VALID_ID, b->placeholder + n))
                return 0;
        return error_set(err, ERR_INVALID, "the placeholder of binding %s is not valid", b->id);
}

// What speaks of requests is not silently left out.
static int check_file(const Binding *b, Error *err) {
        if (b->host || b->port || b->field || b->word || b->user || b->inject || strv_length(b->methods) > 0 || strv_length(b->paths) > 0)
                return error_set_field(err, "file", "a file has an owner and a time, and nothing that requests have");
        return b->owner <= BINDING_OWNER_MAX ? check_placeholder(b, err) : error_set_field(err, "owner", "owner must be 0 to %d", BINDING_OWNER_MAX);
}

static int check_host(const Binding *b, Error *err) {
        if (!b->host)
                return error_set_field(err, "host", "a host is needed: --host NAME");
        if (b->owner)
                return error_set_field(err, "owner", "only a file has an owner");
        return valid_check(VALID_HOST, "host", b->host, err);
}

int binding_check(const Binding *b, Error *err) {
        int r = valid_check(VALID_ID, "id", b->id, err);

        if (r == 0)
                r = valid_check(VALID_NAME, "secret", b->secret, err);
        if (r == 0)
                r = valid_check(VALID_NAME, "name", b->instance, err);
        if (r < 0 || b->place == BINDING_FILE)
                return r < 0 ? r : check_file(b, err);
        r = check_host(b, err);
        if (r == 0 && b->port == 0)
                r = error_set_field(err, "port", "port must be 1 to 65535");
        if (r == 0)
                r = check_place(b, err);
        if (r == 0)
                r = check_inject(b, err);
        if (r == 0)
                r = check_list(b->methods, VALID_METHOD, "methods", BINDING_METHODS_MAX, err);
        if (r == 0)
                r = check_paths(b->paths, err);
        return r < 0 ? r : check_placeholder(b, err);
}

// A line break in a value would be a header of the value's own making.
int binding_check_value(const Binding *b, const Value *value, Error *err) {
        if (b->place == BINDING_FILE)
                return 0;
        if (value->size > BINDING_VALUE_MAX)
                return error_set(err, ERR_INVALID, "secret \"%s\" has %zu bytes: %d fit into a request", b->secret, value->size, BINDING_VALUE_MAX);
        for (size_t i = 0; i < value->size; i++)
                if (value->data[i] < 0x20 || value->data[i] > 0x7e)
                        return error_set(err, ERR_INVALID, "secret \"%s\" has bytes that are not printable ASCII (a line break?): it cannot stand in a request", b->secret);
        if (value->size == 0 || value->data[0] == ' ' || value->data[value->size - 1] == ' ')
                return error_set(err, ERR_INVALID, "secret \"%s\" begins or ends with a blank: it cannot stand in a request", b->secret);
        return 0;
}

bool binding_is_over(const Binding *b, usec_t now) {
        return b->until > 0 && b->until <= now;
}

static const char *place_field(const Binding *b) {
        return b->place == BINDING_BASIC ? "authorization" : b->field;
}

// Placeholders tell themselves apart, so any number of them may wait in one place.
bool binding_clashes(const Binding *a, const Binding *b) {
        if (a->place == BINDING_FILE || b->place == BINDING_FILE)
                return a->place == b->place && strcmp(a->instance, b->instance) == 0 && strcmp(a->secret, b->secret) == 0;
        if (!a->inject && !b->inject)
                return false;
        return strcmp(a->instance, b->instance) == 0 && strcmp(a->host, b->host) == 0 && a->port == b->port &&
               (a->place == BINDING_QUERY) == (b->place == BINDING_QUERY) && strcasecmp(place_field(a), place_field(b)) == 0;
}

// ---- records ----

static json_t *strv_to_json(char *const *v) {
        json_t *list = json_array();

        for (; v && *v; v++)
                (void) json_array_append_new(list, json_string(*v));
        return list;
}

json_t *binding_to_json(const Binding *b) {
        return json_pack("{s:s, s:s, s:s, s:s*, s:i, s:s, s:I, s:b, s:s*, s:s*, s:s*, s:o, s:o, s:s, s:I, s:I}", "id", b->id, "secret", b->secret, "instance",
                         b->instance, "host", b->host, "port", (int) b->port, "place", binding_place_to_string(b->place), "owner", (json_int_t) b->owner, "inject",
                         b->inject, "field", b->field,
                         "word", b->word, "login", b->user, "methods", strv_to_json(b->methods), "paths", strv_to_json(b->paths), "placeholder",
                         b->placeholder, "created", (json_int_t) b->created, "until", (json_int_t) b->until);
}

static int text_from_json(const json_t *object, const char *key, char **ret) {
        const char *text = json_string_value(json_object_get(object, key));

        return !text || (*ret = strdup(text)) ? 0 : -ENOMEM;
}

static int strv_from_json(const json_t *object, const char *key, char ***ret) {
        json_t *value;
        size_t i;

        json_array_foreach(json_object_get(object, key), i, value) {
                int r = json_is_string(value) ? strv_append(ret, json_string_value(value)) : -EBADMSG;
                if (r < 0)
                        return r;
        }
        return 0;
}

static void fixed_from_json(const json_t *object, const char *key, char *ret, size_t size) {
        (void) snprintf(ret, size, "%s", json_string_value(json_object_get(object, key)) ?: "");
}

static int binding_from_json(const json_t *object, Binding **ret) {
        _cleanup_(binding_freep) Binding *b = calloc(1, sizeof(Binding));
        json_int_t port = json_integer_value(json_object_get(object, "port")), created = json_integer_value(json_object_get(object, "created")),
                   until = json_integer_value(json_object_get(object, "until")), owner = json_integer_value(json_object_get(object, "owner"));
        int r;

        if (!b)
                return -ENOMEM;
        fixed_from_json(object, "id", b->id, sizeof(b->id));
        fixed_from_json(object, "secret", b->secret, sizeof(b->secret));
        fixed_from_json(object, "instance", b->instance, sizeof(b->instance));
        fixed_from_json(object, "placeholder", b->placeholder, sizeof(b->placeholder));
        b->port = port > 0 && port <= UINT16_MAX ? (uint16_t) port : 0;
        b->owner = owner >= 0 && owner <= BINDING_OWNER_MAX ? (uint32_t) owner : UINT32_MAX;
        b->created = created > 0 ? (usec_t) created : 0;
        b->until = until > 0 ? (usec_t) until : 0;
        b->place = binding_place_from_string(json_string_value(json_object_get(object, "place")));
        b->inject = json_is_true(json_object_get(object, "inject"));
        if (text_from_json(object, "host", &b->host) < 0 || text_from_json(object, "field", &b->field) < 0 || text_from_json(object, "word", &b->word) < 0 ||
            text_from_json(object, "login", &b->user) < 0)
                return -ENOMEM;
        r = strv_from_json(object, "methods", &b->methods);
        if (r >= 0)
                r = strv_from_json(object, "paths", &b->paths);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(b);
        return 0;
}

int binding_add(const Vault *vault, Binding *b, Binding *const *others, size_t n_others, Error *err) {
        _cleanup_free_ char *text = NULL;
        char key[32];
        json_t *object;
        int r;

        (void) digest_random(8, b->id);
        (void) snprintf(b->placeholder, sizeof(b->placeholder), BINDING_PLACEHOLDER);
        if (b->inject || b->place == BINDING_FILE)
                b->placeholder[0] = 0;
        else
                (void) digest_random(16, b->placeholder + strlen(BINDING_PLACEHOLDER));
        b->created = clock_realtime();
        r = binding_check(b, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_others; i++)
                if (binding_clashes(b, others[i]) && b->place == BINDING_FILE)
                        return error_set(err, ERR_EXISTS, "secret \"%s\" is a file in %s already (binding %s)", b->secret, b->instance, others[i]->id);
                else if (binding_clashes(b, others[i]))
                        return error_set(err, ERR_CONFLICT, "binding %s (secret \"%s\") already writes this place of requests of %s to %s:%u", others[i]->id,
                                         others[i]->secret, b->instance, b->host, b->port);
        object = binding_to_json(b);
        text = object ? json_dumps(object, JSON_COMPACT) : NULL;
        json_decref(object);
        if (!text)
                return error_set_errno(err, ENOMEM, "cannot keep the binding");
        (void) snprintf(key, sizeof(key), PREFIX "%s", b->id);
        return store_value_keep(vault->store, key, text, err);
}

int binding_remove(const Vault *vault, const char *id, Error *err) {
        char key[48];

        (void) snprintf(key, sizeof(key), PREFIX "%.32s", id);
        return store_value_keep(vault->store, key, NULL, err);
}

// -EBADMSG: damaged.
static int binding_read(const Vault *vault, const char *key, Binding **ret, Error *err) {
        _cleanup_(binding_freep) Binding *b = NULL;
        _cleanup_free_ char *text = NULL;
        json_t *object;
        int r = store_value_get(vault->store, key, &text, err);

        if (r < 0)
                return r;
        object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        r = object ? binding_from_json(object, &b) : -EBADMSG;
        json_decref(object);
        if (r < 0)
                return r;
        if (binding_check(b, NULL) < 0 || strcmp(key + strlen(PREFIX), b->id) != 0)
                return -EBADMSG;
        *ret = TAKE_PTR(b);
        return 0;
}

int binding_list(const Vault *vault, Binding ***ret, size_t *ret_n, unsigned *ret_damaged, Error *err) {
        _cleanup_strv_ char **keys = NULL;
        Binding **list;
        size_t n = 0;
        int r = store_value_list(vault->store, PREFIX, &keys, err);

        if (r < 0)
                return r;
        list = calloc(strv_length(keys) + 1, sizeof(Binding *));
        if (!list)
                return error_set_errno(err, ENOMEM, "cannot list the bindings");
        *ret_damaged = 0;
        for (char **key = keys; key && *key; key++) {
                r = binding_read(vault, *key, &list[n], err);
                if (r == -EBADMSG)
                        (*ret_damaged)++;
                else if (r < 0) {
                        bindings_free(list, n);
                        return r;
                } else
                        n++;
        }
        *ret = list;
        *ret_n = n;
        return 0;
}

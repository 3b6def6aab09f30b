// SPDX-License-Identifier: GPL-2.0-or-later
// Handlers, secrets: values come by a pipe and never leave again; what is answered and recorded are names.
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "core/delivery.h"
#include "core/handle.h"
#include "core/interceptor.h"
#include "core/minting.h"
#include "core/secrets.h"
#include "guest/proto.h"
#include "secret/ca.h"

static Secrets *secrets_of(Request *request) {
        if (!request->manager->secrets)
                request_failf(request, ERR_UNAVAILABLE, "hostd runs without secrets: see \"hostctl warning list\"");
        return request->manager->secrets;
}

// The caller has written the value and closed its end before it called: nothing here waits for anybody.
static int value_read(int fd, Value **ret, Error *err) {
        _cleanup_(value_freep) Value *value = NULL;
        struct stat st;
        size_t n = 0;

        if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode) || io_set_nonblock(fd, true) < 0)
                return error_set(err, ERR_INVALID, "the descriptor of a value must be a pipe");
        if (value_new(SEAL_VALUE_MAX + 1, &value) < 0)
                return error_set_errno(err, ENOMEM, "cannot take the value");
        while (n < value->size) {
                ssize_t k = read(fd, value->data + n, value->size - n);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0 && errno == EAGAIN)
                        return error_set(err, ERR_INVALID, "the value must be in the pipe as a whole, and the other end closed, before the call");
                if (k < 0)
                        return error_set_errno(err, errno, "cannot read the value");
                if (k == 0)
                        break;
                n += (size_t) k;
        }
        if (n > SEAL_VALUE_MAX)
                return error_set(err, ERR_INVALID, "the value has more than %d bytes", SEAL_VALUE_MAX);
        value->size = n;
        *ret = TAKE_PTR(value);
        return 0;
}

static void delivered(void *userdata, int r, Error *err) {
        request_release(userdata); // what could not be delivered is a warning, and tried again
}

// So that the next command finds what this one put there.
static void answer_after_delivery(Request *request, Secrets *s, const char *instance) {
        delivery_wait(s, instance, delivered, request_hold(request));
}

static void answer_after_deliveries(Request *request, Secrets *s, const char *secret) {
        for (size_t i = s->n; i < s->n_all; i++)
                if (strcmp(s->bindings[i]->secret, secret) == 0)
                        answer_after_delivery(request, s, s->bindings[i]->instance);
}

static void take_value(Request *request, int (*put)(Secrets *secrets, const char *name, const Value *value, Error *err)) {
        _cleanup_(value_freep) Value *value = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Secrets *s = secrets_of(request);
        Secret secret;
        int r;

        if (!s)
                return;
        request->fds[0] = call_take_fd(request->call, 0);
        r = value_read(request->fds[0], &value, &err);
        if (r >= 0)
                r = put(s, request_string(request, "secret"), value, &err);
        if (r >= 0)
                r = secret_get(&s->vault, request_string(request, "secret"), &secret, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        request_reply(request, json_pack("{s:s, s:I}", "secret", secret.name, "version", (json_int_t) secret.version));
        answer_after_deliveries(request, s, secret.name);
}

static int put_new(Secrets *s, const char *name, const Value *value, Error *err) {
        return secret_add(&s->vault, name, value, err);
}

// The values come from a command from now on; the answer waits for the first one.
static void set_minted(Request *request, const char *command) {
        Secrets *s = secrets_of(request);
        _cleanup_(mint_done) Mint mint = {.life = (usec_t) request_int(request, "for", 3600 * USEC_PER_SEC)};
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!s)
                return;
        (void) snprintf(mint.secret, sizeof(mint.secret), "%s", request_string(request, "secret"));
        (void) snprintf(mint.user, sizeof(mint.user), "%s", request_string(request, "user") ?: MINT_USER);
        mint.command = strdup(command);
        r = mint.command ? minting_add(s, &mint, request_done, request, &err) : -ENOMEM;
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        (void) request_hold(request);
        request_reply(request, json_pack("{s:s, s:I}", "secret", request_string(request, "secret"), "version", (json_int_t) 1));
}

void handle_secret_set(Request *request) {
        const char *command = request_string(request, "command");

        if (command)
                set_minted(request, command);
        else if (request_string(request, "user") || request_int(request, "for", 0))
                request_failf(request, ERR_INVALID, "user and for are of a command that mints the value");
        else
                take_value(request, put_new);
}

void handle_secret_rotate(Request *request) {
        const Mint *mint = request->manager->secrets ? minting_find(request->manager->secrets, request_string(request, "secret")) : NULL;

        if (mint)
                request_failf(request, ERR_CONFLICT, "the values of secret \"%s\" come from %s: revoke it, and set it anew", mint->secret, mint->command);
        else
                take_value(request, secrets_rotate);
}

void handle_secret_revoke(Request *request) {
        Secrets *s = secrets_of(request);
        _cleanup_error_ Error err = ERROR_NULL;
        unsigned ended;
        int r;

        if (!s)
                return;
        r = secrets_revoke(s, request_string(request, "secret"), &ended, &err);
        for (const Delivery *d = s->deliveries; d; d = d->next)
                answer_after_delivery(request, s, d->instance);
        if (r < 0)
                (void) request_fail(request, r, &err);
        else
                request_reply(request, json_pack("{s:i}", "grants_ended", (int) ended));
}

static int count_grants(const Secrets *s, const char *name) {
        int n = 0;

        for (size_t i = 0; i < s->n_all; i++)
                n += strcmp(s->bindings[i]->secret, name) == 0;
        for (size_t i = 0; i < s->n_resting; i++)
                n += strcmp(s->resting[i]->secret, name) == 0;
        return n;
}

static json_t *json_time(usec_t when) {
        char text[CLOCK_TEXT_MAX];

        return when > 0 ? json_string(clock_format(when, text)) : json_null();
}

void handle_secret_list(Request *request) {
        Secrets *s = secrets_of(request);
        _cleanup_free_ Secret *list = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        json_t *rows;
        size_t n = 0;
        int r;

        if (!s)
                return;
        r = secret_list(&s->vault, &list, &n, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        rows = json_array();
        for (size_t i = 0; i < n; i++) {
                const Mint *mint = minting_find(s, list[i].name);
                (void) json_array_append_new(rows, json_pack("{s:s, s:I, s:o, s:o, s:i, s:o, s:s*, s:s*}", "secret", list[i].name, "version",
                                                             (json_int_t) list[i].version, "created", json_time(list[i].created), "rotated",
                                                             json_time(list[i].rotated), "grants", count_grants(s, list[i].name), "ends",
                                                             json_time(mint ? mint->ends : 0), "command", mint ? mint->command : NULL, "user", mint ? mint->user : NULL));
        }
        request_reply(request, json_pack("{s:o}", "secrets", rows));
}

static const char *grant_state(const Secrets *s, const Binding *b, bool rests) {
        if (rests)
                return "expired";
        return b->place == BINDING_FILE ? delivery_state(s, b->instance) : interceptor_state(interceptor_find(s, b->instance));
}

static json_t *grant_json(const Secrets *s, const Binding *b, bool rests) {
        json_t *row = binding_to_json(b);
        _cleanup_free_ char *methods = strv_join(b->methods, ","), *paths = strv_join(b->paths, ",");

        if (!row)
                return NULL;
        (void) json_object_set_new(row, "name", json_string(b->instance));
        (void) json_object_del(row, "instance");
        (void) json_object_set_new(row, "methods", json_string(methods ?: ""));
        (void) json_object_set_new(row, "paths", json_string(paths ?: ""));
        (void) json_object_set_new(row, "created", json_time(b->created));
        (void) json_object_set_new(row, "until", json_time(b->until));
        (void) json_object_set_new(row, "state", json_string(grant_state(s, b, rests)));
        if (b->place == BINDING_FILE) {
                (void) json_object_set_new(row, "field", json_sprintf(GUEST_FILE_SECRETS "/%s", b->secret));
                (void) json_object_del(row, "port");
        } else
                (void) json_object_del(row, "owner");
        return row;
}

void handle_secret_grants(Request *request) {
        const char *name = request_string(request, "name");
        Secrets *s = secrets_of(request);
        json_t *rows = json_array();

        for (size_t i = 0; s && i < s->n_all; i++)
                if (!name || strcmp(s->bindings[i]->instance, name) == 0)
                        (void) json_array_append_new(rows, grant_json(s, s->bindings[i], false));
        for (size_t i = 0; s && i < s->n_resting; i++)
                if (!name || strcmp(s->resting[i]->instance, name) == 0)
                        (void) json_array_append_new(rows, grant_json(s, s->resting[i], true));
        request_reply(request, json_pack("{s:o}", "grants", rows));
}

// The certificate that the instance has to trust; made when nobody has asked before.
void handle_secret_authority(Request *request) {
        Secrets *s = secrets_of(request);
        _cleanup_(ca_freep) Ca *ca = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!s || !request_instance(request))
                return;
        r = ca_open(&s->vault, request_string(request, "name"), clock_realtime(), &ca, &err);
        if (r < 0)
                (void) request_fail(request, r, &err);
        else
                request_reply(request, json_pack("{s:s}", "text", ca->certificate));
}

static int set_text(char **ret, const char *text) {
        return !text || (*ret = strdup(text)) ? 0 : -ENOMEM;
}

static int set_list(const Request *request, const char *key, char ***ret) {
        json_t *value;
        size_t i;

        json_array_foreach(json_object_get(request->parameters, key), i, value)
                if (strv_append(ret, json_string_value(value)) < 0)
                        return -ENOMEM;
        return 0;
}

// Exactly one of the four.
static BindingPlace place_of(const Request *request) {
        const char *header = request_string(request, "header"), *query = request_string(request, "query");
        bool basic = request_bool(request, "basic"), file = request_bool(request, "file");

        if ((header != NULL) + (query != NULL) + basic + file != 1)
                return _BINDING_PLACE_INVALID;
        return header ? BINDING_HEADER : query ? BINDING_QUERY : basic ? BINDING_BASIC : BINDING_FILE;
}

static int binding_of(const Request *request, Binding **ret) {
        _cleanup_(binding_freep) Binding *b = calloc(1, sizeof(Binding));
        int64_t span = request_int(request, "for", 0);

        if (!b)
                return -ENOMEM;
        (void) snprintf(b->secret, sizeof(b->secret), "%s", request_string(request, "secret"));
        (void) snprintf(b->instance, sizeof(b->instance), "%s", request_string(request, "name"));
        b->place = place_of(request);
        b->port = (uint16_t) request_int(request, "port", b->place == BINDING_FILE ? 0 : 443);
        b->owner = (uint32_t) request_int(request, "owner", 0);
        b->inject = request_bool(request, "inject");
        b->until = span > 0 ? clock_realtime() + (usec_t) span : 0;
        if (set_text(&b->host, request_string(request, "host")) < 0 ||
            set_text(&b->field, b->place == BINDING_QUERY ? request_string(request, "query") : request_string(request, "header")) < 0 ||
            set_text(&b->word, request_string(request, "word")) < 0 || set_text(&b->user, request_string(request, "login")) < 0 ||
            set_list(request, "methods", &b->methods) < 0 || set_list(request, "paths", &b->paths) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(b);
        return 0;
}

void handle_secret_grant(Request *request) {
        _cleanup_(binding_freep) Binding *b = NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        Secrets *s = secrets_of(request);
        int r;

        if (!s || !request_instance(request))
                return;
        r = binding_of(request, &b);
        if (r >= 0)
                r = secrets_grant(s, b, &err);
        if (r < 0) {
                (void) request_fail(request, r, &err);
                return;
        }
        (void) json_object_set_new(request->detail, "id", json_string(b->id));
        if (b->place == BINDING_FILE)
                request_reply(request, json_pack("{s:s, s:o}", "id", b->id, "path", json_sprintf(GUEST_FILE_SECRETS "/%s", b->secret)));
        else
                request_reply(request, b->inject ? json_pack("{s:s}", "id", b->id) : json_pack("{s:s, s:s}", "id", b->id, "placeholder", b->placeholder));
        answer_after_delivery(request, s, b->instance);
        b = NULL; // the secrets' own now
}

void handle_secret_ungrant(Request *request) {
        const char *id = request_string(request, "id");
        Secrets *s = secrets_of(request);
        const Binding *b = s ? secrets_find(s, id) : NULL;
        _cleanup_error_ Error err = ERROR_NULL;
        int r;

        if (!s)
                return;
        if (b) {
                (void) json_object_set_new(request->detail, "secret", json_string(b->secret));
                (void) json_object_set_new(request->detail, "name", json_string(b->instance));
        }
        r = secrets_ungrant(s, id, &err);
        for (const Delivery *d = s->deliveries; d; d = d->next)
                answer_after_delivery(request, s, d->instance);
        if (r < 0)
                (void) request_fail(request, r, &err);
}

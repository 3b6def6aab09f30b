// SPDX-License-Identifier: GPL-2.0-or-later
// Haproxy: see haproxy.h.
//
// Each binding is a few rules whose names end in its id. The order counts: first what is refused in any case, then replacements (which look at the
// request as it came, and each at its own place), then whether a placeholder is left.
//
// There is no regular expression in it: HAProxy compiles those to machine code, which hostd's unit forbids itself and all its children.
#include "secret/haproxy.h"

#include <string.h>

#include "base/strv.h"
#include "base/valid.h"

typedef struct Text {
        FILE *f;
        const HaproxyConfig *config;
} Text;

// Buffers hold a request's head with values in it (BINDING_VALUE_MAX), and a value in base64 on the admin socket.
static const char global_text[] =
        "global\n"
        "    nbthread 2\n"
        "    maxconn 1000\n"
        "    hard-stop-after 10s\n"
        "    tune.bufsize 32768\n"
        "    tune.maxrewrite 12288\n"
        "    tune.h2.initial-window-size 1048576\n"
        "    ssl-default-bind-options ssl-min-ver TLSv1.2\n"
        "    ssl-default-server-options ssl-min-ver TLSv1.2\n";

// Streams of models and events are silent for long. What has not even sent a request is not waited for.
static const char defaults_text[] =
        "\ndefaults\n"
        "    mode http\n"
        "    log global\n"
        "    timeout connect 10s\n"
        "    timeout http-request 30s\n"
        "    timeout http-keep-alive 5m\n"
        "    timeout client 1h\n"
        "    timeout server 1h\n"
        "    timeout tunnel 24h\n";

// No path, query or header is logged: they may hold values. What a client wrote is escaped, and of bounded length: the log is on memory of the host's.
static const char log_text[] =
        "    log-format '{\"time\":%Ts.%ms,\"client\":\"%ci\",\"host\":\"%[var(txn.host),bytes(0,64),json(utf8s)]\",\"address\":\"%[dst]\",\"port\":%[dst_port],"
        "\"method\":\"%[var(txn.method),json(utf8s)]\",\"status\":%ST,\"tx\":%U,\"rx\":%B,\"duration_ms\":%Ta,\"state\":\"%ts\",\"redacted\":\"%[var(txn.redacted)]\",\"grants\":\"%[var(txn.used)]\",\"alert\":\"%[var(txn.alert)]\",\"leaked\":\"%[var(txn.leaked)]\"}'\n"
        "    error-log-format '{\"time\":%Ts.%ms,\"client\":\"%ci\",\"host\":\"%[ssl_fc_sni,bytes(0,64),json(utf8s)]\",\"address\":\"%[dst]\",\"port\":%[dst_port],"
        "\"error\":\"%[fc_err_str,json(utf8s)]\"}'\n";

#define AMBIGUOUS "% ; // /. '#' \\\\" // in paths

#define REFUSE(status, reason) "    http-request deny deny_status " status " content-type text/plain string \"hostd: " reason "\" "

// Two Hosts or two credentials are two readings of one request. TRACE gives back what it was sent, values included; in another protocol nobody looks. A dot segment or an escape would make a path in scope into another one at the origin.
static const char checks_text[] =
        "    http-request set-var(txn.method) method,bytes(0,16)\n"
        "    http-request set-var(txn.sni) ssl_fc_sni,lower\n"
        "    http-request set-var(txn.host) req.hdr(host),lower,field(1,:)\n"
        "    http-request set-var(txn.wanted) fc_pp_authority,lower\n"
        "    acl path_odd path -m sub -i // /. %2e %2f %5c %00 \\\\\n"
        "    acl host_given req.hdr_cnt(host) eq 1\n"
        REFUSE("400", "one Host header is needed") "unless host_given\n"
        REFUSE("400", "there is more than one Authorization header") "if { req.fhdr_cnt(authorization) gt 1 }\n"
        REFUSE("405", "CONNECT is not for here") "if { method -m str CONNECT }\n"
        REFUSE("405", "TRACE is not for here") "if { method -m str -i TRACE }\n"
        REFUSE("400", "Upgrade is for websocket only") "if { req.hdr_cnt(upgrade) gt 0 } !{ req.fhdr(upgrade) -m str -i websocket }\n"
        REFUSE("400", "there is more than one Upgrade header") "if { req.fhdr_cnt(upgrade) gt 1 }\n"
        REFUSE("421", "Host is not the name that the connection was made for") "unless { var(txn.host),strcmp(txn.sni) eq 0 }\n"
        REFUSE("421", "the connection was made for another name") "if { var(txn.wanted) -m found } !{ var(txn.wanted),strcmp(txn.sni) eq 0 }\n"
        "    http-request set-var(txn.basic) req.fhdr(authorization),word(2,' '),b64dec if { req.fhdr(authorization) -m beg -i 'basic ' }\n";

static const char left_text[] =
        "    acl left req.hdrs -m sub " BINDING_PLACEHOLDER "\n"
        "    acl left url -m sub " BINDING_PLACEHOLDER "\n"
        "    acl left var(txn.basic) -m sub " BINDING_PLACEHOLDER "\n"
        "    http-request set-var(txn.alert) str(placeholder) if left\n";

static const char refuse_left_text[] =
        REFUSE("403", "a placeholder of a secret is not granted for this host, method, path or place of a request") "if left\n";

// A response that was not looked at does not go on.
static const char response_text[] =
        "    http-response lua.redact\n"
        "    http-response deny deny_status 502 content-type text/plain string \"hostd: the head of the answer could not be searched for values of secrets\" unless { var(txn.looked) -m found }\n";

// ---- policy ----

// One word, whatever a path has in it.
static void write_quoted(Text *t, const char *word, const char *suffix) {
        fputc('\'', t->f);
        for (; *word; word++)
                if (*word == '\'')
                        fputs("'\\''", t->f);
                else
                        fputc(*word, t->f);
        fprintf(t->f, "%s'", suffix);
}

static void write_rule_path(Text *t, size_t rule, const char *path) {
        bool below = path[strlen(path) - 1] == '/';

        if (!below) {
                fprintf(t->f, "    acl rp_%zu path -m str ", rule);
                write_quoted(t, path, "");
                fputc('\n', t->f);
        }
        fprintf(t->f, "    acl rp_%zu path -m beg ", rule);
        write_quoted(t, path, below ? "" : "/");
        fputc('\n', t->f);
}

// Conditions of which a rule about git's requests has one at least: network/decide.c says the same.
static const char *const git_conditions[2][3][5] = { // denial or allow; by HaproxyGit
        {
                {""},
                {" { path -m end /git-upload-pack }", " { path -m end /info/refs } !{ query -m str service=git-receive-pack }", " path_ambiguous"},
                {" { path -m end /git-receive-pack }", " { path -m end /info/refs } !{ query -m str service=git-upload-pack }", " path_ambiguous"},
        },
        {
                {""},
                {" !path_ambiguous { method -m str POST } { path -m end /git-upload-pack } !{ query -m found }",
                 " !path_ambiguous { method -m str GET } { path -m end /info/refs } { query -m str service=git-upload-pack }"},
                {" !path_ambiguous { method -m str POST } { path -m end /git-upload-pack } !{ query -m found }",
                 " !path_ambiguous { method -m str GET } { path -m end /info/refs } { query -m str service=git-upload-pack }",
                 " !path_ambiguous { method -m str POST } { path -m end /git-receive-pack } !{ query -m found }",
                 " !path_ambiguous { method -m str GET } { path -m end /info/refs } { query -m str service=git-receive-pack }"},
        },
};

static void write_verdict(Text *t, const HaproxyRule *rule, size_t i, const char *condition) {
        fprintf(t->f, "    http-request set-var(txn.policy) str(%s) if rs_%zu !{ var(txn.policy) -m found }", rule->allow ? "allow" : "deny", i);
        if (strv_length(rule->methods) > 0)
                fprintf(t->f, " rm_%zu", i);
        if (strv_length(rule->paths) > 0)
                fprintf(t->f, " rp_%zu%s", i, rule->allow ? " !path_ambiguous" : "");
        fprintf(t->f, "%s\n", condition);
}

// A path that can be read in more than one way meets no allow that has paths, and every denial that has: hostd-policy.conf(5).
static void write_rule(Text *t, const HaproxyRule *rule, size_t i) {
        fprintf(t->f, "    acl rs_%zu var(txn.host) -m str %s\n", i, rule->host);
        for (char *const *m = rule->methods; m && *m; m++)
                fprintf(t->f, "    acl rm_%zu method -m str %s\n", i, *m);
        for (char *const *p = rule->paths; p && *p; p++)
                write_rule_path(t, i, *p);
        if (strv_length(rule->paths) > 0 && !rule->allow)
                fprintf(t->f, "    acl rp_%zu path -m sub %s\n", i, AMBIGUOUS);
        for (const char *const *condition = git_conditions[rule->allow][rule->git]; *condition; condition++)
                write_verdict(t, rule, i, *condition);
}

static void write_rules(Text *t) {
        if (!t->config->with_rules)
                return;
        fputs("    acl path_ambiguous path -m sub " AMBIGUOUS "\n", t->f);
        for (size_t i = 0; i < t->config->n_rules; i++)
                write_rule(t, &t->config->rules[i], i);
        fputs(REFUSE("403", "the policy does not allow this method or path") "unless { var(txn.policy) -m str allow }\n", t->f);
}

static int check_rules(const HaproxyConfig *c, Error *err) {
        int r = 0;

        for (size_t i = 0; i < c->n_rules && r == 0; i++) {
                r = valid_check(VALID_HOST, "host", c->rules[i].host, err);
                for (char *const *m = c->rules[i].methods; r == 0 && m && *m; m++)
                        r = valid_check(VALID_METHOD, "methods", *m, err);
                for (char *const *p = c->rules[i].paths; r == 0 && p && *p; p++)
                        r = valid_check(VALID_URL_PATH, "paths", *p, err);
        }
        return r;
}

// ---- one binding ----

// What makes a request one of the binding's.
static void write_scope(Text *t, const Binding *b) {
        fprintf(t->f, "s_%s p_%s", b->id, b->id);
        if (strv_length(b->methods) > 0)
                fprintf(t->f, " m_%s", b->id);
        if (strv_length(b->paths) > 0)
                fprintf(t->f, " u_%s !path_odd", b->id);
        if (b->until > 0) // also when hostd is not there to end it
                fprintf(t->f, " { date lt %llu }", (unsigned long long) (b->until / USEC_PER_SEC));
}

// "/v1" is itself and what is below, "/v1/" what is below.
static void write_path(Text *t, const Binding *b, const char *path) {
        size_t n = strlen(path);

        if (path[n - 1] == '/')
                fprintf(t->f, "    acl u_%s path -m beg %s\n", b->id, path);
        else
                fprintf(t->f, "    acl u_%s path -m str %s\n    acl u_%s path -m beg %s/\n", b->id, path, b->id, path);
}

static void write_acls(Text *t, const Binding *b) {
        fprintf(t->f, "    acl s_%s var(txn.host) -m str %s\n", b->id, b->host);
        fprintf(t->f, "    acl p_%s dst_port %u\n", b->id, b->port);
        if (strv_length(b->methods) > 0) {
                fprintf(t->f, "    acl m_%s method -m str", b->id);
                for (char **m = b->methods; *m; m++)
                        fprintf(t->f, " %s", *m);
                fputc('\n', t->f);
        }
        for (char **p = b->paths; p && *p; p++)
                write_path(t, b, *p);
}

static void write_hit(Text *t, const Binding *b, int kind, const char *condition) {
        fprintf(t->f, "    http-request set-var(txn.hit_%s) int(%d) if ", b->id, kind);
        write_scope(t, b);
        fprintf(t->f, "%s%s\n", *condition ? " " : "", condition);
}

// 1: the token alone, 2: after one word.
static void write_hits_of_header(Text *t, const Binding *b) {
        char condition[384]; // two names of at most 64 bytes, and a token

        fprintf(t->f, REFUSE("400", "a header that has a secret's place is there more than once") "if s_%s { req.fhdr_cnt(%s) gt 1 }\n", b->id, b->field);
        (void) snprintf(condition, sizeof(condition), "{ req.fhdr(%s) -m str %s }", b->field, b->placeholder);
        write_hit(t, b, 1, condition);
        (void) snprintf(condition, sizeof(condition), "{ req.fhdr(%s),word(2,' ') -m str %s } !{ req.fhdr(%s),word(3,' ') -m len 1: }", b->field, b->placeholder,
                        b->field);
        write_hit(t, b, 2, condition);
}

// The number of the parameter that is exactly this. Beyond these the token is left, and so refused.
static void write_hits_of_query(Text *t, const Binding *b) {
        char condition[256];

        for (int i = 1; i <= HAPROXY_QUERY_PARAMETERS; i++) {
                (void) snprintf(condition, sizeof(condition), "{ query,field(%d,&) -m str %s=%s }", i, b->field, b->placeholder);
                write_hit(t, b, i, condition);
        }
}

static void write_hits(Text *t, const Binding *b) {
        char condition[256];

        if (b->inject)
                write_hit(t, b, 1, "");
        else if (b->place == BINDING_HEADER)
                write_hits_of_header(t, b);
        else if (b->place == BINDING_QUERY)
                write_hits_of_query(t, b);
        else {
                (void) snprintf(condition, sizeof(condition), "{ var(txn.basic),field(2,:) -m str %s } !{ var(txn.basic),field(3,:) -m found }", b->placeholder);
                write_hit(t, b, 1, condition);
        }
}

static void write_basic(Text *t, const Binding *b) {
        if (b->inject)
                fprintf(t->f, "    http-request set-var-fmt(txn.pair) '%s:%%[var(txn.v_%s)]' if hit_%s\n", b->user, b->id, b->id);
        else
                fprintf(t->f, "    http-request set-var(txn.login) var(txn.basic),field(1,:) if hit_%s\n"
                              "    http-request set-var-fmt(txn.pair) '%%[var(txn.login)]:%%[var(txn.v_%s)]' if hit_%s\n", b->id, b->id, b->id);
        fprintf(t->f, "    http-request set-var(txn.basic_%s) var(txn.pair),base64 if hit_%s\n"
                      "    http-request set-header Authorization 'Basic %%[var(txn.basic_%s)]' if hit_%s\n"
                      "    http-request unset-var(txn.basic) if hit_%s\n"
                      "    http-request unset-var(txn.pair) if hit_%s\n", b->id, b->id, b->id, b->id, b->id, b->id);
}

// The parameter is replaced where it is. `hit` is its number; what is before it and behind it is put around the new one.
static void write_query(Text *t, const Binding *b) {
        for (int i = 1; i <= HAPROXY_QUERY_PARAMETERS; i++) {
                if (i > 1)
                        fprintf(t->f, "    http-request set-var-fmt(txn.pre_%s) '%%[query,field(1,&,%d)]&' if { var(txn.hit_%s) -m int %d }\n", b->id, i - 1, b->id, i);
                fprintf(t->f, "    http-request set-var-fmt(txn.post_%s) '&%%[query,field(%d,&,0)]' if { var(txn.hit_%s) -m int %d } { query,field(%d,&) -m found }\n",
                        b->id, i + 1, b->id, i, i + 1);
        }
        fprintf(t->f, "    http-request set-query '%%[var(txn.pre_%s)]%s=%%[var(txn.v_%s),url_enc]%%[var(txn.post_%s)]' if hit_%s\n", b->id, b->field, b->id, b->id,
                b->id);
}

static void write_header(Text *t, const Binding *b) {
        if (b->inject)
                fprintf(t->f, "    http-request set-header %s '%s%s%%[var(txn.v_%s)]' if hit_%s\n", b->field, b->word ?: "", b->word ? " " : "", b->id, b->id);
        else
                fprintf(t->f, "    http-request set-header %s '%%[var(txn.v_%s)]' if hit_%s { var(txn.hit_%s) -m int 1 }\n"
                              "    http-request set-header %s '%%[req.fhdr(%s),word(1,\" \")] %%[var(txn.v_%s)]' if hit_%s { var(txn.hit_%s) -m int 2 }\n",
                        b->field, b->id, b->id, b->id, b->field, b->field, b->id, b->id, b->id);
}

// A map that is not filled yet, right after a start, is no leak: it is said as what it is.
static void write_binding(Text *t, const Binding *b) {
        fprintf(t->f, "    # grant %s of secret %s\n", b->id, b->secret);
        write_acls(t, b);
        write_hits(t, b);
        fprintf(t->f, "    acl hit_%s var(txn.hit_%s) -m found\n", b->id, b->id);
        fprintf(t->f, "    http-request set-var(txn.v_%s) str(%s),map_str(%s),b64dec if hit_%s\n", b->id, b->id, t->config->map, b->id);
        fprintf(t->f, REFUSE("503", "the value of secret %s is not there yet") "if hit_%s !{ var(txn.v_%s) -m found }\n", b->secret, b->id, b->id);
        fprintf(t->f, "    http-request set-var-fmt(txn.used) '%%[var(txn.used)]%s ' if hit_%s\n", b->id, b->id);
        if (b->place == BINDING_BASIC)
                write_basic(t, b);
        else if (b->place == BINDING_QUERY)
                write_query(t, b);
        else
                write_header(t, b);
}

// ---- the whole ----

bool haproxy_is_first_of_host(const Binding *const *bindings, size_t i) {
        for (size_t k = 0; k < i; k++)
                if (strcmp(bindings[k]->host, bindings[i]->host) == 0)
                        return false;
        return true;
}

// A client gets the HTTP that it would get without HAProxy: one that speaks HTTP/2 has it upstream, too, where the host speaks it (gRPC knows no other).
// Who does not is spared it: one connection's window is for all of its streams. No WebSocket goes over HTTP/2.
static void write_server(Text *t, const Binding *b, const char *name, const char *protocols) {
        fprintf(t->f, "    server %s 0.0.0.0:0 ssl verify required ca-file %s sni str(%s) verifyhost %s alpn %s ws h1\n", name, t->config->authorities ?: "@system-ca",
                b->host, b->host, protocols);
}

// One for each host, so that neither a connection nor a TLS session of one is ever used for another. The address is that of the PROXY header. A server
// that is disabled has the other one disabled, too (core/generation.c).
static void write_backends(Text *t) {
        const HaproxyConfig *c = t->config;

        for (size_t i = 0; i < c->n_bindings; i++) {
                const Binding *b = c->bindings[i];
                if (!haproxy_is_first_of_host(c->bindings, i))
                        continue;
                fprintf(t->f, "\nbackend host_%s\n    use-server " HAPROXY_SERVER_H2 " if { fc_http_major 2 }\n    use-server " HAPROXY_SERVER " unless { fc_http_major 2 }\n", b->id);
                write_server(t, b, HAPROXY_SERVER, "http/1.1");
                write_server(t, b, HAPROXY_SERVER_H2, "h2,http/1.1");
        }
}

// Whose it is. One of no grant that is in force, or of another instance, has no name.
static void write_leak(Text *t, const Binding *b) {
        if (b->inject)
                return;
        fprintf(t->f, "    acl leak_%s req.hdrs -m sub %s\n    acl leak_%s url -m sub %s\n    acl leak_%s var(txn.basic) -m sub %s\n", b->id, b->placeholder, b->id,
                b->placeholder, b->id, b->placeholder);
        fprintf(t->f, "    http-request set-var-fmt(txn.leaked) '%%[var(txn.leaked)]%s ' if left leak_%s\n", b->id, b->id);
}

static void write_front(Text *t) {
        const HaproxyConfig *c = t->config;

        fprintf(t->f, "\nfrontend front\n    bind unix@%s/" HAPROXY_FRONT " mode 660 accept-proxy ssl crt %s/ strict-sni alpn h2,http/1.1\n", c->sockets, c->certificates);
        fputs(log_text, t->f);
        fputs(checks_text, t->f);
        write_rules(t);
        for (size_t i = 0; i < c->n_bindings; i++)
                write_binding(t, c->bindings[i]);
        fputs(left_text, t->f);
        for (size_t i = 0; i < c->n_bindings; i++)
                write_leak(t, c->bindings[i]);
        fputs(refuse_left_text, t->f);
        fputs(response_text, t->f);
        for (size_t i = 0; i < c->n_bindings; i++)
                if (haproxy_is_first_of_host(c->bindings, i))
                        fprintf(t->f, "    use_backend host_%s if s_%s\n", c->bindings[i]->id, c->bindings[i]->id);
}

// A path is one word there, and nothing in it means anything.
static int check_path(const char *field, const char *path, Error *err) {
        static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_.-";
        int r = valid_check(VALID_PATH, field, path, err);

        if (r == 0 && strspn(path, plain) != strlen(path))
                r = error_set_field(err, field, "%s \"%s\" has other characters than letters, digits and any of / _ . -", field, path);
        return r;
}

// Its standard output is where hostd put it.
static int check_log(const char *log, Error *err) {
        return strcmp(log, "stdout") == 0 ? 0 : check_path("log", log, err);
}

int haproxy_check(const HaproxyConfig *c, Error *err) {
        int r = check_path("sockets", c->sockets, err);

        if (r == 0)
                r = check_path("certificates", c->certificates, err);
        if (r == 0)
                r = check_path("map", c->map, err);
        if (r == 0)
                r = check_path("program", c->program, err);
        if (r == 0)
                r = check_log(c->log, err);
        if (r == 0 && c->authorities)
                r = check_path("authorities", c->authorities, err);
        for (size_t i = 0; r == 0 && i < c->n_bindings; i++)
                r = binding_check(c->bindings[i], err);
        return r < 0 ? r : check_rules(c, err);
}

int haproxy_config(const HaproxyConfig *config, char **ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        char version[DIGEST_TEXT_MAX];
        Text t = {.config = config};
        size_t size;
        bool failed;
        int r = haproxy_check(config, err);

        if (r < 0)
                return r;
        t.f = open_memstream(&text, &size);
        if (!t.f)
                return error_set_errno(err, ENOMEM, "cannot write a configuration");
        fputs(global_text, t.f);
        fprintf(t.f, "    log %s len 1024 format raw local0\n    stats socket %s/" HAPROXY_ADMIN " mode 600 level admin\n", config->log, config->sockets);
        fprintf(t.f, "    # version %s\n    lua-load-per-thread %s\n", haproxy_program_version(version), config->program);
        fputs(defaults_text, t.f);
        write_front(&t);
        write_backends(&t);
        failed = ferror(t.f);
        if (fclose(t.f) != 0 || failed)
                return error_set_errno(err, ENOMEM, "cannot write a configuration");
        *ret = TAKE_PTR(text);
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Authorities and leaves, as OpenSSL sees them: a leaf is good for its host and nothing else, an authority signs leaves and nothing else.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/process.h"
#include "secret/ca.h"

#define DAY (86400 * USEC_PER_SEC)

typedef struct World {
        char directory[64];
        int fd;
        Store *store;
        Vault vault;
        usec_t now;
} World;

static int setup(void **state) {
        World *w = calloc(1, sizeof(*w));

        snprintf(w->directory, sizeof(w->directory), "/tmp/hostd-test-ca.XXXXXX");
        assert_non_null(mkdtemp(w->directory));
        w->fd = open(w->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(store_open(":memory:", &w->store, NULL) >= 0);
        assert_int_equal(seal_open(w->fd, NULL, &w->vault.seal, NULL), 0);
        w->vault.store = w->store;
        w->now = clock_realtime();
        *state = w;
        return 0;
}

static int teardown(void **state) {
        World *w = *state;

        seal_free(w->vault.seal);
        store_close(w->store);
        close(w->fd);
        assert_int_equal(io_remove_tree(AT_FDCWD, w->directory), 0);
        free(w);
        return 0;
}

static void write_file(World *w, const char *name, const void *data, size_t size) {
        assert_int_equal(io_write_atomic(w->fd, name, data, size, 0600), 0);
}

// "openssl WORDS", where *.pem are files of the directory; its exit status, and what it said.
static int openssl(World *w, char **ret_output, const char *words) {
        _cleanup_free_ char *copy = strdup(words);
        char *argv[32] = {"/usr/bin/openssl"}, *save = NULL, paths[32][128];
        size_t n = 1;

        for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save), n++) {
                size_t size = strlen(word);
                argv[n] = word;
                if (size > 4 && strcmp(word + size - 4, ".pem") == 0) {
                        snprintf(paths[n], sizeof(paths[n]), "%s/%.32s", w->directory, word);
                        argv[n] = paths[n];
                }
        }
        return process_run(argv, ret_output, NULL);
}

static void issue(World *w, const Ca *ca, const char *host, const char *name) {
        _cleanup_(value_freep) Value *leaf = NULL;

        assert_int_equal(ca_issue(ca, host, w->now, &leaf, NULL), 0);
        write_file(w, name, leaf->data, leaf->size);
}

static Ca *authority(World *w, const char *name, const char *file) {
        Ca *ca = NULL;

        assert_int_equal(ca_new(name, w->now, &ca, NULL), 0);
        write_file(w, file, ca->certificate, strlen(ca->certificate));
        return ca;
}

static void test_leaf_is_good_for_its_host(void **state) {
        World *w = *state;
        _cleanup_(ca_freep) Ca *ca = authority(w, "one", "ca.pem"), *other = authority(w, "two", "other.pem");

        issue(w, ca, "api.example.com", "leaf.pem");
        assert_int_equal(openssl(w, NULL, "verify -x509_strict -CAfile ca.pem -purpose sslserver -verify_hostname api.example.com leaf.pem"), 0);
        assert_int_not_equal(openssl(w, NULL, "verify -CAfile ca.pem -verify_hostname www.example.com leaf.pem"), 0);
        assert_int_not_equal(openssl(w, NULL, "verify -CAfile ca.pem -verify_hostname a.api.example.com leaf.pem"), 0);
        assert_int_not_equal(openssl(w, NULL, "verify -CAfile ca.pem -purpose sslclient leaf.pem"), 0);
        assert_int_not_equal(openssl(w, NULL, "verify -CAfile other.pem leaf.pem"), 0);
        assert_int_equal(openssl(w, NULL, "pkey -in leaf.pem -noout -check"), 0);
        (void) other;
}

static void test_what_is_in_them(void **state) {
        World *w = *state;
        _cleanup_(ca_freep) Ca *ca = authority(w, "one", "ca.pem");
        _cleanup_free_ char *leaf_text = NULL, *ca_text = NULL;
        static const char *const leaf_has[] = {"P-256", "ecdsa-with-SHA256", "CA:FALSE", "DNS:api.example.com", "TLS Web Server Authentication", "Digital Signature"};
        static const char *const ca_has[] = {"P-256", "CA:TRUE, pathlen:0", "Certificate Sign", "Excluded", "IP:0.0.0.0/0.0.0.0", "hostd one"};

        issue(w, ca, "api.example.com", "leaf.pem");
        assert_int_equal(openssl(w, &leaf_text, "x509 -in leaf.pem -noout -text"), 0);
        for (size_t i = 0; i < ELEMENTS(leaf_has); i++)
                if (!strstr(leaf_text, leaf_has[i]))
                        fail_msg("no %s in:\n%s", leaf_has[i], leaf_text);
        assert_int_equal(openssl(w, &ca_text, "x509 -in ca.pem -noout -text"), 0);
        for (size_t i = 0; i < ELEMENTS(ca_has); i++)
                if (!strstr(ca_text, ca_has[i]))
                        fail_msg("no %s in:\n%s", ca_has[i], ca_text);
        assert_null(strstr(ca->certificate, "PRIVATE"));
        assert_int_equal(openssl(w, NULL, "x509 -in leaf.pem -noout -checkend 518400"), 0);     // six days
        assert_int_not_equal(openssl(w, NULL, "x509 -in leaf.pem -noout -checkend 691200"), 0); // eight
}

static void test_names_that_are_none(void **state) {
        static const char *const bad[] = {"", "localhost", "*.example.com", "10.0.0.1", "a\nb.example.com", "API.example.com"};
        World *w = *state;
        _cleanup_(ca_freep) Ca *ca = authority(w, "one", "ca.pem");

        for (size_t i = 0; i < ELEMENTS(bad); i++) {
                _cleanup_(value_freep) Value *leaf = NULL;
                _cleanup_error_ Error err = ERROR_NULL;
                assert_true(ca_issue(ca, bad[i], w->now, &leaf, &err) < 0);
                assert_int_equal(err.code, ERR_INVALID);
        }
        _cleanup_free_ char *text = NULL; // a name that does not fit a common name
        char host[260];
        memset(host, 'a', sizeof(host));
        for (size_t i = 60; i < 240; i += 60)
                host[i] = '.';
        strcpy(host + 241, ".example.com");
        issue(w, ca, host, "long.pem");
        assert_true(asprintf(&text, "verify -CAfile ca.pem -verify_hostname %s long.pem", host) > 0);
        assert_int_equal(openssl(w, NULL, text), 0);
}

static void test_store_keeps_it_sealed(void **state) {
        World *w = *state;
        _cleanup_(ca_freep) Ca *first = NULL, *again = NULL, *late = NULL, *other = NULL;
        _cleanup_free_ char *record = NULL;
        usec_t end = 0;

        assert_int_equal(ca_open(&w->vault, "one", w->now, &first, NULL), 0);
        assert_int_equal(ca_open(&w->vault, "one", w->now + 100 * DAY, &again, NULL), 0);
        assert_string_equal(first->certificate, again->certificate);
        assert_int_equal(first->key->size, again->key->size);
        assert_memory_equal(first->key->data, again->key->data, first->key->size);
        assert_int_equal(ca_certificate_end(first->certificate, &end, NULL), 0);
        assert_true(end > w->now + (CA_DAYS - 1) * DAY && end <= w->now + CA_DAYS * DAY);
        assert_int_equal(store_value_get(w->store, "ca/one", &record, NULL), 0);
        assert_null(strstr(record, "PRIVATE"));
        assert_int_equal(ca_open(&w->vault, "one", end - 6 * DAY, &late, NULL), 0); // its leaves would outlive it
        assert_string_not_equal(first->certificate, late->certificate);
        // Another's record is not his.
        assert_int_equal(store_value_set(w->store, "ca/two", record, NULL), 0);
        _cleanup_error_ Error err = ERROR_NULL;
        assert_true(ca_open(&w->vault, "two", w->now, &other, &err) < 0);
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_int_equal(ca_remove(&w->vault, "two", NULL), 0);
        assert_int_equal(ca_open(&w->vault, "two", w->now, &other, NULL), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_leaf_is_good_for_its_host, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_is_in_them, setup, teardown),
                cmocka_unit_test_setup_teardown(test_names_that_are_none, setup, teardown),
                cmocka_unit_test_setup_teardown(test_store_keeps_it_sealed, setup, teardown),
        };

        if (access("/usr/bin/openssl", X_OK) < 0) {
                puts("SKIP: openssl is not installed");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}

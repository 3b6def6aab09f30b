// SPDX-License-Identifier: GPL-2.0-or-later
// Ca: see ca.h. The only user of GnuTLS, which is loaded by whoever comes first: ca_new(), ca_issue() and ca_certificate_end().
#include "secret/ca.h"

#include <jansson.h>
#include <string.h>

#include "base/valid.h"
#include "secret/gnutls.h"

#define DAY_SEC 86400
#define KEY_SIZE 64 // of a store key or a context: "ca/" and a name
#define SERIAL_BYTES 16
#define KEY_ID_MAX 32

static const Gnutls *lib;

Ca *ca_free(Ca *ca) {
        if (!ca)
                return NULL;
        free(ca->certificate);
        (void) value_free(ca->key);
        free(ca);
        return NULL;
}

static void keyp(gnutls_x509_privkey_t *key) {
        if (*key)
                lib->x509_privkey_deinit(*key);
}

static void crtp(gnutls_x509_crt_t *crt) {
        if (*crt)
                lib->x509_crt_deinit(*crt);
}

static void constraintsp(gnutls_x509_name_constraints_t *nc) {
        if (*nc)
                lib->x509_name_constraints_deinit(*nc);
}

static void datump(gnutls_datum_t *d) {
        if (d->data)
                lib->memset(d->data, 0, d->size);
        lib->free(d->data);
}

static int fail(int rc, const char *what, Error *err) {
        return error_set(err, ERR_INTERNAL, "%s: %s", what, lib->strerror(rc));
}

// ---- pieces of a certificate; each returns GnuTLS's code ----

static int key_generate(gnutls_x509_privkey_t *ret) {
        int rc = lib->x509_privkey_init(ret);

        return rc < 0 ? rc : lib->x509_privkey_generate(*ret, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
}

// Random, so that what an authority of the same name once signed is never taken for this one's.
static int set_serial(gnutls_x509_crt_t crt) {
        unsigned char serial[SERIAL_BYTES];
        int rc = lib->rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));

        serial[0] = (unsigned char) ((serial[0] & 0x7f) | 0x40); // positive, and of one length
        return rc < 0 ? rc : lib->x509_crt_set_serial(crt, serial, sizeof(serial));
}

static int set_times(gnutls_x509_crt_t crt, usec_t now, unsigned days) {
        time_t begin = (time_t) ((now - CA_BACKDATE) / USEC_PER_SEC);
        int rc = lib->x509_crt_set_activation_time(crt, begin);

        return rc < 0 ? rc : lib->x509_crt_set_expiration_time(crt, (time_t) (now / USEC_PER_SEC) + (time_t) days * DAY_SEC);
}

static int set_basics(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key, const char *name) {
        int rc = lib->x509_crt_set_version(crt, 3);

        if (rc >= 0)
                rc = set_serial(crt);
        if (rc >= 0)
                rc = lib->x509_crt_set_key(crt, key);
        if (rc >= 0)
                rc = lib->x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned) strlen(name));
        return rc;
}

// Names links the leaf to its authority's key, where two had the same name.
static int set_key_ids(gnutls_x509_crt_t crt, gnutls_x509_crt_t issuer) {
        unsigned char id[KEY_ID_MAX];
        size_t size = sizeof(id);
        int rc = lib->x509_crt_get_key_id(crt, 0, id, &size);

        if (rc >= 0)
                rc = lib->x509_crt_set_subject_key_id(crt, id, size);
        size = sizeof(id);
        if (rc >= 0)
                rc = lib->x509_crt_get_key_id(issuer, 0, id, &size);
        return rc < 0 ? rc : lib->x509_crt_set_authority_key_id(crt, id, size);
}

// Grants name hosts, and which ones changes while the authority lives; addresses are never among them.
static int set_constraints(gnutls_x509_crt_t crt) {
        _cleanup_(constraintsp) gnutls_x509_name_constraints_t nc = NULL;
        unsigned char any[32] = {0}; // address and mask
        gnutls_datum_t any4 = {any, 8}, any6 = {any, 32};
        int rc = lib->x509_name_constraints_init(&nc);

        if (rc >= 0)
                rc = lib->x509_name_constraints_add_excluded(nc, GNUTLS_SAN_IPADDRESS, &any4);
        if (rc >= 0)
                rc = lib->x509_name_constraints_add_excluded(nc, GNUTLS_SAN_IPADDRESS, &any6);
        return rc < 0 ? rc : lib->x509_crt_set_name_constraints(crt, nc, 1);
}

// ---- texts ----

static int export_key(gnutls_x509_privkey_t key, Value **ret) {
        _cleanup_(datump) gnutls_datum_t pem = {NULL, 0};
        int rc = lib->x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &pem);

        if (rc < 0 || value_new(pem.size, ret) < 0)
                return rc < 0 ? rc : GNUTLS_E_MEMORY_ERROR;
        memcpy((*ret)->data, pem.data, pem.size);
        return 0;
}

static int export_certificate(gnutls_x509_crt_t crt, char **ret) {
        _cleanup_(datump) gnutls_datum_t pem = {NULL, 0};
        int rc = lib->x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &pem);

        if (rc < 0)
                return rc;
        *ret = strndup((const char *) pem.data, pem.size);
        return *ret ? 0 : GNUTLS_E_MEMORY_ERROR;
}

static int import_certificate(const char *pem, gnutls_x509_crt_t *ret) {
        gnutls_datum_t text = {(unsigned char *) pem, (unsigned) strlen(pem)};
        int rc = lib->x509_crt_init(ret);

        return rc < 0 ? rc : lib->x509_crt_import(*ret, &text, GNUTLS_X509_FMT_PEM);
}

static int import_key(const Value *pem, gnutls_x509_privkey_t *ret) {
        gnutls_datum_t text = {pem->data, (unsigned) pem->size};
        int rc = lib->x509_privkey_init(ret);

        return rc < 0 ? rc : lib->x509_privkey_import2(*ret, &text, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN);
}

int ca_certificate_end(const char *pem, usec_t *ret, Error *err) {
        _cleanup_(crtp) gnutls_x509_crt_t crt = NULL;
        int rc = gnutls_load(&lib, err);
        time_t end;

        if (rc < 0)
                return rc;
        rc = import_certificate(pem, &crt);
        if (rc < 0)
                return fail(rc, "cannot read a certificate", err);
        end = lib->x509_crt_get_expiration_time(crt);
        if (end <= 0)
                return error_set(err, ERR_INTERNAL, "a certificate has no end");
        *ret = (usec_t) end * USEC_PER_SEC;
        return 0;
}

// ---- authority ----

static int authority_fill(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key, const char *name, usec_t now) {
        int rc = set_basics(crt, key, name);

        if (rc >= 0)
                rc = set_times(crt, now, CA_DAYS);
        if (rc >= 0)
                rc = lib->x509_crt_set_basic_constraints(crt, 1, 0); // it signs leaves, never another authority
        if (rc >= 0)
                rc = lib->x509_crt_set_key_usage(crt, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN);
        if (rc >= 0)
                rc = set_constraints(crt);
        if (rc >= 0)
                rc = set_key_ids(crt, crt);
        return rc < 0 ? rc : lib->x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0);
}

int ca_new(const char *instance, usec_t now, Ca **ret, Error *err) {
        _cleanup_(keyp) gnutls_x509_privkey_t key = NULL;
        _cleanup_(crtp) gnutls_x509_crt_t crt = NULL;
        _cleanup_(ca_freep) Ca *ca = calloc(1, sizeof(Ca));
        char name[64];
        int rc;

        if (!ca)
                return error_set_errno(err, ENOMEM, "cannot make an authority");
        if ((rc = gnutls_load(&lib, err)) < 0)
                return rc;
        (void) snprintf(name, sizeof(name), "hostd %.32s", instance);
        rc = key_generate(&key);
        if (rc >= 0)
                rc = lib->x509_crt_init(&crt);
        if (rc >= 0)
                rc = authority_fill(crt, key, name, now);
        if (rc >= 0)
                rc = export_key(key, &ca->key);
        if (rc >= 0)
                rc = export_certificate(crt, &ca->certificate);
        if (rc < 0)
                return fail(rc, "cannot make an authority", err);
        *ret = TAKE_PTR(ca);
        return 0;
}

static char *ca_key(const char *instance, char ret[KEY_SIZE]) {
        (void) snprintf(ret, KEY_SIZE, "ca/%.32s", instance);
        return ret;
}

static int ca_save(const Vault *vault, const char *instance, const Ca *ca, Error *err) {
        _cleanup_free_ char *sealed = NULL, *text = NULL;
        char key[KEY_SIZE];
        json_t *object;
        int r = seal_encrypt(vault->seal, ca_key(instance, key), ca->key, &sealed, err);

        if (r < 0)
                return r;
        object = json_pack("{s:s, s:s}", "certificate", ca->certificate, "key", sealed);
        text = object ? json_dumps(object, JSON_COMPACT) : NULL;
        json_decref(object);
        return text ? store_value_keep(vault->store, key, text, err) : error_set_errno(err, ENOMEM, "cannot keep an authority");
}

static int ca_load(const Vault *vault, const char *instance, Ca **ret, Error *err) {
        _cleanup_(ca_freep) Ca *ca = calloc(1, sizeof(Ca));
        const char *certificate, *sealed;
        _cleanup_free_ char *text = NULL;
        char key[KEY_SIZE];
        json_t *object;
        int r = store_value_get(vault->store, ca_key(instance, key), &text, err);

        if (r < 0)
                return r;
        if (!ca)
                return error_set_errno(err, ENOMEM, "cannot read an authority");
        object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (json_unpack(object, "{s:s, s:s}", "certificate", &certificate, "key", &sealed) < 0)
                r = error_set(err, ERR_CONFLICT, "the record of the authority of %s is damaged", instance);
        else
                r = seal_decrypt(vault->seal, key, sealed, &ca->key, err);
        if (r >= 0 && !(ca->certificate = strdup(certificate)))
                r = error_set_errno(err, ENOMEM, "cannot read an authority");
        json_decref(object);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(ca);
        return 0;
}

int ca_open(const Vault *vault, const char *instance, usec_t now, Ca **ret, Error *err) {
        _cleanup_(ca_freep) Ca *ca = NULL;
        _cleanup_error_ Error e = ERROR_NULL;
        usec_t end = 0;
        int r = ca_load(vault, instance, &ca, &e);

        if (r >= 0)
                r = ca_certificate_end(ca->certificate, &end, &e);
        if (r < 0 && e.code != ERR_NOT_FOUND) {
                error_move(err, &e);
                return r;
        }
        if (r < 0 || end < now + (usec_t) LEAF_DAYS * DAY_SEC * USEC_PER_SEC) {
                ca = ca_free(ca);
                r = ca_new(instance, now, &ca, err);
                if (r >= 0)
                        r = ca_save(vault, instance, ca, err);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(ca);
        return 0;
}

int ca_remove(const Vault *vault, const char *instance, Error *err) {
        char key[KEY_SIZE];

        return store_value_keep(vault->store, ca_key(instance, key), NULL, err);
}

// ---- leaf ----

static int leaf_fill(gnutls_x509_crt_t crt, gnutls_x509_crt_t issuer, gnutls_x509_privkey_t key, const char *host) {
        // A common name has at most 64 bytes and nobody reads it any more: the name that counts is the alternative one.
        int rc = set_basics(crt, key, strlen(host) <= 64 ? host : "hostd");

        if (rc >= 0)
                rc = lib->x509_crt_set_basic_constraints(crt, 0, -1);
        if (rc >= 0)
                rc = lib->x509_crt_set_key_usage(crt, GNUTLS_KEY_DIGITAL_SIGNATURE);
        if (rc >= 0)
                rc = lib->x509_crt_set_key_purpose_oid(crt, GNUTLS_KP_TLS_WWW_SERVER, 0);
        if (rc >= 0)
                rc = lib->x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, host, (unsigned) strlen(host), GNUTLS_FSAN_SET);
        return rc < 0 ? rc : set_key_ids(crt, issuer);
}

static int leaf_export(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key, Value **ret) {
        _cleanup_free_ char *certificate = NULL;
        _cleanup_(value_freep) Value *secret = NULL;
        int rc = export_certificate(crt, &certificate);

        if (rc >= 0)
                rc = export_key(key, &secret);
        if (rc < 0 || value_new(strlen(certificate) + secret->size, ret) < 0)
                return rc < 0 ? rc : GNUTLS_E_MEMORY_ERROR;
        memcpy((*ret)->data, certificate, strlen(certificate));
        memcpy((*ret)->data + strlen(certificate), secret->data, secret->size);
        return 0;
}

int ca_issue(const Ca *ca, const char *host, usec_t now, Value **ret, Error *err) {
        _cleanup_(keyp) gnutls_x509_privkey_t key = NULL, issuer_key = NULL;
        _cleanup_(crtp) gnutls_x509_crt_t crt = NULL, issuer = NULL;
        int rc, r = valid_check(VALID_HOST, "host", host, err);

        if (r == 0)
                r = gnutls_load(&lib, err);
        if (r < 0)
                return r;
        rc = import_certificate(ca->certificate, &issuer);
        if (rc >= 0)
                rc = import_key(ca->key, &issuer_key);
        if (rc >= 0)
                rc = key_generate(&key);
        if (rc >= 0)
                rc = lib->x509_crt_init(&crt);
        if (rc >= 0)
                rc = leaf_fill(crt, issuer, key, host);
        if (rc >= 0)
                rc = set_times(crt, now, LEAF_DAYS);
        if (rc >= 0)
                rc = lib->x509_crt_sign2(crt, issuer, issuer_key, GNUTLS_DIG_SHA256, 0);
        if (rc >= 0)
                rc = leaf_export(crt, key, ret);
        return rc < 0 ? fail(rc, "cannot issue a certificate", err) : 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Gnutls: GnuTLS, loaded when the first certificate is made. Linked in the usual way it would cost every hostd two and a half megabytes, and most
// have no grants.
#pragma once

#include <gnutls/crypto.h>
#include <gnutls/x509-ext.h>

#include "base/error.h"

// Named after the library's functions, without "gnutls_".
typedef struct Gnutls {
        __typeof__(gnutls_memset) *memset;
        __typeof__(gnutls_rnd) *rnd;
        __typeof__(gnutls_strerror) *strerror;
        __typeof__(gnutls_x509_crt_deinit) *x509_crt_deinit;
        __typeof__(gnutls_x509_crt_export2) *x509_crt_export2;
        __typeof__(gnutls_x509_crt_get_expiration_time) *x509_crt_get_expiration_time;
        __typeof__(gnutls_x509_crt_get_key_id) *x509_crt_get_key_id;
        __typeof__(gnutls_x509_crt_import) *x509_crt_import;
        __typeof__(gnutls_x509_crt_init) *x509_crt_init;
        __typeof__(gnutls_x509_crt_set_activation_time) *x509_crt_set_activation_time;
        __typeof__(gnutls_x509_crt_set_authority_key_id) *x509_crt_set_authority_key_id;
        __typeof__(gnutls_x509_crt_set_basic_constraints) *x509_crt_set_basic_constraints;
        __typeof__(gnutls_x509_crt_set_dn_by_oid) *x509_crt_set_dn_by_oid;
        __typeof__(gnutls_x509_crt_set_expiration_time) *x509_crt_set_expiration_time;
        __typeof__(gnutls_x509_crt_set_key) *x509_crt_set_key;
        __typeof__(gnutls_x509_crt_set_key_purpose_oid) *x509_crt_set_key_purpose_oid;
        __typeof__(gnutls_x509_crt_set_key_usage) *x509_crt_set_key_usage;
        __typeof__(gnutls_x509_crt_set_name_constraints) *x509_crt_set_name_constraints;
        __typeof__(gnutls_x509_crt_set_serial) *x509_crt_set_serial;
        __typeof__(gnutls_x509_crt_set_subject_alt_name) *x509_crt_set_subject_alt_name;
        __typeof__(gnutls_x509_crt_set_subject_key_id) *x509_crt_set_subject_key_id;
        __typeof__(gnutls_x509_crt_set_version) *x509_crt_set_version;
        __typeof__(gnutls_x509_crt_sign2) *x509_crt_sign2;
        __typeof__(gnutls_x509_name_constraints_add_excluded) *x509_name_constraints_add_excluded;
        __typeof__(gnutls_x509_name_constraints_deinit) *x509_name_constraints_deinit;
        __typeof__(gnutls_x509_name_constraints_init) *x509_name_constraints_init;
        __typeof__(gnutls_x509_privkey_deinit) *x509_privkey_deinit;
        __typeof__(gnutls_x509_privkey_export2_pkcs8) *x509_privkey_export2_pkcs8;
        __typeof__(gnutls_x509_privkey_generate) *x509_privkey_generate;
        __typeof__(gnutls_x509_privkey_import2) *x509_privkey_import2;
        __typeof__(gnutls_x509_privkey_init) *x509_privkey_init;
        gnutls_free_function free;
} Gnutls;

// Once; it stays until the process ends. ERR_UNAVAILABLE.
int gnutls_load(const Gnutls **ret, Error *err);

// SPDX-License-Identifier: GPL-2.0-or-later
// Gnutls: see gnutls.h.
#include "secret/gnutls.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libgnutls.so.30" // of both Debians

static const struct {
        const char *name;
        size_t offset;
} functions[] = {
        {"gnutls_memset", offsetof(Gnutls, memset)},
        {"gnutls_rnd", offsetof(Gnutls, rnd)},
        {"gnutls_strerror", offsetof(Gnutls, strerror)},
        {"gnutls_x509_crt_deinit", offsetof(Gnutls, x509_crt_deinit)},
        {"gnutls_x509_crt_export2", offsetof(Gnutls, x509_crt_export2)},
        {"gnutls_x509_crt_get_expiration_time", offsetof(Gnutls, x509_crt_get_expiration_time)},
        {"gnutls_x509_crt_get_key_id", offsetof(Gnutls, x509_crt_get_key_id)},
        {"gnutls_x509_crt_import", offsetof(Gnutls, x509_crt_import)},
        {"gnutls_x509_crt_init", offsetof(Gnutls, x509_crt_init)},
        {"gnutls_x509_crt_set_activation_time", offsetof(Gnutls, x509_crt_set_activation_time)},
        {"gnutls_x509_crt_set_authority_key_id", offsetof(Gnutls, x509_crt_set_authority_key_id)},
        {"gnutls_x509_crt_set_basic_constraints", offsetof(Gnutls, x509_crt_set_basic_constraints)},
        {"gnutls_x509_crt_set_dn_by_oid", offsetof(Gnutls, x509_crt_set_dn_by_oid)},
        {"gnutls_x509_crt_set_expiration_time", offsetof(Gnutls, x509_crt_set_expiration_time)},
        {"gnutls_x509_crt_set_key", offsetof(Gnutls, x509_crt_set_key)},
        {"gnutls_x509_crt_set_key_purpose_oid", offsetof(Gnutls, x509_crt_set_key_purpose_oid)},
        {"gnutls_x509_crt_set_key_usage", offsetof(Gnutls, x509_crt_set_key_usage)},
        {"gnutls_x509_crt_set_name_constraints", offsetof(Gnutls, x509_crt_set_name_constraints)},
        {"gnutls_x509_crt_set_serial", offsetof(Gnutls, x509_crt_set_serial)},
        {"gnutls_x509_crt_set_subject_alt_name", offsetof(Gnutls, x509_crt_set_subject_alt_name)},
        {"gnutls_x509_crt_set_subject_key_id", offsetof(Gnutls, x509_crt_set_subject_key_id)},
        {"gnutls_x509_crt_set_version", offsetof(Gnutls, x509_crt_set_version)},
        {"gnutls_x509_crt_sign2", offsetof(Gnutls, x509_crt_sign2)},
        {"gnutls_x509_name_constraints_add_excluded", offsetof(Gnutls, x509_name_constraints_add_excluded)},
        {"gnutls_x509_name_constraints_deinit", offsetof(Gnutls, x509_name_constraints_deinit)},
        {"gnutls_x509_name_constraints_init", offsetof(Gnutls, x509_name_constraints_init)},
        {"gnutls_x509_privkey_deinit", offsetof(Gnutls, x509_privkey_deinit)},
        {"gnutls_x509_privkey_export2_pkcs8", offsetof(Gnutls, x509_privkey_export2_pkcs8)},
        {"gnutls_x509_privkey_generate", offsetof(Gnutls, x509_privkey_generate)},
        {"gnutls_x509_privkey_import2", offsetof(Gnutls, x509_privkey_import2)},
        {"gnutls_x509_privkey_init", offsetof(Gnutls, x509_privkey_init)},
};

static int load(Gnutls *ret, Error *err) {
        void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *variable;

        if (!library)
                return error_set(err, ERR_UNAVAILABLE, "GnuTLS cannot be loaded: %s", dlerror());
        for (size_t i = 0; i < ELEMENTS(functions); i++) {
                void *function = dlsym(library, functions[i].name);
                if (!function)
                        return error_set(err, ERR_UNAVAILABLE, "GnuTLS has no %s", functions[i].name);
                memcpy((char *) ret + functions[i].offset, &function, sizeof(function)); // as POSIX wants it, without a cast
        }
        variable = dlsym(library, "gnutls_free"); // not a function, but a variable that holds one
        if (!variable)
                return error_set(err, ERR_UNAVAILABLE, "GnuTLS has no gnutls_free");
        memcpy(&ret->free, variable, sizeof(ret->free));
        return 0;
}

int gnutls_load(const Gnutls **ret, Error *err) {
        static Gnutls gnutls;
        static bool loaded;
        int r = loaded ? 0 : load(&gnutls, err);

        loaded = r == 0;
        if (r == 0)
                *ret = &gnutls;
        return r;
}

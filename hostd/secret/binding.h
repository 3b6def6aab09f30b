// SPDX-License-Identifier: GPL-2.0-or-later
// Binding: one grant of a secret: to which instance, for which host and port, in which place of a request, for how long. Or as a file in the instance,
// which then has the value itself; such a binding has no host, port or request.
//
// With a placeholder the workload writes the token where the credential belongs, and the border puts the value in its place. The token is random and
// good for this binding only. Without one (inject) the border writes the whole header itself.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "secret/secret.h"

#define BINDING_PLACEHOLDER "hostd-ph-" // and 32 hex digits
#define BINDING_VALUE_MAX 8192 // bytes of a value that goes into a request
#define BINDING_METHODS_MAX 16
#define BINDING_PATHS_MAX 64
#define BINDING_OWNER_MAX 1048575 // ids of an instance

typedef enum BindingPlace {
        BINDING_HEADER, // the header `field`, alone or after one word ("Bearer TOKEN")
        BINDING_BASIC,  // the password in "Authorization: Basic"
        BINDING_QUERY,  // the query parameter `field`
        BINDING_FILE,   // no place in a request
        _BINDING_PLACE_MAX,
        _BINDING_PLACE_INVALID = -EINVAL,
} BindingPlace;
const char *binding_place_to_string(BindingPlace place);
BindingPlace binding_place_from_string(const char *text);

typedef struct Binding {
        char id[17]; // 16 hex digits
        char secret[33], instance[33];
        char *host; // exact, lower case; NULL for a file
        uint16_t port;
        BindingPlace place;
        bool inject;
        uint32_t owner;   // of a file: a uid of the instance
        char *field;      // of a header or query parameter, otherwise NULL
        char *word;       // inject into a header: what stands in front of the value ("Bearer"), or NULL
        char *user;       // inject by Basic: the user
        char **methods;   // empty: all
        char **paths;     // prefixes, empty: all
        char placeholder[48]; // "" with inject, and for a file
        usec_t created, until; // realtime; until 0: no end
} Binding;
Binding *binding_free(Binding *binding);
DEFINE_CLEANUP(Binding, binding_free)

// Each string by its validator, and that they make sense together. What passes may be written into a configuration.
int binding_check(const Binding *binding, Error *err);
// Whether a value can stand in that place.
int binding_check_value(const Binding *binding, const Value *value, Error *err);
bool binding_is_over(const Binding *binding, usec_t now);
// Both would write the same place of the same request, or the same file.
bool binding_clashes(const Binding *a, const Binding *b);
// Gives it id, placeholder and time, and keeps it. ERR_INVALID, ERR_CONFLICT with one of `others`.
int binding_add(const Vault *vault, Binding *binding, Binding *const *others, size_t n_others, Error *err);
int binding_remove(const Vault *vault, const char *id, Error *err); // absent is success
// All that are kept, by id, those that are over as well. A damaged record is passed over and counted.
int binding_list(const Vault *vault, Binding ***ret, size_t *ret_n, unsigned *ret_damaged, Error *err);
void bindings_free(Binding **bindings, size_t n);
json_t *binding_to_json(const Binding *binding); // new reference

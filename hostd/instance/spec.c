// SPDX-License-Identifier: GPL-2.0-or-later
// Spec: one row per field; save, load, check and free walk the same table. The file never leaves root's hands, but
// hostd-instance checks every string again: what it holds reaches an lxc configuration, mounts and cgroup paths.
#include "instance/spec.h"

#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "base/io.h"
#include "base/valid.h"

#define SPEC_MAX (64 * 1024)
#define ID_MAX_END UINT32_C(0x80000000) // old tools keep ids in an int

typedef enum FieldType { FIELD_STRING, FIELD_U16, FIELD_U32, FIELD_U64, FIELD_BOOL } FieldType;

typedef struct Field {
        const char *key;
        FieldType type;
        size_t offset;
        bool required;
        int (*check)(const char *key, const char *value, Error *err); // strings only
} Field;

static int check_name(const char *key, const char *value, Error *err) {
        return valid_check(VALID_NAME, key, value, err);
}

static int check_path(const char *key, const char *value, Error *err) {
        return valid_check(VALID_PATH, key, value, err);
}

// Relative to each hierarchy's mount: "hostd/i0001-g3" or "hostd.slice/hostd-instance@NAME.service".
static int check_prefix(const char *key, const char *value, Error *err) {
        char absolute[512];

        if (strlen(value) > 255 || value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/@._-\\")])
                return error_set_field(err, key, "a control group prefix is at most 255 of A-Z a-z 0-9 / @ . _ - and backslash");
        (void) snprintf(absolute, sizeof(absolute), "/%s", value);
        if (value[0] == 0 || value[strlen(value) - 1] == '/')
                return error_set_field(err, key, "a control group prefix is neither empty nor ends in a slash");
        return check_path(key, absolute, err);
}

static int check_profile(const char *key, const char *value, Error *err) {
        if (strlen(value) == 0 || strlen(value) > 64 || value[strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-")])
                return error_set_field(err, key, "an AppArmor profile name is 1 to 64 of a-z 0-9 -");
        return 0;
}

#define ROW(key, type, required, check) {#key, type, offsetof(InstanceSpec, key), required, check}
static const Field fields[] = {
        ROW(name, FIELD_STRING, true, check_name),
        ROW(slot, FIELD_U16, true, NULL),
        ROW(id_base, FIELD_U32, true, NULL),
        ROW(id_count, FIELD_U32, true, NULL),
        ROW(run_dir, FIELD_STRING, true, check_path),
        ROW(template_dir, FIELD_STRING, true, check_path),
        ROW(root_dir, FIELD_STRING, true, check_path),
        ROW(cgroup_prefix, FIELD_STRING, true, check_prefix),
        ROW(log_file, FIELD_STRING, true, check_path),
        ROW(apparmor_profile, FIELD_STRING, false, check_profile),
        ROW(open_files, FIELD_U64, false, NULL),
        ROW(stop_seconds, FIELD_U32, false, NULL),
        ROW(read_only, FIELD_BOOL, true, NULL),
        ROW(unified_cgroup, FIELD_BOOL, true, NULL),
        ROW(network, FIELD_BOOL, false, NULL),
        ROW(wait_for_hello, FIELD_BOOL, false, NULL),
};

static void *field_at(const InstanceSpec *spec, const Field *field) {
        return (char *) (uintptr_t) spec + field->offset;
}

void instance_spec_done(InstanceSpec *spec) {
        for (size_t i = 0; i < ELEMENTS(fields); i++)
                if (fields[i].type == FIELD_STRING)
                        free(*(char **) field_at(spec, &fields[i]));
        *spec = (InstanceSpec) {0};
}

static int spec_check(const InstanceSpec *spec, Error *err) {
        for (size_t i = 0; i < ELEMENTS(fields); i++) {
                if (fields[i].type != FIELD_STRING)
                        continue;
                const char *value = *(char **) field_at(spec, &fields[i]);
                if (!value && fields[i].required)
                        return error_set_field(err, fields[i].key, "the instance spec lacks it");
                int r = value ? fields[i].check(fields[i].key, value, err) : 0;
                if (r < 0)
                        return r;
        }
        if (spec->id_base < 65536 || spec->id_count < 65536 || (uint64_t) spec->id_base + spec->id_count > ID_MAX_END)
                return error_set_field(err, "id_base", "a range of at least 65536 ids between 65536 and 2^31 is needed");
        if (spec->open_files == 0)
                return error_set_field(err, "open_files", "0 open files would let nothing start");
        return 0;
}

static json_t *field_save(const InstanceSpec *spec, const Field *field) {
        const void *at = field_at(spec, field);

        switch (field->type) {
        case FIELD_STRING:
                return *(char *const *) at ? json_string(*(char *const *) at) : NULL;
        case FIELD_U16:
                return json_integer(*(const uint16_t *) at);
        case FIELD_U32:
                return json_integer(*(const uint32_t *) at);
        case FIELD_U64: // "no limit" is absence: JSON integers end at 2^63
                return *(const uint64_t *) at > INT64_MAX ? NULL : json_integer((json_int_t) * (const uint64_t *) at);
        case FIELD_BOOL:
                return json_boolean(*(const bool *) at);
        }
        return NULL;
}

int instance_spec_save(const InstanceSpec *spec, const char *path, Error *err) {
        _cleanup_free_ char *text = NULL;
        json_t *object;
        int r;

        r = spec_check(spec, err);
        if (r < 0)
                return r;
        object = json_object();
        for (size_t i = 0; object && i < ELEMENTS(fields); i++) {
                json_t *value = field_save(spec, &fields[i]);
                if (value && json_object_set_new(object, fields[i].key, value) < 0) {
                        json_decref(object);
                        object = NULL;
                }
        }
        if (object)
                text = json_dumps(object, JSON_INDENT(2));
        json_decref(object);
        if (!text)
                return error_set_errno(err, ENOMEM, "writing the instance spec");
        r = io_write_atomic(AT_FDCWD, path, text, strlen(text), 0600);
        if (r < 0)
                return error_set_errno(err, r, "writing %s", path);
        return 0;
}

static int field_load_integer(InstanceSpec *spec, const Field *field, json_int_t value, Error *err) {
        void *at = field_at(spec, field);
        json_int_t max = field->type == FIELD_U16 ? UINT16_MAX : field->type == FIELD_U32 ? UINT32_MAX : INT64_MAX;

        if (value < 0 || value > max)
                return error_set_field(err, field->key, "the number is out of range");
        if (field->type == FIELD_U16)
                *(uint16_t *) at = (uint16_t) value;
        else if (field->type == FIELD_U32)
                *(uint32_t *) at = (uint32_t) value;
        else
                *(uint64_t *) at = (uint64_t) value;
        return 0;
}

static int field_load(InstanceSpec *spec, const Field *field, const json_t *value, Error *err) {
        if (!value) {
                if (field->required)
                        return error_set_field(err, field->key, "the instance spec lacks it");
                return 0;
        }
        if (field->type == FIELD_STRING && json_is_string(value)) {
                // An embedded NUL would hide the rest of the string from the checks.
                if (strlen(json_string_value(value)) != json_string_length(value))
                        return error_set_field(err, field->key, "the string holds a NUL");
                char *copy = strdup(json_string_value(value));
                if (!copy)
                        return error_set_errno(err, ENOMEM, "reading the instance spec");
                *(char **) field_at(spec, field) = copy;
                return 0;
        }
        if (field->type == FIELD_BOOL && json_is_boolean(value)) {
                *(bool *) field_at(spec, field) = json_is_true(value);
                return 0;
        }
        if (field->type != FIELD_STRING && field->type != FIELD_BOOL && json_is_integer(value))
                return field_load_integer(spec, field, json_integer_value(value), err);
        return error_set_field(err, field->key, "the value has the wrong type");
}

static int spec_from_json(json_t *object, InstanceSpec *spec, Error *err) {
        const char *key;
        json_t *value;

        if (!json_is_object(object))
                return error_set(err, ERR_INVALID, "the instance spec is no JSON object");
        json_object_foreach(object, key, value) {
                size_t i = 0;
                while (i < ELEMENTS(fields) && strcmp(fields[i].key, key) != 0)
                        i++;
                if (i == ELEMENTS(fields))
                        return error_set_field(err, key, "unknown field in the instance spec");
        }
        spec->open_files = UINT64_MAX;
        for (size_t i = 0; i < ELEMENTS(fields); i++) {
                int r = field_load(spec, &fields[i], json_object_get(object, fields[i].key), err);
                if (r < 0)
                        return r;
        }
        return spec_check(spec, err);
}

int instance_spec_load(const char *path, InstanceSpec *ret, Error *err) {
        _cleanup_(instance_spec_done) InstanceSpec spec = {0};
        _cleanup_free_ char *text = NULL;
        json_error_t where;
        json_t *object;
        size_t size;
        int r;

        r = io_read_file(AT_FDCWD, path, SPEC_MAX, &text, &size);
        if (r < 0)
                return error_set_errno(err, r, "reading %s", path);
        object = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
        if (!object)
                return error_set(err, ERR_INVALID, "%s, line %d: %s", path, where.line, where.text);
        r = spec_from_json(object, &spec, err);
        json_decref(object);
        if (r < 0)
                return r;
        *ret = spec;
        spec = (InstanceSpec) {0};
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// InstanceConfig: one instance's file. Values fold in this order: built-in default, hostd.conf, preset, the file itself.
#include <string.h>

#include "base/size.h"
#include "model/schema.h"

// Labels and the two fields of InstanceConfig are the same memory for the schema.
_Static_assert(offsetof(InstanceConfig, n_labels) - offsetof(InstanceConfig, labels) == offsetof(Labels, n),
               "labels must be adjacent");

static const char *const boot_modes[] = {[BOOT_LAST] = "last", [BOOT_ON] = "on", [BOOT_OFF] = "off", NULL};
static const char *const preset_names[] = {"small", "medium", "large", NULL};

// Nothing that admission counts is ever unlimited: what a file does not say is the small preset.
typedef struct PresetValue {
        LimitId limit;
        const char *text[3]; // in the order of preset_names
} PresetValue;

static const PresetValue preset_values[] = {
        {LIMIT_CPU, {"1", "2", "4"}},
        {LIMIT_MEMORY, {"2GiB", "8GiB", "16GiB"}},
        {LIMIT_PIDS, {"1024", "4096", "8192"}},
        {LIMIT_DISK, {"10GiB", "40GiB", "100GiB"}},
};

const char *boot_mode_to_string(BootMode mode) {
        return mode >= 0 && mode < _BOOT_MODE_MAX ? boot_modes[mode] : NULL;
}

BootMode boot_mode_from_string(const char *text) {
        for (int i = 0; text && i < _BOOT_MODE_MAX; i++)
                if (strcmp(boot_modes[i], text) == 0)
                        return i;
        return _BOOT_MODE_INVALID;
}

const char *value_source_to_string(ValueSource source) {
        static const char *const names[_SOURCE_MAX] = {
                [SOURCE_DEFAULT] = "default", [SOURCE_HOST] = "host", [SOURCE_PRESET] = "preset", [SOURCE_INSTANCE] = "instance"};

        return source < _SOURCE_MAX ? names[source] : NULL;
}

#define AT(field) .offset = offsetof(InstanceConfig, field)
#define LIMIT(id, ...) {NULL, SCHEMA_LIMIT, AT(limits), .limit = id, __VA_ARGS__}

static const SchemaRow instance_rows[] = {
        {"template", SCHEMA_STRING, AT(template), VALID_TEMPLATE, .restart = true,
         .doc = "template of the root file system, a name or a digest; a change takes effect with rebuild"},
        {"preset", SCHEMA_STRING, AT(preset), VALID_NAME, .choices = preset_names,
         .doc = "a set of limits (small, medium, large) for the limits that the file does not name"},
        {"description", SCHEMA_STRING, AT(description), VALID_TEXT, .doc = "what the instance is for"},
        {"policies", SCHEMA_LIST, AT(policies), VALID_NAME,
         .doc = "network policies, in order; the first rule that matches decides"},
        {"offline", SCHEMA_BOOL, AT(offline), .fallback = "false",
         .doc = "of what the policies allow, only their rules to @packages, @llm and @git count"},
        {"package_lock_only", SCHEMA_BOOL, AT(package_lock_only), .fallback = "false",
         .doc = "its package clients are set to install only what a lock file names, as far as they can be"},
        {"package_no_scripts", SCHEMA_BOOL, AT(package_no_scripts), .fallback = "false",
         .doc = "its package clients are set to run no programs of packages when they install, as far as they can be"},
        {"package_registries", SCHEMA_LIST, AT(package_registries), VALID_HOST,
         .doc = "hosts of @packages that are approved for it; all others of the list are not reached by such a rule"},
        {"dns_rate", SCHEMA_COUNT, AT(dns_rate), .min = 1, .max = 100000, .fallback = "200",
         .doc = "questions of the DNS per second, in the long run"},
        {"dns_burst", SCHEMA_COUNT, AT(dns_burst), .min = 1, .max = 100000, .fallback = "400",
         .doc = "questions of the DNS at once, before dns_rate counts"},
        {"dns_names", SCHEMA_COUNT, AT(dns_names), .min = 1, .max = 100000, .fallback = "100",
         .doc = "different names of one zone per minute; names that a rule names exactly are not counted"},
        {"dns_types", SCHEMA_LIST, AT(dns_types), VALID_DNS_TYPE,
         .doc = "types of DNS records that are answered besides A, AAAA, CNAME, MX and SRV: TXT, NS, PTR, CAA, TLSA, SSHFP, NAPTR, URI, SMIMEA, OPENPGPKEY"},
        {"sandboxes", SCHEMA_COUNT, AT(sandboxes), .max = 1000, .fallback = "64",
         .doc = "how many sandboxes it may have at a time"},
        {"boot", SCHEMA_CHOICE, AT(boot), .choices = boot_modes, .fallback = "last",
         .doc = "start with the host: last (as it was), on or off"},
        {"boot_order", SCHEMA_INT, AT(boot_order), .min = -1000, .max = 1000, .fallback = "0",
         .doc = "a lower number starts earlier and stops later"},
        {"stop_timeout", SCHEMA_SPAN, AT(stop_timeout), .min = USEC_PER_SEC, .max = 3600 * USEC_PER_SEC, .fallback = "90s",
         .doc = "how long a graceful stop may take before everything is killed"},
        {"read_only", SCHEMA_BOOL, AT(read_only), .restart = true, .fallback = "false",
         .doc = "mount the root read-only, with tmpfs for what must be written"},
        {"allow_degraded", SCHEMA_LIST, AT(allow_degraded), VALID_LABEL_KEY, .restart = true,
         .doc = "protections that this instance may start without, in addition to the host's"},
        {"labels", SCHEMA_LABELS, AT(labels), .doc = "labels as key=value; on the command line labels.KEY"},
        LIMIT(LIMIT_CPU, .fallback = "1"),
        LIMIT(LIMIT_CPU_WEIGHT),
        LIMIT(LIMIT_CPU_PIN),
        LIMIT(LIMIT_MEMORY, .fallback = "2GiB", .bounded = true),
        LIMIT(LIMIT_SWAP, .fallback = "0"),
        LIMIT(LIMIT_PIDS, .fallback = "1024", .bounded = true),
        LIMIT(LIMIT_IO_READ),
        LIMIT(LIMIT_IO_WRITE),
        LIMIT(LIMIT_IO_READ_OPS),
        LIMIT(LIMIT_IO_WRITE_OPS),
        LIMIT(LIMIT_IO_WEIGHT),
        LIMIT(LIMIT_DISK, .fallback = "10GiB", .bounded = true),
        LIMIT(LIMIT_INODES),
        LIMIT(LIMIT_OPEN_FILES, .fallback = "65536", .bounded = true),
        LIMIT(LIMIT_UPLOAD),
        LIMIT(LIMIT_DOWNLOAD),
        LIMIT(LIMIT_CONNECTIONS, .fallback = "1000", .bounded = true),
        LIMIT(LIMIT_CONNECTION_RATE, .fallback = "200", .bounded = true),
        LIMIT(LIMIT_DESTINATIONS, .fallback = "200"),
        LIMIT(LIMIT_TRAFFIC),
};
_Static_assert(ELEMENTS(instance_rows) <= 64, "a difference is a bit set of 64 rows");
_Static_assert(ELEMENTS(instance_rows) == 19 + _LIMIT_MAX, "every limit has a row");

const Schema instance_schema = {instance_rows, ELEMENTS(instance_rows)};

// For keys that are known to exist.
static size_t row_of(const char *key) {
        return (size_t) (schema_find(&instance_schema, key) - instance_rows);
}

InstanceConfig *instance_config_free(InstanceConfig *config) {
        if (!config)
                return NULL;
        schema_clear(&instance_schema, config);
        limits_done(&config->limits);
        free(config->name);
        free(config->sources);
        free(config);
        return NULL;
}

// An object that instance_config_free() takes at any later step.
static int instance_config_new(const char *name, InstanceConfig **ret, Error *err) {
        _cleanup_(instance_config_freep) InstanceConfig *config = calloc(1, sizeof(*config));

        if (config) {
                limits_init(&config->limits);
                config->name = strdup(name);
                config->sources = calloc(ELEMENTS(instance_rows), sizeof(*config->sources));
        }
        if (!config || !config->name || !config->sources)
                return error_set_errno(err, ENOMEM, "cannot read instance %s", name);
        *ret = TAKE_PTR(config);
        return 0;
}

// Values of hostd.conf for keys that the instance's file may leave out. They were checked when that file was read; going through the
// row again costs little and keeps one rule.
static int take_from_host(InstanceConfig *config, const HostConfig *host, Error *err) {
        const struct {
                const char *key;
                char *const *values;
        } inherited[] = {
                {"template", (char *const[]) {host->default_template, NULL}},
                {"policies", host->default_policies},
                {"allow_degraded", host->allow_degraded},
        };

        for (size_t i = 0; i < ELEMENTS(inherited); i++) {
                size_t row = row_of(inherited[i].key);
                if (!inherited[i].values || !inherited[i].values[0])
                        continue;
                int r = schema_value_parse(&instance_rows[row], inherited[i].values, config, err);
                if (r < 0)
                        return r;
                config->sources[row] = SOURCE_HOST;
        }
        return 0;
}

// The preset's limits; all others stay as they are.
static int take_from_preset(InstanceConfig *config, const char *preset, Error *err) {
        size_t column = 0;

        while (preset_names[column] && strcmp(preset_names[column], preset) != 0)
                column++;
        if (!preset_names[column])
                return 0; // the row of the key refuses it with a sentence
        for (size_t i = 0; i < ELEMENTS(preset_values); i++) {
                int r = limit_parse(preset_values[i].limit, preset_values[i].text[column], &config->limits, err);
                if (r < 0)
                        return r;
                config->sources[row_of(limit_row(preset_values[i].limit)->key)] = SOURCE_PRESET;
        }
        return 0;
}

// A protection that the host allows to be missing is allowed for the instance whatever its own list says.
static int add_host_degraded(InstanceConfig *config, const HostConfig *host, Error *err) {
        for (char **p = host ? host->allow_degraded : NULL; p && *p; p++)
                if (!strv_contains(config->allow_degraded, *p) && strv_append(&config->allow_degraded, *p) < 0)
                        return error_set_errno(err, ENOMEM, "cannot read instance %s", config->name);
        return 0;
}

// Preset, then file; notes what the file itself says.
static int parse_settings(const ParseContext *context, const ConfigText *text, InstanceConfig *config, Error *err) {
        SchemaInput input = {text, config_root_setting(&text->config), NULL, NULL};
        const char *preset = NULL;
        uint64_t seen = 0;
        int r;

        // The preset comes before the limits that refine it, wherever it stands in the file.
        if (config_setting_lookup_string(input.group, "preset", &preset) == CONFIG_TRUE && preset) {
                r = take_from_preset(config, preset, err);
                if (r < 0)
                        return r;
        }
        r = schema_parse(&instance_schema, &input, config, &seen, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ELEMENTS(instance_rows); i++)
                if (seen & UINT64_C(1) << i)
                        config->sources[i] = SOURCE_INSTANCE;
        // Inherited policies were checked where the host's file names them.
        if (seen & UINT64_C(1) << row_of("policies"))
                return schema_check_policies(context, text, "policies", config->policies, err);
        return 0;
}

int instance_config_parse_in(const ParseContext *context, const char *name, const char *text, InstanceConfig **ret, Error *err) {
        _cleanup_(instance_config_freep) InstanceConfig *config = NULL;
        _cleanup_config_text_ ConfigText parsed = CONFIG_TEXT_NULL;
        int r;

        r = valid_check(VALID_NAME, "name", name, err);
        if (r < 0)
                return r;
        r = config_text_parse(&parsed, context->file, text, err);
        if (r < 0)
                return r;
        r = instance_config_new(name, &config, err);
        if (r >= 0)
                r = schema_apply_fallbacks(&instance_schema, config, err);
        if (r >= 0 && context->host)
                r = take_from_host(config, context->host, err);
        if (r >= 0)
                r = parse_settings(context, &parsed, config, err);
        if (r >= 0)
                r = add_host_degraded(config, context->host, err);
        if (r < 0)
                return r;
        if (!config->template)
                return config_text_locate(&parsed, NULL, error_set_field(err, "template", "template is missing"), err);
        *ret = TAKE_PTR(config);
        return 0;
}

int instance_config_parse(const char *name, const char *text, const HostConfig *host, InstanceConfig **ret, Error *err) {
        _cleanup_free_ char *file = NULL;
        ParseContext context = {.host = host};

        if (!valid_is(VALID_NAME, name))
                return valid_check(VALID_NAME, "name", name, err);
        if (asprintf(&file, "instances.d/%s.conf", name) < 0) {
                file = NULL;
                return error_set_errno(err, ENOMEM, "cannot read instance %s", name);
        }
        context.file = file;
        return instance_config_parse_in(&context, name, text, ret, err);
}

size_t instance_schema_size(void) {
        return instance_schema.n;
}

const char *instance_schema_key(size_t row) {
        return row < instance_schema.n ? schema_row_key(&instance_rows[row]) : NULL;
}

const char *instance_schema_doc(size_t row) {
        return row < instance_schema.n ? schema_row_doc(&instance_rows[row]) : NULL;
}

const char *instance_schema_default(size_t row) {
        return row < instance_schema.n ? instance_rows[row].fallback ?: "" : NULL;
}

// A limit knows best itself; other rows say so in their table.
bool instance_schema_needs_restart(size_t row) {
        const SchemaRow *r = &instance_rows[row];

        return r->restart || (r->type == SCHEMA_LIMIT && limit_row(r->limit)->restart);
}

char *instance_config_value(const InstanceConfig *config, size_t row) {
        return row < instance_schema.n ? schema_text_format(&instance_rows[row], config) : NULL;
}

// By text, because equal text is what equality means to the person who reads the difference; where a value came from is no
// difference.
uint64_t instance_config_diff(const InstanceConfig *a, const InstanceConfig *b) {
        uint64_t bits = 0;

        for (size_t i = 0; i < ELEMENTS(instance_rows); i++) {
                _cleanup_strv_ char **x = NULL, **y = NULL;
                // Without memory for a comparison the safe answer is that it differs.
                if (schema_value_format(&instance_rows[i], a, &x) < 0 || schema_value_format(&instance_rows[i], b, &y) < 0 ||
                    !strv_equal(x, y))
                        bits |= UINT64_C(1) << i;
        }
        return bits;
}

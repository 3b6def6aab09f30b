// SPDX-License-Identifier: GPL-2.0-or-later
// HostConfig: hostd.conf. A missing file is an empty one: every key has a default.
#include <string.h>

#include "model/schema.h"

// Rows without a fallback have a default that is no text: nothing, or what the host's size says.
#define AT(field) .offset = offsetof(HostConfig, field)

static const SchemaRow host_rows[] = {
        {"uplink", SCHEMA_STRING, AT(uplink), VALID_IFNAME, .fallback = "auto",
         .doc = "interface that leads out; auto is the one of the default route"},
        {"ipv4_pool", SCHEMA_POOL4, AT(network), .fallback = "10.209.0.0/16",
         .doc = "IPv4 network that instances get addresses from"},
        {"ipv6_pool", SCHEMA_POOL6, AT(network), .fallback = "fd68:6f73:7464::/64",
         .doc = "IPv6 network that instances get addresses from"},
        {"ipv6_nat", SCHEMA_BOOL, AT(network.ipv6_nat), .fallback = "true",
         .doc = "translate IPv6 addresses; false routes the addresses of a public network"},
        {"memory_reserve", SCHEMA_SIZE, AT(memory_reserve_bytes), .min = 0, .max = INT64_C(1) << 44,
         .doc = "memory that is never promised to instances"},
        {"disk_reserve", SCHEMA_SIZE, AT(disk_reserve_bytes), .min = 0, .max = INT64_C(1) << 50,
         .doc = "disk space that is never promised to instances"},
        {"allow_degraded", SCHEMA_LIST, AT(allow_degraded), VALID_LABEL_KEY,
         .doc = "protections that every instance may start without"},
        {"default_policies", SCHEMA_LIST, AT(default_policies), VALID_NAME,
         .doc = "network policies of instances whose file names none"},
        {"default_template", SCHEMA_STRING, AT(default_template), VALID_TEMPLATE, .fallback = "agent",
         .doc = "template of instances whose file names none"},
        {"audit_keep_days", SCHEMA_COUNT, AT(audit_keep_days), .min = 1, .max = 36500, .fallback = "400",
         .doc = "days after which files of the audit log are deleted"},
        {"resolver_upstream", SCHEMA_LIST, AT(resolver_upstream), VALID_CIDR,
         .doc = "addresses of the name servers that answer for instances; without it those of /etc/resolv.conf"},
        {"connections_per_uid", SCHEMA_COUNT, AT(connections_per_uid), .min = 1, .max = 4096, .fallback = "256",
         .doc = "connections to the socket that one user may have at a time"},
};

const Schema host_schema = {host_rows, ELEMENTS(host_rows)};

void host_config_done(HostConfig *config) {
        schema_clear(&host_schema, config);
        free(config->network.uplink);
        *config = (HostConfig) {0};
}

static int host_config_init(HostConfig *config, Error *err) {
        // The reserves depend on the size of the host, which this layer does not look at.
        *config = (HostConfig) {.memory_reserve_bytes = UINT64_MAX, .disk_reserve_bytes = UINT64_MAX};
        return schema_apply_fallbacks(&host_schema, config, err);
}

// A name server is one address; the kind of the row lets networks through.
static int check_upstreams(const ConfigText *text, const HostConfig *config, Error *err) {
        static const char key[] = "resolver_upstream";
        size_t n = 0;
        int r = 0;

        for (char **address = config->resolver_upstream; r >= 0 && address && *address; address++, n++)
                if (strchr(*address, '/'))
                        r = error_set_field(err, key, "%s \"%s\" is a network; it must be the address of a name server", key, *address);
        if (r >= 0 && n > NETWORK_UPSTREAMS_MAX)
                r = error_set_field(err, key, "%s has %zu addresses, more than %d", key, n, NETWORK_UPSTREAMS_MAX);
        return r < 0 ? config_text_locate(text, config_setting_get_member(config_root_setting(&text->config), key), r, err) : 0;
}

// "auto" is resolved by whoever knows the routes; here it only means that no interface was named.
static int parse_settings(const ParseContext *context, const char *text, HostConfig *config, Error *err) {
        _cleanup_config_text_ ConfigText parsed = CONFIG_TEXT_NULL;
        int r = config_text_parse(&parsed, context->file, text, err);

        if (r < 0)
                return r;
        SchemaInput input = {&parsed, config_root_setting(&parsed.config), NULL, NULL, 0};
        r = schema_parse(&host_schema, &input, config, NULL, err);
        if (r < 0)
                return r;
        if (strcmp(config->uplink, "auto") != 0) {
                config->network.uplink = strdup(config->uplink);
                if (!config->network.uplink)
                        return error_set_errno(err, ENOMEM, "cannot read hostd.conf");
        }
        r = check_upstreams(&parsed, config, err);
        return r < 0 ? r : schema_check_policies(context, &parsed, "default_policies", config->default_policies, err);
}

// Filled aside: *ret is written only when everything was right.
int host_config_parse_in(const ParseContext *context, const char *text, HostConfig *ret, Error *err) {
        HostConfig config;
        int r = host_config_init(&config, err);

        if (r >= 0)
                r = parse_settings(context, text, &config, err);
        if (r < 0) {
                host_config_done(&config);
                return r;
        }
        *ret = config;
        return 0;
}

int host_config_parse(const char *text, HostConfig *ret, Error *err) {
        return host_config_parse_in(&(ParseContext) {.file = "hostd.conf"}, text ?: "", ret, err);
}

size_t host_schema_size(void) {
        return host_schema.n;
}

const char *host_schema_key(size_t row) {
        return row < host_schema.n ? schema_row_key(&host_rows[row]) : NULL;
}

const char *host_schema_doc(size_t row) {
        return row < host_schema.n ? schema_row_doc(&host_rows[row]) : NULL;
}

const char *host_schema_default(size_t row) {
        return row < host_schema.n ? host_rows[row].fallback ?: "" : NULL;
}

char *host_config_value(const HostConfig *config, size_t row) {
        return row < host_schema.n ? schema_text_format(&host_rows[row], config) : NULL;
}

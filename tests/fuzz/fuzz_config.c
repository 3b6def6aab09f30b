// SPDX-License-Identifier: GPL-2.0-or-later
// Configuration text as an attacker or a broken editor would write it. The first byte picks the parser, or an edit of the rest.
// What is accepted must hold its promises: it can be written again, read back to the same values, and edited.
#include <string.h>

#include "model/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// libconfig 1.5 forgets the string it was reading when the text ends in it; that leak is not ours.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
        return "leak:strbuf_append\nleak:libconfig_yy\n";
}

static void require(bool good) {
        if (!good)
                abort();
}

static void fuzz_host(const char *text) {
        HostConfig config;

        if (host_config_parse(text, &config, NULL) < 0)
                return;
        for (size_t i = 0; i < host_schema_size(); i++) {
                _cleanup_free_ char *value = host_config_value(&config, i);
                require(value != NULL);
        }
        host_config_done(&config);
}

static void fuzz_instance(const char *text) {
        _cleanup_(instance_config_freep) InstanceConfig *config = NULL, *same = NULL, *other = NULL;
        _cleanup_free_ char *edited = NULL, *labelled = NULL, *removed = NULL;
        HostConfig host = {.default_template = (char *) "any"};

        if (instance_config_parse("a", text, &host, &config, NULL) < 0)
                return;
        // Every text that was accepted can be edited, and the edit changes one value and nothing else.
        require(instance_text_set(text, "pids", "4242", &edited, NULL) == 0);
        require(instance_config_parse("a", edited, &host, &other, NULL) == 0);
        require(other->limits.value[LIMIT_PIDS] == 4242);
        require((instance_config_diff(config, other) & ~(UINT64_C(1) << (schema_find(&instance_schema, "pids") - instance_schema.rows))) == 0);
        if (config->n_labels < 60) {
                require(instance_text_set(edited, "labels.fuzz", "x y", &labelled, NULL) == 0);
                require(instance_text_set(labelled, "description", NULL, &removed, NULL) == 0);
                require(instance_config_parse("a", removed, &host, &same, NULL) == 0);
                require(same->description == NULL && same->n_labels >= 1);
        }
}

static void fuzz_policy(const char *text) {
        _cleanup_(policy_freep) Policy *policy = NULL, *again = NULL;
        _cleanup_free_ char *written = NULL;

        if (policy_parse("p", text, &policy, NULL) < 0)
                return;
        written = policy_format(policy);
        require(written != NULL);
        require(policy_parse("p", written, &again, NULL) == 0);
        require(policy->n_rules == again->n_rules);
}

// The rest is "KEY\nVALUE\nTEXT".
static void fuzz_set(char *text) {
        _cleanup_free_ char *edited = NULL;
        char *key = strsep(&text, "\n"), *value = strsep(&text, "\n");
        _cleanup_(instance_config_freep) InstanceConfig *config = NULL;
        HostConfig host = {.default_template = (char *) "any"};

        if (instance_text_set(text, key, value, &edited, NULL) < 0)
                return;
        require(instance_config_parse("a", edited, &host, &config, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = NULL;

        if (size < 1)
                return 0;
        text = strndup((const char *) data + 1, size - 1);
        if (!text)
                return 0;
        switch (data[0] % 4) {
        case 0:
                fuzz_host(text);
                break;
        case 1:
                fuzz_instance(text);
                break;
        case 2:
                fuzz_policy(text);
                break;
        default:
                fuzz_set(text);
        }
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// What resolver and proxy read of hostd and of the wire: views (0), a category's lines (1), names and patterns (2). The first byte picks. What
// is accepted must hold its promises: it can be written and read again to the same rules, and the index answers as a walk would.
#include <string.h>

#include "base/strv.h"
#include "network/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good) {
        if (!good)
                abort();
}

static bool matches(const CompiledRule *rule, const PolicyQuestion *q) {
        char to[NAME_TEXT_MAX + 2];

        if (rule->kind == RULE_ADDRESS)
                return compiled_rule_matches(rule, q->address, q->protocol, q->port);
        return compiled_rule_has_port(rule, q->protocol, q->port) && name_pattern_matches(compiled_rule_to(rule, to), q->name);
}

static bool spared(const Compiled *compiled, const CompiledRule *rule, const char *name) {
        if (rule->kind != RULE_ANY_NAME || rule->action != POLICY_ALLOW)
                return false;
        for (char **entry = compiled->spared ? compiled->spared->entries : NULL; entry && *entry; entry++)
                if (policy_target(*entry) != POLICY_TO_CIDR && name_pattern_matches(*entry, name))
                        return true;
        return false;
}

static void ask(const Compiled *compiled, const char *name, uint16_t port) {
        PolicyInsert inserts[4];
        Cidr address;
        size_t i = 0;

        require(cidr_parse("93.184.216.34", &address) == 0);
        PolicyQuestion question = {.name = name, .address = &address, .protocol = POLICY_TCP, .port = port};
        PolicyDecision decision = policy_decide(compiled, &question);
        char text[300];
        while (i < compiled->n && (!matches(&compiled->rules[i], &question) || spared(compiled, &compiled->rules[i], name)))
                i++;
        require(decision.rule == (i < compiled->n ? &compiled->rules[i] : NULL));
        require(strlen(policy_decision_text(compiled, &decision, text, sizeof(text))) > 0);
        (void) policy_decide(compiled, &(PolicyQuestion) {.name = name});
        (void) policy_inserts(compiled, name, inserts, ELEMENTS(inserts));
}

static void fuzz_view(const char *text, size_t size) {
        _cleanup_(view_freep) View *view = NULL, *again = NULL;
        _cleanup_free_ char *first = NULL, *second = NULL;
        size_t written;

        if (view_parse(text, size, &view, NULL) < 0)
                return;
        require(view_format(view, &first, &written) == 0);
        require(view_parse(first, written, &again, NULL) == 0);
        require(view_format(again, &second, NULL) == 0 && strcmp(first, second) == 0);
        for (size_t i = 0; i < view->n_slots; i++) {
                const Compiled *compiled = view->slots[i].compiled;
                char name[NAME_TEXT_MAX];
                ask(compiled, "a.b.example.org", 443);
                for (size_t k = 0; k < MIN2(compiled->n, 16); k++)
                        if (compiled->rules[k].name && name_normalise(compiled->rules[k].name, strlen(compiled->rules[k].name), name) == 0)
                                ask(compiled, name, 8443);
        }
}

static void fuzz_category(const char *text) {
        _cleanup_(category_freep) Category *category = NULL, *same = NULL;
        _cleanup_free_ char *joined = NULL;

        if (category_parse("c", NULL, text, &category, NULL) < 0)
                return;
        joined = strv_join(category->entries, "\n");
        require(joined && category_parse("c", NULL, joined, &same, NULL) == 0 && category_equal(category, same));
        for (char **entry = category->entries; entry && *entry; entry++) {
                char to[CATEGORY_ENTRY_MAX];
                (void) category_entry_split(*entry, to);
                require(policy_destination_check("entry", to, NULL) == 0);
        }
}

static void fuzz_name(const char *text, size_t size) {
        char name[NAME_TEXT_MAX], again[NAME_TEXT_MAX], host[NAME_TEXT_MAX];
        uint16_t port;

        (void) name_pattern_check("to", text, NULL);
        if (name_split_port(text, host, &port) == 0)
                require(strlen(host) > 0);
        if (name_normalise(text, size, name) < 0)
                return;
        require(strlen(name) == size && name_normalise(name, size, again) == 0 && strcmp(name, again) == 0);
        for (const char *p = name_parent(name); p; p = name_parent(p))
                require(name_is_below(name, p) && !name_is_below(p, name));
        require(policy_target(name) == POLICY_TO_NAME);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = NULL;

        if (size < 1 || !(text = malloc(size)))
                return 0;
        memcpy(text, data + 1, size - 1);
        text[size - 1] = 0;
        switch (data[0] % 3) {
        case 0:
                fuzz_view(text, size - 1);
                break;
        case 1:
                fuzz_category(text);
                break;
        default:
                fuzz_name(text, size - 1);
        }
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Differences between two desired sets, as lines for people. Everything walks sorted vectors or the rows of a schema.
#include <string.h>

#include "base/size.h"
#include "model/schema.h"

// An empty text would look as if the line had been cut off.
static const char *shown(const char *text) {
        return text[0] ? text : "(none)";
}

// One line per row whose text differs: "WHAT: KEY OLD -> NEW".
static int diff_rows(const Schema *schema, const void *old, const void *new, const char *what, char ***ret) {
        for (size_t i = 0; i < schema->n; i++) {
                const SchemaRow *row = &schema->rows[i];
                _cleanup_free_ char *a = schema_text_format(row, old), *b = schema_text_format(row, new);
                if (!a || !b)
                        return -ENOMEM;
                if (strcmp(a, b) == 0)
                        continue;
                int r = strv_append_format(ret, "%s: %s %s -> %s", what, schema_row_key(row), shown(a), shown(b));
                if (r < 0)
                        return r;
        }
        return 0;
}

// A rule in the words of `hostctl policy show`; its comment is left out, because it enforces nothing.
static char *rule_text(const PolicyRule *rule) {
        char *text = NULL, rate[SIZE_TEXT_MAX], budget[SIZE_TEXT_MAX];
        _cleanup_free_ char *methods = strv_join(rule->methods, ","), *paths = strv_join(rule->paths, ",");
        size_t size;
        FILE *f = methods && paths ? open_memstream(&text, &size) : NULL;

        if (!f)
                return NULL;
        fprintf(f, "%s %s", policy_action_to_string(rule->action), rule->to);
        if (rule->protocol != POLICY_ANY)
                fprintf(f, " %s", policy_protocol_to_string(rule->protocol));
        if (rule->ports)
                fprintf(f, " %s", rule->ports);
        if (*methods)
                fprintf(f, " methods %s", methods);
        if (*paths)
                fprintf(f, " paths %s", paths);
        if (rule->git != POLICY_GIT_ANY)
                fprintf(f, " git %s", policy_git_to_string(rule->git));
        if (rule->inspect)
                fputs(" inspect", f);
        if (rule->rate)
                fprintf(f, " rate %s", size_format(rule->rate, rate));
        if (rule->budget)
                fprintf(f, " budget %s", size_format(rule->budget, budget));
        if (fclose(f) == 0)
                return text;
        free(text);
        return NULL;
}

// What a category stands for is not the policy's text.
static bool rule_equal(const PolicyRule *a, const PolicyRule *b) {
        PolicyRule x = *a, y = *b;

        x.category = y.category = NULL;
        return policy_rule_equal(&x, &y);
}

// Rules count from one here, as people count.
static int append_rule(const Policy *policy, size_t i, const char *what, char ***ret) {
        _cleanup_free_ char *text = rule_text(&policy->rules[i]);

        return text ? strv_append_format(ret, "policy %s: rule %zu %s: %s", policy->name, i + 1, what, text) : -ENOMEM;
}

// The same text with another comment is worth a line, but not the comment's text.
static int append_change(const Policy *policy, size_t i, const PolicyRule *old, char ***ret) {
        _cleanup_free_ char *a = rule_text(old), *b = rule_text(&policy->rules[i]);

        if (!a || !b)
                return -ENOMEM;
        if (strcmp(a, b) == 0)
                return strv_append_format(ret, "policy %s: rule %zu: comment changed", policy->name, i + 1);
        return strv_append_format(ret, "policy %s: rule %zu changed: %s -> %s", policy->name, i + 1, a, b);
}

// Rules are people's edits of a list: what both ends share is left out, the middle is changed, removed or added.
static int diff_policy(const Policy *old, const Policy *new, char ***ret) {
        size_t shared = MIN2(old->n_rules, new->n_rules), head = 0, tail = 0;
        int r;

        if (strcmp(old->description ?: "", new->description ?: "") != 0) {
                r = strv_append_format(ret, "policy %s: description %s -> %s", new->name, shown(old->description ?: ""),
                                       shown(new->description ?: ""));
                if (r < 0)
                        return r;
        }
        while (head < shared && rule_equal(&old->rules[head], &new->rules[head]))
                head++;
        while (head + tail < shared &&
               rule_equal(&old->rules[old->n_rules - 1 - tail], &new->rules[new->n_rules - 1 - tail]))
                tail++;
        for (size_t i = head; i < MAX2(old->n_rules, new->n_rules) - tail; i++) {
                bool was = i < old->n_rules - tail, is = i < new->n_rules - tail;
                r = was && is ? append_change(new, i, &old->rules[i], ret)
                    : is      ? append_rule(new, i, "added", ret)
                              : append_rule(old, i, "removed", ret);
                if (r < 0)
                        return r;
        }
        return 0;
}

// What the walk over two sorted vectors needs to know of their elements.
typedef struct Kind {
        const char *noun;
        const char *(*name)(const void *item);
        int (*compare)(const void *old, const void *new, char ***ret);
} Kind;

static const char *instance_name(const void *item) {
        return ((const InstanceConfig *) item)->name;
}

static const char *policy_name(const void *item) {
        return ((const Policy *) item)->name;
}

static const char *category_name(const void *item) {
        return ((const Category *) item)->name;
}

static const char *recipe_name(const void *item) {
        return item;
}

static int instance_compare(const void *old, const void *new, char ***ret) {
        _cleanup_free_ char *what = NULL;

        if (asprintf(&what, "instance %s", instance_name(new)) < 0) {
                what = NULL;
                return -ENOMEM;
        }
        return diff_rows(&instance_schema, old, new, what, ret);
}

static int policy_compare(const void *old, const void *new, char ***ret) {
        return diff_policy(old, new, ret);
}

// Entries are a set to people: what one has and the other has not.
static int append_entries(const Category *category, const Category *other, const char *what, char ***ret) {
        int r = 0;

        for (char **entry = category->entries; r >= 0 && entry && *entry; entry++)
                if (!strv_contains(other->entries, *entry))
                        r = strv_append_format(ret, "category %s: %s %s", category->name, *entry, what);
        return r;
}

static int category_compare(const void *old, const void *new, char ***ret) {
        size_t before = strv_length(*ret);
        int r;

        if (category_equal(old, new))
                return 0;
        r = append_entries(old, new, "removed", ret);
        if (r >= 0)
                r = append_entries(new, old, "added", ret);
        if (r >= 0 && strv_length(*ret) == before)
                r = strv_append_format(ret, "category %s: in another order", category_name(new));
        return r;
}

static const Kind kind_category = {"category", category_name, category_compare};
static const Kind kind_instance = {"instance", instance_name, instance_compare};
static const Kind kind_policy = {"policy", policy_name, policy_compare};
static const Kind kind_recipe = {"recipe", recipe_name, NULL}; // their content is not ours

typedef struct Items {
        void *const *items;
        size_t n;
} Items;

// A merge of two sorted vectors.
static int diff_sorted(const Kind *kind, Items old, Items new, char ***ret) {
        size_t i = 0, j = 0;
        int r = 0;

        while (r >= 0 && (i < old.n || j < new.n)) {
                int order = i == old.n ? 1 : j == new.n ? -1 : strcmp(kind->name(old.items[i]), kind->name(new.items[j]));
                if (order < 0)
                        r = strv_append_format(ret, "%s %s: removed", kind->noun, kind->name(old.items[i++]));
                else if (order > 0)
                        r = strv_append_format(ret, "%s %s: added", kind->noun, kind->name(new.items[j++]));
                else {
                        r = kind->compare ? kind->compare(old.items[i], new.items[j], ret) : 0;
                        i++;
                        j++;
                }
        }
        return r;
}

int desired_diff(const Desired *old, const Desired *new, char ***ret) {
        _cleanup_strv_ char **lines = NULL;
        int r = diff_rows(&host_schema, &old->host, &new->host, "host", &lines);

        if (r >= 0)
                r = diff_sorted(&kind_category, (Items) {(void *const *) old->categories, old->n_categories},
                                (Items) {(void *const *) new->categories, new->n_categories}, &lines);
        if (r >= 0)
                r = diff_sorted(&kind_policy, (Items) {(void *const *) old->policies, old->n_policies},
                                (Items) {(void *const *) new->policies, new->n_policies}, &lines);
        if (r >= 0)
                r = diff_sorted(&kind_recipe, (Items) {(void *const *) old->recipes, strv_length(old->recipes)},
                                (Items) {(void *const *) new->recipes, strv_length(new->recipes)}, &lines);
        if (r >= 0)
                r = diff_sorted(&kind_instance, (Items) {(void *const *) old->instances, old->n_instances},
                                (Items) {(void *const *) new->instances, new->n_instances}, &lines);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(lines);
        return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
// Grants: an open hash table without removals; what has run out goes when the table grows.
#include "resolver/grants.h"

#include <string.h>

#include "base/cleanup.h"
#include "network/compile.h"

void grants_done(Grants *grants) {
        free(grants->table);
        *grants = (Grants) {0};
}

// Collisions cost an attacker's own instance time, and at most GRANTS_MAX steps.
static Grant *table_place(Grant *table, size_t size, const GrantKey *key) {
        uint64_t hash = (key->rule_id | (uint64_t) key->slot << 16) * 0x9e3779b97f4a7c15u + key->family + ((uint64_t) key->ports << 32), word;

        for (size_t i = 0; i < sizeof(key->address); i += sizeof(word)) {
                memcpy(&word, key->address + i, sizeof(word));
                hash = (hash ^ word) * 0xff51afd7ed558ccdu;
                hash ^= hash >> 32;
        }
        for (size_t i = hash & (size - 1);; i = (i + 1) & (size - 1)) {
                const GrantKey *k = &table[i].key;
                if (!table[i].used || (k->slot == key->slot && k->rule_id == key->rule_id && k->family == key->family && k->ports == key->ports && memcmp(k->address, key->address, sizeof(k->address)) == 0))
                        return &table[i];
        }
}

bool grants_fresh(const Grants *grants, const GrantKey *key, usec_t now) {
        const Grant *g = grants->table ? table_place(grants->table, grants->size, key) : NULL;
        uint32_t seconds = (uint32_t) (now / USEC_PER_SEC);

        return g && g->used && g->until > seconds && g->until - seconds > g->whole / 2;
}

static int grants_grow(Grants *grants, uint32_t seconds) {
        size_t live = 0, size = 64;
        Grant *table;

        for (size_t i = 0; i < grants->size; i++)
                live += grants->table[i].used && grants->table[i].until > seconds;
        if (live >= GRANTS_MAX)
                return -ENOSPC;
        while (size < live * 3)
                size *= 2;
        table = calloc(size, sizeof(Grant));
        if (!table)
                return -ENOMEM;
        for (size_t i = 0; i < grants->size; i++)
                if (grants->table[i].used && grants->table[i].until > seconds)
                        *table_place(table, size, &grants->table[i].key) = grants->table[i];
        free(grants->table);
        *grants = (Grants) {table, live, size};
        return 0;
}

int grants_add(Grants *grants, const GrantKey *key, uint32_t ttl_s, usec_t now) {
        uint32_t seconds = (uint32_t) (now / USEC_PER_SEC);
        Grant *g;

        if (grants->n * 3 >= grants->size * 2) {
                int r = grants_grow(grants, seconds);
                if (r < 0)
                        return r;
        }
        g = table_place(grants->table, grants->size, key);
        grants->n += !g->used;
        *g = (Grant) {.key = *key, .used = true, .whole = ttl_s + NETWORK_NAME_GRACE, .until = seconds + ttl_s + NETWORK_NAME_GRACE};
        return 0;
}

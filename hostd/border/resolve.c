// SPDX-License-Identifier: GPL-2.0-or-later
// Resolve: the packets as pure functions. See resolve.h.
#include "border/resolve.h"

#include <string.h>

static bool is_zero(const void *data, size_t size) {
        const unsigned char *p = data;

        for (size_t i = 0; i < size; i++)
                if (p[i])
                        return false;
        return true;
}

int resolve_question_init(ResolveQuestion *question, uint16_t slot, uint8_t family, const char *name) {
        if (slot == 0 || (family != 4 && family != 6) || !border_name_valid(name))
                return -EINVAL;
        *question = (ResolveQuestion) {.slot = slot, .family = family};
        memcpy(question->name, name, strlen(name));
        return 0;
}

bool resolve_question_valid(const void *data, size_t size) {
        ResolveQuestion q;
        size_t n;

        if (size != sizeof(q))
                return false;
        memcpy(&q, data, sizeof(q));
        n = strnlen(q.name, sizeof(q.name));
        return n < sizeof(q.name) && is_zero(q.name + n, sizeof(q.name) - n) && border_name_valid(q.name) && q.slot > 0 &&
               (q.family == 4 || q.family == 6) && is_zero(q.pad, sizeof(q.pad));
}

bool resolve_answer_valid(const void *data, size_t size) {
        ResolveAnswer a;

        if (size != sizeof(a))
                return false;
        memcpy(&a, data, sizeof(a));
        if (a.error > 0 || a.error <= -4096 || a.n > RESOLVE_ADDRESSES_MAX || (a.n > 0) != (a.error == 0) || !is_zero(a.pad, sizeof(a.pad)))
                return false;
        for (uint32_t i = 0; i < a.n; i++) {
                const ResolveAddress *address = a.addresses + i;
                if (address->family != 6 && (address->family != 4 || !is_zero(address->address + 4, 12)))
                        return false;
        }
        return is_zero(a.addresses + a.n, (RESOLVE_ADDRESSES_MAX - a.n) * sizeof(a.addresses[0]));
}

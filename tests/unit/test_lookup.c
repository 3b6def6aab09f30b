// SPDX-License-Identifier: GPL-2.0-or-later
// Lookups: instances that ask for what is never answered, however many there are, leave others their share. The upstreams are the test's own.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "resolver/lookup.h"

struct Ask {
        AskSpec spec;
        struct Ask *next;
};

static Ask *asks; // that wait for an answer
static unsigned n_asks;

int ask_new(Upstreams *upstreams, const AskSpec *spec, Ask **ret) {
        Ask *ask = calloc(1, sizeof(Ask));

        *ask = (Ask) {*spec, asks};
        asks = *ret = ask;
        n_asks++;
        return 0;
}

Ask *ask_free(Ask *ask) {
        for (Ask **p = &asks; *p; p = &(*p)->next)
                if (*p == ask) {
                        *p = ask->next;
                        n_asks--;
                        free(ask);
                        break;
                }
        return NULL;
}

static void ask_answer(Ask *ask) {
        static const DnsAnswer answer = {.rcode = DNS_NXDOMAIN, .complete = true, .ttl = 60};
        AskSpec spec = ask->spec;

        (void) ask_free(ask);
        spec.done(spec.userdata, 0, &answer);
}

typedef struct Client {
        Waiter waiter; // first
        int result;    // 1: not yet
} Client;

static void on_result(Waiter *waiter, const Result *result) {
        ((Client *) waiter)->result = result->error;
}

static int start(Lookups *lookups, Client *client, uint16_t slot, unsigned number) {
        DnsQuery query = {.type = DNS_A};
        char name[64];

        (void) snprintf(name, sizeof(name), "n%u.s%u.example.org", number, slot);
        assert_int_equal(dns_name_from_text(name, &query.name), 0);
        *client = (Client) {.waiter.done = on_result, .result = 1};
        return lookups_start(lookups, slot, &query, &client->waiter);
}

static unsigned waiting(const Client *clients, size_t n) {
        unsigned k = 0;

        for (size_t i = 0; i < n; i++)
                k += clients[i].result == 1;
        return k;
}

static void test_share(void **state) {
        enum { GREEDY = 40, EACH = 64, MODEST = 30 };
        static Client greedy[GREEDY][EACH], modest[MODEST][4];
        Cache *cache = NULL;
        Lookups *lookups;
        unsigned taken = 0, most = 0, least = EACH;

        assert_int_equal(cache_new(1 << 20, &cache), 0);
        assert_int_equal(lookups_new(NULL, cache, &lookups), 0);
        // Twenty take all there is; the next twenty get as much as these.
        for (unsigned s = 0; s < GREEDY; s++)
                for (unsigned i = 0; i < EACH; i++) {
                        int r = start(lookups, &greedy[s][i], (uint16_t) (s + 1), i);
                        if (r < 0)
                                assert_int_equal(r, -EBUSY);
                        if (r < 0)
                                greedy[s][i].result = r;
                        taken += r == 0;
                }
        assert_int_equal(n_asks, LOOKUPS_MAX);
        assert_true(taken > LOOKUPS_MAX);
        for (unsigned s = 0; s < GREEDY; s++) {
                unsigned k = waiting(greedy[s], EACH);
                most = MAX2(most, k);
                least = MIN2(least, k);
        }
        assert_true(least >= LOOKUPS_MAX / GREEDY - 1 && most <= EACH);
        // Whoever asks little is not held up, and nobody loses more than he has above the others.
        for (unsigned s = 0; s < MODEST; s++)
                for (unsigned i = 0; i < 4; i++)
                        assert_int_equal(start(lookups, &modest[s][i], (uint16_t) (1000 + s), i), 0);
        assert_int_equal(n_asks, LOOKUPS_MAX);
        assert_int_equal(waiting(modest[0], MODEST * 4), MODEST * 4);
        for (unsigned s = 0; s < GREEDY; s++)
                assert_true(waiting(greedy[s], EACH) >= (LOOKUPS_MAX - MODEST * 4) / GREEDY - 1);
        // One that gave way is no failure of its name: there is room again, and it is asked.
        while (asks)
                ask_answer(asks);
        assert_int_equal(waiting(modest[0], MODEST * 4), 0);
        for (unsigned i = 0; i < MODEST * 4; i++)
                assert_int_equal((&modest[0][0])[i].result, 0);
        unsigned lost = EACH;
        for (unsigned i = 0; i < EACH; i++)
                if (greedy[0][i].result == -EBUSY)
                        lost = i;
        assert_true(lost < EACH);
        assert_int_equal(start(lookups, &greedy[0][lost], 1, lost), 0);
        assert_int_equal(n_asks, 1);
        (void) lookups_free(lookups);
        assert_int_equal(n_asks, 0);
        (void) cache_free(cache);
}

int main(void) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_share)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}

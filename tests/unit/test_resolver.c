// SPDX-License-Identifier: GPL-2.0-or-later
// Resolver: its cache, its limits and its memory of what is in the kernel, without sockets and on a clock of the test's own.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "resolver/cache.h"
#include "resolver/grants.h"
#include "resolver/limit.h"

static DnsName name_of(const char *format, unsigned i) {
        char text[DNS_TEXT_MAX];
        DnsName name;

        (void) snprintf(text, sizeof(text), "%s%u.example.org", format, i);
        assert_int_equal(dns_name_from_text(text, &name), 0);
        return name;
}

static DnsAnswer *answer_of(const char *address) {
        static DnsAnswer answer;

        answer = DNS_ANSWER_NULL;
        assert_int_equal(dns_answer_add(&answer, DNS_A, address, 4), 0);
        return &answer;
}

static void test_cache(void **state) {
        _cleanup_(cache_freep) Cache *cache = NULL;
        DnsName a = name_of("a", 1), b = name_of("b", 1);
        const CacheEntry *e;

        assert_int_equal(cache_new(1 << 16, &cache), 0);
        assert_null(cache_get(cache, &a, DNS_A, 0));
        assert_int_equal(cache_put(cache, &a, DNS_A, answer_of("1111"), 100), 0);
        e = cache_get(cache, &a, DNS_A, 99);
        assert_non_null(e);
        assert_int_equal(e->size, 8);
        assert_memory_equal(cache_entry_records(e) + 4, "1111", 4);
        assert_null(cache_get(cache, &a, DNS_AAAA, 99));
        assert_null(cache_get(cache, &b, DNS_A, 99));
        // A newer answer takes the place of the older one.
        assert_int_equal(cache_put(cache, &a, DNS_A, answer_of("2222"), 200), 0);
        assert_int_equal(cache_entries(cache), 1);
        assert_memory_equal(cache_entry_records(cache_get(cache, &a, DNS_A, 99)) + 4, "2222", 4);
        // Its time is over.
        assert_null(cache_get(cache, &a, DNS_A, 200));
        assert_int_equal(cache_entries(cache), 0);
        assert_int_equal(cache_bytes(cache), 0);
}

static void test_cache_is_bounded(void **state) {
        _cleanup_(cache_freep) Cache *cache = NULL;
        DnsName first = name_of("n", 0), name;

        assert_int_equal(cache_new(1 << 14, &cache), 0);
        for (unsigned i = 0; i < 1000; i++) {
                name = name_of("n", i);
                assert_int_equal(cache_put(cache, &name, DNS_A, answer_of("1111"), 100), 0);
                assert_in_range(cache_bytes(cache), 1, 1 << 14);
                assert_non_null(cache_get(cache, &first, DNS_A, 1)); // in use, so others go first
        }
        assert_in_range(cache_entries(cache), 50, 300);
        name = name_of("n", 1);
        assert_null(cache_get(cache, &name, DNS_A, 1));
        name = name_of("n", 999);
        assert_non_null(cache_get(cache, &name, DNS_A, 1));
        cache_clear(cache);
        assert_int_equal(cache_entries(cache), 0);
}

static void test_cache_refuses_what_is_larger(void **state) {
        _cleanup_(cache_freep) Cache *cache = NULL;
        DnsName name = name_of("a", 1);

        assert_int_equal(cache_new(64, &cache), 0);
        assert_int_equal(cache_put(cache, &name, DNS_A, answer_of("1111"), 100), 0);
        assert_null(cache_get(cache, &name, DNS_A, 1));
}

static void test_lifetimes(void **state) {
        static const struct { unsigned rcode, n, n_chain; uint32_t ttl, want; } rows[] = {
                {DNS_NOERROR, 1, 0, 0, 30},   {DNS_NOERROR, 1, 0, 45, 45},         {DNS_NOERROR, 1, 0, 86400, 300},
                {DNS_NOERROR, 0, 0, 0, 1},    {DNS_NOERROR, 0, 0, 3600, 60},       {DNS_NOERROR, 1, 1, 3600, 60}, // an alias to nothing
                {DNS_NXDOMAIN, 0, 0, 10, 10}, {DNS_NXDOMAIN, 0, 0, UINT32_MAX, 5},
        };
        static DnsAnswer answer;

        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                answer = (DnsAnswer) {.rcode = (uint8_t) rows[i].rcode, .n = (uint16_t) rows[i].n, .n_chain = (uint16_t) rows[i].n_chain, .ttl = rows[i].ttl};
                assert_int_equal(answer_lifetime(&answer), rows[i].want);
        }
}

static unsigned take_many(Rate *rate, unsigned n, usec_t now) {
        unsigned taken = 0;

        while (n-- > 0)
                taken += rate_take(rate, now);
        return taken;
}

static void test_rate(void **state) {
        Rate rate = {.rate = 200, .burst = 400}, none = {0};

        assert_int_equal(take_many(&rate, 1000, 5 * USEC_PER_SEC), 400);
        assert_int_equal(take_many(&rate, 1000, 5 * USEC_PER_SEC), 0);
        assert_int_equal(take_many(&rate, 1000, 6 * USEC_PER_SEC), 200);
        assert_int_equal(take_many(&rate, 1000, 6 * USEC_PER_SEC + 5000), 1);
        assert_int_equal(take_many(&rate, 1000, 100 * USEC_PER_SEC), 400);
        assert_int_equal(take_many(&none, 10, USEC_PER_SEC), 0);
        // An empty bucket is empty after a change, but fills at the new pace; one of another size keeps what is missing.
        rate_change(&rate, 1000, 400, 100 * USEC_PER_SEC);
        assert_int_equal(take_many(&rate, 10, 100 * USEC_PER_SEC), 0);
        assert_int_equal(take_many(&rate, 1000, 100 * USEC_PER_SEC + 100000), 100);
        rate_change(&rate, 1000, 600, 100 * USEC_PER_SEC + 100000);
        assert_int_equal(take_many(&rate, 1000, 100 * USEC_PER_SEC + 100000), 200);
        rate_change(&none, 10, 5, USEC_PER_SEC);
        assert_int_equal(take_many(&none, 10, USEC_PER_SEC), 5);
}

static void test_zones(void **state) {
        Zones zones = {0};
        DnsName name;

        for (unsigned i = 0; i < 100; i++) {
                name = name_of("data", i);
                assert_true(zones_take(&zones, &name, 100, 1));
        }
        // One more is refused, one that was seen is not, and labels in between do not make another zone.
        name = name_of("data", 100);
        assert_false(zones_take(&zones, &name, 100, 2));
        name = name_of("data", 5);
        assert_true(zones_take(&zones, &name, 100, 2));
        name = name_of("x.y.z", 1);
        assert_false(zones_take(&zones, &name, 100, 2));
        assert_int_equal(dns_name_from_text("a.example.net", &name), 0);
        assert_true(zones_take(&zones, &name, 100, 2));
        name = name_of("data", 100);
        assert_true(zones_take(&zones, &name, 100, ZONES_WINDOW + 1));
        zones_done(&zones);
}

static void test_zones_are_bounded(void **state) {
        Zones zones = {0};
        DnsName name;

        for (unsigned i = 0; i <= ZONES_MAX; i++) {
                char text[64];
                (void) snprintf(text, sizeof(text), "a.zone%u.example", i);
                assert_int_equal(dns_name_from_text(text, &name), 0);
                // "zoneN.example" is each time another.
                assert_int_equal(zones_take(&zones, &name, 100, 1), i < ZONES_MAX);
        }
        assert_true(zones_take(&zones, &name, 100, ZONES_WINDOW + 1));
        assert_int_equal(zones.n, ZONES_MAX);
        zones_done(&zones);
        for (size_t i = 0; i < 3; i++) {
                static const char *const short_names[] = {".", "org", "example.org"};
                assert_int_equal(dns_name_from_text(short_names[i], &name), 0);
                assert_true(zones_take(&zones, &name, 1, 1));
        }
        zones_done(&zones);
}

static void test_grants(void **state) {
        Grants grants = {0};
        GrantKey key = {.rule_id = 7, .family = 4, .address = {192, 0, 2, 1}}, other = key;

        assert_false(grants_fresh(&grants, &key, USEC_PER_SEC));
        assert_int_equal(grants_add(&grants, &key, 30, USEC_PER_SEC), 0);
        assert_true(grants_fresh(&grants, &key, USEC_PER_SEC));
        assert_true(grants_fresh(&grants, &key, 315 * USEC_PER_SEC));
        assert_false(grants_fresh(&grants, &key, 316 * USEC_PER_SEC)); // half of 630 s
        other.rule_id = 8;
        assert_false(grants_fresh(&grants, &other, USEC_PER_SEC));
        other = key;
        other.family = 6;
        assert_false(grants_fresh(&grants, &other, USEC_PER_SEC));
        other = key;
        other.ports = 2; // as another name of the address has them
        assert_false(grants_fresh(&grants, &other, USEC_PER_SEC));
        // Given again, it is as new.
        assert_int_equal(grants_add(&grants, &key, 30, 400 * USEC_PER_SEC), 0);
        assert_true(grants_fresh(&grants, &key, 700 * USEC_PER_SEC));
        assert_int_equal(grants.n, 1);
        grants_done(&grants);
}

static void test_grants_are_bounded(void **state) {
        Grants grants = {0};
        unsigned n = 0;

        for (unsigned i = 0; i < 4 * GRANTS_MAX; i++) {
                GrantKey key = {.rule_id = 1, .family = 4, .address = {(uint8_t) (i >> 16), (uint8_t) (i >> 8), (uint8_t) i}};
                int r = grants_add(&grants, &key, 30, USEC_PER_SEC);
                assert_true(r == 0 || r == -ENOSPC);
                n += r == 0;
                assert_int_equal(grants_fresh(&grants, &key, USEC_PER_SEC), r == 0);
        }
        assert_in_range(n, GRANTS_MAX, 3 * GRANTS_MAX);
        // When they have run out, there is room again.
        GrantKey key = {.rule_id = 2, .family = 6};
        assert_int_equal(grants_add(&grants, &key, 30, 2000 * USEC_PER_SEC), 0);
        assert_int_equal(grants.n, 1);
        grants_done(&grants);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_cache),
                cmocka_unit_test(test_cache_is_bounded),
                cmocka_unit_test(test_cache_refuses_what_is_larger),
                cmocka_unit_test(test_lifetimes),
                cmocka_unit_test(test_rate),
                cmocka_unit_test(test_zones),
                cmocka_unit_test(test_zones_are_bounded),
                cmocka_unit_test(test_grants),
                cmocka_unit_test(test_grants_are_bounded),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}

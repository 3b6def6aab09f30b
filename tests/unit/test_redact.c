// SPDX-License-Identifier: GPL-2.0-or-later
// What takes values out of streams: however a stream is cut, the same comes out; nothing is held that need not be; time is linear.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "redact/redact.h"

static Redactor *make(const char *const *pairs) {
        RedactValue values[16];
        Redactor *redactor = NULL;
        size_t n = 0;

        for (; pairs[2 * n]; n++)
                values[n] = (RedactValue) {pairs[2 * n], pairs[2 * n + 1], strlen(pairs[2 * n + 1])};
        assert_int_equal(redactor_new(values, n, &redactor), 0);
        return redactor;
}

// In pieces of `step` bytes.
static char *through(Redactor *redactor, const char *text, size_t step) {
        RedactStream stream = {0};
        size_t size = strlen(text);
        char *out;

        for (size_t at = 0; at < size; at += step)
                assert_int_equal(redactor_feed(redactor, &stream, text + at, MIN2(step, size - at), false), 0);
        assert_int_equal(redactor_feed(redactor, &stream, NULL, 0, true), 0);
        assert_int_equal(stream.n_held, 0);
        out = strndup(stream.out ?: "", stream.n_out);
        redact_stream_done(&stream);
        return out;
}

static const char *const pairs[] = {"key", "correct-horse", "other", "horse-battery", "pem", "-----BEGIN\nline-one\n-----END\n", "again", "abababab", "short", "1234567", NULL};

static void test_values_are_found_in_any_pieces(void **state) {
        static const struct {
                const char *text, *expected;
                uint64_t count;
        } cases[] = {
                {"", "", 0},
                {"nothing here", "nothing here", 0},
                {"correct-horse", "[secret key]", 1},
                {"a correct-horse b", "a [secret key] b", 1},
                {"correct-horsecorrect-horse", "[secret key][secret key]", 2},
                {"correct-hors correct-horse", "correct-hors [secret key]", 1},
                {"ccorrect-correct-horse!", "ccorrect-[secret key]!", 1},
                {"correct-horse-battery", "[secret key]-battery", 1}, // the first one takes what both would have
                {"a horse-battery", "a [secret other]", 1},
                {"-----BEGIN\nline-one\n-----END\n", "[secret pem]\n", 1},
                {"-----BEGIN\r\nline-one\r\n-----END\r\n", "[secret pem]\r\n", 1},
                {"-----BEGIN\nline-two\n-----END\n", "-----BEGIN\nline-two\n-----END\n", 0},
                {"ababababab", "[secret again]ab", 1},
                {"aababababababababx", "a[secret again][secret again]x", 2},
                {"1234567", "1234567", 0},
                {"correct-hors", "correct-hors", 0},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++)
                for (size_t step = 1; step <= strlen(cases[i].text) + 1; step++) {
                        _cleanup_(redactor_freep) Redactor *redactor = make(pairs);
                        _cleanup_free_ char *out = through(redactor, cases[i].text, step);
                        if (strcmp(out, cases[i].expected) != 0 || redactor_count(redactor, NULL) != cases[i].count)
                                fail_msg("case %zu by %zu: \"%s\"", i, step, out);
                }
}

static void test_longer_value_is_waited_for(void **state) {
        static const char *const nested[] = {"long", "0123456789abcdefghij", "inner", "56789abcde", NULL};

        for (size_t step = 1; step < 24; step++) {
                _cleanup_(redactor_freep) Redactor *redactor = make(nested);
                _cleanup_free_ char *whole = through(redactor, "x0123456789abcdefghijx", step), *part = through(redactor, "x0123456789abcdefghiX", step);
                assert_string_equal(whole, "x[secret long]x");
                assert_string_equal(part, "x01234[secret inner]fghiX");
                assert_int_equal(redactor_count(redactor, "long"), 1);
                assert_int_equal(redactor_count(redactor, "inner"), 1);
        }
}

static void test_only_beginnings_are_held(void **state) {
        _cleanup_(redactor_freep) Redactor *redactor = make(pairs);
        RedactStream stream = {0};

        assert_int_equal(redactor_feed(redactor, &stream, "prompt> ", 8, false), 0);
        assert_int_equal(stream.n_held, 0);
        assert_int_equal(redactor_feed(redactor, &stream, "ab", 2, false), 0);
        assert_int_equal(stream.n_held, 2);
        assert_int_equal(redactor_feed(redactor, &stream, "c", 1, false), 0); // of correct-horse
        assert_int_equal(stream.n_held, 1);
        assert_int_equal(redactor_feed(redactor, &stream, NULL, 0, true), 0);
        assert_int_equal(stream.n_held, 0);
        assert_int_equal(stream.n_out, 11);
        redact_stream_done(&stream);
}

static void test_bytes_of_any_kind(void **state) {
        static const char value[] = {0, 1, 2, (char) 0xff, (char) 0xfe, 0, 0, 7, 0};
        RedactValue one = {"bin", value, sizeof(value)};
        _cleanup_(redactor_freep) Redactor *redactor = NULL;
        RedactStream stream = {0};
        char text[64] = {0};

        assert_int_equal(redactor_new(&one, 1, &redactor), 0);
        memcpy(text + 11, value, sizeof(value));
        for (size_t i = 0; i < 40; i++)
                assert_int_equal(redactor_feed(redactor, &stream, text + i, 1, false), 0);
        assert_int_equal(redactor_feed(redactor, &stream, NULL, 0, true), 0);
        assert_int_equal(stream.n_out, 40 - sizeof(value) + strlen("[secret bin]"));
        assert_memory_equal(stream.out + 11, "[secret bin]", 12);
        redact_stream_done(&stream);
}

static usec_t time_of(Redactor *redactor, const char *text, size_t size, size_t step) {
        RedactStream stream = {0};
        usec_t begin = clock_monotonic();

        for (size_t at = 0; at < size; at += step) {
                assert_int_equal(redactor_feed(redactor, &stream, text + at, MIN2(step, size - at), false), 0);
                stream.n_out = 0;
        }
        begin = clock_monotonic() - begin;
        redact_stream_done(&stream);
        return begin;
}

// A stream that is nearly the value, over and over, takes no more than some times what any other takes.
static void test_time_is_linear(void **state) {
        size_t value_size = 16384, size = 8 << 20;
        char *value = malloc(value_size), *text = malloc(size), *plain = malloc(size);
        RedactValue one = {"big", value, value_size};
        _cleanup_(redactor_freep) Redactor *redactor = NULL;

        memset(value, 'a', value_size);
        value[value_size - 1] = 'b';
        memset(text, 'a', size);
        memset(plain, 'x', size);
        assert_int_equal(redactor_new(&one, 1, &redactor), 0);
        usec_t hostile = time_of(redactor, text, size, 65536), easy = time_of(redactor, plain, size, 65536);
        if (hostile > 100 * easy + USEC_PER_SEC)
                fail_msg("%llu usec instead of %llu", (unsigned long long) hostile, (unsigned long long) easy);
        assert_int_equal(redactor_count(redactor, NULL), 0);
        free(value);
        free(text);
        free(plain);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_values_are_found_in_any_pieces), cmocka_unit_test(test_longer_value_is_waited_for), cmocka_unit_test(test_only_beginnings_are_held),
                cmocka_unit_test(test_bytes_of_any_kind),              cmocka_unit_test(test_time_is_linear),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

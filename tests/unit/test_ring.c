// SPDX-License-Identifier: GPL-2.0-or-later
// The ring of a command's output against a plain copy of all that was written: what is kept is what was written there, what is not is counted, at any
// offset, while it is written, after its end, and as a writer that died at any moment leaves it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "io/ring_internal.h"

typedef struct Copy {
        char *bytes, *streams; // of each byte: what it is, and which stream's
        size_t n;
} Copy;

static int new_file(void) {
        int fd = memfd_create("ring", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static Ring *create(uint64_t size, int *ret_fd) {
        Ring *ring = NULL;
        int fd = new_file();

        assert_int_equal(ring_create(fd, size, &ring), 0);
        if (ret_fd)
                *ret_fd = fd;
        return ring;
}

static uint32_t next_random(uint32_t *state) {
        *state = *state * 1664525 + 1013904223;
        return *state >> 8;
}

static void write_some(Ring *ring, Copy *copy, RingStream stream, size_t size) {
        static uint32_t state = 1;

        copy->bytes = realloc(copy->bytes, copy->n + size + 1);
        copy->streams = realloc(copy->streams, copy->n + size + 1);
        assert_true(copy->bytes && copy->streams);
        for (size_t i = 0; i < size; i++) {
                copy->bytes[copy->n + i] = (char) next_random(&state);
                copy->streams[copy->n + i] = (char) stream;
        }
        ring_append(ring, stream, copy->bytes + copy->n, size);
        copy->n += size;
}

static void copy_done(Copy *copy) {
        free(copy->bytes);
        free(copy->streams);
}

typedef struct Seen {
        uint64_t kept[_RING_STREAM_MAX], lost, first_lost, first_lost_end, n_lost;
} Seen;

// From `offset` to the end: each byte is the one that was written there, and none is left out without a word.
static Seen compare(Ring *ring, const Copy *copy, uint64_t offset) {
        _cleanup_(ring_cursor_freep) RingCursor *cursor = NULL;
        uint64_t at = offset;
        Seen seen = {0};
        RingPiece piece;
        int r;

        assert_int_equal(ring_cursor_new(offset, &cursor), 0);
        while ((r = ring_read(ring, cursor, &piece)) == 1) {
                assert_true(piece.length > 0);
                assert_int_equal(piece.offset, at);
                at += piece.length;
                assert_true(at <= copy->n);
                if (piece.lost) {
                        seen.lost += piece.length;
                        if (seen.n_lost++ == 0) {
                                seen.first_lost = piece.offset;
                                seen.first_lost_end = at;
                        }
                        continue;
                }
                seen.kept[piece.stream] += piece.length;
                assert_memory_equal(piece.data, copy->bytes + piece.offset, piece.length);
                for (uint64_t i = 0; i < piece.length; i++)
                        assert_int_equal(copy->streams[piece.offset + i], piece.stream);
        }
        assert_int_equal(r, 0);
        assert_int_equal(at, MAX2((uint64_t) copy->n, offset));
        return seen;
}

// The same file, as another process finds it now.
static Ring *reopen(int fd) {
        char path[64];
        Ring *ring = NULL;
        int other;

        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        other = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(other >= 0);
        assert_int_equal(ring_open(other, &ring), 0);
        return ring;
}

static void expect_stat(const Ring *ring, const Copy *copy, const Seen *seen, bool ended) {
        uint64_t written[_RING_STREAM_MAX] = {0};
        RingStat stat;

        for (size_t i = 0; i < copy->n; i++)
                written[(size_t) copy->streams[i]]++;
        ring_stat(ring, &stat);
        for (size_t i = 0; i < _RING_STREAM_MAX; i++) {
                assert_int_equal(stat.written[i], written[i]);
                assert_int_equal(stat.kept[i], seen->kept[i]);
        }
        assert_int_equal(stat.ended, ended);
        assert_int_equal(seen->lost, copy->n - seen->kept[0] - seen->kept[1]);
}

static void check_all(Ring *ring, int fd, const Copy *copy, bool ended) {
        _cleanup_(ring_freep) Ring *left = reopen(fd);
        Seen seen = compare(ring, copy, 0);

        expect_stat(ring, copy, &seen, ended);
        seen = compare(left, copy, 0);
        expect_stat(left, copy, &seen, ended);
        for (size_t i = 0; i < 40; i++) {
                (void) compare(ring, copy, copy->n * i / 39);
                (void) compare(left, copy, copy->n * i / 39);
        }
        (void) compare(ring, copy, copy->n + 1000); // past the end is nothing, and no error
}

static void test_what_fits_is_kept(void **state) {
        static const struct {
                uint64_t size;
                size_t writes, length; // of the longest
        } cases[] = {
                {RING_SIZE_MIN, 0, 1},       {RING_SIZE_MIN, 1, 1},      {RING_SIZE_MIN, 3000, 2}, {RING_SIZE_MIN, 1, RING_ROOM}, {RING_SIZE_MIN, 1, 2 * RING_ROOM},
                {RING_SIZE_MIN, 1, RING_ROOM + 1}, {1 << 20, 100, 9000}, {1 << 20, 20, 40000}, {1 << 20, 20000, 30},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Copy copy = {0};
                int fd;
                _cleanup_(ring_freep) Ring *ring = create(cases[i].size, &fd);
                uint32_t random = (uint32_t) i;
                for (size_t k = 0; k < cases[i].writes; k++)
                        write_some(ring, &copy, next_random(&random) % 2, cases[i].writes == 1 ? cases[i].length : 1 + next_random(&random) % cases[i].length);
                Seen seen = compare(ring, &copy, 0);
                if (seen.lost > 0)
                        fail_msg("case %zu: %llu bytes dropped", i, (unsigned long long) seen.lost);
                check_all(ring, fd, &copy, false);
                ring_end(ring);
                check_all(ring, fd, &copy, true);
                copy_done(&copy);
        }
}

static void test_begin_and_end_are_kept_and_the_rest_is_counted(void **state) {
        static const struct {
                uint64_t size;
                size_t writes, length;
        } cases[] = {
                {RING_SIZE_MIN, 5000, 100}, {RING_SIZE_MIN, 10, 100000}, {RING_SIZE_MIN + RING_BLOCK, 3000, 300}, {1 << 20, 5000, 2000}, {1 << 20, 100, 131072},
        };

        for (size_t i = 0; i < ELEMENTS(cases); i++) {
                Copy copy = {0};
                int fd;
                _cleanup_(ring_freep) Ring *ring = create(cases[i].size, &fd);
                uint32_t random = (uint32_t) i + 77;
                for (size_t k = 0; k < cases[i].writes; k++)
                        write_some(ring, &copy, next_random(&random) % 2, 1 + next_random(&random) % cases[i].length);
                Seen seen = compare(ring, &copy, 0);
                uint64_t kept = seen.kept[0] + seen.kept[1], half = cases[i].size / 2;
                assert_int_equal(seen.n_lost, 1);
                assert_true(seen.first_lost <= half && seen.first_lost + RING_BLOCK > half * 6 / 10);
                assert_true(copy.n - seen.first_lost_end <= half + RING_BLOCK);
                assert_true(kept > 0 && kept < cases[i].size);
                check_all(ring, fd, &copy, false);
                ring_end(ring);
                check_all(ring, fd, &copy, true);
                copy_done(&copy);
        }
}

// A reader that goes on while it is written: at each moment it has all up to there, or the word that something is missing.
static void test_reading_while_it_is_written(void **state) {
        static const size_t every[] = {1, 7, 100, 3000};

        for (size_t i = 0; i < ELEMENTS(every); i++) {
                _cleanup_(ring_freep) Ring *ring = create(1 << 18, NULL);
                _cleanup_(ring_cursor_freep) RingCursor *cursor = NULL;
                uint64_t at = 0, lost = 0;
                uint32_t random = 5;
                RingPiece piece;
                Copy copy = {0};
                assert_int_equal(ring_cursor_new(0, &cursor), 0);
                for (size_t k = 1; k <= 6000; k++) {
                        write_some(ring, &copy, next_random(&random) % 2, 1 + next_random(&random) % 200);
                        if (k % every[i] != 0)
                                continue;
                        while (ring_read(ring, cursor, &piece) == 1) {
                                assert_int_equal(piece.offset, at);
                                at += piece.length;
                                lost += piece.lost ? piece.length : 0;
                                if (!piece.lost)
                                        assert_memory_equal(piece.data, copy.bytes + piece.offset, piece.length);
                        }
                        assert_int_equal(at, copy.n);
                }
                assert_true((lost > 0) == (every[i] >= 1000));
                copy_done(&copy);
        }
}

// What was being written when it died is not there; all before it is.
static void test_writer_that_dies_while_it_writes(void **state) {
        for (size_t cut = 0; cut < 400; cut += 13) {
                Copy copy = {0};
                int fd;
                _cleanup_(ring_freep) Ring *ring = create(RING_SIZE_MIN, &fd), *left = NULL;
                for (size_t k = 0; k < 3000; k++) // several rounds, so that old frames lie where the next is written
                        write_some(ring, &copy, RING_OUT, 50);
                uint64_t seq = ring->n_begun - 1;
                off_t at = ring_position(ring, seq) + (off_t) ring_slot(ring, seq)->used;
                char old[512], torn[512];
                assert_int_equal(pread(fd, old, sizeof(old), at), sizeof(old));
                size_t before = copy.n;
                write_some(ring, &copy, RING_ERR, sizeof(old) - sizeof(RingFrame));
                assert_int_equal(pread(fd, torn, sizeof(torn), at), sizeof(torn));
                memcpy(torn + cut, old + cut, sizeof(torn) - cut);
                assert_int_equal(pwrite(fd, torn, sizeof(torn), at), sizeof(torn));
                left = reopen(fd);
                copy.n = before;
                Seen seen = compare(left, &copy, 0);
                expect_stat(left, &copy, &seen, false);
                copy_done(&copy);
        }
}

// The limit on files is a disk that is full; what lies below it can be written again.
static void test_full_disk(void **state) {
        struct rlimit old, low = {0};
        void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);

        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        for (size_t blocks = 0; blocks < 8; blocks += 3) {
                Copy copy = {0};
                int fd;
                _cleanup_(ring_freep) Ring *ring = create(1 << 20, &fd);
                low = (struct rlimit) {RING_HEAD + blocks * RING_BLOCK, old.rlim_max};
                assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
                for (size_t k = 0; k < 600; k++)
                        write_some(ring, &copy, k % 2, 1000);
                check_all(ring, fd, &copy, false);
                Seen full = compare(ring, &copy, 0);
                assert_true(full.kept[0] + full.kept[1] <= blocks * RING_BLOCK);
                assert_true(blocks == 0 || full.kept[0] + full.kept[1] > (blocks - 1) * RING_BLOCK);
                assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0); // there is room again
                for (size_t k = 0; k < 10; k++)
                        write_some(ring, &copy, k % 2, 1000);
                Seen after = compare(ring, &copy, 0);
                assert_int_equal(after.lost, full.lost);
                assert_int_equal(after.kept[0], full.kept[0] + 5000);
                check_all(ring, fd, &copy, false);
                ring_end(ring);
                check_all(ring, fd, &copy, true);
                copy_done(&copy);
        }
        (void) signal(SIGXFSZ, handler);
}

static void test_sizes(void **state) {
        static const uint64_t wrong[] = {0, RING_HEAD, RING_SIZE_MIN - 1, RING_SIZE_MAX + 1, UINT64_MAX};
        Ring *ring = NULL;
        int fd = new_file();

        for (size_t i = 0; i < ELEMENTS(wrong); i++)
                assert_int_equal(ring_create(fd, wrong[i], &ring), -EINVAL);
        assert_int_equal(ring_create(fd, RING_SIZE_MAX, &ring), 0);
        ring_append(ring, RING_OUT, "x", 1);
        (void) ring_free(ring);
}

static void test_files_that_are_none(void **state) {
        char page[RING_HEAD];
        Ring *ring = NULL, *other = create(RING_SIZE_MIN, NULL);
        int fd = new_file();

        assert_int_equal(ring_open(fd, &ring), -EBADMSG);
        assert_int_equal(pread(other->fd, page, sizeof(page), 0), sizeof(page));
        for (size_t i = 0; i < sizeof(RingHead); i++) { // each byte of the head counts
                page[i] ^= 1;
                assert_int_equal(pwrite(fd, page, sizeof(page), 0), sizeof(page));
                assert_int_equal(ring_open(fd, &ring), -EBADMSG);
                page[i] ^= 1;
        }
        assert_int_equal(pwrite(fd, page, sizeof(page), 0), sizeof(page));
        assert_int_equal(ring_open(fd, &ring), 0); // without its blocks
        (void) ring_free(ring);
        (void) ring_free(other);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_fits_is_kept),
                cmocka_unit_test(test_begin_and_end_are_kept_and_the_rest_is_counted),
                cmocka_unit_test(test_reading_while_it_is_written),
                cmocka_unit_test(test_writer_that_dies_while_it_writes),
                cmocka_unit_test(test_full_disk),
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_files_that_are_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}

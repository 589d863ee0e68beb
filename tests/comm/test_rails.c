/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a message is cut over rails so that nothing is lost or twice, only over
 * those in use, in pieces that are worth it, and so that all end together, as
 * near as whole pieces can; and ranks use together what is faster together.
 * Method: every combination of a few sizes, speeds and what waits; the end of
 * the last rail is held against the best there is, found without the arithmetic
 * under test: by trying, in steps, what each rail could get.
 */
#include "comm/make/net_rails.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RAILS = WEFTI_RAILS_MOST };

static double end_of(const wefti_rail_load *rail, size_t bytes)
{
    return ((double)rail->waiting_bytes + (double)bytes) *
           (double)rail->byte_ps;
}

/* What is true of every cut. */
static void check_cut(size_t bytes, const wefti_rail_load rails[RAILS],
                      const size_t pieces[RAILS], int count)
{
    size_t all = 0;
    int with = 0;
    for (int r = 0; r < RAILS; r++) {
        assert_true(rails[r].byte_ps > 0 || pieces[r] == 0);
        assert_true(pieces[r] == 0 || pieces[r] == bytes ||
                    pieces[r] + 64 > WEFTI_RAIL_PIECE_BYTES);
        assert_int_equal(all % 64, pieces[r] > 0 ? 0 : all % 64);
        all += pieces[r];
        with += pieces[r] > 0;
    }
    assert_int_equal(all, bytes);
    assert_int_equal(count, with > 0 ? with : 1);
    assert_true(bytes > WEFTI_RAIL_WHOLE_BYTES || count == 1);
}

/* When the last of two rails has sent all, at best. */
static double best_end(size_t bytes, const wefti_rail_load *a,
                       const wefti_rail_load *b)
{
    double best = -1;
    for (size_t first = 0; first <= bytes; first += 16) {
        const double ends[] = {first ? end_of(a, first) : 0,
                               first < bytes ? end_of(b, bytes - first) : 0};
        const double last = ends[0] > ends[1] ? ends[0] : ends[1];
        best = best < 0 || last < best ? last : best;
    }
    return best;
}

static void test_two_rails_end_together(void **state)
{
    (void)state;
    static const int64_t speeds[] = {800, 8000, 8300, 20000, 80000, 1000000};
    static const size_t waiting[] = {0, 1000, 65536, 300000, 4 << 20};
    static const size_t sizes[] = {0,     1,     8192,   16384,  16385,  20000,
                                   65536, 65599, 131072, 262143, 1 << 20};
    for (size_t i = 0; i < 6 * 6 * 5 * 5 * 11; i++) {
        size_t rest = i;
        wefti_rail_load rails[RAILS] = {{0, 0}};
        size_t pieces[RAILS];
        rails[1] = (wefti_rail_load){speeds[rest % 6], waiting[rest / 36 % 5]};
        rest /= 6;
        rails[3] =
            (wefti_rail_load){speeds[rest % 6], waiting[rest / 6 / 5 % 5]};
        const size_t bytes = sizes[i / 900 % 11];
        const int count = wefti_rails_cut(bytes, rails, pieces);
        check_cut(bytes, rails, pieces, count);
        const double ends[] = {pieces[1] ? end_of(&rails[1], pieces[1]) : 0,
                               pieces[3] ? end_of(&rails[3], pieces[3]) : 0};
        const double last = ends[0] > ends[1] ? ends[0] : ends[1];
        const double best = best_end(bytes, &rails[1], &rails[3]);
        const bool first = rails[1].byte_ps < rails[3].byte_ps;
        const double faster = (double)rails[first ? 1 : 3].byte_ps;
        const double slower = (double)rails[first ? 3 : 1].byte_ps;
        /* What is cut is rounded, speeds too; or a piece is left out. */
        const double whole = (double)bytes * faster;
        const double piece = WEFTI_RAIL_PIECE_BYTES * slower;
        const double spare =
            bytes <= WEFTI_RAIL_WHOLE_BYTES || whole < piece ? whole : piece;
        if (last > best * 1.002 + (count > 1 ? 128 * slower : spare)) {
            fail_msg("%zu bytes: %zu %zu, ends %g, best %g", bytes, pieces[1],
                     pieces[3], last, best);
        }
    }
}

/* Three and four, where nothing waits: in proportion. */
static void test_more_rails_get_in_proportion(void **state)
{
    (void)state;
    const size_t bytes = 4 << 20;
    size_t pieces[RAILS];
    const wefti_rail_load three[RAILS] = {
        {8000, 0}, {0, 0}, {20000, 0}, {16000, 0}};
    assert_int_equal(wefti_rails_cut(bytes, three, pieces), 3);
    check_cut(bytes, three, pieces, 3);
    const double all = 1 / 8000.0 + 1 / 20000.0 + 1 / 16000.0;
    assert_in_range(pieces[0], (size_t)(bytes / 8000.0 / all) - 256,
                    (size_t)(bytes / 8000.0 / all) + 256);
    assert_in_range(pieces[2], (size_t)(bytes / 20000.0 / all) - 256,
                    (size_t)(bytes / 20000.0 / all) + 256);
    const wefti_rail_load four[RAILS] = {
        {8000, 0}, {8000, 1 << 20}, {8000, 0}, {8000, 0}};
    assert_int_equal(wefti_rails_cut(bytes, four, pieces), 4);
    check_cut(bytes, four, pieces, 4);
    assert_in_range(pieces[1], (1 << 20) / 4 - 256, (1 << 20) / 4 + 256);
    for (size_t size = 0; size <= 300000; size += 997) {
        check_cut(size, four, pieces, wefti_rails_cut(size, four, pieces));
        check_cut(size, three, pieces, wefti_rails_cut(size, three, pieces));
    }
}

/* Two that are told to be equally fast, and one is slower: it gets less. */
static void test_wrong_speed_is_made_good(void **state)
{
    (void)state;
    wefti_rail_load rails[RAILS] = {{8000, 0}, {8000, 0}};
    size_t sent[2] = {0};
    for (int i = 0; i < 1000; i++) {
        size_t pieces[RAILS];
        (void)wefti_rails_cut(128 << 10, rails, pieces);
        const size_t carried[] = {93623, 37449}; /* meanwhile */
        for (int r = 0; r < 2; r++) {
            const size_t waits = rails[r].waiting_bytes + pieces[r];
            rails[r].waiting_bytes =
                waits > carried[r] ? waits - carried[r] : 0;
            sent[r] += pieces[r];
        }
    }
    assert_in_range(sent[0], sent[1] * 22 / 10, sent[1] * 28 / 10);
}

static void test_speeds_add_up(void **state)
{
    (void)state;
    assert_int_equal(wefti_rails_byte_ps((int64_t[RAILS]){8000}), 8000);
    assert_int_equal(wefti_rails_byte_ps((int64_t[RAILS]){0, 8000, 8000}),
                     4000);
    assert_int_equal(wefti_rails_byte_ps((int64_t[RAILS]){8000, 20000}), 5714);
    assert_int_equal(wefti_rails_byte_ps((int64_t[RAILS]){0}), 0);
}

static wefti_rail_figures figures_of(int count, const int64_t *byte_ps,
                                     const int64_t *latency_ns)
{
    wefti_rail_figures figures = {.count = count};
    for (int r = 0; r < count; r++) {
        figures.alone[r] = (wefti_net_figures){latency_ns[r], 1000, byte_ps[r]};
    }
    return figures;
}

static void test_rails_are_used_together_where_that_is_faster(void **state)
{
    (void)state;
    static const struct {
        int64_t byte_ps[RAILS], latency_ns[RAILS], together_ps;
        int count;
        bool all;
        int64_t used[RAILS];
        int small;
    } cases[] = {
        /* as fast as both; as one; a little more than half of the gain */
        {{8000, 20000}, {10, 10}, 5800, 2, true, {8000, 20000}, 0},
        {{8000, 20000}, {10, 10}, 8000, 2, false, {8000, 0}, 0},
        {{8000, 20000}, {10, 10}, 6800, 2, true, {8000, 20000}, 0},
        {{8000, 20000}, {10, 10}, 6900, 2, false, {8000, 0}, 0},
        /* the second is the faster, and slower together */
        {{20000, 8000}, {10, 10}, 9000, 2, false, {0, 8000}, 1},
        /* and the quicker, or not by enough */
        {{8000, 20000}, {30, 10}, 5800, 2, true, {8000, 20000}, 1},
        {{8000, 20000}, {30, 21}, 5800, 2, true, {8000, 20000}, 0},
        /* one is not worth it */
        {{8000, 800000, 20000},
         {30, 1, 30},
         5800,
         3,
         true,
         {8000, 0, 20000},
         0},
        {{8000, 800000}, {10, 10}, 7900, 2, false, {8000, 0}, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const wefti_rail_figures figures =
            figures_of(cases[i].count, cases[i].byte_ps, cases[i].latency_ns);
        const wefti_net_figures together = {.byte_ps = cases[i].together_ps};
        wefti_port_rails rails;
        print_message("case %zu\n", i);
        assert_int_equal(wefti_net_rails_choose(&figures, &together, &rails),
                         cases[i].all);
        assert_memory_equal(rails.byte_ps, cases[i].used,
                            sizeof(rails.byte_ps));
        assert_int_equal(rails.small, cases[i].small);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_rails_end_together),
        cmocka_unit_test(test_more_rails_get_in_proportion),
        cmocka_unit_test(test_wrong_speed_is_made_good),
        cmocka_unit_test(test_speeds_add_up),
        cmocka_unit_test(test_rails_are_used_together_where_that_is_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

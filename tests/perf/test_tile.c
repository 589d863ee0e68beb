/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: weft-perf's data are what they claim, so that "0 wrong" means
 * something.
 * Method: reductions by the reference of the kernels' tests for every type and
 * operation; then outputs spoilt in one element, shifted, or left over from
 * another call, each of which has to be counted as wrong.
 */
#include "perf/tile.h"
#include "tests/kernels/reduce_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ELEMS = 3 * WEFTI_TILE_ELEMS + 77, SEEN = 700 };

static void test_reduced_tile_is_reduction_of_tiles(void **state)
{
    (void)state;
    enum { RANKS = 9 };
    static const int hosts[RANKS] = {0, 1, 0, 2, 3, 2, 4, 0, 1};
    static wefti_tile held[RANKS], reduced;
    static unsigned char expected[WEFTI_TILE_BYTES];
    for (int pair = 0; pair < WEFT_DTYPE_COUNT * WEFT_REDOP_COUNT; pair++) {
        weft_dtype dtype = (weft_dtype)(pair / WEFT_REDOP_COUNT);
        weft_redop redop = (weft_redop)(pair % WEFT_REDOP_COUNT);
        for (int n = 1; n <= RANKS && weft_redop_applies(redop, dtype);
             n += 1 + (n > 3)) {
            const unsigned char *sources[RANKS];
            for (int p = 0; p < n; p++) {
                unsigned char scale[8];
                wefti_tile_make(&held[p], dtype, redop, p, n);
                wefti_tile_make_scale(scale, dtype, p);
                if (redop == WEFT_REDOP_PREMULSUM) {
                    reference_scale(held[p].bytes, held[p].bytes, scale, SEEN,
                                    dtype);
                }
                sources[p] = held[p].bytes;
            }
            wefti_tile_make_reduced(&reduced, dtype, redop, n, NULL);
            reference_reduce(expected, sources, (size_t)n, SEEN, dtype, redop);
            assert_memory_equal(reduced.bytes, expected,
                                SEEN * weft_dtype_bytes(dtype));
            wefti_tile_make_reduced(&reduced, dtype, redop, n, hosts);
            reference_reduce_hosts(expected, sources, hosts, (size_t)n, SEEN,
                                   dtype, redop);
            assert_memory_equal(reduced.bytes, expected,
                                SEEN * weft_dtype_bytes(dtype));
        }
    }
}

/* Else equal results would prove nothing. */
static void test_reduced_tiles_vary_and_differ_from_one_rank(void **state)
{
    (void)state;
    static wefti_tile one, reduced;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        for (int redop = 0; redop <= WEFT_REDOP_PREMULSUM; redop++) {
            size_t bytes = SEEN * weft_dtype_bytes((weft_dtype)dtype);
            wefti_tile_make(&one, (weft_dtype)dtype, (weft_redop)redop, 1, 3);
            wefti_tile_make_reduced(&reduced, (weft_dtype)dtype,
                                    (weft_redop)redop, 3, NULL);
            assert_memory_not_equal(one.bytes, reduced.bytes, bytes);
            assert_memory_not_equal(reduced.bytes, reduced.bytes + 7 * 8,
                                    bytes - 7 * 8);
        }
    }
}

static void test_tiles_of_ranks_differ(void **state)
{
    (void)state;
    static wefti_tile a, b;
    wefti_tile_make(&a, WEFT_DTYPE_F32, WEFT_REDOP_SUM, 0, 4);
    wefti_tile_make(&b, WEFT_DTYPE_F32, WEFT_REDOP_SUM, 3, 4);
    assert_memory_not_equal(a.bytes, b.bytes, WEFTI_TILE_ELEMS * sizeof(float));
}

static void test_count_wrong_sees_every_damage(void **state)
{
    (void)state;
    static wefti_tile tile;
    wefti_tile_make(&tile, WEFT_DTYPE_I32, WEFT_REDOP_SUM, 1, 3);
    int32_t *data = malloc(ELEMS * sizeof(*data));
    assert_non_null(data);
    memset(data, 0xa5, ELEMS * sizeof(*data));
    assert_int_equal(wefti_tile_count_wrong(&tile, data, 5, ELEMS, 2), ELEMS);
    wefti_tile_fill(&tile, data, 5, ELEMS, 2);
    assert_int_equal(wefti_tile_count_wrong(&tile, data, 5, ELEMS, 2), 0);
    assert_int_equal(wefti_tile_count_wrong(&tile, data, 7, ELEMS, 0), 0);

    const size_t places[] = {0, 1, WEFTI_TILE_ELEMS - 8, ELEMS / 2, ELEMS - 1};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        data[places[i]] ^= 1;
        assert_int_equal(wefti_tile_count_wrong(&tile, data, 5, ELEMS, 2), 1);
        data[places[i]] ^= 1;
    }
    /* A chunk in another's place, or another call's data: mostly wrong. */
    memmove(data, data + 4096, 4096 * sizeof(*data));
    assert_true(wefti_tile_count_wrong(&tile, data, 5, 4096, 2) > 2048);
    wefti_tile_fill(&tile, data, 5, ELEMS, 3);
    assert_true(wefti_tile_count_wrong(&tile, data, 5, ELEMS, 2) > ELEMS / 2);
    free(data);
}

static void test_fill_in_parts_equals_fill_at_once(void **state)
{
    (void)state;
    static wefti_tile tile;
    static uint16_t whole[ELEMS], parts[ELEMS];
    wefti_tile_make(&tile, WEFT_DTYPE_BF16, WEFT_REDOP_SUM, 2, 5);
    wefti_tile_fill(&tile, whole, 0, ELEMS, 11);
    for (size_t first = 0; first < ELEMS; first += 1000) {
        size_t elems = ELEMS - first < 1000 ? ELEMS - first : 1000;
        wefti_tile_fill(&tile, parts + first, first, elems, 11);
    }
    assert_memory_equal(whole, parts, sizeof(whole));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduced_tile_is_reduction_of_tiles),
        cmocka_unit_test(test_reduced_tiles_vary_and_differ_from_one_rank),
        cmocka_unit_test(test_tiles_of_ranks_differ),
        cmocka_unit_test(test_count_wrong_sees_every_damage),
        cmocka_unit_test(test_fill_in_parts_equals_fill_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

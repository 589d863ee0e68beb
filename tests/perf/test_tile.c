/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: weft-perf's data are what they claim, so that "0 wrong" means
 * something.
 * Method: reductions computed here in doubles for every type, operation and
 * rank count; then outputs spoilt in one element, shifted, or left over from
 * another call, each of which has to be counted as wrong.
 */
#include "perf/tile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ELEMS = 3 * WEFTI_TILE_ELEMS + 77 };

static double value_at(const wefti_tile *tile, size_t x)
{
    const unsigned char *at = tile->bytes + x * weft_dtype_bytes(tile->dtype);
    uint32_t bits = 0;
    float narrow;
    switch (tile->dtype) {
    case WEFT_DTYPE_U8:
        return *at;
    case WEFT_DTYPE_I32:
        return *(const int32_t *)(const void *)at;
    case WEFT_DTYPE_I64:
        return (double)*(const int64_t *)(const void *)at;
    case WEFT_DTYPE_BF16:
        bits = (uint32_t)(*(const uint16_t *)(const void *)at) << 16;
        memcpy(&narrow, &bits, sizeof(narrow));
        return (double)narrow;
    case WEFT_DTYPE_F32:
        return (double)*(const float *)(const void *)at;
    default:
        return *(const double *)(const void *)at;
    }
}

static double expected(weft_dtype dtype, weft_redop redop, const double *values,
                       int nranks)
{
    double sum = 0, most = 0;
    for (int p = 0; p < nranks; p++) {
        sum += values[p];
        most = values[p] > most ? values[p] : most;
    }
    if (redop == WEFT_REDOP_MAX) {
        return most;
    }
    if (dtype == WEFT_DTYPE_U8) {
        sum = (double)((int64_t)sum % 256);
        return redop == WEFT_REDOP_AVG ? (double)((int64_t)sum / nranks) : sum;
    }
    return redop == WEFT_REDOP_AVG ? sum / nranks : sum;
}

static void test_reduced_tile_is_reduction_of_tiles(void **state)
{
    (void)state;
    enum { RANKS = 9 };
    static wefti_tile held[RANKS], reduced;
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        for (int o = 0; o < WEFT_REDOP_COUNT; o++) {
            for (int n = 1; n <= RANKS; n++) {
                wefti_tile_make_reduced(&reduced, (weft_dtype)d, (weft_redop)o,
                                        n);
                for (int p = 0; p < n; p++) {
                    wefti_tile_make(&held[p], (weft_dtype)d, p, n);
                }
                for (size_t x = 0; x < WEFTI_TILE_ELEMS; x += 13) {
                    double values[RANKS];
                    for (int p = 0; p < n; p++) {
                        values[p] = value_at(&held[p], x);
                    }
                    assert_true(value_at(&reduced, x) == expected((weft_dtype)d,
                                                                  (weft_redop)o,
                                                                  values, n));
                }
            }
        }
    }
}

static void test_tiles_of_ranks_differ(void **state)
{
    (void)state;
    static wefti_tile a, b;
    wefti_tile_make(&a, WEFT_DTYPE_F32, 0, 4);
    wefti_tile_make(&b, WEFT_DTYPE_F32, 3, 4);
    assert_memory_not_equal(a.bytes, b.bytes, WEFTI_TILE_ELEMS * sizeof(float));
}

static void test_count_wrong_sees_every_damage(void **state)
{
    (void)state;
    static wefti_tile tile;
    wefti_tile_make(&tile, WEFT_DTYPE_I32, 1, 3);
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
    wefti_tile_make(&tile, WEFT_DTYPE_BF16, 2, 5);
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
        cmocka_unit_test(test_tiles_of_ranks_differ),
        cmocka_unit_test(test_count_wrong_sees_every_damage),
        cmocka_unit_test(test_fill_in_parts_equals_fill_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

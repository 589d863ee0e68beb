/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the CUDA kernels of kernels/wire, emulated, or their PTX, interpreted,
 * give the bits of the host's functions, whatever the launch shape, the thread
 * order and the alignment, and access nothing but their arguments.
 *
 * Method: random calls for every type and reduction, of 0, 1, odd and large
 * counts and 1 to 9 sources, and up to all that there is room for; addresses
 * with the same, another and no alignment of elements. Buffers end where their
 * last element does, so that the address sanitizer sees one too far; the
 * interpreter gets the list of them all.
 * Outputs, and what lies before them, are poisoned.
 */
#include "base/check.h"
#include "kernels/wire/launch.h"
#include "kernels/wire/pack.h"
#include "kernels/wire/reduce.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/seed.h"
#include "tests/simt/wire_launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { POISON = 0xa5, UNIT_BYTES = 16, RANGES = 1024 };

static uint64_t seed;

/* All memory that kernels may access now. */
static wire_range ranges[RANGES];
static size_t range_count;

static void add_range(const void *at, size_t bytes)
{
    assert_true(range_count < RANGES);
    ranges[range_count++] = (wire_range){at, bytes, false};
}

static void drop_range(const void *at)
{
    for (size_t i = 0; i < range_count; i++) {
        if (ranges[i].at == at) {
            ranges[i] = ranges[--range_count];
            return;
        }
    }
    fail_msg("a range that is not there");
}

/* An array that ends where its block of memory ends. */
typedef struct array {
    unsigned char *block, *at;
    size_t bytes;
} array;

static array new_array(size_t bytes, size_t offset)
{
    void *block;
    assert_int_equal(posix_memalign(&block, UNIT_BYTES, offset + bytes), 0);
    array made = {block, (unsigned char *)block + offset, bytes};
    memset(block, POISON, offset + bytes);
    add_range(made.at, bytes);
    return made;
}

static void free_array(array *made)
{
    drop_range(made->at);
    free(made->block);
}

/* same: all arrays alike modulo a unit; aligned: to their elements. */
typedef enum placing { SAME, ALIGNED, ANY, PLACINGS } placing;

static size_t random_offset(placing where, size_t same, size_t width)
{
    return where == SAME      ? same * width % UNIT_BYTES
           : where == ALIGNED ? random_next(&seed) % 4 * width
                              : random_next(&seed) % UNIT_BYTES;
}

/* written: the array that the kernel writes; NULL: any of them. */
static void launch(const char *verb, const char *what, void *args,
                   const void *written)
{
    char name[64];
    snprintf(name, sizeof(name), "wefti_%s_%s", verb, what);
    for (size_t i = 0; i < range_count; i++) {
        ranges[i].writable = !written || ranges[i].at == written;
    }
    wire_launch(name, args, ranges, range_count, &seed);
}

static void assert_same(const char *what, weft_dtype dtype, weft_redop redop,
                        size_t count, array got, const unsigned char *expected)
{
    for (size_t i = 0; i < got.bytes; i++) {
        if (got.at[i] != expected[i]) {
            fail_msg("%s %s %s, %zu sources, %zu bytes: byte %zu is %02x, "
                     "not %02x",
                     what, weft_dtype_text(dtype), weft_redop_text(redop),
                     count, got.bytes, i, got.at[i], expected[i]);
        }
    }
    for (unsigned char *byte = got.block; byte != got.at; byte++) {
        assert_int_equal(*byte, POISON);
    }
}

/* One reduction; in place into source `target`, unless that is none. */
static void check_reduce(weft_dtype dtype, weft_redop redop, size_t count,
                         size_t elems, placing where, size_t target)
{
    size_t width = weft_dtype_bytes(dtype), same = random_next(&seed);
    array sources[WEFTI_LAUNCH_SOURCES];
    wefti_reduce_args args = {.elems = elems,
                              .redop = (int32_t)redop,
                              .source_count = (uint32_t)count};
    for (size_t k = 0; k < count; k++) {
        sources[k] =
            new_array(elems * width, random_offset(where, same, width));
        reference_fill(sources[k].at, elems, dtype, &seed);
        args.sources[k] = sources[k].at;
    }
    array dst = new_array(elems * width, random_offset(where, same, width));
    unsigned char *expected = malloc(elems * width + 1);
    wefti_reduce(expected, args.sources, count, elems, dtype, redop);
    args.dst = target < count ? sources[target].at : dst.at;
    launch("reduce", weft_dtype_text(dtype), &args, args.dst);
    assert_same("reduce", dtype, redop, count,
                target < count ? sources[target] : dst, expected);
    for (size_t k = 0; k < count; k++) {
        free_array(&sources[k]);
    }
    free_array(&dst);
    free(expected);
}

typedef void (*pair_check)(weft_dtype dtype, weft_redop redop);

static void for_each_pair(pair_check check)
{
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        for (int redop = 0; redop < WEFT_REDOP_COUNT; redop++) {
            if (weft_redop_applies((weft_redop)redop, (weft_dtype)dtype)) {
                check((weft_dtype)dtype, (weft_redop)redop);
            }
        }
    }
}

static void check_counts(weft_dtype dtype, weft_redop redop)
{
    static const size_t elems[] = {0, 1, 7, 33, 129};
    for (size_t count = 1; count <= 9; count++) {
        placing where = (placing)(random_next(&seed) % PLACINGS);
        check_reduce(dtype, redop, count, elems[random_next(&seed) % 5], where,
                     SIZE_MAX);
        check_reduce(dtype, redop, count, 40 + random_next(&seed) % 100,
                     (placing)(count % PLACINGS), SIZE_MAX);
    }
}

static void test_reduce_equals_host(void **state)
{
    (void)state;
    for_each_pair(check_counts);
}

static void check_large(weft_dtype dtype, weft_redop redop)
{
    if (redop == WEFT_REDOP_SUM || redop == WEFT_REDOP_AVG) {
        size_t count = 10 + random_next(&seed) % (WEFTI_LAUNCH_SOURCES - 9);
        check_reduce(dtype, redop, count, 50, SAME, SIZE_MAX);
        check_reduce(dtype, redop, WEFTI_LAUNCH_SOURCES, 17, ANY, SIZE_MAX);
        check_reduce(dtype, redop, 3, 5001, SAME, SIZE_MAX);
        check_reduce(dtype, redop, 2, 1500, ANY, SIZE_MAX);
    }
}

static void test_reduce_of_many_sources_and_elements_equals_host(void **state)
{
    (void)state;
    for_each_pair(check_large);
}

static void check_in_place(weft_dtype dtype, weft_redop redop)
{
    for (size_t count = 1; count <= 5; count += 2) {
        check_reduce(dtype, redop, count, 100, (placing)(count / 2 % PLACINGS),
                     count / 2);
    }
}

static void test_reduce_into_a_source_equals_host(void **state)
{
    (void)state;
    for_each_pair(check_in_place);
}

/* More sources than one launch takes: groups in the wide type, then those. */
static void test_reduce_by_groups_equals_host(void **state)
{
    (void)state;
    enum { SOURCES = 3 * WEFTI_LAUNCH_SOURCES / 2 + 3, ELEMS = 37 };
    static uint16_t values[SOURCES][ELEMS], got[ELEMS], expected[ELEMS];
    static float wide[SOURCES][ELEMS], sums[2][ELEMS], sum[ELEMS];
    const void *all[SOURCES];
    add_range(values, sizeof(values));
    add_range(wide, sizeof(wide));
    add_range(sums, sizeof(sums));
    add_range(sum, sizeof(sum));
    add_range(got, sizeof(got));
    wefti_reduce_args part = {.elems = ELEMS, .redop = WEFT_REDOP_SUM};
    wefti_reduce_args top = {.dst = sum,
                             .elems = ELEMS,
                             .redop = WEFT_REDOP_SUM,
                             .source_count = 2,
                             .sources = {sums[0], sums[1]}};
    for (size_t k = 0; k < SOURCES; k++) {
        reference_fill((unsigned char *)values[k], ELEMS, WEFT_DTYPE_BF16,
                       &seed);
        wefti_cast_args widen = {wide[k], values[k], ELEMS, 0};
        launch("widen", "bf16", &widen, wide);
        all[k] = values[k];
    }
    for (size_t group = 0; group < 2; group++) {
        size_t from = group * WEFTI_LAUNCH_SOURCES;
        size_t left = SOURCES - from;
        part.dst = sums[group];
        part.source_count =
            (uint32_t)(left < WEFTI_LAUNCH_SOURCES ? left
                                                   : WEFTI_LAUNCH_SOURCES);
        for (size_t k = 0; k < part.source_count; k++) {
            part.sources[k] = wide[from + k];
        }
        launch("reduce", "f32", &part, sums);
    }
    launch("reduce", "f32", &top, sum);
    wefti_cast_args narrow = {got, sum, ELEMS, SOURCES};
    launch("narrow", "bf16", &narrow, got);
    wefti_reduce(expected, all, SOURCES, ELEMS, WEFT_DTYPE_BF16,
                 WEFT_REDOP_AVG);
    assert_memory_equal(got, expected, sizeof(got));
    range_count = 0;
}

static void check_casts(weft_dtype dtype, weft_redop redop)
{
    size_t width = weft_dtype_bytes(dtype), wide = wefti_wide_bytes(dtype);
    size_t elems = random_next(&seed) % 200;
    array narrow_in = new_array(elems * width, random_next(&seed) % UNIT_BYTES);
    array wide_in = new_array(elems * wide, random_next(&seed) % UNIT_BYTES);
    array out = new_array(elems * width, random_next(&seed) % UNIT_BYTES);
    array wide_out = new_array(elems * wide, random_next(&seed) % UNIT_BYTES);
    unsigned char *expected = malloc(elems * wide + 1);
    weft_dtype wide_dtype = wide != width ? WEFT_DTYPE_F32 : dtype;
    uint32_t divisor =
        redop == WEFT_REDOP_AVG ? 1 + (uint32_t)(random_next(&seed) % 9) : 0;
    reference_fill(narrow_in.at, elems, dtype, &seed);
    reference_fill(wide_in.at, elems, wide_dtype, &seed);
    if (wide != width) {
        wefti_cast_args args = {wide_out.at, narrow_in.at, elems, 0};
        launch("widen", weft_dtype_text(dtype), &args, wide_out.at);
        for (size_t i = 0; i < elems; i++) { /* NaN's bits are not promised */
            float got, want;
            memcpy(&got, wide_out.at + i * 4, 4);
            wefti_widen(&want, narrow_in.at + i * width, 1, dtype);
            assert_true(got != got ? want != want
                                   : memcmp(&got, &want, 4) == 0);
        }
    }
    wefti_cast_args args = {out.at, wide_in.at, elems, divisor};
    launch("narrow", weft_dtype_text(dtype), &args, out.at);
    wefti_narrow(expected, wide_in.at, divisor ? divisor : 1, elems, dtype,
                 redop);
    assert_same("narrow", dtype, redop, divisor, out, expected);
    free_array(&narrow_in);
    free_array(&wide_in);
    free_array(&out);
    free_array(&wide_out);
    free(expected);
}

static void test_casts_equal_the_hosts(void **state)
{
    (void)state;
    for_each_pair(check_casts);
}

/* Every code there is, and every sum of two neighbours: ties among them. */
static void test_small_floats_of_every_code_equal_the_hosts(void **state)
{
    (void)state;
    enum { CODES = 65536 };
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F16, WEFT_DTYPE_BF16,
                                        WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F8E5M2};
    static float wide[CODES], expected_wide[CODES];
    static uint16_t codes[CODES], got[CODES], expected[CODES];
    add_range(wide, sizeof(wide));
    add_range(codes, sizeof(codes));
    add_range(got, sizeof(got));
    for (size_t i = 0; i < WEFTI_COUNT_OF(dtypes); i++) {
        const char *text = weft_dtype_text(dtypes[i]);
        size_t bytes = weft_dtype_bytes(dtypes[i]);
        size_t count = bytes == 1 ? 256 : CODES;
        for (size_t k = 0; k < count; k++) {
            if (bytes == 1) {
                ((uint8_t *)codes)[k] = (uint8_t)k;
            } else {
                codes[k] = (uint16_t)k;
            }
        }
        wefti_cast_args widen = {wide, codes, count, 0};
        launch("widen", text, &widen, wide);
        wefti_widen(expected_wide, codes, count, dtypes[i]);
        for (size_t k = 0; k < count; k++) {
            float want = expected_wide[k];
            assert_true(want != want ? wide[k] != wide[k]
                                     : memcmp(&wide[k], &want, 4) == 0);
        }
        for (size_t k = 0; k + 1 < count; k++) {
            wide[k] = expected_wide[k] / 2 + expected_wide[k + 1] / 2;
        }
        wefti_cast_args narrow = {got, wide, count, 0};
        launch("narrow", text, &narrow, got);
        wefti_narrow(expected, wide, 1, count, dtypes[i], WEFT_REDOP_SUM);
        assert_memory_equal(got, expected, count * bytes);
    }
    range_count = 0;
}

static void check_scale(weft_dtype dtype, weft_redop redop)
{
    size_t width = weft_dtype_bytes(dtype), same = random_next(&seed);
    for (placing where = SAME; where < PLACINGS; where++) {
        size_t elems = random_next(&seed) % 300;
        array src = new_array(elems * width, random_offset(where, same, width));
        array dst = new_array(elems * width, random_offset(where, same, width));
        array scalar = new_array(width, random_next(&seed) % UNIT_BYTES);
        unsigned char *expected = malloc(elems * width + 1);
        reference_fill(src.at, elems, dtype, &seed);
        reference_fill(scalar.at, 1, dtype, &seed);
        wefti_scale(expected, src.at, scalar.at, elems, dtype);
        wefti_scale_args args = {dst.at, src.at, scalar.at, elems};
        launch("scale", weft_dtype_text(dtype), &args, dst.at);
        assert_same("scale", dtype, redop, 1, dst, expected);
        args.dst = src.at;
        launch("scale", weft_dtype_text(dtype), &args, src.at);
        assert_same("scale in place", dtype, redop, 1, src, expected);
        free_array(&src);
        free_array(&dst);
        free_array(&scalar);
        free(expected);
    }
}

static void test_scale_equals_the_hosts(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        check_scale((weft_dtype)dtype, WEFT_REDOP_PREMULSUM);
    }
}

static void test_copy_any_size_and_alignment_equal(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        size_t bytes = round < 40 ? (size_t)round : random_next(&seed) % 5000;
        array src = new_array(bytes, random_next(&seed) % UNIT_BYTES);
        array dst = new_array(bytes, random_next(&seed) % UNIT_BYTES);
        reference_fill(src.at, bytes, WEFT_DTYPE_U8, &seed);
        wefti_copy_args args = {dst.at, src.at, bytes};
        launch("copy", "bytes", &args, dst.at);
        assert_same("copy", WEFT_DTYPE_U8, WEFT_REDOP_SUM, 1, dst, src.at);
        free_array(&src);
        free_array(&dst);
    }
}

/* Pieces of many sizes, some of none, with gaps; there and back. */
static void check_pack(size_t count)
{
    wefti_piece *pieces = malloc(count * sizeof(*pieces) + 1);
    array *apart = malloc(count * sizeof(*apart) + 1);
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = random_next(&seed) % 5 == 0
                           ? 0
                           : random_next(&seed) % (i % 50 == 7 ? 70000 : 90);
        apart[i] = new_array(bytes, random_next(&seed) % UNIT_BYTES);
        reference_fill(apart[i].at, bytes, WEFT_DTYPE_U8, &seed);
        total += random_next(&seed) % 3;
        pieces[i] = (wefti_piece){apart[i].at, total, bytes};
        total += bytes;
    }
    array packed = new_array(total, random_next(&seed) % UNIT_BYTES);
    array expected = new_array(total, 0);
    add_range(pieces, count * sizeof(*pieces));
    wefti_pack(expected.at, pieces, count);
    wefti_pack_args args = {packed.at, pieces, count};
    launch("pack", "bytes", &args, packed.at);
    assert_same("pack", WEFT_DTYPE_U8, WEFT_REDOP_SUM, count, packed,
                expected.at);
    for (size_t i = 0; i < count; i++) {
        memset(apart[i].at, POISON, apart[i].bytes);
    }
    launch("unpack", "bytes", &args, NULL);
    for (size_t i = 0; i < count; i++) {
        assert_same("unpack", WEFT_DTYPE_U8, WEFT_REDOP_SUM, i, apart[i],
                    expected.at + pieces[i].packed_offset);
        memset(apart[i].at, POISON, apart[i].bytes);
    }
    wefti_unpack(packed.at, pieces, count);
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(apart[i].at, expected.at + pieces[i].packed_offset,
                            apart[i].bytes);
        free_array(&apart[i]);
    }
    drop_range(pieces);
    free_array(&packed);
    free_array(&expected);
    free(apart);
    free(pieces);
}

static void test_pack_and_unpack_equal_the_hosts(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 9, 64, 65, 130};
    for (size_t i = 0; i < WEFTI_COUNT_OF(counts); i++) {
        check_pack(counts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_equals_host),
        cmocka_unit_test(test_reduce_of_many_sources_and_elements_equals_host),
        cmocka_unit_test(test_reduce_into_a_source_equals_host),
        cmocka_unit_test(test_reduce_by_groups_equals_host),
        cmocka_unit_test(test_casts_equal_the_hosts),
        cmocka_unit_test(test_small_floats_of_every_code_equal_the_hosts),
        cmocka_unit_test(test_scale_equals_the_hosts),
        cmocka_unit_test(test_copy_any_size_and_alignment_equal),
        cmocka_unit_test(test_pack_and_unpack_equal_the_hosts),
    };
    seed = random_seed();
    int failed = 0;
    for (unsigned round = 0; round < wire_launch_rounds() && !failed; round++) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}

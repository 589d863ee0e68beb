/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every float narrower than f32 is converted as its format says, and the
 * corners that weft/types.h promises hold for every type.
 *
 * Method: all 256 codes of each 8-bit and all 65536 of each 16-bit float, and
 * both sides of every tie between neighbours, against a decoder by formula and
 * an encoder by search (reduce_reference.h), and all f32 that differ in what
 * rounding can see against the conversions of one element; all pairs of 8-bit
 * floats under each reduction; averages of integers against division; corners
 * against figures written down here. Everything on each instruction-set level
 * of this processor, at odd addresses.
 */
#include "base/check.h"
#include "base/small_float.h"
#include "kernels/wire/reduce.h"
#include "kernels/wire/reduce_level.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_CODES = 65536, REPEAT = 67 };

static const weft_dtype small_dtypes[] = {WEFT_DTYPE_F16, WEFT_DTYPE_BF16,
                                          WEFT_DTYPE_F8E4M3, WEFT_DTYPE_F8E5M2};

/* One byte in front: nothing is aligned. */
static unsigned char codes_room[MOST_CODES * 2 + 1];
static unsigned char wide_room[MOST_CODES * 4 + 1];
static unsigned char again_room[MOST_CODES * 2 + 1];
static unsigned char *const codes = codes_room + 1;
static unsigned char *const wide = wide_room + 1;
static unsigned char *const again = again_room + 1;

static float float_at(size_t i)
{
    float value;
    memcpy(&value, wide + 4 * i, 4);
    return value;
}

/* Writes every code of dtype to codes; returns how many there are. */
static size_t make_codes(weft_dtype dtype)
{
    size_t bytes = weft_dtype_bytes(dtype);
    size_t count = (size_t)1 << (8 * bytes);
    for (size_t i = 0; i < count; i++) {
        memcpy(codes + i * bytes, &i, bytes); /* little endian */
    }
    return count;
}

static void check_round_trip(const wefti_reduce_level *level, weft_dtype dtype)
{
    size_t bytes = weft_dtype_bytes(dtype), count = make_codes(dtype);
    unsigned char canonical[2];
    reference_store(canonical, (double)NAN, dtype);
    level->widen[dtype](wide, codes, count);
    level->narrow[dtype](again, wide, count);
    for (size_t i = 0; i < count; i++) {
        double value = reference_value(codes + i * bytes, dtype);
        float got = float_at(i);
        if (isnan(value)) {
            assert_true(isnan(got));
            assert_memory_equal(again + i * bytes, canonical, bytes);
            continue;
        }
        if ((double)got != value || !signbit(got) != !signbit(value) ||
            memcmp(again + i * bytes, codes + i * bytes, bytes) != 0) {
            fail_msg("%s %s: code %zx gives %a, and is %a", level->name,
                     weft_dtype_text(dtype), i, (double)got, value);
        }
    }
}

static void test_widen_and_back_every_code_is_kept(void **state)
{
    (void)state;
    for (size_t d = 0; d < WEFTI_COUNT_OF(small_dtypes); d++) {
        for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
            check_round_trip(wefti_reduce_level_at(l), small_dtypes[d]);
        }
    }
}

/* The f32 a place above, at or below the middle of code i and its successor,
 * which beyond the last number is where it would be. */
static float near_tie(size_t i, int place, const double *values, size_t finite)
{
    double next =
        i + 1 < finite ? values[i + 1] : 2 * values[i] - values[i - 1];
    float tie = (float)((values[i] + next) / 2);
    return place == 0 ? tie : nextafterf(tie, place > 0 ? INFINITY : 0);
}

static void check_ties(const wefti_reduce_level *level, weft_dtype dtype)
{
    static double values[MOST_CODES];
    size_t bytes = weft_dtype_bytes(dtype), count = make_codes(dtype) / 2;
    size_t finite = 0;
    for (; finite < count; finite++) {
        values[finite] = reference_value(codes + finite * bytes, dtype);
        if (!isfinite(values[finite])) {
            break;
        }
    }
    for (int sign = 0; sign < 2; sign++) {
        for (int place = -1; place <= 1; place++) {
            for (size_t i = 0; i < finite; i++) {
                float value = near_tie(i, place, values, finite);
                value = sign ? -value : value;
                memcpy(wide + 4 * i, &value, 4);
            }
            level->narrow[dtype](again, wide, finite);
            for (size_t i = 0; i < finite; i++) {
                unsigned char want[2];
                reference_store(want, (double)float_at(i), dtype);
                if (memcmp(again + i * bytes, want, bytes) != 0) {
                    fail_msg("%s %s: %a is not rounded to nearest even",
                             level->name, weft_dtype_text(dtype),
                             (double)float_at(i));
                }
            }
        }
    }
}

static void test_narrow_every_tie_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (size_t d = 0; d < WEFTI_COUNT_OF(small_dtypes); d++) {
        for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
            check_ties(wefti_reduce_level_at(l), small_dtypes[d]);
        }
    }
}

/* What no type of that size can hold, and what is too small for it. */
static void test_narrow_far_values_overflow_and_vanish(void **state)
{
    (void)state;
    static const float far[] = {
        1e30f,    65520.0f, 65519.0f, 480.0f,     464.0f,  3e38f,
        INFINITY, 1e-30f,   1e-45f,   0.0f,       1e9f,    0x1p-24f,
        0x1p-25f, 61440.0f, 465.0f,   0x1.8p-25f, 0x1p-10f};
    for (size_t d = 0; d < WEFTI_COUNT_OF(small_dtypes); d++) {
        weft_dtype dtype = small_dtypes[d];
        for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
            for (size_t i = 0; i < 2 * WEFTI_COUNT_OF(far); i++) {
                float value = i % 2 ? -far[i / 2] : far[i / 2];
                unsigned char want[2];
                memcpy(wide + 4 * i, &value, 4);
                reference_store(want, (double)value, dtype);
                memcpy(codes + i * weft_dtype_bytes(dtype), want,
                       weft_dtype_bytes(dtype));
            }
            size_t count = 2 * WEFTI_COUNT_OF(far);
            wefti_reduce_level_at(l)->narrow[dtype](again, wide, count);
            assert_memory_equal(again, codes, count * weft_dtype_bytes(dtype));
        }
    }
}

/* Writes one f32 for each upper half, with this lower one. */
static void make_floats(uint32_t low)
{
    for (uint32_t high = 0; high < MOST_CODES; high++) {
        uint32_t bits = high << 16 | low;
        memcpy(wide + 4 * (size_t)high, &bits, 4);
    }
}

static void test_narrow_every_upper_half_equals_one_element(void **state)
{
    (void)state;
    static const uint32_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (size_t i = 0; i < WEFTI_COUNT_OF(lows); i++) {
        make_floats(lows[i]);
        for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
            const wefti_reduce_level *level = wefti_reduce_level_at(l);
            level->narrow[WEFT_DTYPE_F8E4M3](codes, wide, MOST_CODES);
            level->narrow[WEFT_DTYPE_F8E5M2](again, wide, MOST_CODES);
            for (size_t k = 0; k < MOST_CODES; k++) {
                float value = float_at(k);
                if (codes[k] != wefti_f8e4m3_narrow(value) ||
                    again[k] != wefti_f8e5m2_narrow(value)) {
                    fail_msg("%s: %a gives f8e4m3 %x, f8e5m2 %x", level->name,
                             (double)value, codes[k], again[k]);
                }
            }
        }
    }
}

/* All pairs of codes, as two sources. */
static void check_pairs(weft_dtype dtype, weft_redop redop)
{
    static unsigned char a[MOST_CODES], b[MOST_CODES];
    const unsigned char *sources[] = {a, b};
    for (size_t i = 0; i < MOST_CODES; i++) {
        a[i] = (unsigned char)(i >> 8);
        b[i] = (unsigned char)i;
    }
    reference_reduce(codes, sources, 2, MOST_CODES, dtype, redop);
    for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
        const wefti_reduce_level *level = wefti_reduce_level_at(l);
        memset(again, 0xa5, MOST_CODES);
        wefti_reduce_by(level, again, (const void *const *)sources, 2,
                        MOST_CODES, dtype, redop);
        for (size_t i = 0; i < MOST_CODES; i++) {
            if (again[i] != codes[i]) {
                fail_msg("%s: %s of %s %02x, %02x: %02x, not %02x", level->name,
                         weft_redop_text(redop), weft_dtype_text(dtype), a[i],
                         b[i], again[i], codes[i]);
            }
        }
    }
}

static void
test_reduce_every_pair_of_8_bit_floats_equals_reference(void **state)
{
    (void)state;
    for (int o = 0; o < WEFT_REDOP_COUNT; o++) {
        if (weft_redop_applies((weft_redop)o, WEFT_DTYPE_F8E4M3)) {
            check_pairs(WEFT_DTYPE_F8E4M3, (weft_redop)o);
            check_pairs(WEFT_DTYPE_F8E5M2, (weft_redop)o);
        }
    }
}

/* The quotient of the bits of an integer type's element, cut towards zero. */
static uint64_t quotient(uint64_t bits, size_t count, weft_dtype dtype)
{
    unsigned above = 64 - 8 * (unsigned)weft_dtype_bytes(dtype);
    if (weft_dtype_kind(dtype) == WEFT_KIND_UNSIGNED) {
        return bits / count;
    }
    int64_t value = (int64_t)(bits << above) >> above;
    return (uint64_t)(value / (int64_t)count) << above >> above;
}

/* Multiples of count and their neighbours, ends, and what is drawn; all codes
 * of 8 bits. Returns how many. */
static size_t make_dividends(weft_dtype dtype, size_t count, uint64_t *seed)
{
    enum { DIVIDENDS = 1024 };
    size_t bytes = weft_dtype_bytes(dtype);
    for (size_t i = 0; i < DIVIDENDS; i++) {
        uint64_t drawn = random_next(seed) >> random_next(seed) % 64;
        uint64_t value = bytes == 1   ? i
                         : i % 4 == 0 ? drawn
                         : i < 16     ? (UINT64_C(1) << (8 * bytes - 1)) + i - 8
                                      : drawn / count * count + i % 4 - 2;
        memcpy(wide + i * bytes, &value, bytes);
    }
    return DIVIDENDS;
}

static void check_quotients(weft_dtype dtype, size_t count, uint64_t *seed)
{
    size_t bytes = weft_dtype_bytes(dtype);
    size_t elems = make_dividends(dtype, count, seed);
    for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
        const wefti_reduce_level *level = wefti_reduce_level_at(l);
        level->average[dtype](again, wide, count, elems);
        for (size_t i = 0; i < elems; i++) {
            uint64_t value = 0, got = 0;
            memcpy(&value, wide + i * bytes, bytes);
            memcpy(&got, again + i * bytes, bytes);
            if (got != quotient(value, count, dtype)) {
                fail_msg("%s: %s %llx / %zu gives %llx", level->name,
                         weft_dtype_text(dtype), (unsigned long long)value,
                         count, (unsigned long long)got);
            }
        }
    }
}

static void test_average_of_integers_equals_division(void **state)
{
    (void)state;
    static const size_t large[] = {32767, 32768, 65535,   65536,
                                   65537, 99991, 1 << 30, INT32_MAX};
    uint64_t seed = random_seed();
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        if (weft_dtype_kind((weft_dtype)d) == WEFT_KIND_FLOAT) {
            continue;
        }
        for (size_t count = 1; count <= 300; count++) {
            check_quotients((weft_dtype)d, count, &seed);
        }
        for (size_t i = 0; i < WEFTI_COUNT_OF(large); i++) {
            check_quotients((weft_dtype)d, large[i], &seed);
        }
    }
}

/* redop of a and b is out; all as bits. */
typedef struct corner {
    weft_dtype dtype;
    weft_redop redop;
    uint64_t a, b, out;
} corner;

#define CORNER(dtype, redop, a, b, out)                                        \
    {                                                                          \
        WEFT_DTYPE_##dtype, WEFT_REDOP_##redop, a, b, out                      \
    }

static const corner corners[] = {
    /* integers wrap; unsigned ones divide as such, signed towards zero */
    CORNER(I8, SUM, 0x7f, 0x01, 0x80),
    CORNER(U8, SUM, 0xff, 0x02, 0x01),
    CORNER(I8, PROD, 0x80, 0xff, 0x80),
    CORNER(I32, SUM, 0x7fffffff, 1, 0x80000000),
    CORNER(I32, PROD, 0x80000000, 0xffffffff, 0x80000000),
    CORNER(I64, PROD, 0x100000001, 0x100000001, 0x200000001),
    CORNER(U64, SUM, UINT64_MAX, 2, 1),
    CORNER(I8, AVG, 0xfe, 0xfb, 0xfd),           /* (-2 - 5) / 2 = -3 */
    CORNER(I32, AVG, 0xfffffff8, 1, 0xfffffffd), /* -7 / 2 = -3 */
    CORNER(U8, AVG, 200, 50, 125),
    CORNER(U8, AVG, 200, 200, 72),   /* 400 wraps to 144 first */
    CORNER(I8, AVG, 100, 100, 0xe4), /* 200 wraps to -56 */
    CORNER(U32, AVG, 0xfffffffe, 1, 0x7fffffff),
    CORNER(U64, AVG, UINT64_MAX, 0, UINT64_MAX / 2),
    CORNER(I8, MAX, 0x80, 0x7f, 0x7f),
    CORNER(U8, MAX, 0x80, 0x7f, 0x80),
    CORNER(I64, MIN, UINT64_C(1) << 63, 5, UINT64_C(1) << 63),
    CORNER(U64, MIN, UINT64_C(1) << 63, 5, 5),
    CORNER(I8, BXOR, 0xf0, 0x3c, 0xcc),
    CORNER(U64, BAND, UINT64_MAX, 0x1234, 0x1234),
    CORNER(I32, BOR, 0x80000000, 1, 0x80000001),
    /* NaN wins, and becomes the canonical one */
    CORNER(F32, MAX, 0xffc01234, 0x7f800000, 0x7fc00000),
    CORNER(F32, MIN, 0x3f800000, 0x7f812345, 0x7fc00000),
    CORNER(F64, MAX, 0, 0xfff0000000000001, 0x7ff8000000000000),
    CORNER(F16, MIN, 0xfc00, 0x7c01, 0x7e00),
    CORNER(BF16, MAX, 0xffff, 0x3f80, 0x7fc0),
    CORNER(F8E4M3, MIN, 0x08, 0xff, 0x7f),
    CORNER(F8E5M2, MAX, 0x7d, 0x7c, 0x7e),
    CORNER(F16, SUM, 0x7c00, 0xfc00, 0x7e00), /* inf - inf */
    CORNER(F8E5M2, SUM, 0x7c, 0xfc, 0x7e),
    CORNER(F32, PROD, 0x7f800000, 0, 0x7fc00000),
    /* -0 is less than +0, on either side */
    CORNER(F32, MAX, 0x80000000, 0, 0),
    CORNER(F32, MAX, 0, 0x80000000, 0),
    CORNER(F32, MIN, 0x80000000, 0, 0x80000000),
    CORNER(F32, MIN, 0, 0x80000000, 0x80000000),
    CORNER(F64, MAX, UINT64_C(1) << 63, 0, 0),
    CORNER(F64, MIN, 0, UINT64_C(1) << 63, UINT64_C(1) << 63),
    CORNER(F16, MIN, 0, 0x8000, 0x8000),
    CORNER(F8E4M3, MAX, 0x80, 0x00, 0x00),
    CORNER(BF16, SUM, 0x8000, 0x8000, 0x8000),
    /* infinities stay, what is too large overflows */
    CORNER(F8E5M2, MAX, 0x7c, 0x3c, 0x7c),
    CORNER(F8E5M2, SUM, 0x7b, 0x7b, 0x7c),
    CORNER(F8E5M2, SUM, 0xfb, 0xfb, 0xfc),
    CORNER(F8E4M3, SUM, 0x7e, 0x7e, 0x7f),
    CORNER(F8E4M3, SUM, 0xfe, 0xfe, 0x7f),
    CORNER(F8E4M3, SUM, 0x7e, 0x58, 0x7e), /* 448 + 16 = 464: a tie */
    CORNER(F8E4M3, SUM, 0x7e, 0x59, 0x7f), /* 448 + 18 */
    CORNER(F8E4M3, AVG, 0x7e, 0x7e, 0x7e), /* the wide sum fits */
    CORNER(F16, SUM, 0x7bff, 0x7bff, 0x7c00),
    CORNER(F16, AVG, 0x7bff, 0x7bff, 0x7bff),
    CORNER(BF16, SUM, 0xff7f, 0xff7f, 0xff80),
    CORNER(BF16, PROD, 0x7f7f, 0x4000, 0x7f80),
    /* denormals */
    CORNER(F16, SUM, 0x0001, 0x0001, 0x0002),
    CORNER(F16, SUM, 0x03ff, 0x0001, 0x0400),
    CORNER(F16, AVG, 0x0001, 0x0000, 0x0000), /* a tie: to even */
    CORNER(F16, AVG, 0x0003, 0x0000, 0x0002),
    CORNER(F8E4M3, SUM, 0x07, 0x01, 0x08),
    CORNER(F8E4M3, PROD, 0x01, 0x38, 0x01),
    CORNER(F8E5M2, SUM, 0x01, 0x02, 0x03),
    CORNER(F8E5M2, AVG, 0x03, 0x00, 0x02),
    CORNER(F32, SUM, 1, 1, 2),
    CORNER(F64, AVG, 1, 1, 1),
};

static void check_corner(const wefti_reduce_level *level, const corner *what)
{
    size_t bytes = weft_dtype_bytes(what->dtype);
    unsigned char *a = codes, *b = wide, *out = again;
    for (size_t i = 0; i < REPEAT; i++) { /* vectors and their rest */
        memcpy(a + i * bytes, &what->a, bytes);
        memcpy(b + i * bytes, &what->b, bytes);
    }
    const void *sources[] = {a, b};
    memset(out, 0xa5, REPEAT * bytes);
    wefti_reduce_by(level, out, sources, 2, REPEAT, what->dtype, what->redop);
    for (size_t i = 0; i < REPEAT; i++) {
        uint64_t got = 0;
        memcpy(&got, out + i * bytes, bytes);
        if (got != what->out) {
            fail_msg("%s: %s of %s %llx, %llx: %llx, not %llx", level->name,
                     weft_redop_text(what->redop), weft_dtype_text(what->dtype),
                     (unsigned long long)what->a, (unsigned long long)what->b,
                     (unsigned long long)got, (unsigned long long)what->out);
        }
    }
}

static void test_reduce_corners_are_as_written_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFTI_COUNT_OF(corners); i++) {
        for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
            check_corner(wefti_reduce_level_at(l), &corners[i]);
        }
    }
}

/* 1 and 130 times 2^-9 less: a partial sum in the type would stay at 1. */
static void test_sum_small_floats_round_once(void **state)
{
    (void)state;
    enum { SOURCES = 9 };
    static const struct {
        weft_dtype dtype;
        uint16_t one, part, sum;
    } rows[] = {/* 1 + 8 * 2^-12 = 1 + 2 * 2^-10 */
                {WEFT_DTYPE_F16, 0x3c00, 0x0c00, 0x3c02},
                /* 1 + 8 * 2^-9 = 1 + 2 * 2^-7 */
                {WEFT_DTYPE_BF16, 0x3f80, 0x3b00, 0x3f82},
                /* 1 + 8 * 2^-5 = 1 + 2 * 2^-3 */
                {WEFT_DTYPE_F8E4M3, 0x38, 0x10, 0x3a},
                /* 1 + 8 * 2^-4 = 1 + 2 * 2^-2 */
                {WEFT_DTYPE_F8E5M2, 0x3c, 0x2c, 0x3e}};
    for (size_t r = 0; r < WEFTI_COUNT_OF(rows); r++) {
        const void *sources[SOURCES] = {&rows[r].one};
        for (size_t k = 1; k < SOURCES; k++) {
            sources[k] = &rows[r].part;
        }
        uint16_t sum = 0;
        wefti_reduce(&sum, sources, SOURCES, 1, rows[r].dtype, WEFT_REDOP_SUM);
        assert_int_equal(sum, rows[r].sum);
    }
}

/* Exactly the pairs that are defined have a loop, on every level. */
static void test_levels_have_every_pair_that_applies(void **state)
{
    (void)state;
    for (size_t l = 0; wefti_reduce_level_at(l) != NULL; l++) {
        const wefti_reduce_level *level = wefti_reduce_level_at(l);
        for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
            assert_true(level->average[d] && level->scale[d]);
            bool grows = wefti_wide_bytes((weft_dtype)d) >
                         weft_dtype_bytes((weft_dtype)d);
            assert_true(grows == (level->widen[d] != NULL));
            for (int o = 0; o < WEFT_REDOP_COUNT; o++) {
                assert_int_equal(
                    weft_redop_applies((weft_redop)o, (weft_dtype)d),
                    level->combine[d][o] != NULL);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen_and_back_every_code_is_kept),
        cmocka_unit_test(test_narrow_every_tie_rounds_to_nearest_even),
        cmocka_unit_test(test_narrow_far_values_overflow_and_vanish),
        cmocka_unit_test(test_narrow_every_upper_half_equals_one_element),
        cmocka_unit_test(
            test_reduce_every_pair_of_8_bit_floats_equals_reference),
        cmocka_unit_test(test_average_of_integers_equals_division),
        cmocka_unit_test(test_reduce_corners_are_as_written_down),
        cmocka_unit_test(test_sum_small_floats_round_once),
        cmocka_unit_test(test_levels_have_every_pair_that_applies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     fill, scale and add do their one operation on exactly the range
 *          given, at any length and alignment, in place too; copies and sums of
 *          rows leave what lies between rows as it was, and so do rows of
 *          bf16, rounded once.
 * Method   Lengths 0 to 100 from unaligned starts, bit for bit, with guards.
 */
#include "base/small_float.h"
#include "tests/kernels/math_check.h"

enum { MOST = 100 };

static void one_length(const wefti_math *math, check_random *random,
                       size_t elems)
{
    real *a = check_alloc_random(random, MOST + 3, 1);
    real *b = check_alloc_random(random, MOST + 3, 1);
    real *to = check_alloc(MOST + 3);
    size_t from = elems % 3;

    math->add(to + from, a + 1, b, elems);
    for (size_t i = 0; i < elems; i++)
        assert_true(to[from + i] == a[1 + i] + b[i]);
    assert_true(isnan(to[from + elems]));
    math->scale(to + from, to + from, 3, elems);
    for (size_t i = 0; i < elems; i++)
        assert_true(to[from + i] == 3 * (real)(a[1 + i] + b[i]));
    assert_true(isnan(to[from + elems]));
    math->fill(to + from, 7, elems);
    for (size_t i = 0; i < elems; i++)
        assert_true(to[from + i] == 7);
    assert_true(isnan(to[from + elems]));
    math->add(a, a, b, elems);
    math->add(b, b, b, elems);
    free(a);
    free(b);
    free(to);
}

static void test_elementwise_any_length_touches_its_range_only(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t elems = 0; elems <= MOST; elems++)
        one_length(math, &random, elems);
}

static void one_width(const wefti_math *math, check_random *random,
                      size_t width)
{
    enum { ROWS = 5 };
    const size_t to_step = width + 3, from_step = width + 1;
    real *from = check_alloc_random(random, ROWS * from_step, 1);
    real *to = check_alloc(ROWS * to_step);

    math->copy_rows(to, to_step, from, from_step, ROWS, width);
    math->add_rows(to, to_step, from, from_step, ROWS - 1, width);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < to_step; i++) {
            real x = to[row * to_step + i];

            if (i >= width)
                assert_true(isnan(x));
            else
                assert_true(x == from[row * from_step + i] *
                                     (real)(row + 1 < ROWS ? 2 : 1));
        }
    math->copy_rows(to, to_step, from, from_step, 0, width);
    free(from);
    free(to);
}

static void test_elementwise_rows_leave_gaps_alone(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t width = 0; width <= MOST; width++)
        one_width(math, &random, width);
}

/* Values whose rounding is not plain, among random ones. */
static void fill_values(check_random *random, real *values, size_t elems)
{
    static const uint32_t special[] = {
        0x7fc00001, 0xff800001, 0x7f800000, 0xff800000, 0x7f7fffff, 0x3f808000,
        0x3f818000, 0x3f80ffff, 0x80000001, 0x00018000, 0x00000000, 0x80000000};
    const size_t specials = sizeof(special) / sizeof(special[0]);

    for (size_t i = 0; i < elems; i++)
        values[i] = i % 3 == 0
                        ? (real)wefti_f32_of_bits(special[i / 3 % specials])
                        : (real)check_uniform(random, -4, 4);
}

static void one_bf16_width(const wefti_math *math, check_random *random,
                           size_t width)
{
    enum { ROWS = 3, UNTOUCHED = 0x5a5a };
    const size_t step = width + 2;
    real *from = check_alloc(ROWS * step), *to = check_alloc(ROWS * step);
    uint16_t *narrow = malloc(ROWS * step * sizeof(*narrow));

    assert_non_null(narrow);
    fill_values(random, from, ROWS * step);
    for (size_t i = 0; i < ROWS * step; i++)
        narrow[i] = UNTOUCHED;
    math->narrow_rows(narrow, from, ROWS, width, step);
    math->widen_rows(to, narrow, ROWS, width, step);
    for (size_t i = 0; i < ROWS * step; i++) {
        if (i % step >= width) {
            assert_int_equal(narrow[i], UNTOUCHED);
            assert_true(isnan(to[i]));
            continue;
        }
        const real wanted = (real)wefti_bf16_widen(narrow[i]);
        assert_int_equal(narrow[i], wefti_bf16_narrow((float)from[i]));
        check_same_bits(&to[i], &wanted, 1);
    }
    free(from);
    free(to);
    free(narrow);
}

static void test_elementwise_bf16_rounds_once_and_leaves_gaps(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t width = 0; width <= MOST; width++)
        one_bf16_width(math, &random, width);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise_rows_leave_gaps_alone),
        cmocka_unit_test(test_elementwise_bf16_rounds_once_and_leaves_gaps),
        cmocka_unit_test(test_elementwise_any_length_touches_its_range_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     fill, scale and add do their one operation on exactly the range
 *          given, at any length and alignment, in place too.
 * Method   Lengths 0 to 100 from unaligned starts, bit for bit, with guards.
 */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise_any_length_touches_its_range_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

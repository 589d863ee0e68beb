/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     A sum of squares has the same bits however the range is shared out
 *          at block boundaries, and, over float, at every level.
 * Method   The stated order by hand; ranges cut at every block; levels
 *          against each other.
 */
#include "tests/kernels/math_check.h"

enum { BLOCKS = 5, ELEMS = BLOCKS * WEFTI_SUMSQ_BLOCK - 77 };

static double stated_order(const real *x, size_t elems)
{
    double lane[32] = {0};

    for (size_t i = 0; i < elems; i++) {
#ifdef WEFT_REAL_F64
        lane[i % 32] = fma(x[i], x[i], lane[i % 32]);
#else
        lane[i % 32] += (double)x[i] * (double)x[i];
#endif
    }
    for (size_t half = 16; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void test_sumsq_block_order_is_as_stated(void **state)
{
    check_random random = check_seed();
    real *x = check_alloc_random(&random, ELEMS, 1);
    const wefti_math *math;

    (void)state;
    assert_int_equal(wefti_sumsq_blocks(ELEMS), BLOCKS);
    FOR_EACH_LEVEL(math)
    for (size_t elems = 1; elems <= ELEMS; elems += 61) {
        double got[BLOCKS];

        math->sumsq(got, x, elems);
        for (size_t n = 0; n < wefti_sumsq_blocks(elems); n++) {
            size_t at = n * WEFTI_SUMSQ_BLOCK, rest = elems - at;
            double want = stated_order(
                x + at, rest < WEFTI_SUMSQ_BLOCK ? rest : WEFTI_SUMSQ_BLOCK);

            check_near(got[n], want, TOLERANCE(0.0, 1e-12), "partial", n);
        }
    }
    free(x);
}

static void test_sumsq_cut_at_blocks_gives_same_bits(void **state)
{
    check_random random = check_seed();
    real *x = check_alloc_random(&random, ELEMS, 1);
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        double whole[BLOCKS], cut[BLOCKS];

        math->sumsq(whole, x, ELEMS);
        for (size_t first = 0; first < BLOCKS; first++) {
            size_t at = first * WEFTI_SUMSQ_BLOCK;

            math->sumsq(cut, x, at);
            math->sumsq(cut + first, x + at, ELEMS - at);
            assert_memory_equal(whole, cut, sizeof(whole));
        }
        assert_true(wefti_sumsq_reduce(whole, BLOCKS) ==
                    wefti_sumsq_reduce(cut, BLOCKS));
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sumsq_block_order_is_as_stated),
        cmocka_unit_test(test_sumsq_cut_at_blocks_gives_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

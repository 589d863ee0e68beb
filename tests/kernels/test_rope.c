/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Rotary embedding turns each pair by its angle, backward is the
 *          transpose of forward, and what lies between rows stays untouched.
 * Method   Odd strides, given and counted positions, against cos and sin in
 *          double; <rope(x), y> = <x, rope_backward(y)>; scores of two turned
 *          vectors depend on the difference of their positions only.
 */
#include "tests/kernels/math_check.h"

enum { TOKENS = 7, HEADS = 3, PAD = 5 };
static const size_t sizes[] = {2, 6, 16, 32, 34, 64, 128};
static const double theta = 10000;

static void check_turned(const real *got, const real *x,
                         const int32_t *positions, size_t size, size_t stride)
{
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < HEADS * size / 2; i++) {
            size_t half = size / 2, pair = i % half;
            size_t at = t * stride + i / half * size + pair;
            double angle =
                positions[t] * pow(theta, -2.0 * (double)pair / (double)size);
            double a = (double)x[at], b = (double)x[at + half];
            double near = TOLERANCE(4e-7, 1e-15);

            check_near(got[at], a * cos(angle) - b * sin(angle), near, "x", at);
            check_near(got[at + half], b * cos(angle) + a * sin(angle), near,
                       "x", at + half);
        }
}

static void test_rope_forward_turns_every_pair(void **state)
{
    check_random random = check_seed();
    int32_t positions[TOKENS] = {0, 1, 5, 17, 100, 4095, 3};
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t size = sizes[s], stride = HEADS * size + PAD;
        real *x = check_alloc_random(&random, TOKENS * stride, 1);
        real *before = check_alloc_copy(x, TOKENS * stride);
        real *table = check_alloc(TOKENS * size);

        math->rope_table(table, positions, 99, TOKENS, size, theta);
        math->rope_forward(x, table, TOKENS, HEADS, size, stride);
        check_turned(x, before, positions, size, stride);
        for (size_t t = 0; t < TOKENS; t++)
            check_same_bits(x + t * stride + HEADS * size,
                            before + t * stride + HEADS * size, PAD);
        free(x);
        free(before);
        free(table);
    }
}

static void test_rope_backward_is_transpose(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        size_t elems = TOKENS * HEADS * 64;
        real *x = check_alloc_random(&random, elems, 1);
        real *y = check_alloc_random(&random, elems, 1);
        real *fx = check_alloc_copy(x, elems), *by = check_alloc_copy(y, elems);
        real *table = check_alloc(TOKENS * 64);
        double left = 0, right = 0;

        math->rope_table(table, NULL, 11, TOKENS, 64, theta);
        math->rope_forward(fx, table, TOKENS, HEADS, 64, HEADS * 64);
        math->rope_backward(by, table, TOKENS, HEADS, 64, HEADS * 64);
        for (size_t i = 0; i < elems; i++) {
            left += (double)fx[i] * (double)y[i];
            right += (double)x[i] * (double)by[i];
        }
        check_near(left, right, TOLERANCE(1e-4, 1e-12), "product", 0);
        free(x);
        free(y);
        free(fx);
        free(by);
        free(table);
    }
}

static void test_rope_score_depends_on_distance_only(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        real *x = check_alloc_random(&random, 2 * 32, 1);
        real table[2 * 32];
        double score[2] = {0, 0};

        for (int shift = 0; shift < 2; shift++) {
            int32_t positions[2] = {3 + 1000 * shift, 20 + 1000 * shift};
            real *turned = check_alloc_copy(x, 64);

            math->rope_table(table, positions, 0, 2, 32, theta);
            math->rope_forward(turned, table, 2, 1, 32, 32);
            for (size_t i = 0; i < 32; i++)
                score[shift] += (double)turned[i] * (double)turned[32 + i];
            free(turned);
        }
        check_near(score[0], score[1], TOLERANCE(1e-5, 1e-12), "score", 0);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_forward_turns_every_pair),
        cmocka_unit_test(test_rope_backward_is_transpose),
        cmocka_unit_test(test_rope_score_depends_on_distance_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

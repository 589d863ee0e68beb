/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     SwiGLU's gate and its gradients are the formulas of swiglu.h, also
 *          where exp would overflow, and in place.
 * Method   Widths around every vector length, gates from -200 to 200, against
 *          the formula in double; in the double build also central
 *          differences, 1e-7 relative.
 */
#include "tests/kernels/math_check.h"

enum { ROWS = 4 };
static const size_t widths[] = {1, 5, 16, 33, 88, 352};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void check_row(const real *x, const real *got, const real *out,
                      const real *dout, size_t width)
{
    double near = TOLERANCE(1e-6, 4e-15);

    for (size_t i = 0; i < width; i++) {
        double g = (double)x[i], u = (double)x[width + i], y = sigmoid(g);
        double d = (double)dout[i], size = fabs(d) * (1 + fabs(g)) * 3;

        check_near(out[i], g * u * y, near * fabs(g * u), "out", i);
        check_near(got[i], d * u * y * (1 + g * (1 - y)), near * size, "dgate",
                   i);
        check_near(got[width + i], d * g * y, near * size, "dup", i);
    }
}

static void one_width(const wefti_math *math, check_random *random,
                      size_t width, double size)
{
    size_t stride = 2 * width;
    real *x = check_alloc_random(random, ROWS * stride, 2);
    real *dout = check_alloc_random(random, ROWS * width, 1);
    real *out = check_alloc(ROWS * width), *dx = check_alloc(ROWS * stride);

    for (size_t t = 0; t < ROWS; t++)
        for (size_t i = 0; i < width; i++)
            x[t * stride + i] = (real)check_uniform(random, -size, size);
    math->swiglu_forward(out, x, x + width, ROWS, width, stride);
    math->swiglu_backward(dx, dx + width, dout, x, x + width, ROWS, width,
                          stride);
    for (size_t t = 0; t < ROWS; t++)
        check_row(x + t * stride, dx + t * stride, out + t * width,
                  dout + t * width, width);
    math->swiglu_backward(x, x + width, dout, x, x + width, ROWS, width,
                          stride);
    check_same_bits(x, dx, ROWS * stride);
    free(x);
    free(dout);
    free(out);
    free(dx);
}

static void test_swiglu_any_width_matches_reference(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
        one_width(math, &random, widths[w], 4);
        one_width(math, &random, widths[w], 200);
    }
}

#ifdef WEFT_REAL_F64
static void test_swiglu_gradients_match_differences(void **state)
{
    check_random random = check_seed();
    const wefti_math *math = wefti_math_get();
    const double h = 1e-5;

    (void)state;
    for (int round = 0; round < 100; round++) {
        real x[2] = {check_uniform(&random, -3, 3),
                     check_uniform(&random, -3, 3)};
        real one = 1, dx[2];

        math->swiglu_backward(dx, dx + 1, &one, x, x + 1, 1, 1, 2);
        for (int side = 0; side < 2; side++) {
            real here = x[side], above, below;

            x[side] = here + h;
            math->swiglu_forward(&above, x, x + 1, 1, 1, 2);
            x[side] = here - h;
            math->swiglu_forward(&below, x, x + 1, 1, 1, 2);
            x[side] = here;
            check_near(dx[side], (above - below) / (2 * h),
                       1e-7 * (1 + fabs(dx[side])), "slope", side);
        }
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swiglu_any_width_matches_reference),
#ifdef WEFT_REAL_F64
        cmocka_unit_test(test_swiglu_gradients_match_differences),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

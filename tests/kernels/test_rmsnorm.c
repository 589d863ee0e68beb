/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     RMSNorm and its gradients are the formulas of rmsnorm.h.
 * Method   Widths around every vector length, against the formula in double;
 *          in the double build the gradients also against central differences
 *          of sum(y dy), 1e-7 relative; in-place and accumulating forms
 *          against the plain ones, bit for bit.
 */
#include "tests/kernels/math_check.h"

static const double eps = 1e-5;
static const size_t widths[] = {1, 3, 16, 17, 31, 64, 129, 256, 1000};

typedef struct norm {
    size_t rows, width;
    real *x, *weight, *dy, *y, *rstd, *dx, *dweight;
} norm;

static norm norm_init(check_random *random, size_t rows, size_t width)
{
    norm n = {.rows = rows, .width = width};

    n.x = check_alloc_random(random, rows * width, 2);
    n.weight = check_alloc_random(random, width, 2);
    n.dy = check_alloc_random(random, rows * width, 1);
    n.y = check_alloc(rows * width);
    n.rstd = check_alloc(rows);
    n.dx = check_alloc(rows * width);
    n.dweight = check_alloc_random(random, width, 1);
    return n;
}

static void norm_fini(norm *n)
{
    free(n->x);
    free(n->weight);
    free(n->dy);
    free(n->y);
    free(n->rstd);
    free(n->dx);
    free(n->dweight);
}

static double reference_rstd(const norm *n, size_t row)
{
    double sum = 0;

    for (size_t i = 0; i < n->width; i++)
        sum += pow((double)n->x[row * n->width + i], 2);
    return 1 / sqrt(sum / (double)n->width + (double)(real)eps);
}

static void check_forward(const norm *n)
{
    double near = TOLERANCE(4e-6, 4e-15);

    for (size_t t = 0; t < n->rows; t++) {
        double r = reference_rstd(n, t);

        check_near(n->rstd[t], r, near * r, "rstd", t);
        for (size_t i = 0; i < n->width; i++) {
            size_t at = t * n->width + i;
            double want = (double)n->x[at] * r * (double)n->weight[i];

            check_near(n->y[at], want, near * fabs(want), "y", at);
        }
    }
}

static void check_backward(const norm *n, const real *dweight_before)
{
    double near = TOLERANCE(8e-6, 8e-15);

    for (size_t t = 0; t < n->rows; t++) {
        const real *x = n->x + t * n->width, *dy = n->dy + t * n->width;
        double r = reference_rstd(n, t), dot = 0;

        for (size_t i = 0; i < n->width; i++)
            dot += (double)dy[i] * (double)n->weight[i] * (double)x[i];
        for (size_t i = 0; i < n->width; i++) {
            double c = r * r * dot / (double)n->width;
            double want =
                r * ((double)dy[i] * (double)n->weight[i] - (double)x[i] * c);

            check_near(n->dx[t * n->width + i], want, near * 4 * r, "dx", i);
        }
    }
    for (size_t i = 0; i < n->width; i++) {
        double want = (double)dweight_before[i];

        for (size_t t = 0; t < n->rows; t++)
            want += (double)n->dy[t * n->width + i] *
                    (double)n->x[t * n->width + i] * reference_rstd(n, t);
        check_near(n->dweight[i], want, near * (double)(n->rows + 4), "dweight",
                   i);
    }
}

static void test_rmsnorm_any_width_matches_reference(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
        norm n = norm_init(&random, 5, widths[w]);
        real *before = check_alloc_copy(n.dweight, n.width);

        math->rmsnorm_forward(n.y, n.rstd, n.x, n.weight, n.rows, n.width,
                              (real)eps);
        check_forward(&n);
        math->rmsnorm_backward(n.dx, n.dweight, n.dy, n.x, n.weight, n.rstd,
                               n.rows, n.width, false);
        check_backward(&n, before);
        free(before);
        norm_fini(&n);
    }
}

static void test_rmsnorm_in_place_gives_same_bits(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        norm n = norm_init(&random, 3, 77);
        real *x = check_alloc_copy(n.x, 3 * 77);
        real *dy = check_alloc_copy(n.dy, 3 * 77);
        real *dweight = check_alloc_copy(n.dweight, 77);

        math->rmsnorm_forward(n.y, n.rstd, n.x, n.weight, 3, 77, (real)eps);
        math->rmsnorm_forward(x, NULL, x, n.weight, 3, 77, (real)eps);
        check_same_bits(x, n.y, 3 * 77);
        math->rmsnorm_backward(n.dx, n.dweight, n.dy, n.x, n.weight, n.rstd, 3,
                               77, false);
        math->rmsnorm_backward(dy, dweight, dy, n.x, n.weight, n.rstd, 3, 77,
                               false);
        check_same_bits(dy, n.dx, 3 * 77);
        check_same_bits(dweight, n.dweight, 77);
        free(x);
        free(dy);
        free(dweight);
        norm_fini(&n);
    }
}

static void test_rmsnorm_accumulate_adds_to_dx(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        norm n = norm_init(&random, 3, 77);
        real *sum = check_alloc_random(&random, 3 * 77, 1);
        real *before = check_alloc_copy(sum, 3 * 77);

        math->rmsnorm_forward(n.y, n.rstd, n.x, n.weight, 3, 77, (real)eps);
        math->rmsnorm_backward(n.dx, n.dweight, n.dy, n.x, n.weight, n.rstd, 3,
                               77, false);
        math->rmsnorm_backward(sum, n.dweight, n.dy, n.x, n.weight, n.rstd, 3,
                               77, true);
        for (size_t i = 0; i < 3 * 77; i++)
            check_near(sum[i], before[i] + n.dx[i], TOLERANCE(1e-6, 4e-15),
                       "dx", i);
        free(sum);
        free(before);
        norm_fini(&n);
    }
}

#ifdef WEFT_REAL_F64
static double objective(const wefti_math *math, norm *n)
{
    double sum = 0;

    math->rmsnorm_forward(n->y, n->rstd, n->x, n->weight, n->rows, n->width,
                          eps);
    for (size_t i = 0; i < n->rows * n->width; i++)
        sum += n->y[i] * n->dy[i];
    return sum;
}

static double slope(const wefti_math *math, norm *n, real *at)
{
    const double h = 1e-5;
    real here = *at;

    *at = here + h;
    double above = objective(math, n);
    *at = here - h;
    double below = objective(math, n);
    *at = here;
    return (above - below) / (2 * h);
}

static void test_rmsnorm_gradients_match_differences(void **state)
{
    check_random random = check_seed();
    const wefti_math *math = wefti_math_get();
    norm n = norm_init(&random, 4, 21);

    (void)state;
    math->fill(n.dweight, 0, n.width);
    math->rmsnorm_forward(n.y, n.rstd, n.x, n.weight, 4, 21, eps);
    math->rmsnorm_backward(n.dx, n.dweight, n.dy, n.x, n.weight, n.rstd, 4, 21,
                           false);
    for (size_t i = 0; i < 4 * 21; i++) {
        double want = slope(math, &n, n.x + i);

        check_near(n.dx[i], want, 1e-7 * (1 + fabs(want)), "dx", i);
    }
    for (size_t i = 0; i < 21; i++) {
        double want = slope(math, &n, n.weight + i);

        check_near(n.dweight[i], want, 1e-7 * (1 + fabs(want)), "dweight", i);
    }
    norm_fini(&n);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm_any_width_matches_reference),
        cmocka_unit_test(test_rmsnorm_in_place_gives_same_bits),
        cmocka_unit_test(test_rmsnorm_accumulate_adds_to_dx),
#ifdef WEFT_REAL_F64
        cmocka_unit_test(test_rmsnorm_gradients_match_differences),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

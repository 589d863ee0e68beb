/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Experts and weights are those of route.h, also where scores are
 *          equal and groups are limited; the gradient is the weights'.
 * Method   Random logits, of which many are equal, against a choice by sorting;
 *          shapes around a group's size. The gradient against central
 *          differences in the double build, 1e-6 relative.
 */
#include "tests/kernels/math_check.h"

static const wefti_route_shape shapes[] = {
    {9, 1, 1, 1, 1},   {17, 4, 2, 1, 1},  {17, 4, 4, 1, 1}, {33, 16, 4, 4, 2},
    {20, 24, 3, 3, 3}, {12, 40, 8, 8, 4}, {0, 4, 2, 1, 1},  {11, 12, 3, 4, 1},
};

/* A token's scores, for qsort. */
static const double *sorted_by;

static int by_score(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    if (sorted_by[x] != sorted_by[y])
        return sorted_by[x] > sorted_by[y] ? -1 : 1;
    return x - y;
}

static void sort_numbers(int *numbers, int count, const double *scores)
{
    for (int i = 0; i < count; i++)
        numbers[i] = i;
    sorted_by = scores;
    qsort(numbers, (size_t)count, sizeof(*numbers), by_score);
}

enum { MOST = 64 };

/* Scores of experts in groups that are not chosen become -1. */
static void limit_groups(double *scores, const wefti_route_shape *how)
{
    const int a_group = (int)(how->experts / how->groups);
    const int best =
        (int)((how->slots + how->group_limit - 1) / how->group_limit);
    double sums[MOST];
    int order[MOST], groups[MOST];

    for (int g = 0; g < (int)how->groups; g++) {
        sort_numbers(order, a_group, scores + g * a_group);
        sums[g] = 0;
        for (int i = 0; i < best; i++)
            sums[g] = (double)(real)(sums[g] + scores[g * a_group + order[i]]);
    }
    sort_numbers(groups, (int)how->groups, sums);
    for (int i = (int)how->group_limit; i < (int)how->groups; i++)
        for (int e = 0; e < a_group; e++)
            scores[groups[i] * a_group + e] = -1;
}

static void check_token(const wefti_route_shape *how, const real *affinity,
                        const real *bias, const int32_t *expert,
                        const real *weight)
{
    double scores[MOST], sum = 0, near = TOLERANCE(1e-6, 4e-15);
    int order[MOST];

    for (size_t e = 0; e < how->experts; e++)
        scores[e] = (double)(real)(affinity[e] + (bias ? bias[e] : 0));
    if (how->group_limit < how->groups)
        limit_groups(scores, how);
    sort_numbers(order, (int)how->experts, scores);
    for (size_t s = 0; s < how->slots; s++) {
        assert_int_equal(expert[s], order[s]);
        sum += (double)affinity[order[s]];
    }
    for (size_t s = 0; s < how->slots; s++)
        check_near(weight[s], (double)affinity[order[s]] / sum, near, "weight",
                   s);
}

/* Of few values, so that many are equal. */
static real *draw_logits(check_random *random, size_t elems)
{
    real *logits = check_alloc(elems);

    for (size_t i = 0; i < elems; i++)
        logits[i] = (real)((double)(check_bits(random) % 7) - 3);
    return logits;
}

static void check_shape(const wefti_math *math, check_random *random,
                        const wefti_route_shape *how, bool biased)
{
    const size_t all = how->tokens * how->experts;
    const size_t slots = how->tokens * how->slots;
    real *logits = draw_logits(random, all), *affinity = check_alloc(all);
    real *weight = check_alloc(slots);
    real *bias = check_alloc_random(random, how->experts, 0.2);
    int32_t *expert = malloc((slots + 1) * sizeof(*expert));
    const double near = TOLERANCE(4e-7, 1e-15);

    assert_non_null(expert);
    math->route_forward(affinity, expert, weight, logits, biased ? bias : NULL,
                        how);
    for (size_t i = 0; i < all; i++)
        check_near(affinity[i], 1 / (1 + exp(-(double)logits[i])), near,
                   "affinity", i);
    for (size_t t = 0; t < how->tokens; t++)
        check_token(how, affinity + t * how->experts, biased ? bias : NULL,
                    expert + t * how->slots, weight + t * how->slots);
    free(logits);
    free(affinity);
    free(weight);
    free(bias);
    free(expert);
}

static void test_route_any_shape_chooses_as_sorting_does(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_shape(math, &random, &shapes[i], false);
        check_shape(math, &random, &shapes[i], true);
    }
}

static void test_route_no_affinity_has_weights_and_slopes_of_0(void **state)
{
    const wefti_route_shape how = {1, 3, 2, 1, 1};
    const real logits[] = {-(real)INFINITY, -(real)INFINITY, -(real)INFINITY};
    const real dweight[] = {1, 2};
    const wefti_math *math = wefti_math_get();
    real affinity[3], weight[2], dlogits[3];
    int32_t expert[2];

    (void)state;
    math->route_forward(affinity, expert, weight, logits, NULL, &how);
    math->route_backward(dlogits, dweight, affinity, expert, &how);
    assert_int_equal(expert[0], 0);
    assert_int_equal(expert[1], 1);
    for (size_t i = 0; i < 3; i++)
        check_near(dlogits[i], 0, 0, "slope", i);
    check_near(weight[0], 0, 0, "weight", 0);
    check_near(weight[1], 0, 0, "weight", 1);
}

#ifdef WEFT_REAL_F64
/* The sum of dweight weight, by the experts that are chosen without a step. */
static double objective(const wefti_math *math, const wefti_route_shape *how,
                        const real *logits, const real *dweight)
{
    real affinity[MOST], weight[MOST], sum = 0;
    int32_t expert[MOST];

    math->route_forward(affinity, expert, weight, logits, NULL, how);
    for (size_t s = 0; s < how->slots; s++)
        sum += dweight[s] * weight[s];
    return sum;
}

static void test_route_gradient_matches_differences(void **state)
{
    const wefti_math *math = wefti_math_get();
    check_random random = check_seed();
    const wefti_route_shape how = {1, 6, 3, 1, 1};
    const double h = 1e-6;
    real *logits = check_alloc_random(&random, 6, 2);
    real *dweight = check_alloc_random(&random, 3, 1);
    real affinity[6], weight[3], dlogits[6];
    int32_t expert[3];

    (void)state;
    for (size_t i = 0; i < 6; i++) /* none so near that a step reorders them */
        logits[i] += (real)(10 * i) * 0.05;
    math->route_forward(affinity, expert, weight, logits, NULL, &how);
    math->route_backward(dlogits, dweight, affinity, expert, &how);
    for (size_t i = 0; i < 6; i++) {
        real at = logits[i];
        logits[i] = at + h;
        double above = objective(math, &how, logits, dweight);
        logits[i] = at - h;
        double below = objective(math, &how, logits, dweight);
        logits[i] = at;
        check_near(dlogits[i], (above - below) / (2 * h), 1e-8, "slope", i);
    }
    free(logits);
    free(dweight);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route_any_shape_chooses_as_sorting_does),
        cmocka_unit_test(test_route_no_affinity_has_weights_and_slopes_of_0),
#ifdef WEFT_REAL_F64
        cmocka_unit_test(test_route_gradient_matches_differences),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     micro-batch gradients are added in one tree, whatever the layout.
 * Method   float noise for 1..33 micro-batches, bucket by bucket, against the
 *          tree written as a recursion; then the parts of several ranks,
 *          combined as the collectives do, against one rank's sum. Bitwise.
 */
#include "trainer/gradient.h"
#include "trainer/model/storage.h"
#include "trainer/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MICRO_BATCHES_MOST = 33, PROBES = 5 };

static const wefti_model_shape shape = {.layers = 1,
                                        .hidden = 16,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = 8,
                                        .ffn = 24,
                                        .vocab = 19,
                                        .seq = 4,
                                        .rope_theta = 10000.0};

/* What micro-batch number contributes to an element. */
static real noise(size_t number, size_t element)
{
    wefti_random random = wefti_random_make(number, element);
    return (real)wefti_random_normal(&random);
}

static real tree(size_t first, size_t count, size_t element)
{
    if (count == 1) {
        return noise(first, element);
    }
    size_t left = 1;
    while (left * 2 < count) {
        left *= 2;
    }
    return tree(first, left, element) +
           tree(first + left, count - left, element);
}

/* Sums micro-batches first .. first + count - 1 the way a rank does. */
static void accumulate(const wefti_group_plan *plan, size_t first, size_t count,
                       real *sum_out)
{
    wefti_gradient gradient;
    real *leaf;
    weft_device *host;
    assert_int_equal(weft_device_open("host", 0, &host), WEFT_OK);
    assert_int_equal(wefti_storage_alloc(plan->flat_elems, &leaf), WEFT_OK);
    const wefti_gradient given = {
        .device = host, .plan = plan, .leaf = leaf, .count = count};
    assert_int_equal(wefti_gradient_init(&gradient, &given), WEFT_OK);
    for (size_t number = 0; number < count; number++) {
        for (size_t i = plan->bucket_count; i > 0; i--) {
            const weft_bucket_extent *bucket = &plan->buckets[i - 1];
            for (size_t k = 0; k < bucket->share_elems; k++) {
                size_t element = bucket->start_elems + k;
                wefti_gradient_place(&gradient, number)[element] =
                    noise(first + number, element);
            }
            assert_int_equal(wefti_gradient_add(&gradient, i - 1, number),
                             WEFT_OK);
        }
    }
    memcpy(sum_out, gradient.leaf, plan->flat_elems * sizeof(real));
    wefti_gradient_fini(&gradient);
    wefti_storage_free(leaf);
    weft_device_close(host);
}

static real *make_sum(const wefti_group_plan *plan)
{
    real *sum = malloc(plan->flat_elems * sizeof(real));
    assert_non_null(sum);
    return sum;
}

static void test_gradient_any_count_is_the_tree(void **state)
{
    (void)state;
    wefti_parameters plan;
    assert_int_equal(wefti_parameters_plan(&shape, 2048, 1, &plan), WEFT_OK);
    assert_true(plan.bucket_count > 2);
    real *sum = make_sum(&plan.groups[0]);
    for (size_t count = 1; count <= MICRO_BATCHES_MOST; count++) {
        accumulate(&plan.groups[0], 0, count, sum);
        for (size_t i = 0; i < PROBES; i++) {
            size_t element = i * (plan.flat_elems - 1) / (PROBES - 1);
            assert_true(sum[element] == tree(0, count, element));
        }
    }
    free(sum);
    wefti_parameters_fini(&plan);
}

/* On the host a long bucket is added piece by piece. */
static void test_gradient_long_bucket_is_the_tree(void **state)
{
    enum { COUNT = 4, LONG = 2 * 16384 };
    wefti_model_shape large = shape;
    wefti_parameters plan;
    (void)state;
    large.vocab = LONG / shape.hidden + 100;
    assert_int_equal(wefti_parameters_plan(&large, 1 << 20, 1, &plan), WEFT_OK);
    const wefti_group_plan *group = &plan.groups[0];
    real *sum = make_sum(group);
    accumulate(group, 0, COUNT, sum);
    size_t longest = 0;
    for (size_t i = 0; i < group->bucket_count; i++) {
        const weft_bucket_extent *bucket = &group->buckets[i];
        longest = bucket->share_elems > longest ? bucket->share_elems : longest;
        for (size_t k = 0; k < bucket->share_elems; k++) {
            const size_t element = bucket->start_elems + k;
            assert_true(sum[element] == tree(0, COUNT, element));
        }
    }
    assert_true(longest > LONG);
    free(sum);
    wefti_parameters_fini(&plan);
}

static void check_layout(size_t nranks, size_t global)
{
    wefti_parameters plan;
    assert_int_equal(wefti_parameters_plan(&shape, 2048, 1, &plan), WEFT_OK);
    real *whole = make_sum(&plan.groups[0]);
    real *parts[4] = {0};
    accumulate(&plan.groups[0], 0, global, whole);
    size_t local = global / nranks;
    for (size_t rank = 0; rank < nranks; rank++) {
        parts[rank] = make_sum(&plan.groups[0]);
        accumulate(&plan.groups[0], rank * local, local, parts[rank]);
    }
    for (size_t i = 0; i < plan.flat_elems; i++) {
        real sum = parts[0][i] + parts[1][i];
        if (nranks > 2) {
            sum += nranks == 3 ? parts[2][i] : parts[2][i] + parts[3][i];
        }
        assert_true(sum == whole[i]);
    }
    for (size_t rank = 0; rank < nranks; rank++) {
        free(parts[rank]);
    }
    free(whole);
    wefti_parameters_fini(&plan);
}

static void
test_gradient_ranks_of_powers_of_two_give_the_same_bits(void **state)
{
    (void)state;
    check_layout(2, 32);
    check_layout(4, 32);
    check_layout(3, 24);
    check_layout(3, 6);
}

static void test_tree_sum_is_the_tree(void **state)
{
    (void)state;
    double values[7] = {1e16, 1.0, -1e16, 1.0, 1.0, 3.0, 0.5};
    double wanted = ((values[0] + values[1]) + (values[2] + values[3])) +
                    ((values[4] + values[5]) + values[6]);
    assert_true(wefti_gradient_tree_sum(values, 7) == wanted);
    assert_true(wefti_gradient_tree_sum(values, 1) == values[0]);
    assert_true(wefti_gradient_tree_sum(values, 0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_any_count_is_the_tree),
        cmocka_unit_test(test_gradient_long_bucket_is_the_tree),
        cmocka_unit_test(
            test_gradient_ranks_of_powers_of_two_give_the_same_bits),
        cmocka_unit_test(test_tree_sum_is_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

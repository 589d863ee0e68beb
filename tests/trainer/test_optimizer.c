/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     shares of any number of ranks together are one AdamW step, and one
 *          norm; rates follow their formulas, and clipping its factor.
 * Method   the same random gradients on 1, 2, 3 and 5 ranks, each tensor
 *          compared bitwise with one rank's; padding must stay zero.
 */
#include "trainer/optimizer.h"

#include "kernels/math/math_stream.h"
#include "trainer/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const wefti_model_shape shape = {.layers = 2,
                                        .hidden = 48,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 12,
                                        .ffn = 64,
                                        .vocab = 50,
                                        .seq = 4,
                                        .rope_theta = 10000.0};

static const wefti_optimizer_config config = {.lr = 0.01,
                                              .warmup_steps = 10,
                                              .steps = 100,
                                              .weight_decay = 0.1,
                                              .clip = 1.0,
                                              .min_ratio = 0.1,
                                              .beta1 = 0.9,
                                              .beta2 = 0.98,
                                              .epsilon = 1e-8};

/* One layout after a few steps: its values by tensor, and its last norm. */
typedef struct outcome {
    wefti_parameters plan;
    real *values;
    double norm;
} outcome;

static void make_gradients(const wefti_parameters *plan, uint64_t step,
                           real *gradients)
{
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_random random = wefti_random_make(step, i);
        for (size_t k = 0; k < wefti_tensor_elems(&tensor->info); k++) {
            gradients[tensor->start_elems + k] =
                (real)wefti_random_normal(&random);
        }
    }
}

/* On the host. */
static void open_optimizer(wefti_optimizer *optimizer,
                           const wefti_parameters *plan, size_t rank)
{
    wefti_optimizer given = {.config = config, .plan = plan, .rank = rank};
    assert_int_equal(weft_device_open("host", 0, &given.device), WEFT_OK);
    assert_int_equal(wefti_optimizer_init(optimizer, &given), WEFT_OK);
}

static void close_optimizer(wefti_optimizer *optimizer)
{
    weft_device *device = optimizer->device;
    wefti_optimizer_fini(optimizer);
    weft_device_close(device);
}

/* As a step clips: norm and factor of all blocks. */
static void clip(double *blocks, size_t count, double *norm, double *factor)
{
    const wefti_math_tensor partials =
        wefti_math_flat(blocks, WEFT_DTYPE_F64, count);
    const wefti_math_tensor to_norm = wefti_math_flat(norm, WEFT_DTYPE_F64, 1);
    const wefti_math_tensor to_factor =
        wefti_math_flat(factor, WEFT_DTYPE_F64, 1);
    assert_int_equal(wefti_stream_clip(NULL, &to_norm, &to_factor, &partials, 1,
                                       config.clip),
                     WEFT_OK);
}

static outcome run_layout(size_t nranks)
{
    enum { STEPS = 3, RANKS_MOST = 5 };
    double factor;
    outcome out;
    wefti_optimizer optimizers[RANKS_MOST];
    assert_int_equal(wefti_parameters_plan(&shape, 9000, nranks, &out.plan),
                     WEFT_OK);
    out.values = calloc(out.plan.flat_elems, sizeof(real));
    real *gradients = calloc(out.plan.flat_elems, sizeof(real));
    double *blocks = calloc(out.plan.block_count, sizeof(double));
    assert_non_null(out.values);
    assert_non_null(gradients);
    assert_non_null(blocks);
    const wefti_start start = {1, 0.02, 1};
    wefti_parameters_init(&out.plan, 1, &start, &out.values);
    for (size_t rank = 0; rank < nranks; rank++) {
        open_optimizer(&optimizers[rank], &out.plan, rank);
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        make_gradients(&out.plan, step, gradients);
        for (size_t i = 0; i < out.plan.bucket_count * nranks; i++) {
            assert_int_equal(wefti_optimizer_square(&optimizers[i % nranks],
                                                    i / nranks, gradients,
                                                    blocks),
                             WEFT_OK);
        }
        clip(blocks, out.plan.block_count, &out.norm, &factor);
        assert_true(factor < 1);
        for (size_t i = 0; i < out.plan.bucket_count * nranks; i++) {
            assert_int_equal(wefti_optimizer_update(&optimizers[i % nranks],
                                                    i / nranks, step, &factor,
                                                    gradients, out.values),
                             WEFT_OK);
        }
    }
    for (size_t rank = 0; rank < nranks; rank++) {
        close_optimizer(&optimizers[rank]);
    }
    free(blocks);
    free(gradients);
    return out;
}

static double sum_of_all(const outcome *out)
{
    double sum = 0;
    for (size_t i = 0; i < out->plan.flat_elems; i++) {
        sum += fabs((double)out->values[i]);
    }
    return sum;
}

static void test_update_any_ranks_give_the_same_bits(void **state)
{
    (void)state;
    const size_t layouts[] = {2, 3, 5};
    outcome one = run_layout(1);
    for (size_t l = 0; l < 3; l++) {
        outcome many = run_layout(layouts[l]);
        assert_true(one.norm == many.norm);
        double in_tensors = 0;
        for (size_t i = 0; i < one.plan.tensor_count; i++) {
            const wefti_tensor *tensor = &one.plan.tensors[i];
            const real *got = many.values + many.plan.tensors[i].start_elems;
            size_t elems = wefti_tensor_elems(&tensor->info);
            assert_memory_equal(one.values + tensor->start_elems, got,
                                elems * sizeof(real));
            for (size_t k = 0; k < elems; k++) {
                in_tensors += fabs((double)got[k]);
            }
        }
        /* Nothing but zeros between the tensors. */
        assert_true(fabs(sum_of_all(&many) - in_tensors) < 1e-9 * in_tensors);
        free(many.values);
        wefti_parameters_fini(&many.plan);
    }
    free(one.values);
    wefti_parameters_fini(&one.plan);
}

static void test_update_norms_and_embeddings_do_not_decay(void **state)
{
    (void)state;
    const double none = 1; /* by which gradients are clipped */
    wefti_parameters plan;
    wefti_optimizer optimizer;
    assert_int_equal(wefti_parameters_plan(&shape, 9000, 1, &plan), WEFT_OK);
    open_optimizer(&optimizer, &plan, 0);
    real *values = calloc(plan.flat_elems, sizeof(real));
    real *zero = calloc(plan.flat_elems, sizeof(real));
    assert_non_null(values);
    assert_non_null(zero);
    for (size_t i = 0; i < plan.flat_elems; i++) {
        values[i] = WEFTI_REAL(1);
    }
    for (size_t i = 0; i < plan.bucket_count; i++) {
        assert_int_equal(
            wefti_optimizer_update(&optimizer, i, 10, &none, zero, values),
            WEFT_OK);
    }
    for (size_t i = 0; i < plan.tensor_count; i++) {
        const wefti_tensor *tensor = &plan.tensors[i];
        bool kept = tensor->info.kind == WEFTI_TENSOR_NORM ||
                    tensor->info.kind == WEFTI_TENSOR_EMBEDDING;
        size_t last = wefti_tensor_elems(&tensor->info) - 1;
        double wanted = kept ? 1.0 : 1.0 - 0.01 * 0.1;
        assert_true(fabs((double)values[tensor->start_elems] - wanted) < 1e-6);
        assert_true(fabs((double)values[tensor->start_elems + last] - wanted) <
                    1e-6);
    }
    free(values);
    free(zero);
    close_optimizer(&optimizer);
    wefti_parameters_fini(&plan);
}

static void test_rate_rises_then_falls_to_a_tenth(void **state)
{
    (void)state;
    assert_true(fabs(wefti_optimizer_rate(&config, 1) - 0.001) < 1e-15);
    assert_true(fabs(wefti_optimizer_rate(&config, 10) - 0.01) < 1e-15);
    assert_true(fabs(wefti_optimizer_rate(&config, 55) - 0.0055) < 1e-15);
    assert_true(fabs(wefti_optimizer_rate(&config, 100) - 0.001) < 1e-15);
    assert_true(fabs(wefti_optimizer_rate(&config, 500) - 0.001) < 1e-15);
    wefti_optimizer_config none = config;
    none.warmup_steps = 0;
    assert_true(wefti_optimizer_rate(&none, 1) > 0.0099);
    wefti_optimizer_config other = config;
    other.decay = WEFTI_DECAY_LINEAR;
    other.min_ratio = 0.2;
    assert_true(fabs(wefti_optimizer_rate(&other, 5) - 0.005) < 1e-15);
    assert_true(fabs(wefti_optimizer_rate(&other, 55) - 0.006) < 1e-15);
    assert_true(fabs(wefti_optimizer_rate(&other, 100) - 0.002) < 1e-15);
    other.decay = WEFTI_DECAY_NONE;
    assert_true(fabs(wefti_optimizer_rate(&other, 5) - 0.005) < 1e-15);
    assert_true(wefti_optimizer_rate(&other, 99) == 0.01);
    assert_true(wefti_optimizer_rate(&other, 500) == 0.01);
}

/* The gradient is used as if it had been scaled before. */
static void test_update_clipped_is_that_of_a_scaled_gradient(void **state)
{
    (void)state;
    const double half = 0.5, none = 1;
    wefti_parameters plan;
    wefti_optimizer optimizers[2];
    real *values[2], *gradients[2];
    assert_int_equal(wefti_parameters_plan(&shape, 9000, 1, &plan), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        open_optimizer(&optimizers[i], &plan, 0);
        values[i] = calloc(plan.flat_elems, sizeof(real));
        gradients[i] = calloc(plan.flat_elems, sizeof(real));
        assert_non_null(values[i]);
        assert_non_null(gradients[i]);
        make_gradients(&plan, 1, gradients[i]);
    }
    for (size_t i = 0; i < plan.flat_elems; i++) {
        gradients[1][i] *= (real)half;
    }
    for (size_t i = 0; i < plan.bucket_count * 2; i++) {
        assert_int_equal(wefti_optimizer_update(&optimizers[i % 2], i / 2, 10,
                                                i % 2 ? &none : &half,
                                                gradients[i % 2],
                                                values[i % 2]),
                         WEFT_OK);
    }
    assert_memory_equal(values[0], values[1], plan.flat_elems * sizeof(real));
    for (int i = 0; i < 2; i++) {
        free(values[i]);
        free(gradients[i]);
        close_optimizer(&optimizers[i]);
    }
    wefti_parameters_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_any_ranks_give_the_same_bits),
        cmocka_unit_test(test_update_norms_and_embeddings_do_not_decay),
        cmocka_unit_test(test_rate_rises_then_falls_to_a_tenth),
        cmocka_unit_test(test_update_clipped_is_that_of_a_scaled_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

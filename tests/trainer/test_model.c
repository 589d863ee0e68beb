/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     the gradient of the whole model is the derivative of its loss, for
 *          every tensor; hooks come in the order that transfers rely on.
 * Method   double build; central differences at sampled elements of every
 *          tensor of random small models, tied and not, grouped heads and not,
 *          with an encoder and without.
 *          Outputs start as NaN.
 */
#include "tests/trainer/whole_model.h"
#include "trainer/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQUENCES = 3, SAMPLES = 6 };

/* A model with everything a pass needs, filled at random. */
typedef struct fixture {
    wefti_parameters plan;
    wefti_model *model;
    real *values, *gradients;
    int32_t tokens[64], targets[64];
    uint32_t starts[64 + SEQUENCES];
    wefti_micro_batch batch;
    double losses[SEQUENCES];
    size_t expected; /* by the hooks: the tensor expected next */
} fixture;

static void set_up(fixture *fix, const wefti_model_shape *shape, uint64_t seed)
{
    wefti_random random = wefti_random_make(seed, 99);
    *fix = (fixture){0};
    assert_int_equal(wefti_parameters_plan(shape, 4096, 3, &fix->plan),
                     WEFT_OK);
    assert_int_equal(wefti_model_create(&fix->plan, SEQUENCES, &fix->model),
                     WEFT_OK);
    fix->values = calloc(fix->plan.flat_elems, sizeof(real));
    fix->gradients = calloc(fix->plan.flat_elems, sizeof(real));
    assert_non_null(fix->values);
    assert_non_null(fix->gradients);
    const wefti_start start = {1, 0.02, 1};
    real *groups[WEFTI_TENSOR_GROUPS_MOST];
    for (size_t g = 0; g < fix->plan.group_count; g++) {
        groups[g] = fix->values + wefti_model_start(&fix->plan, g);
    }
    wefti_parameters_init(&fix->plan, seed, &start, groups);
    for (size_t i = 0; i < fix->plan.flat_elems; i++) {
        fix->gradients[i] = (real)NAN;
        /* Norm weights away from one, everything of a size that matters. */
        if (fix->values[i] != WEFTI_REAL(0)) {
            fix->values[i] += (real)(0.2 * wefti_random_normal(&random));
        }
    }
    const size_t length = wefti_model_positions(shape);
    assert_true(SEQUENCES * length <= 64);
    for (size_t i = 0; i < SEQUENCES * length; i++) {
        fix->tokens[i] = (int32_t)(wefti_random_next(&random) % shape->vocab);
        fix->targets[i] = (int32_t)(wefti_random_next(&random) % shape->vocab);
    }
    for (size_t i = 0; i < SEQUENCES * shape->encoder_seq; i++) {
        fix->targets[i / shape->encoder_seq * length + i % shape->encoder_seq] =
            -1; /* does not count */
    }
    fix->targets[shape->encoder_seq + 3] = -1;
    fix->batch = (wefti_micro_batch){.tokens = fix->tokens,
                                     .targets = fix->targets,
                                     .sequences = SEQUENCES,
                                     .length = length};
}

static void tear_down(fixture *fix)
{
    free(fix->values);
    free(fix->gradients);
    wefti_model_destroy(fix->model);
    wefti_parameters_fini(&fix->plan);
}

static double total_loss(fixture *fix)
{
    assert_int_equal(wefti_model_evaluate(fix->model, fix->values, &fix->batch,
                                          NULL, fix->losses),
                     WEFT_OK);
    double sum = 0;
    for (size_t i = 0; i < SEQUENCES; i++) {
        sum += fix->losses[i];
    }
    return sum;
}

/* The derivative by one value, without its error of order two. */
static double difference(fixture *fix, real *value, double step)
{
    real kept = *value;
    double slope[2];
    for (int i = 0; i < 2; i++) {
        double h = step * (i + 1);
        *value = kept + (real)h;
        double above = total_loss(fix);
        *value = kept - (real)h;
        slope[i] = (above - total_loss(fix)) / (2 * h);
    }
    *value = kept;
    return (4 * slope[0] - slope[1]) / 3;
}

enum { DOCUMENT_END = 7 };

/* Sequences of several documents; of the first, one is a single token. */
static void pack(fixture *fix, const wefti_model_shape *shape)
{
    const size_t stride = wefti_documents_stride(shape->seq);
    fix->tokens[2] = fix->tokens[3] = DOCUMENT_END;
    fix->tokens[2 * shape->seq - 1] = DOCUMENT_END; /* the last: ends none */
    for (size_t i = 0; i < SEQUENCES; i++) {
        wefti_documents_find(fix->tokens + i * shape->seq, shape->seq,
                             DOCUMENT_END, fix->starts + i * stride);
    }
    fix->batch.documents = (wefti_documents){fix->starts, stride};
}

static void check_gradients(const wefti_model_shape *shape, uint64_t seed,
                            bool packs)
{
    const double scale = 0.125;
    fixture fix;
    set_up(&fix, shape, seed);
    if (packs) {
        pack(&fix, shape);
    }
    assert_int_equal(wefti_model_train(fix.model, fix.values, &fix.batch, scale,
                                       NULL, fix.gradients, fix.losses),
                     WEFT_OK);
    wefti_random random = wefti_random_make(seed, 7);
    for (size_t i = 0; i < fix.plan.tensor_count; i++) {
        const wefti_tensor *tensor = &fix.plan.tensors[i];
        double worst = 0, size = 0;
        for (int k = 0; k < SAMPLES; k++) {
            size_t at = wefti_model_start(&fix.plan, tensor->info.group) +
                        tensor->start_elems +
                        wefti_random_next(&random) %
                            (wefti_tensor_elems(&tensor->info));
            double wanted = scale * difference(&fix, &fix.values[at], 1e-4);
            double got = (double)fix.gradients[at];
            assert_true(isfinite(got));
            worst = fmax(worst, fabs(got - wanted));
            size = fmax(size, fabs(wanted));
        }
        if (worst > 1e-6 * size + 1e-11) {
            print_error("seed %llu, %s: off by %g of %g\n",
                        (unsigned long long)seed, tensor->info.name, worst,
                        size);
            fail();
        }
    }
    tear_down(&fix);
}

static const wefti_model_shape small = {.layers = 2,
                                        .hidden = 24,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 6,
                                        .ffn = 20,
                                        .vocab = 31,
                                        .seq = 13,
                                        .rope_theta = 10000.0};

static void test_gradient_untied_matches_differences(void **state)
{
    (void)state;
    check_gradients(&small, 1, false);
    check_gradients(&small, 2, false);
}

static void test_gradient_tied_matches_differences(void **state)
{
    (void)state;
    wefti_model_shape shape = small;
    shape.tied = true;
    shape.kv_heads = 4;
    shape.layers = 1;
    check_gradients(&shape, 3, false);
    shape.kv_heads = 1;
    shape.layers = 3;
    check_gradients(&shape, 4, false);
}

/* The choice of experts, which has no slope, stays as it is at a step. */
static void test_gradient_experts_matches_differences(void **state)
{
    (void)state;
    wefti_model_shape shape = small;
    shape.experts = 5;
    shape.experts_per_token = 2;
    check_gradients(&shape, 5, false);
    shape.shared_experts = 2;
    shape.experts = 1;
    shape.experts_per_token = 1;
    check_gradients(&shape, 6, false);
    shape.experts = 8;
    shape.experts_per_token = 3;
    shape.expert_groups = 4;
    shape.group_limit = 2;
    check_gradients(&shape, 7, false);
}

/* Through the join, with more layers in either branch. */
static void test_gradient_encoder_matches_differences(void **state)
{
    (void)state;
    wefti_model_shape shape = small;
    shape.encoder_layers = 2;
    shape.encoder_seq = 5;
    check_gradients(&shape, 8, false);
    shape.encoder_layers = 1;
    shape.encoder_seq = 1;
    shape.layers = 3;
    check_gradients(&shape, 9, false);
}

/* What the encoder gives stands before the text: the decoder's first position
 * sees what all bytes make of the first, of its own sequence alone. */
static void test_encoder_sees_all_bytes_of_its_sequence(void **state)
{
    (void)state;
    fixture fix;
    wefti_model_shape shape = small;
    shape.encoder_layers = 1;
    shape.encoder_seq = 5;
    set_up(&fix, &shape, 10);
    const size_t sequence = wefti_model_positions(&shape) * shape.vocab;
    const real *logits;
    real kept[SEQUENCES * 18 * 31];
    assert_int_equal(
        wefti_model_predict(fix.model, fix.values, &fix.batch, NULL, &logits),
        WEFT_OK);
    memcpy(kept, logits, SEQUENCES * sequence * sizeof(*kept));
    fix.tokens[2 * shape.encoder_seq - 1] ^= 1; /* the last of sequence 1 */
    assert_int_equal(
        wefti_model_predict(fix.model, fix.values, &fix.batch, NULL, &logits),
        WEFT_OK);
    assert_memory_equal(kept, logits, sequence * sizeof(*kept));
    assert_memory_equal(kept + 2 * sequence, logits + 2 * sequence,
                        sequence * sizeof(*kept));
    assert_true(fabs((double)(kept[sequence] - logits[sequence])) > 1e-9);
    fix.tokens[2 * shape.encoder_seq - 1] ^= 1;
    /* A text's token changes nothing before it, the encoder's places included.
     */
    fix.tokens[SEQUENCES * shape.encoder_seq + shape.seq] ^= 1;
    assert_int_equal(
        wefti_model_predict(fix.model, fix.values, &fix.batch, NULL, &logits),
        WEFT_OK);
    assert_memory_equal(kept, logits,
                        (sequence + shape.encoder_seq * shape.vocab) *
                            sizeof(*kept));
    const size_t at = sequence + shape.encoder_seq * shape.vocab;
    assert_true(fabs((double)(kept[at] - logits[at])) > 1e-9);
    tear_down(&fix);
}

static weft_status expect_up(void *context, size_t tensor)
{
    fixture *fix = context;
    assert_int_equal(tensor, fix->expected);
    fix->expected++;
    return WEFT_OK;
}

static weft_status expect_down(void *context, size_t tensor)
{
    fixture *fix = context;
    fix->expected--;
    assert_int_equal(tensor, fix->expected);
    return WEFT_OK;
}

static void check_hooks(bool tied, bool encoder)
{
    fixture fix;
    wefti_model_shape shape = small;
    shape.tied = tied;
    shape.encoder_layers = encoder ? 2 : 0;
    shape.encoder_seq = encoder ? 5 : 0;
    set_up(&fix, &shape, 5);
    wefti_model_hooks hooks = {.context = &fix, .use = expect_up};
    assert_int_equal(wefti_model_evaluate(fix.model, fix.values, &fix.batch,
                                          &hooks, fix.losses),
                     WEFT_OK);
    assert_int_equal(fix.expected, fix.plan.tensor_count);
    fix.expected = 0;
    hooks.finish = expect_down;
    assert_int_equal(wefti_model_train(fix.model, fix.values, &fix.batch, 1.0,
                                       &hooks, fix.gradients, fix.losses),
                     WEFT_OK);
    assert_int_equal(fix.expected, 0);
    tear_down(&fix);
}

static void test_hooks_each_tensor_is_reported_once_in_order(void **state)
{
    (void)state;
    check_hooks(false, false);
    check_hooks(true, false);
    check_hooks(false, true);
}

static weft_status refuse_third(void *context, size_t tensor)
{
    size_t *calls = context;
    (void)tensor;
    return ++*calls == 3 ? WEFT_ERR_PEER : WEFT_OK;
}

static void test_hooks_error_ends_the_pass(void **state)
{
    (void)state;
    fixture fix;
    set_up(&fix, &small, 6);
    size_t calls = 0;
    wefti_model_hooks hooks = {.context = &calls, .use = refuse_third};
    assert_int_equal(wefti_model_evaluate(fix.model, fix.values, &fix.batch,
                                          &hooks, fix.losses),
                     WEFT_ERR_PEER);
    assert_int_equal(calls, 3);
    tear_down(&fix);
}

/* A shorter batch must not see what an earlier pass left behind. */
static void test_predict_prefix_gives_the_same_logits(void **state)
{
    (void)state;
    fixture fix;
    set_up(&fix, &small, 8);
    const real *logits;
    wefti_micro_batch batch = {
        .tokens = fix.tokens, .sequences = 1, .length = small.seq};
    assert_int_equal(
        wefti_model_predict(fix.model, fix.values, &batch, NULL, &logits),
        WEFT_OK);
    double kept[31];
    for (size_t i = 0; i < small.vocab; i++) {
        kept[i] = (double)logits[4 * small.vocab + i];
    }
    batch.length = 5;
    assert_int_equal(
        wefti_model_predict(fix.model, fix.values, &batch, NULL, &logits),
        WEFT_OK);
    for (size_t i = 0; i < small.vocab; i++) {
        assert_true(fabs((double)logits[4 * small.vocab + i] - kept[i]) <
                    1e-10);
    }
    tear_down(&fix);
}

static void test_gradient_of_documents_matches_differences(void **state)
{
    (void)state;
    check_gradients(&small, 4, true);
}

/* Each has the logits that it has alone, for
 * turns are relative. */
static void test_documents_see_each_other_not(void **state)
{
    (void)state;
    fixture fix;
    set_up(&fix, &small, 9);
    pack(&fix, &small);
    const real *logits;
    real kept[SEQUENCES * 64 * 31];
    const size_t count = SEQUENCES * small.seq * small.vocab;
    assert_int_equal(
        wefti_model_predict(fix.model, fix.values, &fix.batch, NULL, &logits),
        WEFT_OK);
    for (size_t i = 0; i < count; i++) {
        kept[i] = logits[i];
    }
    size_t documents = 0;
    wefti_document_walk walk = {&fix.batch.documents, small.seq, SEQUENCES, 0,
                                NULL};
    size_t sequence;
    const uint32_t *start;
    while (wefti_document_next(&walk, &sequence, &start)) {
        const size_t first = sequence * small.seq + start[0];
        const wefti_micro_batch alone = {.tokens = fix.tokens + first,
                                         .sequences = 1,
                                         .length = start[1] - start[0]};
        assert_int_equal(
            wefti_model_predict(fix.model, fix.values, &alone, NULL, &logits),
            WEFT_OK);
        for (size_t i = 0; i < alone.length * small.vocab; i++) {
            assert_true(fabs((double)logits[i] -
                             (double)kept[first * small.vocab + i]) < 1e-10);
        }
        documents++;
    }
    assert_true(documents >= SEQUENCES + 2);
    tear_down(&fix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_untied_matches_differences),
        cmocka_unit_test(test_gradient_tied_matches_differences),
        cmocka_unit_test(test_gradient_experts_matches_differences),
        cmocka_unit_test(test_gradient_encoder_matches_differences),
        cmocka_unit_test(test_encoder_sees_all_bytes_of_its_sequence),
        cmocka_unit_test(test_hooks_each_tensor_is_reported_once_in_order),
        cmocka_unit_test(test_hooks_error_ends_the_pass),
        cmocka_unit_test(test_predict_prefix_gives_the_same_logits),
        cmocka_unit_test(test_documents_see_each_other_not),
        cmocka_unit_test(test_gradient_of_documents_matches_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a mixture of experts trains alike wherever its experts are: on one
 *          rank, over several, with copies and in a pipeline of any schedule;
 *          also where all tokens go to one rank, to experts of few hosts, and
 *          experts are balanced; nearly so where tokens travel in f8e4m3. What
 *          is not possible is refused by name.
 * Method   jobs whose ranks are threads. Losses are within 1e-5 of one rank's
 *          over all steps, gradients of the first step within 1e-5 of the
 *          largest, of the last within 1e-4: AdamW divides by small ones. The
 *          text is the same in each run of the test: whether two experts are
 *          equally good but for rounding must not be drawn.
 */
#include "tests/trainer/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static scratch own;

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, 20260101);
    return 0;
}

/* One rank's first step, and all, which layouts are compared with. */
static job_result first_step, reference;

static int close_scratch(void **state)
{
    (void)state;
    job_result_fini(&first_step);
    job_result_fini(&reference);
    scratch_close(&own);
    return 0;
}

#define EP(ranks)      "parallel.expert_model_parallel_size=" #ranks
#define TP(ranks)      "parallel.tensor_model_parallel_size=" #ranks
#define CP(ranks)      "parallel.context_parallel_size=" #ranks
#define SHARED         "parallel.sequence_parallel=true"
#define PP(ranks)      "parallel.pipeline_model_parallel_size=" #ranks
#define CHUNKS(count)  "parallel.virtual_pipeline_model_parallel_size=" #count
#define SCHEDULE(name) "parallel.schedule=" #name

/* A layout; its settings come after the model's. */
typedef struct layout {
    int nranks;
    const char *settings[6];
} layout;

enum { LEARNT = 20 }; /* steps after which the loss is less */

#define STEPS                                                                  \
    (job_is_sanitized()         ? (size_t)2                                    \
     : getenv("WEFT_TEST_LONG") ? (size_t)LEARNT                               \
                                : (size_t)10)
#define SAVED (STEPS / 2) /* steps before a checkpoint */

static const char *const steps_texts[] = {[1] = "train.steps=1",
                                          [2] = "train.steps=2",
                                          [5] = "train.steps=5",
                                          [10] = "train.steps=10",
                                          [20] = "train.steps=20"};

static job make_job(const layout *how, size_t steps)
{
    job what = {.nranks = how->nranks,
                .settings = {"model.layers=4", "model.ffn_size=64",
                             "model.experts=4", "model.shared_experts=1",
                             "train.global_batch_size=16", steps_texts[steps],
                             "train.lr_decay_style=constant",
                             "train.validate_every=10", "train.lr=3.0e-3",
                             "train.warmup_steps=1"}};
    size_t at = 10;
    for (size_t i = 0; i < 6 && how->settings[i]; i++) {
        what.settings[at++] = how->settings[i];
    }
    return what;
}

static job_result run_good(const layout *how, size_t steps)
{
    job what = make_job(how, steps);
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks: %s", how->nranks, result.error);
    }
    return result;
}

static const layout single = {1, {NULL}};

static void make_references(void)
{
    if (reference.steps == 0) {
        first_step = run_good(&single, 1);
        reference = run_good(&single, STEPS);
        if (!job_is_sanitized()) {
            job_result learnt = run_good(&single, LEARNT);
            assert_true(learnt.loss[LEARNT - 1] < 0.8 * learnt.loss[0]);
            job_result_fini(&learnt);
        }
    }
}

static double largest(const real *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)values[i]));
    }
    return most;
}

static void check_near(const job_result *got, const job_result *want,
                       int nranks, double of_gradients)
{
    assert_int_equal(got->steps, want->steps);
    for (size_t i = 0; i < got->steps; i++) {
        if (fabs(got->loss[i] - want->loss[i]) > 1e-5 * want->loss[i]) {
            fail_msg("%d ranks, step %zu: loss %.9g, want %.9g", nranks, i,
                     got->loss[i], want->loss[i]);
        }
    }
    assert_true(fabs(got->val_loss - want->val_loss) < 1e-5 * want->val_loss);
    assert_int_equal(got->parameter_count, want->parameter_count);
    double size = largest(want->gradients, want->parameter_count);
    for (size_t i = 0; i < want->parameter_count; i++) {
        double off = (double)got->gradients[i] - (double)want->gradients[i];
        if (!(fabs(off) <= of_gradients * size)) {
            fail_msg("%d ranks, %zu steps: gradient %zu is off by %g of %g",
                     nranks, got->steps, i, off, size);
        }
    }
}

/* The first of them for all steps, the others for one. */
static void check_layouts(const layout *layouts, size_t count, size_t whole)
{
    make_references();
    for (size_t i = 0; i < count; i++) {
        job_result begun = run_good(&layouts[i], 1);
        check_near(&begun, &first_step, layouts[i].nranks, 1e-5);
        job_result_fini(&begun);
        if (i < (job_is_sanitized() ? 1 : whole)) {
            job_result got = run_good(&layouts[i], STEPS);
            check_near(&got, &reference, layouts[i].nranks, 1e-4);
            job_result_fini(&got);
        }
    }
}

#define SHADOW         "train.device=shadow"
#define COUNT(layouts) (sizeof(layouts) / sizeof((layouts)[0]))

static void test_experts_over_ranks_train_as_on_one(void **state)
{
    static const layout layouts[] = {{2, {EP(2)}},
                                     {4, {EP(2)}},
                                     {2, {EP(2), "overlap.expert=false"}},
                                     {4, {EP(4)}},
                                     {2, {NULL}}};
    (void)state;
    check_layouts(layouts, job_is_slow() ? 3 : COUNT(layouts), 3);
}

/* Each with tokens of its own, of which a whole sequence's ranks have some. */
static void
test_experts_of_ranks_that_share_layers_train_as_on_one(void **state)
{
    static const layout layouts[] = {{4, {EP(4), TP(2), SHARED}},
                                     {4, {EP(4), TP(2), CP(2), SHARED}},
                                     {2, {EP(2), CP(2)}},
                                     {2, {TP(2), SHARED}},
                                     {8, {EP(2), TP(4), PP(2), SHARED}}};
    (void)state;
    check_layouts(layouts, job_is_slow() ? 2 : COUNT(layouts), 2);
}

static void test_experts_in_pipelines_train_as_on_one(void **state)
{
    static const layout layouts[] = {
        {4, {EP(2), PP(2), SCHEDULE(dualpipe)}},
        {4, {EP(2), PP(2)}},
        {4, {EP(2), PP(2), SCHEDULE(zb_h1)}},
        {4, {EP(2), PP(2), SCHEDULE(zbv)}},
        {4, {EP(2), PP(2), SCHEDULE(dualpipev)}},
        {4, {EP(2), PP(2), SCHEDULE(interleaved), CHUNKS(2)}},
        {4, {EP(2), PP(2), SCHEDULE(gpipe)}},
        {8, {EP(4), PP(2), SCHEDULE(zb_h2)}}};
    (void)state;
    check_layouts(layouts, job_is_slow() ? 1 : COUNT(layouts), 2);
}

static void check_same(const job_result *one, const job_result *two)
{
    assert_int_equal(one->steps, SAVED);
    for (size_t i = 0; i < one->steps; i++) {
        assert_true(one->loss[i] == two->loss[i]);
        assert_true(one->grad_norm[i] == two->grad_norm[i]);
    }
    assert_memory_equal(one->parameters, two->parameters,
                        one->parameter_count * sizeof(real));
}

/* Neither who computes first nor who sends first shows, nor on what device. */
static void test_experts_over_ranks_give_the_same_bits_again(void **state)
{
    static const layout how = {4, {EP(2), PP(2), SCHEDULE(dualpipe)}};
    static const layout late = {
        4, {EP(2), PP(2), SCHEDULE(dualpipe), "train.device=shadow"}};
    (void)state;
    job_result one = run_good(&how, SAVED), two = run_good(&how, SAVED);
    job_result three = run_good(&late, SAVED);
    check_same(&one, &two);
    check_same(&one, &three);
    job_result_fini(&one);
    job_result_fini(&two);
    job_result_fini(&three);
}

/* ---- where it goes on -----------------------------------------------------
 */

#define BALANCED "moe.balance_every=1"
#define SAVES(n) "checkpoint.every=20", "checkpoint.dir=saved" #n

/* Saved by ranks of one layout, it goes on under another; biases too. */
static void test_experts_saved_by_any_ranks_go_on_on_others(void **state)
{
    static const layout saves[] = {{4, {EP(4), BALANCED, SAVES(0)}},
                                   {1, {BALANCED, SAVES(1)}},
                                   {4, {EP(2), PP(2), BALANCED, SAVES(2)}}};
    static const layout goes_on[] = {
        {2, {EP(2), BALANCED}}, {4, {EP(4), BALANCED}}, {1, {BALANCED}}};
    static const char *const folders[] = {"saved0", "saved1", "saved2"};
    static const layout whole = {1, {BALANCED}};
    (void)state;
    job_result want = run_good(&whole, STEPS);
    for (size_t i = 0; i < (job_is_slow() ? 1 : COUNT(saves)); i++) {
        job_result saved = run_good(&saves[i], SAVED);
        job what = make_job(&goes_on[i], STEPS);
        what.resume = scratch_path(&own, folders[i]);
        job_result got = job_run(&own, &what);
        if (got.status != WEFT_OK) {
            fail_msg("from %s: %s", folders[i], got.error);
        }
        assert_int_equal(got.steps, STEPS - SAVED);
        for (size_t k = 0; k < got.steps; k++) {
            double wanted = want.loss[SAVED + k];
            if (!(fabs(got.loss[k] - wanted) < 1e-5 * wanted)) {
                fail_msg("from %s, step %zu: loss %.9g, want %.9g", folders[i],
                         SAVED + k, got.loss[k], wanted);
            }
        }
        job_result_fini(&saved);
        job_result_fini(&got);
    }
    job_result_fini(&want);
}

/* Where nothing of the device's memory is the host's, and streams are late. */
static void test_experts_on_a_device_train_as_on_the_host(void **state)
{
    static const layout layouts[] = {
        {4, {EP(2), PP(2), SCHEDULE(dualpipe), "train.device=shadow"}},
        {2, {EP(2), "train.device=shadow"}},
        {1, {"train.device=shadow"}},
        {4, {EP(2), "train.device=shadow"}},
        {4, {EP(2), PP(2), SCHEDULE(zbv), "train.device=shadow"}},
        {4,
         {EP(2), PP(2), SCHEDULE(interleaved), CHUNKS(2),
          "train.device=shadow"}}};
    (void)state;
    check_layouts(layouts, job_is_slow() ? 2 : COUNT(layouts), 0);
}

/* ---- what comes to whom ---------------------------------------------------
 */

/* Biases that move by 1 a step send all tokens to the same experts at once. */
static void test_experts_skewed_as_can_be_train_as_on_one(void **state)
{
    static const char *const skewed[] = {"moe.balance_every=1",
                                         "moe.balance_rate=1"};
    const layout alone = {1, {skewed[0], skewed[1]}};
    const layout apart = {4, {EP(4), skewed[0], skewed[1]}};
    (void)state;
    job_result want = run_good(&alone, STEPS), got = run_good(&apart, STEPS);
    check_near(&got, &want, 4, 1e-4);
    job_result_fini(&want);
    job_result_fini(&got);
}

#define LIMITED "moe.nodes=2", "moe.node_limit=1"

/* Of two parts of the experts a token goes to one, wherever they are. */
static void test_experts_of_few_hosts_train_as_on_one(void **state)
{
    static const layout alone = {1, {LIMITED}};
    static const layout apart[] = {{4, {EP(4), LIMITED}},
                                   {4, {EP(2), PP(2), LIMITED}},
                                   {2, {EP(2), LIMITED, SHADOW}}};
    (void)state;
    make_references();
    job_result want = run_good(&alone, STEPS);
    assert_true(want.loss[STEPS - 1] != reference.loss[STEPS - 1]);
    for (size_t i = 0; i < (job_is_slow() ? 2 : COUNT(apart)); i++) {
        job_result got = run_good(&apart[i], STEPS);
        check_near(&got, &want, apart[i].nranks, 1e-4);
        job_result_fini(&got);
    }
    job_result_fini(&want);
}

/* Tokens are rounded to three bits behind the point on their way: losses stay
 * within 1% of f32's in all steps, and are not the same. */
static void test_experts_in_fp8_train_nearly_as_in_f32(void **state)
{
    static const layout narrow[] = {{2, {EP(2), "moe.dispatch=fp8"}},
                                    {4, {EP(4), "moe.dispatch=fp8", SHADOW}}};
    (void)state;
    make_references();
    for (size_t i = job_is_slow(); i < COUNT(narrow); i++) {
        job_result got = run_good(&narrow[i], STEPS);
        double most = 0;
        for (size_t k = 0; k < STEPS; k++) {
            const double wanted = reference.loss[k];
            most = fmax(most, fabs(got.loss[k] - wanted) / wanted);
        }
        if (!(most > 1e-6 && most < 1e-2)) {
            fail_msg("%d ranks: losses are off by %g", narrow[i].nranks, most);
        }
        job_result_fini(&got);
    }
}

static void check_refused(const layout *how, const char *text)
{
    job what = make_job(how, STEPS);
    job_result result = job_run(&own, &what);
    if (result.status == WEFT_OK || !strstr(result.error, text)) {
        fail_msg("%d ranks: %s: no \"%s\"", how->nranks,
                 result.status == WEFT_OK ? "trained" : result.error, text);
    }
    job_result_fini(&result);
}

static void test_experts_without_room_end_the_run_by_name(void **state)
{
    const layout tight = {2, {EP(2), "moe.room=1"}};
    (void)state;
    /* A rank may hear of another that ends it before it sees why. */
    job what = make_job(&tight, STEPS);
    job_result result = job_run(&own, &what);
    assert_int_not_equal(result.status, WEFT_OK);
    const char *named =
        job_is_sanitized() ? "its capacity is 16" : "its capacity is 48";
    if (!strstr(result.errors, named)) {
        fail_msg("no rank names the room: %s", result.errors);
    }
    job_result_fini(&result);
}

static void test_experts_what_is_not_possible_is_refused_by_name(void **state)
{
    static const struct {
        layout how;
        const char *text;
    } refused[] = {
        {{2, {EP(2), "model.experts=0"}}, "model.experts 0"},
        {{3, {EP(3), "train.global_batch_size=18"}}, "nearest that work: 2"},
        {{2, {EP(4)}}, "no part of a stage's ranks"},
        {{1, {"model.experts_per_token=5"}}, "model.experts 4"},
        {{2, {EP(2), "model.ffn_size=9"}}, "a multiple of 1024"},
        {{2, {EP(2), "train.deterministic=true"}}, "does not hold"},
        {{2, {EP(2), TP(2)}}, "sequence_parallel: true"},
        {{2, {TP(2)}}, "sequence_parallel: true"},
        {{4,
          {EP(2), "parallel.pipeline_model_parallel_size=2",
           "checkpoint.every=1", "checkpoint.inside=1"}},
         "in a pipeline"},
        {{2, {EP(2), "moe.place_every=2", "checkpoint.inside=1"}},
         "where experts are"},
        {{2, {EP(2), "moe.place_every=2", "train.elastic=true"}},
         "moe.place_every above 0; allowed is false"},
        {{2, {"moe.dispatch=fp8"}}, "no token travels"},
        {{1, {"moe.nodes=2"}}, "with a moe.node_limit alone"},
        {{1, {"moe.node_limit=1", "moe.nodes=3"}}, "that work: 2 or 4"},
        {{1, {"moe.node_limit=1", "moe.nodes=4"}}, "allowed is 0, or 2"},
        {{1, {"model.experts=0", "moe.node_limit=1"}}, "model.experts 0"}};
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        check_refused(&refused[i].how, refused[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_over_ranks_train_as_on_one),
        cmocka_unit_test(
            test_experts_of_ranks_that_share_layers_train_as_on_one),
        cmocka_unit_test(test_experts_in_pipelines_train_as_on_one),
        cmocka_unit_test(test_experts_over_ranks_give_the_same_bits_again),
        cmocka_unit_test(test_experts_saved_by_any_ranks_go_on_on_others),
        cmocka_unit_test(test_experts_on_a_device_train_as_on_the_host),
        cmocka_unit_test(test_experts_skewed_as_can_be_train_as_on_one),
        cmocka_unit_test(test_experts_of_few_hosts_train_as_on_one),
        cmocka_unit_test(test_experts_in_fp8_train_nearly_as_in_f32),
        cmocka_unit_test(test_experts_without_room_end_the_run_by_name),
        cmocka_unit_test(test_experts_what_is_not_possible_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}

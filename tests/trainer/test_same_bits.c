/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     what is learned does not depend on the number of ranks, on overlap,
 *          on measuring, or on the run; a step's terms add up.
 * Method   whole jobs, ranks as threads, on a small text from a printed seed;
 *          losses, norms and final parameters are compared bit by bit.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static scratch own;
static job_result reference; /* of one rank */
static job_result once;      /* of coarse */

/* With fewer steps and micro-batches where one more shows nothing. */
static job make_job(int nranks, const char *setting, const char *other)
{
    const bool few = job_is_sanitized();
    return (job){.nranks = nranks,
                 .settings = {few ? "train.steps=2" : "train.steps=8",
                              few ? "train.global_batch_size=16"
                                  : "train.global_batch_size=32",
                              setting, setting ? other : NULL}};
}

static job make_coarse(void)
{
    return make_job(2,
                    job_is_sanitized() ? "train.micro_batch_size=8"
                                       : "train.micro_batch_size=16",
                    NULL);
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    const job one = make_job(1, NULL, NULL), coarse = make_coarse();
    reference = job_run_well(&own, &one);
    once = job_run_well(&own, &coarse);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    job_result_fini(&reference);
    job_result_fini(&once);
    scratch_close(&own);
    return 0;
}

static void check_same(const job_result *wanted, const job *what)
{
    job_result got = job_run_well(&own, what);
    job_assert_same_bits(wanted, &got);
    job_result_fini(&got);
}

static void test_any_ranks_give_the_same_bits(void **state)
{
    (void)state;
    const job two = make_job(2, NULL, NULL), four = make_job(4, NULL, NULL);
    if (!job_is_sanitized()) { /* which sees them without overlap */
        check_same(&reference, &two);
    }
    check_same(&reference, &four);
}

static void test_three_ranks_at_24_give_the_same_bits(void **state)
{
    (void)state;
    const job one =
        make_job(1, "train.global_batch_size=24", "train.micro_batch_size=1");
    job three = one;
    three.nranks = 3;
    job_result wanted = job_run_well(&own, &one);
    check_same(&wanted, &three);
    job_result_fini(&wanted);
}

static void test_twice_gives_the_same_bits(void **state)
{
    (void)state;
    const job coarse = make_coarse();
    check_same(&once, &coarse);
}

static void test_without_overlap_gives_the_same_bits(void **state)
{
    (void)state;
    const job apart =
        make_job(2, "overlap.grad_reduce=false", "overlap.param_gather=false");
    check_same(&reference, &apart);
}

static void test_measure_restores_the_state(void **state)
{
    (void)state;
    if (job_is_sanitized()) { /* which sees it in the next test */
        return;
    }
    job what = make_coarse();
    what.measure = true;
    job_result got = job_run_well(&own, &what);
    job_assert_same_bits(&once, &got);
    assert_true(isnan(once.s_C) && isnan(once.s_M));
    assert_true(got.s_C > 0 && got.s_M > 0);
    job_result_fini(&got);
}

/* Passes that exchange nothing, or wait for all of it, leave no trace; nor do
 * those of another kind than the last. */
static void test_measure_of_all_classes_restores_the_state(void **state)
{
    static const char *const layouts[][4] = {
        {"parallel.tensor_model_parallel_size=2",
         "parallel.sequence_parallel=true",
         "parallel.pipeline_model_parallel_size=2", "parallel.schedule=zbv"},
        {"parallel.context_parallel_size=4", "parallel.ulysses_size=2",
         "parallel.context_parallel=ring+ulysses"},
        {"parallel.expert_model_parallel_size=2", "model.experts=4",
         "parallel.pipeline_model_parallel_size=2", "moe.balance_every=1"}};
    /* Hundreds of steps each: a sanitizer sees two ranks of one layer. */
    const bool few = job_is_sanitized();
    const size_t count = few ? 1 : sizeof(layouts) / sizeof(layouts[0]);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        job what = {.nranks = few ? 2 : 4,
                    .settings = {"train.steps=2",
                                 few ? "model.layers=1" : "model.layers=4",
                                 JOB_TOKENS(16, 8), "train.micro_batch_size=1",
                                 "train.global_batch_size=4"},
                    .generate = "t"};
        for (size_t k = 0; k < (few ? 2 : 4); k++) {
            what.settings[5 + k] = layouts[i][k];
        }
        job_result wanted = job_run_well(&own, &what);
        what.measure = true;
        job_result got = job_run_well(&own, &what);
        job_assert_same_bits(&wanted, &got);
        assert_string_equal(wanted.printed, got.printed);
        assert_true(got.s_C > 0 && got.s_M > 0);
        job_result_fini(&wanted);
        job_result_fini(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_ranks_give_the_same_bits),
        cmocka_unit_test(test_three_ranks_at_24_give_the_same_bits),
        cmocka_unit_test(test_twice_gives_the_same_bits),
        cmocka_unit_test(test_without_overlap_gives_the_same_bits),
        cmocka_unit_test(test_measure_restores_the_state),
        cmocka_unit_test(test_measure_of_all_classes_restores_the_state),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}

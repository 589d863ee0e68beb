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
static const job coarse = {.nranks = 2,
                           .settings = {"train.micro_batch_size=16"}};
static job_result once; /* of coarse */

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    reference = job_run_well(&own, &(job){.nranks = 1});
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
    check_same(&reference, &(job){.nranks = 2});
    check_same(&reference, &(job){.nranks = 4});
}

static void test_three_ranks_at_24_give_the_same_bits(void **state)
{
    (void)state;
    job one = {
        .nranks = 1,
        .settings = {"train.global_batch_size=24", "train.micro_batch_size=1"}};
    job three = one;
    three.nranks = 3;
    job_result wanted = job_run_well(&own, &one);
    check_same(&wanted, &three);
    job_result_fini(&wanted);
}

static void test_twice_gives_the_same_bits(void **state)
{
    (void)state;
    check_same(&once, &coarse);
}

static void test_without_overlap_gives_the_same_bits(void **state)
{
    (void)state;
    check_same(&reference, &(job){.nranks = 2,
                                  .settings = {"overlap.grad_reduce=false",
                                               "overlap.param_gather=false"}});
}

static void test_measure_restores_the_state(void **state)
{
    (void)state;
    job what = coarse;
    what.measure = true;
    job_result got = job_run_well(&own, &what);
    job_assert_same_bits(&once, &got);
    assert_true(isnan(once.s_C) && isnan(once.s_M));
    assert_true(got.s_C > 0 && got.s_M > 0);
    job_result_fini(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_ranks_give_the_same_bits),
        cmocka_unit_test(test_three_ranks_at_24_give_the_same_bits),
        cmocka_unit_test(test_twice_gives_the_same_bits),
        cmocka_unit_test(test_without_overlap_gives_the_same_bits),
        cmocka_unit_test(test_measure_restores_the_state),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}

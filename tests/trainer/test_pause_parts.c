/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Where ranks share layers, sequences or experts, a run that goes on
 *          from a snapshot inside a step is, bit by bit, the run that was never
 *          interrupted; on ranks that share otherwise it is refused by name.
 * Method   jobs whose ranks are threads, beside the same job without snapshots;
 * which layouts, and from which of its snapshots each goes on, is drawn.
 * WEFT_TEST_LONG: all of them.
 */
#include "tests/seed.h"
#include "tests/trainer/pause_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define TENSOR  "parallel.tensor_model_parallel_size=2"
#define ROWS    "parallel.sequence_parallel=true"
#define CONTEXT "parallel.context_parallel_size=2"
#define EVEN    JOB_TOKENS(16, 8)
#define WHOLE   "parallel.pipeline_model_parallel_size=1"
#define EXPERTS                                                                \
    "model.experts=4", "model.ffn_size=64", "moe.balance_every=1",             \
        "parallel.expert_model_parallel_size=2"

/* Each has parts of the model or of sequences; of experts also the loads that
 * have been counted. */
static void test_pause_of_ranks_that_share_goes_on(void **state)
{
    (void)state;
    const pause_layout layouts[] = {
        {4, {SCHEDULE(zb_h1), TENSOR, ROWS, EVEN}},
        {2, {WHOLE, EXPERTS}},
        {4, {WHOLE, TENSOR, "model.dtype=bf16"}},
        {2, {WHOLE, CONTEXT, EVEN}},
        {4, {WHOLE, TENSOR, CONTEXT, ROWS, EVEN}},
        {4, {SCHEDULE(dualpipe), CONTEXT, EVEN}},
        {4, {WHOLE, TENSOR, ROWS, EVEN, EXPERTS}},
        {1, {WHOLE, "model.experts=4", "moe.balance_every=1"}}};
    const size_t count = sizeof(layouts) / sizeof(*layouts);
    const size_t by = pause_is_long() ? 1 : job_is_sanitized() ? 4 : 2;
    for (size_t i = random_next(&pause_seed) % by; i < count; i += by) {
        job_result wanted = pause_run_good(&layouts[i], NULL, NULL);
        pause_check_layout(&layouts[i], &wanted, "checkpoint.inside=5");
        job_result_fini(&wanted);
    }
}

/* As many, but otherwise. */
static void test_pause_of_other_parts_is_refused_by_name(void **state)
{
    (void)state;
    char dir[512];
    pause_layout cut = {2, {WHOLE, TENSOR, EVEN}};
    pause_remove_kept();
    pause_keeps = true;
    job_result got = pause_run_good(&cut, "checkpoint.inside=1", NULL);
    pause_keeps = false;
    job_result_fini(&got);
    snprintf(dir, sizeof(dir), "%.250s/kept_1", pause_own.dir);
    const char *const others[] = {CONTEXT, "train.steps=3"};
    for (size_t i = 0; i < 2; i++) {
        cut.settings[1] = others[i];
        job what = pause_make_job(&cut, NULL, dir);
        got = job_run(&pause_own, &what);
        assert_int_equal(got.status, WEFT_ERR_INVALID);
        if (!strstr(got.error, "inside a step it goes on only with the same")) {
            fail_msg("%s", got.error);
        }
        job_result_fini(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pause_of_ranks_that_share_goes_on),
        cmocka_unit_test(test_pause_of_other_parts_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, pause_open, pause_close);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what is recommended is worth what it costs, and what is said of idle
 * time is true: imbalance is not called bubble, more micro-batches are only
 * promised to help where they do, a second copy of the parameters is named.
 *
 * Method: jobs whose answer is known by hand.
 */
#include "tests/overlap/advice_jobs.h"

#include <math.h>

/* The head is on the last stage, whatever the number of micro-batches. */
static void test_advise_imbalance_is_no_bubble(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    const weft_stage_cost head = {1, 1, 1, 2};
    const int choices[] = {16, 32, 64, 128, 256, 512};
    weft_advice_config config = make_job(4, 32, 4, &cost);
    config.last = &head;
    config.choices = choices;
    config.choice_count = 6;
    config.memory_most = 80; /* not dualpipe, which splits the ends */
    config.copy_memory = 42;
    weft_advice advice = advise(&config);
    const weft_schedule_candidate *few = find(&advice, "zb_h1", 16, 0);
    const weft_schedule_candidate *many = find(&advice, "zb_h1", 512, 0);
    assert_true(fabs(many->imbalance - 96) < 1e-9);
    assert_true(fabs(few->imbalance - 96) < 1e-9);
    assert_true(few->bubble > 20 * many->bubble);
    assert_true(many->imbalance_ratio > 0.49 && many->bubble_ratio < 0.01);
    assert_int_equal(many->busiest_rank, 3);
    assert_non_null(strstr(advice.warning, "is imbalance"));
    assert_non_null(strstr(advice.warning, "away from rank 3"));
    assert_non_null(strstr(advice.warning, "2 times as long"));
    assert_null(strstr(advice.warning, "more micro-batches"));
    assert_non_null(strstr(advice.reason, ", imbalance 49."));
    weft_advice_fini(&advice);
    /* Both, each with what helps. */
    config.microbatches = 2;
    config.choice_count = 0;
    advice = advise(&config);
    assert_non_null(strstr(advice.warning, "is imbalance"));
    assert_non_null(strstr(advice.warning, "is bubble: more micro-batches"));
    weft_advice_fini(&advice);
}

/* Equally long at every m: the job's own stays, and no memory is given away. */
static void test_advise_ties_take_what_costs_less(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    const weft_stage_cost head = {2, 2, 2, 4};
    const int choices[] = {512, 64, 8, 16, 128};
    weft_advice_config config = make_job(4, 32, 32, &cost);
    config.last = &head;
    config.choices = choices;
    config.choice_count = 5;
    config.memory_most = 150; /* not dualpipe, which is quicker */
    config.copy_memory = 100;
    weft_advice advice = advise(&config);
    const weft_schedule_candidate *best = &advice.candidates[0];
    assert_true(find(&advice, "zbv", 512, 0)->makespan == best->makespan);
    assert_int_equal(best->microbatches, 32);
    weft_advice_fini(&advice);
    /* Another m that is better: of those the fewest. */
    config.microbatches = 4; /* too few for zbv to be without bubble */
    advice = advise(&config);
    assert_int_equal(advice.candidates[0].microbatches, 8);
    weft_advice_fini(&advice);
    /* 97.125 of interleaved with V = 8 are no reason to hold 4.875. */
    config = make_job(4, 32, 32, &cost);
    advice = advise(&config);
    assert_string_equal(advice.candidates[0].name, "zbv");
    assert_non_null(strstr(advice.reason, "fastest, within 0.5%"));
    assert_non_null(strstr(advice.reason, "interleaved with V = 8 takes"));
    weft_advice_fini(&advice);
    /* On one rank all are equal. */
    config = make_job(1, 8, 4, &cost);
    advice = advise(&config);
    assert_true(advice.candidates[0].memory == 1);
    assert_int_equal(advice.candidates[0].param_copies, 1);
    weft_advice_fini(&advice);
}

static void test_advise_second_copy_is_named_as_cost(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    const weft_stage_cost head = {1, 1, 1, 2};
    weft_advice_config config = make_job(4, 32, 4, &cost);
    config.last = &head;
    weft_advice advice = advise(&config);
    assert_string_equal(advice.candidates[0].name, "dualpipe");
    assert_non_null(strstr(advice.reason, "a second copy of the parameters"));
    assert_non_null(strstr(advice.reason, "is not counted"));
    weft_advice_fini(&advice);
    config.copy_memory = 3;
    advice = advise(&config);
    assert_string_equal(advice.candidates[0].name, "dualpipe");
    assert_non_null(strstr(advice.reason, "moments: 3 of these units"));
    weft_advice_fini(&advice);
}

/* What messages stop in between does not go away with the filling. */
static void test_advise_waits_for_messages_are_not_promised_away(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    cost.p2p = 1.5;
    weft_advice_config config = make_job(4, 256, 4, &cost);
    config.memory_most = 4;
    weft_advice advice = advise(&config);
    assert_true(advice.candidates[0].imbalance == 0);
    assert_non_null(strstr(advice.warning, "stays with more micro-batches"));
    for (size_t k = 0; k < advice.count; k++) { /* not the one examined */
        assert_int_equal(advice.candidates[k].microbatches, 256);
    }
    weft_advice_fini(&advice);
}

static void test_advise_fixed_chunks_and_group_are_kept(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    weft_advice_config config = make_job(4, 32, 32, &cost);
    config.chunks = 4;
    config.group = 8;
    weft_advice advice = advise(&config);
    size_t count = 0;
    for (size_t k = 0; k < advice.count; k++) {
        const weft_schedule_candidate *c = &advice.candidates[k];
        if (strcmp(c->name, "interleaved") == 0) {
            assert_int_equal(c->chunks, 4);
            /* (2(P-1) + (V-1)N + 1) / V */
            assert_true(c->activations == (6 + 3 * 8 + 1) / 4.0);
            count++;
        }
    }
    assert_int_equal(count, 1);
    weft_advice_fini(&advice);
}

/* A backward that is given whole is not free where it is split. */
static void
test_advise_whole_backward_of_an_end_is_split_in_halves(void **state)
{
    (void)state;
    weft_schedule_cost cost = make_cost(1, 1, 1);
    const weft_stage_cost whole = {1, 0, 0, 2}, parts = {1, 1, 1, 2};
    weft_advice_config config = make_job(4, 32, 4, &cost);
    config.last = &whole;
    weft_advice advice = advise(&config);
    config.last = &parts;
    weft_advice other = advise(&config);
    assert_true(find(&advice, "zb_h1", 32, 0)->makespan ==
                find(&other, "zb_h1", 32, 0)->makespan);
    weft_advice_fini(&advice);
    weft_advice_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_advise_imbalance_is_no_bubble),
        cmocka_unit_test(test_advise_ties_take_what_costs_less),
        cmocka_unit_test(test_advise_second_copy_is_named_as_cost),
        cmocka_unit_test(test_advise_waits_for_messages_are_not_promised_away),
        cmocka_unit_test(test_advise_fixed_chunks_and_group_are_kept),
        cmocka_unit_test(
            test_advise_whole_backward_of_an_end_is_split_in_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

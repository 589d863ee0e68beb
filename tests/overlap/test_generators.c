/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: generated lists are the schedules they are called after, action by
 * action, and what a schedule cannot be is refused with what it can.
 *
 * Method: small lists written out by hand from the recipes, then refusals.
 */
#include "tests/overlap/schedules.h"

typedef struct example {
    const char *name;
    int ranks, microbatches, rank;
    const char *list;
} example;

static const example examples[] = {
    {"gpipe", 2, 3, 1, "1F0 1F1 1F2 1B0 1B1 1B2"},
    {"1f1b", 4, 5, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0B2 0B3 0B4"},
    {"1f1b", 4, 5, 3, "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4"},
    {"1f1b", 4, 2, 0, "0F0 0F1 0B0 0B1"},
    {"interleaved", 2, 4, 0,
     "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"},
    {"interleaved", 2, 4, 1,
     "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
    {"zb_h1", 3, 4, 0, "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3"},
    {"zb_h1", 3, 4, 2, "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3"},
    {"zb_h2", 2, 4, 0, "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3"},
    {"zb_h2", 2, 4, 1, "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3"},
    {"zbv", 2, 3, 0,
     "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 "
     "0W2"},
    {"dualpipe", 2, 4, 0, "0F0 3F0 0F1 3B0 (3F1;0B0)OVERLAP_F_B 3B1 0I1 0W1"},
    {"dualpipev", 2, 4, 1,
     "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B "
     "(2F3;1B1)OVERLAP_F_B 2B2 1B2 2I3 1I3 2W3 1W3"},
};

static void test_generators_small_lists_are_the_recipes(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(examples) / sizeof(examples[0]); k++) {
        const example *e = &examples[k];
        weft_schedule *schedule =
            make_schedule(e->name, e->ranks, e->microbatches, 0);
        if (strcmp(list_text(schedule, e->rank), e->list) != 0) {
            fail_msg("%s P=%d m=%d rank %d:\n%s\nnot\n%s", e->name, e->ranks,
                     e->microbatches, e->rank, list_text(schedule, e->rank),
                     e->list);
        }
        weft_schedule_destroy(schedule);
    }
}

typedef struct refusal {
    weft_schedule_config config;
    const char *why;
} refusal;

#define CONFIG(...)                                                            \
    {                                                                          \
        .size_bytes = sizeof(weft_schedule_config), __VA_ARGS__                \
    }

static const refusal refusals[] = {
    {CONFIG(.name = "pipedream", .ranks = 2, .microbatches = 2), "1f1b"},
    {CONFIG(.name = "1f1b", .ranks = 0, .microbatches = 2), "ranks 0"},
    {CONFIG(.name = "1f1b", .ranks = 70000, .microbatches = 2), "65536"},
    {CONFIG(.name = "1f1b", .ranks = 2, .microbatches = 0), "microbatches 0"},
    {CONFIG(.name = "1f1b", .ranks = 2, .microbatches = 2, .chunks = 2),
     "chunks 2"},
    {CONFIG(.name = "zbv", .ranks = 2, .microbatches = 4, .chunks = 3),
     "allowed is 2"},
    {CONFIG(.name = "gpipe", .ranks = 2, .microbatches = 4, .overlap = true),
     "overlap"},
    {CONFIG(.name = "interleaved", .ranks = 3, .microbatches = 7),
     "works is 6"},
    {CONFIG(.name = "interleaved", .ranks = 3, .microbatches = 8),
     "works is 9"},
    {CONFIG(.name = "interleaved", .ranks = 4, .microbatches = 3),
     "works is 4"},
    {CONFIG(.name = "interleaved", .ranks = 4, .microbatches = 8, .group = 3),
     "group 3"},
    {CONFIG(.name = "interleaved", .ranks = 4, .microbatches = 13, .group = 6),
     "works is 12"},
    {CONFIG(.name = "dualpipe", .ranks = 3, .microbatches = 8), "works is 4"},
    {CONFIG(.name = "dualpipe", .ranks = 4, .microbatches = 9), "works is 8"},
    {CONFIG(.name = "dualpipe", .ranks = 4, .microbatches = 6), "works is 8"},
    {CONFIG(.name = "dualpipev", .ranks = 4, .microbatches = 7), "least 8"},
};

static void test_generators_impossible_shapes_are_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(refusals) / sizeof(refusals[0]); k++) {
        weft_schedule *schedule = NULL;
        weft_status status =
            weft_schedule_create(&refusals[k].config, &schedule);
        if (status != WEFT_ERR_INVALID ||
            !strstr(weft_error_text(), refusals[k].why)) {
            fail_msg("case %zu: %s: %s", k, weft_status_text(status),
                     weft_error_text());
        }
    }
}

/* A last group of at least P micro-batches is whole enough. */
static void test_interleaved_short_last_group_works_from_ranks_on(void **state)
{
    (void)state;
    weft_schedule_config config = make_config("interleaved", 3, 9, 2);
    config.group = 5;
    weft_schedule *schedule = NULL;
    assert_int_equal(weft_schedule_create(&config, &schedule), WEFT_OK);
    weft_schedule_destroy(schedule);
}

/* ---- passes ---------------------------------------------------------------
 */

static void test_merge_joins_an_i_with_the_w_behind_it(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("zb_h1", 3, 4, 0);
    ASSERT_OK(weft_schedule_merge(schedule));
    assert_string_equal(list_text(schedule, 0),
                        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
    assert_string_equal(list_text(schedule, 2),
                        "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3");
    weft_schedule_destroy(schedule);
}

static void test_reduce_is_behind_the_last_gradient_or_staggered(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("interleaved", 2, 2, 2);
    ASSERT_OK(weft_schedule_reduce(schedule, false));
    assert_string_equal(list_text(schedule, 1),
                        "1F0 1F1 3F0 3B0 3F1 3B1 3REDUCE_GRAD 1B0 1B1 "
                        "1REDUCE_GRAD");
    weft_schedule_destroy(schedule);
    schedule = make_schedule("interleaved", 2, 2, 2);
    ASSERT_OK(weft_schedule_reduce(schedule, true));
    assert_string_equal(list_text(schedule, 1),
                        "1F0 1F1 3F0 3B0 3F1 3B1 1B0 3REDUCE_GRAD 1B1 "
                        "1REDUCE_GRAD");
    ASSERT_OK(weft_schedule_optimize(schedule));
    assert_string_equal(list_text(schedule, 1),
                        "1GATHER_PARAM 3GATHER_PARAM 1F0 1F1 3F0 3B0 3F1 3B1 "
                        "1B0 3REDUCE_GRAD 1B1 1REDUCE_GRAD 3OPT 1OPT");
    weft_schedule_destroy(schedule);
}

/* Rank 1 ends stage 2 first, but rank 0, which has its copy, stage 3. */
static void test_reduce_of_two_directions_has_one_order(void **state)
{
    (void)state;
    const char text[] = "0F0,3F0,3B0,0B0\n2F0,1F0,1I0,2B0,1W0\n";
    for (int staggered = 0; staggered < 2; staggered++) {
        weft_schedule *schedule = NULL;
        ASSERT_OK(weft_schedule_read(text, strlen(text), 2, 0, &schedule));
        ASSERT_OK(weft_schedule_reduce(schedule, staggered == 1));
        assert_string_equal(list_text(schedule, 0),
                            "0F0 3F0 3B0 3REDUCE_GRAD 0B0 0REDUCE_GRAD");
        assert_string_equal(list_text(schedule, 1),
                            "2F0 1F0 1I0 2B0 1W0 1REDUCE_GRAD 2REDUCE_GRAD");
        weft_schedule_destroy(schedule);
    }
}

/* Behind 0B0 rank 0 would wait for 2B0, which needs what rank 0 does next. */
static void test_reduce_of_two_directions_never_waits_for_itself(void **state)
{
    (void)state;
    const char text[] = "0F0,3F0,0B0,3B0\n2F0,1F0,1B0,2B0\n";
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_read(text, strlen(text), 2, 0, &schedule));
    ASSERT_OK(weft_schedule_reduce(schedule, false));
    assert_string_equal(list_text(schedule, 0),
                        "0F0 3F0 0B0 3B0 0REDUCE_GRAD 3REDUCE_GRAD");
    assert_string_equal(list_text(schedule, 1),
                        "2F0 1F0 1B0 2B0 2REDUCE_GRAD 1REDUCE_GRAD");
    weft_schedule_destroy(schedule);
}

static void test_shard_fetches_ahead_and_drops_first(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("interleaved", 1, 1, 4);
    ASSERT_OK(weft_schedule_shard(schedule, 2));
    assert_string_equal(
        list_text(schedule, 0),
        "0UNSHARD 1UNSHARD 0F0 0RESHARD 2UNSHARD 1F0 1RESHARD 3UNSHARD 2F0 3F0 "
        "3B0 3RESHARD 1UNSHARD 2B0 2RESHARD 0UNSHARD 1B0 1RESHARD 0B0 "
        "0RESHARD");
    weft_schedule_destroy(schedule);
}

static void test_recompute_lowers_the_peak_and_costs_a_forward(void **state)
{
    (void)state;
    weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 1, .i = 1, .w = 1};
    weft_schedule_run plan;
    weft_schedule *schedule = make_schedule("1f1b", 4, 8, 0);
    ASSERT_OK(weft_schedule_recompute(schedule));
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &plan));
    assert_true(plan.activations == 1);
    assert_true(plan.ideal == 32);
    weft_schedule_run_fini(&plan);
    weft_schedule_destroy(schedule);
}

static void test_release_is_behind_the_send(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("1f1b", 2, 1, 0);
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    ASSERT_OK(weft_schedule_release(schedule));
    assert_string_equal(list_text(schedule, 0),
                        "0F0 0SEND_F0 0RECV_B0 0RELEASE0 0B0");
    assert_string_equal(list_text(schedule, 1),
                        "1RECV_F0 1F0 1RELEASE0 1B0 1SEND_B0");
    weft_schedule_destroy(schedule);
}

static void test_passes_where_they_do_not_apply_change_nothing(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("1f1b", 2, 1, 0);
    assert_int_equal(weft_schedule_lower(schedule, WEFT_LOWERING_DUALPIPE),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_shard(schedule, 1), WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_group(schedule, -1), WEFT_ERR_INVALID);
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    assert_int_equal(weft_schedule_merge(schedule), WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_reduce(schedule, false), WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_optimize(schedule), WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_recompute(schedule), WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_lower(schedule, WEFT_LOWERING_NAIVE),
                     WEFT_ERR_INVALID);
    assert_string_equal(list_text(schedule, 0), "0F0 0SEND_F0 0RECV_B0 0B0");
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generators_small_lists_are_the_recipes),
        cmocka_unit_test(test_generators_impossible_shapes_are_refused),
        cmocka_unit_test(test_interleaved_short_last_group_works_from_ranks_on),
        cmocka_unit_test(test_merge_joins_an_i_with_the_w_behind_it),
        cmocka_unit_test(test_reduce_is_behind_the_last_gradient_or_staggered),
        cmocka_unit_test(test_reduce_of_two_directions_has_one_order),
        cmocka_unit_test(test_reduce_of_two_directions_never_waits_for_itself),
        cmocka_unit_test(test_shard_fetches_ahead_and_drops_first),
        cmocka_unit_test(test_recompute_lowers_the_peak_and_costs_a_forward),
        cmocka_unit_test(test_release_is_behind_the_send),
        cmocka_unit_test(test_passes_where_they_do_not_apply_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

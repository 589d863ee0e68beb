/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the checker accepts what runs and refuses what does not, and says
 * where.
 *
 * Method: which placements of messages deadlock is known for every schedule;
 * all are tried under all ways messages can behave. Then schedules of random
 * shape, with random passes, all of which must be valid.
 */
#include "tests/overlap/schedules.h"

enum { FIRST_STUCK_IN_GAPS = INTERLEAVED, FIRST_NOT_FIFO_IN_GAPS = 5 };

static void assert_valid(const weft_schedule *schedule, const char *what,
                         weft_semantics semantics, int slots)
{
    weft_verdict verdict = check_schedule(schedule, semantics, slots);
    if (!verdict.valid || !verdict.deadlock_known || !verdict.deadlock_free) {
        fail_msg("%s, semantics %d: %s", what, (int)semantics,
                 verdict.findings[0].text);
    }
    weft_verdict_fini(&verdict);
}

static void assert_runs_everywhere(weft_schedule *schedule, const char *what)
{
    assert_valid(schedule, what, WEFT_SEMANTICS_RENDEZVOUS, 0);
    ASSERT_OK(weft_schedule_group(schedule, 0));
    assert_valid(schedule, what, WEFT_SEMANTICS_GROUPED, 0);
    assert_valid(schedule, what, WEFT_SEMANTICS_EAGER, 1);
    assert_valid(schedule, what, WEFT_SEMANTICS_EAGER, 3);
}

/* What a cycle must be: each waits for the rank of the next. */
static void assert_is_cycle(const weft_schedule *schedule,
                            const weft_verdict *verdict)
{
    assert_true(verdict->cycle_count >= 2);
    for (size_t k = 0; k < verdict->cycle_count; k++) {
        weft_place at = verdict->cycle[k];
        weft_place next = verdict->cycle[(k + 1) % verdict->cycle_count];
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(schedule, at.rank, &actions);
        assert_true(at.index < count);
        wefti_edge edge = wefti_edge_of_message(schedule, &actions[at.index]);
        assert_true(edge.remote);
        int other = edge.from_rank == at.rank ? edge.to_rank : edge.from_rank;
        assert_int_equal(other, next.rank);
    }
}

static void test_check_compute_lists_are_valid(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        for (int ranks = 2; ranks <= 16; ranks += 2) {
            weft_schedule *schedule =
                make_schedule(names[n], ranks, 2 * ranks, 0);
            assert_valid(schedule, names[n], WEFT_SEMANTICS_GROUPED, 0);
            weft_schedule_destroy(schedule);
        }
    }
}

static void test_lower_by_sender_runs_everywhere(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        for (int ranks = 2; ranks <= 16; ranks += 2) {
            weft_schedule *schedule = make_lowered(
                names[n], ranks, 2 * ranks + 6 * (n != INTERLEAVED),
                WEFT_LOWERING_SENDER);
            assert_runs_everywhere(schedule, names[n]);
            weft_schedule_destroy(schedule);
        }
    }
}

static int most_early(const char *name, int ranks, bool outer)
{
    weft_schedule *schedule =
        make_lowered(name, ranks, 4 * ranks, WEFT_LOWERING_SENDER);
    weft_verdict verdict =
        check_schedule(schedule, WEFT_SEMANTICS_RENDEZVOUS, 0);
    int most = 0;
    for (int r = outer ? 0 : 1; r < ranks; r++) {
        most = verdict.early[r] > most ? verdict.early[r] : most;
    }
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
    return most;
}

static void test_lower_by_sender_holds_few_early_messages(void **state)
{
    (void)state;
    for (int ranks = 4; ranks <= 8; ranks += 4) {
        assert_int_equal(most_early("gpipe", ranks, true), 1);
        assert_int_equal(most_early("1f1b", ranks, true), 2);
        assert_int_equal(most_early("zb_h1", ranks, true), 2);
        assert_int_equal(most_early("zb_h2", ranks, true), 3);
        assert_int_equal(most_early("zbv", ranks, true), 3);
        assert_int_equal(most_early("dualpipe", ranks, true), 4);
        assert_int_equal(most_early("dualpipev", ranks, true), 4);
        assert_in_range(most_early("interleaved", ranks, false), 3, 4);
        assert_int_equal(most_early("interleaved", ranks, true), ranks);
    }
}

static void assert_stuck(const weft_schedule *schedule, const char *name,
                         weft_semantics semantics)
{
    weft_verdict verdict = check_schedule(schedule, semantics, 0);
    if (verdict.deadlock_free || !has_rule(&verdict, WEFT_RULE_DEADLOCK)) {
        fail_msg("%s runs, and should not", name);
    }
    assert_is_cycle(schedule, &verdict);
    weft_verdict_fini(&verdict);
}

static void test_lower_naively_deadlocks_but_for_gpipe(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        for (int ranks = 4; ranks <= 8; ranks += 4) {
            weft_schedule *schedule =
                make_lowered(names[n], ranks, 4 * ranks, WEFT_LOWERING_NAIVE);
            if (n == 0) {
                assert_valid(schedule, names[n], WEFT_SEMANTICS_RENDEZVOUS, 0);
                assert_valid(schedule, names[n], WEFT_SEMANTICS_GROUPED, 0);
            } else {
                assert_stuck(schedule, names[n], WEFT_SEMANTICS_RENDEZVOUS);
                assert_stuck(schedule, names[n], WEFT_SEMANTICS_GROUPED);
            }
            weft_schedule_destroy(schedule);
        }
    }
}

static void test_lower_in_gaps_deadlocks_from_interleaved_on(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        weft_schedule *schedule =
            make_lowered(names[n], 8, 32, WEFT_LOWERING_GAP);
        weft_verdict verdict =
            check_schedule(schedule, WEFT_SEMANTICS_GROUPED, 0);
        if (verdict.deadlock_free != (n < FIRST_STUCK_IN_GAPS) ||
            has_rule(&verdict, WEFT_RULE_FIFO) !=
                (n >= FIRST_NOT_FIFO_IN_GAPS)) {
            fail_msg("%s: free %d, fifo broken %d", names[n],
                     verdict.deadlock_free, has_rule(&verdict, WEFT_RULE_FIFO));
        }
        weft_verdict_fini(&verdict);
        weft_schedule_destroy(schedule);
    }
}

static size_t largest_group(const weft_schedule *schedule, int ranks)
{
    size_t largest = 0;
    for (int r = 0; r < ranks; r++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(schedule, r, &actions);
        size_t size = 0;
        for (size_t k = 0; k < count; k++) {
            size = actions[k].joined ? size + 1 : 1;
            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

static void test_lower_as_dualpipes_authors_runs_in_groups(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks++) {
        for (int more = 0; more <= 8; more += 2) {
            for (int v = ranks % 2; v < 2; v++) {
                const char *name = v ? "dualpipev" : "dualpipe";
                weft_schedule *schedule = make_lowered(
                    name, ranks, 2 * ranks + more, WEFT_LOWERING_DUALPIPE);
                assert_valid(schedule, name, WEFT_SEMANTICS_GROUPED, 0);
                assert_true(largest_group(schedule, ranks) <= 4);
                weft_schedule_destroy(schedule);
            }
        }
    }
}

static void
test_lower_as_dualpipes_authors_carries_what_passes_put_in(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 60; round++) {
        int k = (int)below(&seed, 64);
        int ranks = 2 + (int)below(&seed, 7);
        int m = 2 * ranks + 2 * (int)below(&seed, 3);
        const char *name = ranks % 2 || k & 32 ? "dualpipev" : "dualpipe";
        weft_schedule *schedule = make_schedule(name, ranks, m, 0);
        if (k & 1) {
            ASSERT_OK(weft_schedule_merge(schedule));
        }
        if (k & 2) {
            ASSERT_OK(weft_schedule_recompute(schedule));
        }
        if (k & 4) {
            ASSERT_OK(weft_schedule_shard(schedule, 2));
        }
        ASSERT_OK(weft_schedule_reduce(schedule, (k & 8) != 0));
        if (k & 16) {
            ASSERT_OK(weft_schedule_optimize(schedule));
        }
        ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_DUALPIPE));
        assert_valid(schedule, name, WEFT_SEMANTICS_GROUPED, 0);
        weft_schedule_destroy(schedule);
    }
}

/* The order in which all can run, run. */
static void test_check_order_is_one_in_which_all_can_run(void **state)
{
    (void)state;
    weft_schedule *schedule = make_lowered("zbv", 4, 9, WEFT_LOWERING_SENDER);
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = WEFT_SEMANTICS_EAGER,
                                .eager_slots = 2,
                                .keep_order = true};
    weft_verdict verdict;
    ASSERT_OK(weft_schedule_check(schedule, &config, &verdict));
    size_t next[4] = {0}, sent[4][4] = {{0}}, received[4][4] = {{0}};
    for (size_t k = 0; k < verdict.order_count; k++) {
        int rank = verdict.order[k];
        const weft_action *actions;
        assert_true(next[rank] <
                    weft_schedule_get_actions(schedule, rank, &actions));
        wefti_edge edge =
            wefti_edge_of_message(schedule, &actions[next[rank]++]);
        if (edge.exists) {
            bool send = edge.from_rank == rank;
            (send ? sent : received)[edge.from_rank][edge.to_rank]++;
            assert_true(received[edge.from_rank][edge.to_rank] <=
                        sent[edge.from_rank][edge.to_rank]);
        }
    }
    for (int r = 0; r < 4; r++) {
        const weft_action *actions;
        assert_int_equal(next[r],
                         weft_schedule_get_actions(schedule, r, &actions));
    }
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
}

static void test_check_limits_are_held_against_peaks(void **state)
{
    (void)state;
    weft_schedule *schedule = make_lowered("1f1b", 4, 8, WEFT_LOWERING_SENDER);
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = WEFT_SEMANTICS_RENDEZVOUS,
                                .activations_most = 4,
                                .early_most = 2};
    weft_verdict verdict;
    ASSERT_OK(weft_schedule_check(schedule, &config, &verdict));
    assert_true(verdict.valid);
    weft_verdict_fini(&verdict);
    config.activations_most = 3.5;
    config.early_most = 1;
    ASSERT_OK(weft_schedule_check(schedule, &config, &verdict));
    assert_false(verdict.valid);
    assert_true(has_rule(&verdict, WEFT_RULE_PEAK));
    assert_true(verdict.finding_count >= 2);
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
}

/* ---- collectives ----------------------------------------------------------
 */

static void test_check_skipped_collective_is_named(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("dualpipe", 4, 8, 0);
    ASSERT_OK(weft_schedule_reduce(schedule, false));
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    assert_valid(schedule, "reduced", WEFT_SEMANTICS_RENDEZVOUS, 0);
    size_t at =
        find_action(&schedule->lists[1], WEFT_ACTION_REDUCE_GRAD, 1, -1);
    drop_action(&schedule->lists[1], at);
    weft_verdict verdict =
        check_schedule(schedule, WEFT_SEMANTICS_RENDEZVOUS, 0);
    assert_false(verdict.valid);
    assert_true(has_rule(&verdict, WEFT_RULE_COLLECTIVE));
    assert_false(verdict.deadlock_free);
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
}

static void check_text(const char *text, bool valid, weft_rule rule)
{
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_read(text, strlen(text), 1, 0, &schedule));
    weft_verdict verdict =
        check_schedule(schedule, WEFT_SEMANTICS_RENDEZVOUS, 0);
    assert_int_equal(verdict.valid, valid);
    assert_true(valid || has_rule(&verdict, rule));
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
}

static void test_check_barriers_match_or_are_named(void **state)
{
    (void)state;
    check_text("0F0,0BARRIER,0B0,1BARRIER\n"
               "1F0,1B0,0BARRIER,1BARRIER\n",
               true, WEFT_RULE_DEADLOCK);
    check_text("0F0,0B0,1BARRIER,0BARRIER\n"
               "1F0,1B0,0BARRIER,1BARRIER\n",
               false, WEFT_RULE_COLLECTIVE);
    check_text("0F0,0B0,0BARRIER\n"
               "1F0,0BARRIER,1B0\n",
               false, WEFT_RULE_DEADLOCK);
}

/* ---- activations that come and go -----------------------------------------
 */

/* A rank by itself; says wants NULL: valid. */
static void check_alone(const char *text, weft_rule rule, const char *says)
{
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_read(text, strlen(text), 1, 0, &schedule));
    weft_verdict verdict = check_schedule(schedule, WEFT_SEMANTICS_GROUPED, 0);
    const weft_finding *first = &verdict.findings[0];
    if (says
            ? verdict.valid || first->rule != rule || !strstr(first->text, says)
            : !verdict.valid) {
        fail_msg("%s: %s", text, verdict.valid ? "valid" : first->text);
    }
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
}

static void test_check_activations_are_there_where_they_are_used(void **state)
{
    (void)state;
    check_alone("0F0,0OFFLOAD0,0RELOAD0,0B0\n", 0, NULL);
    check_alone("0F0,0OFFLOAD0,0RELOAD0,0I0,0OFFLOAD0,0RELOAD0,0W0\n", 0, NULL);
    check_alone("0F0,0RECOMPUTE0,0I0,0W0\n", 0, NULL);
    check_alone("0F0,0RECOMPUTE0,0OFFLOAD0,0RELOAD0,0B0\n", 0, NULL);
    check_alone("0F0,0OFFLOAD0,0B0\n", WEFT_RULE_ORDER, "no RELOAD since");
    check_alone("0F0,0I0,0OFFLOAD0,0W0\n", WEFT_RULE_ORDER, "no RELOAD since");
    check_alone("0F0,0RELOAD0,0OFFLOAD0,0B0\n", WEFT_RULE_ORDER,
                "0RELOAD0: nothing has been offloaded");
    check_alone("0F0,0OFFLOAD0,0OFFLOAD0,0RELOAD0,0B0\n", WEFT_RULE_ORDER,
                "no RELOAD since");
    check_alone("0F0,0B0,0OFFLOAD0\n", WEFT_RULE_ORDER, "comes after");
    check_alone("0OFFLOAD0,0F0,0RELOAD0,0B0\n", WEFT_RULE_ORDER,
                "0OFFLOAD0: needs 0F0");
    check_alone("0F0,0B0,0RECOMPUTE0\n", WEFT_RULE_ORDER, "no RECOMPUTE");
    check_alone("0F0,0I0,0RECOMPUTE0,0W0\n", WEFT_RULE_ORDER, "no RECOMPUTE");
    check_alone("0F0,0OFFLOAD0,0RECOMPUTE0,0B0\n", WEFT_RULE_ORDER,
                "no RECOMPUTE");
    check_alone("0F0,0RECOMPUTE0,0RECOMPUTE0,0B0\n", WEFT_RULE_COMPLETE,
                "stands in the list twice");
    check_alone("0F0,0RELEASE0,0RELEASE0,0B0\n", WEFT_RULE_COMPLETE,
                "stands in the list twice");
    check_alone("0RELEASE0,0F0,0B0\n", WEFT_RULE_ORDER, "needs 0F0");
}

static void test_check_stages_step_once_and_all_of_them(void **state)
{
    (void)state;
    check_alone("0GATHER_PARAM,0F0,0B0,0REDUCE_GRAD,0OPT\n", 0, NULL);
    check_alone("0F0,0B0,0OPT,0OPT\n", WEFT_RULE_COMPLETE, "twice");
    check_alone("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", WEFT_RULE_COMPLETE,
                "twice");
    check_alone("0GATHER_PARAM,0GATHER_PARAM,0F0,0B0\n", WEFT_RULE_COMPLETE,
                "twice");
    check_alone("0F0,0GATHER_PARAM,0B0\n", WEFT_RULE_ORDER, "used already");
    check_alone("0F0,1F0,1B0,1REDUCE_GRAD,0B0\n", WEFT_RULE_COMPLETE,
                "rank 0, stage 0: no REDUCE_GRAD");
    check_alone("0F0,1F0,1B0,0B0,0OPT\n", WEFT_RULE_COMPLETE,
                "rank 0, stage 1: no OPT");
}

/* ---- everything, many times -----------------------------------------------
 */

static weft_schedule *make_anything(uint64_t *seed)
{
    int n = (int)below(seed, NAMES);
    weft_schedule_config config =
        make_config(names[n], 1 + (int)below(seed, 24), 0, 0);
    config.ranks += n == DUALPIPE ? config.ranks % 2 : 0;
    config.microbatches = 1 + (int)below(seed, 80);
    if (n == DUALPIPE || n == DUALPIPEV) {
        config.microbatches = 2 * config.ranks + 2 * (int)below(seed, 30);
    }
    if (n == INTERLEAVED) {
        config.chunks = 1 + (int)below(seed, 6);
        config.overlap = below(seed, 2) == 0;
        config.group = config.ranks + (int)below(seed, 8);
        config.microbatches =
            config.group * (1 + (int)below(seed, 4)) +
            (below(seed, 2) == 0 ? config.ranks + (int)below(seed, 4) : 0);
        int rest = config.microbatches % config.group;
        config.microbatches -= rest < config.ranks ? rest : 0;
    }
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_create(&config, &schedule));
    return schedule;
}

static void test_check_random_schedules_are_valid(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    int rounds = getenv("WEFT_TEST_LONG") ? 10000 : 100;
    for (int round = 0; round < rounds; round++) {
        weft_schedule *schedule = make_anything(&seed);
        weft_schedule_info info = {.size_bytes = sizeof(info)};
        assert_valid(schedule, "compute-only", WEFT_SEMANTICS_GROUPED, 0);
        if (below(&seed, 2) == 0) {
            ASSERT_OK(weft_schedule_recompute(schedule));
        }
        if (below(&seed, 2) == 0) {
            ASSERT_OK(weft_schedule_shard(schedule, 3));
        }
        if (below(&seed, 2) == 0) {
            ASSERT_OK(weft_schedule_reduce(schedule, below(&seed, 2) == 0));
            ASSERT_OK(weft_schedule_optimize(schedule));
        }
        ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
        if (below(&seed, 2) == 0) {
            ASSERT_OK(weft_schedule_release(schedule));
        }
        ASSERT_OK(weft_schedule_get_info(schedule, &info));
        char what[128];
        snprintf(what, sizeof(what), "%s P=%d m=%d V=%d", info.name, info.ranks,
                 info.microbatches, info.chunks);
        assert_runs_everywhere(schedule, what);
        weft_schedule_destroy(schedule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_compute_lists_are_valid),
        cmocka_unit_test(test_lower_by_sender_runs_everywhere),
        cmocka_unit_test(test_lower_by_sender_holds_few_early_messages),
        cmocka_unit_test(test_lower_naively_deadlocks_but_for_gpipe),
        cmocka_unit_test(test_lower_in_gaps_deadlocks_from_interleaved_on),
        cmocka_unit_test(test_lower_as_dualpipes_authors_runs_in_groups),
        cmocka_unit_test(
            test_lower_as_dualpipes_authors_carries_what_passes_put_in),
        cmocka_unit_test(test_check_order_is_one_in_which_all_can_run),
        cmocka_unit_test(test_check_limits_are_held_against_peaks),
        cmocka_unit_test(test_check_skipped_collective_is_named),
        cmocka_unit_test(test_check_barriers_match_or_are_named),
        cmocka_unit_test(test_check_activations_are_there_where_they_are_used),
        cmocka_unit_test(test_check_stages_step_once_and_all_of_them),
        cmocka_unit_test(test_check_random_schedules_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a schedule with messages says the same as a file: the verdict under
 * every semantics, the cycle, the groups and the time are those of the list
 * that was written; and a breach of a file names its cell.
 *
 * Method: all schedules in a grid of shapes, lowered in every way, written,
 * read, checked and simulated beside the original. Then texts with one mistake
 * of meaning each, and the cell it is in.
 */
#include "tests/overlap/schedules.h"

#include <stdlib.h>

/* ---- there and back -------------------------------------------------------
 */

static weft_schedule *read_back(const weft_schedule *schedule)
{
    char *text = NULL;
    size_t text_bytes = 0;
    weft_schedule *again = NULL;
    FILE *file = open_memstream(&text, &text_bytes);
    assert_non_null(file);
    ASSERT_OK(weft_schedule_write(schedule, 0, file));
    assert_int_equal(fclose(file), 0);
    ASSERT_OK(weft_schedule_read(text, text_bytes, 0, 0, &again));
    free(text);
    return again;
}

static void assert_same_lists(const weft_schedule *a, const weft_schedule *b)
{
    for (int r = 0; r < a->ranks; r++) {
        assert_int_equal(a->lists[r].count, b->lists[r].count);
        for (size_t k = 0; k < a->lists[r].count; k++) {
            const weft_action *one = &a->lists[r].items[k];
            const weft_action *two = &b->lists[r].items[k];
            char text[2][WEFT_ACTION_TEXT_BYTES];
            weft_action_pack(one, text[0]);
            weft_action_pack(two, text[1]);
            assert_string_equal(text[0], text[1]);
            assert_int_equal(one->joined, two->joined);
        }
    }
}

static double time_of(const weft_schedule *schedule)
{
    const weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 1, .i = 1.25, .w = 0.75, .p2p = 0.125};
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &run));
    double makespan = run.makespan;
    weft_schedule_run_fini(&run);
    return makespan;
}

/* Returns whether the original is free of deadlock. */
static bool assert_same_verdict(const weft_schedule *a, const weft_schedule *b,
                                weft_semantics semantics, int slots)
{
    weft_verdict one = check_schedule(a, semantics, slots);
    weft_verdict two = check_schedule(b, semantics, slots);
    bool valid = one.valid;
    assert_int_equal(one.valid, two.valid);
    assert_int_equal(one.deadlock_known, two.deadlock_known);
    assert_int_equal(one.deadlock_free, two.deadlock_free);
    assert_int_equal(one.finding_count, two.finding_count);
    assert_int_equal(one.cycle_count, two.cycle_count);
    for (size_t k = 0; k < one.cycle_count; k++) {
        assert_int_equal(one.cycle[k].rank, two.cycle[k].rank);
        assert_int_equal(one.cycle[k].index, two.cycle[k].index);
        assert_int_equal(one.cycle[k].row, 0);
        assert_int_equal(two.cycle[k].row, two.cycle[k].rank + 1);
        assert_int_equal(two.cycle[k].column, two.cycle[k].index + 1);
    }
    for (int r = 0; r < a->ranks && valid; r++) {
        assert_true(one.activations[r] == two.activations[r]);
        assert_int_equal(one.early[r], two.early[r]);
    }
    weft_verdict_fini(&one);
    weft_verdict_fini(&two);
    return valid;
}

typedef struct tally {
    int lists, valid[4]; /* by semantics */
} tally;

static void compare_with_file(const weft_schedule *schedule, tally *sum)
{
    static const struct {
        weft_semantics semantics;
        int slots;
    } ways[] = {{WEFT_SEMANTICS_GROUPED, 0},
                {WEFT_SEMANTICS_RENDEZVOUS, 0},
                {WEFT_SEMANTICS_EAGER, 1},
                {WEFT_SEMANTICS_EAGER, 3}};
    weft_schedule *again = read_back(schedule);
    assert_same_lists(schedule, again);
    for (int w = 0; w < 4; w++) {
        sum->valid[w] += assert_same_verdict(schedule, again, ways[w].semantics,
                                             ways[w].slots);
    }
    assert_true(time_of(schedule) == time_of(again));
    sum->lists++;
    weft_schedule_destroy(again);
}

/* One schedule, lowered in all ways that it can be. */
static void compare_lowerings(const weft_schedule_config *config, tally *sum)
{
    for (int how = WEFT_LOWERING_SENDER; how <= WEFT_LOWERING_DUALPIPE; how++) {
        for (int more = 0; more < 2; more++) {
            weft_schedule *schedule = NULL;
            ASSERT_OK(weft_schedule_create(config, &schedule));
            if (more) {
                ASSERT_OK(weft_schedule_reduce(schedule, true));
            }
            if (weft_schedule_lower(schedule, (weft_lowering)how) == WEFT_OK) {
                if (more) {
                    ASSERT_OK(weft_schedule_release(schedule));
                }
                compare_with_file(schedule, sum);
                ASSERT_OK(weft_schedule_group(schedule, more ? 2 : 0));
                compare_with_file(schedule, sum);
            } else {
                assert_int_equal(how, WEFT_LOWERING_DUALPIPE);
            }
            weft_schedule_destroy(schedule);
        }
    }
}

static void test_file_of_any_lowering_says_what_the_list_says(void **state)
{
    (void)state;
    tally sum = {0};
    for (int n = 0; n < NAMES; n++) {
        for (int ranks = 2; ranks <= 6; ranks++) {
            for (int m = ranks; m <= 3 * ranks; m += ranks) {
                weft_schedule_config config =
                    make_config(names[n], ranks, m, 0);
                weft_schedule *schedule = NULL;
                if (n == INTERLEAVED) {
                    config.chunks = 1 + m / ranks;
                    config.overlap = ranks % 2 == 0;
                }
                if (weft_schedule_create(&config, &schedule) == WEFT_OK) {
                    weft_schedule_destroy(schedule);
                    compare_lowerings(&config, &sum);
                }
            }
        }
    }
    print_message("%d lists; valid grouped %d, rendezvous %d, eager %d and "
                  "%d\n",
                  sum.lists, sum.valid[0], sum.valid[1], sum.valid[2],
                  sum.valid[3]);
    assert_true(sum.lists > 1000);
    /* each semantics passes some and refuses some */
    for (int w = 0; w < 4; w++) {
        assert_in_range(sum.valid[w], sum.lists / 4, sum.lists - 1);
    }
    assert_true(sum.valid[0] > sum.valid[1]);
}

/* ---- mistakes of meaning --------------------------------------------------
 */

typedef struct mistake {
    const char *text;
    weft_rule rule;
    const char *cell, *why;
} mistake;

static const mistake mistakes[] = {
    {"0F0,0B0,,0F1,0F0,0B1\n1F0,1B0,1F1,1B1\n", WEFT_RULE_COMPLETE,
     "row 1, column 5, rank 0, action 3, 0F0: ", "by 0F0 (row 1, column 1)"},
    {"0F0,0I0,0W0,,0W0\n1F0,1B0\n", WEFT_RULE_COMPLETE,
     "row 1, column 5, rank 0, action 3, 0W0: ", "by 0W0 (row 1, column 3)"},
    {"0F0,0B0,0I0,0W0\n1F0,1B0\n", WEFT_RULE_COMPLETE,
     "row 1, column 3, rank 0, action 2, 0I0: ", "by 0B0 (row 1, column 2)"},
    {"0F0,0B0\n,1B0\n", WEFT_RULE_COMPLETE,
     "row 2, column 2, rank 1, action 0, 1B0: ", "needs 1F0, which is nowhere"},
    {"0F0,0F1,0B0,0B1\n1F1,,1B1,1B0\n", WEFT_RULE_COMPLETE,
     "row 2, column 4, rank 1, action 2, 1B0: ", "needs 1F0, which is nowhere"},
    {"0F0,0F1,0B0,0B1\n1F0,,1F1,1B0\n", WEFT_RULE_COMPLETE,
     "row 2, column 3, rank 1, action 1, 1F1: ", "its backward is nowhere"},
    {"0F0,,0I0\n1F0,1B0\n", WEFT_RULE_COMPLETE,
     "row 1, column 3, rank 0, action 1, 0I0: ", "0W0, is nowhere"},
    {"0F0,,0W0\n1F0,1B0\n", WEFT_RULE_COMPLETE,
     "row 1, column 3, rank 0, action 1, 0W0: ", "needs 0I0, which is nowhere"},
    {"0F0,0F1,0B0,0B1\n1F0,1B0\n", WEFT_RULE_COMPLETE, "row 2, rank 1: stage 1",
     "nothing of 1 of the 2 micro-batches, the first is 1"},
    {"0F0,0W0,,0I0\n1F0,1B0\n", WEFT_RULE_ORDER,
     "row 1, column 2, rank 0, action 1, 0W0: ", "0I0 (row 1, column 4)"},
    {"0F0,0B0\n1B0,,1F0\n", WEFT_RULE_ORDER,
     "row 2, column 1, rank 1, action 0, 1B0: ", "1F0 (row 2, column 3)"},
    {"0F0,0SEND_F0,,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     WEFT_RULE_COMPLETE,
     "row 1, column 4, rank 0, action 2, 0SEND_F0: ", "twice"},
    {"0F0,,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", WEFT_RULE_COMPLETE,
     "row 1, column 1, rank 0, action 0, 0F0: ", "has no 0SEND_F0"},
    {"0F0,0SEND_F0,0RECV_B0,0B0,0SEND_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     WEFT_RULE_COMPLETE,
     "row 1, column 5, rank 0, action 4, 0SEND_B0: ", "no other rank"},
    {"0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0RECV_B1,0B0,0B1\n"
     "1RECV_F1,,1RECV_F0,1F0,1F1,1B0,1B1,1SEND_B0,1SEND_B1\n",
     WEFT_RULE_FIFO, "row 1, column 3, rank 0, action 2, 0SEND_F0: ",
     "1RECV_F1 (row 2, column 1)"},
    {",0RECV_B0,0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     WEFT_RULE_DEADLOCK, "row 1, column 2, rank 0, action 0, 0RECV_B0: ",
     "waits for rank 1 for ever: rank 1 at 1RECV_F0 (row 2, column 1)"},
    {"0F0,0B0,0F1,,0B1\n1F0,1F1,1B1,1B0\n", WEFT_RULE_DEADLOCK,
     "row 1, column 2, rank 0, action 1, 0B0: ",
     "rank 1 at 1F1 (row 2, column 2)"},
    {"0F0,0B0,0REDUCE_GRAD,,0REDUCE_GRAD\n", WEFT_RULE_COMPLETE,
     "row 1, column 5, rank 0, action 3, 0REDUCE_GRAD: ", "twice"},
};

static void test_breach_of_a_file_names_its_cell(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(mistakes) / sizeof(mistakes[0]); k++) {
        const mistake *m = &mistakes[k];
        weft_schedule *schedule = NULL;
        ASSERT_OK(
            weft_schedule_read(m->text, strlen(m->text), 0, 0, &schedule));
        weft_verdict verdict =
            check_schedule(schedule, WEFT_SEMANTICS_GROUPED, 0);
        const weft_finding *first = &verdict.findings[0];
        if (verdict.valid || first->rule != m->rule ||
            strstr(first->text, m->cell) != first->text ||
            !strstr(first->text, m->why)) {
            fail_msg("\"%s\": %s: %s", m->text, weft_rule_text(first->rule),
                     verdict.valid ? "valid" : first->text);
        }
        weft_verdict_fini(&verdict);
        weft_schedule_destroy(schedule);
    }
}

/* However many stages lack however much, the findings kept are few. */
static void test_breaches_of_a_large_file_are_counted(void **state)
{
    (void)state;
    char text[256];
    int bytes = snprintf(text, sizeof(text), "0F1048575\n1F0\n");
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_read(text, (size_t)bytes, 0, 0, &schedule));
    weft_verdict verdict = check_schedule(schedule, WEFT_SEMANTICS_GROUPED, 0);
    assert_false(verdict.valid);
    assert_non_null(strstr(verdict.findings[0].text, "0F1048575"));
    assert_non_null(
        strstr(verdict.findings[1].text, "nothing of 1048575 of the 1048576"));
    assert_int_equal(verdict.finding_count, 4);
    weft_verdict_fini(&verdict);
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_of_any_lowering_says_what_the_list_says),
        cmocka_unit_test(test_breach_of_a_file_names_its_cell),
        cmocka_unit_test(test_breaches_of_a_large_file_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

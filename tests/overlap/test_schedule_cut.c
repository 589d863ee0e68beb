/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     cuts are places at which all ranks can stop: no message and no
 *          reduction has one side before and one behind; they follow one
 *          another, are as many as asked for, and evenly spread.
 * Method   every schedule in several sizes, passed as the trainer passes them;
 *          what is before a cut is counted without the cutter's tables, and is
 *          run, list by list, until no rank gets any further. (That a step
 *          stopped at a cut goes on right is tested in tests/trainer.)
 */
#include "overlap/schedule/cut.h"
#include "tests/overlap/schedules.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MOST = 8, STAGES_MOST = 32, MICRO_MOST = 64, CUTS_MOST = 300 };

static weft_schedule *make_passed(const char *name, int ranks, int microbatches,
                                  bool groups)
{
    weft_schedule *schedule = make_schedule(name, ranks, microbatches, 0);
    ASSERT_OK(weft_schedule_merge(schedule));
    ASSERT_OK(weft_schedule_reduce(schedule, true));
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    ASSERT_OK(weft_schedule_release(schedule));
    if (groups) {
        ASSERT_OK(weft_schedule_group(schedule, 0));
    }
    return schedule;
}

/* Messages by the stage and micro-batch they come from, reductions by stage. */
typedef struct tally {
    int sent[2][STAGES_MOST][MICRO_MOST], received[2][STAGES_MOST][MICRO_MOST];
    int reduced[STAGES_MOST];
} tally;

static void count_action(tally *t, const weft_action *action)
{
    int s = action->stage, i = action->microbatch;
    switch (action->type) {
    case WEFT_ACTION_SEND_F:
        t->sent[0][s][i]++;
        break;
    case WEFT_ACTION_RECV_F:
        t->received[0][s - 1][i]++;
        break;
    case WEFT_ACTION_SEND_B:
        t->sent[1][s][i]++;
        break;
    case WEFT_ACTION_RECV_B:
        t->received[1][s + 1][i]++;
        break;
    case WEFT_ACTION_REDUCE_GRAD:
        t->reduced[s]++;
        break;
    default:
        break;
    }
}

/* The stage with the same layers in the other direction. */
static int other_direction(const weft_schedule *schedule, int stage)
{
    int length = schedule->stages / 2;
    return schedule->directions == 1 ? stage : (stage + length) % (2 * length);
}

static void check_closed(const weft_schedule *schedule, const size_t *ends)
{
    tally *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        assert_true(ends[rank] <= schedule->lists[rank].count);
        for (size_t k = 0; k < ends[rank]; k++) {
            count_action(t, &schedule->lists[rank].items[k]);
        }
    }
    assert_memory_equal(t->sent, t->received, sizeof(t->sent));
    for (int s = 0; s < schedule->stages; s++) {
        assert_int_equal(t->reduced[s],
                         t->reduced[other_direction(schedule, s)]);
    }
    free(t);
}

/* Each rank to its end, receives waiting for what has been sent. */
static void check_runs(const weft_schedule *schedule, const size_t *ends)
{
    tally *t = calloc(1, sizeof(*t));
    size_t at[RANKS_MOST] = {0};
    bool moved = true;
    assert_non_null(t);
    while (moved) {
        moved = false;
        for (int rank = 0; rank < schedule->ranks; rank++) {
            for (; at[rank] < ends[rank]; at[rank]++, moved = true) {
                const weft_action *a = &schedule->lists[rank].items[at[rank]];
                int way = a->type == WEFT_ACTION_RECV_B;
                if ((way && !t->sent[1][a->stage + 1][a->microbatch]) ||
                    (a->type == WEFT_ACTION_RECV_F &&
                     !t->sent[0][a->stage - 1][a->microbatch])) {
                    break;
                }
                count_action(t, a);
            }
        }
    }
    for (int rank = 0; rank < schedule->ranks; rank++) {
        assert_int_equal(at[rank], ends[rank]);
    }
    free(t);
}

static size_t sum(const size_t *ends, int ranks)
{
    size_t all = 0;
    for (int rank = 0; rank < ranks; rank++) {
        all += ends[rank];
    }
    return all;
}

static size_t actions_of(const weft_schedule *schedule)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    return info.actions;
}

/* Returns how many cuts there were. */
static size_t check_cuts(const weft_schedule *schedule, size_t count)
{
    static size_t ends[CUTS_MOST * RANKS_MOST];
    int ranks = schedule->ranks;
    size_t found = SIZE_MAX, before = 0, all = actions_of(schedule);
    memset(ends, 0xA5, sizeof(ends));
    ASSERT_OK(wefti_schedule_cut(schedule, count, ends, &found));
    assert_true(found <= count);
    for (size_t c = 0; c < found; c++) {
        const size_t *own = ends + c * (size_t)ranks;
        check_closed(schedule, own);
        check_runs(schedule, own);
        for (int rank = 0; c > 0 && rank < ranks; rank++) {
            assert_true(own[rank] >= (own - ranks)[rank]);
        }
        size_t place = sum(own, ranks);
        assert_true(place > before && place < all);
        before = place;
    }
    return found;
}

static void test_cut_has_both_sides_of_everything(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        for (int ranks = 2; ranks <= RANKS_MOST; ranks += 2) {
            for (int groups = 0; groups < 2; groups++) {
                weft_schedule *schedule =
                    make_passed(names[n], ranks, 2 * ranks, groups);
                assert_int_equal(check_cuts(schedule, 1), 1);
                assert_true(check_cuts(schedule, 7) >= 5);
                assert_true(check_cuts(schedule, CUTS_MOST) > 20);
                weft_schedule_destroy(schedule);
            }
        }
    }
}

/* Of long lists, where a cut's own extent is small. */
static void test_cut_is_near_its_place(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        static size_t ends[3 * 4];
        size_t found;
        weft_schedule *schedule = make_passed(names[n], 4, MICRO_MOST, true);
        size_t all = actions_of(schedule);
        ASSERT_OK(wefti_schedule_cut(schedule, 3, ends, &found));
        assert_int_equal(found, 3);
        for (size_t c = 0; c < 3; c++) {
            size_t place = sum(ends + 4 * c, 4), wanted = all * (c + 1) / 4;
            if (place < wanted || place > wanted + all / 12) {
                fail_msg("%s: cut %zu at %zu of %zu", names[n], c, place, all);
            }
        }
        weft_schedule_destroy(schedule);
    }
}

static void test_cut_of_what_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    size_t ends[4], found;
    weft_schedule *schedule = make_schedule("1f1b", 4, 8, 0);
    assert_int_equal(wefti_schedule_cut(schedule, 1, ends, &found),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "lower"));
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    drop_action(&schedule->lists[1], 0);
    assert_int_equal(wefti_schedule_cut(schedule, 1, ends, &found),
                     WEFT_ERR_INVALID);
    weft_schedule_destroy(schedule);
    schedule = make_lowered("1f1b", 4, 8, WEFT_LOWERING_SENDER);
    for (int rank = 0; rank < 4; rank++) {
        wefti_actions_add(&schedule->lists[rank],
                          wefti_action(WEFT_ACTION_BARRIER, 0, -1));
    }
    assert_int_equal(wefti_schedule_cut(schedule, 1, ends, &found),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "BARRIER"));
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_has_both_sides_of_everything),
        cmocka_unit_test(test_cut_is_near_its_place),
        cmocka_unit_test(test_cut_of_what_cannot_be_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

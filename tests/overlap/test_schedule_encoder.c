/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     stages of an encoder are told apart, and its chunks beside the
 *          decoder's leave less bubble than its layers in the first stage.
 * Method   marks, refused and shown by both painters; steps simulated with
 *          stages of two costs, against single figures that follow from them.
 */
#include "overlap/schedule/encoder.h"

#include "tests/overlap/schedules.h"

#include <math.h>

enum { RANKS = 4, STAGES_MOST = 16 };

static void test_mark_is_told_and_bounded(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("interleaved", 2, 4, 3);
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    assert_int_equal(info.encoder_stages, 0);
    ASSERT_OK(weft_schedule_mark_encoder(schedule, 4));
    assert_int_equal(weft_schedule_mark_encoder(schedule, 6), WEFT_ERR_INVALID);
    assert_non_null(
        strstr(weft_error_text(), "of 6 stages: allowed is 0 .. 5"));
    assert_int_equal(weft_schedule_mark_encoder(schedule, -1),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_schedule_mark_encoder(NULL, 0), WEFT_ERR_INVALID);
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    assert_int_equal(info.encoder_stages, 4);
    weft_schedule_destroy(schedule);
}

/* ---- pictures -------------------------------------------------------------
 */

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static char *draw(const weft_schedule *schedule, bool svg)
{
    const weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 1, .i = 1, .w = 1};
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *file = open_memstream(&text, &text_bytes);
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, true, &run));
    ASSERT_OK(
        svg ? weft_schedule_draw_svg(schedule, &run, NULL, NULL, NULL, file)
            : weft_schedule_draw_text(schedule, &run, 200, false, file));
    assert_int_equal(fclose(file), 0);
    weft_schedule_run_fini(&run);
    return text;
}

/* Of six stages on two ranks four are the encoder's: two tints of its own. */
static void test_both_painters_show_it_apart(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("interleaved", 2, 4, 3);
    for (int encoder = 0; encoder <= 4; encoder += 4) {
        ASSERT_OK(weft_schedule_mark_encoder(schedule, encoder));
        char *text = draw(schedule, false), *svg = draw(schedule, true);
        assert_int_equal(count_of(text, "eF"), encoder ? 8 : 0);
        assert_int_equal(count_of(text, "ef"), encoder ? 8 : 0);
        assert_int_equal(count_of(text, "eB"), encoder ? 8 : 0);
        assert_int_equal(count_of(svg, "#a44a94"), encoder ? 8 : 0); /* F */
        assert_int_equal(count_of(svg, "#7e54a8"), encoder ? 8 : 0); /* B */
        /* The decoder's are not paler then; one is the legend's. */
        assert_int_equal(count_of(svg, "#4a7dcd"), 8 + 1);
        assert_int_equal(count_of(svg, "of the encoder"), encoder ? 1 : 0);
        free(text);
        free(svg);
    }
    weft_schedule_destroy(schedule);
}

/* ---- what it takes --------------------------------------------------------
 */

/* Of a rank, all chunks of a branch together: F; I and W are as long. */
static void set_costs(weft_stage_cost *stages, int chunks, double encoder)
{
    for (int s = 0; s < RANKS * (1 + chunks); s++) {
        const double f = s < RANKS ? encoder : 1.0 / chunks;
        stages[s] = (weft_stage_cost){f, f, f, 2 * f};
    }
}

static weft_schedule_run simulate(const char *name, int microbatches,
                                  int chunks, int group,
                                  const weft_stage_cost *stages)
{
    weft_schedule_config config =
        make_config(name, RANKS, microbatches, chunks);
    const weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                                     .stages = stages};
    weft_schedule *schedule = NULL;
    weft_schedule_run run;
    config.group = group;
    ASSERT_OK(weft_schedule_create(&config, &schedule));
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, false, &run));
    weft_schedule_destroy(schedule);
    const weft_schedule_run kept = run; /* its numbers */
    weft_schedule_run_fini(&run);
    return kept;
}

/*
 * In the first stage its layers are m (P - 1) times as long as on each rank,
 * and the others wait for that. As chunks of their own they add no bubble to
 * what the decoder has, (P - 1) (F + B) / V.
 */
static void test_own_chunks_leave_the_decoder_s_bubble_alone(void **state)
{
    (void)state;
    const double encoder = 0.25;
    weft_stage_cost stages[STAGES_MOST];
    for (int m = 8; m <= 32; m *= 2) {
        set_costs(stages, 2, encoder);
        weft_schedule_run own =
            simulate("interleaved", m, 3, 2 * RANKS, stages);
        assert_true(fabs(own.bubble - 4.5) < 1e-9);
        assert_true(fabs(own.ideal - 3 * m * (1 + encoder)) < 1e-9);
        for (int s = 0; s < RANKS; s++) {
            const double f = 1 + (s == 0 ? RANKS * encoder : 0);
            stages[s] = (weft_stage_cost){f, f, f, 2 * f};
        }
        weft_schedule_run stacked = simulate("1f1b", m, 0, 0, stages);
        assert_true(stacked.bubble > 3 * m * RANKS * encoder);
        assert_true(stacked.makespan > 1.3 * own.makespan);
    }
}

static int choose(int microbatches, int chunks, double encoder)
{
    weft_stage_cost stages[STAGES_MOST];
    weft_schedule_config config =
        make_config("interleaved", RANKS, microbatches, 1 + chunks);
    const weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                                     .stages = stages};
    int group = 0;
    set_costs(stages, chunks, encoder);
    ASSERT_OK(wefti_encoder_group(&config, &cost, &group));
    return group;
}

/* Twice as many hold twice as much: only where it is worth that. */
static void test_groups_are_doubled_where_that_is_shorter(void **state)
{
    (void)state;
    assert_int_equal(choose(16, 1, 1), RANKS);
    assert_int_equal(choose(16, 2, 0.5), RANKS); /* chunks of one length */
    assert_int_equal(choose(16, 1, 0.25), 2 * RANKS);
    assert_int_equal(choose(16, 2, 0.25), 2 * RANKS);
    assert_int_equal(choose(16, 2, 1), 2 * RANKS);
    assert_int_equal(choose(12, 2, 0.25), 2 * RANKS); /* 8 and 4 */
    assert_int_equal(choose(4, 2, 0.25), RANKS);      /* too few */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mark_is_told_and_bounded),
        cmocka_unit_test(test_both_painters_show_it_apart),
        cmocka_unit_test(test_own_chunks_leave_the_decoder_s_bubble_alone),
        cmocka_unit_test(test_groups_are_doubled_where_that_is_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

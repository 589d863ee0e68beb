/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the five terms mean what they are defined to mean and add up to the
 * step; and the check of that sum can fail.
 * Method: hand-made steps with known terms; random timelines compared moment
 * by moment with the definition on bitmaps; then, on copies, spans shifted and
 * overlaps injected, which the sum check has to notice.
 */
#include "overlap/breakdown.h"

#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 512, MOMENTS = 100, ORIGIN = 1000, ROUNDS = 4000 };

/* 0 .. bound-1 */
static int64_t below(uint64_t *seed, int64_t bound)
{
    return (int64_t)(random_next(seed) % (uint64_t)bound);
}

typedef struct subject {
    wefti_timeline timeline;
    wefti_breakdown breakdown;
} subject;

static int set_up(void **state)
{
    static subject it;
    assert_int_equal(wefti_timeline_init(&it.timeline, ROOM), WEFT_OK);
    assert_int_equal(wefti_breakdown_init(&it.breakdown, ROOM), WEFT_OK);
    wefti_timeline_reset(&it.timeline,
                         (wefti_interval){ORIGIN, ORIGIN + MOMENTS});
    *state = &it;
    return 0;
}

static int tear_down(void **state)
{
    subject *it = *state;
    wefti_timeline_fini(&it->timeline);
    wefti_breakdown_fini(&it->breakdown);
    return 0;
}

static void add(wefti_timeline *timeline, wefti_interval_set *set, int64_t from,
                int64_t to)
{
    wefti_timeline_add(timeline, set, ORIGIN + from, ORIGIN + to);
}

static weft_step_report report_of(subject *it)
{
    weft_step_report report;
    memset(&report, 0x5a, sizeof(report));
    wefti_breakdown_make(&it->timeline, &it->breakdown);
    wefti_breakdown_report(&it->timeline, &it->breakdown, &report);
    return report;
}

/*
 *      0    10   20   30   40   50   60   70   80   90  100
 *  C   ##########     #####          .    .    .
 *  tp       ============                                  [10, 34)
 *  dp                 ==========                          [30, 50)
 *  Wpp                         ~~~~~~~~~~                 [46, 66)
 *  Wdp                                   ~~~~~~~~~~       [60, 80)
 */
static void test_breakdown_known_step_gives_known_terms(void **state)
{
    subject *it = *state;
    wefti_timeline *line = &it->timeline;
    add(line, &line->compute, -50, 20);
    add(line, &line->compute, 30, 40);
    add(line, &line->xfer[WEFT_CLASS_TP], 10, 34);
    add(line, &line->xfer[WEFT_CLASS_DP], 30, 50);
    add(line, &line->wait[WEFT_CLASS_PP], 46, 66);
    add(line, &line->wait[WEFT_CLASS_DP], 60, 80);
    weft_step_report report = report_of(it);
    assert_int_equal(report.step_ns, 100);
    assert_int_equal(report.compute_ns, 30);
    assert_int_equal(report.exposed_ns[WEFT_CLASS_TP], 10);
    assert_int_equal(report.exposed_ns[WEFT_CLASS_DP], 10);
    assert_int_equal(report.exposed_ns[WEFT_CLASS_CP], 0);
    assert_int_equal(report.bubble_ns, 16);
    assert_int_equal(report.skew_ns, 14);
    assert_int_equal(report.idle_ns, 20);
    assert_int_equal(report.xfer_ns[WEFT_CLASS_TP], 24);
    assert_int_equal(report.hidden_ns[WEFT_CLASS_TP], 14);
    assert_int_equal(report.hidden_ns[WEFT_CLASS_DP], 10);
    assert_int_equal(report.wait_ns[WEFT_CLASS_PP], 20);
    assert_int_equal(report.wait_ns[WEFT_CLASS_DP], 20);
    assert_int_equal(report.xfer_all_ns, 40);
    assert_int_equal(report.hidden_all_ns, 20);
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 0);
}

static void test_breakdown_empty_step_is_idle(void **state)
{
    subject *it = *state;
    weft_step_report report = report_of(it);
    assert_int_equal(report.idle_ns, MOMENTS);
    assert_int_equal(report.compute_ns + report.bubble_ns + report.skew_ns, 0);
    assert_int_equal(report.xfer_all_ns, 0);
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 0);
}

/* ---- any step, against the definition moment by moment ------------------ */

typedef struct bitmaps {
    bool compute[MOMENTS];
    bool xfer[WEFT_CLASS_COUNT][MOMENTS];
    bool wait[WEFT_CLASS_COUNT][MOMENTS];
} bitmaps;

static void add_any(wefti_timeline *line, wefti_interval_set *set, bool *bits,
                    uint64_t *chance)
{
    for (int64_t left = below(chance, 4); left > 0; left--) {
        int64_t from = below(chance, MOMENTS + 20) - 20;
        int64_t to = from + below(chance, 25);
        add(line, set, from, to);
        for (int64_t t = from < 0 ? 0 : from; t < to && t < MOMENTS; t++) {
            bits[t] = true;
        }
    }
}

static void add_any_step(subject *it, bitmaps *bits, uint64_t *chance)
{
    wefti_timeline *line = &it->timeline;
    memset(bits, 0, sizeof(*bits));
    wefti_timeline_reset(line, line->window);
    add_any(line, &line->compute, bits->compute, chance);
    for (int k = WEFT_CLASS_TP; k < WEFT_CLASS_COUNT; k++) {
        add_any(line, &line->xfer[k], bits->xfer[k], chance);
        add_any(line, &line->wait[k], bits->wait[k], chance);
    }
}

/* The first of the terms, in their order, that claims the moment. */
static void add_moment(const bitmaps *bits, int t, weft_step_report *expected)
{
    bool moving = false, waiting = false;
    int owner = 0;
    for (int k = WEFT_CLASS_COUNT - 1; k >= WEFT_CLASS_TP; k--) {
        owner = bits->xfer[k][t] ? k : owner;
        moving = moving || bits->xfer[k][t];
        waiting = waiting || bits->wait[k][t];
        expected->xfer_ns[k] += bits->xfer[k][t];
        expected->wait_ns[k] += bits->wait[k][t];
        expected->hidden_ns[k] += bits->xfer[k][t] && bits->compute[t];
    }
    expected->xfer_all_ns += moving;
    expected->hidden_all_ns += moving && bits->compute[t];
    if (bits->compute[t]) {
        expected->compute_ns++;
    } else if (moving) {
        expected->exposed_ns[owner]++;
    } else if (bits->wait[WEFT_CLASS_PP][t]) {
        expected->bubble_ns++;
    } else if (waiting) {
        expected->skew_ns++;
    } else {
        expected->idle_ns++;
    }
}

static void test_breakdown_any_step_matches_definition(void **state)
{
    subject *it = *state;
    uint64_t chance = random_seed();
    for (int round = 0; round < ROUNDS; round++) {
        bitmaps bits;
        add_any_step(it, &bits, &chance);
        weft_step_report expected = {.step_ns = MOMENTS};
        for (int t = 0; t < MOMENTS; t++) {
            add_moment(&bits, t, &expected);
        }
        weft_step_report report;
        memset(&report, 0, sizeof(report));
        wefti_breakdown_make(&it->timeline, &it->breakdown);
        wefti_breakdown_report(&it->timeline, &it->breakdown, &report);
        assert_memory_equal(&report, &expected, sizeof(report));
        assert_int_equal(wefti_breakdown_check(&it->breakdown), 0);
    }
}

/* ---- the check can fail -------------------------------------------------- */

/* Compute [0, 40) and [50, 90), dp [30, 60), pp wait [92, 96), rest idle. */
static void make_sound(subject *it)
{
    wefti_timeline *line = &it->timeline;
    add(line, &line->compute, 0, 40);
    add(line, &line->compute, 50, 90);
    add(line, &line->xfer[WEFT_CLASS_DP], 30, 60);
    add(line, &line->wait[WEFT_CLASS_PP], 92, 96);
    wefti_breakdown_make(line, &it->breakdown);
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 0);
}

static void test_check_shifted_span_fails(void **state)
{
    subject *it = *state;
    make_sound(it);
    wefti_interval *span = &it->breakdown.compute.items[1];
    span->begin_ns += 3;
    span->end_ns += 3;
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 3);
    span->begin_ns -= 3;
    span->end_ns -= 3;
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 0);
}

/* The same error one stage earlier: idle sees the recording unshifted. */
static void test_check_span_shifted_in_recording_fails(void **state)
{
    subject *it = *state;
    make_sound(it);
    wefti_interval idle[ROOM];
    size_t idle_count = it->breakdown.idle.count;
    memcpy(idle, it->breakdown.idle.items, idle_count * sizeof(idle[0]));

    wefti_interval *span = &it->timeline.compute.items[1];
    span->begin_ns -= 4;
    span->end_ns -= 4;
    wefti_breakdown_make(&it->timeline, &it->breakdown);
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 0);
    memcpy(it->breakdown.idle.items, idle, idle_count * sizeof(idle[0]));
    it->breakdown.idle.count = idle_count;
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 4);
}

static void test_check_injected_overlap_fails(void **state)
{
    subject *it = *state;
    make_sound(it);
    wefti_interval_set *exposed = &it->breakdown.exposed[WEFT_CLASS_TP];
    wefti_interval_add(exposed, ORIGIN + 10, ORIGIN + 17);
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 7);
}

static void test_check_missing_term_fails(void **state)
{
    subject *it = *state;
    make_sound(it);
    it->breakdown.bubble.count = 0;
    assert_int_equal(wefti_breakdown_check(&it->breakdown), 4);
}

#define SUBJECT_TEST(test)                                                     \
    cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SUBJECT_TEST(test_breakdown_known_step_gives_known_terms),
        SUBJECT_TEST(test_breakdown_empty_step_is_idle),
        SUBJECT_TEST(test_breakdown_any_step_matches_definition),
        SUBJECT_TEST(test_check_shifted_span_fails),
        SUBJECT_TEST(test_check_span_shifted_in_recording_fails),
        SUBJECT_TEST(test_check_injected_overlap_fails),
        SUBJECT_TEST(test_check_missing_term_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

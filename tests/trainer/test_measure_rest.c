/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the rest of a step follows from its notes and times: what stands still
 * in each step, by class and by name, also where what one step posts the next
 * one awaits; and steps that differ are refused by a reason.
 * Method: two ranks note down steps whose calls get times by hand, worked out
 * beside them. One rank comes late to each serial call, which must not count.
 */
#include "trainer/measure_rest.h"

#include "tests/comm/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2, STEPS = 4, MS = 1000000, MANY = 500 };
enum { NONE = -1, ALL = -2, MISSING = -3 };

typedef struct drawing {
    wefti_rest_log log;
    wefti_replica replica;
    int64_t now_ns, late_ns; /* late: in each call of serial steps */
    size_t chunks;           /* 0: steps of draw_step; else of draw_overtaken */
    bool serial;
} drawing;

/* The last call began so long after the one before, and took so long. */
static void set_times(drawing *own, int64_t stretch_ms, int64_t alone_ms)
{
    wefti_score *score = &own->log.score;
    wefti_score_call *call = &score->calls[score->call_count - 1];
    call->begin_ns = own->now_ns + stretch_ms * MS;
    call->end_ns =
        call->begin_ns + (own->serial ? alone_ms * MS + own->late_ns : 0);
    own->now_ns = call->end_ns;
}

static void note(drawing *own, wefti_score_kind kind, weft_class class_id,
                 const char *label)
{
    wefti_score_note_down(
        own->replica.score,
        &(wefti_score_note){.kind = kind,
                            .class_id = class_id,
                            .label = label,
                            .of = label,
                            .chunk = kind == WEFTI_SCORE_AWAIT ? WEFTI_SCORE_ALL
                                     : own->chunks > 0         ? own->chunks
                                                               : 1});
}

/*
 * a is 7 alone, b 4; b is posted at a step's end and awaited in the next one.
 * The link is free again when each is posted:
 *
 *   compute  1 | step | 2 | await b | 1 | post a | 5 | await a, post b
 *   wall    12          14  15        16           21  23
 *   link     [b, 11 to 15]               [a, 16 to 23]
 *
 * so that a stands still for 2 and b for 1, in a step of 9.
 */
static void draw_step(drawing *own, bool odd)
{
    wefti_score *score = own->replica.score;
    wefti_score_begin(score);
    note(own, WEFTI_SCORE_AWAIT, WEFT_CLASS_DP, "b");
    wefti_score_end(score);
    set_times(own, 2, 0);
    wefti_score_begin(score);
    wefti_score_begin(score); /* within another: no call of its own */
    note(own, WEFTI_SCORE_POST, WEFT_CLASS_TP, "a");
    note(own, WEFTI_SCORE_SERIAL, WEFT_CLASS_TP, "a");
    wefti_score_end(score);
    if (odd) {
        note(own, WEFTI_SCORE_AWAIT, WEFT_CLASS_TP, "a");
    }
    wefti_score_end(score);
    set_times(own, 1, 7);
    wefti_score_begin(score);
    note(own, WEFTI_SCORE_AWAIT, WEFT_CLASS_TP, "a");
    wefti_score_end(score);
    set_times(own, 5, 0);
    wefti_score_begin(score);
    note(own, WEFTI_SCORE_POST, WEFT_CLASS_DP, "b");
    note(own, WEFTI_SCORE_SERIAL, WEFT_CLASS_DP, "b");
    wefti_score_end(score);
    set_times(own, 0, 4);
    wefti_score_step(score);
    set_times(own, 1, 0);
}

/* A call with one note, or of a post with two. */
static void draw_call(drawing *own, int64_t stretch_ms, int64_t alone_ms,
                      wefti_score_kind kind, weft_class class_id,
                      const char *label)
{
    wefti_score_begin(own->replica.score);
    note(own, kind, class_id, label);
    if (kind == WEFTI_SCORE_POST) {
        note(own, WEFTI_SCORE_SERIAL, class_id, label);
    }
    wefti_score_end(own->replica.score);
    set_times(own, stretch_ms, alone_ms);
}

/*
 * b, 6 alone, is on the link when a, 2, comes and overtakes it:
 *
 *   compute  1 | post b | 1 | post a | 1 | await a | 4 | await b | step
 *   wall     1            2            3   4         8   9
 *   link     [b, 1 to 2] [a, 2 to 4] [b, 4 to 9]
 *
 * In a step of 7 each stands still for 1; without b one of them, without a none
 * does. In turn, a would come at 9 and the rest be 6.
 */
static void draw_overtaken(drawing *own)
{
    draw_call(own, 1, 6, WEFTI_SCORE_POST, WEFT_CLASS_DP, "b");
    draw_call(own, 1, 2, WEFTI_SCORE_POST, WEFT_CLASS_TP, "a");
    draw_call(own, 1, 0, WEFTI_SCORE_AWAIT, WEFT_CLASS_TP, "a");
    draw_call(own, 4, 0, WEFTI_SCORE_AWAIT, WEFT_CLASS_DP, "b");
    wefti_score_step(own->replica.score);
    set_times(own, 0, 0);
}

/* Both kinds, after a first step that does not count and is longer. */
static void draw_all(drawing *own, int odd_step)
{
    own->replica = (wefti_replica){0};
    own->now_ns = 0;
    wefti_rest_init(&own->log, &own->replica, STEPS);
    for (int kind = 0; kind < 2; kind++) {
        own->serial = kind == WEFTI_REST_SERIAL;
        wefti_rest_listen(&own->log, &own->replica);
        wefti_score_step(own->replica.score);
        set_times(own, 90, 0);
        const int count = odd_step == MISSING ? STEPS - 1 : STEPS;
        for (int i = 0; i < count; i++) {
            if (own->chunks > 0) {
                draw_overtaken(own);
            } else {
                draw_step(own, odd_step == ALL || i == odd_step);
            }
        }
        wefti_rest_take(&own->log, &own->replica, (wefti_rest_kind)kind, 1);
        assert_null(own->replica.score);
    }
}

/* What a world is to show: which rank's step is odd, and what comes of it. */
typedef struct scene {
    int odd_rank, odd_step; /* ALL: each; MISSING: it has one step less */
    const char *why[RANKS];
    size_t chunks; /* above 0: of each operation, of draw_overtaken */
} scene;

static int differs(const char *what, double is, double should_be)
{
    if (fabs(is - should_be) < 1e-9) {
        return 0;
    }
    fprintf(stderr, "%s: %g, not %g\n", what, is, should_be);
    return 1;
}

static int check_rest(const wefti_measure_rest *rest)
{
    int failed = differs("rest", rest->rest_ms, 3);
    failed += differs("least", rest->least_ms, 3);
    failed += differs("alone", rest->alone_ms, 11);
    failed += differs("tp", rest->class_ms[WEFT_CLASS_TP], 2);
    failed += differs("dp", rest->class_ms[WEFT_CLASS_DP], 1);
    failed += differs("cp", rest->class_ms[WEFT_CLASS_CP], 0);
    failed += differs("ops", (double)rest->ops[WEFT_CLASS_TP], 1);
    failed += differs("first", rest->nodes[0].ms, 2);
    failed += differs("second", rest->nodes[1].ms, 1);
    failed += !rest->nodes[0].label || strcmp(rest->nodes[0].label, "a") != 0;
    failed += !rest->nodes[1].label || strcmp(rest->nodes[1].label, "b") != 0;
    return failed + (rest->nodes[2].label != NULL);
}

/* Of too many chunks the least is not known. */
static int check_overtaken(const wefti_measure_rest *rest, size_t chunks)
{
    int failed = differs("rest", rest->rest_ms, 2);
    failed += differs("alone", rest->alone_ms, 8);
    failed += differs("tp", rest->class_ms[WEFT_CLASS_TP], 2);
    failed += differs("dp", rest->class_ms[WEFT_CLASS_DP], 1);
    failed += differs("first", rest->nodes[0].ms, 1);
    failed += differs("second", rest->nodes[1].ms, 1);
    return failed + (chunks < MANY ? differs("least", rest->least_ms, 2)
                                   : !isnan(rest->least_ms));
}

static int run_rank(weft_comm *comm, void *context)
{
    const scene *what = context;
    const int rank = weft_comm_get_rank(comm);
    wefti_measure_rest rest;
    drawing own = {.late_ns = rank == 0 ? 50 * MS : 0, .chunks = what->chunks};
    draw_all(&own, rank == what->odd_rank ? what->odd_step : NONE);
    weft_status status = wefti_rest_find(&own.log, comm, &rest);
    wefti_rest_fini(&own.log);
    if (status != WEFT_OK) {
        return 1;
    }
    const char *why = what->why[rank];
    if (!why && !rest.why) {
        return what->chunks > 0 ? check_overtaken(&rest, what->chunks)
                                : check_rest(&rest);
    }
    if (!why || !rest.why || !strstr(rest.why, why) || !isnan(rest.rest_ms)) {
        fprintf(stderr, "rank %d: %s, not %s\n", rank,
                rest.why ? rest.why : "a rest", why ? why : "a rest");
        return 1;
    }
    return 0;
}

static void run_scene(const scene *what)
{
    const struct world world = {
        .nranks = RANKS, .call = run_rank, .context = (void *)what};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_rest_is_what_stands_still_in_the_middle(void **state)
{
    (void)state;
    run_scene(&(scene){.odd_rank = NONE});
}

static void test_rest_lets_what_is_urgent_overtake(void **state)
{
    (void)state;
    run_scene(&(scene){.odd_rank = NONE, .chunks = 1});
    run_scene(&(scene){.odd_rank = NONE, .chunks = MANY});
}

static void test_rest_of_steps_that_differ_is_refused(void **state)
{
    (void)state;
    run_scene(&(scene){.odd_rank = 1,
                       .odd_step = 2,
                       .why = {"another rank has none", "steps post and"}});
    run_scene(&(scene){.odd_rank = 0,
                       .odd_step = ALL,
                       .why = {"ranks post and", "ranks post and"}});
    run_scene(&(scene){.odd_rank = 1,
                       .odd_step = MISSING,
                       .why = {"another rank has none", "steps are missing"}});
}

static void test_rest_of_a_device_has_a_reason(void **state)
{
    (void)state;
    wefti_replica replica = {.compute = (weft_stream *)state};
    wefti_rest_log log;
    wefti_rest_init(&log, &replica, STEPS);
    wefti_rest_listen(&log, &replica);
    assert_null(replica.score);
    assert_non_null(strstr(log.why, "stream"));
    wefti_rest_fini(&log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rest_is_what_stands_still_in_the_middle),
        cmocka_unit_test(test_rest_lets_what_is_urgent_overtake),
        cmocka_unit_test(test_rest_of_steps_that_differ_is_refused),
        cmocka_unit_test(test_rest_of_a_device_has_a_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

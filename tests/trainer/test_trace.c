/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a trace holds every event once, on tracks whose events lie in one
 * another or apart, in the order in which they begin; a file takes its place
 * only when it is whole.
 *
 * Method: random events of all kinds, many of them overlapping, written for
 * several ranks and read back as JSON.
 */
#include "tests/seed.h"
#include "tests/trainer/scratch.h"
#include "trainer/report/trace_event.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS = 3, EVENTS = 400, TRACKS = 4096, DEPTH = 64 };

static size_t below(uint64_t *seed, size_t bound)
{
    return (size_t)(random_next(seed) % bound);
}

static void make_events(uint64_t *seed, wefti_packed_event *events)
{
    for (int k = 0; k < EVENTS; k++) {
        int64_t begin_ns = 1000000 + (int64_t)below(seed, 100000);
        events[k] = (wefti_packed_event){
            .begin_ns = begin_ns,
            .end_ns = begin_ns + (int64_t)below(seed, 3000),
            .op_number = (uint64_t)k,
            .bytes = 8,
            .step = (uint32_t)below(seed, 5),
            .kind = (uint8_t)below(seed, 4),
            .class_id = (uint8_t)below(seed, WEFT_CLASS_COUNT),
            .collective = (uint8_t)below(seed, WEFT_COLLECTIVE_COUNT)};
        snprintf(events[k].label, sizeof(events[k].label), "\"%d<", k);
    }
}

static double number(const cJSON *event, const char *name)
{
    const cJSON *value = cJSON_GetObjectItem(event, name);
    assert_true(cJSON_IsNumber(value));
    return value->valuedouble;
}

/* What is open on each track. */
typedef struct open_events {
    double ends[DEPTH], begun;
    int depth;
} open_events;

static void check_event(open_events *track, const cJSON *event)
{
    const double rounding_us = 1e-6;
    double begin = number(event, "ts"), end = begin + number(event, "dur");
    assert_true(begin >= 0 && end >= begin);
    assert_true(begin >= track->begun);
    track->begun = begin;
    while (track->depth > 0 &&
           track->ends[track->depth - 1] <= begin + rounding_us) {
        track->depth--;
    }
    if (track->depth > 0) {
        assert_true(end <= track->ends[track->depth - 1] + rounding_us);
    }
    assert_true(track->depth < DEPTH);
    track->ends[track->depth++] = end;
}

static cJSON *read_json(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    assert_true(bytes < sizeof(text) - 1);
    text[bytes] = '\0';
    (void)fclose(file);
    cJSON *all = cJSON_Parse(text);
    assert_non_null(all);
    return all;
}

static void test_trace_random_events_nest_on_their_tracks(void **state)
{
    static wefti_packed_event events[EVENTS];
    static open_events tracks[RANKS][TRACKS];
    uint64_t seed = random_seed();
    scratch own;
    wefti_trace_file out;
    const wefti_trace none = {0};
    const wefti_rank_facts facts = {.host = "a\"b"};
    int counts[RANKS] = {0};
    (void)state;
    scratch_open(&own);
    const char *path = scratch_path(&own, "a.trace.json");
    assert_int_equal(wefti_trace_file_open(&out, path), WEFT_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        make_events(&seed, events);
        wefti_trace_file_rank(&out, rank, &facts, events, EVENTS, 1000000);
    }
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_int_equal(wefti_trace_file_close(&out, &none, WEFT_OK), WEFT_OK);
    cJSON *all = read_json(path);
    const cJSON *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(all, "traceEvents"))
    {
        int rank = (int)number(event, "pid"), track = (int)number(event, "tid");
        assert_true(rank >= 0 && rank < RANKS && track >= 0 && track < TRACKS);
        if (cJSON_GetObjectItem(event, "ph")->valuestring[0] == 'X') {
            check_event(&tracks[rank][track], event);
            counts[rank]++;
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(counts[rank], EVENTS);
    }
    cJSON_Delete(all);
    scratch_close(&own);
}

static void test_trace_after_an_error_leaves_the_old_one(void **state)
{
    scratch own;
    wefti_trace_file out;
    const wefti_trace none = {0};
    char text[8] = "";
    (void)state;
    scratch_open(&own);
    scratch_text(&own, "a.trace.json", "old");
    const char *path = scratch_path(&own, "a.trace.json");
    assert_int_equal(wefti_trace_file_open(&out, path), WEFT_OK);
    assert_int_equal(wefti_trace_file_close(&out, &none, WEFT_ERR_PEER),
                     WEFT_ERR_PEER);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof(text), file), 3);
    (void)fclose(file);
    assert_memory_equal(text, "old", 3);
    assert_int_equal(access(scratch_path(&own, "a.trace.json.new"), F_OK), -1);
    scratch_close(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_random_events_nest_on_their_tracks),
        cmocka_unit_test(test_trace_after_an_error_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every public struct that a caller hands over follows one rule: callers
 * with a shorter and with a longer one are served, what only a newer one could
 * ask for is refused by name, and so is a size that no version has.
 *
 * Method: a row for each struct with a size_bytes; test_struct_rule.py sees to
 * it that none lacks one. A row's call gets the struct in a block as long as it
 * says, the rest poisoned: cut off behind each of its last fields, whole, and
 * with zeros and with a one behind it.
 */
#include "tests/house/struct_plain.h"
#include "weft/weft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 4096, POISON = 0xA5, MORE = 40 };

static weft_comm *comm; /* of one rank */
static weft_device *host;
static weft_ledger *ledger;
static weft_schedule *schedule;
static float data[2] = {1, 1};

/* Of what a caller fills in: a good one, and the call that takes it. */
typedef struct input {
    const char *name;   /* "weft_op" */
    const char *called; /* as texts call it */
    size_t bytes, least_bytes;
    void (*fill)(void *room);
    weft_status (*take)(const void *given);
} input;

static void fill_comm_config(void *room)
{
    *(weft_comm_config *)room =
        (weft_comm_config){.size_bytes = sizeof(weft_comm_config)};
}

static weft_status take_comm_config(const void *given)
{
    weft_comm *made;
    weft_status status = weft_comm_split(comm, 0, 0, given, &made);
    if (status == WEFT_OK) {
        weft_comm_destroy(made);
    }
    return status;
}

static void fill_op(void *room)
{
    *(weft_op *)room = (weft_op){.size_bytes = sizeof(weft_op),
                                 .collective = WEFT_COLLECTIVE_ALLREDUCE,
                                 .send = data,
                                 .recv = data,
                                 .count = 2,
                                 .dtype = WEFT_DTYPE_F32};
}

static weft_status take_op(const void *given)
{
    return weft_op_post(given, 0, comm, NULL);
}

static void fill_p2p(void *room)
{
    *(weft_p2p *)room = (weft_p2p){.size_bytes = sizeof(weft_p2p),
                                   .kind = WEFT_P2P_SEND,
                                   .buffer = data,
                                   .count = 1,
                                   .dtype = WEFT_DTYPE_F32};
}

/* To this rank itself, which takes it. */
static weft_status take_p2p(const void *given)
{
    float in;
    weft_status status = weft_p2p_post(given, 1, comm, NULL);
    return status == WEFT_OK ? weft_recv(&in, 1, WEFT_DTYPE_F32, 0, comm, NULL)
                             : status;
}

static void fill_stream_config(void *room)
{
    *(weft_stream_config *)room =
        (weft_stream_config){.size_bytes = sizeof(weft_stream_config)};
}

static weft_status take_stream_config(const void *given)
{
    weft_stream *stream;
    weft_status status = weft_stream_create_as(host, given, &stream);
    if (status == WEFT_OK) {
        weft_stream_destroy(stream);
    }
    return status;
}

static void fill_schedule_config(void *room)
{
    *(weft_schedule_config *)room =
        (weft_schedule_config){.size_bytes = sizeof(weft_schedule_config),
                               .name = "1f1b",
                               .ranks = 2,
                               .microbatches = 4};
}

static weft_status take_schedule_config(const void *given)
{
    weft_schedule *made;
    weft_status status = weft_schedule_create(given, &made);
    if (status == WEFT_OK) {
        weft_schedule_destroy(made);
    }
    return status;
}

static void fill_check_config(void *room)
{
    *(weft_check_config *)room =
        (weft_check_config){.size_bytes = sizeof(weft_check_config)};
}

static weft_status take_check_config(const void *given)
{
    weft_verdict verdict;
    weft_status status = weft_schedule_check(schedule, given, &verdict);
    if (status == WEFT_OK) {
        weft_verdict_fini(&verdict);
    }
    return status;
}

static void fill_cost(void *room)
{
    *(weft_schedule_cost *)room = (weft_schedule_cost){
        .size_bytes = sizeof(weft_schedule_cost), .f = 1, .i = 1, .w = 1};
}

static weft_status take_cost(const void *given)
{
    weft_schedule_run run;
    weft_status status = weft_schedule_simulate(schedule, given, false, &run);
    if (status == WEFT_OK) {
        weft_schedule_run_fini(&run);
    }
    return status;
}

/* The planner reads it by itself; to a list without W it has nothing to say,
 * which it says after the struct. */
static weft_status take_cost_to_plan(const void *given)
{
    weft_schedule_config config = {.size_bytes = sizeof(config),
                                   .name = "zb_h1",
                                   .ranks = 2,
                                   .microbatches = 4};
    weft_schedule *made;
    weft_status status = weft_schedule_create(&config, &made);
    assert_int_equal(status, WEFT_OK);
    status = weft_schedule_plan(made, given, 0);
    weft_schedule_destroy(made);
    return status;
}

static void fill_advice_config(void *room)
{
    static weft_schedule_cost cost;
    fill_cost(&cost);
    *(weft_advice_config *)room =
        (weft_advice_config){.size_bytes = sizeof(weft_advice_config),
                             .ranks = 2,
                             .microbatches = 4,
                             .layers = 4,
                             .cost = &cost};
}

static weft_status take_advice_config(const void *given)
{
    weft_advice advice;
    weft_status status = weft_schedule_advise(given, &advice);
    if (status == WEFT_OK) {
        weft_advice_fini(&advice);
    }
    return status;
}

static void fill_bucket_config(void *room)
{
    static const weft_bucket_extent extent = {0, 1};
    *(weft_bucket_config *)room =
        (weft_bucket_config){.size_bytes = sizeof(weft_bucket_config),
                             .comm = comm,
                             .device = host,
                             .collective = WEFT_COLLECTIVE_ALLGATHER,
                             .dtype = WEFT_DTYPE_F32,
                             .buffer = data,
                             .extents = &extent,
                             .count = 1};
}

static weft_status take_bucket_config(const void *given)
{
    weft_bucket_set *set;
    weft_status status = weft_bucket_create(given, &set);
    if (status == WEFT_OK) {
        weft_bucket_destroy(set);
    }
    return status;
}

static void fill_ring_config(void *room)
{
    *(weft_ring_config *)room =
        (weft_ring_config){.size_bytes = sizeof(weft_ring_config),
                           .comm = comm,
                           .device = host,
                           .count = 1,
                           .dtype = WEFT_DTYPE_F32};
}

static weft_status take_ring_config(const void *given)
{
    weft_ring *ring;
    weft_status status = weft_ring_create(given, &ring);
    if (status == WEFT_OK) {
        weft_ring_destroy(ring);
    }
    return status;
}

static void fill_moe_config(void *room)
{
    *(weft_moe_config *)room =
        (weft_moe_config){.size_bytes = sizeof(weft_moe_config),
                          .comm = comm,
                          .device = host,
                          .hidden = 1,
                          .experts = 1,
                          .slots = 1,
                          .tokens = 1,
                          .capacity = 1,
                          .dtype = WEFT_DTYPE_F32,
                          .dispatch_dtype = WEFT_DTYPE_F32,
                          .combine_dtype = WEFT_DTYPE_F32};
}

static weft_status take_moe_config(const void *given)
{
    weft_moe *moe;
    weft_status status = weft_moe_create(given, &moe);
    if (status == WEFT_OK) {
        weft_moe_destroy(moe);
    }
    return status;
}

/* Of one rank, lowered: made at first use. */
static weft_schedule *get_lowered(void)
{
    static weft_schedule *lowered;
    if (!lowered) {
        const weft_schedule_config config = {.size_bytes = sizeof(config),
                                             .name = "1f1b",
                                             .ranks = 1,
                                             .microbatches = 1};
        assert_int_equal(weft_schedule_create(&config, &lowered), WEFT_OK);
        assert_int_equal(weft_schedule_lower(lowered, WEFT_LOWERING_SENDER),
                         WEFT_OK);
    }
    return lowered;
}

static void fill_pipeline_config(void *room)
{
    *(weft_pipeline_config *)room =
        (weft_pipeline_config){.size_bytes = sizeof(weft_pipeline_config),
                               .schedule = get_lowered(),
                               .comm = comm,
                               .device = host,
                               .rows = 1,
                               .row_elems = 1,
                               .dtype = WEFT_DTYPE_F32};
}

static weft_status take_pipeline_config(const void *given)
{
    weft_pipeline_peaks peaks = {.size_bytes = sizeof(peaks)};
    return weft_pipeline_predict(given, 0, &peaks);
}

static weft_status run_nothing(void *context, const weft_pipeline_work *work)
{
    (void)context;
    (void)work;
    return WEFT_OK;
}

static void fill_pipeline_calls(void *room)
{
    *(weft_pipeline_calls *)room =
        (weft_pipeline_calls){.size_bytes = sizeof(weft_pipeline_calls),
                              .forward = run_nothing,
                              .backward = run_nothing};
}

static weft_status take_pipeline_calls(const void *given)
{
    weft_pipeline_config config;
    weft_pipeline *pipeline;
    fill_pipeline_config(&config);
    config.calls = given;
    weft_status status = weft_pipeline_create(&config, &pipeline);
    if (status == WEFT_OK) {
        weft_pipeline_destroy(pipeline);
    }
    return status;
}

static const input inputs[] = {
    {"weft_bucket_config", "config", sizeof(weft_bucket_config),
     offsetof(weft_bucket_config, backwards), fill_bucket_config,
     take_bucket_config},
    {"weft_ring_config", "config", sizeof(weft_ring_config),
     offsetof(weft_ring_config, class_id), fill_ring_config, take_ring_config},
    {"weft_moe_config", "config", sizeof(weft_moe_config),
     offsetof(weft_moe_config, hops), fill_moe_config, take_moe_config},
    {"weft_moe_route_config", "config", sizeof(weft_moe_route_config),
     offsetof(weft_moe_route_config, groups), fill_route_config,
     take_route_config},
    {"weft_moe_place_config", "config", sizeof(weft_moe_place_config),
     offsetof(weft_moe_place_config, groups), fill_place_config,
     take_place_config},
    {"weft_pipeline_config", "config", sizeof(weft_pipeline_config),
     offsetof(weft_pipeline_config, chunk_rows), fill_pipeline_config,
     take_pipeline_config},
    {"weft_pipeline_calls", "calls", sizeof(weft_pipeline_calls),
     offsetof(weft_pipeline_calls, recompute), fill_pipeline_calls,
     take_pipeline_calls},
    {"weft_comm_config", "config", sizeof(weft_comm_config),
     offsetof(weft_comm_config, name), fill_comm_config, take_comm_config},
    {"weft_op", "op", sizeof(weft_op), offsetof(weft_op, ready), fill_op,
     take_op},
    {"weft_p2p", "weft_p2p", sizeof(weft_p2p), offsetof(weft_p2p, ready),
     fill_p2p, take_p2p},
    {"weft_stream_config", "config", sizeof(weft_stream_config),
     offsetof(weft_stream_config, sm_budget), fill_stream_config,
     take_stream_config},
    {"weft_schedule_config", "config", sizeof(weft_schedule_config),
     offsetof(weft_schedule_config, chunks), fill_schedule_config,
     take_schedule_config},
    {"weft_check_config", "config", sizeof(weft_check_config),
     offsetof(weft_check_config, eager_slots), fill_check_config,
     take_check_config},
    {"weft_schedule_cost", "cost", sizeof(weft_schedule_cost),
     offsetof(weft_schedule_cost, stages), fill_cost, take_cost},
    {"weft_schedule_cost of a plan", "cost", sizeof(weft_schedule_cost),
     offsetof(weft_schedule_cost, stages), fill_cost, take_cost_to_plan},
    {"weft_advice_config", "config", sizeof(weft_advice_config),
     offsetof(weft_advice_config, first), fill_advice_config,
     take_advice_config},
};

/* Given with so many bytes, of which all behind the good ones are tail. */
static weft_status give(const input *row, size_t size_bytes, int tail)
{
    _Alignas(max_align_t) unsigned char room[ROOM];
    memset(room, 0, sizeof(room));
    row->fill(room);
    if (size_bytes > row->bytes && size_bytes <= ROOM) {
        memset(room + row->bytes, 0, size_bytes - row->bytes);
        room[size_bytes - 1] = (unsigned char)tail;
    }
    if (size_bytes < ROOM) {
        memset(room + size_bytes, POISON, ROOM - size_bytes);
    }
    memcpy(room, &size_bytes, sizeof(size_bytes));
    return row->take(room);
}

static void expect(const input *row, size_t size_bytes, int tail,
                   weft_status wanted, const char *text)
{
    const weft_status status = give(row, size_bytes, tail);
    char said[64];
    snprintf(said, sizeof(said), "%s%s", row->called, text ? text : "");
    if (status != wanted || (text && !strstr(weft_error_text(), said))) {
        fail_msg("%s with %zu of %zu bytes: %s (%s), wanted %s \"%s\"",
                 row->name, size_bytes, row->bytes, weft_status_text(status),
                 weft_error_text(), weft_status_text(wanted), said);
    }
}

static void test_struct_that_is_given_follows_the_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        const input *row = &inputs[i];
        expect(row, row->bytes, 0, WEFT_OK, NULL);
        /* Cut off between any two words that the first version did not have. */
        for (size_t bytes = (row->least_bytes + 7) / 8 * 8; bytes < row->bytes;
             bytes += 8) {
            expect(row, bytes, 0, WEFT_OK, NULL);
        }
        expect(row, row->bytes + MORE, 0, WEFT_OK, NULL);
        expect(row, row->bytes + MORE, 1, WEFT_ERR_INVALID,
               " asks for something that this weft does not know");
        const size_t wrong[] = {
            0, 3, sizeof(void *), row->least_bytes - 1, ROOM + 1, SIZE_MAX};
        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            expect(row, wrong[k], 0, WEFT_ERR_INVALID, "->size_bytes ");
        }
    }
}

/* Of what weft fills in. */
typedef struct output {
    const char *name;
    size_t bytes, least_bytes;
    weft_status (*ask)(void *room);
} output;

static weft_status ask_fault(void *room)
{
    return weft_comm_get_fault(comm, room);
}

static weft_status ask_bytes(void *room)
{
    return weft_comm_get_bytes(comm, room);
}

static weft_status ask_pointer(void *room)
{
    return weft_device_query(host, data, room);
}

static weft_status ask_report(void *room)
{
    return weft_ledger_step(ledger, room);
}

static weft_status ask_info(void *room)
{
    return weft_schedule_get_info(schedule, room);
}

static weft_status ask_peaks(void *room)
{
    weft_pipeline_config config;
    fill_pipeline_config(&config);
    return weft_pipeline_predict(&config, 0, room);
}

static weft_status ask_batch(void *room)
{
    weft_moe_config config;
    weft_moe *moe;
    fill_moe_config(&config);
    assert_int_equal(weft_moe_create(&config, &moe), WEFT_OK);
    weft_status status =
        weft_moe_dispatch(moe, NULL, NULL, NULL, 0, NULL, room);
    weft_moe_destroy(moe);
    return status;
}

static const output outputs[] = {
    {"weft_moe_batch", sizeof(weft_moe_batch), offsetof(weft_moe_batch, tokens),
     ask_batch},
    {"weft_pipeline_peaks", sizeof(weft_pipeline_peaks),
     offsetof(weft_pipeline_peaks, buffers), ask_peaks},
    {"weft_fault", sizeof(weft_fault), offsetof(weft_fault, op_number),
     ask_fault},
    {"weft_comm_bytes", sizeof(weft_comm_bytes),
     offsetof(weft_comm_bytes, shared_bytes), ask_bytes},
    {"weft_pointer", sizeof(weft_pointer), offsetof(weft_pointer, base),
     ask_pointer},
    {"weft_step_report", sizeof(weft_step_report),
     offsetof(weft_step_report, exposed_ns), ask_report},
    {"weft_schedule_info", sizeof(weft_schedule_info),
     offsetof(weft_schedule_info, directions), ask_info},
};

static weft_status ask(const output *row, size_t size_bytes,
                       unsigned char *room)
{
    memset(room, POISON, ROOM);
    memcpy(room, &size_bytes, sizeof(size_bytes));
    return row->ask(room);
}

static void check_filled(const output *row, size_t size_bytes)
{
    _Alignas(max_align_t) unsigned char room[ROOM];
    size_t kept = 0;
    if (ask(row, size_bytes, room) != WEFT_OK) {
        fail_msg("%s with %zu of %zu bytes: %s", row->name, size_bytes,
                 row->bytes, weft_error_text());
    }
    memcpy(&kept, room, sizeof(kept));
    assert_int_equal(kept, size_bytes);
    for (size_t at = row->bytes; at < size_bytes; at++) {
        assert_int_equal(room[at], 0);
    }
    for (size_t at = size_bytes; at < ROOM; at++) {
        assert_int_equal(room[at], POISON);
    }
}

static void test_struct_that_is_filled_in_follows_the_rule(void **state)
{
    (void)state;
    _Alignas(max_align_t) unsigned char room[ROOM];
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        const output *row = &outputs[i];
        for (size_t bytes = (row->least_bytes + 7) / 8 * 8;
             bytes <= row->bytes + MORE; bytes += 8) {
            check_filled(row, bytes);
        }
        const size_t wrong[] = {
            0, 3, sizeof(void *), row->least_bytes - 1, ROOM + 1, SIZE_MAX};
        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            assert_int_equal(ask(row, wrong[k], room), WEFT_ERR_INVALID);
            assert_non_null(strstr(weft_error_text(), "->size_bytes "));
            assert_int_equal(room[sizeof(size_t)], POISON);
        }
    }
}

/* Its handle is its last field, so no version without it can be. */
static void test_struct_export_is_as_long_as_its_handle(void **state)
{
    (void)state;
    struct {
        weft_export whole;
        unsigned char more[MORE];
    } given = {.whole = {.size_bytes = sizeof(given), .bytes = 1}};
    void *pointer;
    given.more[MORE - 1] = 1;
    assert_int_equal(weft_device_import(host, &given.whole, &pointer),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "given asks for something"));
    given.whole.size_bytes = sizeof(given.whole) - 8;
    assert_int_equal(weft_device_import(host, &given.whole, &pointer),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "given->size_bytes"));
    assert_int_equal(weft_device_export(host, data, &given.whole),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "export_out->size_bytes"));
}

static int set_up(void **state)
{
    (void)state;
    weft_comm_config config = {.size_bytes = sizeof(config)};
    weft_schedule_config list = {.size_bytes = sizeof(list),
                                 .name = "1f1b",
                                 .ranks = 2,
                                 .microbatches = 4};
    return weft_comm_create(&config, &comm) ||
           weft_device_open("host", 0, &host) ||
           weft_ledger_create(16, &ledger) ||
           weft_schedule_create(&list, &schedule);
}

static int tear_down(void **state)
{
    (void)state;
    weft_schedule_destroy(schedule);
    weft_ledger_destroy(ledger);
    weft_device_close(host);
    weft_comm_destroy(comm);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_struct_that_is_given_follows_the_rule),
        cmocka_unit_test(test_struct_that_is_filled_in_follows_the_rule),
        cmocka_unit_test(test_struct_export_is_as_long_as_its_handle),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whatever threads, streams and communicators record comes out of
 * weft_ledger_step once, in the right step and term, and the terms add up.
 * Method: spans around work of this test; transfers with made-up times handed
 * in as a communicator would; several threads against a collector; a full
 * ledger; the cost of a span, measured and printed.
 */
#include "overlap/ledger.h"

#include "base/clock.h"
#include "weft/op.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SPANS = 1024 };

static int set_up(void **state)
{
    weft_ledger *ledger = NULL;
    assert_int_equal(weft_ledger_create(SPANS, &ledger), WEFT_OK);
    *state = ledger;
    return 0;
}

static int tear_down(void **state)
{
    weft_ledger_destroy(*state);
    return 0;
}

/* Ends the step; the sum check is made here for every test. */
static weft_step_report step(weft_ledger *ledger)
{
    weft_step_report report;
    memset(&report, 0x5a, sizeof(report));
    report.size_bytes = sizeof(report);
    assert_int_equal(weft_ledger_step(ledger, &report), WEFT_OK);
    int64_t sum_ns =
        report.compute_ns + report.bubble_ns + report.skew_ns + report.idle_ns;
    for (int k = 0; k < WEFT_CLASS_COUNT; k++) {
        sum_ns += report.exposed_ns[k];
        assert_true(report.hidden_ns[k] <= report.xfer_ns[k]);
    }
    assert_int_equal(sum_ns, report.step_ns);
    return report;
}

static void work_ns(int64_t length_ns)
{
    int64_t end_ns = wefti_clock_thread_ns() + length_ns;
    while (wefti_clock_thread_ns() < end_ns) {
    }
}

static void move(weft_ledger *ledger, weft_class class_id, int64_t posted_ns,
                 int64_t ready_ns, int64_t end_ns)
{
    wefti_ledger_moved(
        ledger, &(wefti_transfer){.collective = WEFT_COLLECTIVE_ALLREDUCE,
                                  .class_id = class_id,
                                  .label = "moved",
                                  .op_number = 7,
                                  .bytes = 4096,
                                  .posted_ns = posted_ns,
                                  .ready_ns = ready_ns,
                                  .end_ns = end_ns});
}

static void test_create_bad_arguments_are_refused(void **state)
{
    (void)state;
    weft_ledger *ledger = NULL;
    assert_int_equal(weft_ledger_create(0, &ledger), WEFT_ERR_INVALID);
    assert_int_equal(weft_ledger_create((size_t)1 << 40, &ledger),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_ledger_create(4, NULL), WEFT_ERR_INVALID);
    assert_null(ledger);
    weft_ledger_destroy(NULL);
}

static void test_step_bad_report_is_refused(void **state)
{
    weft_step_report report = {.size_bytes = 3};
    assert_int_equal(weft_ledger_step(*state, &report), WEFT_ERR_INVALID);
    assert_int_equal(weft_ledger_step(*state, NULL), WEFT_ERR_INVALID);
    report.size_bytes = sizeof(report);
    assert_int_equal(weft_ledger_step(NULL, &report), WEFT_ERR_INVALID);
}

static void test_span_without_ledger_is_nothing(void **state)
{
    (void)state;
    weft_span span = weft_span_open(NULL, WEFT_CLASS_COMPUTE, "x", NULL);
    assert_int_equal(span.id, 0);
    weft_span_close(NULL, span, NULL);
}

static void test_span_around_work_is_compute(void **state)
{
    weft_ledger *ledger = *state;
    int64_t before_ns = wefti_clock_ns();
    weft_span span = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "work", NULL);
    int64_t inside_ns = wefti_clock_ns();
    work_ns(2000000);
    inside_ns = wefti_clock_ns() - inside_ns;
    weft_span_close(ledger, span, NULL);
    int64_t around_ns = wefti_clock_ns() - before_ns;
    weft_step_report report = step(ledger);
    assert_in_range(report.compute_ns, inside_ns, around_ns);
    assert_int_equal(report.spans, 1);
    assert_int_equal(report.dropped, 0);
    assert_true(report.cpu_share > 0.0 && report.cpu_share < 1.05);
    assert_int_equal(step(ledger).compute_ns, 0);
}

static void test_span_asleep_has_low_cpu_share(void **state)
{
    weft_ledger *ledger = *state;
    weft_span outer = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "a", NULL);
    struct timespec nap = {.tv_nsec = 20000000};
    while (nanosleep(&nap, &nap) != 0) {
    }
    /* Busy, but nested: it must not count a second time. */
    weft_span inner = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "b", NULL);
    work_ns(100000);
    weft_span_close(ledger, inner, NULL);
    weft_span_close(ledger, outer, NULL);
    weft_step_report report = step(ledger);
    assert_true(report.cpu_share > 0.0 && report.cpu_share < 0.5);
    assert_int_equal(report.spans, 2);
}

static void test_span_over_step_end_is_split(void **state)
{
    weft_ledger *ledger = *state;
    weft_span span = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "long", NULL);
    work_ns(300000);
    weft_step_report first = step(ledger);
    weft_step_report middle = step(ledger);
    work_ns(300000);
    weft_span_close(ledger, span, NULL);
    weft_step_report last = step(ledger);
    assert_true(first.compute_ns >= 300000 && last.compute_ns >= 300000);
    assert_int_equal(middle.compute_ns, middle.step_ns);
    assert_int_equal(middle.idle_ns, 0);
    assert_int_equal(first.spans, 1);
    assert_int_equal(middle.spans + last.spans, 0);
    assert_int_equal(first.carried + middle.carried + last.carried, 0);
    assert_int_equal(step(ledger).compute_ns, 0);
}

static void test_transfer_known_times_give_known_terms(void **state)
{
    weft_ledger *ledger = *state;
    int64_t base_ns = wefti_clock_ns();
    work_ns(1000000);
    move(ledger, WEFT_CLASS_DP, base_ns, base_ns + 1000, base_ns + 6000);
    move(ledger, WEFT_CLASS_PP, base_ns + 10000, base_ns + 13000,
         base_ns + 13500);
    weft_step_report report = step(ledger);
    assert_int_equal(report.xfer_ns[WEFT_CLASS_DP], 5000);
    assert_int_equal(report.exposed_ns[WEFT_CLASS_DP], 5000);
    assert_int_equal(report.wait_ns[WEFT_CLASS_DP], 1000);
    assert_int_equal(report.skew_ns, 1000);
    assert_int_equal(report.bubble_ns, 3000);
    assert_int_equal(report.exposed_ns[WEFT_CLASS_PP], 500);
    assert_int_equal(report.xfer_all_ns, 5500);
    assert_int_equal(report.spans, 2);
}

static void test_transfer_over_step_end_is_carried(void **state)
{
    weft_ledger *ledger = *state;
    int64_t begin_ns = wefti_clock_ns();
    work_ns(1000000);
    weft_step_report first = step(ledger);
    int64_t end_ns = wefti_clock_ns();
    move(ledger, WEFT_CLASS_DP, begin_ns, begin_ns, end_ns);
    weft_step_report second = step(ledger);
    assert_int_equal(first.xfer_all_ns, 0);
    assert_int_equal(second.carried, 1);
    assert_true(second.carried_ns >= 1000000);
    assert_int_equal(second.carried_ns + second.xfer_ns[WEFT_CLASS_DP],
                     end_ns - begin_ns);
}

static void test_transfer_ending_later_counts_in_both_steps(void **state)
{
    weft_ledger *ledger = *state;
    int64_t now_ns = wefti_clock_ns(), end_ns = now_ns + 3000000;
    move(ledger, WEFT_CLASS_TP, now_ns, now_ns, end_ns);
    weft_step_report first = step(ledger);
    while (wefti_clock_ns() < end_ns) {
    }
    weft_step_report second = step(ledger);
    assert_int_equal(first.xfer_ns[WEFT_CLASS_TP] +
                         second.xfer_ns[WEFT_CLASS_TP],
                     end_ns - now_ns);
    assert_int_equal(first.spans + second.spans, 1);
    assert_int_equal(second.carried, 0);
    assert_int_equal(step(ledger).xfer_all_ns, 0);
}

static void test_span_of_class_mem_is_a_transfer(void **state)
{
    weft_ledger *ledger = *state;
    weft_span span = weft_span_open(ledger, WEFT_CLASS_MEM, "copy", NULL);
    work_ns(100000);
    weft_span_close(ledger, span, NULL);
    weft_step_report report = step(ledger);
    assert_true(report.exposed_ns[WEFT_CLASS_MEM] >= 100000);
    assert_int_equal(report.compute_ns, 0);
}

static void test_full_ledger_counts_what_it_drops(void **state)
{
    (void)state;
    enum { ROOM = 8, MORE = 5 };
    weft_ledger *ledger = NULL;
    assert_int_equal(weft_ledger_create(ROOM, &ledger), WEFT_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ROOM + MORE; i++) {
            weft_span span =
                weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", NULL);
            assert_true((span.id != 0) == (i < ROOM));
            weft_span_close(ledger, span, NULL);
        }
        weft_step_report report = step(ledger);
        assert_int_equal(report.spans, ROOM);
        assert_int_equal(report.dropped, MORE);
    }
    weft_ledger_destroy(ledger);
}

static void test_span_misused_is_counted_and_harmless(void **state)
{
    weft_ledger *ledger = *state;
    weft_span none =
        weft_span_open(ledger, (weft_class)9999, "no such class", NULL);
    assert_int_equal(none.id, 0);
    assert_non_null(strstr(weft_error_text(), "class_id 9999: allowed is 0"));
    weft_span_close(ledger, none, NULL); /* legal: it was never opened */
    assert_int_equal(step(ledger).dropped, 1);

    weft_span span = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", NULL);
    weft_span_close(ledger, (weft_span){span.id + SPANS}, NULL);
    weft_span_close(ledger, (weft_span){UINT64_MAX}, NULL);
    assert_non_null(strstr(weft_error_text(), "weft_span_close"));
    weft_span_close(ledger, span, NULL);
    weft_span_close(ledger, span, NULL);
    weft_step_report report = step(ledger);
    assert_int_equal(report.spans, 1);
    assert_int_equal(report.dropped, 3);
}

/* A late second close must not end the span that has the slot now. */
static void test_span_closed_again_leaves_its_successor_open(void **state)
{
    (void)state;
    weft_ledger *ledger = NULL;
    assert_int_equal(weft_ledger_create(1, &ledger), WEFT_OK);
    weft_span first = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "a", NULL);
    weft_span_close(ledger, first, NULL);
    step(ledger);
    weft_span second = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "b", NULL);
    weft_span_close(ledger, first, NULL);
    assert_int_equal(step(ledger).dropped, 1);
    assert_true(step(ledger).compute_ns > 0);
    weft_span_close(ledger, second, NULL);
    assert_int_equal(step(ledger).dropped, 0);
    weft_ledger_destroy(ledger);
}

static void test_span_short_uses_no_more_than_it_lasts(void **state)
{
    weft_ledger *ledger = *state;
    for (int i = 0; i < SPANS; i++) {
        weft_span span = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", NULL);
        weft_span_close(ledger, span, NULL);
    }
    weft_step_report report = step(ledger);
    assert_int_equal(report.spans, SPANS);
    assert_true(report.cpu_share > 0 && report.cpu_share <= 1);
}

/* ---- several recorders --------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 3000 };

typedef struct recorder {
    pthread_t thread;
    weft_ledger *ledger;
    _Atomic int *running;
    bool moves;
} recorder;

static void *record(void *arg)
{
    recorder *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t now_ns = wefti_clock_ns();
        if (self->moves) {
            move(self->ledger, WEFT_CLASS_DP, now_ns, now_ns + 10,
                 now_ns + 500);
        } else {
            weft_span span =
                weft_span_open(self->ledger, WEFT_CLASS_COMPUTE, "s", NULL);
            weft_span_close(self->ledger, span, NULL);
        }
    }
    atomic_fetch_sub(self->running, 1);
    return NULL;
}

static void test_recorders_beside_collector_lose_nothing(void **state)
{
    weft_ledger *ledger = *state;
    _Atomic int running = THREADS;
    recorder recorders[THREADS];
    for (int i = 0; i < THREADS; i++) {
        recorders[i] = (recorder){
            .ledger = ledger, .running = &running, .moves = i % 2 == 1};
        assert_int_equal(
            pthread_create(&recorders[i].thread, NULL, record, &recorders[i]),
            0);
    }
    uint64_t counted = 0;
    while (atomic_load(&running) > 0) {
        weft_step_report report = step(ledger);
        counted += report.spans + report.dropped;
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(recorders[i].thread, NULL), 0);
    }
    /* The first may leave some whose made-up end lies after its window. */
    for (int i = 0; i < 2; i++) {
        int64_t late_ns = wefti_clock_ns() + 1000;
        while (wefti_clock_ns() < late_ns) {
        }
        weft_step_report report = step(ledger);
        counted += report.spans + report.dropped;
    }
    assert_int_equal(counted, THREADS * ROUNDS);
}

/* ---- streams --------------------------------------------------------------
 */

static void spin(void *arg)
{
    work_ns(*(int64_t *)arg);
}

static void test_span_on_stream_lasts_as_long_as_its_work(void **state)
{
    weft_ledger *ledger = *state;
    weft_device *device = NULL;
    weft_stream *stream = NULL;
    assert_int_equal(weft_device_open("host", 0, &device), WEFT_OK);
    assert_int_equal(weft_stream_create(device, 0, &stream), WEFT_OK);
    int64_t length_ns = 2000000;
    assert_int_equal(weft_stream_call(stream, spin, &length_ns), WEFT_OK);
    weft_span span = weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", stream);
    assert_int_equal(weft_stream_call(stream, spin, &length_ns), WEFT_OK);
    weft_span_close(ledger, span, stream);
    int64_t begin_ns = wefti_clock_ns();
    weft_step_report first = step(ledger);
    assert_int_equal(weft_stream_wait(stream), WEFT_OK);
    weft_step_report second = step(ledger);
    assert_true(first.compute_ns + second.compute_ns >= length_ns);
    assert_true(first.compute_ns + second.compute_ns <=
                first.step_ns + wefti_clock_ns() - begin_ns);
    assert_int_equal(first.spans + second.spans, 1);
    /* Known in the step in which it closed. */
    double share = first.cpu_share > 0.0 ? first.cpu_share : second.cpu_share;
    assert_true(share > 0.0 && share < 1.05);
    weft_stream_destroy(stream);
    weft_device_close(device);
}

/* ---- communicators --------------------------------------------------------
 */

enum { RANKS = 2, CALLS = 6, ELEMS = 1 << 16 };

typedef struct member {
    pthread_t thread;
    const weft_unique_id *id;
    int rank;
    weft_status status;
    weft_step_report report;
    uint64_t op_numbers; /* bit n: op n was seen */
} member;

static void see_operation(void *context, const wefti_trace_event *event)
{
    member *self = context;
    if (event->kind == WEFTI_TRACE_TRANSFER && event->op_number < 64) {
        self->op_numbers |= (uint64_t)1 << event->op_number;
    }
}

static weft_status reduce_some(weft_comm *comm, int32_t *values)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < CALLS && status == WEFT_OK; i++) {
        status = weft_allreduce(values, values, i % 2 ? ELEMS : 1,
                                WEFT_DTYPE_I32, WEFT_REDOP_SUM, comm, NULL);
    }
    return status;
}

static void *run_member(void *arg)
{
    member *self = arg;
    static int32_t values[RANKS][ELEMS];
    weft_comm *comm = NULL;
    weft_ledger *ledger = NULL;
    weft_comm_config config = {.size_bytes = sizeof(config),
                               .id = self->id,
                               .rank = self->rank,
                               .nranks = RANKS,
                               .timeout_ms = 20000};
    self->report.size_bytes = sizeof(self->report);
    self->status = weft_ledger_create(SPANS, &ledger);
    if (self->status == WEFT_OK) {
        self->status = weft_comm_create(&config, &comm);
    }
    if (self->status == WEFT_OK) {
        self->status = weft_ledger_attach(ledger, comm);
    }
    if (self->status == WEFT_OK &&
        weft_ledger_attach(ledger, comm) != WEFT_ERR_INVALID) {
        self->status = WEFT_ERR_MISMATCH;
    }
    if (self->status == WEFT_OK) {
        self->status = reduce_some(comm, values[self->rank]);
    }
    if (self->status == WEFT_OK) {
        self->status = weft_ledger_step(ledger, &self->report);
        wefti_ledger_visit(ledger, see_operation, self);
        weft_ledger_detach(ledger, comm);
    }
    if (self->status == WEFT_OK) {
        self->status = reduce_some(comm, values[self->rank]);
    }
    weft_comm_destroy(comm);
    weft_ledger_destroy(ledger);
    return NULL;
}

static void test_attach_records_operations_until_detach(void **state)
{
    (void)state;
    weft_unique_id id;
    member members[RANKS];
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    for (int i = 0; i < RANKS; i++) {
        members[i] = (member){.id = &id, .rank = i};
        assert_int_equal(
            pthread_create(&members[i].thread, NULL, run_member, &members[i]),
            0);
    }
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
        assert_int_equal(members[i].status, WEFT_OK);
        assert_true(members[i].report.xfer_ns[WEFT_CLASS_DP] > 0);
        assert_int_equal(members[i].report.dropped, 0);
        /* CALLS in a row, each seen before its call returned. */
        uint64_t numbers = members[i].op_numbers;
        assert_int_equal(numbers / (numbers & -numbers), (1 << CALLS) - 1);
    }
}

static void test_attach_bad_arguments_are_refused(void **state)
{
    assert_int_equal(weft_ledger_attach(NULL, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_ledger_attach(*state, NULL), WEFT_ERR_INVALID);
    weft_ledger_detach(*state, NULL);
    weft_ledger_detach(NULL, NULL);
}

/* ---- the trace --------------------------------------------------------------
 */

typedef struct seen_events {
    int count[4];
    uint64_t last_step;
} seen_events;

static void see(void *context, const wefti_trace_event *event)
{
    seen_events *seen = context;
    seen->count[event->kind]++;
    assert_true(event->begin_ns <= event->end_ns);
    assert_true(event->step >= seen->last_step);
    seen->last_step = event->step;
    if (event->kind == WEFTI_TRACE_SPAN) {
        assert_string_equal(event->label, "named");
    } else if (event->kind != WEFTI_TRACE_STEP) {
        assert_string_equal(event->label, "moved");
        assert_int_equal(event->op_number, 7);
        assert_int_equal(event->bytes, 4096);
    }
}

static void test_visit_some_steps_gives_their_events(void **state)
{
    weft_ledger *ledger = *state;
    for (int i = 0; i < 3; i++) {
        int64_t now_ns = wefti_clock_ns();
        weft_span span =
            weft_span_open(ledger, WEFT_CLASS_COMPUTE, "named", NULL);
        weft_span_close(ledger, span, NULL);
        move(ledger, WEFT_CLASS_DP, now_ns, now_ns + 1, now_ns + 2);
        move(ledger, WEFT_CLASS_DP, now_ns, now_ns, now_ns + 2);
        step(ledger);
    }
    seen_events seen = {{0}, 0};
    wefti_ledger_visit(ledger, see, &seen);
    assert_int_equal(seen.count[WEFTI_TRACE_SPAN], 3);
    assert_int_equal(seen.count[WEFTI_TRACE_TRANSFER], 6);
    assert_int_equal(seen.count[WEFTI_TRACE_WAIT], 3);
    assert_int_equal(seen.count[WEFTI_TRACE_STEP], 3);
    assert_int_equal(seen.last_step, 2);
}

/* ---- the cost
 * ---------------------------------------------------------------- */

static void test_span_cost_is_small(void **state)
{
    weft_ledger *ledger = *state;
    int64_t span_ns = INT64_MAX, move_ns = INT64_MAX, step_ns = INT64_MAX;
    for (int round = 0; round < 20; round++) {
        int64_t t0 = wefti_clock_ns();
        for (int i = 0; i < SPANS / 2; i++) {
            weft_span span =
                weft_span_open(ledger, WEFT_CLASS_COMPUTE, "s", NULL);
            weft_span_close(ledger, span, NULL);
        }
        int64_t t1 = wefti_clock_ns();
        for (int i = 0; i < SPANS / 2; i++) {
            move(ledger, WEFT_CLASS_DP, t1, t1, t1);
        }
        int64_t t2 = wefti_clock_ns();
        step(ledger);
        int64_t t3 = wefti_clock_ns();
        span_ns = t1 - t0 < span_ns ? t1 - t0 : span_ns;
        move_ns = t2 - t1 < move_ns ? t2 - t1 : move_ns;
        step_ns = t3 - t2 < step_ns ? t3 - t2 : step_ns;
    }
    span_ns /= SPANS / 2;
    move_ns /= SPANS / 2;
    printf("a span costs %lld ns, a transfer %lld ns, closing a step of %d "
           "%lld ns; 1%% of a 10 ms step buys %lld spans\n",
           (long long)span_ns, (long long)move_ns, SPANS, (long long)step_ns,
           (long long)(100000 / (span_ns + step_ns / SPANS)));
    assert_true(span_ns < 20000);
}

#define LEDGER_TEST(test)                                                      \
    cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_bad_arguments_are_refused),
        LEDGER_TEST(test_step_bad_report_is_refused),
        cmocka_unit_test(test_span_without_ledger_is_nothing),
        LEDGER_TEST(test_span_around_work_is_compute),
        LEDGER_TEST(test_span_asleep_has_low_cpu_share),
        LEDGER_TEST(test_span_over_step_end_is_split),
        LEDGER_TEST(test_transfer_known_times_give_known_terms),
        LEDGER_TEST(test_transfer_over_step_end_is_carried),
        LEDGER_TEST(test_transfer_ending_later_counts_in_both_steps),
        LEDGER_TEST(test_span_of_class_mem_is_a_transfer),
        cmocka_unit_test(test_full_ledger_counts_what_it_drops),
        LEDGER_TEST(test_span_misused_is_counted_and_harmless),
        cmocka_unit_test(test_span_closed_again_leaves_its_successor_open),
        LEDGER_TEST(test_span_short_uses_no_more_than_it_lasts),
        LEDGER_TEST(test_recorders_beside_collector_lose_nothing),
        LEDGER_TEST(test_span_on_stream_lasts_as_long_as_its_work),
        cmocka_unit_test(test_attach_records_operations_until_detach),
        LEDGER_TEST(test_attach_bad_arguments_are_refused),
        LEDGER_TEST(test_visit_some_steps_gives_their_events),
        LEDGER_TEST(test_span_cost_is_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     what a pipeline says of a step is what it was: times in order, waits
 *          that add up, on one clock; and waits inside an action are no
 *          compute, neither in its record nor in the ledger. A step without its
 *          messages sends an element of each chunk, and any other all of them.
 * Method   threads as ranks; spans that are made up, on clocks that are off by
 *          minutes; a stage that is late with its second chunk by a known time,
 *          of which half is asked for.
 */
#include "tests/overlap/pipelines.h"
#include "tests/overlap/schedules.h"

#include "base/clock.h"
#include "comm/core/core.h"
#include "overlap/pipeline_gather.h"
#include "overlap/pipeline_mode.h"

#include <stdatomic.h>

/* ---- what a step was ------------------------------------------------------
 */

static int measure_rank(weft_comm *comm, void *context)
{
    job *it = context;
    toy model;
    weft_pipeline *pipeline = NULL;
    weft_pipeline_peaks planned = {.size_bytes = sizeof(planned)};
    weft_schedule_run run;
    int wrong = 0, rank = weft_comm_get_rank(comm);
    weft_pipeline_config config = job_config(it, comm, &model);
    if (weft_pipeline_predict(&config, rank, &planned) != WEFT_OK ||
        weft_pipeline_create(&config, &pipeline) != WEFT_OK) {
        return 1;
    }
    toy_init(&model, it->schedule, config.device, rank, &planned);
    toy_begin(&model, 1);
    wrong += weft_pipeline_run(pipeline, SIZE_MAX) != WEFT_OK ||
             weft_pipeline_measure(pipeline, NULL, 1e6, &run, NULL) != WEFT_OK;
    for (int r = 0; r < it->schedule->ranks && wrong == 0; r++) {
        const wefti_actions *list = &it->schedule->lists[r];
        double waits = 0, last = 0;
        for (int w = 0; w < WEFT_WAIT_COUNT; w++) {
            waits += run.ranks[r].wait[w];
        }
        wrong += waits < run.ranks[r].bubble - 1e-6 ||
                 waits > run.ranks[r].bubble + 1e-6;
        wrong += run.ranks[r].bubble < 0 || run.ranks[r].busy <= 0;
        for (size_t k = 0; k < list->count; k++) {
            const weft_schedule_span *span = &run.ranks[r].spans[k];
            if (wefti_action_is_compute(&list->items[k])) {
                wrong += span->begin < last || span->end < span->begin ||
                         span->end > run.makespan + 1e-9;
                last = span->end;
            }
        }
    }
    if (wrong == 0 && rank == 0) {
        FILE *nowhere = fopen("/dev/null", "w");
        wrong += weft_schedule_draw_svg(it->schedule, &run, &run, NULL, "ms",
                                        nowhere) != WEFT_OK;
        wrong += fclose(nowhere) != 0;
    }
    weft_schedule_run_fini(&run);
    weft_pipeline_destroy(pipeline);
    toy_fini(&model);
    return wrong;
}

static void test_pipeline_measured_step_can_be_drawn(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("dualpipev", 3, 8, 0);
    ASSERT_OK(weft_schedule_reduce(schedule, true));
    ASSERT_OK(weft_schedule_optimize(schedule));
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    ASSERT_OK(weft_schedule_release(schedule));
    job it = {
        .schedule = schedule, .calls = toy_calls, .chunk_rows = TOY_CHUNK_ROWS};
    assert_int_equal(job_run(&it, measure_rank, 60000), 0);
    weft_schedule_destroy(schedule);
}

/* A rank's clock, as if it were another host's. */
static _Thread_local int64_t ahead_ns;

static int64_t skewed_clock(void)
{
    return wefti_clock_ns() + ahead_ns;
}

/* The k-th action of rank r ran from k * 10 + r for a ms, on one clock. */
static int skewed_rank(weft_comm *comm, void *context)
{
    const weft_schedule *schedule = ((job *)context)->schedule;
    weft_pipeline_span spans[64];
    weft_schedule_run run;
    int64_t ms = 1000000, error_ns = -1;
    int own = weft_comm_get_rank(comm), wrong = 0;
    ahead_ns = own * 77777 * ms;
    for (int64_t k = 0; k < (int64_t)schedule->lists[own].count; k++) {
        int64_t begin_ns = (k * 10 + own) * ms + ahead_ns;
        spans[k] = (weft_pipeline_span){begin_ns, begin_ns,       begin_ns + ms,
                                        0,        WEFT_WAIT_NONE, -1};
    }
    if (wefti_pipeline_gather(schedule, comm, spans, 1, (double)ms,
                              skewed_clock, &run, &error_ns) != WEFT_OK) {
        return 1;
    }
    double most = (double)error_ns / (double)ms;
    for (int r = 0; r < schedule->ranks; r++) {
        for (size_t k = 0; k < schedule->lists[r].count; k++) {
            double off = run.ranks[r].spans[k].begin - (double)k * 10 - r;
            wrong += off > most || off < -most;
        }
    }
    weft_schedule_run_fini(&run);
    return wrong + (error_ns <= 0);
}

static void test_pipeline_clocks_of_other_hosts_are_aligned(void **state)
{
    (void)state;
    weft_schedule *schedule = make_lowered("gpipe", 3, 2, WEFT_LOWERING_SENDER);
    job it = {.schedule = schedule};
    assert_int_equal(job_run(&it, skewed_rank, 60000), 0);
    weft_schedule_destroy(schedule);
}

/* ---- steps without their messages -----------------------------------------
 */

enum { MICROBATCHES = 3 };

static weft_status take_rows(void *context, const weft_pipeline_work *work)
{
    (void)context;
    const weft_status status =
        work->input ? weft_rows_wait(work->input, TOY_ROWS) : WEFT_OK;
    if (work->output) {
        memset(work->output->data, 0, TOY_CELLS * sizeof(uint64_t));
        return status == WEFT_OK ? weft_rows_signal(work->output, TOY_ROWS)
                                 : status;
    }
    return status;
}

static int bare_rank(weft_comm *comm, void *context)
{
    static const weft_bucket_mode modes[] = {
        WEFT_BUCKET_OVERLAPPED, WEFT_BUCKET_OFF, WEFT_BUCKET_BLOCKING,
        WEFT_BUCKET_OFF, WEFT_BUCKET_OVERLAPPED};
    job *it = context;
    weft_pipeline *pipeline = NULL;
    const size_t chunks = (TOY_ROWS + TOY_CHUNK_ROWS - 1) / TOY_CHUNK_ROWS;
    weft_pipeline_config config = job_config(it, comm, NULL);
    int wrong = weft_pipeline_create(&config, &pipeline) != WEFT_OK;
    for (size_t i = 0; i < WEFTI_COUNT_OF(modes) && wrong == 0; i++) {
        const uint64_t before = comm->fabric.payload_bytes;
        wefti_pipeline_set_mode(pipeline, modes[i]);
        wrong += weft_pipeline_run(pipeline, SIZE_MAX) != WEFT_OK;
        const uint64_t sent = comm->fabric.payload_bytes - before;
        const size_t cells = modes[i] == WEFT_BUCKET_OFF ? chunks : TOY_CELLS;
        const uint64_t expected = MICROBATCHES * cells * sizeof(uint64_t);
        if (sent != expected) {
            fprintf(stderr, "rank %d, step %zu: %llu bytes, expected %llu\n",
                    weft_comm_get_rank(comm), i, (unsigned long long)sent,
                    (unsigned long long)expected);
            wrong++;
        }
    }
    weft_pipeline_destroy(pipeline);
    return wrong;
}

static void test_pipeline_off_sends_an_element_of_each_chunk(void **state)
{
    (void)state;
    weft_schedule *schedule =
        make_lowered("gpipe", 2, MICROBATCHES, WEFT_LOWERING_SENDER);
    job it = {.schedule = schedule,
              .calls = {.size_bytes = sizeof(weft_pipeline_calls),
                        .forward = take_rows,
                        .backward = take_rows},
              .chunk_rows = TOY_CHUNK_ROWS};
    assert_int_equal(job_run(&it, bare_rank, 60000), 0);
    weft_schedule_destroy(schedule);
}

/* ---- the ledger -----------------------------------------------------------
 */

enum { LATE_MS = 30 };

static atomic_bool is_waiting;

/*
 * Stage 0 is late with its second chunk, from when stage 1 is about to wait for
 * it in its F.
 */
static weft_status late_forward(void *context, const weft_pipeline_work *work)
{
    (void)context;
    weft_status status = weft_rows_wait(work->input, TOY_CHUNK_ROWS);
    if (work->input) {
        atomic_store(&is_waiting, true);
        return status == WEFT_OK ? weft_rows_wait(work->input, TOY_ROWS)
                                 : status;
    }
    memset(work->output->data, 0, TOY_CELLS * sizeof(uint64_t));
    status = weft_rows_signal(work->output, TOY_CHUNK_ROWS);
    struct timespec nap = {0, 1000000};
    for (int ms = 0; ms < 20000 && !atomic_load(&is_waiting); ms++) {
        nanosleep(&nap, NULL);
    }
    nap.tv_nsec = LATE_MS * 1000000;
    nanosleep(&nap, NULL);
    return status;
}

static weft_status no_backward(void *context, const weft_pipeline_work *work)
{
    (void)context;
    (void)work;
    return WEFT_OK;
}

static int ledger_rank(weft_comm *comm, void *context)
{
    job *it = context;
    weft_pipeline *pipeline = NULL;
    weft_pipeline_config config = job_config(it, comm, NULL);
    weft_step_report report = {.size_bytes = sizeof(report)};
    int wrong = weft_ledger_create(1000, &config.ledger) != WEFT_OK ||
                weft_ledger_attach(config.ledger, comm) != WEFT_OK ||
                weft_pipeline_create(&config, &pipeline) != WEFT_OK ||
                weft_ledger_step(config.ledger, &report) != WEFT_OK ||
                weft_pipeline_run(pipeline, SIZE_MAX) != WEFT_OK ||
                weft_ledger_step(config.ledger, &report) != WEFT_OK;
    const wefti_actions *list = &it->schedule->lists[weft_comm_get_rank(comm)];
    for (size_t k = 0; k < list->count && wrong == 0; k++) {
        const weft_pipeline_span *span = &weft_pipeline_get_spans(pipeline)[k];
        if (list->items[k].type == WEFT_ACTION_F &&
            weft_comm_get_rank(comm) == 1) {
            int64_t least_ns = LATE_MS * INT64_C(500000);
            wrong += span->waited_ns < least_ns || span->wait_rank != 0 ||
                     span->wait != WEFT_WAIT_FORWARD;
            wrong += report.bubble_ns < least_ns;
        }
    }
    wrong += report.dropped != 0 || report.compute_ns <= 0;
    if (wrong) {
        fprintf(stderr, "compute %lld, bubble %lld of %lld ns\n",
                (long long)report.compute_ns, (long long)report.bubble_ns,
                (long long)report.step_ns);
    }
    weft_pipeline_destroy(pipeline);
    weft_ledger_detach(config.ledger, comm);
    weft_ledger_destroy(config.ledger);
    return wrong;
}

static void test_pipeline_waits_inside_compute_are_bubble(void **state)
{
    (void)state;
    weft_schedule *schedule = make_lowered("gpipe", 2, 1, WEFT_LOWERING_SENDER);
    job it = {.schedule = schedule,
              .chunk_rows = TOY_CHUNK_ROWS,
              .calls = {.size_bytes = sizeof(weft_pipeline_calls),
                        .forward = late_forward,
                        .backward = no_backward}};
    assert_int_equal(job_run(&it, ledger_rank, 60000), 0);
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_measured_step_can_be_drawn),
        cmocka_unit_test(test_pipeline_clocks_of_other_hosts_are_aligned),
        cmocka_unit_test(test_pipeline_off_sends_an_element_of_each_chunk),
        cmocka_unit_test(test_pipeline_waits_inside_compute_are_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

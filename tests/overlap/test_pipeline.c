/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     every schedule that is valid is executed on real ranks as it says:
 *          each stage gets the right input in the right order, gradients flow
 *          back, nothing is read before it has come or sent before it is
 *          there; and what a rank holds at most is what was planned.
 * Method   threads as ranks with a model of whole numbers (toy.h), whose
 *          gradients are compared with those computed without a pipeline.
 *          Buffers are poisoned before and after use. Each job runs a few
 *          steps, so that every buffer is used again.
 */
#include "tests/overlap/pipelines.h"
#include "tests/overlap/schedules.h"

#include <stdatomic.h>

/* What is done with a schedule before it is executed. */
typedef struct recipe {
    const char *name;
    int ranks, microbatches, chunks;
    bool overlap, merge, recompute, stages, release, group;
    weft_lowering lowering;
} recipe;

static weft_schedule *cook(const recipe *r)
{
    weft_schedule_config config =
        make_config(r->name, r->ranks, r->microbatches, r->chunks);
    weft_schedule *schedule = NULL;
    config.overlap = r->overlap;
    ASSERT_OK(weft_schedule_create(&config, &schedule));
    if (r->merge) {
        ASSERT_OK(weft_schedule_merge(schedule));
    }
    if (r->recompute) {
        ASSERT_OK(weft_schedule_recompute(schedule));
    }
    if (r->stages) {
        ASSERT_OK(weft_schedule_reduce(schedule, true));
        ASSERT_OK(weft_schedule_optimize(schedule));
    }
    ASSERT_OK(weft_schedule_lower(schedule, r->lowering));
    if (r->release) {
        ASSERT_OK(weft_schedule_release(schedule));
    }
    if (r->group) {
        ASSERT_OK(weft_schedule_group(schedule, 0));
    }
    return schedule;
}

static job make_job(const weft_schedule *schedule)
{
    return (job){.schedule = schedule,
                 .calls = toy_calls,
                 .chunk_rows = TOY_CHUNK_ROWS,
                 .steps = 2};
}

/* Runs it, and holds the peaks to what the checker has found for the list. */
static void run_job(job *it, const char *what)
{
    weft_verdict verdict =
        check_schedule(it->schedule, WEFT_SEMANTICS_GROUPED, 0);
    if (job_run(it, job_rank, 60000) != 0) {
        fail_msg("%s", what);
    }
    for (int r = 0; r < it->schedule->ranks; r++) {
        double slots = verdict.activations[r] * it->schedule->chunks;
        assert_int_equal(it->peaks[r].slots, (int)(slots + 0.5));
        if (it->receive_ahead == 0) {
            assert_int_equal(it->peaks[r].received, verdict.early[r]);
        }
    }
    weft_verdict_fini(&verdict);
}

static void run_recipe(const recipe *r, const char *kind, bool streams,
                       const weft_pipeline_calls *calls)
{
    char what[128];
    weft_schedule *schedule = cook(r);
    job it = make_job(schedule);
    it.kind = kind;
    it.streams = streams;
    it.calls = *calls;
    snprintf(what, sizeof(what), "%s, P %d, m %d, V %d, lowering %d, %s%s",
             r->name, r->ranks, r->microbatches, r->chunks, (int)r->lowering,
             kind, streams ? ", on a stream" : "");
    run_job(&it, what);
    weft_schedule_destroy(schedule);
}

/* Few micro-batches that the schedule takes with so many ranks. */
static int fitting_microbatches(const char *name, int ranks)
{
    bool dual = strncmp(name, "dualpipe", 8) == 0;
    return dual ? 2 * ranks + 2 : ranks + (strcmp(name, "interleaved") != 0);
}

static bool is_possible(const char *name, int ranks)
{
    return strcmp(name, "dualpipe") != 0 || ranks % 2 == 0;
}

/* ---- every schedule -------------------------------------------------------
 */

static void test_pipeline_every_schedule_trains_right(void **state)
{
    (void)state;
    int most = getenv("WEFT_TEST_LONG") ? 8 : 4;
    for (int ranks = 1; ranks <= most; ranks += ranks < 4 ? 1 : 2) {
        for (int n = 0; n < NAMES; n++) {
            recipe r = {.name = names[n],
                        .ranks = ranks,
                        .microbatches = fitting_microbatches(names[n], ranks),
                        .release = ranks % 2 == 0,
                        .group = n % 2 == 0};
            if (is_possible(names[n], ranks)) {
                run_recipe(&r, "host", false, &toy_calls);
            }
        }
    }
}

static void test_pipeline_shadow_device_trains_right(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        recipe r = {.name = names[n],
                    .ranks = 2,
                    .microbatches = fitting_microbatches(names[n], 2),
                    .stages = true,
                    .release = true};
        run_recipe(&r, "shadow", false, &toy_calls_whole);
        run_recipe(&r, "shadow", true, &toy_calls_whole);
    }
}

static void test_pipeline_every_pass_trains_right(void **state)
{
    (void)state;
    const recipe recipes[] = {
        {"interleaved", 2, 8, 3, .overlap = true, .release = true},
        {"interleaved", 4, 8, 2, .stages = true, .group = true},
        {"zb_h1", 3, 5, 0, .merge = true, .stages = true, .release = true},
        {"zbv", 3, 6, 0, .recompute = true, .release = true},
        {"dualpipev", 2, 6, 0, .recompute = true, .stages = true},
        {"1f1b", 3, 5, 0, .recompute = true, .lowering = WEFT_LOWERING_GAP},
        {"gpipe", 3, 4, 0, .release = true, .lowering = WEFT_LOWERING_NAIVE},
        {"dualpipe", 4, 10, 0, .group = true,
         .lowering = WEFT_LOWERING_DUALPIPE},
        {"dualpipev", 4, 9, 0, .release = true,
         .lowering = WEFT_LOWERING_DUALPIPE},
    };
    for (size_t k = 0; k < sizeof(recipes) / sizeof(*recipes); k++) {
        run_recipe(&recipes[k], "host", false,
                   k % 2 == 0 ? &toy_calls : &toy_calls_whole);
    }
}

static void test_pipeline_receives_ahead_and_few_buffers(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        recipe r = {.name = names[n],
                    .ranks = 2,
                    .microbatches = fitting_microbatches(names[n], 2),
                    .release = true};
        weft_schedule *schedule = cook(&r);
        job it = make_job(schedule);
        it.receive_ahead = 1 + n % 3;
        it.spare_buffers = 1;
        it.chunk_rows = n % 2 == 0 ? 0 : 1;
        run_job(&it, names[n]);
        weft_schedule_destroy(schedule);
    }
}

/* Stages that send on from one row to all: a message has what its stage says,
 * and nobody waits for more. Of two directions both have the same. */
static void test_pipeline_stages_of_different_rows_train_right(void **state)
{
    (void)state;
    const char *const kinds[] = {"host", "shadow"};
    size_t rows[64];
    for (int n = 0; n < NAMES; n++) {
        recipe r = {.name = names[n],
                    .ranks = 2,
                    .microbatches = fitting_microbatches(names[n], 2),
                    .chunks = strcmp(names[n], "interleaved") == 0 ? 3 : 0,
                    .stages = true,
                    .release = n % 2 == 0};
        weft_schedule *schedule = cook(&r);
        const size_t length = (size_t)wefti_stages_of_direction(schedule);
        for (size_t s = 0; s < (size_t)schedule->stages; s++) {
            rows[s] = 1 + 5 * (s % length) % TOY_ROWS;
        }
        for (int k = 0; k < 4; k++) {
            job it = make_job(schedule);
            it.kind = kinds[k % 2];
            it.streams = k == 3;
            it.chunk_rows = k == 2 ? 1 : TOY_CHUNK_ROWS;
            it.rows = rows;
            run_job(&it, names[n]);
        }
        weft_schedule_destroy(schedule);
    }
}

/* A list of one's own: results are sent in another order than they are made. */
static void test_pipeline_sends_in_the_list_s_order(void **state)
{
    (void)state;
    static const char text[] =
        "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0RECV_B1,0B1,0B0\n"
        "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
    weft_schedule *schedule = NULL;
    ASSERT_OK(weft_schedule_read(text, strlen(text), 1, 0, &schedule));
    for (int ahead = 0; ahead < 2; ahead++) {
        job it = make_job(schedule);
        it.receive_ahead = ahead;
        run_job(&it, "a list of one's own");
    }
    weft_schedule_destroy(schedule);
}

/* ---- a cut in the middle --------------------------------------------------
 */

static void test_pipeline_stopped_at_any_prefix_goes_on(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int n = 0; n < NAMES; n++) {
        recipe r = {.name = names[n],
                    .ranks = 2,
                    .microbatches = fitting_microbatches(names[n], 2),
                    .release = true};
        weft_schedule *schedule = cook(&r);
        weft_check_config config = {.size_bytes = sizeof(config),
                                    .keep_order = true};
        weft_verdict verdict;
        ASSERT_OK(weft_schedule_check(schedule, &config, &verdict));
        job it = make_job(schedule);
        it.order = verdict.order;
        it.order_count = verdict.order_count;
        it.seed = random_next(&seed);
        it.steps = 5;
        it.receive_ahead = n % 2;
        run_job(&it, names[n]);
        it.anew = true;
        it.seed = random_next(&seed);
        run_job(&it, names[n]);
        weft_verdict_fini(&verdict);
        weft_schedule_destroy(schedule);
    }
}

/* ---- random ---------------------------------------------------------------
 */

static void test_pipeline_random_schedules_train_right(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    int jobs = getenv("WEFT_TEST_LONG") ? 50 : 5;
    for (int k = 0; k < jobs; k++) {
        recipe r = {.name = names[below(&seed, NAMES)],
                    .ranks = 1 + (int)below(&seed, jobs == 50 ? 8 : 4),
                    .merge = below(&seed, 4) == 0,
                    .recompute = below(&seed, 4) == 0,
                    .stages = below(&seed, 2) == 0,
                    .release = below(&seed, 2) == 0,
                    .group = below(&seed, 2) == 0,
                    .overlap = below(&seed, 2) == 0};
        r.ranks += !is_possible(r.name, r.ranks);
        r.microbatches = fitting_microbatches(r.name, r.ranks);
        if (strcmp(r.name, "interleaved") == 0) {
            r.chunks = 1 + (int)below(&seed, 4);
            r.microbatches *= 1 + (int)below(&seed, 3);
        } else {
            r.microbatches += 2 * (int)below(&seed, 6);
            r.overlap = false;
        }
        printf("%s, P %d, m %d, V %d\n", r.name, r.ranks, r.microbatches,
               r.chunks);
        run_recipe(&r, "host", false,
                   below(&seed, 2) ? &toy_calls : &toy_calls_whole);
    }
}

/* ---- chunks ---------------------------------------------------------------
 */

/* What the two ranks of the stream tests share. */
static atomic_bool first_came, late_is_missing;

static weft_status wait_flag(atomic_bool *flag)
{
    for (int ms = 0; ms < 20000; ms++) {
        if (atomic_load(flag)) {
            return WEFT_OK;
        }
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
    }
    return WEFT_ERR_TIMEOUT;
}

/* Stage 0 makes its second chunk only when stage 1 has its first. */
static weft_status stream_forward(void *context, const weft_pipeline_work *work)
{
    (void)context;
    uint64_t *out = work->output ? work->output->data : NULL;
    uint64_t *in = work->input ? work->input->data : NULL;
    weft_status status = WEFT_OK;
    if (out) {
        for (size_t c = 0; c < TOY_CELLS; c++) {
            out[c] = c < (size_t)TOY_CHUNK_ROWS * TOY_ELEMS ? 7 : 1;
        }
        status = weft_rows_signal(work->output, TOY_CHUNK_ROWS);
        if (status == WEFT_OK) {
            status = wait_flag(&first_came);
        }
        for (size_t c = (size_t)TOY_CHUNK_ROWS * TOY_ELEMS; c < TOY_CELLS;
             c++) {
            out[c] = 7;
        }
        return status;
    }
    status = weft_rows_wait(work->input, TOY_CHUNK_ROWS);
    if (status != WEFT_OK || !in || in[0] != 7) {
        return WEFT_ERR_INVALID;
    }
    atomic_store(&late_is_missing, in[TOY_CELLS - 1] != 7);
    atomic_store(&first_came, true);
    status = weft_rows_wait(work->input, TOY_ROWS);
    return status == WEFT_OK && in[TOY_CELLS - 1] != 7 ? WEFT_ERR_INVALID
                                                       : status;
}

static weft_status stream_backward(void *context,
                                   const weft_pipeline_work *work)
{
    (void)context;
    (void)work;
    return WEFT_OK;
}

static int stream_rank(weft_comm *comm, void *context)
{
    job *it = context;
    weft_pipeline *pipeline = NULL;
    weft_pipeline_config config = job_config(it, comm, NULL);
    weft_status status = weft_pipeline_create(&config, &pipeline);
    if (status == WEFT_OK) {
        status = weft_pipeline_run(pipeline, SIZE_MAX);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
    }
    weft_pipeline_destroy(pipeline);
    return status != WEFT_OK;
}

static void test_pipeline_next_stage_starts_with_first_chunk(void **state)
{
    (void)state;
    recipe r = {.name = "gpipe", .ranks = 2, .microbatches = 1};
    weft_schedule *schedule = cook(&r);
    job it = make_job(schedule);
    it.calls = (weft_pipeline_calls){.size_bytes = sizeof(weft_pipeline_calls),
                                     .forward = stream_forward,
                                     .backward = stream_backward};
    assert_int_equal(job_run(&it, stream_rank, 30000), 0);
    assert_true(atomic_load(
        &late_is_missing)); /* a reader that does not wait is wrong */
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_next_stage_starts_with_first_chunk),
        cmocka_unit_test(test_pipeline_every_schedule_trains_right),
        cmocka_unit_test(test_pipeline_shadow_device_trains_right),
        cmocka_unit_test(test_pipeline_every_pass_trains_right),
        cmocka_unit_test(test_pipeline_receives_ahead_and_few_buffers),
        cmocka_unit_test(test_pipeline_stages_of_different_rows_train_right),
        cmocka_unit_test(test_pipeline_sends_in_the_list_s_order),
        cmocka_unit_test(test_pipeline_stopped_at_any_prefix_goes_on),
        cmocka_unit_test(test_pipeline_random_schedules_train_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

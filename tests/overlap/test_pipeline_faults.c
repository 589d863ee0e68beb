/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     whatever goes wrong on one rank ends the step on all of them, with
 *          what it was, now and from then on; and what cannot be executed is
 *          refused by name before anything runs.
 * Method   a rank is killed (as a process), fails in a call, aborts, or posts
 *          messages of another length (as threads), in the middle of a step;
 *          every rank must return within the time of the test, far below that
 *          of the communicator.
 */
#include "tests/overlap/pipelines.h"
#include "tests/overlap/schedules.h"

#include <signal.h>
#include <sys/wait.h>

enum { RANKS = 3, CULPRIT = 1 };

typedef enum trouble { KILLED, FAILING, ABORTING, DIFFERING } trouble;

/* A rank with something that may go wrong; the model is first. */
typedef struct desk {
    toy model;
    trouble trouble;
    weft_comm *comm;
    int forwards;
} desk;

static trouble trouble_now; /* what the world's ranks have in common */

static weft_status forward(void *context, const weft_pipeline_work *work)
{
    desk *d = context;
    if (d->model.rank == CULPRIT && ++d->forwards == 2) {
        switch (d->trouble) {
        case KILLED:
            raise(SIGKILL);
            break;
        case FAILING:
            return WEFT_ERR_NO_MEMORY;
        case ABORTING:
            return weft_comm_abort(d->comm);
        case DIFFERING:
            break;
        }
    }
    return toy_calls.forward(context, work);
}

/* What a rank must get. */
static bool is_expected(trouble what, int rank, weft_status status,
                        const char *text)
{
    bool named = strstr(text, "rank 1") != NULL;
    switch (what) {
    case KILLED:
        return status == WEFT_ERR_PEER && named;
    case FAILING:
        return rank == CULPRIT ? status == WEFT_ERR_NO_MEMORY
                               : status == WEFT_ERR_ABORTED && named;
    case ABORTING:
        return status == WEFT_ERR_ABORTED && named;
    default:
        return status == WEFT_ERR_MISMATCH && named;
    }
}

static int troubled_rank(weft_comm *comm, void *context)
{
    job *it = context;
    desk d = {.trouble = trouble_now, .comm = comm};
    weft_pipeline *pipeline = NULL;
    weft_pipeline_peaks planned = {.size_bytes = sizeof(planned)};
    int rank = weft_comm_get_rank(comm), wrong = 0;
    weft_pipeline_config config = job_config(it, comm, &d.model);
    weft_pipeline_calls calls = it->calls;
    calls.forward = forward;
    config.calls = &calls;
    config.rows += trouble_now == DIFFERING && rank == CULPRIT;
    if (weft_pipeline_predict(&config, rank, &planned) != WEFT_OK ||
        weft_pipeline_create(&config, &pipeline) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    toy_init(&d.model, it->schedule, config.device, rank, &planned);
    toy_begin(&d.model, 1);
    for (int again = 0; again < 2; again++) { /* the second is as the first */
        weft_status status = weft_pipeline_run(pipeline, SIZE_MAX);
        if (!is_expected(trouble_now, rank, status, weft_error_text())) {
            fprintf(stderr, "rank %d: %s: %s\n", rank, weft_status_text(status),
                    weft_error_text());
            wrong++;
        }
    }
    weft_pipeline_destroy(pipeline);
    toy_fini(&d.model);
    return wrong;
}

static weft_schedule *make_some(void)
{
    weft_schedule *schedule = make_schedule("zb_h1", RANKS, 5, 0);
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    ASSERT_OK(weft_schedule_release(schedule));
    return schedule;
}

static job make_job(const weft_schedule *schedule)
{
    return (job){.schedule = schedule,
                 .calls = toy_calls,
                 .chunk_rows = TOY_CHUNK_ROWS,
                 .steps = 1};
}

static void test_pipeline_killed_rank_is_named_by_all(void **state)
{
    (void)state;
    weft_schedule *schedule = make_some();
    job it = make_job(schedule);
    trouble_now = KILLED;
    struct world world;
    job_world(&it, troubled_rank, 60000, &world);
    world_processes started;
    world_start_processes(&world, &started);
    assert_int_equal(world_finish_survivors(&started, 50), 0);
    for (int r = 0; r < RANKS; r++) {
        int status = started.exit_status[r];
        assert_true(r == CULPRIT
                        ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                        : status == 0);
    }
    weft_schedule_destroy(schedule);
}

static void run_trouble(trouble what)
{
    weft_schedule *schedule = make_some();
    job it = make_job(schedule);
    trouble_now = what;
    assert_int_equal(job_run(&it, troubled_rank, 60000), 0);
    weft_schedule_destroy(schedule);
}

static void test_pipeline_failing_call_ends_all_ranks(void **state)
{
    (void)state;
    run_trouble(FAILING);
}

static void test_pipeline_abort_ends_all_ranks(void **state)
{
    (void)state;
    run_trouble(ABORTING);
}

static void test_pipeline_other_sizes_end_all_ranks(void **state)
{
    (void)state;
    run_trouble(DIFFERING);
}

/* ---- refused --------------------------------------------------------------
 */

/* Creates it, which must fail with a text that has this in it. */
static int expect_refusal(const weft_pipeline_config *config, const char *text)
{
    weft_pipeline *pipeline = NULL;
    weft_status status = weft_pipeline_create(config, &pipeline);
    bool right = status == WEFT_ERR_INVALID && !pipeline &&
                 strstr(weft_error_text(), text);
    if (!right) {
        fprintf(stderr, "not refused with \"%s\": %s: %s\n", text,
                weft_status_text(status), weft_error_text());
        weft_pipeline_destroy(pipeline);
    }
    return !right;
}

/* Another schedule in the config for once. */
static int expect_refused_list(const weft_pipeline_config *config,
                               const weft_schedule *schedule, const char *text)
{
    weft_pipeline_config other = *config;
    other.schedule = schedule;
    return expect_refusal(&other, text);
}

static int refuse_lists(const weft_pipeline_config *config)
{
    weft_schedule *bare = make_schedule("1f1b", 2, 3, 0);
    weft_schedule *larger = make_lowered("1f1b", 3, 3, WEFT_LOWERING_SENDER);
    weft_schedule *stuck = make_lowered("1f1b", 2, 3, WEFT_LOWERING_NAIVE);
    weft_schedule *lacking = make_lowered("1f1b", 2, 3, WEFT_LOWERING_SENDER);
    weft_schedule *odd = make_schedule("gpipe", 2, 2, 0);
    for (int r = 0; r < 2; r++) {
        drop_action(
            &lacking->lists[r],
            r == 0 ? find_action(&lacking->lists[0], WEFT_ACTION_RECV_B, 0, 1)
                   : lacking->lists[1].count - 1);
        wefti_actions fresh = {0};
        for (size_t k = 0; k < odd->lists[r].count; k++) {
            wefti_actions_add(&fresh, odd->lists[r].items[k]);
            if (k == 0) { /* what no rank returns */
                wefti_actions_add(&fresh,
                                  wefti_action(WEFT_ACTION_OFFLOAD, r, 0));
            }
        }
        wefti_actions_replace(&odd->lists[r], &fresh);
    }
    ASSERT_OK(weft_schedule_lower(odd, WEFT_LOWERING_SENDER));
    int wrong = expect_refused_list(config, NULL, "schedule is NULL") +
                expect_refused_list(config, bare, "lower it first") +
                expect_refused_list(config, larger, "the schedule has 3") +
                expect_refused_list(config, stuck, "rule deadlock") +
                expect_refused_list(config, lacking, "rule complete") +
                expect_refused_list(config, odd, "are on the host");
    weft_schedule_destroy(bare);
    weft_schedule_destroy(larger);
    weft_schedule_destroy(stuck);
    weft_schedule_destroy(lacking);
    weft_schedule_destroy(odd);
    return wrong;
}

/* What is no state of this pipeline. */
static int refuse_states(const weft_pipeline_config *config)
{
    uint64_t state[64] = {0};
    weft_pipeline *pipeline = NULL;
    if (weft_pipeline_create(config, &pipeline) != WEFT_OK) {
        return 1;
    }
    size_t bytes = weft_pipeline_get_state_bytes(pipeline);
    int wrong = bytes > sizeof(state) ||
                weft_pipeline_pack(pipeline, state) != WEFT_OK ||
                weft_pipeline_unpack(pipeline, state, bytes) != WEFT_OK;
    for (size_t word = 0; word < bytes / sizeof(*state); word++) {
        for (uint64_t bit = 1; bit != 0; bit <<= 21) {
            if (word == 5 && bit < 8) {
                continue; /* another position may be right */
            }
            state[word] ^= bit;
            wrong += weft_pipeline_unpack(pipeline, state, bytes) !=
                     WEFT_ERR_INVALID;
            state[word] ^= bit;
        }
    }
    for (size_t cut = 0; cut < bytes; cut += 7) {
        wrong += weft_pipeline_unpack(pipeline, state, cut) != WEFT_ERR_INVALID;
    }
    wrong +=
        weft_pipeline_unpack(pipeline, state, bytes + 8) != WEFT_ERR_INVALID;
    weft_pipeline_destroy(pipeline);
    return wrong;
}

static int refused_rank(weft_comm *comm, void *context)
{
    job *it = context;
    toy model;
    const weft_pipeline_config right = job_config(it, comm, &model);
    weft_pipeline_config config = right;
    int wrong = weft_comm_get_rank(comm) == 0 ? refuse_lists(&right) : 0;
    wrong += refuse_states(&right);
    weft_pipeline_calls calls = *right.calls;
    config.calls = &calls;
    calls.backward_weight = NULL;
    wrong += expect_refusal(&config, "calls.backward");
    calls = *right.calls;
    calls.whole = NULL;
    wrong += expect_refusal(&config, "calls.whole is NULL: the list has ");
    config = right;
    config.rows = 0;
    wrong += expect_refusal(&config, "rows 0");
    config = right;
    config.rows = 5000;
    config.chunk_rows = 1;
    wrong += expect_refusal(&config, "allowed is up to 4096 chunks");
    size_t rows[16] = {0};
    config = right;
    config.stage_rows = rows;
    wrong += expect_refusal(&config, "stage_rows of stage 0, 0: allowed is 1 "
                                     ".. 13 (rows)");
    rows[0] = TOY_ROWS + 1;
    wrong += expect_refusal(&config, "stage_rows of stage 0, 14: allowed is");
    config = right;
    config.receive_ahead = -1;
    wrong += expect_refusal(&config, "receive_ahead -1");
    config = right;
    config.comm = NULL;
    wrong += expect_refusal(&config, "comm is NULL");
    config = right;
    config.calls = NULL;
    wrong += expect_refusal(&config, "config.calls is NULL");
    weft_pipeline_peaks peaks = {.size_bytes = sizeof(peaks)};
    weft_schedule_run run;
    wrong += weft_pipeline_run(NULL, SIZE_MAX) != WEFT_ERR_INVALID;
    wrong += weft_pipeline_settle(NULL) != WEFT_ERR_INVALID;
    wrong += weft_pipeline_pack(NULL, &peaks) != WEFT_ERR_INVALID;
    wrong += weft_pipeline_unpack(NULL, &peaks, 8) != WEFT_ERR_INVALID;
    wrong += weft_pipeline_get_peaks(NULL, &peaks) != WEFT_ERR_INVALID;
    wrong +=
        weft_pipeline_measure(NULL, NULL, 1, &run, NULL) != WEFT_ERR_INVALID;
    wrong += weft_pipeline_get_spans(NULL) != NULL;
    wrong += weft_pipeline_get_position(NULL) != 0;
    wrong += weft_pipeline_predict(&right, 2, &peaks) != WEFT_ERR_INVALID;
    return wrong;
}

static void test_pipeline_what_cannot_run_is_refused(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("1f1b", 2, 3, 0);
    ASSERT_OK(weft_schedule_reduce(schedule, false));
    ASSERT_OK(weft_schedule_optimize(schedule));
    ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
    job it = make_job(schedule);
    assert_int_equal(job_run(&it, refused_rank, 60000), 0);
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first, as it forks, and the others start threads */
        cmocka_unit_test(test_pipeline_killed_rank_is_named_by_all),
        cmocka_unit_test(test_pipeline_failing_call_ends_all_ranks),
        cmocka_unit_test(test_pipeline_abort_ends_all_ranks),
        cmocka_unit_test(test_pipeline_other_sizes_end_all_ranks),
        cmocka_unit_test(test_pipeline_what_cannot_run_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

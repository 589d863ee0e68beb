/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trial.c - replicas for some steps each.
 */
#include "trainer/pipe/trial.h"

#include "base/check.h"
#include "base/clock.h"
#include "trainer/numbers.h"
#include "trainer/pipe/pipe_schedule.h"
#include "trainer/run_plan.h"
#include "trainer/train_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One step, from a barrier to where all parameters are back. */
static weft_status time_step(wefti_replica *replica, double *ms_out)
{
    static const wefti_train_step_modes modes = {
        .reduce = WEFT_BUCKET_OVERLAPPED, .gather = WEFT_BUCKET_OVERLAPPED};
    static const double no_times[WEFTI_STEP_TIMES];
    wefti_train_step_result result;
    weft_status status = weft_barrier(replica->config.comm, NULL);
    int64_t begin_ns = wefti_clock_ns();
    if (status == WEFT_OK) {
        status = wefti_train_step_run(replica, modes, no_times, &result);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_settle(replica);
    }
    *ms_out = (double)(wefti_clock_ns() - begin_ns) * 1e-6;
    return status;
}

static weft_status time_steps(wefti_replica *replica, int warm_steps, int steps,
                              wefti_trial *trial)
{
    const double unit_ns = 1e6;
    weft_status status = WEFT_OK;
    for (int i = -warm_steps; i < steps && status == WEFT_OK; i++) {
        double ms;
        status = time_step(replica, &ms);
        if (status == WEFT_OK && i >= 0) {
            WEFTI_ASSERT(trial->run_count < WEFTI_TRIAL_ROUNDS);
            trial->times_ms[trial->run_count] = ms;
            status =
                weft_pipeline_measure(replica->pipe.pipeline, NULL, unit_ns,
                                      &trial->runs[trial->run_count], NULL);
            trial->run_count += status == WEFT_OK;
        }
    }
    return status;
}

/* Which step is the one in the middle, by its makespan. */
static size_t find_median(const wefti_trial *trial)
{
    size_t at = 0;
    for (size_t k = 0; k < trial->run_count; k++) {
        size_t shorter = 0;
        for (size_t other = 0; other < trial->run_count; other++) {
            double a = trial->runs[other].makespan;
            double b = trial->runs[k].makespan;
            shorter += a < b || (!(a > b) && other < k);
        }
        at = shorter == trial->run_count / 2 ? k : at;
    }
    return at;
}

weft_status wefti_trial_init(wefti_trial *trial, const wefti_trial_job *job,
                             const char *name, int chunks,
                             weft_stage_cost *waits)
{
    wefti_config config = wefti_pipe_schedule_config(job->config, name, chunks);
    *trial = (wefti_trial){.waits = waits, .emulated = waits != NULL};
    snprintf(trial->name, sizeof(trial->name), "%s", name);
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = wefti_pipe_schedule_open(
        &config, weft_comm_get_rank(job->comm), weft_comm_get_nranks(job->comm),
        &trial->schedule);
    if (status == WEFT_OK) {
        status = weft_schedule_get_info(trial->schedule, &info);
        trial->chunks = info.chunks;
    }
    if (status != WEFT_OK) {
        wefti_trial_fini(trial);
    }
    return status;
}

void wefti_trial_fini(wefti_trial *trial)
{
    for (size_t k = 0; k < trial->run_count; k++) {
        weft_schedule_run_fini(&trial->runs[k]);
    }
    weft_schedule_run_fini(&trial->planned);
    weft_schedule_destroy(trial->schedule);
    free(trial->waits);
    *trial = (wefti_trial){0};
}

weft_status wefti_trial_visit(wefti_trial *trial, const wefti_trial_job *job,
                              int warm_steps, int steps)
{
    wefti_config config =
        wefti_pipe_schedule_config(job->config, trial->name, trial->chunks);
    wefti_replica replica;
    wefti_replica_config wanted = wefti_run_replica(
        &config, job->comm, job->device, job->data, trial->schedule);
    wanted.pipe.waits = trial->waits;
    wanted.optimizer.lr = 0; /* the same work in each step */
    wanted.optimizer.weight_decay = 0;
    weft_status status = wefti_replica_init(&replica, &wanted);
    if (status != WEFT_OK) {
        *job->failed = replica.failed;
        return status;
    }
    status = time_steps(&replica, warm_steps, steps, trial);
    if (status != WEFT_OK) {
        *job->failed = replica.failed;
        wefti_replica_abort(&replica);
    }
    wefti_replica_fini(&replica);
    return status;
}

weft_status wefti_trial_settle(wefti_trial *trial, const wefti_trial_job *job)
{
    double sorted[WEFTI_TRIAL_ROUNDS];
    size_t count = trial->run_count;
    weft_status status =
        weft_allreduce(trial->times_ms, trial->times_ms, count, WEFT_DTYPE_F64,
                       WEFT_REDOP_MAX, job->comm, NULL);
    memcpy(sorted, trial->times_ms, sizeof(sorted));
    trial->step_ms = wefti_numbers_median(sorted, count); /* sorts */
    trial->least_ms = sorted[0];
    trial->most_ms = sorted[count - 1];
    trial->median = find_median(trial);
    return status;
}

/* ---- which one ------------------------------------------------------------
 */

static bool is_quicker(const wefti_trial *a, const wefti_trial *b)
{
    return a->most_ms < b->least_ms;
}

/* Of two that are as quick: parameters come first, then activations. */
static bool holds_less(const wefti_trial *a, const wefti_trial *b)
{
    weft_schedule_info of_a = {.size_bytes = sizeof(of_a)};
    weft_schedule_info of_b = {.size_bytes = sizeof(of_b)};
    if (weft_schedule_get_info(a->schedule, &of_a) == WEFT_OK &&
        weft_schedule_get_info(b->schedule, &of_b) == WEFT_OK &&
        of_a.directions != of_b.directions) {
        return of_a.directions < of_b.directions;
    }
    return a->planned.activations < b->planned.activations;
}

const wefti_trial *wefti_trial_pick(const wefti_trial *items, size_t count)
{
    const wefti_trial *usual = &items[0], *quickest = usual;
    for (size_t k = 1; k < count; k++) {
        const wefti_trial *trial = &items[k];
        if (!trial->emulated && is_quicker(trial, usual) &&
            trial->step_ms < quickest->step_ms) {
            quickest = trial;
        }
    }
    const wefti_trial *picked = quickest;
    for (size_t k = 1; k < count && quickest != usual; k++) {
        const wefti_trial *trial = &items[k];
        if (!trial->emulated && is_quicker(trial, usual) &&
            !is_quicker(quickest, trial) && holds_less(trial, picked)) {
            picked = trial;
        }
    }
    return picked;
}

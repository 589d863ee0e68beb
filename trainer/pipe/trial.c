/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trial.c - a replica for some steps.
 */
#include "trainer/pipe/trial.h"

#include "base/clock.h"
#include "trainer/numbers.h"
#include "trainer/pipe/pipe_schedule.h"
#include "trainer/run_plan.h"
#include "trainer/train_step.h"

#include <stdio.h>
#include <string.h>

enum { WARM_STEPS = 2 };

/* One step, from a barrier to where all parameters are back. */
static weft_status time_step(wefti_replica *replica, double *ms_out)
{
    static const wefti_train_step_modes modes = {WEFTI_BUCKET_OVERLAPPED,
                                                 WEFTI_BUCKET_OVERLAPPED};
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

static weft_status time_steps(wefti_replica *replica, wefti_trial *trial)
{
    const double unit_ns = 1e6;
    double times[WEFTI_TRIAL_STEPS];
    weft_status status = WEFT_OK;
    for (int i = -WARM_STEPS; i < WEFTI_TRIAL_STEPS && status == WEFT_OK; i++) {
        double ms;
        status = time_step(replica, &ms);
        if (status == WEFT_OK && i >= 0) {
            times[i] = ms;
            status =
                wefti_pipeline_measure(replica->pipe.pipeline, unit_ns,
                                       &trial->runs[trial->run_count], NULL);
            trial->run_count += status == WEFT_OK;
        }
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(times, times, WEFTI_TRIAL_STEPS, WEFT_DTYPE_F64,
                                WEFT_REDOP_MAX, replica->config.comm, NULL);
    }
    if (status == WEFT_OK) {
        trial->step_ms = wefti_numbers_median(times, WEFTI_TRIAL_STEPS);
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

weft_status wefti_trial_run(const wefti_trial_job *job, const char *name,
                            int chunks, const weft_stage_cost *waits,
                            wefti_trial *trial_out)
{
    wefti_config config = wefti_pipe_schedule_config(job->config, name, chunks);
    wefti_replica replica;
    *trial_out = (wefti_trial){.chunks = chunks, .emulated = waits != NULL};
    snprintf(trial_out->name, sizeof(trial_out->name), "%s", name);
    weft_status status = wefti_pipe_schedule_open(
        &config, weft_comm_get_nranks(job->comm), &trial_out->schedule);
    if (status == WEFT_OK) {
        wefti_replica_config wanted = wefti_run_replica(
            &config, job->comm, job->device, job->data, trial_out->schedule);
        wanted.pipe.waits = waits;
        wanted.optimizer.lr = 0; /* the same work in each step */
        wanted.optimizer.weight_decay = 0;
        status = wefti_replica_init(&replica, &wanted);
    }
    if (status == WEFT_OK) {
        status = time_steps(&replica, trial_out);
        if (status != WEFT_OK) {
            wefti_replica_abort(&replica);
        }
        wefti_replica_fini(&replica);
    }
    if (status == WEFT_OK) {
        trial_out->median = find_median(trial_out);
    } else {
        wefti_trial_fini(trial_out);
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
    *trial = (wefti_trial){0};
}

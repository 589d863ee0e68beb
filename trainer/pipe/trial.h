/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trial.h - a few steps of a job under one schedule, timed.
 * Nothing of it stays: the model is a fresh one, and learns nothing.
 */
#ifndef TRAINER_PIPE_TRIAL_H
#define TRAINER_PIPE_TRIAL_H

#include "trainer/config/config.h"
#include "trainer/data/data.h"
#include "weft/comm.h"
#include "weft/schedule.h"

enum { WEFTI_TRIAL_STEPS = 5 };

/* Borrowed; the configuration has been checked for the schedule. */
typedef struct wefti_trial_job {
    const wefti_config *config;
    weft_comm *comm;
    weft_device *device;
    const wefti_data *data;
} wefti_trial_job;

/*
 * schedule    as it ran
 * runs        [WEFTI_TRIAL_STEPS] of all ranks of this rank's pipeline, in ms
 * median      of these the one whose makespan is
 * planned     the same on paper; zeros until wefti_trials has made it
 * step_ms     median of whole steps, each the job's slowest rank's: with
 *             reduction, update and gathering
 * emulated    compute was waits
 */
typedef struct wefti_trial {
    char name[32];
    int chunks;
    weft_schedule *schedule;
    weft_schedule_run runs[WEFTI_TRIAL_STEPS];
    size_t run_count;
    size_t median;
    weft_schedule_run planned;
    double step_ms;
    bool emulated;
} wefti_trial;

/*
 * wefti_trial_run - all ranks of the job together.
 *
 * name        of a generator, which suits the job (wefti_config_check)
 * chunks      V
 * waits       [stages]: in place of compute, ms; NULL: compute
 *
 * Returns     OK (fini it) | ERR_NO_MEMORY | ERR_INVALID | the communicator's
 *             fault.
 */
WEFT_NODISCARD weft_status wefti_trial_run(const wefti_trial_job *job,
                                           const char *name, int chunks,
                                           const weft_stage_cost *waits,
                                           wefti_trial *trial_out);
void wefti_trial_fini(wefti_trial *trial); /* also of zeros */

#endif

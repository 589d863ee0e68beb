/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trial.h - some steps of a job under one schedule, timed; in
 * visits, so that several schedules can take turns. Nothing of it stays: the
 * model is a fresh one at each visit, and learns nothing.
 */
#ifndef TRAINER_PIPE_TRIAL_H
#define TRAINER_PIPE_TRIAL_H

#include "trainer/config/config.h"
#include "trainer/data/data.h"
#include "weft/comm.h"
#include "weft/schedule_cost.h"

enum { WEFTI_TRIAL_ROUNDS = 5 };

/*
 * Borrowed; the configuration has been checked for the schedule.
 *
 * choose   schedule auto is to choose (trainer/pipe/trials.h)
 * failed   gets 1 + the rank that all know to have failed, where one has
 */
typedef struct wefti_trial_job {
    const wefti_config *config;
    weft_comm *comm;
    weft_device *device;
    const wefti_data *data;
    bool choose;
    int *failed;
} wefti_trial_job;

/*
 * chunks      V, also of a schedule that has its own
 * schedule    as it runs
 * waits       [stages]: in place of compute, ms; NULL: compute
 * runs        [run_count] of all ranks of this rank's pipeline, in ms
 * times_ms    [run_count] of whole steps, each the job's slowest rank's once
 *             settled: with reduction, update and gathering
 * median      of the runs the one whose makespan is
 * planned     the same on paper; zeros until wefti_trials has made it
 * step_ms     median of times_ms; least_ms, most_ms: their spread
 */
typedef struct wefti_trial {
    char name[32];
    int chunks;
    weft_schedule *schedule;
    weft_stage_cost *waits;
    weft_schedule_run runs[WEFTI_TRIAL_ROUNDS];
    double times_ms[WEFTI_TRIAL_ROUNDS];
    size_t run_count;
    size_t median;
    weft_schedule_run planned;
    double step_ms, least_ms, most_ms;
    bool emulated; /* compute is waits */
} wefti_trial;

/*
 * wefti_trial_init - opens the schedule.
 *
 * name        of a generator, which suits the job (wefti_config_check)
 * chunks      V of interleaved; the others have their own
 * waits       taken over, also after an error; NULL: compute
 *
 * Returns     OK (fini it) | ERR_NO_MEMORY | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_trial_init(wefti_trial *trial,
                                            const wefti_trial_job *job,
                                            const char *name, int chunks,
                                            weft_stage_cost *waits);
void wefti_trial_fini(wefti_trial *trial); /* also of zeros */

/*
 * wefti_trial_visit - all ranks of the job together: so many steps to warm up,
 * then so many that count, of WEFTI_TRIAL_ROUNDS in all visits.
 *
 * Returns     OK | ERR_NO_MEMORY | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_trial_visit(wefti_trial *trial,
                                             const wefti_trial_job *job,
                                             int warm_steps, int steps);

/* Once all visits are done, one at least: all ranks agree on the times. */
WEFT_NODISCARD weft_status wefti_trial_settle(wefti_trial *trial,
                                              const wefti_trial_job *job);

/*
 * wefti_trial_pick - which of count trials trains: the first, unless another's
 * slowest step was quicker than the first one's quickest, so that what is
 * between them is more than chance. Of several such the quickest; of those that
 * are within its own spread the one that holds least.
 *
 * items       settled and planned, all with compute or else passed over
 */
const wefti_trial *wefti_trial_pick(const wefti_trial *items, size_t count);

#endif

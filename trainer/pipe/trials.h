/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trials.h - schedules tried before a run: those that are to be
 * compared, and where the schedule is auto those among which it chooses.
 *
 * 1f1b comes first and is always run. What its layers, ends and messages cost
 * is all that the others are planned with, so that planned beside measured says
 * how far such plans can be trusted. Where compute is emulated, messages cost
 * what they cost beside emulated compute, so there 1f1b is run once more.
 */
#ifndef TRAINER_PIPE_TRIALS_H
#define TRAINER_PIPE_TRIALS_H

#include "trainer/pipe/pipe_cost.h"
#include "trainer/pipe/trial.h"

#include <stdio.h>

/*
 * wefti_trial_basis - what all plans of a kind are made of: 1f1b's costs, as
 * rank 0's pipeline had them.
 *
 * hidden   share of a pair's shorter half
 */
typedef struct wefti_trial_basis {
    wefti_layer_cost layer;
    double p2p, hidden;
} wefti_trial_basis;

/*
 * items      [count]; the first is 1f1b, with its compute
 * real       what was found in the first
 * emulated   what was found in 1f1b with waits as long as those costs
 * crowded    a host has more ranks than cores: what is compared is emulated,
 *            1f1b first
 * chosen     of items; NULL: the schedule is not auto
 * reason     why, one sentence
 */
typedef struct wefti_trials {
    wefti_trial *items;
    size_t count;
    wefti_trial_basis real, emulated;
    bool crowded;
    const wefti_trial *chosen;
    char reason[512];
} wefti_trials;

/* Whether the configuration has anything to try. */
bool wefti_trials_wanted(const wefti_config *config);

/*
 * wefti_trials_run - all ranks of the job together; all come to the same.
 *
 * err         told of each trial, and of the choice; NULL: nobody is
 *
 * Returns     OK | as wefti_trial_run. Fini it either way.
 */
WEFT_NODISCARD weft_status wefti_trials_run(wefti_trials *trials,
                                            const wefti_trial_job *job,
                                            FILE *err);
void wefti_trials_fini(wefti_trials *trials); /* also of zeros */

/* By how much of the planned one a measured makespan was longer. */
double wefti_trial_error(const wefti_trial *trial);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/trials.h - schedules tried before a run: those that are to be
 * compared, and where the schedule is auto those among which it chooses.
 *
 * 1f1b is measured first. What its layers, ends and messages cost is all that
 * the others are planned with, so that planned beside measured says how far
 * such plans can be trusted. Then all take turns, 1f1b too, a step at a time:
 *
 *   1f1b: costs | 1f1b A B C | 1f1b A B C | ... | the choice
 *
 * Where compute is emulated, messages cost what they cost beside emulated
 * compute, so there 1f1b is run once more.
 */
#ifndef TRAINER_PIPE_TRIALS_H
#define TRAINER_PIPE_TRIALS_H

#include "trainer/pipe/pipe_advice.h"
#include "trainer/pipe/trial.h"

#include <stdio.h>

/*
 * items           [count]; the first is 1f1b, with its compute
 * real            1f1b's costs, as rank 0's pipeline had them
 * emulated        what was found in 1f1b with waits as long as those costs
 * oversubscribed  a host has more ranks than cores: what is compared is
 *                 emulated, 1f1b first
 * advice          what auto asked with real; zeros: it does not choose
 * chosen          of items; NULL: likewise
 * reason          why, one sentence
 */
typedef struct wefti_trials {
    wefti_trial *items;
    size_t count;
    wefti_pipe_basis real, emulated;
    bool oversubscribed;
    wefti_pipe_advice advice;
    const wefti_trial *chosen;
    char reason[768];
} wefti_trials;

/* Whether the configuration has anything to compare. */
bool wefti_trials_compare(const wefti_config *config);

/*
 * wefti_trials_run - what is compared, and where auto is to choose what it has
 * to choose from. All ranks of the job together; all come to the same.
 *
 * err         gets a line for each trial, and for the choice; NULL: none
 *
 * Returns     OK | as wefti_trial_visit. Fini it either way.
 */
WEFT_NODISCARD weft_status wefti_trials_run(wefti_trials *trials,
                                            const wefti_trial_job *job,
                                            FILE *err);
void wefti_trials_fini(wefti_trials *trials); /* also of zeros */

/* By how much of the planned one a measured makespan was longer. */
double wefti_trial_error(const wefti_trial *trial);

#endif

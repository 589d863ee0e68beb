/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/overlap_trial.h - some steps with each class of transfers under
 * compute and some that wait for it, before a run: where overlap loses, the
 * class' transfers block in the run.
 *
 *   tp: O B O B O B | dp, with tp as it was found: O B O B O B | the verdict
 *
 * A visit is a step to warm up and a few that count. What is compared is the
 * slowest rank's time of each, so that all ranks come to the same. Overlap has
 * lost where its median is longer by more than three spreads, as H needs to be
 * more than chance (trainer/measure.h). What is learned has the same bits
 * either way: only when ranks wait differs.
 *
 * tp, cp, ep and dp are tried, dp's reduction and gathering together; messages
 * of a pipeline are not. As with schedules (trainer/pipe/trials.h) the model is
 * a fresh one, learns nothing, and is gone before the run's own is made.
 */
#ifndef TRAINER_OVERLAP_TRIAL_H
#define TRAINER_OVERLAP_TRIAL_H

#include "trainer/config/config.h"
#include "trainer/measure.h"
#include "trainer/overlap_verdict.h"
#include "trainer/train_step.h"

enum {
    WEFTI_OVERLAP_ROUNDS = 3,
    WEFTI_OVERLAP_VISIT_STEPS = 3, /* that count */
    WEFTI_OVERLAP_STEPS = WEFTI_OVERLAP_ROUNDS * WEFTI_OVERLAP_VISIT_STEPS
};

/* For tests, in place of the clock: how long this rank's step number k of a
 * class took, in ms. */
typedef double wefti_overlap_clock(void *context, int rank, weft_class class_id,
                                   bool blocking, size_t k);

/*
 * Borrowed.
 *
 * clock    NULL: the steps' own time
 * failed   gets 1 + the rank that all know to have failed, where one has
 * fault    of the trial's communicators, where one has failed
 */
typedef struct wefti_overlap_job {
    const wefti_config *config;
    weft_comm *comm;
    weft_device *device;
    const wefti_data *data, *encoder_data;
    const weft_schedule *schedule;
    int *failed;
    weft_fault *fault;
    wefti_overlap_clock *clock;
    void *clock_context;
} wefti_overlap_job;

/* How a step goes where the configuration alone decides. */
wefti_train_step_modes wefti_overlap_modes(const wefti_config *config);

/* What a verdict holds for: parallel, overlap, the micro-batch, what of
 * activations and of the optimizer is kept, the device and how many ranks there
 * are. */
uint64_t wefti_overlap_layout(const wefti_config *config, int nranks);

/* Which classes of transfers run under compute in this mesh and need not. */
void wefti_overlap_find(const wefti_config *config, const wefti_mesh *mesh,
                        bool there_out[WEFT_CLASS_COUNT]);

/*
 * wefti_overlap_compare - of the slowest rank's steps; sorts both.
 */
wefti_overlap_class
wefti_overlap_compare(double overlapped_ms[WEFTI_OVERLAP_STEPS],
                      double blocking_ms[WEFTI_OVERLAP_STEPS]);

/*
 * wefti_overlap_try - all ranks together; all come to the same.
 *
 * err         gets a line for each class; NULL: none
 *
 * Returns     OK | as wefti_replica_init | the communicator's fault. Without a
 *             class to try verdict_out is zeros.
 */
WEFT_NODISCARD weft_status
wefti_overlap_try(const wefti_overlap_job *job, FILE *err,
                  wefti_overlap_verdict *verdict_out);

/* Classes that have fallen back have no H; nor have all together if each has.
 */
void wefti_overlap_mark(const wefti_overlap_verdict *verdict,
                        wefti_measure_result *measured);

/*
 * wefti_overlap_hint - where nothing was tried: a line for each class whose
 * steps were longer under compute than serial.
 *
 * there       from wefti_overlap_find
 */
void wefti_overlap_hint(const wefti_overlap_verdict *verdict,
                        const wefti_measure_result *measured,
                        const bool there[WEFT_CLASS_COUNT], FILE *file);

#endif

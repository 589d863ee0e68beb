/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/train_step.h - one training step of a replica, and how its transfers
 * ride on it.
 *
 *   micro-batch 0 .. n-2      last micro-batch            update
 *   FFFF BBBB ...        FFFF BBBB BBBB BBBB BBBB   |norm| U0 U1 U2 U3
 *   ^ waits for params             R3   R2   R1   R0          G0 G1 G2 G3 -->
 *
 * R: a bucket's gradients are reduce-scattered as soon as its last one is
 * final; G: its parameters are gathered as soon as their owners have updated
 * them, while the next step's forward already runs.
 */
#ifndef TRAINER_TRAIN_STEP_H
#define TRAINER_TRAIN_STEP_H

#include "trainer/pipe/pipe_links.h"
#include "trainer/replica.h"

/* How the step's transfers run. */
typedef struct wefti_train_step_modes {
    weft_bucket_mode reduce;
    weft_bucket_mode gather;
    bool places;           /* experts may move; in training alone */
    wefti_pipe_modes pipe; /* of what is exchanged inside of it */
} wefti_train_step_modes;

typedef struct wefti_train_step_result {
    double loss;      /* nats per token, mean over the global batch */
    double grad_norm; /* before clipping */
    double rate;
    double expert_ratio;       /* largest load over the mean; NAN: no experts */
    double expert_rank_ratio;  /* that of ranks' sums; NAN: experts stay */
    double expert_moved_bytes; /* behind this step; NAN: experts stay */
    const double *expert_loads; /* [layers][experts] tokens; until the next */
    double times_most[WEFTI_STEP_TIMES]; /* of the step before, over ranks */
    bool diverged;                       /* loss or norm is not finite */
} wefti_train_step_result;

/*
 * wefti_train_step_run - the next step; all ranks together.
 *
 * times       of this rank in the step before, to be sent to the others
 *
 * All of the step is queued, its update too, before the host waits for loss and
 * norm. Where these are of what was trained (nothing is OFF), one that is not
 * finite ends the run, on all ranks alike. Classes that have fallen back block
 * where modes say overlapped.
 *
 * Returns     OK | ERR_INVALID with result_out filled and diverged set | the
 *             communicator's fault: the replica is then of no use.
 */
WEFT_NODISCARD weft_status wefti_train_step_run(
    wefti_replica *replica, wefti_train_step_modes modes,
    const double times[WEFTI_STEP_TIMES], wefti_train_step_result *result_out);

/* How the class' transfers go: of dp reduction and gathering. */
void wefti_train_step_set(wefti_train_step_modes *modes, weft_class class_id,
                          weft_bucket_mode mode);

/* How transfers go outside of steps, as in validation: after the replica's
 * init, and after each step. */
void wefti_train_step_rest(wefti_replica *replica);

/* The error of a step whose loss or norm (what) is no finite value. */
WEFT_NODISCARD weft_status
wefti_train_step_diverged(const wefti_replica *replica, uint64_t step,
                          const char *what, double value);

/*
 * wefti_train_step_transfer - only the transfers of a step, each as soon as
 * those it needs are there: what they cost alone. Gradients and parameters are
 * undefined afterwards.
 */
WEFT_NODISCARD weft_status wefti_train_step_transfer(wefti_replica *replica);

#endif

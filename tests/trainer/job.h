/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/job.h - whole training jobs in this process, their ranks as
 * threads, on a small text of their own.
 */
#ifndef TESTS_TRAINER_JOB_H
#define TESTS_TRAINER_JOB_H

#include "kernels/math/real.h"
#include "tests/trainer/scratch.h"
#include "trainer/overlap_trial.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    JOB_RANKS_MOST = 8,
    JOB_STEPS_MOST = 64,
    JOB_SETTINGS_MOST = 24,
    JOB_TEXT_BYTES = 1024
};

/* settings: NULL-ended texts as after --set; the others may be NULL. */
typedef struct job {
    int nranks;
    const char *settings[JOB_SETTINGS_MOST];
    const char *resume;
    const char *generate;
    const char *json;
    const char *export_hf;
    bool measure;
    wefti_overlap_clock *clock; /* of trials of overlap */
} job;

/*
 * What rank 0 had at the end, in a pipeline all ranks together. Free with
 * job_result_fini.
 */
typedef struct job_result {
    weft_status status;         /* of the first rank that failed */
    char error[JOB_TEXT_BYTES]; /* of that rank */
    char errors[JOB_RANKS_MOST * JOB_TEXT_BYTES]; /* of all, a line each */
    size_t steps;                                 /* lines in the metrics */
    double loss[JOB_STEPS_MOST];                  /* of them */
    double grad_norm[JOB_STEPS_MOST];
    double checkpoint_ms[JOB_STEPS_MOST];
    double checkpoint_wait_ms[JOB_STEPS_MOST];
    double val_loss;               /* of the last that has one */
    double val_loss_ema;           /* likewise */
    double hiding_ratio, s_C, s_M; /* of the last line; NAN: null */
    double step_error_ms;          /* furthest of a sum of terms from step_ms */
    real *parameters; /* by tensor, no padding: the same on every layout */
    real *gradients;  /* of the last step, before clipping, likewise */
    size_t parameter_count;
    real *head_copy; /* of a pipeline's tied embedding; NULL */
    size_t head_elems;
    bool peaks_as_planned;        /* in every rank */
    char comm_names[2][32];       /* rank 0's line and group in a pipeline */
    size_t late_parameters;       /* see count_late_parameters in job.c */
    size_t early_parts;           /* of all ranks: reduced behind their W */
    char printed[JOB_TEXT_BYTES]; /* rank 0's output */
    size_t printed_bytes;
} job_result;

/*
 * Whether computing takes so long that a test has fewer layouts: under the
 * thread sanitizer, unless scripts/test has --long. Those left out run in
 * release and asan; what they do between threads, the others do too.
 */
bool job_is_slow(void);

/*
 * Whether any sanitizer watches, but with --long: a job has few steps and short
 * sequences then, as one more of either does nothing that it has not seen;
 * release has as many as it takes for a mistake to grow.
 */
bool job_is_sanitized(void);

/* The setting of a sequence's tokens, and of how many under a sanitizer. */
#define JOB_TOKENS(usual, few)                                                 \
    (job_is_sanitized() ? "model.seq_length=" #few : "model.seq_length=" #usual)

/* A text and a config named job.yaml in own; checkpoints go to own/ckpt. */
void job_prepare(scratch *own, uint64_t seed);

job_result job_run(scratch *own, const job *what);
void job_result_fini(job_result *result);

/* Asserts that it ends well and that the terms of each step add up. */
job_result job_run_well(scratch *own, const job *what);

/* Of each step's loss and norm, and of what was learned. */
void job_assert_same_bits(const job_result *a, const job_result *b);

#endif

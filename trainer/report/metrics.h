/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/metrics.h - what rank 0 reports of each step: a JSON line in
 * the file of --metrics.
 */
#ifndef TRAINER_REPORT_METRICS_H
#define TRAINER_REPORT_METRICS_H

#include "trainer/gradient_stats.h"
#include "weft/status.h"
#include "weft/types.h"

#include <stdint.h>
#include <stdio.h>

/*
 * wefti_metrics_step - one step. Times in ms, of rank 0; *_max over ranks. NAN
 * where a value does not apply: it is written as null.
 *
 * compute + exposed (all classes) + bubble + skew + idle = step_ms.
 */
typedef struct wefti_metrics_step {
    uint64_t step;
    double loss; /* nats per byte, over the whole global batch */
    double val_loss;
    double val_loss_ema; /* of the weights' average, on the last line */
    double grad_norm;    /* before clipping */
    double lr;
    double expert_load_ratio;  /* largest over mean, of the worst layer */
    double expert_rank_ratio;  /* that of ranks' experts, where they move */
    double expert_moved_bytes; /* of experts behind it, all ranks together */
    double tokens_per_s;       /* of all ranks together */
    double step_ms;
    double step_ms_max;
    double compute_ms;
    double compute_ms_max;
    double exposed_ms[WEFT_CLASS_COUNT]; /* by weft_class; COMPUTE not used */
    /* That operations of a class were under way, hidden or not; likewise. */
    double transfer_ms[WEFT_CLASS_COUNT];
    double moved_bytes[WEFT_CLASS_COUNT]; /* that rank 0 sent and received */
    double bubble_ms;
    double bubble_ms_max;
    double skew_ms;
    double idle_ms;
    double recompute_ms;  /* in nodes that run again; of compute, on the host */
    double checkpoint_ms; /* stood still to save; in the terms above */
    double checkpoint_wait_ms; /* of it until the last was on disk */
    double overlap_ratio;      /* O: hidden / transferring, all classes */
    double bubble_ratio;       /* bubble / step */
    double cpu_share;          /* thread CPU / wall over compute */
    uint64_t wakeups;          /* of weft's threads: rank 0's, as all here */
    uint64_t preemptions;      /* of its compute */
    double progress_ms;        /* CPU time of those threads */
    double mfu;
    uint64_t memory_bytes; /* rank 0's peak resident */
    uint64_t dropped;      /* records the ledger lacks: the times are too */
    /* Only with --measure, on the last line: */
    double hiding_ratio;
    double hiding_ceiling; /* what H can be: trainer/measure.h */
    double rest_ms, bare_cpu_ms;
    double bare_hiding_ratio; /* H_bare */
    double s_C; /* interference: compute beside transfers / alone */
    double s_M; /* interference: transfers beside compute / alone */
    double bubble_planned_ms; /* of a pipeline's median step, on paper */
} wefti_metrics_step;

/*
 * gradients   borrowed; a line of their step has them too. NULL: none has. Set
 *             after open.
 */
typedef struct wefti_metrics {
    int fd;
    char *path;
    FILE *line; /* writes into text, which grows with it */
    char *text;
    size_t text_bytes;
    const wefti_gradient_stats *gradients;
} wefti_metrics;

/* All values "does not apply". */
void wefti_metrics_step_init(wefti_metrics_step *step);

/*
 * wefti_metrics_open - path "-" is stdout.
 *
 * after_step   0: the file is begun anew. Else its lines up to that step stay,
 *              and what follows (the abandoned future of a run that is resumed,
 *              half a line, anything else) is cut off.
 */
WEFT_NODISCARD weft_status wefti_metrics_open(wefti_metrics *metrics,
                                              const char *path,
                                              uint64_t after_step);

/*
 * wefti_metrics_try - whether open would find a file that takes lines. What is
 * there stays as it is.
 */
WEFT_NODISCARD weft_status wefti_metrics_try(const char *path);

/*
 * Goes on after the last whole line that another rank 0 has written: one that
 * was killed may have left half of one.
 */
WEFT_NODISCARD weft_status wefti_metrics_continue(wefti_metrics *metrics,
                                                  const char *path);

/*
 * wefti_metrics_write - one line, written whole, so that a killed run has
 * reported all its finished steps. Where it cannot be, the file is as it was
 * before.
 */
WEFT_NODISCARD weft_status wefti_metrics_write(wefti_metrics *metrics,
                                               const wefti_metrics_step *step);
WEFT_NODISCARD weft_status wefti_metrics_close(wefti_metrics *metrics);

#endif

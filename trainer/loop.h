/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/loop.h - step after step: training, validation, savepoints, and what
 * is reported of each.
 */
#ifndef TRAINER_LOOP_H
#define TRAINER_LOOP_H

#include "trainer/checkpoint/savepoint.h"
#include "trainer/config/config.h"
#include "trainer/report/expert_loads.h"
#include "trainer/report/metrics.h"
#include "trainer/report/page.h"
#include "trainer/report/progress.h"
#include "trainer/report/summary.h"
#include "trainer/train_step.h"

/*
 * Everything is borrowed. Only rank 0 has metrics, progress and a summary; NULL
 * on other ranks, metrics also where no file is wanted. A page is kept on all
 * ranks, or on none.
 */
typedef struct wefti_loop {
    const wefti_config *config;
    wefti_replica *replica;
    const wefti_savepoint *savepoint;
    wefti_metrics *metrics;
    wefti_progress *progress;
    wefti_summary *summary;
    wefti_page *page;
    wefti_step_log *log; /* of a pipeline's steps; NULL: it is not kept */
    wefti_expert_loads *expert_loads;
    /* The step before, reported once the other ranks' times are known. */
    wefti_metrics_step pending;
    bool any_pending;
    double times[WEFTI_STEP_TIMES]; /* of this rank, in that step */
    bool diverged;                  /* why it ended, on all ranks alike */
    bool warned_dropped;            /* a full ledger was warned of */
    wefti_gradient_stats gradients; /* empty: not asked for */
    double peak_rate;               /* trainer/peak.h; 0: not measured */
} wefti_loop;

/*
 * wefti_loop_run - from the replica's step to the config's last one, all ranks
 * together. The last step's line is kept back for wefti_loop_close.
 *
 * Returns     OK | the first error. A loss or norm that is not finite is one:
 * no checkpoint has that state, and what was in flight has ended.
 */
WEFT_NODISCARD weft_status wefti_loop_run(wefti_loop *loop);

/*
 * wefti_loop_abandon - after a fault: reports the step whose line waits, with
 * this rank's own times, if it is not later than last, which will be done
 * again.
 */
WEFT_NODISCARD weft_status wefti_loop_abandon(wefti_loop *loop, uint64_t last);

/*
 * wefti_loop_close - reports the last step, with what was measured after it
 * (NULL: nothing); all ranks together.
 */
WEFT_NODISCARD weft_status
wefti_loop_close(wefti_loop *loop, const wefti_measure_result *measured);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/history.h - all steps of a run in bounded memory, for curves.
 *
 * A point stands for stride steps, one at first; when there is no room left,
 * neighbours are put together and stride doubles. Of each series a point keeps
 * the least, the greatest and the sum, so that no peak is lost and means stay
 * exact: means of a step's terms add up to the mean step.
 */
#ifndef TRAINER_REPORT_HISTORY_H
#define TRAINER_REPORT_HISTORY_H

#include "trainer/report/metrics.h"

/* Points of a run, at most. */
#define WEFTI_HISTORY_POINTS 600

/* X(NAME, name in the page's data, field of wefti_metrics_step) */
#define WEFTI_HISTORY_LIST(X)                                                  \
    X(LOSS, "loss", loss)                                                      \
    X(VAL_LOSS, "val_loss", val_loss)                                          \
    X(TOKENS, "tokens_per_s", tokens_per_s)                                    \
    X(STEP, "step_ms", step_ms)                                                \
    X(COMPUTE, "compute_ms", compute_ms)                                       \
    X(TP, "tp_ms", exposed_ms[WEFT_CLASS_TP])                                  \
    X(CP, "cp_ms", exposed_ms[WEFT_CLASS_CP])                                  \
    X(EP, "ep_ms", exposed_ms[WEFT_CLASS_EP])                                  \
    X(PP, "pp_ms", exposed_ms[WEFT_CLASS_PP])                                  \
    X(DP, "dp_ms", exposed_ms[WEFT_CLASS_DP])                                  \
    X(MEM, "mem_ms", exposed_ms[WEFT_CLASS_MEM])                               \
    X(BUBBLE, "bubble_ms", bubble_ms)                                          \
    X(SKEW, "skew_ms", skew_ms)                                                \
    X(IDLE, "idle_ms", idle_ms)

typedef enum wefti_history_series {
#define WEFTI_HISTORY_ENUM(name, text, field) WEFTI_HISTORY_##name,
    WEFTI_HISTORY_LIST(WEFTI_HISTORY_ENUM)
#undef WEFTI_HISTORY_ENUM
        WEFTI_HISTORY_COUNT
} wefti_history_series;

/* Unknown values do not count; count 0: there was none. */
typedef struct wefti_history_value {
    double least, most, sum;
    uint64_t count;
} wefti_history_value;

typedef struct wefti_history_point {
    uint64_t first, last; /* steps */
    wefti_history_value values[WEFTI_HISTORY_COUNT];
} wefti_history_point;

typedef struct wefti_history {
    wefti_history_point *points;
    size_t count;
    uint64_t stride;
} wefti_history;

const char *wefti_history_text(wefti_history_series series);

/* Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_history_init(wefti_history *history);
void wefti_history_fini(wefti_history *history);

/* Steps come in order; one that was done again replaces itself and all that
 * came after it, as far as points can be distinguished. */
void wefti_history_add(wefti_history *history, const wefti_metrics_step *step);

#endif

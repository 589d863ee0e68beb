/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/progress.h - how far training is, for a user: step, loss,
 * tokens per second, what share of the transfers was hidden, time left.
 *
 * On a terminal one line is rewritten a few times a second; otherwise a plain
 * line is printed every so often, and for every step that validates. The caller
 * says which it is: under a launcher the stream may be a pipe to a terminal.
 */
#ifndef TRAINER_REPORT_PROGRESS_H
#define TRAINER_REPORT_PROGRESS_H

#include "trainer/report/metrics.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct wefti_progress {
    FILE *file; /* borrowed */
    bool on_terminal;
    bool line_open; /* a rewritten line has no end yet */
    uint64_t first_step;
    uint64_t last_step;
    int64_t warm_ns;  /* the end of the first step, which is like no other */
    int64_t shown_ns; /* last time something was shown */
    double loss;      /* smoothed over about ten steps */
    double tokens_per_s;
} wefti_progress;

/*
 * wefti_progress_init - steps first_step .. last_step (the first is 1) are to
 * be shown on file, from now on.
 */
void wefti_progress_init(wefti_progress *progress, FILE *file, bool on_terminal,
                         uint64_t first_step, uint64_t last_step);

/* After each step; now_ns from wefti_clock_ns. */
void wefti_progress_show(wefti_progress *progress,
                         const wefti_metrics_step *step, int64_t now_ns);

/* Any other line: a rewritten one is ended first. */
void wefti_progress_note(wefti_progress *progress, const char *line);

void wefti_progress_fini(wefti_progress *progress);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/verdict.h - the rules of the checker, one file for those
 * that read lists and one for the one that runs them.
 */
#ifndef OVERLAP_SCHEDULE_VERDICT_H
#define OVERLAP_SCHEDULE_VERDICT_H

#include "overlap/schedule/places.h"

/* One check under way. */
typedef struct wefti_schedule_trial {
    const weft_schedule *schedule;
    weft_check_config config;
    wefti_stage_places places;
    weft_verdict *verdict;
} wefti_schedule_trial;

/* Room for an action's text and where it was read. */
enum { WEFTI_CELL_TEXT_BYTES = WEFT_ACTION_TEXT_BYTES + 40 };

/* "1B0", or "1B0 (row 2, column 3)" where it was read from a text; in text. */
const char *wefti_cell_text(const weft_schedule *schedule, int rank,
                            size_t index, char text[WEFTI_CELL_TEXT_BYTES]);

/*
 * Adds a finding; its text is that of the action at rank, index (rank -1: none)
 * and then the format's.
 */
void wefti_trial_find(wefti_schedule_trial *trial, weft_rule rule, int rank,
                      size_t index, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Rule 1 before there are places, which need it: counts per stage. */
weft_status wefti_rule_counts(wefti_schedule_trial *trial);
/* Rule 1: each message with its other side, and no other. */
void wefti_rule_messages(wefti_schedule_trial *trial);
/* Rule 2: inputs before their use. */
void wefti_rule_order(wefti_schedule_trial *trial);
/* Rule 2: activations are there where they are used. */
weft_status wefti_rule_memory(wefti_schedule_trial *trial);
/* Rule 2: what is done with whole stages: parameters, reductions. */
weft_status wefti_rule_stages(wefti_schedule_trial *trial);
/* Rule 3. */
weft_status wefti_rule_fifo(wefti_schedule_trial *trial);
/* Rule 4. */
weft_status wefti_rule_deadlock(wefti_schedule_trial *trial);
/* Rule 5, and the peaks themselves. */
weft_status wefti_rule_peaks(wefti_schedule_trial *trial);
/* Rule 6. */
void wefti_rule_collectives(wefti_schedule_trial *trial);

/* The stage that shares this one's gradients, in the other direction; or -1. */
int wefti_mirror_stage(const weft_schedule *schedule, int stage);

/*
 * wefti_schedule_peaks - peak activation of each rank, in device units, and
 * early messages; either may be NULL.
 */
WEFT_NODISCARD weft_status wefti_schedule_peaks(const weft_schedule *schedule,
                                                double *activations,
                                                int32_t *early);

#endif

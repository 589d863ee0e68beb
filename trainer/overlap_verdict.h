/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/overlap_verdict.h - what a trial of overlap has found, class by class
 * of transfers, and its text in a checkpoint:
 *
 *   LAYOUT tp 17.9 8.5 0.312 lost dp 8.41 8.95 0.2 kept
 *
 * LAYOUT is sixteen hexadecimal digits; then of each class that was tried the
 * steps with it under compute, those that waited for it, their spread, and
 * whether overlap lost: then the class' transfers block. Numbers have six
 * digits, so that what is read and written again is the same.
 */
#ifndef TRAINER_OVERLAP_VERDICT_H
#define TRAINER_OVERLAP_VERDICT_H

#include "weft/ledger.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    WEFTI_OVERLAP_PACKED_BYTES = 256,
    WEFTI_OVERLAP_TEXT_BYTES = 96 /* of a class, for people */
};

/* Medians of the slowest rank's steps; the spread is the larger one's median
 * distance from the median. */
typedef struct wefti_overlap_class {
    bool tried;
    bool lost; /* its transfers block from now on */
    double overlapped_ms, blocking_ms, spread_ms;
} wefti_overlap_class;

/* All zeros: nothing was tried, all runs as the configuration says. */
typedef struct wefti_overlap_verdict {
    bool there;
    bool resumed;    /* it is a checkpoint's */
    uint64_t layout; /* that it holds for */
    wefti_overlap_class classes[WEFT_CLASS_COUNT];
} wefti_overlap_verdict;

/* "" where nothing was tried. */
void wefti_overlap_verdict_pack(const wefti_overlap_verdict *verdict,
                                char text[WEFTI_OVERLAP_PACKED_BYTES]);

/*
 * wefti_overlap_verdict_unpack - of unknown origin; "": zeros.
 *
 * Returns     OK | ERR_INVALID: verdict_out is zeros.
 */
WEFT_NODISCARD weft_status wefti_overlap_verdict_unpack(
    const char *text, wefti_overlap_verdict *verdict_out);

/* "tp fell back, overlap lost 17.9 against 8.5 ms"; of a class that was tried.
 */
void wefti_overlap_verdict_text(const wefti_overlap_verdict *verdict,
                                weft_class class_id,
                                char text[WEFTI_OVERLAP_TEXT_BYTES]);

/* A line for each class that was tried. */
void wefti_overlap_verdict_print(const wefti_overlap_verdict *verdict,
                                 FILE *file);

#endif

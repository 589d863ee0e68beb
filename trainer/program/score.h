/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/score.h - what a rank posts and awaits in a step, and when:
 * notes of calls that would have to do with an operation, be it left out, run
 * beside compute, or be done where it is posted.
 *
 *   compute | call: POST a | compute | call: AWAIT a | compute | STEP
 *
 * The notes of a step are the same in all three, so that times of the one and
 * of the other can be put together (trainer/measure_rest.h). What is not in a
 * call is compute. Calls may nest: the outermost one counts.
 *
 * A score that is NULL takes no notes. One thread at a time.
 */
#ifndef TRAINER_PROGRAM_SCORE_H
#define TRAINER_PROGRAM_SCORE_H

#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum wefti_score_kind {
    WEFTI_SCORE_POST,   /* the operation may begin; chunk: how many it has */
    WEFTI_SCORE_OPEN,   /* it is posted, its chunks are not ready; likewise */
    WEFTI_SCORE_READY,  /* a chunk is */
    WEFTI_SCORE_AWAIT,  /* a chunk, or WEFTI_SCORE_ALL */
    WEFTI_SCORE_SERIAL, /* where nothing goes on beside compute it is carried
                           out in this call */
    WEFTI_SCORE_STEP    /* a step ends */
} wefti_score_kind;

#define WEFTI_SCORE_ALL SIZE_MAX

/* of, number: which operation; the last one that was posted so. */
typedef struct wefti_score_note {
    wefti_score_kind kind;
    weft_class class_id;
    const char *label; /* a literal */
    const void *of;
    size_t number, chunk;
} wefti_score_note;

typedef struct wefti_score_call {
    int64_t begin_ns, end_ns;
    size_t notes_end; /* its notes are those from the call before on */
} wefti_score_call;

typedef struct wefti_score {
    wefti_score_note *notes;
    size_t note_count, note_room;
    wefti_score_call *calls;
    size_t call_count, call_room;
    size_t depth;
    bool full; /* no memory: what is here is not all */
} wefti_score;

/* Empty, with its memory; fini frees that. Zeros are an empty one. */
void wefti_score_reset(wefti_score *score);
void wefti_score_fini(wefti_score *score);

void wefti_score_begin(wefti_score *score);
void wefti_score_end(wefti_score *score);

/* Within a call. */
void wefti_score_note_down(wefti_score *score, const wefti_score_note *note);

/* A call of its own, with nothing in it but the end of a step. */
void wefti_score_step(wefti_score *score);

/* Notes of an operation that is carried out whole where it is posted: within a
 * call. */
void wefti_score_inline(wefti_score *score, weft_class class_id,
                        const char *label, const void *of, size_t number);

#endif

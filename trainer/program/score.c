/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/score.c - notes, in arrays that grow.
 */
#include "trainer/program/score.h"

#include "base/clock.h"

#include <stdlib.h>

void wefti_score_reset(wefti_score *score)
{
    score->note_count = score->call_count = score->depth = 0;
    score->full = false;
}

void wefti_score_fini(wefti_score *score)
{
    free(score->notes);
    free(score->calls);
    *score = (wefti_score){0};
}

/* Room for one more; false, and the score is full: there is no memory. */
static bool grow(wefti_score *score, void **items, size_t item_bytes,
                 size_t count, size_t *room)
{
    if (count < *room) {
        return true;
    }
    const size_t more = 2 * *room + 1024;
    void *grown = realloc(*items, more * item_bytes);
    if (!grown) {
        score->full = true;
        return false;
    }
    *items = grown;
    *room = more;
    return true;
}

void wefti_score_begin(wefti_score *score)
{
    if (!score || score->depth++ > 0) {
        return;
    }
    void *calls = score->calls;
    if (grow(score, &calls, sizeof(*score->calls), score->call_count,
             &score->call_room)) {
        score->calls = calls;
        score->calls[score->call_count].begin_ns = wefti_clock_ns();
    }
}

void wefti_score_end(wefti_score *score)
{
    if (!score || --score->depth > 0 || score->full) {
        return;
    }
    wefti_score_call *call = &score->calls[score->call_count++];
    call->notes_end = score->note_count;
    call->end_ns = wefti_clock_ns();
}

void wefti_score_note_down(wefti_score *score, const wefti_score_note *note)
{
    if (!score) {
        return;
    }
    void *notes = score->notes;
    if (grow(score, &notes, sizeof(*note), score->note_count,
             &score->note_room)) {
        score->notes = notes;
        score->notes[score->note_count++] = *note;
    }
}

void wefti_score_step(wefti_score *score)
{
    wefti_score_begin(score);
    wefti_score_note_down(score, &(wefti_score_note){.kind = WEFTI_SCORE_STEP});
    wefti_score_end(score);
}

void wefti_score_inline(wefti_score *score, weft_class class_id,
                        const char *label, const void *of, size_t number)
{
    static const wefti_score_kind kinds[] = {
        WEFTI_SCORE_POST, WEFTI_SCORE_SERIAL, WEFTI_SCORE_AWAIT};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        wefti_score_note_down(
            score, &(wefti_score_note){.kind = kinds[i],
                                       .class_id = class_id,
                                       .label = label,
                                       .of = of,
                                       .number = number,
                                       .chunk = kinds[i] == WEFTI_SCORE_AWAIT
                                                    ? WEFTI_SCORE_ALL
                                                    : 1});
    }
}

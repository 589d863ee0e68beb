/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/skipped.h - files that a corpus leaves out, reported in one line
 * for each kind of name and reason: "43 .dat files skipped: not text".
 */
#ifndef TRAINER_DATA_SKIPPED_H
#define TRAINER_DATA_SKIPPED_H

#include "trainer/data/corpus.h"

typedef enum wefti_skipped_reason {
    WEFTI_SKIPPED_NOT_TEXT,
    WEFTI_SKIPPED_EMPTY,
    WEFTI_SKIPPED_SAME_TEXT,
    WEFTI_SKIPPED_SAME_IDS,
    WEFTI_SKIPPED_NOT_TOKENS,
    WEFTI_SKIPPED_REASONS
} wefti_skipped_reason;

enum {
    WEFTI_SKIPPED_KINDS_MOST = 16, /* of names; the rest counts as one */
    WEFTI_SKIPPED_ENDING_BYTES = 12
};

/* Files of one ending that were left out for one reason. */
typedef struct wefti_skipped_kind {
    wefti_skipped_reason reason;
    char ending[WEFTI_SKIPPED_ENDING_BYTES]; /* ".dat"; "": of any other */
    size_t count;
    char *first; /* the line about the first of them */
} wefti_skipped_kind;

typedef struct wefti_skipped {
    wefti_skipped_kind kinds[WEFTI_SKIPPED_KINDS_MOST + WEFTI_SKIPPED_REASONS];
    size_t kind_count;
} wefti_skipped;

/*
 * wefti_skipped_add - one more file.
 *
 * line   what is reported where it stays the only one of its kind; copied
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_skipped_add(wefti_skipped *skipped,
                                             wefti_skipped_reason reason,
                                             const char *path,
                                             const char *line);

/* Reports a line of each kind, in the order in which they came; note: or
 * NULL. */
void wefti_skipped_report(const wefti_skipped *skipped, wefti_corpus_note *note,
                          void *note_context);

void wefti_skipped_fini(wefti_skipped *skipped);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/corpus.h - files and folders of text, read once into memory as
 * one text: the files in order, each but the first after a separator byte.
 *
 * Of any bytes: those of files, likewise, where the separator may be anywhere.
 *
 * Left out: what is empty, what is not UTF-8 (a NUL byte counts as not text, so
 * that the separator occurs nowhere else), and a file whose bytes are those of
 * one already taken; after the last file one note counts those of each ending
 * (trainer/data/skipped.h). Which files there are trainer/data/walk.h says.
 */
#ifndef TRAINER_DATA_CORPUS_H
#define TRAINER_DATA_CORPUS_H

#include "trainer/data/walk.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFTI_CORPUS_SEPARATOR 0

typedef struct wefti_corpus {
    uint8_t *text;
    size_t text_bytes;
    size_t room_bytes;
    size_t files_taken;
    size_t files_skipped; /* empty, not UTF-8, or taken already */
} wefti_corpus;

/*
 * wefti_corpus_read - read all paths in the order given.
 *
 * any         bytes that are no text are taken too
 * note        NULL: no notes.
 *
 * Returns     OK (the text may be empty) | ERR_SYSTEM | ERR_INVALID |
 *             ERR_NO_MEMORY. After an error corpus is empty.
 */
WEFT_NODISCARD weft_status wefti_corpus_read(wefti_corpus *corpus,
                                             const char *const *paths,
                                             size_t path_count, bool any,
                                             wefti_corpus_note *note,
                                             void *note_context);
void wefti_corpus_fini(wefti_corpus *corpus);

#endif

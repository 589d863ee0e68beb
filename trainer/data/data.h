/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/data.h - what is trained on: a text (trainer/data/corpus.h)
 * split into a training part and a validation part, and cut into windows.
 *
 *   text   file 0 \0 file 1 \0 ... file n \0
 *          |<------- training ------->|<- validation ->|
 *
 * A window is seq_length + 1 bytes: the model reads the first seq_length and
 * predicts the last seq_length. Byte 0 separates files and occurs nowhere
 * else.
 */
#ifndef TRAINER_DATA_DATA_H
#define TRAINER_DATA_DATA_H

#include "trainer/data/corpus.h"
#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#define WEFTI_DATA_HASH_BYTES 32

typedef struct wefti_data_config {
    const char *const *paths; /* borrowed during init */
    size_t path_count;
    double validation_fraction; /* 0 <= f < 1; 0: no validation windows */
    uint64_t seed;              /* of the order of sequences */
    size_t seq_length;
    wefti_corpus_note *note; /* NULL: no notes */
    void *note_context;
} wefti_data_config;

typedef struct wefti_data {
    uint8_t *text;
    size_t text_bytes;
    size_t train_bytes; /* text[0 .. train_bytes) is the training part */
    size_t seq_length;
    uint64_t seed;
    size_t files_taken;
    size_t files_skipped;
    uint8_t hash[WEFTI_DATA_HASH_BYTES]; /* of text and train_bytes */
} wefti_data;

/*
 * wefti_data_init - read all paths and split the text.
 *
 * Returns     OK | ERR_SYSTEM (a path is missing or cannot be read) |
 *             ERR_INVALID (no text at all, or a part is shorter than a window:
 *             the text says by how much) | ERR_NO_MEMORY. After an error data
 *             is empty: fini is legal, and not needed.
 */
WEFT_NODISCARD weft_status wefti_data_init(wefti_data *data,
                                           const wefti_data_config *config);
void wefti_data_fini(wefti_data *data);

/*
 * wefti_data_sequence - the window of training sequence number sequence (0, 1,
 * 2, ... over all ranks and steps), seq_length + 1 bytes of the text.
 *
 * A pure function of (text, seed, sequence): the order does not depend on the
 * number of ranks, and resuming needs no state. Each epoch covers the training
 * part by windows that touch but do not overlap, in a fresh random order and
 * with a fresh random shift.
 *
 * Threads     any.
 */
const uint8_t *wefti_data_sequence(const wefti_data *data, uint64_t sequence);

/* Windows of one epoch of training, and of the validation part. */
size_t wefti_data_epoch_windows(const wefti_data *data);
size_t wefti_data_validation_windows(const wefti_data *data);

/*
 * wefti_data_validation - validation window index (below
 * wefti_data_validation_windows), seq_length + 1 bytes.
 *
 * first_target_out   targets before this one (0 <= t < seq_length) belong to
 *                    the window before and must not count again: the last
 *                    window is moved back to end with the text. Counted so,
 *                    every validation byte but the first is predicted once.
 */
const uint8_t *wefti_data_validation(const wefti_data *data, size_t index,
                                     size_t *first_target_out);

#endif

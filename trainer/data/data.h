/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/data.h - what is trained on: a text (trainer/data/corpus.h)
 * or token ids (trainer/data/tokens.h), split into a training part and a
 * validation part, and cut into windows.
 *
 *   text   file 0 \0 file 1 \0 ... file n \0
 *          |<------- training ------->|<- validation ->|
 *
 * A window is seq_length + 1 tokens: the model reads the first seq_length and
 * predicts the last seq_length (an encoder reads these, and predicts nothing).
 * Of a text the tokens are its bytes; byte 0 separates files and occurs nowhere
 * else. Of ids nothing separates files but what their writer put there.
 */
#ifndef TRAINER_DATA_DATA_H
#define TRAINER_DATA_DATA_H

#include "trainer/data/corpus.h"
#include "trainer/data/tokens.h"
#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFTI_DATA_HASH_BYTES 32

typedef struct wefti_data_config {
    const char *const *paths; /* borrowed during init */
    size_t path_count;
    double validation_fraction; /* 0 <= f < 1; 0: no validation windows */
    uint64_t seed;              /* of the order of sequences */
    size_t seq_length;
    size_t vocab;            /* of ids in files of such; 0: files of text */
    bool any;                /* of any bytes; of no ids */
    wefti_corpus_note *note; /* NULL: no notes */
    void *note_context;
} wefti_data_config;

typedef struct wefti_data {
    uint8_t *text; /* NULL: ids */
    wefti_token_set ids;
    size_t token_count; /* bytes of the text, or ids */
    size_t train_count; /* the first ones: the training part */
    size_t seq_length;
    uint64_t seed;
    size_t files_taken;
    size_t files_skipped;
    uint8_t hash[WEFTI_DATA_HASH_BYTES]; /* of all tokens and train_count */
} wefti_data;

/*
 * wefti_data_init - read all paths and split what they hold.
 *
 * Returns     OK | ERR_SYSTEM (a path is missing or cannot be read) |
 *             ERR_INVALID (nothing at all, a file of ids is damaged, or a part
 *             is shorter than a window: the text says by how much) |
 * ERR_NO_MEMORY. After an error data is empty: fini is legal, and not needed.
 */
WEFT_NODISCARD weft_status wefti_data_init(wefti_data *data,
                                           const wefti_data_config *config);
void wefti_data_fini(wefti_data *data);

/* data->hash becomes one of what both read. */
void wefti_data_add_hash(wefti_data *data, const wefti_data *other);

/*
 * wefti_data_sequence - where the window of training sequence number sequence
 * (0, 1, 2, ... over all ranks and steps) begins: seq_length + 1 tokens.
 *
 * A pure function of (train_count, seed, sequence): the order does not depend
 * on the number of ranks, and resuming needs no state. Each epoch covers the
 * training part by windows that touch but do not overlap, in a fresh random
 * order and with a fresh random shift.
 *
 * Threads     any.
 */
size_t wefti_data_sequence(const wefti_data *data, uint64_t sequence);

/* Tokens first .. first + count - 1. Threads: any. */
void wefti_data_read(const wefti_data *data, size_t first, size_t count,
                     int32_t *tokens_out);

/* Windows of one epoch of training, and of the validation part. */
size_t wefti_data_epoch_windows(const wefti_data *data);
size_t wefti_data_validation_windows(const wefti_data *data);

/*
 * wefti_data_validation - where validation window index (below
 * wefti_data_validation_windows) begins.
 *
 * first_target_out   targets before this one (0 <= t < seq_length) belong to
 *                    the window before and must not count again: the last
 *                    window is moved back to end with the data. Counted so,
 *                    every validation token but the first is predicted once.
 */
size_t wefti_data_validation(const wefti_data *data, size_t index,
                             size_t *first_target_out);

#endif

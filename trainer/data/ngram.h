/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/ngram.h - byte n-gram models, as a yardstick beside the trained
 * one.
 *
 * An n-gram model predicts a byte from the n - 1 before it, smoothed by
 * interpolated Witten-Bell:
 *
 *   p(b | h) = (count(h b) + kinds(h) * p(b | h')) / (count(h) + kinds(h))
 *
 * where h' is h without its oldest byte, kinds(h) how many different bytes
 * followed h, and p(b | nothing's shorter) = 1/256. For a context never seen it
 * is p(b | h').
 *
 * Source      Witten and Bell, "The zero-frequency problem", IEEE Trans. Inf.
 *             Theory 37(4), 1991, method C; interpolated as in Chen and
 *             Goodman, "An empirical study of smoothing techniques for language
 *             modeling", 1998, section 2.7.
 */
#ifndef TRAINER_DATA_NGRAM_H
#define TRAINER_DATA_NGRAM_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#define WEFTI_NGRAM_ORDER_MOST 6

/* What the table of counts may take. */
#define WEFTI_NGRAM_BYTES_MOST ((size_t)1 << 30)

/*
 * wefti_ngram_measure - train on one text, evaluate on another.
 *
 * order               n: 1..WEFTI_NGRAM_ORDER_MOST; 2 is one byte of context.
 * train, validation   borrowed for the call. Bytes 1 .. validation_bytes - 1
 *                     are predicted, as the trained model's windows do.
 * loss_out            mean of -ln p, nats per byte.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY (also where the text has more
 *             different n-grams than WEFTI_NGRAM_BYTES_MOST holds).
 */
WEFT_NODISCARD weft_status wefti_ngram_measure(int order, const uint8_t *train,
                                               size_t train_bytes,
                                               const uint8_t *validation,
                                               size_t validation_bytes,
                                               double *loss_out);

#endif

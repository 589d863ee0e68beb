/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/ngram.c - interpolated Witten-Bell byte n-grams in one hash
 * table.
 *
 * The table counts both n-grams (history and next byte) and histories alone;
 * a key packs which of the two it is, the history's length and the bytes:
 *
 *   bit 63 set | 62: history alone | 56..58 length | 0..47 bytes
 *
 * so that 0 marks a free slot. Open addressing, linear probing, doubled when
 * two thirds full.
 */
#include "trainer/data/ngram.h"

#include "base/error.h"
#include "trainer/mix.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define KEY_USED    (UINT64_C(1) << 63)
#define KEY_HISTORY (UINT64_C(1) << 62)

typedef struct slot {
    uint64_t key;
    uint64_t count;
    uint64_t kinds; /* of a history: different bytes that followed */
} slot;

typedef struct table {
    slot *slots;
    size_t room; /* a power of two */
    size_t used;
} table;

/* The slot of key, or the free one where it belongs. */
static slot *find(const table *grams, uint64_t key)
{
    size_t mask = grams->room - 1;
    size_t at = (size_t)wefti_mix(key) & mask;
    while (grams->slots[at].key != 0 && grams->slots[at].key != key) {
        at = (at + 1) & mask;
    }
    return &grams->slots[at];
}

static weft_status grow(table *grams)
{
    table wider = {.room = grams->room == 0 ? 4096 : grams->room * 2};
    if (wider.room > WEFTI_NGRAM_BYTES_MOST / sizeof(slot)) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "n-grams: more than %zu different ones",
                           grams->used);
    }
    wider.slots = calloc(wider.room, sizeof(slot));
    if (wider.slots == NULL) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "n-grams: no memory for %zu",
                           wider.room);
    }
    for (size_t i = 0; i < grams->room; i++) {
        if (grams->slots[i].key != 0) {
            *find(&wider, grams->slots[i].key) = grams->slots[i];
        }
    }
    wider.used = grams->used;
    free(grams->slots);
    *grams = wider;
    return WEFT_OK;
}

/* Counts key once more; new_out is set if it is the first time. */
static weft_status count(table *grams, uint64_t key, bool *new_out)
{
    if (grams->used >= grams->room / 3 * 2) {
        weft_status status = grow(grams);
        if (status != WEFT_OK) {
            return status;
        }
    }
    slot *place = find(grams, key);
    *new_out = place->key == 0;
    if (*new_out) {
        place->key = key;
        grams->used++;
    }
    place->count++;
    return WEFT_OK;
}

/* The bytes text[at - length .. at + more), youngest lowest. */
static uint64_t pack(const uint8_t *text, size_t at, size_t length, size_t more)
{
    uint64_t bytes = 0;
    for (size_t i = at - length; i < at + more; i++) {
        bytes = bytes << 8 | text[i];
    }
    return KEY_USED | (uint64_t)length << 56 | bytes;
}

static weft_status train_at(table *grams, const uint8_t *text, size_t at,
                            size_t length)
{
    bool first = false;
    bool ignored;
    uint64_t history = pack(text, at, length, 0) | KEY_HISTORY;
    weft_status status = count(grams, pack(text, at, length, 1), &first);
    if (status == WEFT_OK) {
        status = count(grams, history, &ignored);
    }
    if (status == WEFT_OK && first) {
        find(grams, history)->kinds++;
    }
    return status;
}

/* p(text[at] | the bytes before it), from the shortest history up. */
static double predict(const table *grams, const uint8_t *text, size_t at,
                      size_t length_most)
{
    double p = 1.0 / 256;
    for (size_t length = 0; length <= length_most && length <= at; length++) {
        const slot *history =
            find(grams, pack(text, at, length, 0) | KEY_HISTORY);
        if (history->key == 0) {
            break; /* so no longer one was seen either */
        }
        double seen = (double)find(grams, pack(text, at, length, 1))->count;
        double kinds = (double)history->kinds;
        p = (seen + kinds * p) / ((double)history->count + kinds);
    }
    return p;
}

weft_status wefti_ngram_measure(int order, const uint8_t *train,
                                size_t train_bytes, const uint8_t *validation,
                                size_t validation_bytes, double *loss_out)
{
    if (order < 1 || order > WEFTI_NGRAM_ORDER_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "order %d: allowed is 1..%d",
                           order, WEFTI_NGRAM_ORDER_MOST);
    }
    if (train_bytes == 0 || validation_bytes < 2) {
        return wefti_error(WEFT_ERR_INVALID,
                           "n-grams of %zu bytes tried on %zu: allowed is at "
                           "least 1 and 2",
                           train_bytes, validation_bytes);
    }
    table grams = {0};
    size_t length_most = (size_t)order - 1;
    weft_status status = grow(&grams);
    for (size_t at = 0; status == WEFT_OK && at < train_bytes; at++) {
        for (size_t length = 0;
             status == WEFT_OK && length <= length_most && length <= at;
             length++) {
            status = train_at(&grams, train, at, length);
        }
    }
    double sum = 0;
    for (size_t at = 1; status == WEFT_OK && at < validation_bytes; at++) {
        sum -= log(predict(&grams, validation, at, length_most));
    }
    free(grams.slots);
    *loss_out = sum / (double)(validation_bytes - 1);
    return status;
}

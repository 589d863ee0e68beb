/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/data.c - windows of a text by arithmetic alone.
 *
 * With seq = seq_length, an epoch has count = (train_bytes - seq) / seq windows
 * (at least one); window k of epoch e begins at shift(e) + k * seq, where shift
 * is below seq and small enough for the last window to end with the text.
 * Sequence number g is window permute(g mod count) of epoch g / count.
 */
#include "trainer/data/data.h"

#include "base/error.h"
#include "trainer/mix.h"

#include <sodium.h>
#include <string.h>

/* Streams of random numbers, so that shifts and orders are independent. */
enum { STREAM_SHIFT = 1, STREAM_ORDER = 2 };

/* The split and the hash over it; seq_length is set. */
static weft_status split(wefti_data *data, double validation_fraction)
{
    size_t window_bytes = data->seq_length + 1;
    size_t validation_bytes =
        (size_t)((double)data->text_bytes * validation_fraction);
    data->train_bytes = data->text_bytes - validation_bytes;
    if (data->train_bytes < window_bytes) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "data: the training part has %zu bytes, one sequence needs %zu "
            "(model.seq_length + 1): give more text or shorter sequences",
            data->train_bytes, window_bytes);
    }
    if (validation_fraction > 0 && validation_bytes < window_bytes) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "data: the validation part has %zu of %zu bytes, one sequence "
            "needs %zu: raise data.validation_fraction, give more text or "
            "shorter sequences",
            validation_bytes, data->text_bytes, window_bytes);
    }
    return WEFT_OK;
}

static void hash(wefti_data *data)
{
    crypto_generichash_state state;
    uint8_t numbers[16];
    for (size_t i = 0; i < 8; i++) {
        numbers[i] = (uint8_t)((uint64_t)data->text_bytes >> 8 * i);
        numbers[8 + i] = (uint8_t)((uint64_t)data->train_bytes >> 8 * i);
    }
    crypto_generichash_init(&state, NULL, 0, sizeof(data->hash));
    crypto_generichash_update(&state, numbers, sizeof(numbers));
    crypto_generichash_update(&state, data->text, data->text_bytes);
    crypto_generichash_final(&state, data->hash, sizeof(data->hash));
}

weft_status wefti_data_init(wefti_data *data, const wefti_data_config *config)
{
    wefti_corpus corpus;
    *data = (wefti_data){0};
    if (config->seq_length == 0 || !(config->validation_fraction >= 0) ||
        config->validation_fraction >= 1) {
        return wefti_error(WEFT_ERR_INVALID,
                           "data: sequences of %zu, validation fraction %g: "
                           "allowed is at least 1, and 0 to less than 1",
                           config->seq_length, config->validation_fraction);
    }
    weft_status status =
        wefti_corpus_read(&corpus, config->paths, config->path_count,
                          config->note, config->note_context);
    if (status != WEFT_OK) {
        return status;
    }
    *data = (wefti_data){.text = corpus.text, /* taken over */
                         .text_bytes = corpus.text_bytes,
                         .seq_length = config->seq_length,
                         .seed = config->seed,
                         .files_taken = corpus.files_taken,
                         .files_skipped = corpus.files_skipped};
    if (data->text_bytes == 0) {
        status =
            wefti_error(WEFT_ERR_INVALID,
                        "data: no text in %s%s (%zu files skipped): "
                        "data.paths must name UTF-8 files or folders",
                        config->path_count > 0 ? config->paths[0] : "",
                        config->path_count > 1 ? " and the other paths" : "",
                        data->files_skipped);
    } else {
        status = split(data, config->validation_fraction);
    }
    if (status != WEFT_OK) {
        wefti_data_fini(data);
        return status;
    }
    hash(data);
    return WEFT_OK;
}

void wefti_data_fini(wefti_data *data)
{
    wefti_corpus corpus = {.text = data->text};
    wefti_corpus_fini(&corpus);
    *data = (wefti_data){0};
}

size_t wefti_data_epoch_windows(const wefti_data *data)
{
    size_t count = (data->train_bytes - data->seq_length) / data->seq_length;
    return count > 0 ? count : 1;
}

/*
 * A permutation of 0 .. count - 1 chosen by key: a four-round Feistel cipher
 * over the smallest even number of bits that holds count, applied again while
 * the result is outside ("cycle walking": at most 4 times on average).
 *
 * Source      Black and Rogaway, "Ciphers with arbitrary finite domains",
 *             CT-RSA 2002; Luby and Rackoff 1988 for the four rounds.
 */
static uint64_t permute(uint64_t key, uint64_t count, uint64_t value)
{
    int half_bits = 1;
    while (half_bits < 32 && (count - 1) >> (2 * half_bits) != 0) {
        half_bits++;
    }
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    do {
        uint64_t left = value >> half_bits;
        uint64_t right = value & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t noise = wefti_mix_at(wefti_mix_at(key, round), right);
            uint64_t next = left ^ (noise & mask);
            left = right;
            right = next;
        }
        value = left << half_bits | right;
    } while (value >= count);
    return value;
}

const uint8_t *wefti_data_sequence(const wefti_data *data, uint64_t sequence)
{
    size_t count = wefti_data_epoch_windows(data);
    uint64_t epoch = sequence / count;
    size_t slack = data->train_bytes - 1 - count * data->seq_length;
    size_t shifts = slack < data->seq_length ? slack + 1 : data->seq_length;
    uint64_t shift_key = wefti_mix_at(data->seed, STREAM_SHIFT);
    uint64_t order_key =
        wefti_mix_at(wefti_mix_at(data->seed, STREAM_ORDER), epoch);
    size_t shift = (size_t)(wefti_mix_at(shift_key, epoch) % shifts);
    size_t window = (size_t)permute(order_key, count, sequence % count);
    return data->text + shift + window * data->seq_length;
}

size_t wefti_data_validation_windows(const wefti_data *data)
{
    size_t bytes = data->text_bytes - data->train_bytes;
    return bytes == 0 ? 0
                      : (bytes - 1 + data->seq_length - 1) / data->seq_length;
}

const uint8_t *wefti_data_validation(const wefti_data *data, size_t index,
                                     size_t *first_target_out)
{
    size_t start = data->train_bytes + index * data->seq_length;
    size_t latest = data->text_bytes - data->seq_length - 1;
    *first_target_out = start > latest ? start - latest : 0;
    return data->text + (start > latest ? latest : start);
}

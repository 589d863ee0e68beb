/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/data/data.c - windows by arithmetic alone.
 *
 * With seq = seq_length, an epoch has count = (train_count - seq) / seq windows
 * (at least one); window k of epoch e begins at shift(e) + k * seq, where shift
 * is below seq and small enough for the last window to end with the part.
 * Sequence number g is window permute(g mod count) of epoch g / count.
 */
#include "trainer/data/data.h"

#include "base/error.h"
#include "trainer/mix.h"

#include <sodium.h>
#include <string.h>

/* Streams of random numbers, so that shifts and orders are independent. */
enum { STREAM_SHIFT = 1, STREAM_ORDER = 2 };

/* The split; seq_length is set. */
static weft_status split(wefti_data *data, double validation_fraction, bool any)
{
    const char *unit = data->text ? "bytes" : "ids";
    size_t window = data->seq_length + 1;
    size_t validation =
        (size_t)((double)data->token_count * validation_fraction);
    data->train_count = data->token_count - validation;
    if (data->train_count < window) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "data: the training part has %zu %s, one sequence needs %zu "
            "(%s + 1): give more %s or shorter sequences",
            data->train_count, unit, window,
            any ? "model.encoder_seq_length" : "model.seq_length",
            data->text && !any ? "text" : unit);
    }
    if (validation_fraction > 0 && validation < window) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "data: the validation part has %zu of %zu %s, one sequence "
            "needs %zu: raise data.validation_fraction, give more %s or "
            "shorter sequences",
            validation, data->token_count, unit, window,
            data->text && !any ? "text" : unit);
    }
    return WEFT_OK;
}

/* Of ids their files' digests, which have just been found right. */
static void hash(wefti_data *data)
{
    crypto_generichash_state state;
    uint8_t numbers[16];
    for (size_t i = 0; i < 8; i++) {
        numbers[i] = (uint8_t)((uint64_t)data->token_count >> 8 * i);
        numbers[8 + i] = (uint8_t)((uint64_t)data->train_count >> 8 * i);
    }
    crypto_generichash_init(&state, NULL, 0, sizeof(data->hash));
    crypto_generichash_update(&state, numbers, sizeof(numbers));
    if (data->text) {
        crypto_generichash_update(&state, data->text, data->token_count);
    }
    for (size_t i = 0; i < data->ids.file_count; i++) {
        const wefti_tokens_header *header = &data->ids.files[i].header;
        crypto_generichash_update(&state, header->digest,
                                  sizeof(header->digest));
    }
    crypto_generichash_final(&state, data->hash, sizeof(data->hash));
}

void wefti_data_add_hash(wefti_data *data, const wefti_data *other)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof(data->hash));
    crypto_generichash_update(&state, data->hash, sizeof(data->hash));
    crypto_generichash_update(&state, other->hash, sizeof(other->hash));
    crypto_generichash_final(&state, data->hash, sizeof(data->hash));
}

static weft_status read_text(wefti_data *data, const wefti_data_config *config)
{
    wefti_corpus corpus;
    weft_status status =
        wefti_corpus_read(&corpus, config->paths, config->path_count,
                          config->any, config->note, config->note_context);
    data->text = corpus.text; /* taken over */
    data->token_count = corpus.text_bytes;
    data->files_taken = corpus.files_taken;
    data->files_skipped = corpus.files_skipped;
    return status;
}

static weft_status read_ids(wefti_data *data, const wefti_data_config *config)
{
    weft_status status =
        wefti_token_set_open(&data->ids, config->paths, config->path_count,
                             config->vocab, config->note, config->note_context);
    data->token_count = data->ids.count;
    data->files_taken = data->ids.file_count;
    data->files_skipped = data->ids.files_skipped;
    return status;
}

static weft_status refuse_empty(const wefti_data *data,
                                const wefti_data_config *config)
{
    if (config->any) {
        return wefti_error(WEFT_ERR_INVALID,
                           "data: no bytes in %s: it must be a file that has "
                           "some, or a folder of such",
                           config->paths[0]);
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "data: no %s in %s%s (%zu file%s skipped): data.paths must name %s",
        config->vocab ? "token ids" : "text",
        config->path_count > 0 ? config->paths[0] : "",
        config->path_count > 1 ? " and the other paths" : "",
        data->files_skipped, data->files_skipped == 1 ? "" : "s",
        config->vocab ? "files of token ids, or folders that hold some named "
                        "*" WEFTI_TOKENS_ENDING ", as model.vocab is a number"
                      : "UTF-8 files or folders (of token ids where "
                        "model.vocab is a number)");
}

weft_status wefti_data_init(wefti_data *data, const wefti_data_config *config)
{
    *data = (wefti_data){0};
    if (config->seq_length == 0 || !(config->validation_fraction >= 0) ||
        config->validation_fraction >= 1) {
        return wefti_error(WEFT_ERR_INVALID,
                           "data: sequences of %zu, validation fraction %g: "
                           "allowed is at least 1, and 0 to less than 1",
                           config->seq_length, config->validation_fraction);
    }
    data->seq_length = config->seq_length;
    data->seed = config->seed;
    weft_status status =
        config->vocab ? read_ids(data, config) : read_text(data, config);
    if (status == WEFT_OK && data->token_count == 0) {
        status = refuse_empty(data, config);
    }
    if (status == WEFT_OK) {
        status = split(data, config->validation_fraction, config->any);
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
    wefti_token_set_fini(&data->ids);
    *data = (wefti_data){0};
}

size_t wefti_data_epoch_windows(const wefti_data *data)
{
    size_t count = (data->train_count - data->seq_length) / data->seq_length;
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

size_t wefti_data_sequence(const wefti_data *data, uint64_t sequence)
{
    size_t count = wefti_data_epoch_windows(data);
    uint64_t epoch = sequence / count;
    size_t slack = data->train_count - 1 - count * data->seq_length;
    size_t shifts = slack < data->seq_length ? slack + 1 : data->seq_length;
    uint64_t shift_key = wefti_mix_at(data->seed, STREAM_SHIFT);
    uint64_t order_key =
        wefti_mix_at(wefti_mix_at(data->seed, STREAM_ORDER), epoch);
    size_t shift = (size_t)(wefti_mix_at(shift_key, epoch) % shifts);
    size_t window = (size_t)permute(order_key, count, sequence % count);
    return shift + window * data->seq_length;
}

void wefti_data_read(const wefti_data *data, size_t first, size_t count,
                     int32_t *tokens_out)
{
    if (!data->text) {
        wefti_token_set_read(&data->ids, first, count, tokens_out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        tokens_out[i] = data->text[first + i];
    }
}

size_t wefti_data_validation_windows(const wefti_data *data)
{
    size_t bytes = data->token_count - data->train_count;
    return bytes == 0 ? 0
                      : (bytes - 1 + data->seq_length - 1) / data->seq_length;
}

size_t wefti_data_validation(const wefti_data *data, size_t index,
                             size_t *first_target_out)
{
    size_t start = data->train_count + index * data->seq_length;
    size_t latest = data->token_count - data->seq_length - 1;
    *first_target_out = start > latest ? start - latest : 0;
    return start > latest ? latest : start;
}

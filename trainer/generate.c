/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/generate.c - sampling: the whole window is computed anew per token.
 */
#include "trainer/generate.h"

#include "base/error.h"
#include "base/plain_number.h"
#include "base/small_float.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_token(const void *left, const void *right)
{
    const wefti_generate_choice *a = left, *b = right;
    return (a->token > b->token) - (a->token < b->token);
}

/* The likelier one; of equals the lower token. */
static bool comes_first(const wefti_generate_choice *a,
                        const wefti_generate_choice *b)
{
    return a->weight > b->weight ||
           (a->weight >= b->weight && a->token < b->token);
}

/* In a heap whose first comes first: moves one down to where it belongs. */
static void sift(wefti_generate_choice *heap, size_t count, size_t at)
{
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && comes_first(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!comes_first(&heap[child], &heap[at])) {
            return;
        }
        wefti_generate_choice moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static const wefti_generate_choice *
find_likeliest(const wefti_generate_choice *choices, size_t count)
{
    const wefti_generate_choice *best = &choices[0];
    for (size_t i = 1; i < count; i++) {
        best = choices[i].weight > best->weight ? &choices[i] : best;
    }
    return best;
}

/* Leaves the likeliest, in the order of tokens; how many, and their sum. */
static size_t keep_likely(wefti_generate_choice *choices, size_t count,
                          const wefti_generate_config *config, double *sum)
{
    double kept_sum = 0;
    size_t left = count; /* of the heap; the kept stand behind it */
    size_t most = config->top_k > 0 ? config->top_k : count;
    for (size_t at = count / 2; at-- > 0;) {
        sift(choices, count, at);
    }
    while (left > 0 && count - left < most && choices[0].weight > 0 &&
           kept_sum < config->top_p * *sum) {
        wefti_generate_choice kept = choices[0];
        choices[0] = choices[--left];
        choices[left] = kept;
        kept_sum += kept.weight;
        sift(choices, left, 0);
    }
    memmove(choices, choices + left, (count - left) * sizeof(choices[0]));
    qsort(choices, count - left, sizeof(choices[0]), by_token);
    *sum = kept_sum;
    return count - left;
}

/* All that may be drawn, with their weights; how many, and the sum of these. */
static size_t weigh(const real *logits, const wefti_generate_config *config,
                    wefti_generate_choice *choices, double *sum_out)
{
    const size_t first = config->is_text ? 1 : 0;
    const size_t count = config->vocab - first;
    double temperature = config->temperature > 0 ? config->temperature : 1;
    double most = (double)logits[first];
    for (size_t i = 1; i < count; i++) {
        /* not fmax: gcc 12 breaks down over it on AArch64 */
        double logit = (double)logits[first + i];
        most = logit > most ? logit : most;
    }
    *sum_out = 0;
    for (size_t i = 0; i < count; i++) {
        double logit = (double)logits[first + i];
        choices[i].token = (int32_t)(first + i);
        choices[i].weight = exp((logit - most) / temperature);
        *sum_out += choices[i].weight;
    }
    return count;
}

int32_t wefti_generate_draw(const real *logits,
                            const wefti_generate_config *config,
                            wefti_generate_choice *choices,
                            wefti_random *random)
{
    double sum;
    size_t count = weigh(logits, config, choices, &sum);
    double point = wefti_random_uniform(random);
    if (config->temperature <= 0) {
        return find_likeliest(choices, count)->token;
    }
    if (config->top_k > 0 || config->top_p < 1) {
        count = keep_likely(choices, count, config, &sum);
    }
    point *= sum;
    while (count > 1 && choices[count - 1].weight <= 0) {
        count--;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        point -= choices[i].weight;
        if (point < 0) {
            return choices[i].token;
        }
    }
    return choices[count - 1].token;
}

/* One id of text, up to a space; what follows. */
static weft_status parse_one(const char **text, size_t vocab, int32_t *id_out)
{
    char word[32];
    int64_t value;
    size_t length = strcspn(*text, " \t\n");
    snprintf(word, sizeof(word), "%.*s", (int)(length < 31 ? length : 31),
             *text);
    if (!wefti_plain_int(word, &value) || value < 0 ||
        (uint64_t)value >= vocab) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--generate: '%s' is no token id; allowed are whole "
                           "numbers 0..%zu with spaces between them, as "
                           "model.vocab is a number",
                           word, vocab - 1);
    }
    *id_out = (int32_t)value;
    *text += length;
    return WEFT_OK;
}

weft_status wefti_generate_parse(const char *text, size_t vocab,
                                 int32_t **ids_out, size_t *count_out)
{
    /* Each takes a byte and a space, but for the last. */
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof(*ids));
    size_t count = 0;
    *ids_out = NULL;
    *count_out = 0;
    if (!ids) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--generate: out of memory");
    }
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && *(text += strspn(text, " \t\n")) != '\0') {
        status = parse_one(&text, vocab, &ids[count++]);
    }
    if (status != WEFT_OK || count == 0) {
        free(ids);
        return status;
    }
    *ids_out = ids;
    *count_out = count;
    return WEFT_OK;
}

/* What the model is shown, and where the last token of it is. */
typedef struct text_window {
    wefti_micro_batch batch;
    size_t part, row; /* of those that share a sequence; of its own tokens */
} text_window;

/* Where ranks share a sequence all of it is filled: what stands behind the last
 * token is not seen by it. */
static text_window share_window(const wefti_replica *replica,
                                const int32_t *seen, size_t count,
                                int32_t *tokens)
{
    const wefti_model_shape *shape = &replica->config.shape;
    text_window own = {.batch = wefti_pipe_batch_get(&replica->pipe.batch, 0)};
    memset(replica->window, 0, shape->seq * sizeof(*seen));
    memcpy(replica->window, seen, count * sizeof(*seen));
    wefti_context_take(&shape->context, shape->seq, replica->window, tokens);
    own.part =
        wefti_context_find(&shape->context, shape->seq, count - 1, &own.row);
    return own;
}

/* What is behind the text is of its last document. */
static void mark_documents(const wefti_replica *replica, const int32_t *seen,
                           size_t count)
{
    const size_t seq = replica->config.shape.seq;
    uint32_t *starts = wefti_pipe_batch_starts(&replica->pipe.batch, 0, 0);
    if (!starts) {
        return;
    }
    wefti_documents_find(seen, count, replica->config.document_end, starts);
    if (wefti_context_parts(&replica->config.shape.context) > 1) {
        while (*starts < count) {
            starts++;
        }
        *starts = (uint32_t)seq;
    }
}

/* An encoder reads the first bytes that it has. Returns its positions. */
static size_t show_encoder(const wefti_replica *replica, int32_t *bytes_out)
{
    const size_t count = replica->config.shape.encoder_seq;
    if (count > 0) {
        wefti_data_read(replica->config.encoder_data, 0, count, bytes_out);
    }
    return count;
}

/* The last tokens that the model can see. */
static text_window make_window(const wefti_replica *replica,
                               const int32_t *text, size_t length)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const size_t seen = length < shape->seq ? length : shape->seq;
    const int32_t *last = text + length - seen;
    int32_t *tokens = wefti_pipe_batch_tokens(&replica->pipe.batch, 0);
    text_window own;
    size_t encoded = 0;
    if (wefti_context_parts(&shape->context) > 1) {
        own = share_window(replica, last, seen, tokens);
    } else {
        encoded = show_encoder(replica, tokens);
        memcpy(tokens + encoded, last, seen * sizeof(*tokens));
        own = (text_window){wefti_pipe_batch_get(&replica->pipe.batch, 0), 0,
                            encoded + seen - 1};
        own.batch.length = encoded + seen;
    }
    own.batch.sequences = 1;
    mark_documents(replica, last, seen);
    wefti_replica_localize(replica, encoded, tokens, NULL, own.batch.length);
    return own;
}

/* What a draw needs, for a vocabulary. */
typedef struct drawing_room {
    real *last; /* logits */
    wefti_generate_choice *choices;
} drawing_room;

/* Codes of bf16 that lie where they become values: the last first. */
static void widen(real *values, size_t count)
{
    const uint16_t *codes = (const void *)values;
    for (size_t i = count; i > 0; i--) {
        uint16_t code;
        memcpy(&code, codes + i - 1, sizeof(code));
        values[i - 1] = (real)wefti_bf16_widen(code);
    }
}

/* Of the vocabulary what this rank has of the last token's logits; of ranks
 * that share a sequence one has that token. */
static weft_status share_part(const wefti_replica *replica,
                              const text_window *own, const void *logits,
                              real *part)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const size_t vocab = replica->plan.own.vocab;
    const size_t bytes = vocab * weft_dtype_bytes(wefti_model_dtype(shape));
    weft_comm *sharers = replica->mesh.comms[WEFTI_MESH_CONTEXT];
    weft_status status = WEFT_OK;
    if (own->part == shape->context.part) {
        status = weft_device_copy(replica->config.device, part,
                                  (const char *)logits + own->row * bytes,
                                  bytes, NULL);
    }
    if (status == WEFT_OK && shape->narrow) {
        widen(part, vocab);
    }
    return status == WEFT_OK && sharers
               ? weft_broadcast(part, part, vocab, WEFTI_REAL_DTYPE,
                                (int)own->part, sharers, NULL)
               : status;
}

/* The last token's logits, on all ranks that have the last stage. */
static weft_status read_logits(const wefti_replica *replica,
                               const text_window *own, const void *logits,
                               real *last)
{
    const wefti_tensor_parallel *tensor = &replica->plan.tensor;
    const size_t vocab = replica->plan.own.vocab;
    real *part = last + tensor->part * vocab;
    weft_status status = share_part(replica, own, logits, part);
    return status == WEFT_OK && tensor->parts > 1
               ? weft_allgather(part, last, vocab, WEFTI_REAL_DTYPE,
                                replica->mesh.comms[WEFTI_MESH_TENSOR], NULL)
               : status;
}

/* The next token, on all ranks that take part. */
static weft_status next_token(wefti_replica *replica, const text_window *own,
                              const wefti_generate_config *config,
                              const drawing_room *room, wefti_random *random,
                              int32_t *token_out)
{
    const void *logits;
    weft_status status =
        wefti_pipe_evaluate(replica, &own->batch, NULL, &logits);
    if (status != WEFT_OK) {
        return status;
    }
    if (logits) {
        status = read_logits(replica, own, logits, room->last);
        if (status != WEFT_OK) {
            return status;
        }
        *token_out =
            wefti_generate_draw(room->last, config, room->choices, random);
    }
    return weft_broadcast(token_out, token_out, 1, WEFT_DTYPE_I32,
                          wefti_pipe_last(&replica->pipe),
                          replica->mesh.comms[WEFTI_MESH_CHAIN], NULL);
}

weft_status wefti_generate(wefti_replica *replica,
                           const wefti_generate_config *config,
                           int32_t *tokens_out, size_t count)
{
    size_t length = config->prompt_count;
    int32_t *text = malloc((length + count) * sizeof(*text));
    const drawing_room room = {malloc(config->vocab * sizeof(*room.last)),
                               malloc(config->vocab * sizeof(*room.choices))};
    weft_status status = WEFT_OK;
    if (!text || !room.last || !room.choices) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu tokens",
                             length + count);
        goto err_free;
    }
    memcpy(text, config->prompt, length * sizeof(*text));
    wefti_random random =
        wefti_random_make(config->seed, config->prompt_count - 1);
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        const text_window own = make_window(replica, text, length);
        text[length] = 0;
        status =
            next_token(replica, &own, config, &room, &random, &text[length++]);
    }
    if (status == WEFT_OK) {
        memcpy(tokens_out, text + config->prompt_count, count * sizeof(*text));
    }
err_free:
    free(room.choices);
    free(room.last);
    free(text);
    return status;
}

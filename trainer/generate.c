/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/generate.c - sampling: the whole window is computed anew per byte.
 */
#include "trainer/generate.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = WEFTI_GENERATE_BYTES };

/* The likeliest byte of those with a weight, the first of equals. */
static size_t find_likeliest(const double *weight)
{
    size_t best = 1;
    for (size_t i = 2; i < BYTES; i++) {
        best = weight[i] > weight[best] ? i : best;
    }
    return best;
}

/* Leaves the likeliest their weights, takes the others'; their sum. */
static double keep_likely(double *weight, double sum,
                          const wefti_generate_config *config)
{
    double kept[BYTES] = {0};
    double kept_sum = 0;
    size_t most = config->top_k > 0 ? config->top_k : BYTES;
    for (size_t k = 0; k < most && kept_sum < config->top_p * sum; k++) {
        size_t i = find_likeliest(weight);
        if (weight[i] <= 0) {
            break;
        }
        kept[i] = weight[i];
        kept_sum += weight[i];
        weight[i] = 0;
    }
    memcpy(weight, kept, sizeof(kept));
    return kept_sum;
}

/* Never the separator, 0. */
unsigned char wefti_generate_draw(const real logits[WEFTI_GENERATE_BYTES],
                                  const wefti_generate_config *config,
                                  wefti_random *random)
{
    double weight[BYTES];
    double most = (double)logits[1];
    double temperature = config->temperature > 0 ? config->temperature : 1;
    for (size_t i = 2; i < BYTES; i++) {
        /* not fmax: gcc 12 breaks down over it on AArch64 */
        most = (double)logits[i] > most ? (double)logits[i] : most;
    }
    double sum = 0;
    weight[0] = 0;
    for (size_t i = 1; i < BYTES; i++) {
        weight[i] = exp(((double)logits[i] - most) / temperature);
        sum += weight[i];
    }
    double point = wefti_random_uniform(random);
    if (config->temperature <= 0) {
        return (unsigned char)find_likeliest(weight);
    }
    if (config->top_k > 0 || config->top_p < 1) {
        sum = keep_likely(weight, sum, config);
    }
    point *= sum;
    size_t last = BYTES - 1;
    while (last > 1 && weight[last] <= 0) {
        last--;
    }
    for (size_t i = 1; i < last; i++) {
        point -= weight[i];
        if (point < 0) {
            return (unsigned char)i;
        }
    }
    return (unsigned char)last;
}

/* The last bytes of text that the model can see. */
static wefti_micro_batch make_window(const wefti_replica *replica,
                                     const unsigned char *text, size_t length)
{
    size_t seq = replica->config.shape.seq;
    size_t seen = length < seq ? length : seq;
    int32_t *tokens = wefti_pipe_batch_tokens(&replica->pipe.batch, 0);
    wefti_micro_batch batch = wefti_pipe_batch_get(&replica->pipe.batch, 0);
    for (size_t i = 0; i < seen; i++) {
        tokens[i] = text[length - seen + i];
    }
    batch.sequences = 1;
    batch.length = seen;
    return batch;
}

/* The next byte, on all ranks that take part. */
static weft_status next_byte(wefti_replica *replica,
                             const wefti_micro_batch *batch,
                             const wefti_generate_config *config,
                             wefti_random *random, unsigned char *byte_out)
{
    const real *logits;
    weft_status status = wefti_pipe_evaluate(replica, batch, NULL, &logits);
    if (status != WEFT_OK) {
        return status;
    }
    if (logits) {
        real last[BYTES];
        status = weft_device_copy(replica->config.device, last,
                                  logits + (batch->length - 1) *
                                               replica->config.shape.vocab,
                                  sizeof(last), NULL);
        if (status != WEFT_OK) {
            return status;
        }
        *byte_out = wefti_generate_draw(last, config, random);
    }
    return weft_broadcast(byte_out, byte_out, 1, WEFT_DTYPE_U8,
                          wefti_pipe_last(&replica->pipe),
                          replica->mesh.comms[WEFTI_MESH_CHAIN], NULL);
}

weft_status wefti_generate(wefti_replica *replica,
                           const wefti_generate_config *config, char *bytes_out,
                           size_t count)
{
    size_t prompt_bytes = strlen(config->prompt);
    unsigned char *text = malloc(prompt_bytes + 1 + count);
    if (!text) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           prompt_bytes + count);
    }
    /* Every text begins after the end of another one. */
    text[0] = '\n';
    memcpy(text + 1, config->prompt, prompt_bytes);
    size_t length = 1 + prompt_bytes;
    wefti_random random = wefti_random_make(config->seed, prompt_bytes);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        wefti_micro_batch batch = make_window(replica, text, length);
        text[length] = 0;
        status = next_byte(replica, &batch, config, &random, &text[length++]);
    }
    if (status == WEFT_OK) {
        memcpy(bytes_out, text + 1 + prompt_bytes, count);
    }
    free(text);
    return status;
}

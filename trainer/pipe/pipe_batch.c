/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_batch.c - tokens to the device, losses from it.
 */
#include "trainer/pipe/pipe_batch.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static size_t tokens_of(const wefti_pipe_batch *batch)
{
    return batch->sequences * batch->length;
}

/* ---- life -----------------------------------------------------------------
 */

/* NULL once something has failed. */
static void *alloc(const wefti_pipe_batch *batch, weft_memory_kind kind,
                   size_t elem_bytes, weft_status *status)
{
    void *made = NULL;
    if (*status == WEFT_OK) {
        *status = weft_device_alloc_kind(
            batch->device, kind, batch->count * tokens_of(batch) * elem_bytes,
            &made);
    }
    return *status == WEFT_OK ? made : NULL;
}

weft_status wefti_pipe_batch_init(wefti_pipe_batch *batch,
                                  const wefti_pipe_batch *given)
{
    const weft_memory_kind here = WEFT_MEMORY_PINNED,
                           there = WEFT_MEMORY_DEVICE;
    weft_status status = WEFT_OK;
    *batch = *given;
    batch->host_tokens = alloc(batch, here, sizeof(int32_t), &status);
    batch->host_targets = alloc(batch, here, sizeof(int32_t), &status);
    batch->host_losses = alloc(batch, here, sizeof(real), &status);
    batch->tokens = alloc(batch, there, sizeof(int32_t), &status);
    batch->targets = alloc(batch, there, sizeof(int32_t), &status);
    batch->losses = alloc(batch, there, sizeof(real), &status);
    batch->measured = calloc(batch->count, sizeof(*batch->measured));
    return status != WEFT_OK || batch->measured
               ? status
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "no memory for %zu micro-batches", batch->count);
}

void wefti_pipe_batch_fini(wefti_pipe_batch *batch)
{
    weft_device_free(batch->device, batch->host_tokens);
    weft_device_free(batch->device, batch->host_targets);
    weft_device_free(batch->device, batch->host_losses);
    weft_device_free(batch->device, batch->tokens);
    weft_device_free(batch->device, batch->targets);
    weft_device_free(batch->device, batch->losses);
    free(batch->measured);
    *batch = (wefti_pipe_batch){0};
}

size_t wefti_pipe_batch_bytes(const wefti_pipe_batch *batch)
{
    return 2 * batch->count * tokens_of(batch) *
           (2 * sizeof(int32_t) + sizeof(real));
}

/* ---- there ----------------------------------------------------------------
 */

int32_t *wefti_pipe_batch_tokens(const wefti_pipe_batch *batch, size_t micro)
{
    WEFTI_ASSERT(micro < batch->count);
    return batch->host_tokens + micro * tokens_of(batch);
}

int32_t *wefti_pipe_batch_targets(const wefti_pipe_batch *batch, size_t micro)
{
    WEFTI_ASSERT(micro < batch->count);
    return batch->host_targets + micro * tokens_of(batch);
}

weft_status wefti_pipe_batch_send(const wefti_pipe_batch *batch, size_t count)
{
    const size_t bytes = count * tokens_of(batch) * sizeof(int32_t);
    WEFTI_ASSERT(count <= batch->count);
    weft_status status =
        weft_device_copy(batch->device, batch->tokens, batch->host_tokens,
                         bytes, batch->compute);
    return status == WEFT_OK
               ? weft_device_copy(batch->device, batch->targets,
                                  batch->host_targets, bytes, batch->compute)
               : status;
}

wefti_micro_batch wefti_pipe_batch_get(const wefti_pipe_batch *batch,
                                       size_t micro)
{
    WEFTI_ASSERT(micro < batch->count);
    return (wefti_micro_batch){batch->tokens + micro * tokens_of(batch),
                               batch->targets + micro * tokens_of(batch),
                               batch->sequences, batch->length};
}

/* ---- and back -------------------------------------------------------------
 */

real *wefti_pipe_batch_measure(wefti_pipe_batch *batch, size_t micro)
{
    WEFTI_ASSERT(micro < batch->count);
    batch->measured[micro] = true;
    return batch->losses + micro * tokens_of(batch);
}

weft_status wefti_pipe_batch_collect(const wefti_pipe_batch *batch)
{
    const size_t tokens = tokens_of(batch);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < batch->count && status == WEFT_OK; i++) {
        if (batch->measured[i]) {
            status =
                weft_device_copy(batch->device, batch->host_losses + i * tokens,
                                 batch->losses + i * tokens,
                                 tokens * sizeof(real), batch->compute);
        }
    }
    return status;
}

double wefti_pipe_batch_loss(const wefti_pipe_batch *batch, size_t micro,
                             size_t sequence)
{
    const real *losses = batch->host_losses +
                         (micro * batch->sequences + sequence) * batch->length;
    double sum = 0;
    for (size_t t = 0; t < batch->length; t++) {
        sum += (double)losses[t];
    }
    return sum;
}

void wefti_pipe_batch_sum(wefti_pipe_batch *batch, double *sums)
{
    for (size_t micro = 0; micro < batch->count; micro++) {
        for (size_t i = 0;
             sums && batch->measured[micro] && i < batch->sequences; i++) {
            sums[micro * batch->sequences + i] =
                wefti_pipe_batch_loss(batch, micro, i);
        }
    }
    memset(batch->measured, 0, batch->count * sizeof(*batch->measured));
}

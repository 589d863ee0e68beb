/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_batch.c - tokens to the device, and their losses.
 */
#include "trainer/pipe/pipe_batch.h"

#include "base/check.h"
#include "base/error.h"
#include "kernels/math/math_stream.h"

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
                   size_t count, size_t elem_bytes, weft_status *status)
{
    void *made = NULL;
    if (*status == WEFT_OK) {
        *status = weft_device_alloc_kind(
            batch->device, kind, count * tokens_of(batch) * elem_bytes, &made);
    }
    return *status == WEFT_OK ? made : NULL;
}

weft_status wefti_pipe_batch_init(wefti_pipe_batch *batch,
                                  const wefti_pipe_batch *given)
{
    const weft_memory_kind here = WEFT_MEMORY_PINNED,
                           there = WEFT_MEMORY_DEVICE;
    const size_t all = given->count;
    weft_status status = WEFT_OK;
    *batch = *given;
    batch->host_tokens = alloc(batch, here, all, sizeof(int32_t), &status);
    batch->host_targets = alloc(batch, here, all, sizeof(int32_t), &status);
    batch->host_losses = alloc(batch, here, 1, sizeof(real), &status);
    batch->tokens = alloc(batch, there, all, sizeof(int32_t), &status);
    batch->targets = alloc(batch, there, all, sizeof(int32_t), &status);
    batch->losses = alloc(batch, there, all, sizeof(real), &status);
    batch->measured = calloc(batch->count, sizeof(*batch->measured));
    batch->starts = calloc(batch->count * batch->sequences * batch->stride + 1,
                           sizeof(*batch->starts));
    return status != WEFT_OK || (batch->measured && batch->starts)
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
    free(batch->starts);
    *batch = (wefti_pipe_batch){0};
}

size_t wefti_pipe_batch_bytes(const wefti_pipe_batch *batch)
{
    return tokens_of(batch) * (batch->count * 4 * sizeof(int32_t) +
                               (batch->count + 1) * sizeof(real)) +
           batch->count * batch->sequences * batch->stride *
               sizeof(*batch->starts);
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

uint32_t *wefti_pipe_batch_starts(const wefti_pipe_batch *batch, size_t micro,
                                  size_t sequence)
{
    WEFTI_ASSERT(micro < batch->count && sequence < batch->sequences);
    return batch->stride == 0
               ? NULL
               : batch->starts +
                     (micro * batch->sequences + sequence) * batch->stride;
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
    return (wefti_micro_batch){
        batch->tokens + micro * tokens_of(batch),
        batch->targets + micro * tokens_of(batch),
        batch->sequences,
        batch->length,
        {wefti_pipe_batch_starts(batch, micro, 0), batch->stride}};
}

/* ---- losses -----------------------------------------------------------------
 */

real *wefti_pipe_batch_measure(wefti_pipe_batch *batch, size_t micro)
{
    WEFTI_ASSERT(micro < batch->count);
    batch->measured[micro] = true;
    return batch->losses + micro * tokens_of(batch);
}

/* Of micro-batches first .. end - 1. */
static weft_status total(const wefti_pipe_batch *batch, size_t first,
                         size_t end, double *totals)
{
    const size_t rows = (end - first) * batch->sequences;
    const wefti_math_tensor sums = wefti_math_flat(
        totals + first * batch->sequences, WEFT_DTYPE_F64, rows);
    const wefti_math_tensor losses =
        wefti_math_rows(batch->losses + first * tokens_of(batch),
                        WEFTI_REAL_DTYPE, rows, batch->length);
    return wefti_stream_totals(batch->compute, &sums, &losses);
}

weft_status wefti_pipe_batch_total(wefti_pipe_batch *batch, double *totals)
{
    weft_status status = WEFT_OK;
    size_t end = 0;
    for (size_t first = 0; first < batch->count && status == WEFT_OK;
         first = end + 1) {
        for (end = first; end < batch->count && batch->measured[end]; end++) {
        }
        status =
            totals && first < end ? total(batch, first, end, totals) : WEFT_OK;
    }
    memset(batch->measured, 0, batch->count * sizeof(*batch->measured));
    return status;
}

double wefti_pipe_batch_loss(const wefti_pipe_batch *batch, size_t sequence)
{
    const real *losses = batch->host_losses + sequence * batch->length;
    double sum = 0;
    for (size_t t = 0; t < batch->length; t++) {
        sum += (double)losses[t];
    }
    return sum;
}

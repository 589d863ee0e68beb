/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/step_sums.c - one array of the device, and a part of it on the host.
 */
#include "trainer/step_sums.h"

#include "kernels/math/math_stream.h"
#include "weft/op.h"

#include <string.h>

static size_t count_times(const wefti_step_sums *sums)
{
    return sums->nranks * WEFTI_STEP_TIMES;
}

/* What is collected. */
static size_t count_summed(const wefti_step_sums *sums)
{
    return sums->blocks + sums->experts + sums->sequences + count_times(sums);
}

/* What the host reads. */
static size_t count_read(const wefti_step_sums *sums)
{
    return sums->experts + sums->sequences + count_times(sums) + 1;
}

weft_status wefti_step_sums_init(wefti_step_sums *sums,
                                 const wefti_step_sums *given)
{
    void *there = NULL, *here = NULL;
    *sums = *given;
    sums->rank = (size_t)weft_comm_get_rank(given->comm);
    sums->nranks = (size_t)weft_comm_get_nranks(given->comm);
    weft_status status = weft_device_alloc(
        sums->device, (count_summed(sums) + 2) * sizeof(double), &there);
    if (status == WEFT_OK) {
        sums->squares = there;
        sums->loads = sums->squares + sums->blocks;
        sums->losses = sums->loads + sums->experts;
        sums->times = sums->losses + sums->sequences;
        sums->norm = sums->times + count_times(sums);
        sums->factor = sums->norm + 1;
        status =
            weft_device_alloc_kind(sums->device, WEFT_MEMORY_PINNED,
                                   count_read(sums) * sizeof(double), &here);
    }
    sums->host = here;
    return status == WEFT_OK ? weft_event_create(sums->device, &sums->ready)
                             : status;
}

void wefti_step_sums_fini(wefti_step_sums *sums)
{
    weft_event_destroy(sums->ready);
    weft_device_free(sums->device, sums->host);
    weft_device_free(sums->device, sums->squares);
    *sums = (wefti_step_sums){0};
}

weft_status wefti_step_sums_begin(wefti_step_sums *sums,
                                  const double times[WEFTI_STEP_TIMES])
{
    const size_t own = sums->rank * WEFTI_STEP_TIMES;
    const size_t bytes = WEFTI_STEP_TIMES * sizeof(*times);
    double *sent = sums->host + sums->experts + sums->sequences + own;
    /* Zeros of any type are zeros of all. */
    const wefti_math_tensor all =
        wefti_math_flat(sums->squares, WEFTI_REAL_DTYPE,
                        count_summed(sums) * sizeof(double) / sizeof(real));
    memcpy(sent, times, bytes);
    weft_status status = wefti_stream_fill(sums->compute, &all, 0);
    return status == WEFT_OK ? weft_device_copy(sums->device, sums->times + own,
                                                sent, bytes, sums->compute)
                             : status;
}

weft_status wefti_step_sums_collect(wefti_step_sums *sums)
{
    if (sums->nranks == 1) {
        return WEFT_OK;
    }
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = sums->squares,
                  .recv = sums->squares,
                  .count = count_summed(sums),
                  .dtype = WEFT_DTYPE_F64,
                  .redop = WEFT_REDOP_SUM,
                  .class_id = WEFT_CLASS_DP,
                  .label = "norm, losses, times"};
    return weft_op_post(&op, 0, sums->comm, sums->compute);
}

static wefti_math_tensor flat(double *at, size_t elems)
{
    return wefti_math_flat(at, WEFT_DTYPE_F64, elems);
}

weft_status wefti_step_sums_clip(wefti_step_sums *sums)
{
    const wefti_math_tensor norm = flat(sums->norm, 1);
    const wefti_math_tensor factor = flat(sums->factor, 1);
    const wefti_math_tensor squares = flat(sums->squares, sums->blocks);
    weft_status status = wefti_stream_clip(sums->compute, &norm, &factor,
                                           &squares, 1, sums->most);
    if (status == WEFT_OK) {
        status =
            weft_device_copy(sums->device, sums->host, sums->loads,
                             count_read(sums) * sizeof(double), sums->compute);
    }
    return status == WEFT_OK ? weft_event_post(sums->ready, sums->compute)
                             : status;
}

weft_status wefti_step_sums_read(wefti_step_sums *sums,
                                 wefti_step_facts *facts_out)
{
    weft_status status = weft_event_wait(sums->ready, NULL);
    const double *losses = sums->host + sums->experts;
    const double *times = losses + sums->sequences;
    *facts_out = (wefti_step_facts){.loads = sums->host,
                                    .losses = losses,
                                    .times = times,
                                    .norm = times[count_times(sums)]};
    return status;
}

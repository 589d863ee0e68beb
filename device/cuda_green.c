/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_green.c - streams that have a part of the multiprocessors only:
 * a green context each, cut from the whole GPU.
 *
 * The driver rounds up what it is asked for to what the chip can part (on an
 * H100 multiples of 8, at least 8). A budget is a limit, so the largest part
 * is sought that is not above it. Parts of different streams may overlap: each
 * is cut by itself. The context lasts as long as its stream and the events that
 * were posted on it last.
 */
#include "base/error.h"
#include "device/cuda_gpu.h"

#include <stdlib.h>

bool wefti_cuda_green_is_there(wefti_cuda_gpu *gpu)
{
    const wefti_cuda_api *api = gpu->api;
    wefti_cuda_resource all = {0};
    return api->cuDeviceGetDevResource && api->cuDevSmResourceSplitByCount &&
           api->cuDevResourceGenerateDesc && api->cuGreenCtxCreate &&
           api->cuGreenCtxDestroy && api->cuGreenCtxStreamCreate &&
           api->cuCtxFromGreenCtx &&
           api->cuDeviceGetDevResource(gpu->native, &all,
                                       WEFTI_CU_DEV_RESOURCE_TYPE_SM) ==
               WEFTI_CUDA_SUCCESS;
}

/* How many multiprocessors the driver makes of least; 0: it cannot. */
static unsigned split(wefti_cuda_gpu *gpu, const wefti_cuda_resource *all,
                      unsigned least, wefti_cuda_resource *part_out)
{
    unsigned groups = 1;
    const int result = gpu->api->cuDevSmResourceSplitByCount(
        part_out, &groups, all, NULL, 0, least);
    wefti_cuda_note(gpu, result);
    return result == WEFTI_CUDA_SUCCESS && groups == 1 ? part_out->sm.count : 0;
}

static weft_status cut(wefti_cuda_gpu *gpu, unsigned budget,
                       wefti_cuda_resource *part_out)
{
    wefti_cuda_resource all = {0};
    weft_status status =
        wefti_cuda_check(gpu,
                         gpu->api->cuDeviceGetDevResource(
                             gpu->native, &all, WEFTI_CU_DEV_RESOURCE_TYPE_SM),
                         "cuDeviceGetDevResource");
    if (status < 0) {
        return status;
    }
    for (unsigned wanted = budget; wanted > 0; wanted--) {
        const unsigned made = split(gpu, &all, wanted, part_out);
        if (made > 0 && made <= budget) {
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "sm_budget %u: the least that cuda device %d can part "
                       "is %u of its %d multiprocessors",
                       budget, gpu->index, split(gpu, &all, 1, part_out),
                       gpu->multiprocessors);
}

static weft_status create_context(wefti_cuda_gpu *gpu,
                                  wefti_cuda_resource *part,
                                  struct CUgreenCtx_st **out)
{
    struct CUdevResourceDesc_st *description = NULL;
    weft_status status = wefti_cuda_check(
        gpu, gpu->api->cuDevResourceGenerateDesc(&description, part, 1),
        "cuDevResourceGenerateDesc");
    return status < 0 ? status
                      : wefti_cuda_check(gpu,
                                         gpu->api->cuGreenCtxCreate(
                                             out, description, gpu->native,
                                             WEFTI_CU_GREEN_CTX_DEFAULT_STREAM),
                                         "cuGreenCtxCreate");
}

void wefti_cuda_green_hold(wefti_cuda_green *green)
{
    if (green) {
        atomic_fetch_add(&green->users, 1);
    }
}

void wefti_cuda_green_drop(wefti_cuda_gpu *gpu, wefti_cuda_green *green)
{
    if (!green || atomic_fetch_sub(&green->users, 1) != 1) {
        return;
    }
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        wefti_cuda_note(gpu, gpu->api->cuGreenCtxDestroy(green->native));
        wefti_cuda_leave(gpu);
    }
    free(green);
}

weft_status wefti_cuda_green_create(wefti_cuda_gpu *gpu, int sm_budget,
                                    int priority, wefti_cuda_stream *stream)
{
    wefti_cuda_resource part = {0};
    wefti_cuda_green *green = calloc(1, sizeof(*green));
    if (!green) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stream");
    }
    weft_status status = cut(gpu, (unsigned)sm_budget, &part);
    if (status == WEFT_OK) {
        status = create_context(gpu, &part, &green->native);
    }
    if (status < 0) {
        free(green);
        return status;
    }
    green->users = 1;
    stream->multiprocessors = (int)part.sm.count;
    status = wefti_cuda_check(
        gpu, gpu->api->cuCtxFromGreenCtx(&stream->context, green->native),
        "cuCtxFromGreenCtx");
    if (status == WEFT_OK) {
        status = wefti_cuda_check(gpu,
                                  gpu->api->cuGreenCtxStreamCreate(
                                      &stream->native, green->native,
                                      WEFTI_CU_STREAM_NON_BLOCKING, priority),
                                  "cuGreenCtxStreamCreate");
    }
    if (status < 0) {
        wefti_cuda_green_drop(gpu, green);
        return status;
    }
    stream->green = green;
    return WEFT_OK;
}

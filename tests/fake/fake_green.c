/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_green.c - parts of the multiprocessors (green contexts): 132
 * of them, in groups of at least 8 and of multiples of 8; of 2 where the split
 * ignores co-scheduling. Kernels of the fake do not run faster on more.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

enum { MULTIPROCESSORS = 132, GROUP = 8, FINE_GROUP = 2 };

/* In the padding: where a resource comes from; an output of a split is not
 * split again (cuDevSmResourceSplitByCount). */
enum { FROM_DEVICE = 1, FROM_SPLIT, FROM_REST };

/* No call frees a descriptor: each lasts as long as the driver. */
struct CUdevResourceDesc_st {
    CUdevResourceDesc next;
    unsigned multiprocessors;
};

struct CUgreenCtx_st {
    CUgreenCtx next; /* of those destroyed */
    struct CUctx_st context;
    unsigned multiprocessors;
};

/* With the lock. Work that is still to end refers to destroyed contexts. */
static CUdevResourceDesc descriptors;
static CUgreenCtx destroyed;

static CUdevResource make(unsigned count, unsigned char origin)
{
    CUdevResource made;
    memset(&made, 0, sizeof(made));
    made.type = CU_DEV_RESOURCE_TYPE_SM;
    made._internal_padding[0] = origin;
    made.sm = (CUdevSmResource){count, GROUP, GROUP};
    return made;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                CUdevResourceType type)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !resource) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!fake_is_ordinal(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    *resource = make(MULTIPROCESSORS, FROM_DEVICE);
    return CUDA_SUCCESS;
}

/* cuDevSmResourceSplitByCount: groups alike, maybe fewer than asked for; with
 * no array it only counts them. */
CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *count,
                                     const CUdevResource *input,
                                     CUdevResource *rest, unsigned flags,
                                     unsigned least)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !count || !input || flags > 3) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) {
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    }
    if (input->_internal_padding[0] != FROM_DEVICE) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    if (least > input->sm.smCount) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned unit = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
                        ? FINE_GROUP
                        : GROUP;
    unsigned size = least ? (least + unit - 1) / unit * unit : unit;
    unsigned most = input->sm.smCount / size;
    unsigned made = groups && *count < most ? *count : most;
    if (made == 0) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    for (unsigned i = 0; groups && i < made; i++) {
        groups[i] = make(size, FROM_SPLIT);
    }
    if (rest) {
        *rest = make(input->sm.smCount - made * size, FROM_REST);
    }
    *count = made;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc,
                                   CUdevResource *resources, unsigned count)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !desc || !resources || count == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += resources[i].sm.smCount;
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) {
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        }
    }
    if (sum == 0 || sum > MULTIPROCESSORS) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    CUdevResourceDesc made = malloc(sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->multiprocessors = sum;
    pthread_mutex_lock(&fake.lock);
    made->next = descriptors;
    descriptors = made;
    pthread_mutex_unlock(&fake.lock);
    *desc = made;
    return CUDA_SUCCESS;
}

/* cuGreenCtxCreate: DEFAULT_STREAM is required; it retains the primary context
 * and is not made current. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc,
                          CUdevice device, unsigned flags)
{
    CUcontext primary;
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !green || !desc ||
        flags != CU_GREEN_CTX_DEFAULT_STREAM) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUgreenCtx made = calloc(1, sizeof(*made));
    if (!made) {
        cuDevicePrimaryCtxRelease_v2(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->multiprocessors = desc->multiprocessors;
    made->context.ordinal = device;
    made->context.green = made;
    made->context.primary = primary;
    *green = made;
    return CUDA_SUCCESS;
}

/* cuGreenCtxDestroy: its streams go before it; CONTEXT_IS_DESTROYED for one
 * that has gone. */
CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !green) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake.lock);
    result = green->context.gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
    for (CUstream at = fake.streams; at; at = at->next) {
        if (at->context == &green->context && !at->destroyed) {
            fake_say("cuGreenCtxDestroy: a stream of it is not yet destroyed");
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (result == CUDA_SUCCESS) {
        green->context.gone = true;
        green->next = destroyed;
        destroyed = green;
    }
    pthread_mutex_unlock(&fake.lock);
    return result == CUDA_SUCCESS
               ? cuDevicePrimaryCtxRelease_v2(green->context.ordinal)
               : result;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !context || !green) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *context = &green->context;
    return CUDA_SUCCESS;
}

/* cuGreenCtxStreamCreate: NON_BLOCKING is required. */
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green,
                                unsigned flags, int priority)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !stream || !green ||
        flags != CU_STREAM_NON_BLOCKING) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    return fake_stream_create(&green->context, flags, priority, stream);
}

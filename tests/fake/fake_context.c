/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_context.c - primary contexts, one a device, the stack of each
 * thread's current ones, and which other devices a context may access.
 */
#include "tests/fake/fake.h"

enum { MOST_PUSHED = 64 };

static _Thread_local CUcontext stack[MOST_PUSHED];
static _Thread_local unsigned depth;

CUcontext fake_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

/* Whether a handle is a context that is alive. A green one is its device's
 * while that is retained, which it does itself. */
static bool is_context(CUcontext context)
{
    pthread_mutex_lock(&fake.lock);
    bool alive = context->primary->retained != 0 && !context->gone;
    pthread_mutex_unlock(&fake.lock);
    return alive;
}

/* cuDevicePrimaryCtxRetain: made with the first, not made current. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !context) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!fake_is_ordinal(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake.lock);
    CUcontext primary = &fake.devices[device].primary;
    if (primary->retained++ == 0) {
        primary->ordinal = device;
        primary->primary = primary;
    }
    *context = primary;
    result = fake.sticky;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuDevicePrimaryCtxRelease: INVALID_CONTEXT where it is not retained. Memory
 * of the last one's context goes with it; the fake keeps it, faulting. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !fake_is_ordinal(device)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake.lock);
    CUcontext primary = &fake.devices[device].primary;
    if (primary->retained == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--primary->retained == 0) {
        primary->peers = 0;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuDevicePrimaryCtxGetState: whether it is there; its flags are never set. */
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags,
                                    int *active)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !fake_is_ordinal(device)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&fake.lock);
    *flags = 0;
    *active = fake.devices[device].primary.retained > 0;
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

/* cuCtxSetCurrent: replaces the top; NULL pops it. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context) {
        depth -= depth != 0;
        return CUDA_SUCCESS;
    }
    if (!is_context(context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    depth += depth == 0;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && !context) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *context = fake_current();
    }
    return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!context || !is_context(context)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (depth == MOST_PUSHED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && depth == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (result == CUDA_SUCCESS) {
        depth--;
        if (context) {
            *context = stack[depth];
        }
    }
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && !fake_current()) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (result == CUDA_SUCCESS && !device) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *device = fake_current()->ordinal;
    }
    return result;
}

/* cuCtxGetDevice_v2: of the current context if that given is NULL. */
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    CUresult result = fake_enter();
    if (!context || result != CUDA_SUCCESS) {
        return result != CUDA_SUCCESS ? result : cuCtxGetDevice(device);
    }
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = context->ordinal;
    return CUDA_SUCCESS;
}

/* cuCtxSynchronize: all preceding work of the context; refused, and breaking
 * the capture, while one of its streams captures. */
CUresult cuCtxSynchronize(void)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUcontext context = fake_current();
    pthread_mutex_lock(&fake.lock);
    for (CUstream at = fake.streams; at; at = at->next) {
        if (at->context == context && at->capture) {
            result = fake_capture_refuse(at);
        }
    }
    uint64_t backoff_ns = 0;
    while (result == CUDA_SUCCESS) {
        bool busy = false;
        for (CUstream at = fake.streams; at; at = at->next) {
            busy = busy || (at->context == context && at->first);
        }
        if (!busy || fake.sticky != CUDA_SUCCESS) {
            result = fake.sticky;
            break;
        }
        fake_wait_locked(&backoff_ns);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuCtxGetStreamPriorityRange: lower numbers are higher priorities. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUresult result = fake_enter_context();
    if (result == CUDA_SUCCESS && least) {
        *least = 0;
    }
    if (result == CUDA_SUCCESS && greatest) {
        *greatest = -5;
    }
    return result;
}

/* cuCtxEnablePeerAccess: from the current context to the memory of `peer`, one
 * way only. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || flags != 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!peer || !is_context(peer)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUcontext self = fake_current()->primary;
    if (peer->ordinal == self->ordinal || fake_get_settings()->no_peer) {
        return peer->ordinal == self->ordinal
                   ? CUDA_ERROR_INVALID_CONTEXT
                   : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    pthread_mutex_lock(&fake.lock);
    uint32_t bit = UINT32_C(1) << peer->ordinal;
    if (self->peers & bit) {
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    self->peers |= bit;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

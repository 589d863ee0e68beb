/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_event.c - events of a GPU.
 *
 * An event of the driver may be recorded on streams of its own context only,
 * and a stream with a budget of multiprocessors has a context of its own. So
 * the driver's event is made for the context of the first post, and anew when
 * a post comes from a stream of another one. A stream that waits for the older
 * post has taken it over already; a thread asks under the lock. An event
 * outlives the stream that it was posted on, and keeps its context for that.
 */
#include "base/error.h"
#include "device/await.h"
#include "device/cuda_gpu.h"

#include <stdlib.h>

typedef struct cuda_event {
    weft_event base; /* its lock guards what follows */
    struct CUevent_st *native;
    struct CUctx_st *context; /* of native */
    wefti_cuda_green *green;  /* of that, held; or NULL */
} cuda_event;

static cuda_event *of(const weft_event *event)
{
    return (cuda_event *)event;
}

weft_status wefti_cuda_event_create(weft_device *device, weft_event **out)
{
    weft_status status = wefti_cuda_get_failure(wefti_cuda_gpu_of(device));
    if (status < 0) {
        return status;
    }
    cuda_event *event = calloc(1, sizeof(*event));
    if (!event) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an event");
    }
    *out = &event->base;
    return WEFT_OK;
}

static void destroy_native(wefti_cuda_gpu *gpu, cuda_event *event)
{
    if (event->native) {
        wefti_cuda_note(gpu, gpu->api->cuEventDestroy(event->native));
    }
    event->native = NULL;
}

void wefti_cuda_event_destroy(weft_event *event)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(event->device);
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        destroy_native(gpu, of(event));
        wefti_cuda_leave(gpu);
    }
    wefti_cuda_green_drop(gpu, of(event)->green);
    free(event);
}

/* Makes the event one of the stream's context. */
static weft_status match_locked(wefti_cuda_gpu *gpu, cuda_event *event,
                                const wefti_cuda_stream *stream)
{
    struct CUctx_st *outer;
    if (event->native && event->context == stream->context) {
        return WEFT_OK;
    }
    weft_status status = wefti_cuda_check(
        gpu, gpu->api->cuCtxPushCurrent(stream->context), "cuCtxPushCurrent");
    if (status < 0) {
        return status;
    }
    destroy_native(gpu, event);
    wefti_cuda_green_drop(gpu, event->green);
    event->context = stream->context;
    event->green = stream->green;
    wefti_cuda_green_hold(event->green);
    status = wefti_cuda_check(
        gpu, gpu->api->cuEventCreate(&event->native, WEFTI_CU_EVENT_DEFAULT),
        "cuEventCreate");
    wefti_cuda_note(gpu, gpu->api->cuCtxPopCurrent(&outer));
    return status;
}

weft_status wefti_cuda_event_post(weft_event *base, weft_stream *base_stream)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base_stream);
    cuda_event *event = of(base);
    weft_status status = wefti_cuda_enter_stream(gpu, stream, "event");
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&base->lock);
    status = match_locked(gpu, event, stream);
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu, gpu->api->cuEventRecord(event->native, stream->native),
            "cuEventRecord");
    }
    pthread_mutex_unlock(&base->lock);
    wefti_cuda_leave(gpu);
    return status;
}

static weft_status query_locked(wefti_cuda_gpu *gpu, const cuda_event *event)
{
    const int result = gpu->api->cuEventQuery(event->native);
    return result == WEFTI_CUDA_ERROR_NOT_READY
               ? WEFT_INPROGRESS
               : wefti_cuda_check(gpu, result, "cuEventQuery");
}

weft_status wefti_cuda_event_test(weft_event *base)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&base->lock);
    status = query_locked(gpu, of(base));
    pthread_mutex_unlock(&base->lock);
    wefti_cuda_leave(gpu);
    return status;
}

typedef struct look {
    weft_event *event;
    weft_status status;
} look;

static bool is_over(const void *arg)
{
    look *looked = (look *)arg; /* the waiter's own */
    looked->status = wefti_cuda_event_test(looked->event);
    return looked->status != WEFT_INPROGRESS;
}

weft_status wefti_cuda_event_wait(weft_event *base, weft_stream *base_stream)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base_stream);
    if (!stream) {
        look looked = {base, WEFT_INPROGRESS};
        wefti_poll(base->device, is_over, &looked);
        return looked.status == WEFT_INPROGRESS ? wefti_cuda_get_failure(gpu)
                                                : looked.status;
    }
    weft_status status =
        wefti_cuda_enter_stream(gpu, stream, "wait for an event");
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&base->lock);
    status = wefti_cuda_check(
        gpu, gpu->api->cuStreamWaitEvent(stream->native, of(base)->native, 0),
        "cuStreamWaitEvent");
    pthread_mutex_unlock(&base->lock);
    wefti_cuda_leave(gpu);
    return status;
}

weft_status wefti_cuda_event_time(weft_event *base, int64_t *ns_out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    int64_t ns = 0;
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&base->lock);
    status = query_locked(gpu, of(base));
    if (status == WEFT_OK) {
        status = wefti_cuda_clock_read(gpu, of(base)->native, &ns, NULL);
    }
    pthread_mutex_unlock(&base->lock);
    wefti_cuda_leave(gpu);
    if (status == WEFT_OK) {
        *ns_out = ns;
    }
    return status;
}

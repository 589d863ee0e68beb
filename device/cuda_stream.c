/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_stream.c - streams: made here, or somebody else's that are
 * wrapped, and what it takes to wait for one.
 *
 * A drain queues a store of the next number into the stream's word of progress
 * (device/holds.h), and then looks at the word. It never waits inside the
 * driver: gates that fail meanwhile must be released again, and an error of the
 * GPU must end it, after which the store never comes.
 */
#include "base/error.h"
#include "base/log.h"
#include "device/await.h"
#include "device/cuda_gpu.h"
#include "device/holds.h"

#include <stdlib.h>

static int clamp(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

/* Lower numbers are the higher priorities, here as there. */
static weft_status create_native(wefti_cuda_gpu *gpu, int priority,
                                 wefti_cuda_stream *stream)
{
    stream->context = gpu->context;
    stream->multiprocessors = gpu->multiprocessors;
    return wefti_cuda_check(
        gpu,
        gpu->api->cuStreamCreateWithPriority(
            &stream->native, WEFTI_CU_STREAM_NON_BLOCKING, priority),
        "cuStreamCreateWithPriority");
}

static weft_status wrap_native(wefti_cuda_gpu *gpu, void *native,
                               wefti_cuda_stream *stream)
{
    struct CUctx_st *context = NULL;
    if (native == WEFTI_CU_STREAM_PER_THREAD) {
        return wefti_error(WEFT_ERR_INVALID,
                           "native is CU_STREAM_PER_THREAD: allowed is a "
                           "stream that is the same in all threads");
    }
    weft_status status =
        wefti_cuda_check(gpu, gpu->api->cuStreamGetCtx(native, &context),
                         "native: cuStreamGetCtx");
    if (status == WEFT_OK && context != gpu->context) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "native %p: not a stream of the primary context "
                             "of cuda device %d",
                             native, gpu->index);
    }
    stream->native = native;
    stream->context = context;
    stream->multiprocessors = gpu->multiprocessors;
    return status;
}

static weft_status fill(wefti_cuda_gpu *gpu, const weft_stream_config *config,
                        wefti_cuda_stream *stream)
{
    const int priority =
        clamp(config->priority, gpu->priority_greatest, gpu->priority_least);
    stream->owned = !config->native;
    return config->native ? wrap_native(gpu, config->native, stream)
           : config->sm_budget > 0 && config->sm_budget < gpu->multiprocessors
               ? wefti_cuda_green_create(gpu, config->sm_budget, priority,
                                         stream)
               : create_native(gpu, priority, stream);
}

static void give_back_native(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream)
{
    if (stream->owned) {
        wefti_cuda_note(gpu, gpu->api->cuStreamDestroy(stream->native));
    }
}

/* Streams of one connection wait for each other, and where one stands at a gate
 * that another of them must raise, for ever. Beside the GPU's own one. */
static void count_stream(wefti_cuda_gpu *gpu)
{
    if (atomic_fetch_add(&gpu->streams, 1) + 2 > gpu->connections &&
        !atomic_exchange(&gpu->warned, true)) {
        wefti_log(
            WEFTI_LOG_WARN, -1,
            "cuda device %d: more streams than connections (%d): one that "
            "stands at a gate may hold up others; a program that starts "
            "with CUDA_DEVICE_MAX_CONNECTIONS=32 has the most there are",
            gpu->index, gpu->connections);
    }
}

weft_status wefti_cuda_stream_create(weft_device *device,
                                     const weft_stream_config *config,
                                     weft_stream **out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    wefti_cuda_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stream");
    }
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        goto err_free;
    }
    status = fill(gpu, config, stream);
    if (status < 0) {
        goto err_leave;
    }
    status = wefti_holds_create(device, &stream->base, &stream->holds);
    if (status < 0) {
        goto err_give_back;
    }
    wefti_cuda_leave(gpu);
    count_stream(gpu);
    pthread_mutex_init(&stream->lock, NULL);
    *out = &stream->base;
    return WEFT_OK;

err_give_back:
    give_back_native(gpu, stream);
    wefti_cuda_green_drop(gpu, stream->green);
err_leave:
    wefti_cuda_leave(gpu);
err_free:
    free(stream);
    return status;
}

weft_status wefti_cuda_refuse_capture(const char *what)
{
    return wefti_error(WEFT_ERR_UNSUPPORTED,
                       "%s: the stream is being captured into a graph, and "
                       "this is good for one time only",
                       what);
}

static weft_status enter(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                         const char *what, int *capturing)
{
    weft_status status = wefti_cuda_enter(gpu);
    *capturing = WEFTI_CU_STREAM_CAPTURE_STATUS_NONE;
    if (status < 0) {
        return status;
    }
    status = wefti_cuda_check(
        gpu, gpu->api->cuStreamIsCapturing(stream->native, capturing), what);
    if (status < 0) {
        wefti_cuda_leave(gpu);
    }
    return status;
}

/* Leaves again if there is none. */
static weft_status have_room(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream)
{
    weft_status status = wefti_cuda_make_room(gpu, stream, 1);
    if (status < 0) {
        wefti_cuda_leave(gpu);
    }
    return status;
}

weft_status wefti_cuda_enter_stream(wefti_cuda_gpu *gpu,
                                    wefti_cuda_stream *stream, const char *what)
{
    int capturing;
    weft_status status = enter(gpu, stream, what, &capturing);
    if (status == WEFT_OK && capturing != WEFTI_CU_STREAM_CAPTURE_STATUS_NONE) {
        wefti_cuda_leave(gpu);
        return wefti_cuda_refuse_capture(what);
    }
    return status == WEFT_OK ? have_room(gpu, stream) : status;
}

static weft_status enter_capture(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                                 const char *what, bool *captured_out)
{
    int capturing;
    weft_status status = enter(gpu, stream, what, &capturing);
    *captured_out = capturing != WEFTI_CU_STREAM_CAPTURE_STATUS_NONE;
    if (status == WEFT_OK &&
        capturing == WEFTI_CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
        wefti_cuda_leave(gpu);
        status = wefti_error(WEFT_ERR_INVALID,
                             "%s: the stream is being captured into a graph, "
                             "and something has broken the capture",
                             what);
    }
    return status;
}

weft_status wefti_cuda_enter_capture(wefti_cuda_gpu *gpu,
                                     wefti_cuda_stream *stream,
                                     const char *what, bool *captured_out)
{
    weft_status status = enter_capture(gpu, stream, what, captured_out);
    return status == WEFT_OK && !*captured_out ? have_room(gpu, stream)
                                               : status;
}

weft_status wefti_cuda_stream_is_captured(weft_stream *base, bool *captured_out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    weft_status status =
        enter_capture(gpu, wefti_cuda_stream_of(base), "stream", captured_out);
    if (status == WEFT_OK) {
        wefti_cuda_leave(gpu);
    }
    return status;
}

/* A store behind all that is queued; 0: all of it has run. */
static weft_status post_end(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                            uint64_t *batch_out)
{
    *batch_out = 0;
    weft_status status = wefti_cuda_enter_stream(gpu, stream, "drain");
    if (status < 0) {
        return status;
    }
    const int result = gpu->api->cuStreamQuery(stream->native);
    status = result == WEFTI_CUDA_ERROR_NOT_READY
                 ? wefti_cuda_end_post(gpu, stream, batch_out)
                 : wefti_cuda_check(gpu, result, "cuStreamQuery");
    wefti_cuda_leave(gpu);
    return status;
}

weft_status wefti_cuda_stream_drain(weft_stream *base)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    uint64_t batch;
    weft_status status = post_end(gpu, stream, &batch);
    if (status == WEFT_OK && batch > 0) {
        status = wefti_cuda_end_await(gpu, stream, batch);
    }
    wefti_device_tend(base->device);
    wefti_holds_pass(stream->holds);
    weft_status error = wefti_holds_get_error(stream->holds);
    return error < 0 ? error : status;
}

void wefti_cuda_stream_destroy(weft_stream *base)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    if (stream->owned) {
        weft_status ignored = wefti_cuda_stream_drain(base);
        (void)ignored;
    }
    wefti_holds_abandon(stream->holds);
    if (stream->workspace) {
        (void)wefti_cuda_mem_free(base->device, stream->workspace);
    }
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        wefti_cuda_attention_end(stream);
        give_back_native(gpu, stream);
        wefti_cuda_leave(gpu);
    }
    wefti_cuda_green_drop(gpu, stream->green);
    atomic_fetch_sub(&gpu->streams, 1);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

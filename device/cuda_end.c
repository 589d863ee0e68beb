/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_end.c - how far a stream has come, and how much it is given.
 *
 * Behind a stream that stands the driver takes some 1,020 operations; then the
 * caller waits inside it, where it may hold up calls of other threads, the copy
 * among them that the stream stands for. So after each OPERATIONS the stream
 * stores an end, the number of a batch (device/holds.h), and before the next
 * one the caller waits, outside of the driver, for the end ENDS before it:
 *
 *      ends      e1 . . e2 . . e3 . . e4 . . e5
 *                ^ passed before e5 is stored, where ENDS is 4
 *
 * Of one caller ENDS + 1 times OPERATIONS are out and a few, and of each other
 * that queues on the same stream meanwhile OPERATIONS more. A caller that
 * itself raises later what its stream waits for stands here, before it would
 * in the driver.
 */
#include "device/await.h"
#include "device/cuda_gpu.h"
#include "device/holds.h"

enum { OPERATIONS = 64 };

/* What a waiting thread looks at: the word, and now and then the GPU. */
typedef struct look {
    wefti_cuda_gpu *gpu;
    const wefti_cuda_stream *stream;
    uint64_t batch;
    unsigned looks;
} look;

enum { LOOKS_PER_QUERY = 16 };

static bool has_passed(const void *arg)
{
    look *waited = (look *)arg; /* its own */
    if (atomic_load(waited->stream->holds->passed) >= waited->batch) {
        return true;
    }
    return waited->looks++ % LOOKS_PER_QUERY == 0 &&
           wefti_cuda_look(waited->gpu) < 0;
}

weft_status wefti_cuda_end_await(wefti_cuda_gpu *gpu,
                                 const wefti_cuda_stream *stream,
                                 uint64_t batch)
{
    look waited = {.gpu = gpu, .stream = stream, .batch = batch};
    wefti_poll(stream->base.device, has_passed, &waited);
    return wefti_cuda_get_failure(gpu);
}

weft_status wefti_cuda_end_post(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                                uint64_t *batch_out)
{
    pthread_mutex_lock(&stream->lock);
    weft_status status = wefti_holds_add(stream->holds, NULL, 0, batch_out);
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu,
            gpu->api->cuStreamWriteValue64(
                stream->native, (uint64_t)(uintptr_t)stream->holds->passed,
                *batch_out, WEFTI_CU_STREAM_WRITE_VALUE_DEFAULT),
            "cuStreamWriteValue64");
        if (status < 0) {
            wefti_holds_cancel(stream->holds);
        }
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

weft_status wefti_cuda_make_room(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                                 unsigned operations)
{
    pthread_mutex_lock(&stream->lock);
    const size_t at = stream->next_end;
    const uint64_t oldest = stream->ends[at];
    stream->since_end += operations;
    const bool ends = stream->since_end >= OPERATIONS;
    if (ends) {
        stream->since_end -= OPERATIONS;
        stream->next_end = (at + 1) % WEFTI_CUDA_ENDS;
    }
    pthread_mutex_unlock(&stream->lock);
    if (!ends) {
        return WEFT_OK;
    }
    uint64_t batch = 0;
    weft_status status = wefti_cuda_end_await(gpu, stream, oldest);
    if (status == WEFT_OK) {
        status = wefti_cuda_end_post(gpu, stream, &batch);
    }
    pthread_mutex_lock(&stream->lock);
    stream->ends[at] = batch;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

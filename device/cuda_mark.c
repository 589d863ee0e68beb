/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_mark.c - signals and waits of a stream, as memory operations on
 * the words of gates.
 *
 *   wait e      goes on when (int64_t)(word - e) >= 0. With the flush, where
 *               the GPU has it, writes of other devices that came before the
 *               word are there too.
 *   signal e    a plain store, which all work before it on the stream precedes
 *               for any that see it: without the flag that gives this up.
 *
 * Behind them comes the store into the stream's word of progress. It is one
 * batch, or where the driver has none, one call each.
 *
 * Flags, which graphs may launch again, leave no trace there:
 *
 *      word    | upper: failed, by the host | lower: 0 or 1, by streams |
 *
 *   wait        of the whole word, for 1: the lower half is up, or it failed
 *   store       of the lower half alone, which comes first in memory
 */
#include "base/error.h"
#include "device/cuda_gpu.h"
#include "device/holds.h"

static uint64_t to_address(const _Atomic uint64_t *word)
{
    return (uint64_t)(uintptr_t)word;
}

static wefti_cuda_memop make_store(const _Atomic uint64_t *word, uint64_t value)
{
    return (wefti_cuda_memop){
        .value = {.operation = WEFTI_CU_STREAM_MEM_OP_WRITE_VALUE_64,
                  .address = to_address(word),
                  .value64 = value,
                  .flags = WEFTI_CU_STREAM_WRITE_VALUE_DEFAULT}};
}

static wefti_cuda_memop make_wait(const wefti_cuda_gpu *gpu,
                                  const _Atomic uint64_t *word, uint64_t value)
{
    return (wefti_cuda_memop){
        .value = {.operation = WEFTI_CU_STREAM_MEM_OP_WAIT_VALUE_64,
                  .address = to_address(word),
                  .value64 = value,
                  .flags =
                      WEFTI_CU_STREAM_WAIT_VALUE_GEQ |
                      (gpu->flushes ? WEFTI_CU_STREAM_WAIT_VALUE_FLUSH : 0)}};
}

static int post_one(const wefti_cuda_api *api, struct CUstream_st *native,
                    const wefti_cuda_memop *made)
{
    if (made->value.operation == WEFTI_CU_STREAM_MEM_OP_WRITE_VALUE_32) {
        return api->cuStreamWriteValue32(native, made->value.address,
                                         (uint32_t)made->value.value64,
                                         made->value.flags);
    }
    return made->value.operation == WEFTI_CU_STREAM_MEM_OP_WAIT_VALUE_64
               ? api->cuStreamWaitValue64(native, made->value.address,
                                          made->value.value64,
                                          made->value.flags)
               : api->cuStreamWriteValue64(native, made->value.address,
                                           made->value.value64,
                                           made->value.flags);
}

/* *posted_out: how many the stream has been given. */
static weft_status post(wefti_cuda_gpu *gpu, struct CUstream_st *native,
                        wefti_cuda_memop *made, unsigned count,
                        unsigned *posted_out)
{
    weft_status status = WEFT_OK;
    *posted_out = 0;
    if (gpu->api->cuStreamBatchMemOp) {
        status = wefti_cuda_check(
            gpu, gpu->api->cuStreamBatchMemOp(native, count, made, 0),
            "cuStreamBatchMemOp");
        *posted_out = status == WEFT_OK ? count : 0;
        return status;
    }
    while (status == WEFT_OK && *posted_out < count) {
        status = wefti_cuda_check(
            gpu, post_one(gpu->api, native, made + *posted_out),
            "stream memory operation");
        *posted_out += status == WEFT_OK;
    }
    return status;
}

/* Marks of which a part was posted, before the driver failed, stay held. */
static weft_status mark_locked(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                               const wefti_mark *marks, size_t count)
{
    wefti_cuda_memop made[WEFTI_MARKS_MOST + 1];
    uint64_t batch;
    unsigned posted;
    weft_status status = wefti_holds_add(stream->holds, marks, count, &batch);
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        const _Atomic uint64_t *word = &marks[i].gate->words[marks[i].chunk];
        made[i] = marks[i].waits ? make_wait(gpu, word, marks[i].epoch)
                                 : make_store(word, marks[i].epoch);
    }
    made[count] = make_store(stream->holds->passed, batch);
    status = post(gpu, stream->native, made, (unsigned)count + 1, &posted);
    if (status < 0 && posted == 0) {
        wefti_holds_cancel(stream->holds);
    }
    return status;
}

weft_status wefti_cuda_stream_mark(weft_stream *base, const wefti_mark *marks,
                                   size_t count)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    weft_status status = wefti_cuda_enter_stream(
        gpu, stream, marks[0].waits ? "wait at a gate" : "signal of a gate");
    if (status < 0) {
        return status;
    }
    wefti_holds_pass(stream->holds); /* so that its ring need not grow */
    wefti_cuda_queue_begin(gpu);
    pthread_mutex_lock(&stream->lock);
    status = mark_locked(gpu, stream, marks, count);
    pthread_mutex_unlock(&stream->lock);
    wefti_cuda_queue_end(gpu);
    wefti_cuda_leave(gpu);
    return status;
}

weft_status wefti_cuda_stream_flag(weft_stream *base, const wefti_flag *flags,
                                   size_t count)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    wefti_cuda_memop made[WEFTI_FLAGS_MOST];
    unsigned posted;
    bool captured;
    weft_status status =
        wefti_cuda_enter_capture(gpu, stream, "flag of a gate", &captured);
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        const _Atomic uint64_t *word = &flags[i].gate->words[flags[i].chunk];
        made[i] = flags[i].waits ? make_wait(gpu, word, 1)
                                 : make_store(word, flags[i].value);
        if (!flags[i].waits) {
            made[i].value.operation = WEFTI_CU_STREAM_MEM_OP_WRITE_VALUE_32;
        }
    }
    status = post(gpu, stream->native, made, (unsigned)count, &posted);
    wefti_cuda_leave(gpu);
    return status;
}

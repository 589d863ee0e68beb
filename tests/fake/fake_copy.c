/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_copy.c - copies and fills.
 *
 * Asynchronous copies (CUDA driver API, "API synchronization behavior"):
 * - between pinned memory and devices they run in the stream, late;
 * - from host to host the call returns when all is done;
 * - of pageable memory they "might be synchronous": from it the call stages the
 *   bytes at once, and by chance waits for the stream before; to it the call
 *   waits.
 *
 * A copy is done in two parts, in either order, with a pause between.
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <string.h>

typedef enum place { DEVICE, PINNED, PAGEABLE } place;

/* Where an address is, and whether bytes fit there. */
static CUresult find_place(CUdeviceptr address, size_t bytes, place *place_out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&fake.lock);
    const fake_range *range = fake_range_find(address, bytes);
    if (range) {
        *place_out = range->owner == FAKE_HOST ? PINNED : DEVICE;
    } else if ((range = fake_range_touching(address, bytes)) &&
               range->owner != FAKE_HOST) {
        fake_say("copy: %zu bytes at %#llx: the allocation at %#llx has %zu",
                 bytes, address, range->address, range->bytes);
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        *place_out = PAGEABLE;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static void copy_in_two(CUstream stream, char *dst, const char *src,
                        size_t bytes)
{
    size_t half = (size_t)fake_draw(&stream->seed, bytes + 1);
    bool back_first = fake_draw(&stream->seed, 2) == 0;
    if (back_first) {
        memcpy(dst + half, src + half, bytes - half);
    } else {
        memcpy(dst, src, half);
    }
    if (bytes > 64) {
        fake_delay(&stream->seed);
    }
    if (back_first) {
        memcpy(dst, src, half);
    } else {
        memcpy(dst + half, src + half, bytes - half);
    }
}

/* Keeps the last part of a write to another device back if a value to the same
 * device follows. */
static size_t keep_late(CUstream stream, const fake_work *work, int owner,
                        const char *src)
{
    size_t late = 0;
    int here = stream->context->ordinal;
    pthread_mutex_lock(&fake.lock);
    const fake_work *next = work->next;
    const fake_range *value =
        next && next->writes_value
            ? fake_range_find(next->values[0].writeValue.address, 4)
            : NULL;
    if (owner >= 0 && owner != here && value && value->owner == owner &&
        fake_draw(&stream->seed, 2) == 0) {
        late = (size_t)fake_draw(&stream->seed, work->bytes) + 1;
        stream->late.data = malloc(late);
        late = stream->late.data ? late : 0;
        stream->late.dst = work->dst + work->bytes - late;
        stream->late.bytes = late;
        memcpy(stream->late.data, src + work->bytes - late, late);
    }
    pthread_mutex_unlock(&fake.lock);
    return late;
}

static bool is_imported(const fake_range *range)
{
    return range && range->kind == FAKE_IMPORTED;
}

/* What the environment asks of copies from and into other processes' memory. */
static void spoil(const fake_range *src_range, const fake_range *dst_range,
                  char *dst)
{
    static _Atomic uint64_t copies;
    if ((is_imported(src_range) || is_imported(dst_range)) &&
        ++copies == fake_get_settings()->wrong_copy) {
        dst[0] ^= 1;
    }
}

/* Any device may copy from and to any other, through the host where it has no
 * peer access (programming guide, "Peer-to-peer memory copy"). */
static CUresult run_copy(CUstream stream, fake_work *work)
{
    int here = stream->context->ordinal;
    fake_range *dst_range = NULL, *src_range = NULL;
    char *dst = (char *)(uintptr_t)work->dst;
    const char *src = work->staged;
    CUresult result = CUDA_SUCCESS;
    if (!src) {
        src = fake_range_use(here, work->src, work->bytes, true, "copy from",
                             &src_range);
    }
    if (work->mark != PAGEABLE) { /* of the destination */
        dst = fake_range_use(here, work->dst, work->bytes, true, "copy to",
                             &dst_range);
    }
    if (!src || !dst) {
        result = CUDA_ERROR_ILLEGAL_ADDRESS;
    } else {
        size_t late = keep_late(stream, work,
                                dst_range ? dst_range->owner : FAKE_HOST, src);
        copy_in_two(stream, dst, src, work->bytes - late);
        spoil(src_range, dst_range, dst);
    }
    fake_range_done(src_range);
    fake_range_done(dst_range);
    return result;
}

static CUresult drain(CUstream stream)
{
    pthread_mutex_lock(&fake.lock);
    CUresult result = fake_stream_is(stream)
                          ? fake_stream_drain_locked(stream, true)
                          : CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static bool is_capturing(CUstream stream)
{
    pthread_mutex_lock(&fake.lock);
    bool capturing = fake_stream_is(stream) && stream->capture;
    pthread_mutex_unlock(&fake.lock);
    return capturing;
}

static CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                     CUstream stream)
{
    place to, from;
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || bytes == 0) {
        return result;
    }
    if ((result = find_place(dst, bytes, &to)) != CUDA_SUCCESS ||
        (result = find_place(src, bytes, &from)) != CUDA_SUCCESS) {
        return result;
    }
    fake_work work = {.run = run_copy,
                      .dst = dst,
                      .src = src,
                      .bytes = bytes,
                      .mark = (uint64_t)to};
    bool capturing = is_capturing(stream);
    bool waits =
        (to == PAGEABLE || (to != DEVICE && from != DEVICE)) && !capturing;
    if (from == PAGEABLE && !capturing) {
        if (fake_chance(4) == 0 && (result = drain(stream)) != CUDA_SUCCESS) {
            return result;
        }
        work.staged = malloc(bytes);
        if (!work.staged) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(work.staged, (const void *)(uintptr_t)src, bytes);
    }
    result = fake_stream_submit(stream, &work);
    return result == CUDA_SUCCESS && waits ? drain(stream) : result;
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                       CUstream stream)
{
    return copy(dst, src, bytes, stream);
}

/* Those that name a direction refuse another one. */
static CUresult copy_checked(CUdeviceptr dst, bool dst_is_device,
                             CUdeviceptr src, bool src_is_device, size_t bytes,
                             CUstream stream)
{
    place to = DEVICE, from = DEVICE;
    CUresult result = fake_enter_context();
    if (result == CUDA_SUCCESS && bytes && dst_is_device) {
        result = find_place(dst, bytes, &to);
    }
    if (result == CUDA_SUCCESS && bytes && src_is_device) {
        result = find_place(src, bytes, &from);
    }
    if (result != CUDA_SUCCESS || to == PAGEABLE || from == PAGEABLE) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    return copy(dst, src, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes,
                              CUstream stream)
{
    return copy_checked(dst, true, (CUdeviceptr)(uintptr_t)src, false, bytes,
                        stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes,
                              CUstream stream)
{
    return copy_checked((CUdeviceptr)(uintptr_t)dst, false, src, true, bytes,
                        stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                              CUstream stream)
{
    return copy_checked(dst, true, src, true, bytes, stream);
}

/* Whether memory is of a context: of its device, or opened for it. */
static CUresult check_owner(CUdeviceptr at, size_t bytes, CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&fake.lock);
    const fake_range *range = fake_range_find(at, bytes);
    if (context->primary->retained == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!range || (range->owner != context->ordinal &&
                          range->context != context->primary)) {
        fake_say("cuMemcpyPeerAsync: %#llx is not memory of device %d", at,
                 context->ordinal);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuMemcpyPeerAsync: from device memory in one context to device memory in
 * another, which may be the same; it needs no peer access. */
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context,
                           CUdeviceptr src, CUcontext src_context, size_t bytes,
                           CUstream stream)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !dst_context || !src_context) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes) {
        result = check_owner(dst, bytes, dst_context);
    }
    if (result == CUDA_SUCCESS && bytes) {
        result = check_owner(src, bytes, src_context);
    }
    return result == CUDA_SUCCESS ? copy(dst, src, bytes, stream) : result;
}

static CUresult run_fill(CUstream stream, fake_work *work)
{
    fake_range *range = NULL;
    char *dst = fake_range_use(stream->context->ordinal, work->dst, work->bytes,
                               false, "fill", &range);
    if (!dst) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    memset(dst, (int)work->mark, work->bytes);
    fake_range_done(range);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes,
                         CUstream stream)
{
    place to;
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || bytes == 0) {
        return result;
    }
    result = find_place(dst, bytes, &to);
    if (result != CUDA_SUCCESS || to == PAGEABLE) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    fake_work work = {
        .run = run_fill, .dst = dst, .bytes = bytes, .mark = value};
    return fake_stream_submit(stream, &work);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_copy.c - copies, by cuMemcpyAsync, which finds out where both
 * ends are.
 *
 * With ordinary memory of the host at one end the driver may wait for the
 * stream inside the call, and there it may stand at a gate that the caller is
 * to raise. So such a copy goes through a buffer of pinned memory, and a host
 * function carries the bytes between the two in the stream's order:
 *
 *      src   -- host function -->   buffer   -- copy engine -->  dst
 *      src   -- copy engine   -->   buffer   -- host function --> dst
 *
 * piece by piece, so that one buffer serves. The host functions make no
 * other calls and wait for nothing. After a failure of the GPU they are not
 * called.
 */
#include "base/error.h"
#include "device/cuda_gpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* A host function beside a copy takes the place of many operations. */
enum { BUFFER_BYTES = 1 << 20, PIECE_OPERATIONS = 20 };

typedef struct piece {
    char *dst;
    const char *src;
    size_t bytes;
} piece;

/* One copy that host functions take part in. */
typedef struct staged {
    struct staged *next;
    void *buffer;      /* NULL: none is needed */
    _Atomic bool done; /* set by the last host function, behind all of it */
    bool lost;         /* the driver took a part of it only: it never is */
    piece pieces[];
} staged;

/* A buffer without a copy, in its own memory. */
typedef struct spare {
    struct spare *next;
} spare;

/* Buffers are kept until the GPU closes: the driver may wait for all that is
 * queued before it takes one back, and so for the caller itself. */
struct wefti_cuda_copies {
    pthread_mutex_t lock;
    staged *first; /* under way, or done and not yet looked at */
    spare *spares;
};

weft_status wefti_cuda_copies_create(wefti_cuda_gpu *gpu)
{
    gpu->copies = calloc(1, sizeof(*gpu->copies));
    if (!gpu->copies) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    pthread_mutex_init(&gpu->copies->lock, NULL);
    return WEFT_OK;
}

static weft_status take_buffer(wefti_cuda_gpu *gpu, void **out)
{
    struct wefti_cuda_copies *copies = gpu->copies;
    pthread_mutex_lock(&copies->lock);
    spare *found = copies->spares;
    if (found) {
        copies->spares = found->next;
    }
    pthread_mutex_unlock(&copies->lock);
    *out = found;
    return found ? WEFT_OK
                 : wefti_cuda_check(gpu,
                                    gpu->api->cuMemHostAlloc(
                                        out, BUFFER_BYTES,
                                        WEFTI_CU_MEMHOSTALLOC_PORTABLE |
                                            WEFTI_CU_MEMHOSTALLOC_DEVICEMAP),
                                    "cuMemHostAlloc for a copy");
}

static void put_buffer(wefti_cuda_gpu *gpu, void *buffer)
{
    struct wefti_cuda_copies *copies = gpu->copies;
    spare *put = buffer;
    if (put) {
        pthread_mutex_lock(&copies->lock);
        put->next = copies->spares;
        copies->spares = put;
        pthread_mutex_unlock(&copies->lock);
    }
}

/* Takes one that is done off the list; NULL: there is none. */
static staged *take_done(struct wefti_cuda_copies *copies)
{
    pthread_mutex_lock(&copies->lock);
    staged **link = &copies->first;
    while (*link && !atomic_load(&(*link)->done)) {
        link = &(*link)->next;
    }
    staged *found = *link;
    if (found) {
        *link = found->next;
    }
    pthread_mutex_unlock(&copies->lock);
    return found;
}

static void reap(wefti_cuda_gpu *gpu)
{
    staged *done;
    while ((done = take_done(gpu->copies)) != NULL) {
        put_buffer(gpu, done->buffer);
        free(done);
    }
}

/* Streams of weft's own have been drained by now; behind one that was wrapped
 * a copy may still be on its way. */
static bool is_over(wefti_cuda_gpu *gpu)
{
    reap(gpu);
    const staged *copy = gpu->copies->first;
    while (copy && copy->lost) {
        copy = copy->next;
    }
    return !copy || wefti_cuda_look(gpu) < 0;
}

void wefti_cuda_copies_destroy(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_copies *copies = gpu->copies;
    while (!is_over(gpu)) {
        sched_yield();
    }
    while (copies->first) {
        staged *lost = copies->first;
        copies->first = lost->next;
        free(lost);
    }
    while (copies->spares) {
        spare *freed = copies->spares;
        copies->spares = freed->next;
        wefti_cuda_note(gpu, gpu->api->cuMemFreeHost(freed));
    }
    pthread_mutex_destroy(&copies->lock);
    free(copies);
}

static void carry(void *arg)
{
    const piece *carried = arg;
    memcpy(carried->dst, carried->src, carried->bytes);
}

static void finish(void *arg)
{
    staged *copy = arg;
    atomic_store(&copy->done, true);
}

static weft_status call(wefti_cuda_gpu *gpu, struct CUstream_st *native,
                        void (*function)(void *), void *arg)
{
    return wefti_cuda_check(gpu,
                            gpu->api->cuLaunchHostFunc(native, function, arg),
                            "cuLaunchHostFunc");
}

static weft_status copy_native(wefti_cuda_gpu *gpu, struct CUstream_st *native,
                               void *dst, const void *src, size_t bytes)
{
    return wefti_cuda_check(gpu,
                            gpu->api->cuMemcpyAsync((uint64_t)(uintptr_t)dst,
                                                    (uint64_t)(uintptr_t)src,
                                                    bytes, native),
                            "cuMemcpyAsync");
}

/* One piece: by the host alone, or on its way out or in through the buffer. */
static weft_status post_piece(wefti_cuda_gpu *gpu, struct CUstream_st *native,
                              staged *copy, piece *posted, bool out)
{
    char *dst = posted->dst;
    const char *src = posted->src;
    if (!copy->buffer) {
        return call(gpu, native, carry, posted);
    }
    if (out) {
        posted->dst = copy->buffer;
    } else {
        posted->src = copy->buffer;
    }
    weft_status status =
        out ? call(gpu, native, carry, posted)
            : copy_native(gpu, native, copy->buffer, src, posted->bytes);
    if (status == WEFT_OK) {
        status =
            out ? copy_native(gpu, native, dst, copy->buffer, posted->bytes)
                : call(gpu, native, carry, posted);
    }
    return status;
}

static weft_status make_staged(wefti_cuda_gpu *gpu, bool buffered,
                               size_t pieces, staged **out)
{
    staged *copy = calloc(1, sizeof(*copy) + pieces * sizeof(piece));
    if (!copy) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a copy");
    }
    weft_status status = buffered ? take_buffer(gpu, &copy->buffer) : WEFT_OK;
    if (status < 0) {
        free(copy);
        return status;
    }
    *out = copy;
    return WEFT_OK;
}

/* dst or src is ordinary memory of the host; out: src is. */
static weft_status copy_staged(wefti_cuda_gpu *gpu, wefti_cuda_stream *stream,
                               char *dst, const char *src, size_t bytes,
                               bool buffered, bool out)
{
    const size_t most = buffered ? BUFFER_BYTES : bytes;
    const size_t pieces = (bytes + most - 1) / most;
    staged *copy;
    reap(gpu);
    weft_status status = make_staged(gpu, buffered, pieces, &copy);
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; status == WEFT_OK && i < pieces; i++) {
        const size_t at = i * most;
        copy->pieces[i] =
            (piece){dst + at, src + at, bytes - at < most ? bytes - at : most};
        status = wefti_cuda_make_room(gpu, stream, PIECE_OPERATIONS);
        if (status == WEFT_OK) {
            status =
                post_piece(gpu, stream->native, copy, &copy->pieces[i], out);
        }
    }
    if (status == WEFT_OK) {
        status = call(gpu, stream->native, finish, copy);
    }
    pthread_mutex_lock(&gpu->copies->lock);
    copy->lost = status < 0;
    copy->next = gpu->copies->first;
    gpu->copies->first = copy;
    pthread_mutex_unlock(&gpu->copies->lock);
    return status;
}

/* Where an end of a copy is. */
typedef enum end { END_DEVICE, END_PINNED, END_HOST } end;

static weft_status find_end(wefti_cuda_gpu *gpu, const char *name,
                            const void *pointer, size_t bytes, end *out)
{
    wefti_cuda_pointer found;
    weft_status status = wefti_cuda_query(gpu, pointer, &found);
    if (status < 0) {
        return status;
    }
    const uint64_t offset = (uint64_t)(uintptr_t)pointer - found.base;
    const bool fits =
        found.known && offset <= found.bytes && bytes <= found.bytes - offset;
    *out = !found.known || (found.host && !found.managed && !fits) ? END_HOST
           : found.host && !found.managed                          ? END_PINNED
                                                                   : END_DEVICE;
    return *out != END_DEVICE || fits
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%s %p: %zu bytes of an allocation that has %zu "
                             "from there on",
                             name, pointer, bytes,
                             (size_t)(found.bytes - offset));
}

weft_status wefti_cuda_stream_copy(weft_stream *base, void *dst,
                                   const void *src, size_t bytes)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    end to, from;
    bool captured;
    weft_status status =
        wefti_cuda_enter_capture(gpu, stream, "copy", &captured);
    if (status < 0) {
        return status;
    }
    status = find_end(gpu, "dst", dst, bytes, &to);
    if (status == WEFT_OK) {
        status = find_end(gpu, "src", src, bytes, &from);
    }
    if (status == WEFT_OK) {
        status = to != END_HOST && from != END_HOST &&
                         (to == END_DEVICE || from == END_DEVICE)
                     ? copy_native(gpu, stream->native, dst, src, bytes)
                 : captured
                     ? wefti_cuda_refuse_capture("copy by the host")
                     : copy_staged(gpu, stream, dst, src, bytes,
                                   to == END_DEVICE || from == END_DEVICE,
                                   to == END_DEVICE);
    }
    wefti_cuda_leave(gpu);
    return status;
}

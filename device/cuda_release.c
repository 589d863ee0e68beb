/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_release.c - memory that is given back to the driver.
 *
 * The driver frees only when all streams of the GPU have drained, and lets no
 * other call in meanwhile (seen with driver 580 on an H200). Beside a stream
 * that stands at a gate this would be for ever, where a call must be made
 * before the gate is raised: a copy by a rank's progress thread, say. So memory
 * that is freed while a stream of weft's may stand is kept, and freed with the
 * next that is freed when none does, where an allocation finds no memory, or
 * when the GPU is closed. Graphs with operations in them may be launched at any
 * time, and stand: as long as there may be such, all is kept.
 *
 * Whoever frees holds the lock alone, and whoever queues waits shares it, so
 * that none begins to stand meanwhile. A thread may hold it for long whose
 * stream takes no more: memory is kept then, too.
 */
#include "base/error.h"
#include "base/log.h"
#include "device/cuda.h"
#include "device/cuda_gpu.h"
#include "device/holds.h"

#include <stdlib.h>

typedef struct kept {
    struct kept *next;
    wefti_cuda_block block;
} kept;

struct wefti_cuda_release {
    pthread_rwlock_t queueing;
    pthread_mutex_t lock;
    kept *first; /* guarded by lock */
    _Atomic int count;
    _Atomic int graphs; /* communicators that may have some */
};

weft_status wefti_cuda_release_create(wefti_cuda_gpu *gpu)
{
    gpu->release = calloc(1, sizeof(*gpu->release));
    if (!gpu->release) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    pthread_rwlock_init(&gpu->release->queueing, NULL);
    pthread_mutex_init(&gpu->release->lock, NULL);
    return WEFT_OK;
}

/* Of a GPU that has failed, memory is gone with its context. */
static void release(wefti_cuda_gpu *gpu, const wefti_cuda_block *block)
{
    const wefti_cuda_api *api = gpu->api;
    if (atomic_load(&gpu->broken) != 0) {
        return;
    }
    switch (block->kind) {
    case WEFT_MEMORY_PINNED:
        wefti_cuda_note(gpu,
                        api->cuMemFreeHost((void *)(uintptr_t)block->address));
        break;
    case WEFT_MEMORY_EXPORTABLE:
        wefti_cuda_unmap(gpu, block->address, block->bytes);
        wefti_cuda_note(gpu, api->cuMemRelease(block->handle));
        break;
    default:
        wefti_cuda_note(gpu, api->cuMemFree(block->address));
        break;
    }
}

static kept *take_all(struct wefti_cuda_release *own)
{
    pthread_mutex_lock(&own->lock);
    kept *first = own->first;
    own->first = NULL;
    atomic_store(&own->count, 0);
    pthread_mutex_unlock(&own->lock);
    return first;
}

static void release_kept(wefti_cuda_gpu *gpu)
{
    kept *next;
    for (kept *one = take_all(gpu->release); one; one = next) {
        next = one->next;
        release(gpu, &one->block);
        free(one);
    }
}

void wefti_cuda_release_destroy(wefti_cuda_gpu *gpu)
{
    release_kept(gpu);
    pthread_mutex_destroy(&gpu->release->lock);
    pthread_rwlock_destroy(&gpu->release->queueing);
    free(gpu->release);
}

/* Only where nothing stands, nor will while it goes on. */
static bool begin(wefti_cuda_gpu *gpu)
{
    if (pthread_rwlock_trywrlock(&gpu->release->queueing) != 0) {
        return false;
    }
    if (atomic_load(&gpu->release->graphs) == 0 && !wefti_holds_any_of(gpu)) {
        return true;
    }
    pthread_rwlock_unlock(&gpu->release->queueing);
    return false;
}

void wefti_cuda_release(wefti_cuda_gpu *gpu, const wefti_cuda_block *block)
{
    struct wefti_cuda_release *own = gpu->release;
    if (begin(gpu)) {
        release(gpu, block);
        release_kept(gpu);
        pthread_rwlock_unlock(&own->queueing);
        return;
    }
    kept *one = malloc(sizeof(*one));
    if (!one) {
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "cuda device %d: no memory to note what is to be freed: it "
                  "stays allocated",
                  gpu->index);
        return;
    }
    one->block = *block;
    pthread_mutex_lock(&own->lock);
    one->next = own->first;
    own->first = one;
    atomic_fetch_add(&own->count, 1);
    pthread_mutex_unlock(&own->lock);
}

bool wefti_cuda_release_tend(wefti_cuda_gpu *gpu)
{
    if (atomic_load(&gpu->release->count) == 0 || !begin(gpu)) {
        return false;
    }
    release_kept(gpu);
    pthread_rwlock_unlock(&gpu->release->queueing);
    return true;
}

void wefti_cuda_note_graphs(const weft_device *device, bool on)
{
    struct wefti_cuda_release *own = wefti_cuda_gpu_of(device)->release;
    if (on) {
        /* None of what is being freed now is waited for by a launch. */
        pthread_rwlock_rdlock(&own->queueing);
        atomic_fetch_add(&own->graphs, 1);
        pthread_rwlock_unlock(&own->queueing);
    } else {
        atomic_fetch_sub(&own->graphs, 1);
    }
}

void wefti_cuda_queue_begin(wefti_cuda_gpu *gpu)
{
    pthread_rwlock_rdlock(&gpu->release->queueing);
}

void wefti_cuda_queue_end(wefti_cuda_gpu *gpu)
{
    pthread_rwlock_unlock(&gpu->release->queueing);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_words.c - the counters of gates, in pinned memory of the host,
 * which a GPU's memory operations and the host both reach by one address.
 *
 * Pinning costs a call of the driver and whole pages, and most gates have few
 * chunks. So there are slabs, cut into places of one size each; sizes are
 * powers of two from 128 bytes, the distance at which two gates do not share
 * a line of a cache, on. What is larger than a slab is pinned by itself.
 *
 *      slab of 64 KiB    | 256 | 256 | free | 256 | free | ...
 *                                        \___________/
 *                                    a list, in the places themselves
 */
#include "base/error.h"
#include "device/cuda_gpu.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_BYTES = 128,
    SLAB_BYTES = 64 * 1024,
    SIZES = 10 /* 128 bytes to 64 KiB */
};

typedef struct slab {
    struct slab *next;
    char *memory;
    size_t bytes; /* of the slab */
    size_t size;  /* index of its places'; SIZES: one place, alone */
} slab;

typedef struct place {
    struct place *next;
} place;

struct wefti_cuda_words {
    pthread_mutex_t lock;
    slab *slabs;
    place *spare[SIZES];
};

weft_status wefti_cuda_words_create(wefti_cuda_gpu *gpu)
{
    gpu->words = calloc(1, sizeof(*gpu->words));
    if (!gpu->words) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    pthread_mutex_init(&gpu->words->lock, NULL);
    return WEFT_OK;
}

static void free_slab(wefti_cuda_gpu *gpu, slab *freed)
{
    wefti_cuda_release(
        gpu, &(wefti_cuda_block){.address = (uint64_t)(uintptr_t)freed->memory,
                                 .kind = WEFT_MEMORY_PINNED});
    free(freed);
}

void wefti_cuda_words_destroy(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_words *words = gpu->words;
    while (words->slabs) {
        slab *freed = words->slabs;
        words->slabs = freed->next;
        free_slab(gpu, freed);
    }
    pthread_mutex_destroy(&words->lock);
    free(words);
}

/* The first size with room for bytes; SIZES: none. */
static size_t get_size(size_t bytes)
{
    size_t size = 0;
    while (size < SIZES && (size_t)LEAST_BYTES << size < bytes) {
        size++;
    }
    return size;
}

static weft_status add_slab_locked(wefti_cuda_gpu *gpu, size_t bytes,
                                   size_t size, slab **out)
{
    struct wefti_cuda_words *words = gpu->words;
    void *memory = NULL;
    slab *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for gates");
    }
    weft_status status = wefti_cuda_check(
        gpu,
        gpu->api->cuMemHostAlloc(&memory, bytes,
                                 WEFTI_CU_MEMHOSTALLOC_PORTABLE |
                                     WEFTI_CU_MEMHOSTALLOC_DEVICEMAP),
        "cuMemHostAlloc for gates");
    if (status < 0) {
        free(made);
        return status;
    }
    *made = (slab){words->slabs, memory, bytes, size};
    words->slabs = made;
    *out = made;
    return WEFT_OK;
}

static void put_spare_locked(struct wefti_cuda_words *words, size_t size,
                             void *memory)
{
    place *spare = memory;
    spare->next = words->spare[size];
    words->spare[size] = spare;
}

static weft_status take_place_locked(wefti_cuda_gpu *gpu, size_t bytes,
                                     void **out)
{
    struct wefti_cuda_words *words = gpu->words;
    const size_t size = get_size(bytes);
    slab *made;
    weft_status status = WEFT_OK;
    if (size == SIZES) {
        status = add_slab_locked(gpu, bytes, size, &made);
        *out = status == WEFT_OK ? made->memory : NULL;
        return status;
    }
    if (!words->spare[size]) {
        status = add_slab_locked(gpu, SLAB_BYTES, size, &made);
        const size_t step = (size_t)LEAST_BYTES << size;
        for (size_t at = SLAB_BYTES; status == WEFT_OK && at > 0; at -= step) {
            put_spare_locked(words, size, made->memory + at - step);
        }
    }
    if (status == WEFT_OK) {
        *out = words->spare[size];
        words->spare[size] = words->spare[size]->next;
    }
    return status;
}

weft_status wefti_cuda_gate_words(weft_device *device, size_t chunks,
                                  _Atomic uint64_t **out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    void *memory = NULL;
    if (chunks > SIZE_MAX / sizeof(**out)) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a gate of %zu chunks", chunks);
    }
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&gpu->words->lock);
    status = take_place_locked(gpu, chunks * sizeof(**out), &memory);
    pthread_mutex_unlock(&gpu->words->lock);
    wefti_cuda_leave(gpu);
    if (status == WEFT_OK) {
        *out = memory;
        for (size_t chunk = 0; chunk < chunks; chunk++) {
            atomic_init(&(*out)[chunk], 0);
        }
    }
    return status;
}

/* Takes a slab of one place off the list; NULL: it is another's place, which
 * becomes a spare one. */
static slab *put_back_locked(struct wefti_cuda_words *words, char *memory)
{
    slab **link = &words->slabs;
    while (!(memory >= (*link)->memory &&
             memory < (*link)->memory + (*link)->bytes)) {
        link = &(*link)->next;
    }
    slab *found = *link;
    if (found->size < SIZES) {
        put_spare_locked(words, found->size, memory);
        return NULL;
    }
    *link = found->next;
    return found;
}

/* Of a GPU that has failed, which may still look at them, words stay. */
void wefti_cuda_gate_words_free(weft_device *device, _Atomic uint64_t *words)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    if (wefti_cuda_enter(gpu) < 0) {
        return;
    }
    pthread_mutex_lock(&gpu->words->lock);
    slab *alone = put_back_locked(gpu->words, (char *)(void *)words);
    pthread_mutex_unlock(&gpu->words->lock);
    if (alone) {
        free_slab(gpu, alone);
    }
    wefti_cuda_leave(gpu);
}

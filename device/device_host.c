/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device_host.c - the host as a device: ordinary memory.
 */
#include "base/error.h"
#include "device/host_stream.h"
#include "device/object.h"

#include <stdlib.h>
#include <string.h>

enum { MEM_ALIGN = 64, WORDS_ALIGN = 128 };

static weft_status host_open(weft_device *device, int index)
{
    (void)device;
    if (index != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "index %d of a host device: allowed is 0", index);
    }
    return WEFT_OK;
}

static void host_close(weft_device *device)
{
    (void)device;
}

/* bytes rounded up to whole aligns, at least one. */
static void *alloc_aligned(size_t align, size_t bytes)
{
    if (bytes > SIZE_MAX - align) {
        return NULL;
    }
    bytes = bytes ? (bytes + align - 1) / align * align : align;
    return aligned_alloc(align, bytes);
}

/* All kinds are the same here. */
static weft_status host_mem_alloc(weft_device *device, weft_memory_kind kind,
                                  size_t bytes, void **out)
{
    (void)device;
    (void)kind;
    void *pointer = alloc_aligned(MEM_ALIGN, bytes);
    if (!pointer) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           bytes);
    }
    *out = pointer;
    return WEFT_OK;
}

static bool host_mem_free(weft_device *device, void *pointer)
{
    (void)device;
    free(pointer);
    return true;
}

static weft_status host_mem_query(weft_device *device, const void *pointer,
                                  weft_pointer *out)
{
    (void)device;
    (void)pointer;
    (void)out; /* host memory, and no more is known */
    return WEFT_OK;
}

weft_status wefti_host_gate_words(weft_device *device, size_t chunks,
                                  _Atomic uint64_t **out)
{
    (void)device;
    _Atomic uint64_t *words =
        chunks <= SIZE_MAX / sizeof(*words)
            ? alloc_aligned(WORDS_ALIGN, chunks * sizeof(*words))
            : NULL;
    if (!words) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a gate of %zu chunks", chunks);
    }
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        atomic_init(&words[chunk], 0);
    }
    *out = words;
    return WEFT_OK;
}

void wefti_host_gate_words_free(weft_device *device, _Atomic uint64_t *words)
{
    (void)device;
    free((void *)words);
}

const wefti_device_table wefti_device_host = {
    .kind = "host",
    .caps = WEFT_CAP_HOST_READS | WEFT_CAP_NOTIFIES | WEFT_CAP_HOST_CALLS |
            WEFT_CAP_TIMES,
    .open = host_open,
    .close = host_close,
    .mem_alloc = host_mem_alloc,
    .mem_free = host_mem_free,
    .mem_query = host_mem_query,
    .stream_create = wefti_host_stream_create,
    .stream_destroy = wefti_host_stream_destroy,
    .stream_copy = wefti_host_stream_copy,
    .stream_call = wefti_host_stream_call,
    .stream_compute = wefti_host_stream_call,
    .stream_mark = wefti_host_stream_mark,
    .stream_drain = wefti_host_stream_drain,
    .stream_stand = wefti_host_stream_stand,
    .event_create = wefti_host_event_create,
    .event_destroy = wefti_host_event_destroy,
    .event_post = wefti_host_event_post,
    .event_test = wefti_host_event_test,
    .event_wait = wefti_host_event_wait,
    .event_time = wefti_host_event_time,
    .gate_words = wefti_host_gate_words,
    .gate_words_free = wefti_host_gate_words_free,
};

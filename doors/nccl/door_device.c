/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_device.c - asks the CUDA driver, if there is one, which GPU
 * the calling thread uses: NCCL's callers say it no other way.
 */
#include "doors/nccl/door_device.h"

#include "doors/nccl/door_aside.h"

#include "base/library.h"
#include "doors/nccl/door_text.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum {
    CUDA_NO_DEVICE = 100,
    CUDA_STUB_LIBRARY = 34,
    CUDA_LEGACY_STREAM = 1, /* as a pointer: the default stream by its name */
    MOST_STREAMS = 1024
};

/* Of the driver's functions those that name a device. */
typedef struct wefti_door_driver {
    int (*init)(unsigned flags);
    int (*count)(int *count_out);
    int (*current)(int *device_out);
} wefti_door_driver;

/* The library stays open: it may have threads. */
static bool open_driver(wefti_door_driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library && wefti_library_find(library, "cuInit", &driver->init) &&
           wefti_library_find(library, "cuDeviceGetCount", &driver->count) &&
           wefti_library_find(library, "cuCtxGetDevice", &driver->current);
}

static int count_gpus(const wefti_door_driver *driver, int *count_out)
{
    int error = driver->init(0);
    *count_out = 0;
    if (error == CUDA_NO_DEVICE || error == CUDA_STUB_LIBRARY) {
        return WEFTI_DOOR_SUCCESS;
    }
    if (error == 0) {
        error = driver->count(count_out);
    }
    return error == 0
               ? WEFTI_DOOR_SUCCESS
               : wefti_door_error(WEFTI_DOOR_UNHANDLED_CUDA_ERROR,
                                  "the CUDA driver does not start: error %d",
                                  error);
}

int wefti_door_device_open(int ordinal, weft_device **device_out,
                           int *ordinal_out)
{
    wefti_door_driver driver;
    int count = 0, current = 0;
    *device_out = NULL;
    *ordinal_out = ordinal == WEFTI_DOOR_CURRENT ? 0 : ordinal;
    if (!open_driver(&driver)) {
        return WEFTI_DOOR_SUCCESS;
    }
    const int result = count_gpus(&driver, &count);
    if (result != WEFTI_DOOR_SUCCESS || count == 0) {
        return result;
    }
    if (ordinal == WEFTI_DOOR_CURRENT && driver.current(&current) == 0) {
        *ordinal_out = current;
    }
    if (*ordinal_out >= count) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "device %d: allowed is 0 to %d", *ordinal_out,
                                count - 1);
    }
    return weft_device_open("cuda", *ordinal_out, device_out) == WEFT_OK
               ? WEFTI_DOOR_SUCCESS
               : wefti_door_error(WEFTI_DOOR_UNHANDLED_CUDA_ERROR, "GPU %d: %s",
                                  *ordinal_out, weft_error_text());
}

/* Room for one more; the one that was wrapped first goes, where a program makes
 * new streams all the time: what it posted goes on. */
static bool make_room(wefti_door_comm *comm)
{
    if (comm->stream_count == MOST_STREAMS) {
        wefti_door_aside_forget(comm, comm->streams[0].stream);
        weft_stream_destroy(comm->streams[0].stream);
        comm->stream_count--;
        memmove(comm->streams, comm->streams + 1,
                comm->stream_count * sizeof(*comm->streams));
        return true;
    }
    wefti_door_stream *moved =
        realloc(comm->streams, (comm->stream_count + 1) * sizeof(*moved));
    if (moved) {
        comm->streams = moved;
    }
    return moved != NULL;
}

static int wrap(wefti_door_comm *comm, void *native, weft_stream **stream_out)
{
    const uintptr_t name = native ? (uintptr_t)native : CUDA_LEGACY_STREAM;
    if (!make_room(comm)) {
        return wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR, "a stream: out of "
                                                         "memory");
    }
    weft_status status =
        weft_stream_wrap(comm->device, (void *)name, stream_out);
    if (status == WEFT_OK) {
        comm->streams[comm->stream_count++] =
            (wefti_door_stream){.native = native, .stream = *stream_out};
    }
    return wefti_door_status(status, "stream");
}

int wefti_door_stream_get(wefti_door_comm *comm, void *native,
                          weft_stream **stream_out)
{
    *stream_out = NULL;
    if (!comm->device) {
        return native ? wefti_door_error(
                            WEFTI_DOOR_INVALID_ARGUMENT,
                            "stream is %p, and there is no GPU: allowed is "
                            "NULL, with buffers in host memory",
                            native)
                      : WEFTI_DOOR_SUCCESS;
    }
    for (size_t i = comm->stream_count; i > 0; i--) {
        if (comm->streams[i - 1].native == native) {
            *stream_out = comm->streams[i - 1].stream;
            return WEFTI_DOOR_SUCCESS;
        }
    }
    return wrap(comm, native, stream_out);
}

bool wefti_door_stream_is_captured(void *native)
{
    int (*ask)(void *stream, int *status_out);
    int status = 0;
    void *name = native ? native : (void *)(uintptr_t)CUDA_LEGACY_STREAM;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library &&
           wefti_library_find(library, "cuStreamIsCapturing", &ask) &&
           ask(name, &status) == 0 && status != 0;
}

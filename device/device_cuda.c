/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device_cuda.c - a GPU as a device, by the CUDA driver: the table, and
 * what it takes to open and close one. device/cuda_gpu.h says which file does
 * what.
 *
 *      stream      a CUstream
 *      event       a CUevent, with times
 *      gate        words in pinned memory; signals and waits are stream memory
 *                  operations
 *      memory      cuMemAlloc; cuMemHostAlloc; cuMemCreate where it is to be
 *                  given away by file descriptor
 */
#include "device/cuda.h"
#include "device/cuda_gpu.h"
#include "device/holds.h"

static weft_status cuda_open(weft_device *device, int index)
{
    wefti_cuda_gpu *gpu;
    weft_status status = wefti_cuda_gpu_open(index, &gpu);
    if (status == WEFT_OK) {
        device->own = gpu;
        device->caps = gpu->caps;
    }
    return status;
}

static void cuda_close(weft_device *device)
{
    wefti_cuda_gpu_close(wefti_cuda_gpu_of(device));
}

weft_status wefti_cuda_device_enter(const weft_device *device)
{
    return wefti_cuda_enter(wefti_cuda_gpu_of(device));
}

void wefti_cuda_device_leave(const weft_device *device)
{
    wefti_cuda_leave(wefti_cuda_gpu_of(device));
}

static weft_status cuda_look(weft_device *device)
{
    return wefti_cuda_look(wefti_cuda_gpu_of(device));
}

static void *cuda_stream_get_native(const weft_stream *stream)
{
    return wefti_cuda_stream_of(stream)->native;
}

static int cuda_stream_get_sms(const weft_stream *stream)
{
    return wefti_cuda_stream_of(stream)->multiprocessors;
}

const wefti_device_table wefti_device_cuda = {
    .kind = "cuda",
    .caps =
        WEFT_CAP_TIMES | WEFT_CAP_IPC | WEFT_CAP_SM_BUDGET | WEFT_CAP_LAUNCHES,
    .natives = true,
    .open = cuda_open,
    .close = cuda_close,
    .look = cuda_look,
    .mem_alloc = wefti_cuda_mem_alloc,
    .mem_free = wefti_cuda_mem_free,
    .mem_query = wefti_cuda_mem_query,
    .mem_register = wefti_cuda_mem_register,
    .mem_unregister = wefti_cuda_mem_unregister,
    .mem_reach = wefti_cuda_mem_reach,
    .mem_export = wefti_cuda_mem_export,
    .mem_import = wefti_cuda_mem_import,
    .mem_unimport = wefti_cuda_mem_unimport,
    .stream_create = wefti_cuda_stream_create,
    .stream_destroy = wefti_cuda_stream_destroy,
    .stream_copy = wefti_cuda_stream_copy,
    .stream_launch = wefti_cuda_stream_launch,
    .stream_multiply = wefti_cuda_stream_multiply,
    .stream_attend = wefti_cuda_stream_attend,
    .stream_mark = wefti_cuda_stream_mark,
    .stream_flag = wefti_cuda_stream_flag,
    .stream_is_captured = wefti_cuda_stream_is_captured,
    .stream_drain = wefti_cuda_stream_drain,
    .stream_stand = wefti_holds_find_stand,
    .stream_get_native = cuda_stream_get_native,
    .stream_get_sms = cuda_stream_get_sms,
    .event_create = wefti_cuda_event_create,
    .event_destroy = wefti_cuda_event_destroy,
    .event_post = wefti_cuda_event_post,
    .event_test = wefti_cuda_event_test,
    .event_wait = wefti_cuda_event_wait,
    .event_time = wefti_cuda_event_time,
    .gate_words = wefti_cuda_gate_words,
    .gate_words_free = wefti_cuda_gate_words_free,
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_gpu.c - GPUs: opened by index, with the primary context that the
 * CUDA runtime and all libraries of the process use too.
 */
#include "device/cuda_gpu.h"

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

#include <stdlib.h>

/* The GPUs that are open, of the process. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_cuda_gpu *list;

/* Whether an error ends the context: all later calls return it as well. The
 * program may have reset the GPU beneath weft (CONTEXT_IS_DESTROYED), or be at
 * its end (DEINITIALIZED). */
static bool is_final(int result)
{
    switch (result) {
    case WEFTI_CUDA_ERROR_DEINITIALIZED:
    case WEFTI_CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case WEFTI_CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case WEFTI_CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case WEFTI_CUDA_ERROR_ECC_UNCORRECTABLE:
    case WEFTI_CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case WEFTI_CUDA_ERROR_CONTAINED:
    case WEFTI_CUDA_ERROR_ILLEGAL_ADDRESS:
    case WEFTI_CUDA_ERROR_LAUNCH_TIMEOUT:
    case WEFTI_CUDA_ERROR_ASSERT:
    case WEFTI_CUDA_ERROR_HARDWARE_STACK_ERROR:
    case WEFTI_CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case WEFTI_CUDA_ERROR_MISALIGNED_ADDRESS:
    case WEFTI_CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case WEFTI_CUDA_ERROR_INVALID_PC:
    case WEFTI_CUDA_ERROR_LAUNCH_FAILED:
    case WEFTI_CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

static weft_status to_status(int result)
{
    switch (result) {
    case WEFTI_CUDA_SUCCESS:
        return WEFT_OK;
    case WEFTI_CUDA_ERROR_OUT_OF_MEMORY:
        return WEFT_ERR_NO_MEMORY;
    case WEFTI_CUDA_ERROR_INVALID_VALUE:
    case WEFTI_CUDA_ERROR_INVALID_HANDLE:
    case WEFTI_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
        return WEFT_ERR_INVALID;
    case WEFTI_CUDA_ERROR_NOT_SUPPORTED:
    case WEFTI_CUDA_ERROR_NOT_PERMITTED:
    case WEFTI_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case WEFTI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return WEFT_ERR_UNSUPPORTED;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

static const char *get_name(const wefti_cuda_gpu *gpu, int result)
{
    const char *name = NULL;
    gpu->api->cuGetErrorName(result, &name);
    return name ? name : "unknown error";
}

static const char *get_text(const wefti_cuda_gpu *gpu, int result)
{
    const char *text = NULL;
    gpu->api->cuGetErrorString(result, &text);
    return text ? text : "no text";
}

void wefti_cuda_note(wefti_cuda_gpu *gpu, int result)
{
    int none = 0;
    if (is_final(result) &&
        atomic_compare_exchange_strong(&gpu->broken, &none, result)) {
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "cuda device %d has failed: %s (%s); nothing runs on it any "
                  "more in this process",
                  gpu->index, get_name(gpu, result), get_text(gpu, result));
    }
}

weft_status wefti_cuda_get_failure(wefti_cuda_gpu *gpu)
{
    const int broken = atomic_load(&gpu->broken);
    return broken == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM,
                             "cuda device %d has failed: %s (%s)", gpu->index,
                             get_name(gpu, broken), get_text(gpu, broken));
}

weft_status wefti_cuda_check(wefti_cuda_gpu *gpu, int result, const char *what)
{
    if (result == WEFTI_CUDA_SUCCESS) {
        return WEFT_OK;
    }
    wefti_cuda_note(gpu, result);
    return wefti_error(to_status(result), "cuda device %d: %s: %s (%s)",
                       gpu->index, what, get_name(gpu, result),
                       get_text(gpu, result));
}

/* How often this thread has entered, and its mode outside. */
static _Thread_local unsigned depth;
static _Thread_local int outer_mode;

/* A capture of the program may forbid all threads what could disturb it
 * (cuThreadExchangeStreamCaptureMode); nothing that weft does could. */
static void relax_capture(const wefti_cuda_gpu *gpu)
{
    if (depth++ == 0) {
        outer_mode = WEFTI_CU_STREAM_CAPTURE_MODE_RELAXED;
        gpu->api->cuThreadExchangeStreamCaptureMode(&outer_mode);
    }
}

weft_status wefti_cuda_enter(wefti_cuda_gpu *gpu)
{
    weft_status status = wefti_cuda_get_failure(gpu);
    if (status == WEFT_OK) {
        status = wefti_cuda_check(gpu, gpu->api->cuCtxPushCurrent(gpu->context),
                                  "cuCtxPushCurrent");
    }
    if (status == WEFT_OK) {
        relax_capture(gpu);
    }
    return status;
}

void wefti_cuda_leave(wefti_cuda_gpu *gpu)
{
    struct CUctx_st *own;
    if (--depth == 0) {
        int inner_mode = outer_mode;
        gpu->api->cuThreadExchangeStreamCaptureMode(&inner_mode);
    }
    wefti_cuda_note(gpu, gpu->api->cuCtxPopCurrent(&own));
}

weft_status wefti_cuda_look(wefti_cuda_gpu *gpu)
{
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        wefti_cuda_note(gpu, gpu->api->cuStreamQuery(gpu->stream));
        wefti_cuda_leave(gpu);
    }
    return wefti_cuda_get_failure(gpu);
}

static int get_attribute(const wefti_cuda_gpu *gpu, int attribute)
{
    int value = 0;
    return gpu->api->cuDeviceGetAttribute(&value, attribute, gpu->native) ==
                   WEFTI_CUDA_SUCCESS
               ? value
               : 0;
}

/* What the driver reads in cuInit. */
static int read_connections(void)
{
    enum { USUAL = 8, MOST = 32 };
    const char *set = wefti_setting_foreign("CUDA_DEVICE_MAX_CONNECTIONS");
    const long count = set ? strtol(set, NULL, 10) : USUAL;
    return count < 1 ? USUAL : count > MOST ? MOST : (int)count;
}

enum {
    BY_DESCRIPTOR =
        WEFTI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
};

/* What weft cannot do without, and what it can do with the rest. */
static weft_status find_abilities(wefti_cuda_gpu *gpu)
{
    const int needed[] = {
        WEFTI_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
        WEFTI_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS};
    const char *const names[] = {"unified addressing",
                                 "stream memory operations of 64 bits"};
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (!get_attribute(gpu, needed[i])) {
            return wefti_error(WEFT_ERR_UNSUPPORTED, "cuda device %d has no %s",
                               gpu->index, names[i]);
        }
    }
    gpu->flushes =
        get_attribute(gpu, WEFTI_CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
    gpu->registers =
        get_attribute(gpu, WEFTI_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) &&
        get_attribute(
            gpu,
            WEFTI_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    gpu->exportable =
        get_attribute(
            gpu,
            WEFTI_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
        get_attribute(gpu, BY_DESCRIPTOR);
    gpu->multiprocessors =
        get_attribute(gpu, WEFTI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    gpu->connections = read_connections();
    gpu->caps = WEFT_CAP_TIMES | WEFT_CAP_IPC;
    return WEFT_OK;
}

typedef struct part {
    weft_status (*create)(wefti_cuda_gpu *gpu);
    void (*destroy)(wefti_cuda_gpu *gpu);
} part;

static const part parts[] = {
    {wefti_cuda_release_create, wefti_cuda_release_destroy},
    {wefti_cuda_memory_create, wefti_cuda_memory_destroy},
    {wefti_cuda_imports_create, wefti_cuda_imports_destroy},
    {wefti_cuda_words_create, wefti_cuda_words_destroy},
    {wefti_cuda_copies_create, wefti_cuda_copies_destroy},
    {wefti_cuda_clock_create, wefti_cuda_clock_destroy},
    {wefti_cuda_module_create, wefti_cuda_module_destroy},
    {wefti_cuda_products_create, wefti_cuda_products_destroy}};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static void destroy_parts(wefti_cuda_gpu *gpu, size_t count)
{
    while (count-- > 0) {
        parts[count].destroy(gpu);
    }
}

/* In the context. */
static weft_status create_parts(wefti_cuda_gpu *gpu)
{
    weft_status status =
        wefti_cuda_check(gpu,
                         gpu->api->cuCtxGetStreamPriorityRange(
                             &gpu->priority_least, &gpu->priority_greatest),
                         "cuCtxGetStreamPriorityRange");
    if (status == WEFT_OK) {
        status =
            wefti_cuda_check(gpu,
                             gpu->api->cuStreamCreateWithPriority(
                                 &gpu->stream, WEFTI_CU_STREAM_NON_BLOCKING,
                                 gpu->priority_greatest),
                             "cuStreamCreateWithPriority");
    }
    size_t made = 0;
    while (status == WEFT_OK && made < PARTS) {
        status = parts[made].create(gpu);
        made += status == WEFT_OK;
    }
    if (status < 0) {
        destroy_parts(gpu, made);
        if (gpu->stream) {
            gpu->api->cuStreamDestroy(gpu->stream);
        }
        return status;
    }
    if (wefti_cuda_green_is_there(gpu)) {
        gpu->caps |= WEFT_CAP_SM_BUDGET;
    }
    return WEFT_OK;
}

static weft_status open_native(wefti_cuda_gpu *gpu)
{
    int count = 0;
    weft_status status = wefti_cuda_check(
        gpu, gpu->api->cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (status == WEFT_OK && (gpu->index < 0 || gpu->index >= count)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "index %d of a cuda device: allowed is 0 to %d",
                             gpu->index, count - 1);
    }
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu, gpu->api->cuDeviceGet(&gpu->native, gpu->index),
            "cuDeviceGet");
    }
    if (status == WEFT_OK) {
        status = find_abilities(gpu);
    }
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu, gpu->api->cuDevicePrimaryCtxRetain(&gpu->context, gpu->native),
            "cuDevicePrimaryCtxRetain");
    }
    return status;
}

static weft_status create(int index, const wefti_cuda_api *api,
                          wefti_cuda_gpu **gpu_out)
{
    wefti_cuda_gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    gpu->api = api;
    gpu->index = index;
    weft_status status = open_native(gpu);
    if (status < 0) {
        goto err_free;
    }
    status = wefti_cuda_enter(gpu);
    if (status == WEFT_OK) {
        status = create_parts(gpu);
        wefti_cuda_leave(gpu);
    }
    if (status < 0) {
        goto err_release;
    }
    *gpu_out = gpu;
    return WEFT_OK;

err_release:
    api->cuDevicePrimaryCtxRelease(gpu->native);
err_free:
    free(gpu);
    return status;
}

static wefti_cuda_gpu *find_locked(int index)
{
    wefti_cuda_gpu *gpu = list;
    while (gpu && gpu->index != index) {
        gpu = gpu->next;
    }
    return gpu;
}

weft_status wefti_cuda_gpu_open(int index, wefti_cuda_gpu **gpu_out)
{
    const wefti_cuda_api *api;
    weft_status status = wefti_cuda_api_open(&api);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&list_lock);
    wefti_cuda_gpu *gpu = find_locked(index);
    if (gpu) {
        status = wefti_cuda_get_failure(gpu);
    } else {
        status = create(index, api, &gpu);
        if (status == WEFT_OK) {
            gpu->next = list;
            list = gpu;
        }
    }
    if (status == WEFT_OK) {
        gpu->opened++;
        *gpu_out = gpu;
    }
    pthread_mutex_unlock(&list_lock);
    return status;
}

/* After a failure the driver refuses all of it, and has nothing left to give
 * back but the context. */
static void destroy(wefti_cuda_gpu *gpu)
{
    struct CUctx_st *own;
    const bool entered =
        gpu->api->cuCtxPushCurrent(gpu->context) == WEFTI_CUDA_SUCCESS;
    destroy_parts(gpu, PARTS);
    gpu->api->cuStreamDestroy(gpu->stream);
    if (entered) {
        gpu->api->cuCtxPopCurrent(&own);
    }
    gpu->api->cuDevicePrimaryCtxRelease(gpu->native);
    free(gpu);
}

void wefti_cuda_gpu_close(wefti_cuda_gpu *gpu)
{
    pthread_mutex_lock(&list_lock);
    if (--gpu->opened == 0) {
        wefti_cuda_gpu **place = &list;
        while (*place != gpu) {
            place = &(*place)->next;
        }
        *place = gpu->next;
        destroy(gpu);
    }
    pthread_mutex_unlock(&list_lock);
}

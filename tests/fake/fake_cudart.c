/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cudart.c - libcudart.so.13: a stand-in for CUDA's runtime
 * over the fake driver, for programs that are linked with the runtime, as
 * PyTorch is: NVIDIA's own asks a driver for tables that nothing describes.
 *
 * It does what documented functions of the driver do (cuda_runtime_api.h). It
 * runs no kernel: those of the program are not looked at, and what would launch
 * one, or is not here, is refused by cudaErrorNotSupported, with a line. The
 * default stream is a stream of its own for each device, which no other waits
 * for: right for programs whose other streams are non-blocking.
 */
#include "tests/fake/fake_functions.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_DEVICES = 16,
    NOT_SUPPORTED = 801,
    INVALID_DEVICE = 101,
    NO_DEVICE = 100,
    VERSION = 13020,
    POINTER_HOST = 1, /* enum cudaMemoryType */
    POINTER_DEVICE = 2,
    COPY_HOST_TO_HOST = 0
};

/* struct cudaDeviceProp of 13.x (driver_types.h), of which this is set. */
typedef struct fake_cudart_prop {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t memory_bytes;
    size_t shared_bytes;
    int registers;
    int warp;
    size_t pitch;
    int threads;
    int block[3];
    int grid[3];
    size_t constant_bytes;
    int major, minor;
    size_t alignments[2];
    int processors;
    char rest[1008 - 388];
} fake_cudart_prop;

static struct {
    pthread_mutex_t lock;
    CUcontext contexts[MOST_DEVICES];
    CUstream streams[MOST_DEVICES]; /* the default ones */
} runtime = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int current;
static _Thread_local int last_error;

/* What is not an answer but a failure is remembered, as by the runtime. */
static int end(int result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        last_error = result;
    }
    return result;
}

static int refuse(const char *name)
{
    fprintf(stderr, "fake cudart: %s is not there\n", name);
    return end(NOT_SUPPORTED);
}

/* The current device's primary context, which becomes the thread's. */
static int enter(void)
{
    int count = 0;
    int result = (int)cuInit(0);
    result = result ? result : (int)cuDeviceGetCount(&count);
    if (result || current >= count) {
        return result ? result : INVALID_DEVICE;
    }
    pthread_mutex_lock(&runtime.lock);
    if (!runtime.contexts[current]) {
        result =
            (int)cuDevicePrimaryCtxRetain(&runtime.contexts[current], current);
    }
    pthread_mutex_unlock(&runtime.lock);
    return result ? result : (int)cuCtxSetCurrent(runtime.contexts[current]);
}

/* NULL, and 1 and 2 (the default streams by their names), are the device's. */
static int find_stream(CUstream *stream)
{
    int result = enter();
    if (result || (uintptr_t)*stream > 2) {
        return result;
    }
    pthread_mutex_lock(&runtime.lock);
    if (!runtime.streams[current]) {
        result = (int)cuStreamCreateWithPriority(&runtime.streams[current],
                                                 CU_STREAM_NON_BLOCKING, 0);
    }
    *stream = runtime.streams[current];
    pthread_mutex_unlock(&runtime.lock);
    return result;
}

#define ENTERED(call)                                                          \
    do {                                                                       \
        const int entered_ = enter();                                          \
        return end(entered_ ? entered_ : (int)(call));                         \
    } while (0)

#define ON_STREAM(stream, call)                                                \
    do {                                                                       \
        const int found_ = find_stream(&(stream));                             \
        return end(found_ ? found_ : (int)(call));                             \
    } while (0)

/* The prototypes are the toolkit's, which need not be installed. */
#define RUNTIME(name, ...)                                                     \
    int name(__VA_ARGS__);                                                     \
    int name(__VA_ARGS__)

#pragma GCC visibility push(default)

/* ---- versions, errors, devices ---- */

RUNTIME(cudaDriverGetVersion, int *version)
{
    return end((int)cuDriverGetVersion(version));
}

RUNTIME(cudaRuntimeGetVersion, int *version)
{
    *version = VERSION;
    return 0;
}

RUNTIME(cudaGetLastError, void)
{
    const int error = last_error;
    last_error = 0;
    return error;
}

RUNTIME(cudaPeekAtLastError, void)
{
    return last_error;
}

const char *cudaGetErrorName(int error);
const char *cudaGetErrorName(int error)
{
    const char *text = "an error without a name";
    (void)cuGetErrorName((CUresult)error, &text);
    return text;
}

const char *cudaGetErrorString(int error);
const char *cudaGetErrorString(int error)
{
    const char *text =
        error == NOT_SUPPORTED ? "not there in the fake runtime" : "an error";
    (void)cuGetErrorString((CUresult)error, &text);
    return text;
}

RUNTIME(cudaGetDeviceCount, int *count)
{
    const int result = (int)cuInit(0);
    *count = 0;
    return end(result ? result : (int)cuDeviceGetCount(count));
}

RUNTIME(cudaGetDevice, int *device)
{
    *device = current;
    return 0;
}

RUNTIME(cudaSetDevice, int device)
{
    int count = 0;
    int result = cudaGetDeviceCount(&count);
    if (result || device < 0 || device >= count) {
        return end(result ? result : INVALID_DEVICE);
    }
    current = device;
    ENTERED(CUDA_SUCCESS);
}

static int attribute(CUdevice_attribute what, int device)
{
    int value = 0;
    (void)cuDeviceGetAttribute(&value, what, device);
    return value;
}

RUNTIME(cudaDeviceGetAttribute, int *value, int what, int device)
{
    ENTERED(cuDeviceGetAttribute(value, (CUdevice_attribute)what, device));
}

RUNTIME(cudaGetDeviceProperties, fake_cudart_prop *out, int device)
{
    int result = enter();
    _Static_assert(sizeof(fake_cudart_prop) == 1008, "as in driver_types.h");
    if (result) {
        return end(result);
    }
    memset(out, 0, sizeof(*out));
    out->shared_bytes = (size_t)attribute(
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
    out->registers = 65536;
    out->warp = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
    out->threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
    for (int i = 0; i < 3; i++) {
        out->block[i] = attribute(
            (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i),
            device);
        out->grid[i] = attribute(
            (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i),
            device);
    }
    out->major =
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    out->minor =
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    out->processors =
        attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    result = (int)cuDeviceGetName(out->name, sizeof(out->name), device);
    return end(result ? result
                      : (int)cuDeviceTotalMem_v2(&out->memory_bytes, device));
}

RUNTIME(cudaDeviceGetStreamPriorityRange, int *least, int *greatest)
{
    ENTERED(cuCtxGetStreamPriorityRange(least, greatest));
}

RUNTIME(cudaDeviceGetPCIBusId, char *id, int bytes, int device)
{
    ENTERED(cuDeviceGetPCIBusId(id, bytes, device));
}

RUNTIME(cudaDeviceCanAccessPeer, int *can, int device, int peer)
{
    ENTERED(cuDeviceCanAccessPeer(can, device, peer));
}

RUNTIME(cudaDeviceSynchronize, void)
{
    ENTERED(cuCtxSynchronize());
}

RUNTIME(cudaGetDriverEntryPointByVersion, const char *symbol, void **function,
        unsigned version, unsigned long long flags, int *status)
{
    CUdriverProcAddressQueryResult found = 0;
    *function = NULL;
    (void)cuGetProcAddress_v2(symbol, function, (int)version, flags, &found);
    if (status) {
        *status = *function ? 0 : 1; /* cudaDriverEntryPointSymbolNotFound */
    }
    return 0;
}

/* ---- memory ---- */

RUNTIME(cudaMalloc, void **pointer, size_t bytes)
{
    CUdeviceptr made = 0;
    int result = enter();
    result = result || bytes == 0 ? result : (int)cuMemAlloc_v2(&made, bytes);
    *pointer = (void *)(uintptr_t)made;
    return end(result);
}

RUNTIME(cudaFree, void *pointer)
{
    ENTERED(pointer ? cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer)
                    : CUDA_SUCCESS);
}

RUNTIME(cudaHostAlloc, void **pointer, size_t bytes, unsigned flags)
{
    ENTERED(cuMemHostAlloc(pointer, bytes, flags));
}

RUNTIME(cudaMallocHost, void **pointer, size_t bytes)
{
    ENTERED(cuMemHostAlloc(pointer, bytes, 0));
}

RUNTIME(cudaFreeHost, void *pointer)
{
    ENTERED(cuMemFreeHost(pointer));
}

RUNTIME(cudaHostRegister, void *pointer, size_t bytes, unsigned flags)
{
    ENTERED(cuMemHostRegister_v2(pointer, bytes, flags));
}

RUNTIME(cudaHostUnregister, void *pointer)
{
    ENTERED(cuMemHostUnregister(pointer));
}

RUNTIME(cudaMemGetInfo, size_t *unused, size_t *total)
{
    ENTERED(cuMemGetInfo_v2(unused, total));
}

typedef struct fake_cudart_pointer {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
} fake_cudart_pointer;

/* What no device knows is no error: its type is 0. */
RUNTIME(cudaPointerGetAttributes, fake_cudart_pointer *out, const void *pointer)
{
    CUmemorytype type = 0;
    int ordinal = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *answers[] = {&type, &ordinal};
    int result = enter();
    memset(out, 0, sizeof(*out));
    if (result) {
        return end(result);
    }
    const bool known =
        cuPointerGetAttributes(2, asked, answers,
                               (CUdeviceptr)(uintptr_t)pointer) == 0 &&
        type != 0;
    out->type = known ? (int)type : 0;
    out->device = known ? ordinal : -2;
    out->device_pointer = known ? (void *)(uintptr_t)pointer : NULL;
    out->host_pointer =
        out->type == POINTER_DEVICE ? NULL : (void *)(uintptr_t)pointer;
    return 0;
}

RUNTIME(cudaMemcpyAsync, void *dst, const void *src, size_t bytes, int kind,
        CUstream stream)
{
    if (kind == COPY_HOST_TO_HOST) {
        const int result = find_stream(&stream);
        if (result || cuStreamSynchronize(stream)) {
            return end(result);
        }
        memcpy(dst, src, bytes);
        return 0;
    }
    ON_STREAM(stream, bytes == 0 ? CUDA_SUCCESS
                                 : cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst,
                                                 (CUdeviceptr)(uintptr_t)src,
                                                 bytes, stream));
}

RUNTIME(cudaMemcpy, void *dst, const void *src, size_t bytes, int kind)
{
    CUstream stream = NULL;
    const int result = cudaMemcpyAsync(dst, src, bytes, kind, NULL);
    if (result) {
        return result;
    }
    ON_STREAM(stream, cuStreamSynchronize(stream));
}

RUNTIME(cudaMemsetAsync, void *dst, int value, size_t bytes, CUstream stream)
{
    ON_STREAM(stream, cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst,
                                      (unsigned char)value, bytes, stream));
}

/* ---- streams and events ---- */

RUNTIME(cudaStreamCreateWithPriority, CUstream *stream, unsigned flags,
        int priority)
{
    ENTERED(cuStreamCreateWithPriority(stream, flags, priority));
}

RUNTIME(cudaStreamCreateWithFlags, CUstream *stream, unsigned flags)
{
    ENTERED(cuStreamCreateWithPriority(stream, flags, 0));
}

RUNTIME(cudaStreamDestroy, CUstream stream)
{
    ENTERED(cuStreamDestroy_v2(stream));
}

RUNTIME(cudaStreamQuery, CUstream stream)
{
    ON_STREAM(stream, cuStreamQuery(stream));
}

RUNTIME(cudaStreamSynchronize, CUstream stream)
{
    ON_STREAM(stream, cuStreamSynchronize(stream));
}

RUNTIME(cudaStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)
{
    ON_STREAM(stream, cuStreamWaitEvent(stream, event, flags));
}

RUNTIME(cudaStreamGetPriority, CUstream stream, int *priority)
{
    ON_STREAM(stream, cuStreamGetPriority(stream, priority));
}

RUNTIME(cudaStreamIsCapturing, CUstream stream, CUstreamCaptureStatus *status)
{
    ON_STREAM(stream, cuStreamIsCapturing(stream, status));
}

RUNTIME(cudaStreamGetCaptureInfo, CUstream stream,
        CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
        const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
        size_t *count)
{
    ON_STREAM(stream, cuStreamGetCaptureInfo_v3(stream, status, id, graph,
                                                dependencies, edges, count));
}

RUNTIME(cudaThreadExchangeStreamCaptureMode, CUstreamCaptureMode *mode)
{
    ENTERED(cuThreadExchangeStreamCaptureMode(mode));
}

RUNTIME(cudaLaunchHostFunc, CUstream stream, CUhostFn function, void *data)
{
    ON_STREAM(stream, cuLaunchHostFunc(stream, function, data));
}

RUNTIME(cudaEventCreateWithFlags, CUevent *event, unsigned flags)
{
    ENTERED(cuEventCreate(event, flags));
}

RUNTIME(cudaEventCreate, CUevent *event)
{
    ENTERED(cuEventCreate(event, 0));
}

RUNTIME(cudaEventDestroy, CUevent event)
{
    ENTERED(cuEventDestroy_v2(event));
}

RUNTIME(cudaEventRecord, CUevent event, CUstream stream)
{
    ON_STREAM(stream, cuEventRecord(event, stream));
}

/* No flag but 0 without graphs. */
RUNTIME(cudaEventRecordWithFlags, CUevent event, CUstream stream,
        unsigned flags)
{
    return flags == 0 ? cudaEventRecord(event, stream)
                      : refuse("cudaEventRecordWithFlags with flags");
}

RUNTIME(cudaEventElapsedTime, float *ms, CUevent first, CUevent last)
{
    ENTERED(cuEventElapsedTime_v2(ms, first, last));
}

RUNTIME(cudaEventQuery, CUevent event)
{
    ENTERED(cuEventQuery(event));
}

RUNTIME(cudaEventSynchronize, CUevent event)
{
    ENTERED(cuEventSynchronize(event));
}

/* ---- the program's kernels, which are not looked at ---- */

void **__cudaRegisterFatBinary(void *image);
void **__cudaRegisterFatBinary(void *image)
{
    static void *registered;
    (void)image;
    return &registered;
}

void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void);
void __cudaRegisterFunction(void)
{
}

void __cudaRegisterVar(void);
void __cudaRegisterVar(void)
{
}

/* ---- what is not there ---- */

#define REFUSED(name)                                                          \
    int name(void);                                                            \
    int name(void)                                                             \
    {                                                                          \
        return refuse(#name);                                                  \
    }
#include "tests/fake/fake_cudart_lacking.inc"

#pragma GCC visibility pop

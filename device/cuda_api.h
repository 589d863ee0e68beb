/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_api.h - the part of the CUDA driver's interface that weft uses,
 * declared here so that weft builds without the toolkit, and opened at run
 * time.
 *
 * Names, values and layouts are those of cuda.h; tests/device/test_cuda_abi.c
 * compares them with it where the toolkit is installed. A CUresult, and every
 * other enumeration, is an int here, and a CUdeviceptr an uint64_t.
 */
#ifndef DEVICE_CUDA_API_H
#define DEVICE_CUDA_API_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUlib_st;
struct CUkern_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgreenCtx_st;
struct CUdevResourceDesc_st;

/* X(name without WEFTI_, value): results. */
#define WEFTI_CUDA_RESULTS(X)                                                  \
    X(CUDA_SUCCESS, 0)                                                         \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                             \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                             \
    X(CUDA_ERROR_DEINITIALIZED, 4)                                             \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                                             \
    X(CUDA_ERROR_NO_DEVICE, 100)                                               \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                                          \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                                           \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                       \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                 \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                    \
    X(CUDA_ERROR_CONTAINED, 226)                                               \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                                          \
    X(CUDA_ERROR_NOT_FOUND, 500)                                               \
    X(CUDA_ERROR_NOT_READY, 600)                                               \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                         \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                          \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                             \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                    \
    X(CUDA_ERROR_ASSERT, 710)                                                  \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                          \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                    \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                     \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                      \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                   \
    X(CUDA_ERROR_INVALID_PC, 718)                                              \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                           \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)                                      \
    X(CUDA_ERROR_NOT_PERMITTED, 800)                                           \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                                           \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                  \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810)                                   \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                 \
    X(CUDA_ERROR_EXTERNAL_DEVICE, 911)

/* The same of all other constants. */
#define WEFTI_CUDA_CONSTANTS(X)                                                \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                            \
    X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                              \
    X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                              \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                        \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                        \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)         \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)               \
    X(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 98)                         \
    X(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99)                         \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)            \
    X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)    \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)                  \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                      \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                     \
    X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                       \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                      \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                  \
    X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                     \
    X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                               \
    X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                     \
    X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                           \
    X(CU_MEMORYTYPE_HOST, 1)                                                   \
    X(CU_MEMORYTYPE_DEVICE, 2)                                                 \
    X(CU_STREAM_NON_BLOCKING, 1)                                               \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                        \
    X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                 \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                       \
    X(CU_EVENT_DEFAULT, 0)                                                     \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                             \
    X(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                            \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                          \
    X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                         \
    X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                   \
    X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                             \
    X(CU_STREAM_WAIT_VALUE_FLUSH, 1 << 30)                                     \
    X(CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                        \
    X(CU_STREAM_MEM_OP_WRITE_VALUE_32, 2)                                      \
    X(CU_STREAM_MEM_OP_WAIT_VALUE_64, 4)                                       \
    X(CU_STREAM_MEM_OP_WRITE_VALUE_64, 5)                                      \
    X(CU_DEV_RESOURCE_TYPE_SM, 1)                                              \
    X(CU_GREEN_CTX_DEFAULT_STREAM, 1)                                          \
    X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                             \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                          \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                        \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                     \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)

enum {
#define WEFTI_CUDA_ENUM(name, value) WEFTI_##name = value,
    WEFTI_CUDA_RESULTS(WEFTI_CUDA_ENUM) WEFTI_CUDA_CONSTANTS(WEFTI_CUDA_ENUM)
#undef WEFTI_CUDA_ENUM
        WEFTI_CUDA_FIRST_VERSION = 12000 /* of a driver, as it counts */
};

/* CU_STREAM_PER_THREAD: another queue in each thread. */
#define WEFTI_CU_STREAM_PER_THREAD ((void *)0x2)

/* One operation of a batch (CUstreamBatchMemOpParams): waits and writes have
 * the same layout. */
typedef union wefti_cuda_memop {
    struct {
        int operation;
        uint64_t address;
        uint64_t value64;
        unsigned flags;
        uint64_t alias;
    } value;
    uint64_t pad[6];
} wefti_cuda_memop;

typedef struct wefti_cuda_ipc_handle {
    char reserved[64];
} wefti_cuda_ipc_handle;

typedef struct wefti_cuda_uuid {
    char bytes[16];
} wefti_cuda_uuid;

typedef struct wefti_cuda_location {
    int type;
    int id;
} wefti_cuda_location;

typedef struct wefti_cuda_alloc_prop {
    int type;
    int handle_types;
    wefti_cuda_location location;
    void *win32;
    unsigned char flags[8];
} wefti_cuda_alloc_prop;

typedef struct wefti_cuda_access {
    wefti_cuda_location location;
    int flags;
} wefti_cuda_access;

typedef struct wefti_cuda_resource {
    int type;
    unsigned char padding[92];
    union {
        struct {
            unsigned count, least, alignment;
        } sm;
        unsigned char room[48];
    };
} wefti_cuda_resource;

/*
 * X(name, version, required, arguments): what is asked of the driver under a
 * name and the version of the toolkit whose declaration this is. Without a
 * required one there is no device.
 */
#define WEFTI_CUDA_FUNCTIONS(X)                                                \
    X(cuInit, 2000, 1, (unsigned flags))                                       \
    X(cuGetErrorName, 6000, 1, (int error, const char **text))                 \
    X(cuGetErrorString, 6000, 1, (int error, const char **text))               \
    X(cuDeviceGetCount, 2000, 1, (int *count))                                 \
    X(cuDeviceGet, 2000, 1, (int *device, int ordinal))                        \
    X(cuDeviceGetName, 2000, 1, (char *name, int bytes, int device))           \
    X(cuDeviceGetAttribute, 2000, 1, (int *value, int attribute, int device))  \
    X(cuDeviceGetUuid, 11040, 1, (wefti_cuda_uuid * uuid, int device))         \
    X(cuDeviceGetPCIBusId, 4010, 1, (char *id, int bytes, int device))         \
    X(cuDeviceTotalMem, 3020, 1, (size_t * bytes, int device))                 \
    X(cuDeviceCanAccessPeer, 4000, 1, (int *can, int device, int peer))        \
    X(cuDevicePrimaryCtxRetain, 7000, 1,                                       \
      (struct CUctx_st * *context, int device))                                \
    X(cuDevicePrimaryCtxRelease, 11000, 1, (int device))                       \
    X(cuCtxEnablePeerAccess, 4000, 1,                                          \
      (struct CUctx_st * context, unsigned flags))                             \
    X(cuCtxPushCurrent, 4000, 1, (struct CUctx_st * context))                  \
    X(cuCtxPopCurrent, 4000, 1, (struct CUctx_st * *context))                  \
    X(cuCtxGetStreamPriorityRange, 5050, 1, (int *least, int *greatest))       \
    X(cuMemAlloc, 3020, 1, (uint64_t * pointer, size_t bytes))                 \
    X(cuMemFree, 3020, 1, (uint64_t pointer))                                  \
    X(cuMemHostAlloc, 2020, 1, (void **pointer, size_t bytes, unsigned flags)) \
    X(cuMemFreeHost, 2000, 1, (void *pointer))                                 \
    X(cuMemHostRegister, 6050, 1,                                              \
      (void *pointer, size_t bytes, unsigned flags))                           \
    X(cuMemHostUnregister, 4000, 1, (void *pointer))                           \
    X(cuMemcpyAsync, 4000, 1,                                                  \
      (uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st * stream)) \
    X(cuPointerGetAttributes, 7000, 1,                                         \
      (unsigned count, int *attributes, void **data, uint64_t pointer))        \
    X(cuStreamCreateWithPriority, 5050, 1,                                     \
      (struct CUstream_st * *stream, unsigned flags, int priority))            \
    X(cuStreamDestroy, 4000, 1, (struct CUstream_st * stream))                 \
    X(cuStreamQuery, 2000, 1, (struct CUstream_st * stream))                   \
    X(cuStreamWaitEvent, 3020, 1,                                              \
      (struct CUstream_st * stream, struct CUevent_st * event,                 \
       unsigned flags))                                                        \
    X(cuStreamGetCtx, 9020, 1,                                                 \
      (struct CUstream_st * stream, struct CUctx_st * *context))               \
    X(cuStreamIsCapturing, 10000, 1,                                           \
      (struct CUstream_st * stream, int *status))                              \
    X(cuThreadExchangeStreamCaptureMode, 10010, 1, (int *mode))                \
    X(cuStreamBeginCapture, 10010, 0, (struct CUstream_st * stream, int mode)) \
    X(cuStreamEndCapture, 10000, 0,                                            \
      (struct CUstream_st * stream, struct CUgraph_st * *graph))               \
    X(cuGraphInstantiateWithFlags, 11040, 0,                                   \
      (struct CUgraphExec_st * *exec, struct CUgraph_st * graph,               \
       unsigned long long flags))                                              \
    X(cuGraphDestroy, 10000, 0, (struct CUgraph_st * graph))                   \
    X(cuGraphLaunch, 10000, 0,                                                 \
      (struct CUgraphExec_st * exec, struct CUstream_st * stream))             \
    X(cuGraphExecDestroy, 10000, 0, (struct CUgraphExec_st * exec))            \
    X(cuLaunchHostFunc, 10000, 1,                                              \
      (struct CUstream_st * stream, void (*call)(void *), void *arg))          \
    X(cuEventCreate, 2000, 1, (struct CUevent_st * *event, unsigned flags))    \
    X(cuEventDestroy, 4000, 1, (struct CUevent_st * event))                    \
    X(cuEventRecord, 2000, 1,                                                  \
      (struct CUevent_st * event, struct CUstream_st * stream))                \
    X(cuEventQuery, 2000, 1, (struct CUevent_st * event))                      \
    X(cuEventElapsedTime, 2000, 1,                                             \
      (float *ms, struct CUevent_st *start, struct CUevent_st *end))           \
    X(cuStreamWriteValue64, 11070, 1,                                          \
      (struct CUstream_st * stream, uint64_t at, uint64_t value,               \
       unsigned flags))                                                        \
    X(cuStreamWriteValue32, 11070, 1,                                          \
      (struct CUstream_st * stream, uint64_t at, uint32_t value,               \
       unsigned flags))                                                        \
    X(cuStreamWaitValue64, 11070, 1,                                           \
      (struct CUstream_st * stream, uint64_t at, uint64_t value,               \
       unsigned flags))                                                        \
    X(cuStreamBatchMemOp, 11070, 0,                                            \
      (struct CUstream_st * stream, unsigned count,                            \
       wefti_cuda_memop *operations, unsigned flags))                          \
    X(cuIpcGetMemHandle, 4010, 1,                                              \
      (wefti_cuda_ipc_handle * handle, uint64_t pointer))                      \
    X(cuIpcOpenMemHandle, 11000, 1,                                            \
      (uint64_t * pointer, wefti_cuda_ipc_handle handle, unsigned flags))      \
    X(cuIpcCloseMemHandle, 4010, 1, (uint64_t pointer))                        \
    X(cuMemGetAllocationGranularity, 10020, 1,                                 \
      (size_t * bytes, const wefti_cuda_alloc_prop *prop, int option))         \
    X(cuMemCreate, 10020, 1,                                                   \
      (uint64_t * handle, size_t bytes, const wefti_cuda_alloc_prop *prop,     \
       unsigned long long flags))                                              \
    X(cuMemRelease, 10020, 1, (uint64_t handle))                               \
    X(cuMemExportToShareableHandle, 10020, 1,                                  \
      (void *shared, uint64_t handle, int type, unsigned long long flags))     \
    X(cuMemImportFromShareableHandle, 10020, 1,                                \
      (uint64_t * handle, void *shared, int type))                             \
    X(cuMemAddressReserve, 10020, 1,                                           \
      (uint64_t * pointer, size_t bytes, size_t alignment, uint64_t wanted,    \
       unsigned long long flags))                                              \
    X(cuMemAddressFree, 10020, 1, (uint64_t pointer, size_t bytes))            \
    X(cuMemMap, 10020, 1,                                                      \
      (uint64_t pointer, size_t bytes, size_t offset, uint64_t handle,         \
       unsigned long long flags))                                              \
    X(cuMemUnmap, 10020, 1, (uint64_t pointer, size_t bytes))                  \
    X(cuMemSetAccess, 10020, 1,                                                \
      (uint64_t pointer, size_t bytes, const wefti_cuda_access *access,        \
       size_t count))                                                          \
    X(cuLibraryLoadData, 12000, 1,                                             \
      (struct CUlib_st * *library, const void *code, int *jit,                 \
       void **jit_values, unsigned jit_count, int *options, void **values,     \
       unsigned count))                                                        \
    X(cuLibraryUnload, 12000, 1, (struct CUlib_st * library))                  \
    X(cuLibraryGetKernel, 12000, 1,                                            \
      (struct CUkern_st * *kernel, struct CUlib_st * library,                  \
       const char *name))                                                      \
    X(cuLibraryGetKernelCount, 12040, 0,                                       \
      (unsigned *count, struct CUlib_st *library))                             \
    X(cuLibraryEnumerateKernels, 12040, 0,                                     \
      (struct CUkern_st * *kernels, unsigned count, struct CUlib_st *library)) \
    X(cuKernelGetFunction, 12000, 1,                                           \
      (struct CUfunc_st * *function, struct CUkern_st * kernel))               \
    X(cuKernelSetAttribute, 12000, 1,                                          \
      (int attribute, int value, struct CUkern_st *kernel, int device))        \
    X(cuLaunchKernel, 4000, 1,                                                 \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y,          \
       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,  \
       unsigned shared_bytes, struct CUstream_st *stream, void **params,       \
       void **extra))                                                          \
    X(cuDeviceGetDevResource, 12040, 0,                                        \
      (int device, wefti_cuda_resource *resource, int type))                   \
    X(cuDevSmResourceSplitByCount, 12040, 0,                                   \
      (wefti_cuda_resource * groups, unsigned *count,                          \
       const wefti_cuda_resource *input, wefti_cuda_resource *rest,            \
       unsigned flags, unsigned least))                                        \
    X(cuDevResourceGenerateDesc, 12040, 0,                                     \
      (struct CUdevResourceDesc_st * *desc, wefti_cuda_resource * resources,   \
       unsigned count))                                                        \
    X(cuGreenCtxCreate, 12040, 0,                                              \
      (struct CUgreenCtx_st * *green, struct CUdevResourceDesc_st * desc,      \
       int device, unsigned flags))                                            \
    X(cuGreenCtxDestroy, 12040, 0, (struct CUgreenCtx_st * green))             \
    X(cuGreenCtxStreamCreate, 12050, 0,                                        \
      (struct CUstream_st * *stream, struct CUgreenCtx_st * green,             \
       unsigned flags, int priority))                                          \
    X(cuCtxFromGreenCtx, 12040, 0,                                             \
      (struct CUctx_st * *context, struct CUgreenCtx_st * green))

/* The functions, by their names; those that are not required may be NULL. */
typedef struct wefti_cuda_api {
    int version; /* of the driver */
#define WEFTI_CUDA_MEMBER(name, version, required, arguments)                  \
    int(*name) arguments;
    WEFTI_CUDA_FUNCTIONS(WEFTI_CUDA_MEMBER)
#undef WEFTI_CUDA_MEMBER
} wefti_cuda_api;

/*
 * wefti_cuda_api_open - the driver of this process, opened by the first call
 * and kept.
 *
 * Returns     OK | ERR_UNSUPPORTED (no driver, one that is too old, one that
 *             lacks a function, no device, the parent of this process has
 *             opened it: the text says which) | ERR_SYSTEM (cuInit failed).
 * Threads     any.
 */
WEFT_NODISCARD weft_status wefti_cuda_api_open(const wefti_cuda_api **api_out);

#endif

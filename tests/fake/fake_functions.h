/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_functions.h - the functions of the fake driver: those that
 * weft uses, those that a program with device work of its own calls beside it,
 * as the tests do, and no other.
 *
 * FAKE_FUNCTIONS: X(name for cuGetProcAddress, variant, first version of that
 * variant, arguments). A name may have several variants, newest first;
 * cuGetProcAddress gives the newest that is not newer than the version asked
 * for, as its documentation says of the name without suffix. Versions are those
 * of the toolkit's cudaTypedefs.h.
 */
#ifndef TESTS_FAKE_FAKE_FUNCTIONS_H
#define TESTS_FAKE_FAKE_FUNCTIONS_H

#include "tests/fake/fake_abi.h"

#define FAKE_FUNCTIONS(X)                                                      \
    X(cuInit, cuInit, 2000, (unsigned flags))                                  \
    X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version))            \
    X(cuGetProcAddress, cuGetProcAddress_v2, 12000,                            \
      (const char *symbol, void **function, int version, uint64_t flags,       \
       CUdriverProcAddressQueryResult *status))                                \
    X(cuGetErrorName, cuGetErrorName, 6000,                                    \
      (CUresult error, const char **text))                                     \
    X(cuGetErrorString, cuGetErrorString, 6000,                                \
      (CUresult error, const char **text))                                     \
    X(cuDeviceGet, cuDeviceGet, 2000, (CUdevice * device, int ordinal))        \
    X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count))                  \
    X(cuDeviceGetName, cuDeviceGetName, 2000,                                  \
      (char *name, int bytes, CUdevice device))                                \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,                        \
      (int *value, CUdevice_attribute attribute, CUdevice device))             \
    X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040,                              \
      (CUuuid * uuid, CUdevice device))                                        \
    X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010,                          \
      (char *id, int bytes, CUdevice device))                                  \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020,                             \
      (size_t * bytes, CUdevice device))                                       \
    X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000,                      \
      (int *can, CUdevice device, CUdevice peer))                              \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000,                      \
      (CUcontext peer, unsigned flags))                                        \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,                \
      (CUcontext * context, CUdevice device))                                  \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000,          \
      (CUdevice device))                                                       \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000,            \
      (CUdevice device, unsigned *flags, int *active))                         \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext context))             \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext * context))           \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (CUcontext context))        \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (CUcontext * context))        \
    X(cuCtxGetDevice, cuCtxGetDevice_v2, 13000,                                \
      (CUdevice * device, CUcontext context))                                  \
    X(cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice * device))               \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                        \
    X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050,          \
      (int *least, int *greatest))                                             \
    X(cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr * pointer, size_t bytes))  \
    X(cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr pointer))                    \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020,                                    \
      (void **pointer, size_t bytes, unsigned flags))                          \
    X(cuMemFreeHost, cuMemFreeHost, 2000, (void *pointer))                     \
    X(cuMemHostRegister, cuMemHostRegister_v2, 6050,                           \
      (void *pointer, size_t bytes, unsigned flags))                           \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000, (void *pointer))         \
    X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020,           \
      (CUdeviceptr * device, void *pointer, unsigned flags))                   \
    X(cuMemcpyAsync, cuMemcpyAsync, 4000,                                      \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))       \
    X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000,                              \
      (CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,                \
       CUcontext src_context, size_t bytes, CUstream stream))                  \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,                           \
      (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))       \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,                           \
      (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))             \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,                           \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))       \
    X(cuMemsetD8Async, cuMemsetD8Async, 3020,                                  \
      (CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream))   \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 7000,                    \
      (unsigned count, CUpointer_attribute *attributes, void **data,           \
       CUdeviceptr pointer))                                                   \
    X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020,                     \
      (CUdeviceptr * base, size_t * bytes, CUdeviceptr pointer))               \
    X(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t * unused, size_t * total))  \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050,            \
      (CUstream * stream, unsigned flags, int priority))                       \
    X(cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream stream))            \
    X(cuStreamQuery, cuStreamQuery, 2000, (CUstream stream))                   \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream))       \
    X(cuStreamWaitEvent, cuStreamWaitEvent, 3020,                              \
      (CUstream stream, CUevent event, unsigned flags))                        \
    X(cuStreamGetCtx, cuStreamGetCtx_v2, 12050,                                \
      (CUstream stream, CUcontext * context, CUgreenCtx * green))              \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020,                                    \
      (CUstream stream, CUcontext * context))                                  \
    X(cuStreamGetPriority, cuStreamGetPriority, 5050,                          \
      (CUstream stream, int *priority))                                        \
    X(cuStreamIsCapturing, cuStreamIsCapturing, 10000,                         \
      (CUstream stream, CUstreamCaptureStatus * status))                       \
    X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, 12030,                \
      (CUstream stream, CUstreamCaptureStatus * status, uint64_t * id,         \
       CUgraph * graph, const CUgraphNode **dependencies,                      \
       const CUgraphEdgeData **edges, size_t *count))                          \
    X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, 11030,                \
      (CUstream stream, CUstreamCaptureStatus * status, uint64_t * id,         \
       CUgraph * graph, const CUgraphNode **dependencies, size_t *count))      \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010,                    \
      (CUstream stream, CUstreamCaptureMode mode))                             \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,    \
      10010, (CUstreamCaptureMode * mode))                                     \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000,                           \
      (CUstream stream, CUgraph * graph))                                      \
    X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph))                  \
    X(cuGraphGetNodes, cuGraphGetNodes, 10000,                                 \
      (CUgraph graph, CUgraphNode * nodes, size_t * count))                    \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,         \
      (CUgraphExec * exec, CUgraph graph, unsigned long long flags))           \
    X(cuGraphLaunch, cuGraphLaunch, 10000,                                     \
      (CUgraphExec exec, CUstream stream))                                     \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec exec))       \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000,                               \
      (CUstream stream, CUhostFn function, void *user_data))                   \
    X(cuEventCreate, cuEventCreate, 2000, (CUevent * event, unsigned flags))   \
    X(cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent event))                \
    X(cuEventRecord, cuEventRecord, 2000, (CUevent event, CUstream stream))    \
    X(cuEventQuery, cuEventQuery, 2000, (CUevent event))                       \
    X(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent event))           \
    X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080,                        \
      (float *ms, CUevent start, CUevent end))                                 \
    X(cuEventElapsedTime, cuEventElapsedTime, 2000,                            \
      (float *ms, CUevent start, CUevent end))                                 \
    X(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070,                    \
      (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))       \
    X(cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070,                    \
      (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags))       \
    X(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070,                      \
      (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))       \
    X(cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070,                      \
      (CUstream stream, CUdeviceptr at, uint64_t value, unsigned flags))       \
    X(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070,                        \
      (CUstream stream, unsigned count, CUstreamBatchMemOpParams *params,      \
       unsigned flags))                                                        \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010,                              \
      (CUipcMemHandle * handle, CUdeviceptr pointer))                          \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000,                        \
      (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags))          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr pointer))   \
    X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010,                          \
      (CUipcEventHandle * handle, CUevent event))                              \
    X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010,                        \
      (CUevent * event, CUipcEventHandle handle))                              \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,     \
      (size_t * bytes, const CUmemAllocationProp *prop, unsigned option))      \
    X(cuMemCreate, cuMemCreate, 10020,                                         \
      (CUmemGenericAllocationHandle * handle, size_t bytes,                    \
       const CUmemAllocationProp *prop, unsigned long long flags))             \
    X(cuMemRelease, cuMemRelease, 10020,                                       \
      (CUmemGenericAllocationHandle handle))                                   \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,       \
      (void *shared, CUmemGenericAllocationHandle handle, unsigned type,       \
       unsigned long long flags))                                              \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,   \
      (CUmemGenericAllocationHandle * handle, void *shared, unsigned type))    \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020,                         \
      (CUdeviceptr * pointer, size_t bytes, size_t alignment,                  \
       CUdeviceptr wanted, unsigned long long flags))                          \
    X(cuMemAddressFree, cuMemAddressFree, 10020,                               \
      (CUdeviceptr pointer, size_t bytes))                                     \
    X(cuMemMap, cuMemMap, 10020,                                               \
      (CUdeviceptr pointer, size_t bytes, size_t offset,                       \
       CUmemGenericAllocationHandle handle, unsigned long long flags))         \
    X(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr pointer, size_t bytes))      \
    X(cuMemSetAccess, cuMemSetAccess, 10020,                                   \
      (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,       \
       size_t count))                                                          \
    X(cuModuleLoadData, cuModuleLoadData, 2000,                                \
      (CUmodule * module, const void *image))                                  \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010,                            \
      (CUmodule * module, const void *image, unsigned count,                   \
       CUjit_option *options, void **values))                                  \
    X(cuModuleUnload, cuModuleUnload, 2000, (CUmodule module))                 \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000,                          \
      (CUfunction * function, CUmodule module, const char *name))              \
    X(cuLibraryLoadData, cuLibraryLoadData, 12000,                             \
      (CUlibrary * library, const void *code, CUjit_option *jit,               \
       void **jit_values, unsigned jit_count, CUlibraryOption *options,        \
       void **values, unsigned count))                                         \
    X(cuLibraryUnload, cuLibraryUnload, 12000, (CUlibrary library))            \
    X(cuLibraryGetKernel, cuLibraryGetKernel, 12000,                           \
      (CUkernel * kernel, CUlibrary library, const char *name))                \
    X(cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040,                 \
      (unsigned *count, CUlibrary library))                                    \
    X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040,             \
      (CUkernel * kernels, unsigned count, CUlibrary library))                 \
    X(cuKernelGetFunction, cuKernelGetFunction, 12000,                         \
      (CUfunction * function, CUkernel kernel))                                \
    X(cuFuncGetAttribute, cuFuncGetAttribute, 2020,                            \
      (int *value, CUfunction_attribute attribute, CUfunction function))       \
    X(cuKernelSetAttribute, cuKernelSetAttribute, 12000,                       \
      (CUfunction_attribute attribute, int value, CUkernel kernel,             \
       CUdevice device))                                                       \
    X(cuLaunchKernel, cuLaunchKernel, 4000,                                    \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
       unsigned block_x, unsigned block_y, unsigned block_z,                   \
       unsigned shared_bytes, CUstream stream, void **params, void **extra))   \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                             \
      cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                       \
      (int *blocks, CUfunction function, int threads, size_t shared_bytes))    \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040,                   \
      (CUdevice device, CUdevResource * resource, CUdevResourceType type))     \
    X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040,         \
      (CUdevResource * groups, unsigned *count, const CUdevResource *input,    \
       CUdevResource *rest, unsigned flags, unsigned least))                   \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040,             \
      (CUdevResourceDesc * desc, CUdevResource * resources, unsigned count))   \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040,                               \
      (CUgreenCtx * green, CUdevResourceDesc desc, CUdevice device,            \
       unsigned flags))                                                        \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (CUgreenCtx green))         \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050,                   \
      (CUstream * stream, CUgreenCtx green, unsigned flags, int priority))     \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040,                             \
      (CUcontext * context, CUgreenCtx green))

#define FAKE_API __attribute__((visibility("default")))
#define FAKE_PROTOTYPE(name, variant, since, arguments)                        \
    FAKE_API CUresult variant arguments;
FAKE_FUNCTIONS(FAKE_PROTOTYPE)
#undef FAKE_PROTOTYPE

#endif

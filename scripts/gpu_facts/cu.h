// SPDX-License-Identifier: BSD-3-Clause
/*
 * The driver and nvrtc, opened at run time, and what every question does with
 * them. A call in CU() that fails ends the question with the call's own text.
 */
#ifndef GPU_FACTS_CU_H
#define GPU_FACTS_CU_H

#include "facts.h"
#include <cuda.h>

/* An argument such as cuMemAlloc is expanded to the name that the header gives
 * it, cuMemAlloc_v2, as member, in calls and as the symbol looked up. */
#define CU_FUNCTIONS(X)                                                        \
    X(cuInit)                                                                  \
    X(cuDriverGetVersion)                                                      \
    X(cuDeviceGetCount)                                                        \
    X(cuDeviceGet)                                                             \
    X(cuDeviceGetName)                                                         \
    X(cuDeviceGetAttribute)                                                    \
    X(cuDeviceTotalMem)                                                        \
    X(cuDevicePrimaryCtxRetain)                                                \
    X(cuCtxFromGreenCtx)                                                       \
    X(cuCtxSetCurrent)                                                         \
    X(cuCtxSynchronize)                                                        \
    X(cuCtxGetStreamPriorityRange)                                             \
    X(cuGetErrorName)                                                          \
    X(cuMemAlloc)                                                              \
    X(cuMemFree)                                                               \
    X(cuMemFreeHost)                                                           \
    X(cuMemHostAlloc)                                                          \
    X(cuMemHostGetDevicePointer)                                               \
    X(cuMemcpyHtoD)                                                            \
    X(cuMemcpyDtoH)                                                            \
    X(cuMemcpyHtoDAsync)                                                       \
    X(cuMemcpyDtoHAsync)                                                       \
    X(cuMemcpyDtoDAsync)                                                       \
    X(cuMemsetD8)                                                              \
    X(cuStreamCreate)                                                          \
    X(cuStreamCreateWithPriority)                                              \
    X(cuStreamSynchronize)                                                     \
    X(cuStreamQuery)                                                           \
    X(cuStreamDestroy)                                                         \
    X(cuStreamWaitEvent)                                                       \
    X(cuStreamWriteValue32)                                                    \
    X(cuStreamWriteValue64)                                                    \
    X(cuStreamWaitValue32)                                                     \
    X(cuStreamWaitValue64)                                                     \
    X(cuStreamBatchMemOp)                                                      \
    X(cuEventCreate)                                                           \
    X(cuEventRecord)                                                           \
    X(cuEventQuery)                                                            \
    X(cuEventSynchronize)                                                      \
    X(cuEventElapsedTime)                                                      \
    X(cuEventDestroy)                                                          \
    X(cuLaunchKernel)                                                          \
    X(cuLaunchKernelEx)                                                        \
    X(cuLaunchHostFunc)                                                        \
    X(cuLibraryLoadData)                                                       \
    X(cuLibraryGetKernel)                                                      \
    X(cuKernelGetFunction)                                                     \
    X(cuDeviceGetDevResource)                                                  \
    X(cuDevSmResourceSplitByCount)                                             \
    X(cuDevResourceGenerateDesc)                                               \
    X(cuGreenCtxCreate)                                                        \
    X(cuGreenCtxDestroy)                                                       \
    X(cuGreenCtxStreamCreate)                                                  \
    X(cuIpcGetMemHandle)                                                       \
    X(cuIpcOpenMemHandle)                                                      \
    X(cuIpcCloseMemHandle)                                                     \
    X(cuIpcGetEventHandle)                                                     \
    X(cuIpcOpenEventHandle)                                                    \
    X(cuMemGetAllocationGranularity)                                           \
    X(cuMemCreate)                                                             \
    X(cuMemRelease)                                                            \
    X(cuMemAddressReserve)                                                     \
    X(cuMemMap)                                                                \
    X(cuMemSetAccess)                                                          \
    X(cuMemExportToShareableHandle)                                            \
    X(cuMemImportFromShareableHandle)

#define CU_MEMBER(name) __typeof__(name) *name;
struct cu_table {
    CU_FUNCTIONS(CU_MEMBER)
};
extern struct cu_table cu;

#define CU(call) cu_check(cu.call, #call)

void cu_check(CUresult result, const char *call);
const char *cu_name(CUresult result);

/* Opens the first of NAMES (NULL ends them), or gives up naming it. */
void *library_open(const char *const *names);
/* The function NAME, or gives up. */
void *library_function(void *library, const char *name);

/* Opens the driver, takes device 0 and makes its primary context current. */
void gpu_open(void);
CUdevice gpu_device(void);
int gpu_attribute(CUdevice_attribute attribute);
int gpu_sms(void);

CUdeviceptr gpu_alloc(size_t bytes);
/* Pinned host memory that the device sees; VIEW is where. */
void *gpu_pinned(size_t bytes, CUdeviceptr *view);
CUstream gpu_stream(void);
CUevent gpu_event(bool timed);
void gpu_fill(CUdeviceptr at, size_t bytes, unsigned seed);

/* A kernel of facts_kernels.cu, compiled for this device once a process. */
CUfunction gpu_kernel(const char *name);
#define LAUNCH(stream, name, blocks, threads, ...)                             \
    gpu_launch(stream, name, blocks, threads, (void *[]){__VA_ARGS__})
void gpu_launch(CUstream stream, const char *name, int blocks, int threads,
                void **args);
/* Compiles them for compute capability CC, such as 90, into CUBIN (a heap
 * block). Returns NULL, or what the compiler says, on the heap. */
char *kernels_compile(int cc, char **cubin, size_t *bytes);

/* Device time of RUN(arg) on STREAM, REPEATS times after one that warms up. */
void gpu_time_ms(CUstream stream, void (*run)(CUstream stream, void *arg),
                 void *arg, int repeats, double *ms);
/* Waits for the host until *word is at least VALUE; false after LIMIT_US. */
bool host_await(const unsigned *word, unsigned value, double limit_us);
/* Waits until STREAM has ended its work; false after LIMIT_US. */
bool gpu_drained(CUstream stream, double limit_us);

#endif

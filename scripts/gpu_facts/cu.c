// SPDX-License-Identifier: BSD-3-Clause
/*
 * See cu.h. Every question opens the driver in its own process, so what is
 * opened here is never closed: the process ends instead.
 */
#include "cu.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <stdlib.h>
#include <string.h>

/* The text of facts_kernels.cu with a zero byte behind it. */
__asm__(".section .rodata\n"
        ".global kernel_text\n"
        "kernel_text:\n"
        ".incbin \"facts_kernels.cu\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char kernel_text[];

#define TEXT(x)       TEXT_OF(x)
#define TEXT_OF(x)    #x
#define CU_LOAD(name) cu.name = library_function(library, TEXT(name));

struct cu_table cu;
static CUdevice device;

const char *cu_name(CUresult result)
{
    const char *name = "an unknown error";
    cu.cuGetErrorName(result, &name);
    return name;
}

void cu_check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        give_up("%s: %s (%d)", call, cu_name(result), (int)result);
}

void *library_open(const char *const *names)
{
    for (const char *const *name = names; *name; name++) {
        void *library = dlopen(*name, RTLD_NOW | RTLD_GLOBAL);
        if (library)
            return library;
    }
    give_up("%s can not be opened: %s", names[0], dlerror());
}

void *library_function(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        give_up("the library has no %s", name);
    return function;
}

void gpu_open(void)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    void *library = library_open(names);
    CUcontext context;
    CU_FUNCTIONS(CU_LOAD)
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
}

CUdevice gpu_device(void)
{
    return device;
}

int gpu_attribute(CUdevice_attribute attribute)
{
    int value = 0;
    CU(cuDeviceGetAttribute(&value, attribute, device));
    return value;
}

int gpu_sms(void)
{
    return gpu_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

CUdeviceptr gpu_alloc(size_t bytes)
{
    CUdeviceptr at;
    CU(cuMemAlloc(&at, bytes));
    CU(cuMemsetD8(at, 0, bytes));
    CU(cuCtxSynchronize()); /* other streams do not wait for it */
    return at;
}

void *gpu_pinned(size_t bytes, CUdeviceptr *view)
{
    void *at;
    CU(cuMemHostAlloc(&at, bytes,
                      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(at, 0, bytes);
    if (view)
        CU(cuMemHostGetDevicePointer(view, at, 0));
    return at;
}

CUstream gpu_stream(void)
{
    CUstream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUevent gpu_event(bool timed)
{
    CUevent event;
    CU(cuEventCreate(&event,
                     timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
    return event;
}

#define NVRTC_FUNCTIONS(X)                                                     \
    X(nvrtcCreateProgram)                                                      \
    X(nvrtcCompileProgram)                                                     \
    X(nvrtcGetProgramLogSize)                                                  \
    X(nvrtcGetProgramLog)                                                      \
    X(nvrtcGetCUBINSize)                                                       \
    X(nvrtcGetCUBIN)
#define NVRTC_LOAD(name) rtc.name = library_function(library, #name);

static struct {
    NVRTC_FUNCTIONS(CU_MEMBER)
} rtc;

char *kernels_compile(int cc, char **cubin, size_t *bytes)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "libnvrtc.so", NULL};
    void *library = library_open(names);
    NVRTC_FUNCTIONS(NVRTC_LOAD)
    char target[40];
    const char *options[] = {target, "-default-device"};
    nvrtcProgram program;
    size_t log_bytes = 0;
    snprintf(target, sizeof(target), "--gpu-architecture=sm_%d", cc);
    if (rtc.nvrtcCreateProgram(&program, kernel_text, "facts_kernels.cu", 0,
                               NULL, NULL) != NVRTC_SUCCESS)
        return strdup("nvrtcCreateProgram failed");
    nvrtcResult result = rtc.nvrtcCompileProgram(program, 2, options);
    rtc.nvrtcGetProgramLogSize(program, &log_bytes);
    char *log = calloc(1, log_bytes + 32);
    if (!log)
        return strdup("out of memory");
    rtc.nvrtcGetProgramLog(program, log);
    if (result != NVRTC_SUCCESS)
        return log;
    free(log);
    if (rtc.nvrtcGetCUBINSize(program, bytes) != NVRTC_SUCCESS ||
        !(*cubin = malloc(*bytes)) ||
        rtc.nvrtcGetCUBIN(program, *cubin) != NVRTC_SUCCESS)
        return strdup("nvrtc made no cubin");
    return NULL;
}

/* Loads all kernels into the current context: one loaded at its first launch
 * might have to wait for the end of one that spins. */
static void load_all(CUlibrary library)
{
    static const char *const names[] = {"fill", "fill_e4m3", "copy", "reduce",
                                        "spin", "mark",      "hold", "beat",
                                        "fail", "ticks"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        CUkernel kernel;
        CUfunction function;
        CU(cuLibraryGetKernel(&kernel, library, names[i]));
        CU(cuKernelGetFunction(&function, kernel));
    }
}

CUfunction gpu_kernel(const char *name)
{
    static CUlibrary library;
    CUkernel kernel;
    if (!library) {
        char *cubin, *why;
        size_t bytes;
        int cc =
            10 * gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
            gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        if ((why = kernels_compile(cc, &cubin, &bytes)))
            give_up("the kernels do not compile: %s", why);
        CU(cuLibraryLoadData(&library, cubin, NULL, NULL, 0, NULL, NULL, 0));
        load_all(library);
    }
    CU(cuLibraryGetKernel(&kernel, library, name));
    return (CUfunction)kernel; /* the driver takes either, in any context */
}

void gpu_launch(CUstream stream, const char *name, int blocks, int threads,
                void **args)
{
    CU(cuLaunchKernel(gpu_kernel(name), (unsigned)blocks, 1, 1,
                      (unsigned)threads, 1, 1, 0, stream, args, NULL));
}

void gpu_fill(CUdeviceptr at, size_t bytes, unsigned seed)
{
    unsigned long long words = bytes / 4;
    LAUNCH(NULL, "fill", 8 * gpu_sms(), 256, &at, &words, &seed);
    CU(cuCtxSynchronize());
}

void gpu_time_ms(CUstream stream, void (*run)(CUstream stream, void *arg),
                 void *arg, int repeats, double *ms)
{
    CUevent begin = gpu_event(true), end = gpu_event(true);
    run(stream, arg);
    CU(cuStreamSynchronize(stream));
    for (int i = 0; i < repeats; i++) {
        float took_ms;
        CU(cuEventRecord(begin, stream));
        run(stream, arg);
        CU(cuEventRecord(end, stream));
        CU(cuEventSynchronize(end));
        CU(cuEventElapsedTime(&took_ms, begin, end));
        ms[i] = took_ms;
    }
    CU(cuEventDestroy(begin));
    CU(cuEventDestroy(end));
}

bool host_await(const unsigned *word, unsigned value, double limit_us)
{
    double deadline_us = now_us() + limit_us;
    while ((int)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0)
        if (now_us() > deadline_us)
            return false;
    return true;
}

bool gpu_drained(CUstream stream, double limit_us)
{
    double deadline_us = now_us() + limit_us;
    for (;;) {
        CUresult result = cu.cuStreamQuery(stream);
        if (result == CUDA_SUCCESS)
            return true;
        if (result != CUDA_ERROR_NOT_READY)
            cu_check(result, "cuStreamQuery");
        if (now_us() > deadline_us)
            return false;
    }
}

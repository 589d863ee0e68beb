/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_module.c - modules and kernels. Of an image only its kind is
 * looked at; its kernels are those of kernels/wire and kernels/math, compiled
 * for the host and run by tests/simt, one launch at a time in the process, in
 * an order of blocks and threads by chance. Without a C++ compiler there are
 * none.
 */
#include "tests/fake/fake_launch.h"

#include "tests/simt/simt_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_THREADS = 1024,
    THREADS_OF_MULTIPROCESSOR = 2048,
    BLOCKS_OF_MULTIPROCESSOR = 32,
    FATBIN_MAGIC = (int)0xba55ed50,
    FATBIN_WRAPPER_MAGIC = 0x466243b1
};

struct CUfunc_st {
    CUfunction next;
    char name[64];
    CUcontext context; /* NULL: a kernel of a library, of any */
    uint32_t loaded;   /* of a library's: the ordinals that have its code */
    int shared_bytes[FAKE_MOST_DEVICES]; /* that it was given; 0: as it is */
};

struct CUmod_st {
    CUcontext context;
    CUfunction functions;
};

struct CUlib_st {
    struct CUmod_st kernels; /* of no context */
};

struct fake_launch {
    char name[64]; /* the module may be unloaded meanwhile */
    simt_config config;
    char args[FAKE_LAUNCH_BYTES];
};

/* cuModuleLoadData: "cubin, PTX or fatbin"; else INVALID_IMAGE. */
static bool is_image(const void *image)
{
    int magic;
    memcpy(&magic, image, sizeof(magic));
    return magic == FATBIN_MAGIC || magic == FATBIN_WRAPPER_MAGIC ||
           memcmp(image, "\177ELF", 4) == 0 ||
           (memcmp(image, "//", 2) == 0 && strstr(image, ".version"));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !module || !image) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_image(image)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    CUmodule made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = fake_current()->primary;
    *module = made;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    if (count && (!options || !values)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return cuModuleLoadData(module, image);
}

static void free_functions(CUmodule module)
{
    while (module->functions) {
        CUfunction function = module->functions;
        module->functions = function->next;
        free(function);
    }
}

/* cuModuleUnload: its functions go with it. */
CUresult cuModuleUnload(CUmodule module)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !module) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    free_functions(module);
    free(module);
    return CUDA_SUCCESS;
}

static bool has_kernel(const char *name)
{
#ifdef FAKE_KERNELS
    return simt_find(name) != NULL;
#else
    (void)name;
    return false;
#endif
}

/* What the driver does at a kernel's first use, unless it was asked before:
 * loading waits for all work of the GPU (seen with driver 580 on an H200). */
static void load(CUfunction function, int ordinal)
{
    const uint32_t bit = UINT32_C(1) << ordinal;
    pthread_mutex_lock(&fake.lock);
    if (!function->context && !(function->loaded & bit)) {
        fake_await_idle_locked(ordinal);
        function->loaded |= bit;
    }
    pthread_mutex_unlock(&fake.lock);
}

/* A library's kernel is one, however often it is asked for. */
static CUfunction find_known(CUmodule module, const char *name)
{
    pthread_mutex_lock(&fake.lock);
    CUfunction known = module->context ? NULL : module->functions;
    while (known && strcmp(known->name, name) != 0) {
        known = known->next;
    }
    pthread_mutex_unlock(&fake.lock);
    return known;
}

static CUresult find_function(CUmodule module, const char *name,
                              CUfunction *function)
{
    CUfunction known = find_known(module, name);
    if (known) {
        *function = known;
        return CUDA_SUCCESS;
    }
    CUfunction made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t length = strlen(name);
    if (!has_kernel(name) || !fake_args_bytes(name) ||
        length >= sizeof(made->name)) {
        fake_say("no kernel %s", name);
        free(made);
        return CUDA_ERROR_NOT_FOUND;
    }
    memcpy(made->name, name, length);
    made->context = module->context;
    pthread_mutex_lock(&fake.lock);
    made->next = module->functions;
    module->functions = made;
    pthread_mutex_unlock(&fake.lock);
    *function = made;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !function || !module || !name) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    return find_function(module, name, function);
}

/* cuLibraryLoadData: for all contexts, and needs none; unless it is told that
 * the code stays (CU_LIBRARY_BINARY_IS_PRESERVED) the driver copies it. "cubin,
 * fatbin or PTX"; else CUDA_ERROR_INVALID_IMAGE, "device kernel image is
 * invalid". */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code,
                           CUjit_option *jit, void **jit_values,
                           unsigned jit_count, CUlibraryOption *options,
                           void **values, unsigned count)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !library || !code ||
        (jit_count && (!jit || !jit_values)) ||
        (count && (!options || !values))) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_image(code)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *library = calloc(1, sizeof(**library));
    return *library ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !library) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    free_functions(&library->kernels);
    free(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library,
                            const char *name)
{
    CUfunction function = NULL;
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !kernel || !library || !name) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    result = find_function(&library->kernels, name, &function);
    *kernel = (CUkernel)function;
    return result;
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !count || !library) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *count = 0;
#ifdef FAKE_KERNELS
    while (simt_at(*count)) {
        ++*count;
    }
#endif
    return CUDA_SUCCESS;
}

/* "The maximum number of kernel handles that may be returned". */
CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count,
                                   CUlibrary library)
{
    unsigned there = 0;
    CUresult result = cuLibraryGetKernelCount(&there, library);
    if (result == CUDA_SUCCESS && !kernels) {
        return CUDA_ERROR_INVALID_VALUE;
    }
#ifdef FAKE_KERNELS
    for (unsigned i = 0; i < there && i < count && result == CUDA_SUCCESS;
         i++) {
        result = cuLibraryGetKernel(&kernels[i], library, simt_at(i)->name);
    }
#else
    (void)count;
#endif
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !function || !kernel) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *function = (CUfunction)kernel;
    load(*function, fake_current()->ordinal);
    return CUDA_SUCCESS;
}

/* cuKernelSetAttribute: for one device, all its contexts. "The sum of [its
 * static shared memory] and this attribute cannot exceed the device attribute
 * CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN." */
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value,
                              CUkernel kernel, CUdevice device)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !kernel || !fake_is_ordinal(device) ||
        attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        value < 0 || value > FAKE_SHARED_MOST_BYTES) {
        return result != CUDA_SUCCESS     ? result
               : !fake_is_ordinal(device) ? CUDA_ERROR_INVALID_DEVICE
                                          : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake.lock);
    ((CUfunction)kernel)->shared_bytes[device] = value;
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

static int get_shared(CUfunction function, int ordinal)
{
    pthread_mutex_lock(&fake.lock);
    int given = function->shared_bytes[ordinal];
    pthread_mutex_unlock(&fake.lock);
    return given ? given : FAKE_SHARED_BYTES;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                            CUfunction function)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !value || !function) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = MOST_THREADS;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = get_shared(function, fake_current()->ordinal);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                     CUfunction function,
                                                     int threads,
                                                     size_t shared_bytes)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !blocks || !function || threads < 1 ||
        threads > MOST_THREADS || shared_bytes > FAKE_SHARED_BYTES) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    int fit = THREADS_OF_MULTIPROCESSOR / ((threads + 31) / 32 * 32);
    *blocks = fit < BLOCKS_OF_MULTIPROCESSOR ? fit : BLOCKS_OF_MULTIPROCESSOR;
    return CUDA_SUCCESS;
}

/* An illegal address ends all: CUDA_ERROR_ILLEGAL_ADDRESS. A rule of the
 * machine that a kernel broke is a failed launch, with the rule on stderr. */
static CUresult run_kernel(CUstream stream, fake_work *work)
{
    static pthread_mutex_t one_launch = PTHREAD_MUTEX_INITIALIZER;
    struct fake_launch own = *work->launch, *launch = &own; /* of a graph */
    fake_uses uses = {.ordinal = stream->context->ordinal,
                      .kernel = launch->name};
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;
    launch->config.order =
        (simt_order)fake_draw(&stream->seed, SIMT_ORDER_COUNT);
    launch->config.seed = fake_draw(&stream->seed, UINT64_MAX);
    if (fake_args_translate(&uses, launch->args)) {
        result = CUDA_SUCCESS;
#ifdef FAKE_KERNELS
        pthread_mutex_lock(&one_launch);
        if (simt_launch(uses.kernel, &launch->config,
                        (void *[]){launch->args}) != 0) {
            fake_say("%s", simt_fault());
            result = CUDA_ERROR_LAUNCH_FAILED;
        }
        pthread_mutex_unlock(&one_launch);
#else
        (void)one_launch;
#endif
    }
    fake_args_done(&uses);
    return result;
}

/* cuLaunchKernel: the arguments are copied by the call. The stream is of the
 * context of the function ("associated with the same context"), which a green
 * one is not; a kernel of a library runs in that of its stream. */
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **params, void **extra)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !function || !params || extra || !params[0]) {
        return result != CUDA_SUCCESS ? result
               : !function            ? CUDA_ERROR_INVALID_HANDLE
                                      : CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    if (!grid_x || !grid_y || !grid_z || threads == 0 ||
        threads > MOST_THREADS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake.lock);
    bool fits = fake_stream_is(stream) &&
                (!function->context || stream->context == function->context);
    pthread_mutex_unlock(&fake.lock);
    if (!fits) {
        fake_say("cuLaunchKernel: the stream is not of the kernel's context");
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int most = get_shared(function, stream->context->ordinal);
    if (shared_bytes > (unsigned)most) {
        fake_say("cuLaunchKernel: %u bytes of shared memory, of at most %d",
                 shared_bytes, most);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct fake_launch *launch = calloc(1, sizeof(*launch));
    if (!launch) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(launch->name, function->name, sizeof(launch->name));
    launch->config = (simt_config){.grid = {grid_x, grid_y, grid_z},
                                   .block = {block_x, block_y, block_z},
                                   .shared_bytes = shared_bytes};
    memcpy(launch->args, params[0], fake_args_bytes(function->name));
    load(function, stream->context->ordinal);
    fake_work work = {.run = run_kernel, .launch = launch};
    return fake_stream_submit(stream, &work);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_module.c - weft's own kernels: those of collectives
 * (kernels/wire/launch.h) in weft_kernels.so, those of models
 * (kernels/math/math_launch.h) in weft_math_kernels.so, files beside the
 * library that hold nothing else. The code is given to the driver, and all of
 * it put on the GPU, at once: a first launch would do so, and wait for all that
 * is queued, which may stand at a gate that only this thread can raise. For
 * collectives that is when the GPU is opened, for models at the first use. It
 * is loaded as a library of the driver's: a kernel of one runs in the context
 * of the stream that it is launched on, and a stream with a budget of
 * multiprocessors has its own.
 */
#include "base/error.h"
#include "base/module.h"
#include "base/settings.h"
#include "device/cuda.h"
#include "device/cuda_gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char image_name[] = "weft_kernels_image"; /* in either file */
static const char math_prefix[] = "wefti_math_";

enum {
    NAME_BYTES = 64,
    THREADS_OF_WARP = 32,
    THREADS_MOST = 1024,
    SHARED_BYTES = 48 << 10 /* that each kernel may have */
};

typedef struct kernel {
    struct kernel *next;
    struct CUkern_st *native;
    size_t shared_bytes; /* that it may have */
    char name[NAME_BYTES];
} kernel;

/* What a file is, and where it is looked for. */
typedef struct source {
    const char *what, *file;
    wefti_setting setting; /* names another file */
    const char *variable;  /* that setting's */
} source;

enum { WIRE, MATH, SOURCES };
static const source sources[SOURCES] = {
    {"kernels", "weft_kernels.so", WEFTI_SETTING_KERNELS, "WEFT_KERNELS"},
    {"math kernels", "weft_math_kernels.so", WEFTI_SETTING_MATH_KERNELS,
     "WEFT_MATH_KERNELS"}};

/* lock guards all; the driver may wait inside it, each image its own. */
typedef struct image {
    const source *source;
    pthread_mutex_t lock;
    bool opened;             /* or tried */
    struct CUlib_st *native; /* NULL: there is none, and why */
    weft_status status;
    kernel *kernels; /* that have been launched */
    char path[PATH_MAX];
    char why[PATH_MAX + 160];
} image;

struct wefti_cuda_module {
    image images[SOURCES];
};

/* The setting names the file, else it lies where the modules lie. */
static weft_status find_file(const source *of, char path_out[PATH_MAX])
{
    const char *set = wefti_setting_text(of->setting);
    if (*set) {
        return realpath(set, path_out) && access(path_out, R_OK) == 0
                   ? WEFT_OK
                   : wefti_error(WEFT_ERR_INVALID,
                                 "%s=%s: %s; allowed is a file with the %s for "
                                 "GPUs",
                                 of->variable, set, strerror(errno), of->what);
    }
    return wefti_module_find(of->file, path_out)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "the %s for GPUs are missing: there is no %s (it "
                             "is built where nvcc is installed)",
                             of->what, of->file);
}

static weft_status open_file(const char *path, void **file_out,
                             const void **image_out)
{
    char why[PATH_MAX + 128];
    *image_out = wefti_module_open(path, RTLD_NOW | RTLD_LOCAL, image_name,
                                   file_out, why, sizeof(why));
    return *image_out
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM, "kernels for GPUs: %s", why);
}

weft_status wefti_cuda_find_kernels(char path_out[PATH_MAX])
{
    void *file;
    const void *code;
    weft_status status = find_file(&sources[WIRE], path_out);
    if (status == WEFT_OK) {
        status = open_file(path_out, &file, &code);
    }
    if (status == WEFT_OK) {
        dlclose(file);
    }
    return status;
}

/* All kernels onto the GPU, in the current context; drivers before 12.4 do it
 * at each one's first launch. */
static weft_status load_kernels(wefti_cuda_gpu *gpu, struct CUlib_st *library)
{
    const wefti_cuda_api *api = gpu->api;
    unsigned count = 0;
    if (!api->cuLibraryGetKernelCount || !api->cuLibraryEnumerateKernels) {
        return WEFT_OK;
    }
    weft_status status =
        wefti_cuda_check(gpu, api->cuLibraryGetKernelCount(&count, library),
                         "cuLibraryGetKernelCount");
    struct CUkern_st **all = calloc(count + 1, sizeof(struct CUkern_st *));
    if (status == WEFT_OK && !all) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory for kernels");
    }
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu, api->cuLibraryEnumerateKernels(all, count, library),
            "cuLibraryEnumerateKernels");
    }
    for (unsigned i = 0; i < count && status == WEFT_OK; i++) {
        struct CUfunc_st *function;
        status =
            wefti_cuda_check(gpu, api->cuKernelGetFunction(&function, all[i]),
                             "cuKernelGetFunction");
    }
    free(all);
    return status;
}

/* The driver copies the code. */
static weft_status load(wefti_cuda_gpu *gpu, image *of, const void *code)
{
    weft_status status =
        wefti_cuda_check(gpu,
                         gpu->api->cuLibraryLoadData(&of->native, code, NULL,
                                                     NULL, 0, NULL, NULL, 0),
                         of->path);
    if (status == WEFT_OK) {
        status = load_kernels(gpu, of->native);
    }
    if (status < 0 && of->native) {
        wefti_cuda_note(gpu, gpu->api->cuLibraryUnload(of->native));
        of->native = NULL;
    }
    return status;
}

/* Once; what comes of it stays. Returns whether there is a file as asked for:
 * an image that the driver refuses is said by launches. */
static weft_status open_image_locked(wefti_cuda_gpu *gpu, image *of)
{
    void *file = NULL;
    const void *code = NULL;
    weft_status found = find_file(of->source, of->path);
    if (found == WEFT_OK) {
        found = open_file(of->path, &file, &code);
    }
    of->opened = true;
    of->status = code ? load(gpu, of, code) : found;
    if (of->status < 0) {
        snprintf(of->why, sizeof(of->why), "%s", weft_error_text());
    }
    if (file) {
        dlclose(file);
    }
    return found;
}

weft_status wefti_cuda_module_create(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_module *module = calloc(1, sizeof(*module));
    if (!module) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    for (size_t i = 0; i < SOURCES; i++) {
        module->images[i].source = &sources[i];
        pthread_mutex_init(&module->images[i].lock, NULL);
    }
    gpu->module = module;
    weft_status status = open_image_locked(gpu, &module->images[WIRE]);
    if (status < 0 && status != WEFT_ERR_UNSUPPORTED) {
        wefti_cuda_module_destroy(gpu);
        return status; /* what was named is not there, or damaged */
    }
    if (module->images[WIRE].native) {
        gpu->caps |= WEFT_CAP_LAUNCHES;
    }
    return WEFT_OK;
}

static void close_image(wefti_cuda_gpu *gpu, image *closed)
{
    while (closed->kernels) {
        kernel *freed = closed->kernels;
        closed->kernels = freed->next;
        free(freed);
    }
    if (closed->native) {
        wefti_cuda_note(gpu, gpu->api->cuLibraryUnload(closed->native));
    }
    pthread_mutex_destroy(&closed->lock);
}

void wefti_cuda_module_destroy(wefti_cuda_gpu *gpu)
{
    for (size_t i = 0; i < SOURCES; i++) {
        close_image(gpu, &gpu->module->images[i]);
    }
    free(gpu->module);
    gpu->module = NULL;
}

static weft_status add_kernel_locked(wefti_cuda_gpu *gpu, image *of,
                                     const char *name, kernel **out)
{
    struct CUkern_st *native = NULL;
    const int result = gpu->api->cuLibraryGetKernel(&native, of->native, name);
    if (result == WEFTI_CUDA_ERROR_NOT_FOUND || strlen(name) >= NAME_BYTES) {
        return wefti_error(WEFT_ERR_INVALID, "no kernel %s in %s", name,
                           of->path);
    }
    weft_status status = wefti_cuda_check(gpu, result, name);
    if (status < 0) {
        return status;
    }
    kernel *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a kernel");
    }
    made->native = native;
    made->shared_bytes = SHARED_BYTES;
    strcpy(made->name, name);
    made->next = of->kernels;
    of->kernels = made;
    *out = made;
    return WEFT_OK;
}

/* For a block of so much; for all contexts of the GPU, also those of streams
 * with a budget. */
static weft_status give_shared_locked(wefti_cuda_gpu *gpu, kernel *to,
                                      size_t bytes)
{
    int most = 0;
    weft_status status = wefti_cuda_check(
        gpu,
        gpu->api->cuDeviceGetAttribute(
            &most, WEFTI_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            gpu->native),
        "cuDeviceGetAttribute");
    if (status == WEFT_OK && bytes > (size_t)most) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %zu bytes of shared memory: allowed is %d",
                           to->name, bytes, most);
    }
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu,
            gpu->api->cuKernelSetAttribute(
                WEFTI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                (int)bytes, to->native, gpu->native),
            "cuKernelSetAttribute");
    }
    if (status == WEFT_OK) {
        to->shared_bytes = bytes;
    }
    return status;
}

static weft_status find_kernel_locked(wefti_cuda_gpu *gpu, image *of,
                                      const wefti_launch *launch,
                                      struct CUkern_st **out)
{
    if (!of->opened) {
        (void)open_image_locked(gpu, of);
    }
    if (!of->native) {
        return wefti_error(of->status, "%s: %s", launch->kernel, of->why);
    }
    weft_status status = WEFT_OK;
    kernel *found = of->kernels;
    while (found && strcmp(found->name, launch->kernel) != 0) {
        found = found->next;
    }
    if (!found) {
        status = add_kernel_locked(gpu, of, launch->kernel, &found);
    }
    if (status == WEFT_OK && launch->shared_bytes > found->shared_bytes) {
        status = give_shared_locked(gpu, found, launch->shared_bytes);
    }
    *out = found ? found->native : NULL;
    return status;
}

static weft_status find_kernel(wefti_cuda_gpu *gpu, const wefti_launch *launch,
                               struct CUkern_st **out)
{
    const bool math =
        strncmp(launch->kernel, math_prefix, sizeof(math_prefix) - 1) == 0;
    image *of = &gpu->module->images[math ? MATH : WIRE];
    pthread_mutex_lock(&of->lock);
    weft_status status = find_kernel_locked(gpu, of, launch, out);
    pthread_mutex_unlock(&of->lock);
    return status;
}

weft_status wefti_cuda_stream_launch(weft_stream *base,
                                     const wefti_launch *launch)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    struct CUkern_st *found = NULL;
    void *args[1];
    memcpy(args, &launch->args, sizeof(args)); /* the driver only reads it */
    if (launch->blocks == 0 || launch->threads == 0 ||
        launch->threads % THREADS_OF_WARP != 0 ||
        launch->threads > THREADS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %u blocks of %u threads: allowed is 1 block or "
                           "more, of a multiple of 32 threads, at most %d",
                           launch->kernel, launch->blocks, launch->threads,
                           THREADS_MOST);
    }
    bool captured;
    weft_status status =
        wefti_cuda_enter_capture(gpu, stream, launch->kernel, &captured);
    if (status < 0) {
        return status;
    }
    status = find_kernel(gpu, launch, &found);
    if (status == WEFT_OK) {
        /* "by casting to CUfunction" (cuLaunchKernel) */
        struct CUfunc_st *function = (struct CUfunc_st *)(void *)found;
        status = wefti_cuda_check(
            gpu,
            gpu->api->cuLaunchKernel(
                function, launch->blocks, 1, 1, launch->threads, 1, 1,
                (unsigned)launch->shared_bytes, stream->native, args, NULL),
            launch->kernel);
    }
    wefti_cuda_leave(gpu);
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_module.c - weft's own kernels (kernels/wire/launch.h): their code
 * in weft_kernels.so, a file beside the library that holds nothing else, is
 * given to the driver when a GPU is opened, and all of it put on the GPU then:
 * a first launch would do so, and wait for all that is queued, which may stand
 * at a gate that only this thread can raise. It is loaded as a library of the
 * driver's: a kernel of one runs in the context of the stream that it is
 * launched on, and a stream with a budget of multiprocessors has its own.
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

static const char file_name[] = "weft_kernels.so";
static const char image_name[] = "weft_kernels_image";

enum { NAME_BYTES = 64, THREADS_OF_WARP = 32, THREADS_MOST = 1024 };

typedef struct kernel {
    struct kernel *next;
    struct CUkern_st *native;
    char name[NAME_BYTES];
} kernel;

struct wefti_cuda_module {
    char path[PATH_MAX];     /* of the file */
    struct CUlib_st *native; /* NULL: there is none, and why */
    weft_status status;
    char why[PATH_MAX + 160];
    pthread_mutex_t lock; /* guards what follows */
    kernel *kernels;      /* that have been launched */
};

/* The setting names the file, else it lies where the modules lie. */
static weft_status find_file(char path_out[PATH_MAX])
{
    const char *set = wefti_setting_text(WEFTI_SETTING_KERNELS);
    if (*set) {
        return realpath(set, path_out) && access(path_out, R_OK) == 0
                   ? WEFT_OK
                   : wefti_error(WEFT_ERR_INVALID,
                                 "WEFT_KERNELS=%s: %s; allowed is a file with "
                                 "the kernels for GPUs",
                                 set, strerror(errno));
    }
    return wefti_module_find(file_name, path_out)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "the kernels for GPUs are missing: there is no "
                             "%s (it is built where nvcc is installed)",
                             file_name);
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
    const void *image;
    weft_status status = find_file(path_out);
    if (status == WEFT_OK) {
        status = open_file(path_out, &file, &image);
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

/* The driver copies the image. */
static weft_status load(wefti_cuda_gpu *gpu, struct wefti_cuda_module *module,
                        const void *image)
{
    weft_status status = wefti_cuda_check(
        gpu,
        gpu->api->cuLibraryLoadData(&module->native, image, NULL, NULL, 0, NULL,
                                    NULL, 0),
        module->path);
    if (status == WEFT_OK) {
        status = load_kernels(gpu, module->native);
    }
    if (status < 0 && module->native) {
        wefti_cuda_note(gpu, gpu->api->cuLibraryUnload(module->native));
        module->native = NULL;
    }
    return status;
}

weft_status wefti_cuda_module_create(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_module *module = calloc(1, sizeof(*module));
    if (!module) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    void *file = NULL;
    const void *image = NULL;
    weft_status status = find_file(module->path);
    if (status == WEFT_OK) {
        status = open_file(module->path, &file, &image);
    }
    if (status < 0 && status != WEFT_ERR_UNSUPPORTED) {
        free(module); /* what was named is not there, or damaged */
        return status;
    }
    module->status = image ? load(gpu, module, image) : status;
    if (module->status == WEFT_OK) {
        gpu->caps |= WEFT_CAP_LAUNCHES;
    } else {
        snprintf(module->why, sizeof(module->why), "%s", weft_error_text());
    }
    if (file) {
        dlclose(file);
    }
    pthread_mutex_init(&module->lock, NULL);
    gpu->module = module;
    return WEFT_OK;
}

void wefti_cuda_module_destroy(wefti_cuda_gpu *gpu)
{
    struct wefti_cuda_module *module = gpu->module;
    while (module->kernels) {
        kernel *freed = module->kernels;
        module->kernels = freed->next;
        free(freed);
    }
    if (module->native) {
        wefti_cuda_note(gpu, gpu->api->cuLibraryUnload(module->native));
    }
    pthread_mutex_destroy(&module->lock);
    free(module);
}

static weft_status add_kernel_locked(wefti_cuda_gpu *gpu, const char *name,
                                     kernel **out)
{
    struct wefti_cuda_module *module = gpu->module;
    struct CUkern_st *native = NULL;
    const int result =
        gpu->api->cuLibraryGetKernel(&native, module->native, name);
    if (result == WEFTI_CUDA_ERROR_NOT_FOUND || strlen(name) >= NAME_BYTES) {
        return wefti_error(WEFT_ERR_INVALID, "no kernel %s in %s", name,
                           module->path);
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
    strcpy(made->name, name);
    made->next = module->kernels;
    module->kernels = made;
    *out = made;
    return WEFT_OK;
}

static weft_status find_kernel(wefti_cuda_gpu *gpu, const char *name,
                               struct CUkern_st **out)
{
    struct wefti_cuda_module *module = gpu->module;
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&module->lock);
    kernel *found = module->kernels;
    while (found && strcmp(found->name, name) != 0) {
        found = found->next;
    }
    if (!found) {
        status = add_kernel_locked(gpu, name, &found);
    }
    pthread_mutex_unlock(&module->lock);
    *out = found ? found->native : NULL;
    return status;
}

weft_status wefti_cuda_stream_launch(weft_stream *base,
                                     const wefti_launch *launch)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(base->device);
    wefti_cuda_stream *stream = wefti_cuda_stream_of(base);
    struct CUkern_st *found;
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
    if (!gpu->module->native) {
        return wefti_error(gpu->module->status, "%s: %s", launch->kernel,
                           gpu->module->why);
    }
    bool captured;
    weft_status status =
        wefti_cuda_enter_capture(gpu, stream, launch->kernel, &captured);
    if (status < 0) {
        return status;
    }
    status = find_kernel(gpu, launch->kernel, &found);
    if (status == WEFT_OK) {
        /* "by casting to CUfunction" (cuLaunchKernel) */
        struct CUfunc_st *function = (struct CUfunc_st *)(void *)found;
        status = wefti_cuda_check(
            gpu,
            gpu->api->cuLaunchKernel(function, launch->blocks, 1, 1,
                                     launch->threads, 1, 1, 0, stream->native,
                                     args, NULL),
            launch->kernel);
    }
    wefti_cuda_leave(gpu);
    return status;
}

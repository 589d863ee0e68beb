/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_api.c - libcuda.so.1: opened once, its functions found by
 * cuGetProcAddress, which gives the variant that our declarations are of
 * whatever the driver's own version is.
 */
#include "device/cuda_api.h"

#include "base/error.h"
#include "base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static const char library_name[] = "libcuda.so.1";

/* Of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_cuda_api api; /* guarded by lock until opened_by is set */
static pid_t opened_by;    /* 0: not yet */
static void *library;      /* of dlopen; never closed: cuInit may leave threads
                              and destructors behind, even if it fails */

typedef int get_address(const char *name, void **function, int version,
                        uint64_t flags, int *status);

static bool find(const char *name, void *function_out)
{
    return wefti_library_find(library, name, function_out);
}

/* A function that the driver, of a version that is known, ought to have. */
static weft_status refuse_without(const char *name, int version)
{
    return wefti_error(WEFT_ERR_UNSUPPORTED,
                       "%s: the driver, for CUDA %d.%d, has no %s",
                       library_name, version / 1000, version % 1000 / 10, name);
}

static weft_status get_version(int *version_out)
{
    int (*get)(int *version) = NULL;
    if (!find("cuDriverGetVersion", &get)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s has no cuDriverGetVersion: it is no CUDA driver",
                           library_name);
    }
    const int result = get(version_out);
    return result == WEFTI_CUDA_SUCCESS
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s does not tell its version (error %d%s): it is "
                             "no CUDA driver",
                             library_name, result,
                             result == WEFTI_CUDA_ERROR_STUB_LIBRARY
                                 ? ", the toolkit's stub"
                                 : "");
}

static weft_status check_version(get_address **get_out)
{
    int version = 0;
    weft_status status = get_version(&version);
    if (status < 0) {
        return status;
    }
    if (version < WEFTI_CUDA_FIRST_VERSION) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s: the driver is for CUDA %d.%d, needed is %d.%d "
                           "or later",
                           library_name, version / 1000, version % 1000 / 10,
                           WEFTI_CUDA_FIRST_VERSION / 1000,
                           WEFTI_CUDA_FIRST_VERSION % 1000 / 10);
    }
    if (!find("cuGetProcAddress_v2", get_out)) {
        return refuse_without("cuGetProcAddress_v2", version);
    }
    api.version = version;
    return WEFT_OK;
}

/* One that is not required is left NULL where the driver lacks it. */
static weft_status get_function(get_address *get, const char *name, int version,
                                bool required, void *function_out)
{
    void *found = NULL;
    int why = 0;
    const int result =
        version <= api.version ? get(name, &found, version, 0, &why) : -1;
    if (result != WEFTI_CUDA_SUCCESS) {
        found = NULL;
    }
    memcpy(function_out, &found, sizeof(found));
    return found || !required ? WEFT_OK : refuse_without(name, api.version);
}

static weft_status get_functions(get_address *get)
{
    weft_status status = WEFT_OK;
#define GET(name, version, required, arguments)                                \
    if (status == WEFT_OK) {                                                   \
        status = get_function(get, #name, version, required, &api.name);       \
    }
    WEFTI_CUDA_FUNCTIONS(GET)
#undef GET
    return status;
}

static weft_status init(void)
{
    const int result = api.cuInit(0);
    const char *name = NULL, *text = NULL;
    if (result == WEFTI_CUDA_SUCCESS) {
        return WEFT_OK;
    }
    api.cuGetErrorName(result, &name);
    api.cuGetErrorString(result, &text);
    return wefti_error(result == WEFTI_CUDA_ERROR_NO_DEVICE
                           ? WEFT_ERR_UNSUPPORTED
                           : WEFT_ERR_SYSTEM,
                       "%s: cuInit: %s (%s)", library_name,
                       name ? name : "unknown error", text ? text : "no text");
}

static weft_status open_locked(void)
{
    get_address *get = NULL;
    if (!library) {
        library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) {
        return wefti_error(WEFT_ERR_UNSUPPORTED, "no CUDA driver: %s",
                           dlerror());
    }
    weft_status status = check_version(&get);
    if (status == WEFT_OK) {
        status = get_functions(get);
    }
    if (status == WEFT_OK) {
        status = init();
    }
    if (status == WEFT_OK) {
        opened_by = getpid();
    }
    return status;
}

weft_status wefti_cuda_api_open(const wefti_cuda_api **api_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    if (opened_by == 0) {
        status = open_locked();
    } else if (opened_by != getpid()) {
        status = wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s: process %d has opened it and then forked "
                             "this one, which cannot use it",
                             library_name, (int)opened_by);
    }
    pthread_mutex_unlock(&lock);
    *api_out = &api;
    return status;
}

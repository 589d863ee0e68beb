/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cublaslt_api.c - libcublasLt: opened once, its functions found by
 * name.
 */
#include "device/cublaslt_api.h"

#include "base/error.h"
#include "base/library.h"
#include "base/settings.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Those of the CUDA versions that drivers are for, the newest first. */
static const char *const usual_names[] = {"libcublasLt.so.13",
                                          "libcublasLt.so.12"};
enum { USUAL_NAMES = sizeof(usual_names) / sizeof(usual_names[0]) };

/* Of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_cublaslt_api api; /* guarded by lock until opened */
static bool opened;
static wefti_library library = {.what = "cuBLASLt"}; /* likewise */

void wefti_cublaslt_version_text(size_t version, char *text_out,
                                 size_t text_bytes)
{
    /* Up to CUDA 11 the major number was thousands. */
    const size_t unit = version < 100000 ? 1000 : 10000;
    snprintf(text_out, text_bytes, "cuBLASLt %zu.%zu.%zu", version / unit,
             version % unit / 100, version % 100);
}

static weft_status open_library(void)
{
    const char *name = wefti_setting_text(WEFTI_SETTING_CUBLASLT);
    if (strcmp(name, "off") == 0) {
        return wefti_error(WEFT_ERR_UNSUPPORTED, "WEFT_CUBLASLT=off");
    }
    return name[0] ? wefti_library_open(&library, &name, 1)
                   : wefti_library_open(&library, usual_names, USUAL_NAMES);
}

static weft_status check_version(void)
{
    char text[40];
    size_t (*get)(void) = NULL;
    if (!wefti_library_find(library.handle, "cublasLtGetVersion", &get)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s has no cublasLtGetVersion: it is not cuBLASLt",
                           library.name);
    }
    api.version = get();
    wefti_cublaslt_version_text(api.version, text, sizeof(text));
    return api.version >= WEFTI_CUBLASLT_FIRST_VERSION
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s is %s: needed is 12.0 or later", library.name,
                             text);
}

static weft_status find_functions(void)
{
    char text[40];
#define FIND(type, name, arguments)                                            \
    (void)wefti_library_want(&library, #name, &api.name);
    WEFTI_CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    wefti_cublaslt_version_text(api.version, text, sizeof(text));
    return wefti_library_check(&library, text);
}

weft_status wefti_cublaslt_api_open(const wefti_cublaslt_api **api_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    if (!opened) {
        status = open_library();
        status = status < 0 ? status : check_version();
        status = status < 0 ? status : find_functions();
        opened = status == WEFT_OK;
    }
    pthread_mutex_unlock(&lock);
    *api_out = &api;
    return status;
}

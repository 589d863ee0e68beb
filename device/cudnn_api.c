/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cudnn_api.c - libcudnn: opened once, its functions found by
 * name.
 */
#include "device/cudnn_api.h"

#include "base/error.h"
#include "base/library.h"
#include "base/settings.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_cudnn_api api; /* guarded by lock until opened */
static bool opened;
static wefti_library library = {.what = "cuDNN"}; /* likewise */

void wefti_cudnn_version_text(size_t version, char *text_out, size_t text_bytes)
{
    snprintf(text_out, text_bytes, "cuDNN %zu.%zu.%zu", version / 10000,
             version % 10000 / 100, version % 100);
}

static weft_status open_library(void)
{
    const char *name = wefti_setting_text(WEFTI_SETTING_CUDNN);
    if (strcmp(name, "off") == 0) {
        return wefti_error(WEFT_ERR_UNSUPPORTED, "WEFT_CUDNN=off");
    }
    name = name[0] ? name : "libcudnn.so.9";
    return wefti_library_open(&library, &name, 1);
}

static weft_status check_version(void)
{
    char text[40];
    size_t (*get)(void) = NULL;
    if (!wefti_library_find(library.handle, "cudnnGetVersion", &get)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s has no cudnnGetVersion: it is not cuDNN",
                           library.name);
    }
    api.version = get();
    wefti_cudnn_version_text(api.version, text, sizeof(text));
    return api.version >= WEFTI_CUDNN_FIRST_VERSION
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s is %s: needed is 9.10 or later", library.name,
                             text);
}

static weft_status find_functions(void)
{
    char text[40];
#define FIND(type, name, arguments)                                            \
    (void)wefti_library_want(&library, #name, &api.name);
    WEFTI_CUDNN_FUNCTIONS(FIND)
#undef FIND
    wefti_cudnn_version_text(api.version, text, sizeof(text));
    return wefti_library_check(&library, text);
}

weft_status wefti_cudnn_api_open(const wefti_cudnn_api **api_out)
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

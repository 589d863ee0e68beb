/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cudnn_api.c - libcudnn: opened once, its functions found by
 * name.
 */
#include "device/cudnn_api.h"

#include "base/error.h"
#include "base/settings.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_cudnn_api api; /* guarded by lock until opened */
static bool opened;
static void *library; /* of dlopen; never closed: it may leave threads behind,
                         even if it was refused */
static const char *library_name;

/* Finds a function, or adds its name to those that are missing. */
static void find(const char *name, void *function_out, char *missing,
                 size_t missing_bytes)
{
    void *found = dlsym(library, name);
    memcpy(function_out, &found, sizeof(found));
    if (!found) {
        const size_t used = strlen(missing);
        snprintf(missing + used, missing_bytes - used, "%s%s", used ? ", " : "",
                 name);
    }
}

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
    library_name = name[0] ? name : "libcudnn.so.9";
    library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    return library
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED, "no cuDNN: %s", dlerror());
}

static weft_status check_version(void)
{
    char text[40], missing[40] = "";
    size_t (*get)(void) = NULL;
    find("cudnnGetVersion", &get, missing, sizeof(missing));
    if (!get) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s has no %s: it is not cuDNN", library_name,
                           missing);
    }
    api.version = get();
    wefti_cudnn_version_text(api.version, text, sizeof(text));
    return api.version >= WEFTI_CUDNN_FIRST_VERSION
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s is %s: needed is 9.10 or later", library_name,
                             text);
}

static weft_status find_functions(void)
{
    char missing[600] = "", text[40];
#define FIND(type, name, arguments)                                            \
    find(#name, &api.name, missing, sizeof(missing));
    WEFTI_CUDNN_FUNCTIONS(FIND)
#undef FIND
    wefti_cudnn_version_text(api.version, text, sizeof(text));
    return missing[0] == '\0'
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED, "%s, %s, has no %s",
                             library_name, text, missing);
}

weft_status wefti_cudnn_api_open(const wefti_cudnn_api **api_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    if (!opened) {
        status = library ? WEFT_OK : open_library();
        status = status < 0 ? status : check_version();
        status = status < 0 ? status : find_functions();
        opened = status == WEFT_OK;
    }
    pthread_mutex_unlock(&lock);
    *api_out = &api;
    return status;
}

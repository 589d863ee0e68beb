/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/nccl/nccl_api.c - libnccl.so.2: opened once, its functions found by
 * name.
 */
#include "comm/nccl/nccl_api.h"

#include "base/error.h"
#include "base/library.h"
#include "base/settings.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_nccl_api api; /* guarded by lock until opened_by is set */
static pid_t opened_by;    /* 0: not yet */
static wefti_library library = {.what = "NCCL"}; /* likewise */

static const char *name_of_library(void)
{
    const char *name = wefti_setting_text(WEFTI_SETTING_NCCL);
    return name[0] ? name : "libnccl.so.2";
}

void wefti_nccl_version_text(int version, char *text_out, size_t text_bytes)
{
    /* Up to 2.8 the minor number had but one digit. */
    const int unit = version < 10000 ? 1000 : 10000;
    snprintf(text_out, text_bytes, "%d.%d.%d", version / unit,
             version % unit / 100, version % 100);
}

static weft_status check_version(void)
{
    char text[32];
    int (*get)(int *version) = NULL;
    if (!wefti_library_find(library.handle, "ncclGetVersion", &get) ||
        get(&api.version) != WEFTI_NCCL_SUCCESS) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s tells no version (ncclGetVersion): it is not "
                           "NCCL",
                           name_of_library());
    }
    wefti_nccl_version_text(api.version, text, sizeof(text));
    return api.version >= WEFTI_NCCL_FIRST_VERSION
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s is NCCL %s: needed is 2.14 or later",
                             name_of_library(), text);
}

static weft_status find_functions(void)
{
    char text[32], version[40];
#define FIND(type, name, arguments)                                            \
    (void)wefti_library_want(&library, #name, &api.name);
    WEFTI_NCCL_FUNCTIONS(FIND)
#undef FIND
    wefti_nccl_version_text(api.version, text, sizeof(text));
    snprintf(version, sizeof(version), "NCCL %s", text);
    return wefti_library_check(&library, version);
}

/* Weft in NCCL's place (doors/nccl) bears NCCL's name, and has this code. */
static bool is_this_library(void)
{
    Dl_info theirs, own;
    const void *found = dlsym(library.handle, "ncclGetVersion");
    return found && dladdr(found, &theirs) && dladdr(&api, &own) &&
           theirs.dli_fbase == own.dli_fbase;
}

static weft_status open_locked(void)
{
    const char *name = name_of_library();
    weft_status status = wefti_library_open(&library, &name, 1);
    if (status != WEFT_OK) {
        return status;
    }
    if (is_this_library()) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s is weft itself in NCCL's place: WEFT_NCCL has "
                           "to name NCCL's own file",
                           name_of_library());
    }
    status = check_version();
    if (status == WEFT_OK) {
        status = find_functions();
    }
    if (status == WEFT_OK) {
        opened_by = getpid();
    }
    return status;
}

weft_status wefti_nccl_api_open(const wefti_nccl_api **api_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&lock);
    if (opened_by == 0) {
        status = open_locked();
    } else if (opened_by != getpid()) {
        status = wefti_error(WEFT_ERR_UNSUPPORTED,
                             "%s: process %d has opened it and then forked "
                             "this one, which cannot use it",
                             name_of_library(), (int)opened_by);
    }
    pthread_mutex_unlock(&lock);
    *api_out = &api;
    return status;
}

weft_status wefti_nccl_error(const wefti_nccl_api *opened,
                             struct ncclComm *comm, int result,
                             const char *what)
{
    const char *last = opened->ncclGetLastError(comm);
    return wefti_error(result == WEFTI_NCCL_REMOTE_ERROR ? WEFT_ERR_PEER
                                                         : WEFT_ERR_SYSTEM,
                       "%s: %s%s%s", what, opened->ncclGetErrorString(result),
                       last && last[0] ? ": " : "", last ? last : "");
}

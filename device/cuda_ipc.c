/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_ipc.c - memory of a GPU that several processes use.
 *
 * What cuMemAlloc gave goes by a handle of 64 bytes, which stands for the whole
 * allocation: an export says where in it the pointer is. Exportable memory goes
 * by a file descriptor. An allocation is opened once in this process however
 * often it is imported, and closed with the last import of it. Importing lets
 * kernels access another GPU's memory; within a process that is asked for.
 */
#include "base/error.h"
#include "device/cuda_gpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct import {
    struct import *next;
    uint64_t base;
    size_t bytes;
    size_t users;
    bool mapped;     /* by a file descriptor */
    uint64_t handle; /* of that memory */
    unsigned char key[64];
} import;

struct wefti_cuda_imports {
    pthread_mutex_t lock;
    import *first;
};

weft_status wefti_cuda_imports_create(wefti_cuda_gpu *gpu)
{
    gpu->imports = calloc(1, sizeof(*gpu->imports));
    if (!gpu->imports) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    pthread_mutex_init(&gpu->imports->lock, NULL);
    return WEFT_OK;
}

/* Nothing is left: what has been imported keeps its device open. */
void wefti_cuda_imports_destroy(wefti_cuda_gpu *gpu)
{
    pthread_mutex_destroy(&gpu->imports->lock);
    free(gpu->imports);
}

static weft_status export_descriptor(wefti_cuda_gpu *gpu, uint64_t handle,
                                     weft_export *out)
{
    int descriptor = -1;
    weft_status status =
        wefti_cuda_check(gpu,
                         gpu->api->cuMemExportToShareableHandle(
                             &descriptor, handle,
                             WEFTI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                         "cuMemExportToShareableHandle");
    out->descriptor = descriptor;
    return status;
}

static weft_status export_handle(wefti_cuda_gpu *gpu, uint64_t base,
                                 weft_export *out)
{
    wefti_cuda_ipc_handle handle;
    weft_status status = wefti_cuda_check(
        gpu, gpu->api->cuIpcGetMemHandle(&handle, base), "cuIpcGetMemHandle");
    if (status == WEFT_OK) {
        _Static_assert(sizeof(handle) == sizeof(out->handle), "one is 64");
        memcpy(out->handle, &handle, sizeof(handle));
    }
    return status;
}

/* Which allocation a pointer is in, and whether it can be shared. */
static weft_status find_exported(wefti_cuda_gpu *gpu, const void *pointer,
                                 wefti_cuda_pointer *found)
{
    weft_status status = wefti_cuda_query(gpu, pointer, found);
    if (status < 0) {
        return status;
    }
    if (!found->known || found->host || found->ordinal != gpu->index) {
        return wefti_error(WEFT_ERR_INVALID,
                           "pointer %p: not memory of cuda device %d", pointer,
                           gpu->index);
    }
    if (found->managed || !found->legacy_ipc) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "pointer %p: the driver does not share memory of "
                           "this kind between processes",
                           pointer);
    }
    return WEFT_OK;
}

weft_status wefti_cuda_mem_export(weft_device *device, const void *pointer,
                                  weft_export *out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    wefti_cuda_pointer found = {0};
    uint64_t handle = 0;
    void *base = NULL;
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    if (wefti_cuda_memory_get_handle(gpu, pointer, &handle, &base,
                                     &out->bytes)) {
        status = export_descriptor(gpu, handle, out);
    } else {
        status = find_exported(gpu, pointer, &found);
        base = (void *)(uintptr_t)found.base;
        out->bytes = found.bytes;
        if (status == WEFT_OK) {
            status = export_handle(gpu, found.base, out);
        }
    }
    out->offset = (size_t)((uintptr_t)pointer - (uintptr_t)base);
    out->index = gpu->index;
    out->process = (int32_t)getpid();
    wefti_cuda_leave(gpu);
    return status;
}

static weft_status open_descriptor(wefti_cuda_gpu *gpu,
                                   const weft_export *given, import *out)
{
    out->mapped = true;
    weft_status status =
        wefti_cuda_check(gpu,
                         gpu->api->cuMemImportFromShareableHandle(
                             &out->handle, (void *)(intptr_t)given->descriptor,
                             WEFTI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                         "cuMemImportFromShareableHandle");
    if (status < 0) {
        return status;
    }
    status = wefti_cuda_map(gpu, out->handle, given->bytes, &out->base);
    if (status < 0) {
        wefti_cuda_note(gpu, gpu->api->cuMemRelease(out->handle));
    }
    return status;
}

static weft_status open_handle(wefti_cuda_gpu *gpu, const weft_export *given,
                               import *out)
{
    wefti_cuda_ipc_handle handle;
    memcpy(&handle, given->handle, sizeof(handle));
    memcpy(out->key, given->handle, sizeof(out->key));
    return wefti_cuda_check(
        gpu,
        gpu->api->cuIpcOpenMemHandle(&out->base, handle,
                                     WEFTI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle");
}

/* What is open already: descriptors of one memory cannot be told to be so. */
static import *find_opened(const wefti_cuda_gpu *gpu, const weft_export *given)
{
    import *at = gpu->imports->first;
    while (at && (at->mapped || at->bytes != given->bytes ||
                  memcmp(at->key, given->handle, sizeof(at->key)) != 0)) {
        at = at->next;
    }
    return at;
}

static weft_status open_import(wefti_cuda_gpu *gpu, const weft_export *given,
                               import **out)
{
    import *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an import");
    }
    made->bytes = given->bytes;
    weft_status status = given->descriptor >= 0
                             ? open_descriptor(gpu, given, made)
                             : open_handle(gpu, given, made);
    if (status < 0) {
        free(made);
        return status;
    }
    made->next = gpu->imports->first;
    gpu->imports->first = made;
    *out = made;
    return WEFT_OK;
}

weft_status wefti_cuda_mem_import(weft_device *device, const weft_export *given,
                                  void **out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    if (given->process == (int32_t)getpid()) {
        return wefti_error(WEFT_ERR_INVALID,
                           "given: this process (%d) has exported it, and has "
                           "the memory itself",
                           (int)given->process);
    }
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&gpu->imports->lock);
    import *found = given->descriptor >= 0 ? NULL : find_opened(gpu, given);
    if (!found) {
        status = open_import(gpu, given, &found);
    }
    if (status == WEFT_OK) {
        found->users++;
        *out = (void *)(uintptr_t)(found->base + given->offset);
    }
    pthread_mutex_unlock(&gpu->imports->lock);
    wefti_cuda_leave(gpu);
    return status;
}

/* Of a GPU that has failed nothing is there to be closed. */
static void close_import(wefti_cuda_gpu *gpu, import *closed)
{
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        if (closed->mapped) {
            wefti_cuda_unmap(gpu, closed->base, closed->bytes);
            wefti_cuda_note(gpu, gpu->api->cuMemRelease(closed->handle));
        } else {
            wefti_cuda_note(gpu, gpu->api->cuIpcCloseMemHandle(closed->base));
        }
        wefti_cuda_leave(gpu);
    }
    free(closed);
}

bool wefti_cuda_mem_unimport(weft_device *device, void *pointer)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    pthread_mutex_lock(&gpu->imports->lock);
    import **place = &gpu->imports->first;
    while (*place && !(address >= (*place)->base &&
                       address - (*place)->base < (*place)->bytes)) {
        place = &(*place)->next;
    }
    import *found = *place;
    const bool known = found != NULL;
    if (known && --found->users == 0) {
        *place = found->next;
        close_import(gpu, found);
    }
    pthread_mutex_unlock(&gpu->imports->lock);
    return known;
}

/* One way, and for as long as both contexts live. */
static weft_status enable_peer(wefti_cuda_gpu *gpu, struct CUctx_st *peer)
{
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    const int result = gpu->api->cuCtxEnablePeerAccess(peer, 0);
    if (result != WEFTI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        status = wefti_cuda_check(gpu, result, "cuCtxEnablePeerAccess");
    }
    wefti_cuda_leave(gpu);
    return status;
}

weft_status wefti_cuda_mem_reach(weft_device *device, int index)
{
    wefti_cuda_gpu *peer;
    if (index == device->index) {
        return WEFT_OK;
    }
    weft_status status = wefti_cuda_gpu_open(index, &peer);
    if (status == WEFT_OK) {
        status = enable_peer(wefti_cuda_gpu_of(device), peer->context);
        wefti_cuda_gpu_close(peer);
    }
    return status;
}

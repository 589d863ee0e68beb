/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_memory.c - memory that programs ask for, and buffers that
 * they announce: weft needs no announcement.
 */
#include "doors/nccl/door_device.h"
#include "doors/nccl/door_text.h"

#include <stdlib.h>

/* Of the process: what ncclMemAlloc has given out. device: NULL of the host's.
 */
typedef struct wefti_door_memory {
    struct wefti_door_memory *next;
    void *pointer;
    weft_device *device;
} wefti_door_memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_door_memory *first; /* guarded by lock */

static weft_status allocate(wefti_door_memory *memory, size_t bytes)
{
    if (memory->device) {
        return weft_device_alloc(memory->device, bytes, &memory->pointer);
    }
    const size_t unit = WEFTI_DOOR_WINDOW_ALIGNMENT;
    if (bytes > SIZE_MAX - unit) {
        return WEFT_ERR_NO_MEMORY;
    }
    memory->pointer = aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
    return memory->pointer ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

int pncclMemAlloc(void **pointer_out, size_t bytes)
{
    int ordinal;
    if (!pointer_out) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "ncclMemAlloc: ptr is NULL");
    }
    *pointer_out = NULL;
    if (bytes == 0) {
        return WEFTI_DOOR_SUCCESS;
    }
    wefti_door_memory *memory = calloc(1, sizeof(*memory));
    if (!memory) {
        return wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR,
                                "ncclMemAlloc: out of memory");
    }
    int result =
        wefti_door_device_open(WEFTI_DOOR_CURRENT, &memory->device, &ordinal);
    if (result == WEFTI_DOOR_SUCCESS && allocate(memory, bytes) != WEFT_OK) {
        weft_device_close(memory->device);
        result =
            wefti_door_error(memory->device ? WEFTI_DOOR_UNHANDLED_CUDA_ERROR
                                            : WEFTI_DOOR_SYSTEM_ERROR,
                             "ncclMemAlloc: no memory for %zu bytes", bytes);
    }
    if (result != WEFTI_DOOR_SUCCESS) {
        free(memory);
        return result;
    }
    pthread_mutex_lock(&lock);
    memory->next = first;
    first = memory;
    pthread_mutex_unlock(&lock);
    *pointer_out = memory->pointer;
    return WEFTI_DOOR_SUCCESS;
}
WEFTI_DOOR_WEAK(MemAlloc)

static wefti_door_memory *take(const void *pointer)
{
    pthread_mutex_lock(&lock);
    wefti_door_memory **at = &first;
    while (*at && (*at)->pointer != pointer) {
        at = &(*at)->next;
    }
    wefti_door_memory *found = *at;
    if (found) {
        *at = found->next;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int pncclMemFree(void *pointer)
{
    wefti_door_memory *memory = pointer ? take(pointer) : NULL;
    if (!memory) {
        return pointer ? wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                          "ncclMemFree: %p is not of "
                                          "ncclMemAlloc, or freed already",
                                          pointer)
                       : WEFTI_DOOR_SUCCESS;
    }
    if (memory->device) {
        weft_device_free(memory->device, pointer);
        weft_device_close(memory->device);
    } else {
        free(pointer);
    }
    free(memory);
    return WEFTI_DOOR_SUCCESS;
}
WEFTI_DOOR_WEAK(MemFree)

static int check(struct ncclComm *handle, const char *call, const void *buffer,
                 size_t bytes, const void *place)
{
    wefti_door_comm *comm;
    const int result = wefti_door_enter_ready(handle, call, &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    wefti_door_leave(comm);
    if (!buffer || bytes == 0 || !place) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: %s: allowed are bytes somewhere, and a "
                                "place for their handle",
                                call,
                                !place    ? "the handle is NULL"
                                : !buffer ? "the buffer is NULL"
                                          : "size is 0");
    }
    return WEFTI_DOOR_SUCCESS;
}

/* The only handles there are are NULL. */
static int check_handle(struct ncclComm *handle, const char *call,
                        const void *given)
{
    wefti_door_comm *comm;
    const int result = wefti_door_enter_ready(handle, call, &comm);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    wefti_door_leave(comm);
    return given ? wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                    "%s: %p was not given out by this library",
                                    call, given)
                 : WEFTI_DOOR_SUCCESS;
}

int pncclCommRegister(struct ncclComm *comm, void *buffer, size_t bytes,
                      void **handle_out)
{
    const int result =
        check(comm, "ncclCommRegister", buffer, bytes, handle_out);
    if (result == WEFTI_DOOR_SUCCESS) {
        *handle_out = NULL;
    }
    return result;
}
WEFTI_DOOR_WEAK(CommRegister)

int pncclCommDeregister(struct ncclComm *comm, void *handle)
{
    return check_handle(comm, "ncclCommDeregister", handle);
}
WEFTI_DOOR_WEAK(CommDeregister)

int pncclCommWindowRegister(struct ncclComm *comm, void *buffer, size_t bytes,
                            struct ncclWindow_vidmem **window_out, int flags)
{
    int result =
        check(comm, "ncclCommWindowRegister", buffer, bytes, window_out);
    if (result == WEFTI_DOOR_SUCCESS && flags != 0 &&
        flags != WEFTI_DOOR_WINDOW_SYMMETRIC) {
        result = wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "ncclCommWindowRegister: winFlags is %d: "
                                  "allowed is 0 or 1",
                                  flags);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        *window_out = NULL;
    }
    return result;
}
WEFTI_DOOR_WEAK(CommWindowRegister)

int pncclCommWindowDeregister(struct ncclComm *comm,
                              struct ncclWindow_vidmem *window)
{
    return check_handle(comm, "ncclCommWindowDeregister", window);
}
WEFTI_DOOR_WEAK(CommWindowDeregister)

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_memory.c - allocations of devices, pinned host memory, and
 * what the driver says about a pointer.
 */
#include "tests/fake/fake.h"

#include <string.h>
#include <sys/mman.h>

/* CU_DEVICE_INVALID. */
enum { NO_DEVICE = -2 };

/* Whether this allocation is the one that is to fail. Locked. */
static bool must_fail(void)
{
    return ++fake.allocations == fake_get_settings()->fail_allocation;
}

/* cuMemAlloc: aligned for any kind of variable, not cleared; INVALID_VALUE for
 * no bytes. */
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !pointer || bytes == 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    CUcontext context = fake_current();
    fake_range range = {.kind = FAKE_ALLOCATED,
                        .owner = context->ordinal,
                        .context = context->primary};
    pthread_mutex_lock(&fake.lock);
    result = fake_capture_unsafe();
    if (result == CUDA_SUCCESS) {
        result = must_fail() ? CUDA_ERROR_OUT_OF_MEMORY
                             : fake_arena_alloc(range.owner, bytes, &range);
    }
    if (result == CUDA_SUCCESS && !fake_range_add(&range)) {
        fake_arena_free(range.owner, &range);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake.lock);
    if (result == CUDA_SUCCESS) {
        *pointer = range.address;
    }
    return result;
}

/* The range that begins here and is of this kind, or NULL. Locked. */
static fake_range *find_base(CUdeviceptr address, fake_kind kind)
{
    fake_range *range = fake_range_find(address, 1);
    return range && range->address == address && range->kind == kind ? range
                                                                     : NULL;
}

/* Meanwhile no thread queues anything (seen with driver 580 on an H200). */
void fake_await_idle_locked(int ordinal)
{
    uint64_t backoff_ns = 0;
    bool busy = true;
    fake.waiting++;
    while (busy && fake.sticky == CUDA_SUCCESS) {
        busy = false;
        for (CUstream at = fake.streams; at; at = at->next) {
            busy = busy || (at->context->ordinal == ordinal && at->first);
        }
        if (busy) {
            fake_wait_locked(&backoff_ns);
        }
    }
    fake.waiting--;
}

/* cuMemFree: what cuMemAlloc returned, nothing else. It "may perform implicit
 * synchronization": by chance it waits for all work of the device. Where it
 * does not, work on the memory that comes to its turn later meets an illegal
 * address. */
CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || pointer == 0) {
        return result;
    }
    const bool waits = fake_chance(2) == 0;
    pthread_mutex_lock(&fake.lock);
    fake_range *range = find_base(pointer, FAKE_ALLOCATED);
    result = range ? fake_capture_unsafe() : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (waits) {
            fake_await_idle_locked(range->owner);
        }
        fake_range_await_unused(range);
        fake_arena_free(range->owner, range);
        fake_range_remove(range);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* Unified addressing, "automatic mapping of host memory": what cuMemHostAlloc
 * returns is portable, mapped, and has one address everywhere. */
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !pointer || bytes == 0 || flags > 7) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(memory, 0xff, bytes);
    fake_range range = {.address = (CUdeviceptr)(uintptr_t)memory,
                        .bytes = bytes,
                        .kind = FAKE_PINNED,
                        .alias = memory,
                        .owner = FAKE_HOST,
                        .context = fake_current()->primary};
    pthread_mutex_lock(&fake.lock);
    result = fake_capture_unsafe();
    if (result == CUDA_SUCCESS && (must_fail() || !fake_range_add(&range))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake.lock);
    if (result != CUDA_SUCCESS) {
        munmap(memory, bytes);
        return result;
    }
    *pointer = memory;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *pointer)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !pointer) {
        return result;
    }
    const bool waits = fake_chance(2) == 0;
    pthread_mutex_lock(&fake.lock);
    fake_range *range = find_base((CUdeviceptr)(uintptr_t)pointer, FAKE_PINNED);
    if (range) {
        if (waits) {
            fake_await_idle_locked(fake_current()->ordinal);
        }
        fake_range_await_unused(range);
        munmap(pointer, range->bytes);
        fake_range_remove(range);
    }
    pthread_mutex_unlock(&fake.lock);
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether all of it is mapped: nothing else can be page-locked. */
static bool is_mapped(void *pointer, size_t bytes)
{
    uintptr_t first = (uintptr_t)pointer / FAKE_PAGE_BYTES * FAKE_PAGE_BYTES;
    unsigned char resident[64];
    uintptr_t end = (uintptr_t)pointer + bytes;
    for (uintptr_t at = first; at < end;
         at += sizeof(resident) * FAKE_PAGE_BYTES) {
        size_t most = sizeof(resident) * FAKE_PAGE_BYTES;
        if (mincore((void *)at, end - at < most ? end - at : most, resident)) {
            return false;
        }
    }
    return true;
}

/* cuMemHostRegister: memory that is there, not registered before; read-only and
 * I/O memory are attributes that these devices lack. */
CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !pointer || bytes == 0 || flags > 15) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!is_mapped(pointer, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_range range = {.address = (CUdeviceptr)(uintptr_t)pointer,
                        .bytes = bytes,
                        .kind = FAKE_REGISTERED,
                        .alias = pointer,
                        .owner = FAKE_HOST,
                        .context = fake_current()->primary};
    pthread_mutex_lock(&fake.lock);
    if (fake_range_touching(range.address, bytes)) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else if (must_fail() || !fake_range_add(&range)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuMemHostUnregister(void *pointer)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    fake_range *range =
        find_base((CUdeviceptr)(uintptr_t)pointer, FAKE_REGISTERED);
    if (range) {
        fake_range_await_unused(range);
        fake_range_remove(range);
    }
    pthread_mutex_unlock(&fake.lock);
    return range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* cuMemHostGetDevicePointer: of memory that is pinned; flags must be 0. The
 * device's attribute CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM makes them one. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer,
                                      unsigned flags)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !device || flags != 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    pthread_mutex_lock(&fake.lock);
    fake_range *range = fake_range_find(address, 1);
    bool pinned = range && range->owner == FAKE_HOST;
    pthread_mutex_unlock(&fake.lock);
    if (!pinned) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = address;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                 CUdeviceptr pointer)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    fake_range *range = fake_range_find(pointer, 1);
    if (range && base) {
        *base = range->address;
    }
    if (range && bytes) {
        *bytes = range->bytes;
    }
    pthread_mutex_unlock(&fake.lock);
    return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !unused || !total) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *total = fake_get_settings()->memory_bytes;
    pthread_mutex_lock(&fake.lock);
    *unused = *total - fake.devices[fake_current()->ordinal].arena.used_bytes;
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

/* Each attribute has its own type (cuPointerGetAttribute); a pointer of no
 * range has NULL values (cuPointerGetAttributes). Locked. */
static CUresult get_attribute(const fake_range *range, CUdeviceptr pointer,
                              CUpointer_attribute attribute, void *data)
{
    bool host = range && range->owner == FAKE_HOST;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = range ? range->context : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = !range ? 0
                            : host ? CU_MEMORYTYPE_HOST
                                   : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = range ? pointer : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = host ? (void *)(uintptr_t)pointer : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = range ? range->id : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = !range ? NO_DEVICE
                       : host || range->owner == FAKE_HIDDEN
                           ? range->context->ordinal
                           : range->owner;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = range && range->kind == FAKE_ALLOCATED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range ? range->address : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range ? range->bytes : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = range != NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data =
            range && range->kind == FAKE_MAPPED
                ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                : CU_MEM_HANDLE_TYPE_NONE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data =
            range && fake_current() &&
                    fake_range_reachable(range, fake_current()->ordinal)
                ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    }
    fake_say("cuPointerGetAttributes: attribute %d is not known",
             (int)attribute);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr pointer)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !attributes || !data) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake.lock);
    const fake_range *range = fake_range_find(pointer, 1);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = get_attribute(range, pointer, attributes[i], data[i]);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

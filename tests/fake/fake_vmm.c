/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_vmm.c - physical memory and addresses apart (cuMemCreate,
 * cuMemAddressReserve, cuMemMap, cuMemSetAccess). Sizes, addresses and offsets
 * are multiples of the granularity; what is mapped can be accessed by no device
 * until it is permitted; it goes when the handle and all mappings have gone.
 *
 * The memory is a file, which is also what is sent to another process. Its last
 * page says what it is.
 */
#include "tests/fake/fake.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20, LABEL_MAGIC = 0x77667631 /* "wfv1" */ };

typedef struct label {
    uint32_t magic;
    int32_t device; /* the physical one */
    uint64_t bytes;
} label;

typedef struct physical {
    struct physical *next;
    CUmemGenericAllocationHandle handle;
    int file, owner;
    size_t bytes;
    bool exportable, released;
    unsigned mappings;
} physical;

/* An address range from cuMemAddressReserve. */
typedef struct reservation {
    struct reservation *next;
    CUdeviceptr address;
    size_t bytes;
} reservation;

static physical *memories; /* both with the lock */
static reservation *reservations;

static bool is_granular(uint64_t value)
{
    return value % GRANULARITY == 0;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!fake_is_ordinal(prop->location.id)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return prop->requestedHandleTypes & ~1U ? CUDA_ERROR_NOT_SUPPORTED
                                            : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes,
                                       const CUmemAllocationProp *prop,
                                       unsigned option)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS) {
        result =
            bytes && option <= 1 ? check_prop(prop) : CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *bytes = GRANULARITY;
    }
    return result;
}

/* The memory of a handle, or NULL. Locked. */
static physical *find_physical(CUmemGenericAllocationHandle handle)
{
    physical *at = memories;
    while (at && (at->handle != handle || at->released)) {
        at = at->next;
    }
    return at;
}

static physical *add_physical(int file, int owner, size_t bytes)
{
    physical *made = calloc(1, sizeof(*made));
    if (made) {
        made->file = file;
        made->owner = owner;
        made->bytes = bytes;
        made->handle = ++fake.next_id;
        made->next = memories;
        memories = made;
    }
    return made;
}

static void drop_locked(physical *memory)
{
    physical **at = &memories;
    if (!memory->released || memory->mappings != 0) {
        return;
    }
    while (*at != memory) {
        at = &(*at)->next;
    }
    *at = memory->next;
    close(memory->file);
    free(memory);
}

/* A file of these bytes filled with ones, and its label; -1: no memory. */
static int make_file(size_t bytes, int device)
{
    label written = {LABEL_MAGIC, device, bytes};
    int file = memfd_create("fake-gpu-memory", MFD_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    void *filled = MAP_FAILED;
    if (ftruncate(file, (off_t)(bytes + FAKE_PAGE_BYTES)) == 0 &&
        pwrite(file, &written, sizeof(written), (off_t)bytes) ==
            (ssize_t)sizeof(written)) {
        filled = fake_arena_alias(file, 0, bytes);
    }
    if (filled == MAP_FAILED) {
        close(file);
        return -1;
    }
    memset(filled, 0xff, bytes);
    munmap(filled, bytes);
    return file;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS) {
        result = check_prop(prop);
    }
    if (result != CUDA_SUCCESS || !handle || bytes == 0 || flags != 0 ||
        !is_granular(bytes)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const fake_settings *settings = fake_get_settings();
    pthread_mutex_lock(&fake.lock);
    int file = -1;
    physical *made = NULL;
    if (++fake.allocations != settings->fail_allocation &&
        bytes <= settings->memory_bytes) {
        file = make_file(bytes, settings->visible[prop->location.id]);
    }
    if (file >= 0) {
        made = add_physical(file, prop->location.id, bytes);
    }
    if (made) {
        made->exportable = prop->requestedHandleTypes != 0;
        *handle = made->handle;
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake.lock);
    if (!made && file >= 0) {
        close(file);
    }
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    physical *memory = find_physical(handle);
    if (memory) {
        memory->released = true;
        drop_locked(memory);
    }
    pthread_mutex_unlock(&fake.lock);
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* cuMemExportToShareableHandle: of a type that was asked for when the memory
 * was created; the caller closes the descriptor. */
CUresult cuMemExportToShareableHandle(void *shared,
                                      CUmemGenericAllocationHandle handle,
                                      unsigned type, unsigned long long flags)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !shared || flags != 0 ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake.lock);
    const physical *memory = find_physical(handle);
    int file = memory && memory->exportable
                   ? fcntl(memory->file, F_DUPFD_CLOEXEC, 0)
                   : -1;
    pthread_mutex_unlock(&fake.lock);
    if (file < 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(shared, &file, sizeof(file));
    return CUDA_SUCCESS;
}

static int ordinal_of(int device)
{
    const fake_settings *settings = fake_get_settings();
    for (int i = 0; i < settings->visible_count; i++) {
        if (settings->visible[i] == device) {
            return i;
        }
    }
    return FAKE_HIDDEN;
}

/* cuMemImportFromShareableHandle: the descriptor is passed by value, in a
 * pointer's place, and stays the caller's. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                        void *shared, unsigned type)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !handle ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    struct stat found;
    label read = {0};
    int file = fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 0);
    if (file < 0 || fstat(file, &found) != 0 ||
        found.st_size <= FAKE_PAGE_BYTES ||
        pread(file, &read, sizeof(read), found.st_size - FAKE_PAGE_BYTES) !=
            (ssize_t)sizeof(read) ||
        read.magic != LABEL_MAGIC ||
        read.bytes + FAKE_PAGE_BYTES != (uint64_t)found.st_size) {
        fake_say("cuMemImportFromShareableHandle: descriptor %d is no memory",
                 (int)(intptr_t)shared);
        if (file >= 0) {
            close(file);
        }
        return CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&fake.lock);
    physical *made =
        add_physical(file, ordinal_of(read.device), (size_t)read.bytes);
    if (made) {
        *handle = made->handle;
    }
    pthread_mutex_unlock(&fake.lock);
    if (!made) {
        close(file);
    }
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes,
                             size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    (void)wanted; /* a hint */
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !pointer || bytes == 0 || flags != 0 ||
        !is_granular(bytes) || (alignment & (alignment - 1)) != 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    reservation *made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake.lock);
    made->bytes = bytes;
    made->address = fake_arena_reserve(
        bytes, alignment > GRANULARITY ? alignment : GRANULARITY);
    if (made->address) {
        made->next = reservations;
        reservations = made;
        *pointer = made->address;
    }
    bool reserved = made->address != 0;
    pthread_mutex_unlock(&fake.lock);
    if (!reserved) {
        free(made);
    }
    return reserved ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* cuMemAddressFree: the whole of what was reserved, nothing mapped there. */
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    reservation **at = &reservations;
    while (*at && ((*at)->address != pointer || (*at)->bytes != bytes)) {
        at = &(*at)->next;
    }
    reservation *found = *at;
    if (!found || fake_range_touching(pointer, bytes)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        *at = found->next;
        munmap((void *)(uintptr_t)pointer, bytes);
        free(found);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static bool is_reserved(CUdeviceptr pointer, size_t bytes)
{
    const reservation *at = reservations;
    while (at && (pointer - at->address >= at->bytes ||
                  bytes > at->bytes - (pointer - at->address))) {
        at = at->next;
    }
    return at != NULL;
}

/* cuMemMap: the whole of an allocation, at a reserved address where nothing is
 * mapped; offset must be 0. */
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || flags != 0 || offset != 0 || bytes == 0 ||
        !is_granular(bytes) || !is_granular(pointer)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&fake.lock);
    physical *memory = find_physical(handle);
    void *alias = MAP_FAILED;
    if (!memory || bytes > memory->bytes || !is_reserved(pointer, bytes) ||
        fake_range_touching(pointer, bytes)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        alias = fake_arena_alias(memory->file, 0, bytes);
        result = alias == MAP_FAILED ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        fake_range range = {.address = pointer,
                            .bytes = bytes,
                            .kind = FAKE_MAPPED,
                            .alias = alias,
                            .owner = memory->owner,
                            .key = (uint64_t)(uintptr_t)memory};
        if (fake_range_add(&range)) {
            memory->mappings++;
        } else {
            munmap(alias, bytes);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuMemUnmap: what was mapped, whole; it waits for no stream. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    fake_range *range = fake_range_find(pointer, 1);
    if (!range || range->kind != FAKE_MAPPED || range->address != pointer ||
        range->bytes != bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        physical *memory = (physical *)(uintptr_t)range->key;
        fake_range_await_unused(range);
        munmap(range->alias, range->bytes);
        fake_range_remove(range);
        memory->mappings--;
        drop_locked(memory);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuMemSetAccess: of a range that is mapped from end to end. */
CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes,
                        const CUmemAccessDesc *access, size_t count)
{
    CUresult result = fake_enter();
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !fake_is_ordinal(access[i].location.id)) {
            result = CUDA_ERROR_INVALID_DEVICE;
        }
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    for (size_t done = 0; result == CUDA_SUCCESS && done < bytes;) {
        fake_range *range = fake_range_find(pointer + done, 1);
        if (!range || range->kind != FAKE_MAPPED ||
            range->address != pointer + done || range->bytes > bytes - done) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        for (size_t i = 0; i < count; i++) {
            int id = access[i].location.id;
            uint32_t bit = UINT32_C(1) << id;
            bool allowed = access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
            if (allowed && id != range->owner && fake_get_settings()->no_peer) {
                result = CUDA_ERROR_NOT_SUPPORTED;
            } else {
                range->reach =
                    allowed ? range->reach | bit : range->reach & ~bit;
            }
        }
        done += range->bytes;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

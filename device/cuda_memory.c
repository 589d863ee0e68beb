/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_memory.c - memory of a GPU, pinned memory of the host, and what
 * the driver knows about a pointer.
 *
 * A list of what weft has allocated, by address, says what may be freed and
 * how. Exportable memory is physical memory with a handle, put at addresses of
 * its own in whole granules.
 */
#include "base/error.h"
#include "device/cuda_gpu.h"

#include <stdlib.h>
#include <string.h>

typedef wefti_cuda_block record;

struct wefti_cuda_memory {
    pthread_mutex_t lock;
    record *records; /* [capacity], count of them used, by address */
    size_t count, capacity;
    size_t granule_bytes; /* of exportable memory; 0: there is none */
};

static void *to_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static uint64_t to_address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static wefti_cuda_alloc_prop get_prop(const wefti_cuda_gpu *gpu)
{
    return (wefti_cuda_alloc_prop){
        .type = WEFTI_CU_MEM_ALLOCATION_TYPE_PINNED,
        .handle_types = WEFTI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {WEFTI_CU_MEM_LOCATION_TYPE_DEVICE, gpu->native}};
}

weft_status wefti_cuda_memory_create(wefti_cuda_gpu *gpu)
{
    const wefti_cuda_alloc_prop prop = get_prop(gpu);
    gpu->memory = calloc(1, sizeof(*gpu->memory));
    if (!gpu->memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    pthread_mutex_init(&gpu->memory->lock, NULL);
    if (gpu->exportable &&
        gpu->api->cuMemGetAllocationGranularity(
            &gpu->memory->granule_bytes, &prop,
            WEFTI_CU_MEM_ALLOC_GRANULARITY_MINIMUM) != WEFTI_CUDA_SUCCESS) {
        gpu->exportable = false;
    }
    return WEFT_OK;
}

void wefti_cuda_memory_destroy(wefti_cuda_gpu *gpu)
{
    pthread_mutex_destroy(&gpu->memory->lock);
    free(gpu->memory->records);
    free(gpu->memory);
}

/* How many records begin at or before an address. */
static size_t count_before(const struct wefti_cuda_memory *memory,
                           uint64_t address)
{
    size_t low = 0, high = memory->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memory->records[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static weft_status make_room_locked(struct wefti_cuda_memory *memory)
{
    if (memory->count < memory->capacity) {
        return WEFT_OK;
    }
    const size_t capacity = memory->capacity ? 2 * memory->capacity : 32;
    record *records = realloc(memory->records, capacity * sizeof(*records));
    if (!records) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the list of %zu allocations",
                           capacity);
    }
    memory->records = records;
    memory->capacity = capacity;
    return WEFT_OK;
}

static weft_status add(struct wefti_cuda_memory *memory, const record *made)
{
    pthread_mutex_lock(&memory->lock);
    weft_status status = make_room_locked(memory);
    if (status == WEFT_OK) {
        const size_t at = count_before(memory, made->address);
        memmove(&memory->records[at + 1], &memory->records[at],
                (memory->count - at) * sizeof(*memory->records));
        memory->records[at] = *made;
        memory->count++;
    }
    pthread_mutex_unlock(&memory->lock);
    return status;
}

/* Takes the record of an allocation that begins here off the list. */
static bool take(struct wefti_cuda_memory *memory, uint64_t address,
                 record *out)
{
    pthread_mutex_lock(&memory->lock);
    const size_t at = count_before(memory, address);
    const bool found = at > 0 && memory->records[at - 1].address == address;
    if (found) {
        *out = memory->records[at - 1];
        memmove(&memory->records[at - 1], &memory->records[at],
                (memory->count - at) * sizeof(*memory->records));
        memory->count--;
    }
    pthread_mutex_unlock(&memory->lock);
    return found;
}

weft_status wefti_cuda_map(wefti_cuda_gpu *gpu, uint64_t handle, size_t bytes,
                           uint64_t *address_out)
{
    const wefti_cuda_api *api = gpu->api;
    const wefti_cuda_access access = {
        {WEFTI_CU_MEM_LOCATION_TYPE_DEVICE, gpu->native},
        WEFTI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    uint64_t address = 0;
    weft_status status = wefti_cuda_check(
        gpu, api->cuMemAddressReserve(&address, bytes, 0, 0, 0),
        "cuMemAddressReserve");
    if (status < 0) {
        return status;
    }
    status = wefti_cuda_check(gpu, api->cuMemMap(address, bytes, 0, handle, 0),
                              "cuMemMap");
    if (status < 0) {
        goto err_reserve;
    }
    status = wefti_cuda_check(
        gpu, api->cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
    if (status < 0) {
        goto err_map;
    }
    *address_out = address;
    return WEFT_OK;

err_map:
    wefti_cuda_note(gpu, api->cuMemUnmap(address, bytes));
err_reserve:
    wefti_cuda_note(gpu, api->cuMemAddressFree(address, bytes));
    return status;
}

void wefti_cuda_unmap(wefti_cuda_gpu *gpu, uint64_t address, size_t bytes)
{
    wefti_cuda_note(gpu, gpu->api->cuMemUnmap(address, bytes));
    wefti_cuda_note(gpu, gpu->api->cuMemAddressFree(address, bytes));
}

static weft_status alloc_exportable(wefti_cuda_gpu *gpu, size_t bytes,
                                    record *out)
{
    const wefti_cuda_alloc_prop prop = get_prop(gpu);
    const size_t granule = gpu->memory->granule_bytes;
    if (!gpu->exportable) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "cuda device %d has no exportable memory",
                           gpu->index);
    }
    if (bytes > SIZE_MAX - granule) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           bytes);
    }
    out->bytes = (bytes + granule - 1) / granule * granule;
    weft_status status = wefti_cuda_check(
        gpu, gpu->api->cuMemCreate(&out->handle, out->bytes, &prop, 0),
        "cuMemCreate");
    if (status < 0) {
        return status;
    }
    status = wefti_cuda_map(gpu, out->handle, out->bytes, &out->address);
    if (status < 0) {
        wefti_cuda_note(gpu, gpu->api->cuMemRelease(out->handle));
    }
    return status;
}

static weft_status alloc(wefti_cuda_gpu *gpu, size_t bytes, record *out)
{
    void *pinned = NULL;
    weft_status status;
    switch (out->kind) {
    case WEFT_MEMORY_PINNED:
        status = wefti_cuda_check(
            gpu,
            gpu->api->cuMemHostAlloc(&pinned, bytes,
                                     WEFTI_CU_MEMHOSTALLOC_PORTABLE |
                                         WEFTI_CU_MEMHOSTALLOC_DEVICEMAP),
            "cuMemHostAlloc");
        out->address = to_address(pinned);
        return status;
    case WEFT_MEMORY_EXPORTABLE:
        return alloc_exportable(gpu, bytes, out);
    default:
        return wefti_cuda_check(gpu, gpu->api->cuMemAlloc(&out->address, bytes),
                                "cuMemAlloc");
    }
}

weft_status wefti_cuda_mem_alloc(weft_device *device, weft_memory_kind kind,
                                 size_t bytes, void **out)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    record made = {.kind = kind};
    weft_status status = wefti_cuda_enter(gpu);
    if (status < 0) {
        return status;
    }
    status = alloc(gpu, bytes, &made);
    if (status == WEFT_ERR_NO_MEMORY && wefti_cuda_release_tend(gpu)) {
        status = alloc(gpu, bytes, &made);
    }
    if (status == WEFT_OK) {
        status = add(gpu->memory, &made);
        if (status < 0) {
            wefti_cuda_release(gpu, &made);
        }
    }
    wefti_cuda_leave(gpu);
    if (status == WEFT_OK) {
        *out = to_pointer(made.address);
    }
    return status;
}

/* Of a GPU that has failed, memory is gone with its context. */
bool wefti_cuda_mem_free(weft_device *device, void *pointer)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    record given;
    if (!take(gpu->memory, to_address(pointer), &given)) {
        return false;
    }
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        wefti_cuda_release(gpu, &given);
        wefti_cuda_leave(gpu);
    }
    return true;
}

bool wefti_cuda_memory_get_handle(wefti_cuda_gpu *gpu, const void *pointer,
                                  uint64_t *handle_out, void **base_out,
                                  size_t *bytes_out)
{
    struct wefti_cuda_memory *memory = gpu->memory;
    const uint64_t address = to_address(pointer);
    pthread_mutex_lock(&memory->lock);
    const size_t at = count_before(memory, address);
    const record *found = at > 0 ? &memory->records[at - 1] : NULL;
    const bool good = found && found->kind == WEFT_MEMORY_EXPORTABLE &&
                      address - found->address < found->bytes;
    if (good) {
        *handle_out = found->handle;
        *base_out = to_pointer(found->address);
        *bytes_out = found->bytes;
    }
    pthread_mutex_unlock(&memory->lock);
    return good;
}

/* The driver answers for pointers of any origin, in any context. */
weft_status wefti_cuda_query(wefti_cuda_gpu *gpu, const void *pointer,
                             wefti_cuda_pointer *out)
{
    unsigned type = 0, managed = 0, legacy = 0;
    int attributes[] = {WEFTI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                        WEFTI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        WEFTI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        WEFTI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        WEFTI_CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                        WEFTI_CU_POINTER_ATTRIBUTE_BUFFER_ID,
                        WEFTI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                        WEFTI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    *out = (wefti_cuda_pointer){.ordinal = -1};
    void *data[] = {&type,       &managed, &out->ordinal, &out->base,
                    &out->bytes, &out->id, &legacy,       &out->handle_types};
    if (!pointer) {
        return WEFT_OK;
    }
    weft_status status =
        wefti_cuda_check(gpu,
                         gpu->api->cuPointerGetAttributes(
                             sizeof(attributes) / sizeof(attributes[0]),
                             attributes, data, to_address(pointer)),
                         "cuPointerGetAttributes");
    out->known = status == WEFT_OK && (type != 0 || managed != 0);
    out->host = type == WEFTI_CU_MEMORYTYPE_HOST;
    out->managed = managed != 0;
    out->legacy_ipc = legacy != 0;
    return status;
}

weft_status wefti_cuda_mem_query(weft_device *device, const void *pointer,
                                 weft_pointer *out)
{
    wefti_cuda_pointer found;
    weft_status status =
        wefti_cuda_query(wefti_cuda_gpu_of(device), pointer, &found);
    if (status < 0 || !found.known) {
        return status;
    }
    out->kind =
        found.managed ? WEFT_MEMORY_MANAGED
        : found.host  ? WEFT_MEMORY_PINNED
        : found.handle_types & WEFTI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            ? WEFT_MEMORY_EXPORTABLE
            : WEFT_MEMORY_DEVICE;
    out->index = found.ordinal;
    out->base = to_pointer(found.base);
    out->bytes = found.bytes;
    out->id = found.id;
    return WEFT_OK;
}

weft_status wefti_cuda_mem_register(weft_device *device, void *pointer,
                                    size_t bytes)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    if (!gpu->registers) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "cuda device %d cannot pin memory that is there "
                           "already",
                           gpu->index);
    }
    weft_status status = wefti_cuda_enter(gpu);
    if (status == WEFT_OK) {
        status = wefti_cuda_check(
            gpu,
            gpu->api->cuMemHostRegister(pointer, bytes,
                                        WEFTI_CU_MEMHOSTREGISTER_PORTABLE |
                                            WEFTI_CU_MEMHOSTREGISTER_DEVICEMAP),
            "cuMemHostRegister");
        wefti_cuda_leave(gpu);
    }
    return status;
}

void wefti_cuda_mem_unregister(weft_device *device, void *pointer)
{
    wefti_cuda_gpu *gpu = wefti_cuda_gpu_of(device);
    if (wefti_cuda_enter(gpu) == WEFT_OK) {
        wefti_cuda_note(gpu, gpu->api->cuMemHostUnregister(pointer));
        wefti_cuda_leave(gpu);
    }
}

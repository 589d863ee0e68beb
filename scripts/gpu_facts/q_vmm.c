// SPDX-License-Identifier: BSD-3-Clause
/*
 * Memory shared by file descriptor: created, exported, sent to another process,
 * mapped and written there, read back here.
 */
#include "cu.h"

#include <stdlib.h>
#include <unistd.h>

static CUmemAllocationProp properties(void)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_device()}};
    return prop;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUmemAccessDesc access = {
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_device()},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    CU(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CU(cuMemMap(at, bytes, 0, handle, 0));
    CU(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static void importer(int fd, int variant)
{
    (void)variant;
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    gpu_open();
    peer_recv(fd, &bytes, sizeof(bytes));
    int descriptor = peer_recv_descriptor(fd);
    CU(cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)descriptor,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    gpu_fill(map(handle, bytes), bytes, 77);
    peer_meet(fd);
}

void q_vmm(int variant)
{
    int fd = peer_start(importer, variant), descriptor;
    size_t grain, bytes;
    CUmemGenericAllocationHandle handle;
    gpu_open();
    CUmemAllocationProp prop = properties();
    CU(cuMemGetAllocationGranularity(&grain, &prop,
                                     CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    fact_number("granularity", (double)grain, "bytes",
                "cuMemGetAllocationGranularity, minimum");
    bytes = (((size_t)8 << 20) + grain - 1) / grain * grain;
    CU(cuMemCreate(&handle, bytes, &prop, 0));
    CUdeviceptr mine = map(handle, bytes), expected = gpu_alloc(bytes);
    CU(cuMemExportToShareableHandle(
        &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    peer_send(fd, &bytes, sizeof(bytes));
    peer_send_descriptor(fd, descriptor);
    peer_meet(fd);
    gpu_fill(expected, bytes, 77);
    unsigned *a = malloc(bytes), *b = malloc(bytes);
    size_t wrong = 0;
    if (!a || !b)
        give_up("out of memory");
    CU(cuMemcpyDtoH(a, mine, bytes));
    CU(cuMemcpyDtoH(b, expected, bytes));
    for (size_t i = 0; i < bytes / 4; i++)
        wrong += a[i] != b[i];
    fact_text("descriptor_between_processes",
              "SCM_RIGHTS, written there, read here", "%s",
              wrong ? "bytes differ" : "works");
}

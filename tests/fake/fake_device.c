/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_device.c - devices like an H100, and what they can do.
 * Ordinals count visible devices; names, UUIDs and PCI ids are those of the
 * physical one, so that processes that see different ones can compare them.
 */
#include "tests/fake/fake.h"

#include <stdio.h>
#include <string.h>

bool fake_is_ordinal(CUdevice device)
{
    return device >= 0 && device < fake_get_settings()->visible_count;
}

static int physical(CUdevice device)
{
    return fake_get_settings()->visible[device];
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = fake_enter();
    if (result == CUDA_SUCCESS && !count) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *count = fake_get_settings()->visible_count;
    }
    return result;
}

/* The checks of every question about a device. */
static CUresult enter_device(const void *out, CUdevice device)
{
    CUresult result = fake_enter();
    return result != CUDA_SUCCESS     ? result
           : !out                     ? CUDA_ERROR_INVALID_VALUE
           : !fake_is_ordinal(device) ? CUDA_ERROR_INVALID_DEVICE
                                      : CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = enter_device(device, ordinal);
    if (result == CUDA_SUCCESS) {
        *device = ordinal;
    }
    return result;
}

/* cuDeviceGetName: at most `bytes` with the zero, cut where too long. */
CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    CUresult result = enter_device(name, device);
    if (result != CUDA_SUCCESS || bytes <= 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(name, (size_t)bytes, "Fake H100 for tests");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = enter_device(bytes, device);
    if (result == CUDA_SUCCESS) {
        *bytes = fake_get_settings()->memory_bytes;
    }
    return result;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = enter_device(uuid, device);
    if (result == CUDA_SUCCESS) {
        memcpy(uuid->bytes, "weft fake GPU 00", 16);
        uuid->bytes[14] = (char)('0' + physical(device) / 10);
        uuid->bytes[15] = (char)('0' + physical(device) % 10);
    }
    return result;
}

/* cuDeviceGetPCIBusId: domain:bus:device.function; needs 13 bytes. */
CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device)
{
    CUresult result = enter_device(id, device);
    if (result != CUDA_SUCCESS || bytes < 13) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(id, (size_t)bytes, "0000:%02X:00.0",
             0x10 + 2 * (unsigned)physical(device));
    return CUDA_SUCCESS;
}

static int attribute_value(CUdevice_attribute attribute, CUdevice device)
{
    const fake_settings *settings = fake_get_settings();
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return FAKE_SHARED_MOST_BYTES;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
        return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1980000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return 0x10 + 2 * physical(device);
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES:
        return !settings->no_flush;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        return !settings->no_waits_64;
    default:
        return 0; /* what weft does not ask for, the fake has not */
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                              CUdevice device)
{
    CUresult result = enter_device(value, device);
    if (result == CUDA_SUCCESS &&
        ((int)attribute < 1 || (int)attribute > FAKE_LAST_ATTRIBUTE)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        *value = attribute_value(attribute, device);
    }
    return result;
}

/* cuDeviceCanAccessPeer: 0 for the device itself. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult result = enter_device(can, device);
    if (result == CUDA_SUCCESS && !fake_is_ordinal(peer)) {
        result = CUDA_ERROR_INVALID_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        *can = device != peer && !fake_get_settings()->no_peer;
    }
    return result;
}

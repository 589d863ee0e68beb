/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/cuda_list.c - asks the driver which GPUs there are.
 */
#include "base/error.h"
#include "device/cuda.h"
#include "device/cuda_gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static weft_status check(const wefti_cuda_api *api, int result,
                         const char *what)
{
    const char *name = NULL, *text = NULL;
    if (result == WEFTI_CUDA_SUCCESS) {
        return WEFT_OK;
    }
    api->cuGetErrorName(result, &name);
    api->cuGetErrorString(result, &text);
    return wefti_error(WEFT_ERR_SYSTEM, "%s: %s (%s)", what,
                       name ? name : "unknown error", text ? text : "no text");
}

weft_status wefti_cuda_count(int *count_out, int *version_out)
{
    const wefti_cuda_api *api;
    weft_status status = wefti_cuda_api_open(&api);
    if (status == WEFT_OK) {
        *version_out = api->version;
        status =
            check(api, api->cuDeviceGetCount(count_out), "cuDeviceGetCount");
    }
    return status;
}

static weft_status find_device(int index, const wefti_cuda_api **api_out,
                               int *native_out)
{
    int count = 0, version;
    weft_status status = wefti_cuda_count(&count, &version);
    if (status == WEFT_OK && (index < 0 || index >= count)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "index %d of a cuda device: allowed is 0 to %d",
                             index, count - 1);
    }
    if (status == WEFT_OK) {
        status = wefti_cuda_api_open(api_out);
    }
    if (status == WEFT_OK) {
        status = check(*api_out, (*api_out)->cuDeviceGet(native_out, index),
                       "cuDeviceGet");
    }
    return status;
}

static int get_attribute(const wefti_cuda_api *api, int native, int attribute)
{
    int value = 0;
    return api->cuDeviceGetAttribute(&value, attribute, native) ==
                   WEFTI_CUDA_SUCCESS
               ? value
               : 0;
}

static void write_uuid(const wefti_cuda_uuid *uuid, char *out, size_t bytes)
{
    size_t used = (size_t)snprintf(out, bytes, "GPU-");
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        used += (size_t)snprintf(out + used, bytes - used, "%s%02x",
                                 dash ? "-" : "",
                                 (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static void describe_abilities(const wefti_cuda_api *api, int native,
                               wefti_cuda_info *info)
{
#define ATTRIBUTE(name)                                                        \
    get_attribute(api, native, WEFTI_CU_DEVICE_ATTRIBUTE_##name)
    info->major = ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
    info->minor = ATTRIBUTE(COMPUTE_CAPABILITY_MINOR);
    info->multiprocessors = ATTRIBUTE(MULTIPROCESSOR_COUNT);
    info->copy_engines = ATTRIBUTE(ASYNC_ENGINE_COUNT);
    info->memory_operations = ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS);
    info->flushes = ATTRIBUTE(CAN_FLUSH_REMOTE_WRITES);
    info->registers = ATTRIBUTE(HOST_REGISTER_SUPPORTED) &&
                      ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    info->exportable = ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
                       ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
#undef ATTRIBUTE
}

weft_status wefti_cuda_describe(int index, wefti_cuda_info *info_out)
{
    const wefti_cuda_api *api;
    wefti_cuda_info info = {.name = ""};
    wefti_cuda_uuid uuid;
    int native = 0;
    weft_status status = find_device(index, &api, &native);
    if (status == WEFT_OK) {
        status = check(
            api, api->cuDeviceGetName(info.name, sizeof(info.name), native),
            "cuDeviceGetName");
    }
    if (status == WEFT_OK) {
        status = check(
            api, api->cuDeviceGetPCIBusId(info.pci, sizeof(info.pci), native),
            "cuDeviceGetPCIBusId");
    }
    if (status == WEFT_OK) {
        status =
            check(api, api->cuDeviceGetUuid(&uuid, native), "cuDeviceGetUuid");
    }
    if (status == WEFT_OK) {
        status = check(api, api->cuDeviceTotalMem(&info.memory_bytes, native),
                       "cuDeviceTotalMem");
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (char *at = info.pci; *at; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    write_uuid(&uuid, info.uuid, sizeof(info.uuid));
    describe_abilities(api, native, &info);
    *info_out = info;
    return WEFT_OK;
}

weft_status wefti_cuda_can_access(int index, int peer, bool *can_out)
{
    const wefti_cuda_api *api;
    int native = 0, other = 0, can = 0;
    weft_status status = find_device(index, &api, &native);
    if (status == WEFT_OK) {
        status = find_device(peer, &api, &other);
    }
    if (status == WEFT_OK) {
        status = check(api, api->cuDeviceCanAccessPeer(&can, native, other),
                       "cuDeviceCanAccessPeer");
    }
    *can_out = can != 0;
    return status;
}

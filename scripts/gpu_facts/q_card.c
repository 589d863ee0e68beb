// SPDX-License-Identifier: BSD-3-Clause
/*
 * The card, the driver, and the attributes that other answers depend on.
 */
#include "cu.h"

#include <dlfcn.h>

struct row {
    const char *name;
    CUdevice_attribute attribute;
};

static const struct row rows[] = {
    {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"copy_engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {"compute_mode", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    {"flush_of_remote_writes", CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES},
    {"memory_operations_64_bit",
     CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
    {"wait_value_nor", CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR},
    {"memory_by_descriptor",
     CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
    {"memory_by_fabric", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED},
    {"ipc_events", CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
    {"host_native_atomics", CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
    {"stream_priorities", CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
    {"mps", CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
};

/* The driver's own version, which only NVML tells. */
static void ask_driver(void)
{
    union {
        void *address;
        int (*init)(void);
        int (*version)(char *, unsigned);
    } f;
    char text[96] = "";
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        fact_none("driver", "%s", dlerror());
        return;
    }
    f.address = library_function(library, "nvmlInit_v2");
    int result = f.init();
    f.address = library_function(library, "nvmlSystemGetDriverVersion");
    if (result == 0)
        result = f.version(text, sizeof(text));
    if (result == 0)
        fact_text("driver", "nvmlSystemGetDriverVersion", "%s", text);
    else
        fact_none("driver", "NVML answers %d", result);
}

void q_card(int variant)
{
    (void)variant;
    char name[128];
    int version, count;
    size_t bytes;
    unsigned long long *out;
    CUdeviceptr view;
    gpu_open();
    CU(cuDeviceGetName(name, sizeof(name), gpu_device()));
    CU(cuDriverGetVersion(&version));
    CU(cuDeviceGetCount(&count));
    CU(cuDeviceTotalMem(&bytes, gpu_device()));
    fact_text("gpu", "cuDeviceGetName", "%s", name);
    fact_text("driver_cuda_version", "cuDriverGetVersion", "%d.%d",
              version / 1000, version % 1000 / 10);
    fact_text("compute_capability", "cuDeviceGetAttribute", "%d.%d",
              gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
              gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    fact_number("gpus", count, "devices", "cuDeviceGetCount");
    fact_number("memory", (double)bytes / 1e9, "GB", "cuDeviceTotalMem");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char how[64];
        snprintf(how, sizeof(how), "device attribute %d",
                 (int)rows[i].attribute);
        fact_number(rows[i].name, gpu_attribute(rows[i].attribute), "1", how);
    }
    ask_driver();
    out = gpu_pinned(8, &view);
    LAUNCH(NULL, "ticks", 1, 1, &view);
    CU(cuCtxSynchronize());
    fact_number("globaltimer_step", (double)*out, "ns",
                "smallest step of %globaltimer in 100000 reads");
}

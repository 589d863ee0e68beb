// SPDX-License-Identifier: BSD-3-Clause
/*
 * Launch attributes that weft wants, and what priority does for a small kernel
 * behind a large one.
 */
#include "cu.h"

#include <string.h>

static void ask_attribute(const char *name, CUlaunchAttributeID id,
                          CUlaunchAttributeValue value)
{
    CUlaunchAttribute attribute;
    CUdeviceptr out = gpu_alloc(64);
    unsigned long long hold_ns = 1000;
    void *args[] = {&out, &hold_ns};
    memset(&attribute, 0, sizeof(attribute));
    attribute.id = id;
    attribute.value = value;
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = gpu_stream(),
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUresult result =
        cu.cuLaunchKernelEx(&config, gpu_kernel("hold"), args, NULL);
    char how[64];
    snprintf(how, sizeof(how), "cuLaunchKernelEx with attribute %d", (int)id);
    CU(cuCtxSynchronize());
    fact_text(name, how, "%s",
              result == CUDA_SUCCESS ? "accepted" : cu_name(result));
}

static void ask_attributes(void)
{
    CUlaunchAttributeValue value;
    memset(&value, 0, sizeof(value));
    value.programmaticStreamSerializationAllowed = 1;
    ask_attribute("programmatic_stream_serialization",
                  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value);
    memset(&value, 0, sizeof(value));
    value.memSyncDomainMap.default_ = 0;
    value.memSyncDomainMap.remote = 1;
    ask_attribute("mem_sync_domain_map",
                  CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, value);
    memset(&value, 0, sizeof(value));
    value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    ask_attribute("mem_sync_domain_remote", CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                  value);
    memset(&value, 0, sizeof(value));
    value.nvlinkUtilCentricScheduling = 1;
    ask_attribute("nvlink_util_centric_scheduling",
                  CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, value);
    fact_number("mem_sync_domains",
                gpu_attribute(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT), "1",
                "device attribute");
}

/* From the launch of one block of 10 us to its end, as the host sees it, while
 * waves of 200 us blocks fill the device from a stream of PRIORITY low. */
static void ask_priority(const char *name, int low, int high)
{
    enum { ROUNDS = 15 };
    CUstream large, small;
    int blocks = 32 * 40 * gpu_sms() / 20;
    CUdeviceptr out = gpu_alloc(24 * (size_t)blocks), mine = gpu_alloc(64);
    unsigned long long long_ns = 200000, short_ns = 10000;
    double took_us[ROUNDS];
    CU(cuStreamCreateWithPriority(&large, CU_STREAM_NON_BLOCKING, low));
    CU(cuStreamCreateWithPriority(&small, CU_STREAM_NON_BLOCKING, high));
    for (int i = -1; i < ROUNDS; i++) {
        LAUNCH(large, "hold", blocks, 1024, &out, &long_ns);
        double start_us = now_us();
        while (now_us() - start_us < 1000)
            ; /* the device is full by then */
        start_us = now_us();
        LAUNCH(small, "hold", 1, 32, &mine, &short_ns);
        CU(cuStreamSynchronize(small));
        if (i >= 0)
            took_us[i] = now_us() - start_us;
        CU(cuStreamSynchronize(large));
    }
    fact_spread(name, took_us, ROUNDS, "us",
                "a 10 us block, launch to end, behind waves of 200 us blocks");
}

void q_launch(int variant)
{
    (void)variant;
    int least, greatest;
    gpu_open();
    CU(cuCtxGetStreamPriorityRange(&least, &greatest));
    fact_text("priority_range", "cuCtxGetStreamPriorityRange",
              "%d (least) to %d (greatest)", least, greatest);
    ask_attributes();
    ask_priority("behind_full_device_equal_priority", least, least);
    ask_priority("behind_full_device_greater_priority", least, greatest);
}

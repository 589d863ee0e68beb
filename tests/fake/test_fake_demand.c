/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the fake driver has the functions it lists and no others, by the
 * versions of cuda.h, and fails as the environment asks.
 *
 * Method: one case a process; each variable once with an effect, and once with
 * a value that it does not take.
 */
#include "tests/fake/fake_test.h"

#include <dlfcn.h>
#include <stdatomic.h>

typedef CUresult (*get_address)(const char *symbol, void **function,
                                int version, uint64_t flags,
                                CUdriverProcAddressQueryResult *status);

/* The function that a version gets for a name, and the status. */
static void *find(const char *name, int version, CUresult want,
                  CUdriverProcAddressQueryResult want_status)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status = -1;
    CHECK_IS(want, cuGetProcAddress_v2(name, &found, version, 0, &status));
    CHECK(status == want_status && (found != NULL) == (want == CUDA_SUCCESS));
    return found;
}

static void check_functions(void *arg)
{
    (void)arg;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library);
    CHECK(find("cuMemAlloc", 13000, CUDA_SUCCESS,
               CU_GET_PROC_ADDRESS_SUCCESS) == dlsym(library, "cuMemAlloc_v2"));
    find("cuMemAlloc_v2", 13000, CUDA_ERROR_NOT_FOUND,
         CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    find("cuMemAllocManaged", 13000, CUDA_ERROR_NOT_FOUND,
         CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    find("cuGreenCtxCreate", 12030, CUDA_ERROR_NOT_FOUND,
         CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(find("cuStreamGetCtx", 12040, CUDA_SUCCESS,
               CU_GET_PROC_ADDRESS_SUCCESS) ==
          dlsym(library, "cuStreamGetCtx"));
    CHECK(find("cuStreamGetCtx", 13000, CUDA_SUCCESS,
               CU_GET_PROC_ADDRESS_SUCCESS) ==
          dlsym(library, "cuStreamGetCtx_v2"));
    CHECK(dlsym(library, "fake_enter") == NULL);
    CHECK(dlsym(library, "simt_launch") == NULL);
}

static void test_functions_are_those_of_the_version(void **state)
{
    (void)state;
    in_child(check_functions, NULL, NULL);
}

static void check_missing(void *arg)
{
    (void)arg;
    find("cuMemFree", 13000, CUDA_ERROR_NOT_FOUND,
         CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    find("cuMemFreeHost", 13000, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS);
    find("cuInit", 13000, CUDA_ERROR_NOT_FOUND,
         CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void check_old(void *arg)
{
    int version = 0;
    (void)arg;
    CHECK_OK(cuDriverGetVersion(&version));
    CHECK(version == 11040);
    find("cuStreamBatchMemOp", 13000, CUDA_ERROR_NOT_FOUND,
         CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    find("cuMemAlloc", 13000, CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS);
}

static void check_no_device(void *arg)
{
    (void)arg;
    CHECK_IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
}

static void check_no_memory(void *arg)
{
    CUdeviceptr memory;
    (void)arg;
    open_device(0);
    CHECK_OK(cuMemAlloc_v2(&memory, 8));
    CHECK_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&memory, 8));
    CHECK_OK(cuMemAlloc_v2(&memory, 8));
}

static void check_error(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(8);
    const char *name;
    CHECK_OK(cuMemsetD8Async(memory, 0, 8, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemsetD8Async(memory, 0, 8, stream));
    CHECK_IS(CUDA_ERROR_ECC_UNCORRECTABLE, cuStreamSynchronize(stream));
    CHECK_IS(CUDA_ERROR_ECC_UNCORRECTABLE, cuMemAlloc_v2(&memory, 8));
    CHECK_OK(cuGetErrorName(CUDA_ERROR_ECC_UNCORRECTABLE, &name));
    CHECK(strcmp(name, "CUDA_ERROR_ECC_UNCORRECTABLE") == 0);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &name));
}

static void check_no_peer(void *arg)
{
    CUcontext second;
    int can = 9;
    (void)arg;
    open_device(0);
    CHECK_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 0);
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_IS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
             cuCtxEnablePeerAccess(second, 0));
}

static void check_no_memops(void *arg)
{
    int value = 9;
    (void)arg;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(8);
    CHECK_OK(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0));
    CHECK(value == 0);
    CHECK_OK(cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    CHECK(value == 0);
    CHECK_IS(CUDA_ERROR_NOT_SUPPORTED,
             cuStreamWriteValue64_v2(stream, memory, 1, 0));
    CHECK_IS(
        CUDA_ERROR_NOT_SUPPORTED,
        cuStreamWaitValue32_v2(stream, memory, 1, CU_STREAM_WAIT_VALUE_FLUSH));
}

static void test_errors_come_on_demand(void **state)
{
    (void)state;
    in_child(check_missing, NULL, "WEFT_FAKE_GPU_MISSING", "cuInit,cuMemFree",
             NULL);
    in_child(check_old, NULL, "WEFT_FAKE_GPU_DRIVER_VERSION", "11040", NULL);
    in_child(check_no_device, NULL, "WEFT_FAKE_GPU_COUNT", "0", NULL);
    in_child(check_no_device, NULL, "CUDA_VISIBLE_DEVICES", "", NULL);
    in_child(check_no_memory, NULL, "WEFT_FAKE_GPU_OUT_OF_MEMORY", "2", NULL);
    in_child(check_error, NULL, "WEFT_FAKE_GPU_ERROR", "214@2", NULL);
    in_child(check_no_peer, NULL, "WEFT_FAKE_GPU_NO_PEER", "1",
             "WEFT_FAKE_GPU_COUNT", "2", NULL);
    in_child(check_no_memops, NULL, "WEFT_FAKE_GPU_NO_64", "1",
             "WEFT_FAKE_GPU_NO_FLUSH", "1", NULL);
}

static void check_visible(void *arg)
{
    const char *want = arg; /* PCI buses, by ordinal */
    int count;
    char id[16];
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDeviceGetCount(&count));
    CHECK(count == (int)strlen(want) / 2);
    for (int i = 0; i < count; i++) {
        CHECK_OK(cuDeviceGetPCIBusId(id, sizeof(id), i));
        CHECK(strncmp(id + 5, want + i * 2, 2) == 0);
    }
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(id, 12, 0));
}

static void test_devices_are_the_visible_ones(void **state)
{
    (void)state;
    in_child(check_visible, (char[]){"101214"}, "WEFT_FAKE_GPU_COUNT", "3",
             NULL);
    in_child(check_visible, (char[]){"1410"}, "WEFT_FAKE_GPU_COUNT", "3",
             "CUDA_VISIBLE_DEVICES", "2,0,7,1", NULL);
    in_child(check_visible, (char[]){"10"}, "WEFT_FAKE_GPU_COUNT", "2",
             "WEFT_FAKE_GPU_PER_RANK", "1", "WEFT_RANK", "4", NULL);
    in_child(check_visible, (char[]){"12"}, "WEFT_FAKE_GPU_COUNT", "2",
             "WEFT_FAKE_GPU_PER_RANK", "1", "WEFT_RANK", "5", NULL);
}

static void check_refused(void *arg)
{
    (void)arg;
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuInit(0));
}

static void test_bad_values_are_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"WEFT_FAKE_GPU_COUNT", "17"},      {"WEFT_FAKE_GPU_COUNT", "two"},
        {"WEFT_FAKE_GPU_SEED", "-1"},       {"WEFT_FAKE_GPU_DELAY", "1%"},
        {"WEFT_FAKE_GPU_ERROR", "700"},     {"WEFT_FAKE_GPU_ERROR", "0@1"},
        {"WEFT_FAKE_GPU_NO_PEER", "2"},     {"WEFT_FAKE_GPU_ERROR", "7@1x"},
        {"WEFT_FAKE_GPU_MEMORY_MIB", "1e9"}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        in_child(check_refused, NULL, pairs[i][0], pairs[i][1], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_are_those_of_the_version),
        cmocka_unit_test(test_errors_come_on_demand),
        cmocka_unit_test(test_devices_are_the_visible_ones),
        cmocka_unit_test(test_bad_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

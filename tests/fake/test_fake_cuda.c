/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the fake driver's memory, streams, events and memory operations keep
 * the documented rules, and take the freedom that those leave.
 *
 * Method: one case a process. What must fault does; what is ordered by nothing
 * is seen in the wrong order for one of several seeds at least; each rule's
 * breach has its documented error.
 */
#include "tests/fake/fake_test.h"

enum { BYTES = 4096 };

static void check_init(void *arg)
{
    CUcontext context = NULL;
    CUdeviceptr memory;
    int count = -1, version = 0;
    (void)arg;
    CHECK_IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    CHECK_OK(cuDriverGetVersion(&version));
    CHECK(version == 13000);
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDeviceGetCount(&count));
    CHECK(count == 3);
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&memory, BYTES));
    CHECK_IS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, 3));
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    context = open_device(2);
    CHECK_OK(cuCtxGetDevice(&count));
    CHECK(count == 2);
    CUcontext other, popped;
    CHECK_OK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_OK(cuCtxPushCurrent_v2(other));
    CHECK_OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == other);
    CHECK_OK(cuCtxGetCurrent(&popped));
    CHECK(popped == context);
    CHECK_OK(cuCtxSetCurrent(NULL)); /* pops */
    CHECK_OK(cuCtxGetCurrent(&popped));
    CHECK(popped == NULL);
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&popped));
    pid_t child = fork(); /* the driver is of no use in a child */
    if (child == 0) {
        _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void test_init_and_contexts(void **state)
{
    (void)state;
    in_child(check_init, NULL, "WEFT_FAKE_GPU_COUNT", "3", NULL);
}

static void read_by_host(void *arg)
{
    (void)arg;
    open_device(0);
    const volatile char *memory =
        (const volatile char *)(uintptr_t)new_memory(BYTES);
    char seen = memory[BYTES / 2];
    fprintf(stderr, "the host has read %d\n", seen);
    _exit(0);
}

static void test_memory_touched_by_the_host_faults(void **state)
{
    (void)state;
    assert_true(faults_in_child(read_by_host, NULL, NULL));
}

static void check_memory(void *arg)
{
    (void)arg;
    CUcontext first = open_device(0), second;
    CUstream stream = new_stream();
    unsigned char *host = new_pinned(BYTES);
    CUdeviceptr at[2], base;
    size_t bytes, unused, total;
    at[0] = new_memory(BYTES);
    CHECK_OK(cuMemGetInfo_v2(&unused, &total));
    CHECK(total == (size_t)64 << 20 && unused == total - BYTES);
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_OK(cuCtxSetCurrent(second));
    at[1] = new_memory(BYTES);
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK(at[0] != at[1] && at[0] % 256 == 0 && at[1] % 256 == 0);
    memset(host, 0, BYTES);
    CHECK_OK(cuMemcpyDtoHAsync_v2(host, at[0], BYTES, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    for (int i = 0; i < BYTES; i++) {
        CHECK(host[i] == 0xff); /* fresh memory is poison */
    }
    CHECK_OK(cuMemGetAddressRange_v2(&base, &bytes, at[1] + 77));
    CHECK(base == at[1] && bytes == BYTES);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at[0] + 1));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&base, 0));
    CHECK_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&base, 65 << 20));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyDtoHAsync_v2(host, at[0] + 1, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyDtoDAsync_v2(at[0], address_of(&total), 8, stream));
    CHECK_OK(cuMemFree_v2(at[0]));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at[0]));
}

static void test_memory(void **state)
{
    (void)state;
    in_child(check_memory, NULL, "WEFT_FAKE_GPU_COUNT", "2",
             "WEFT_FAKE_GPU_MEMORY_MIB", "64", NULL);
}

static void check_pointers(void *arg)
{
    (void)arg;
    CUcontext context = open_device(0), of = NULL;
    CUdeviceptr memory = new_memory(BYTES), start = 0;
    void *pinned = new_pinned(BYTES);
    static char registered[3 * BYTES];
    unsigned type = 9, managed = 9;
    int ordinal = 9;
    unsigned long long id = 0, id_of_host = 0;
    size_t bytes = 0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,  CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_CONTEXT};
    void *into[] = {&type, &ordinal, &id, &start, &bytes, &managed, &of};
    CHECK_OK(cuPointerGetAttributes(7, names, into, memory + 5));
    CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && id != 0 &&
          start == memory && bytes == BYTES && !managed && of == context);
    into[2] = &id_of_host;
    CHECK_OK(cuPointerGetAttributes(7, names, into, address_of(pinned)));
    CHECK(type == CU_MEMORYTYPE_HOST && id_of_host != id);
    CHECK_OK(cuPointerGetAttributes(7, names, into, address_of(registered)));
    CHECK(type == 0 && id_of_host == 0 && of == NULL && ordinal == -2);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemHostGetDevicePointer_v2(&start, registered, 0));
    CHECK_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
             cuMemHostUnregister(registered));
    CHECK_OK(cuMemHostRegister_v2(registered, BYTES, 0));
    CHECK_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
             cuMemHostRegister_v2(registered + 10, BYTES, 0));
    CHECK_IS(CUDA_ERROR_NOT_SUPPORTED,
             cuMemHostRegister_v2(registered + BYTES, BYTES,
                                  CU_MEMHOSTREGISTER_READ_ONLY));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemHostRegister_v2((void *)(uintptr_t)4096, BYTES, 0));
    CHECK_OK(cuMemHostGetDevicePointer_v2(&start, registered + 3, 0));
    CHECK(start == address_of(registered + 3));
    CHECK_OK(cuMemHostUnregister(registered));
    CHECK_OK(cuMemFreeHost(pinned));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
}

static void test_pointers(void **state)
{
    (void)state;
    in_child(check_pointers, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_and_contexts),
        cmocka_unit_test(test_memory_touched_by_the_host_faults),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_pointers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

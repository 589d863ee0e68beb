/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the stand-in for CUDA's runtime gives what a program linked with it
 * counts on: devices of each thread, memory, copies, the default stream and
 * others, events, errors that are remembered; and refuses kernels.
 *
 * Method: its functions by name, as a program that is linked with it has them;
 * bytes go to two devices and back, through both kinds of streams. Argument:
 * its file.
 */
#include "tests/fake/fake_test.h"

#include <dlfcn.h>

enum { BYTES = 1 << 20, UP = 1, DOWN = 2, NOT_SUPPORTED = 801, NO_SUCH = 101 };

static void *library;

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

/* Calls a function of the runtime with arguments of the types given. */
#define CALL(name, types, ...) (((int(*) types)find(#name))(__VA_ARGS__))
#define SYNCHRONIZE(stream)    CALL(cudaStreamSynchronize, (CUstream), stream)

static int copy(void *dst, const void *src, int kind, CUstream stream)
{
    return CALL(cudaMemcpyAsync, (void *, const void *, size_t, int, CUstream),
                dst, src, BYTES, kind, stream);
}

static void fill(unsigned char *bytes, unsigned seed)
{
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (unsigned char)(i * 31 + seed);
    }
}

static void test_bytes_go_to_each_device_and_back(void **state)
{
    (void)state;
    static unsigned char host[BYTES], back[BYTES];
    int count = 0;
    assert_int_equal(CALL(cudaGetDeviceCount, (int *), &count), 0);
    assert_int_equal(count, 2);
    for (int device = 0; device < count; device++) {
        void *memory = NULL;
        CUstream stream = NULL;
        CUevent event = NULL;
        assert_int_equal(CALL(cudaSetDevice, (int), device), 0);
        assert_int_equal(CALL(cudaMalloc, (void **, size_t), &memory, BYTES),
                         0);
        assert_int_equal(CALL(cudaStreamCreateWithFlags, (CUstream *, unsigned),
                              &stream, CU_STREAM_NON_BLOCKING),
                         0);
        assert_int_equal(
            CALL(cudaEventCreateWithFlags, (CUevent *, unsigned), &event, 2),
            0);
        fill(host, (unsigned)device);
        memset(back, 0, BYTES);
        /* Up on the default stream, down on another, which waits for it. */
        assert_int_equal(copy(memory, host, UP, NULL), 0);
        assert_int_equal(
            CALL(cudaEventRecord, (CUevent, CUstream), event, NULL), 0);
        assert_int_equal(CALL(cudaStreamWaitEvent,
                              (CUstream, CUevent, unsigned), stream, event, 0),
                         0);
        assert_int_equal(copy(back, memory, DOWN, stream), 0);
        assert_int_equal(SYNCHRONIZE(stream), 0);
        assert_int_equal(CALL(cudaEventQuery, (CUevent), event), 0);
        assert_memory_equal(back, host, BYTES);
        assert_int_equal(CALL(cudaEventDestroy, (CUevent), event), 0);
        assert_int_equal(CALL(cudaStreamDestroy, (CUstream), stream), 0);
        assert_int_equal(CALL(cudaFree, (void *), memory), 0);
    }
}

static void test_pointers_say_where_they_are(void **state)
{
    (void)state;
    struct {
        int type, device;
        void *on_device, *on_host;
        long reserved[8];
    } found;
    int local = 0;
    void *memory = NULL;
    assert_int_equal(CALL(cudaSetDevice, (int), 1), 0);
    assert_int_equal(CALL(cudaMalloc, (void **, size_t), &memory, BYTES), 0);
    assert_int_equal(
        CALL(cudaPointerGetAttributes, (void *, const void *), &found, memory),
        0);
    assert_int_equal(found.type, 2);
    assert_int_equal(found.device, 1);
    assert_int_equal(
        CALL(cudaPointerGetAttributes, (void *, const void *), &found, &local),
        0);
    assert_int_equal(found.type, 0);
    assert_ptr_equal(found.on_host, &local);
    assert_int_equal(CALL(cudaFree, (void *), memory), 0);
}

static void test_errors_are_remembered_once(void **state)
{
    (void)state;
    int device = -1;
    assert_int_equal(CALL(cudaSetDevice, (int), 2), NO_SUCH);
    assert_int_equal(CALL(cudaPeekAtLastError, (void)), NO_SUCH);
    assert_int_equal(CALL(cudaGetLastError, (void)), NO_SUCH);
    assert_int_equal(CALL(cudaGetLastError, (void)), 0);
    assert_int_equal(CALL(cudaGetDevice, (int *), &device), 0);
    assert_int_equal(device, 1); /* as it was */
    assert_int_equal(CALL(cudaLaunchKernel, (void)), NOT_SUPPORTED);
    assert_int_equal(CALL(cudaGetLastError, (void)), NOT_SUPPORTED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_go_to_each_device_and_back),
        cmocka_unit_test(test_pointers_say_where_they_are),
        cmocka_unit_test(test_errors_are_remembered_once)};
    const char *file = argc > 1 ? argv[1] : "libcudart.so.13";
    setenv("WEFT_FAKE_GPU_COUNT", "2", 1);
    library = dlopen(file, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

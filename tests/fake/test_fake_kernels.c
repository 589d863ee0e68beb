/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: kernels launched by the fake driver give the host's bits, on memory
 * that the device may access and no other; streams capture, and multiprocessors
 * are divided, by the documented rules.
 *
 * Method: reductions, casts and packing of random bytes on devices, against
 * kernels/wire's host functions; one case a process.
 */
#include "kernels/wire/launch.h"
#include "kernels/wire/pack.h"
#include "kernels/wire/reduce.h"
#include "tests/fake/fake_test.h"
#include "tests/seed.h"

#include <pthread.h>

enum { ELEMS = 1000, BYTES = 4 * ELEMS, SOURCES = 3, PIECES = 5 };

static const char image[] = "//\n.version 8.0\n";

/* Of a library, for any context. */
static CUfunction find_any(const char *name)
{
    CUlibrary library;
    CUkernel kernel;
    CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_OK(cuLibraryGetKernel(&kernel, library, name));
    return (CUfunction)kernel;
}

static CUfunction find_kernel(const char *name)
{
    CUmodule module;
    CUfunction function;
    CHECK_OK(cuModuleLoadData(&module, image));
    CHECK_OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, CUstream stream, void *args)
{
    return cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream,
                          (void *[]){args}, NULL);
}

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Fills host and device alike. */
static void fill_both(void *host, CUdeviceptr device, size_t bytes,
                      CUstream stream)
{
    static uint64_t seed = 5;
    for (size_t i = 0; i < bytes; i++) {
        ((unsigned char *)host)[i] = (unsigned char)random_next(&seed);
    }
    CHECK_OK(cuMemcpyAsync(device, address_of(host), bytes, stream));
}

static void check_device(const void *want, CUdeviceptr device, size_t bytes,
                         CUstream stream)
{
    void *host = new_pinned(bytes);
    CHECK_OK(cuMemcpyDtoHAsync_v2(host, device, bytes, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK(memcmp(host, want, bytes) == 0);
    CHECK_OK(cuMemFreeHost(host));
}

static void check_reduce(void *arg)
{
    (void)arg;
    static int32_t host[SOURCES][ELEMS], want[ELEMS];
    const void *all[SOURCES];
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr dst = new_memory(BYTES);
    CUfunction reduce = find_kernel("wefti_reduce_i32");
    wefti_reduce_args args = {.dst = pointer(dst),
                              .elems = ELEMS,
                              .redop = WEFT_REDOP_SUM,
                              .source_count = SOURCES};
    for (int i = 0; i < SOURCES; i++) {
        CUdeviceptr source = new_memory(BYTES);
        args.sources[i] = pointer(source);
        all[i] = host[i];
        fill_both(host[i], source, BYTES, stream);
    }
    CHECK_OK(launch(reduce, stream, &args));
    memset(&args, 0, sizeof(args)); /* the call has copied them */
    wefti_reduce(want, all, SOURCES, ELEMS, WEFT_DTYPE_I32, WEFT_REDOP_SUM);
    check_device(want, dst, BYTES, stream);
}

static void check_cast_scale_copy(void *arg)
{
    (void)arg;
    static uint16_t host[ELEMS], want[ELEMS];
    static float wide[ELEMS];
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr src = new_memory(2 * ELEMS), dst = new_memory(BYTES);
    CUdeviceptr back = new_memory(2 * ELEMS), other = new_memory(2 * ELEMS);
    static uint16_t one = 0x4000; /* 2.0 */
    uint16_t *pinned = new_pinned(2);
    *pinned = one;
    for (int i = 0; i < ELEMS; i++) {
        host[i] = (uint16_t)(0x3f80 + i % 100);
    }
    CHECK_OK(cuMemcpyAsync(src, address_of(host), sizeof(host), stream));
    wefti_cast_args widen = {pointer(dst), pointer(src), ELEMS, 0};
    CHECK_OK(launch(find_kernel("wefti_widen_bf16"), stream, &widen));
    wefti_widen(wide, host, ELEMS, WEFT_DTYPE_BF16);
    check_device(wide, dst, BYTES, stream);
    wefti_cast_args narrow = {pointer(back), pointer(dst), ELEMS, 0};
    CHECK_OK(launch(find_kernel("wefti_narrow_bf16"), stream, &narrow));
    check_device(host, back, sizeof(host), stream);
    wefti_scale_args scale = {pointer(back), pointer(src), pinned, ELEMS};
    CHECK_OK(launch(find_kernel("wefti_scale_bf16"), stream, &scale));
    wefti_scale(want, host, &one, ELEMS, WEFT_DTYPE_BF16);
    check_device(want, back, sizeof(want), stream);
    wefti_copy_args copied = {pointer(other), pointer(back), sizeof(want)};
    CHECK_OK(launch(find_kernel("wefti_copy_bytes"), stream, &copied));
    check_device(want, other, sizeof(want), stream);
}

static void check_pack(void *arg)
{
    (void)arg;
    static unsigned char host[PIECES][100], want[PIECES * 100];
    wefti_piece on_host[PIECES], on_device[PIECES];
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr packed = new_memory(sizeof(want));
    CUdeviceptr list = new_memory(sizeof(on_device));
    for (size_t i = 0; i < PIECES; i++) {
        CUdeviceptr piece = new_memory(100);
        fill_both(host[i], piece, 100, stream);
        on_host[i] = (wefti_piece){host[i], i * 100, 100};
        on_device[i] = (wefti_piece){pointer(piece), i * 100, 100};
    }
    CHECK_OK(
        cuMemcpyAsync(list, address_of(on_device), sizeof(on_device), stream));
    wefti_pack_args args = {pointer(packed), pointer(list), PIECES};
    CHECK_OK(launch(find_kernel("wefti_pack_bytes"), stream, &args));
    wefti_pack(want, on_host, PIECES);
    check_device(want, packed, sizeof(want), stream);
    for (size_t i = 0; i < PIECES; i++) {
        CHECK_OK(cuMemsetD8Async(address_of(on_device[i].at), 0, 100, stream));
    }
    CHECK_OK(launch(find_kernel("wefti_unpack_bytes"), stream, &args));
    for (size_t i = 0; i < PIECES; i++) {
        check_device(host[i], address_of(on_device[i].at), 100, stream);
    }
}

static void test_kernels_give_the_hosts_bits(void **state)
{
    (void)state;
    in_child(check_reduce, NULL, NULL);
    in_child(check_cast_scale_copy, NULL, NULL);
    in_child(check_pack, NULL, NULL);
}

/* What a copying kernel gets as its source: a test's case. */
enum { PAGEABLE_SOURCE, TOO_SHORT, OF_A_PEER, PEER_ENABLED };

static void check_kernel_access(void *arg)
{
    int kind = *(int *)arg;
    static char pageable[BYTES];
    CUcontext first = open_device(0), second;
    CUstream stream = new_stream();
    CUdeviceptr dst = new_memory(BYTES);
    CUfunction copy = find_kernel("wefti_copy_bytes");
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_OK(cuCtxSetCurrent(second));
    CUdeviceptr peer = new_memory(BYTES);
    CHECK_OK(cuCtxSetCurrent(first));
    if (kind == PEER_ENABLED) {
        CHECK_OK(cuCtxEnablePeerAccess(second, 0));
    }
    wefti_copy_args args = {pointer(dst),
                            kind == PAGEABLE_SOURCE ? pageable : pointer(peer),
                            kind == TOO_SHORT ? BYTES + 1 : BYTES};
    CHECK_OK(launch(copy, stream, &args));
    CHECK_IS(kind == PEER_ENABLED ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS,
             cuStreamSynchronize(stream));
}

static void test_kernels_access_what_the_device_may(void **state)
{
    (void)state;
    for (int kind = 0; kind <= PEER_ENABLED; kind++) {
        in_child(check_kernel_access, &kind, "WEFT_FAKE_GPU_COUNT", "2", NULL);
    }
}

static void check_launch_refused(void *arg)
{
    (void)arg;
    CUcontext first = open_device(0), second;
    CUstream stream = new_stream(), other;
    CUmodule module;
    CUfunction copy = find_kernel("wefti_copy_bytes"), none;
    CUdeviceptr memory = new_memory(64);
    wefti_copy_args args = {pointer(memory), pointer(memory), 0};
    void *params[] = {&args};
    int value;
    CHECK_OK(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_OK(cuCtxSetCurrent(second));
    other = new_stream();
    CHECK_OK(cuCtxSetCurrent(first));
    CHECK_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "text"));
    CHECK_OK(cuModuleLoadDataEx(&module, image, 0, NULL, NULL));
    CHECK_IS(CUDA_ERROR_NOT_FOUND,
             cuModuleGetFunction(&none, module, "wefti_reduce_f128"));
    CHECK_OK(cuModuleUnload(module));
    CUlibrary library;
    CUkernel kernel;
    CHECK_IS(CUDA_ERROR_INVALID_IMAGE,
             cuLibraryLoadData(&library, "text", NULL, NULL, 0, NULL, NULL, 0));
    CHECK_OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_IS(CUDA_ERROR_NOT_FOUND,
             cuLibraryGetKernel(&kernel, library, "wefti_reduce_f128"));
    CHECK_OK(cuLibraryUnload(library));
    CHECK_OK(launch(find_any("wefti_copy_bytes"), other, &args));
    CHECK_OK(cuStreamSynchronize(other));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, launch(copy, other, &args));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuLaunchKernel(copy, 1, 1, 1, 1025, 1, 1, 0, stream, params, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuLaunchKernel(copy, 0, 1, 1, 32, 1, 1, 0, stream, params, 0));
    kernel = (CUkernel)find_any("wefti_copy_bytes");
    const int shared = 48 << 10,
              set = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1,
                            (unsigned)shared + 1, stream, params, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuKernelSetAttribute(set, (227 << 10) + 1, kernel, 0));
    CHECK_OK(cuKernelSetAttribute(set, shared + 1, kernel, 0));
    CHECK_OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1,
                            (unsigned)shared + 1, stream, params, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, /* on the other device it has as ever */
             cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1,
                            (unsigned)shared + 1, other, params, 0));
    CHECK_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                copy));
    CHECK(value == 1024);
    CHECK_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, copy, 256, 0));
    CHECK(value == 8);
    CHECK_OK(launch(copy, stream, &args));
    CHECK_OK(cuStreamSynchronize(stream));
}

static void test_launches_out_of_bounds_are_refused(void **state)
{
    (void)state;
    in_child(check_launch_refused, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

static void *end_capture(void *stream)
{
    CUgraph graph;
    CUresult result;
    CUcontext context;
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxSetCurrent(context));
    result = cuStreamEndCapture(stream, &graph);
    CHECK_IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, result);
    return NULL;
}

/* The status of a stream that captures, or not. */
static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status, again;
    uint64_t id = 0;
    CUgraph graph = NULL;
    CHECK_OK(cuStreamIsCapturing(stream, &status));
    CHECK_OK(
        cuStreamGetCaptureInfo_v2(stream, &again, &id, &graph, NULL, NULL));
    CHECK(status == again);
    CHECK((id != 0) == (status == CU_STREAM_CAPTURE_STATUS_ACTIVE));
    CHECK((graph != NULL) == (status == CU_STREAM_CAPTURE_STATUS_ACTIVE));
    return status;
}

static void check_capture(void *arg)
{
    (void)arg;
    open_device(0);
    CUstream a = new_stream(), b = new_stream();
    CUdeviceptr memory = new_memory(8), more;
    CUgraph graph = NULL;
    CUevent event, outside;
    pthread_t thread;
    unsigned char poison[8];
    memset(poison, 0xff, 8);
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    CHECK_OK(cuEventRecord(outside, b));
    CHECK_IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
             cuStreamEndCapture(a, &graph));
    CHECK(status_of(a) == CU_STREAM_CAPTURE_STATUS_NONE);

    /* Work is recorded, not done; another stream joins and is joined. */
    CHECK_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(status_of(a) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_OK(cuMemsetD8Async(memory, 0, 8, a));
    CHECK_OK(cuMemAlloc_v2(&more, 8)); /* in this mode */
    CHECK_OK(cuEventRecord(event, a));
    CHECK_IS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
    CHECK_OK(cuStreamWaitEvent(b, event, 0));
    CHECK(status_of(b) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
             cuStreamEndCapture(b, &graph));
    CHECK_OK(cuMemsetD8Async(memory, 0, 8, b));
    CHECK_OK(cuEventRecord(event, b));
    CHECK_OK(cuStreamWaitEvent(a, event, 0));
    CHECK_OK(cuStreamEndCapture(a, &graph));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK(status_of(b) == CU_STREAM_CAPTURE_STATUS_NONE);
    check_device(poison, memory, 8, a);

    /* Not joined. */
    CHECK_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_OK(cuEventRecord(event, a));
    CHECK_OK(cuStreamWaitEvent(b, event, 0));
    CHECK_IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));

    /* Broken by a question, an allocation, an event from outside. */
    for (int i = 0; i < 4; i++) {
        CHECK_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK_IS(i == 3 ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                        : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 i == 0   ? cuStreamSynchronize(a)
                 : i == 1 ? cuStreamQuery(a)
                 : i == 2 ? cuMemAlloc_v2(&more, 8)
                          : cuStreamWaitEvent(a, outside, 0));
        CHECK(status_of(a) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        CHECK_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 cuMemsetD8Async(memory, 0, 8, a));
        CHECK_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                 cuStreamEndCapture(a, &graph));
        CHECK(graph == NULL);
    }

    CHECK_OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(pthread_create(&thread, NULL, end_capture, a) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(cuStreamEndCapture(a, &graph));
    CHECK_OK(cuGraphDestroy(graph));
}

static void test_capture(void **state)
{
    (void)state;
    in_child(check_capture, NULL, NULL);
}

static void check_green(void *arg)
{
    (void)arg;
    CUdevResource all, part[16], rest;
    CUdevResourceDesc desc;
    CUgreenCtx green, of;
    CUcontext primary = open_device(0), context;
    CUstream stream;
    unsigned count = 16;
    CHECK_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(all.sm.smCount == 132);
    CHECK_OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 20));
    CHECK(count == 5); /* of 24 */
    count = 16;
    CHECK_OK(cuDevSmResourceSplitByCount(part, &count, &all, &rest, 0, 16));
    CHECK(count == 8 && part[7].sm.smCount == 16 && rest.sm.smCount == 4);
    count = 2;
    CHECK_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, /* split again */
             cuDevSmResourceSplitByCount(part, &count, part, NULL, 0, 8));
    CHECK_IS(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
             cuDevSmResourceSplitByCount(part, &count, &rest, NULL, 0, 2));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuDevSmResourceSplitByCount(part, &count, &all, NULL, 0, 133));
    CHECK_OK(cuDevResourceGenerateDesc(&desc, part, 1));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, desc, 0, 0));
    CHECK_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuGreenCtxStreamCreate(&stream, green, 0, 0));
    CHECK_OK(
        cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -9));
    CHECK_OK(cuStreamGetPriority(stream, (int *)&count));
    CHECK((int)count == -5);
    CHECK_OK(cuStreamGetCtx_v2(stream, &context, &of));
    CHECK(context == primary && of == green);
    CHECK_OK(cuCtxFromGreenCtx(&context, green));
    CHECK(context != primary);
    CUdeviceptr memory = new_memory(64); /* the primary context's */
    wefti_copy_args args = {pointer(memory), pointer(memory + 32), 32};
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE,
             launch(find_kernel("wefti_copy_bytes"), stream, &args));
    CHECK_OK(launch(find_any("wefti_copy_bytes"), stream, &args));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxDestroy(green));
    CUevent event;
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CHECK_OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    CHECK_OK(cuEventQuery(event));
    CHECK_OK(cuStreamDestroy_v2(stream));
    CHECK_OK(cuGreenCtxDestroy(green));
    CHECK_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuGreenCtxDestroy(green));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
}

static void test_green_contexts(void **state)
{
    (void)state;
    in_child(check_green, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_give_the_hosts_bits),
        cmocka_unit_test(test_kernels_access_what_the_device_may),
        cmocka_unit_test(test_launches_out_of_bounds_are_refused),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_green_contexts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

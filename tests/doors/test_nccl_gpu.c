/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: with GPUs, buffers are device memory and work is in the order of the
 * program's streams; ranks are one thread with several GPUs, threads, or
 * processes with the GPU of their context.
 *
 * Method: the fake driver of tests/fake, whose memory the host cannot touch and
 * whose copies run late; or, with WEFT_TEST_DRIVER=system, the machine's, with
 * all ranks on as many GPUs as there are.
 */
#include "tests/doors/door_ranks.h"
#include "tests/fake/fake_functions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { INT32 = 2, F32 = 7, SUM = 0, ELEMS = 20000, RANKS = 4, MOST_GPUS = 16 };

/* One rank's GPU, stream and buffers. */
typedef struct gpu {
    CUcontext context;
    CUstream stream;
    CUdeviceptr send, recv;
} gpu;

static int gpu_count(void)
{
    int count = 0;
    return cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

static int gpu_use(gpu *own, int index)
{
    int failures = 0;
    EXPECT(cuDevicePrimaryCtxRetain(&own->context, index) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(own->context) == CUDA_SUCCESS);
    return failures;
}

static int gpu_open(gpu *own, int index)
{
    const size_t bytes = (size_t)ELEMS * sizeof(int);
    int failures = gpu_use(own, index);
    EXPECT(cuStreamCreateWithPriority(&own->stream, CU_STREAM_NON_BLOCKING,
                                      0) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc_v2(&own->send, bytes) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc_v2(&own->recv, bytes) == CUDA_SUCCESS);
    return failures;
}

static int gpu_close(gpu *own, int index)
{
    int failures = 0;
    EXPECT(cuCtxSetCurrent(own->context) == CUDA_SUCCESS);
    EXPECT(cuStreamSynchronize(own->stream) == CUDA_SUCCESS);
    EXPECT(cuMemFree_v2(own->send) == CUDA_SUCCESS);
    EXPECT(cuMemFree_v2(own->recv) == CUDA_SUCCESS);
    EXPECT(cuStreamDestroy_v2(own->stream) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
    EXPECT(cuDevicePrimaryCtxRelease_v2(index) == CUDA_SUCCESS);
    return failures;
}

/* On the rank's stream, and not waited for. */
static int put(gpu *own, const void *from)
{
    int failures = 0;
    EXPECT(cuMemcpyHtoDAsync_v2(own->send, from, (size_t)ELEMS * 4,
                                own->stream) == CUDA_SUCCESS);
    return failures;
}

static int get(gpu *own, void *to)
{
    int failures = 0;
    EXPECT(cuMemcpyDtoHAsync_v2(to, own->recv, (size_t)ELEMS * 4,
                                own->stream) == CUDA_SUCCESS);
    EXPECT(cuStreamSynchronize(own->stream) == CUDA_SUCCESS);
    return failures;
}

static struct CUstream_st *as_stream(const gpu *own)
{
    return (struct CUstream_st *)(void *)own->stream;
}

static void *as_pointer(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

/* ---- one thread, a GPU for each rank ---- */

static void test_one_thread_with_several_gpus(void **state)
{
    static int sent[RANKS][ELEMS], got[RANKS][ELEMS];
    struct ncclComm *comms[MOST_GPUS + 1];
    gpu gpus[RANKS];
    const int nranks = gpu_count() < RANKS ? gpu_count() : RANKS;
    int failures = 0, number = -1;
    (void)state;
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommInitAll(comms, gpu_count() + 1, NULL));
    EXPECT_RESULT(SUCCESS, ncclCommInitAll(comms, nranks, NULL));
    for (int r = 0; r < nranks; r++) {
        failures += gpu_open(&gpus[r], r);
        for (int i = 0; i < ELEMS; i++) {
            sent[r][i] = r * i;
        }
        failures += put(&gpus[r], sent[r]);
        EXPECT_RESULT(SUCCESS, ncclCommCuDevice(comms[r], &number));
        EXPECT(number == r);
    }
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    for (int r = 0; r < nranks; r++) {
        EXPECT_RESULT(SUCCESS,
                      ncclAllReduce(as_pointer(gpus[r].send),
                                    as_pointer(gpus[r].recv), ELEMS, INT32, SUM,
                                    comms[r], as_stream(&gpus[r])));
    }
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    for (int r = 0; r < nranks; r++) {
        EXPECT(cuCtxSetCurrent(gpus[r].context) == CUDA_SUCCESS);
        failures += get(&gpus[r], got[r]);
        EXPECT(got[r][1] == nranks * (nranks - 1) / 2);
        EXPECT(got[r][ELEMS - 1] == nranks * (nranks - 1) / 2 * (ELEMS - 1));
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(comms[r]));
        failures += gpu_close(&gpus[r], r);
    }
    assert_int_equal(failures, 0);
}

/* ---- ranks whose GPU is their thread's ---- */

/* As cudaSetDevice does. */
static void use_own(int rank)
{
    CUcontext context;
    if (cuInit(0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, rank % gpu_count()) !=
            CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        abort();
    }
}

typedef struct placed {
    door_rank_call call;
} placed;

/* With its stream and its buffers. */
static int rank_placed(struct ncclComm *comm, int rank, int nranks,
                       void *context)
{
    const int index = rank % gpu_count();
    void *memory = NULL;
    int failures = 0, number = -1;
    gpu own;
    EXPECT_RESULT(SUCCESS, ncclCommCuDevice(comm, &number));
    EXPECT(number == index);
    failures += gpu_open(&own, index);
    EXPECT_RESULT(SUCCESS, ncclMemAlloc(&memory, 4096));
    EXPECT(memory &&
           cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)memory, own.send, 4096,
                                own.stream) == CUDA_SUCCESS);
    EXPECT(cuStreamSynchronize(own.stream) == CUDA_SUCCESS);
    EXPECT_RESULT(SUCCESS, ncclMemFree(memory));
    failures += ((const placed *)context)->call(comm, rank, nranks, &own);
    return failures + gpu_close(&own, index);
}

static int rank_ops(struct ncclComm *comm, int rank, int nranks, void *context)
{
    gpu *own = context;
    int *image = malloc((size_t)ELEMS * sizeof(int));
    const int part = ELEMS / nranks, next = (rank + 1) % nranks;
    const int before = (rank + nranks - 1) % nranks;
    int failures = 0;
    for (int i = 0; i < ELEMS; i++) {
        image[i] = rank;
    }
    failures += put(own, image);
    void *send = as_pointer(own->send), *recv = as_pointer(own->recv);
    EXPECT_RESULT(SUCCESS, ncclAllGather(send, recv, (size_t)part, INT32, comm,
                                         as_stream(own)));
    failures += get(own, image);
    EXPECT(image[0] == 0 && image[part * nranks - 1] == nranks - 1);
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS,
                  ncclSend(send, ELEMS, INT32, next, comm, as_stream(own)));
    EXPECT_RESULT(SUCCESS,
                  ncclRecv(recv, ELEMS, INT32, before, comm, as_stream(own)));
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    failures += get(own, image);
    EXPECT(image[0] == before && image[ELEMS - 1] == before);
    /* Twice in a row from where it also receives: two places on. */
    for (int turn = 0; turn < 2; turn++) {
        EXPECT_RESULT(SUCCESS, ncclGroupStart());
        EXPECT_RESULT(SUCCESS,
                      ncclSend(send, ELEMS, INT32, next, comm, as_stream(own)));
        EXPECT_RESULT(SUCCESS, ncclRecv(send, ELEMS, INT32, before, comm,
                                        as_stream(own)));
        EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    }
    EXPECT_RESULT(SUCCESS, ncclBroadcast(send, recv, ELEMS, INT32, 0, comm,
                                         as_stream(own)));
    failures += get(own, image);
    EXPECT(image[0] == (2 * nranks - 2) % nranks);
    EXPECT(image[ELEMS - 1] == (2 * nranks - 2) % nranks);
    free(image);
    return failures;
}

/* The scalar is in device memory, written by work of the stream. */
static int rank_scales(struct ncclComm *comm, int rank, int nranks,
                       void *context)
{
    gpu *own = context;
    float *image = malloc((size_t)ELEMS * sizeof(float));
    const float scalar = (float)(rank + 1);
    CUdeviceptr place = 0;
    int failures = 0, op = 0;
    for (int i = 0; i < ELEMS; i++) {
        image[i] = 2;
    }
    EXPECT(cuMemAlloc_v2(&place, sizeof(scalar)) == CUDA_SUCCESS);
    EXPECT_RESULT(SUCCESS,
                  ncclRedOpCreatePreMulSum(&op, as_pointer(place), F32,
                                           WEFTI_DOOR_SCALAR_DEVICE, comm));
    failures += put(own, image);
    EXPECT(cuMemcpyHtoDAsync_v2(place, &scalar, sizeof(scalar), own->stream) ==
           CUDA_SUCCESS);
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(as_pointer(own->send), as_pointer(own->recv),
                                ELEMS, F32, op, comm, as_stream(own)));
    failures += get(own, image);
    EXPECT(image[ELEMS - 1] == (float)(nranks * (nranks + 1)));
    EXPECT(cuMemFree_v2(place) == CUDA_SUCCESS);
    free(image);
    return failures;
}

/* The stream of rank 0 waits for what rank 1 never posts. */
static int rank_aborts(struct ncclComm *comm, int rank, int nranks,
                       void *context)
{
    gpu *own = context;
    struct ncclComm *part = NULL;
    int failures = 0, result = -1;
    (void)nranks;
    EXPECT_RESULT(SUCCESS, ncclCommSplit(comm, 0, 0, &part, NULL));
    EXPECT_RESULT(SUCCESS, ncclCommCuDevice(part, &result));
    if (rank == 0) {
        EXPECT_RESULT(SUCCESS, ncclAllReduce(as_pointer(own->send),
                                             as_pointer(own->recv), ELEMS,
                                             INT32, SUM, part, as_stream(own)));
        EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(part, &result));
        EXPECT(result == WEFTI_DOOR_SUCCESS);
        EXPECT_RESULT(SUCCESS, ncclCommAbort(part));
        EXPECT(cuStreamSynchronize(own->stream) == CUDA_SUCCESS);
        return failures;
    }
    EXPECT(door_await(part) >= 0);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(part));
    return failures;
}

/* A group that needs a copy is refused before the copy is in the graph, which
 * may outlive its memory. */
static int rank_captures(struct ncclComm *comm, int rank, int nranks,
                         void *context)
{
    gpu *own = context;
    void *both = as_pointer(own->send);
    const int next = (rank + 1) % nranks, last = (rank + nranks - 1) % nranks;
    CUgraph graph = NULL;
    size_t nodes = 0;
    int failures = 0;
    EXPECT(cuStreamBeginCapture_v2(own->stream,
                                   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ==
           CUDA_SUCCESS);
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS,
                  ncclSend(both, 8, INT32, next, comm, as_stream(own)));
    EXPECT_RESULT(SUCCESS,
                  ncclRecv(both, 8, INT32, last, comm, as_stream(own)));
    EXPECT_RESULT(INVALID_USAGE, ncclGroupEnd());
    EXPECT(strstr(ncclGetLastError(comm), "being captured") != NULL);
    EXPECT(cuStreamEndCapture(own->stream, &graph) == CUDA_SUCCESS);
    EXPECT(cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS);
    EXPECT(nodes == 0);
    EXPECT(cuGraphDestroy(graph) == CUDA_SUCCESS);
    return failures + rank_ops(comm, rank, nranks, context);
}

static door_rank_call find_call(const char *name)
{
    return strcmp(name, "ops") == 0        ? rank_ops
           : strcmp(name, "captures") == 0 ? rank_captures
           : strcmp(name, "scales") == 0   ? rank_scales
                                           : rank_aborts;
}

static void run(const char *name, bool processes)
{
    placed place = {.call = find_call(name)};
    door_before = use_own;
    const int nranks = strcmp(name, "aborts") == 0 ? 2 : 3;
    assert_int_equal(processes ? door_run_processes(nranks, rank_placed, &place)
                               : door_run_threads(nranks, rank_placed, &place),
                     0);
}

static void test_threads_with_a_gpu_each(void **state)
{
    (void)state;
    run("ops", false);
}

static void test_scalar_in_device_memory_is_read_in_stream_order(void **state)
{
    (void)state;
    run("scales", false);
}

static void test_captured_group_that_needs_a_copy_is_refused(void **state)
{
    (void)state;
    run("captures", false);
}

static void test_abort_lets_the_stream_pass(void **state)
{
    (void)state;
    run("aborts", false);
}

/* WEFT_ROUTE=nccl asks for NCCL, and what bears its name here is weft. */
static void test_library_does_not_take_itself_for_nccl(void **state)
{
    (void)state;
    setenv("WEFT_ROUTE", "nccl", 1);
    setenv("WEFT_NCCL", NCCL_LIBRARY, 1);
    run("ops", false);
    unsetenv("WEFT_ROUTE");
    unsetenv("WEFT_NCCL");
}

static void test_processes_with_a_gpu_each(void **state)
{
    (void)state;
    run("ops", true);
}

/* Of processes only the children may start the driver. */
static int start(void **state)
{
    (void)state;
    return cuInit(0) != CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest in_one[] = {
        cmocka_unit_test(test_one_thread_with_several_gpus),
        cmocka_unit_test(test_threads_with_a_gpu_each),
        cmocka_unit_test(test_scalar_in_device_memory_is_read_in_stream_order),
        cmocka_unit_test(test_captured_group_that_needs_a_copy_is_refused),
        cmocka_unit_test(test_abort_lets_the_stream_pass),
        cmocka_unit_test(test_library_does_not_take_itself_for_nccl)};
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(test_processes_with_a_gpu_each)};
    if (!getenv("WEFT_TEST_DRIVER")) {
        setenv("WEFT_KERNELS", FAKE_KERNELS, 1);
        setenv("WEFT_FAKE_GPU_COUNT", "4", 1);
        setenv("WEFT_FAKE_GPU_SEED", "11", 0);
    }
    return argc > 1 && strcmp(argv[1], "processes") == 0
               ? cmocka_run_group_tests(processes, NULL, NULL)
               : cmocka_run_group_tests(in_one, start, NULL);
}

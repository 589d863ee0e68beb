/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a captured stream takes - copies of device memory, kernels, flags
 * of gates - is done in every launch of the graph; a gate that has failed holds
 * no launch up, now or later; a broken capture is said to be.
 * Method: the program captures by the driver's own functions; each launch gets
 * other input. Runs on a real driver, too.
 */
#include "cuda_test.h"

#include "kernels/wire/launch.h"

enum { BYTES = 256, ROUNDS = 20 };

/* Its places: first -> second -> third, in one memory of the device. */
typedef struct scene {
    weft_device *device;
    weft_stream *stream;
    CUstream native;
    CUgraphExec exec;
    weft_gate *gate; /* chunk 0: it may begin; 1: it has ended */
    char *memory;
} scene;

static void open_scene(scene *own)
{
    CUcontext context;
    *own = (scene){.device = open_cuda(0)};
    CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_OK(cuCtxPushCurrent_v2(context));
    CHECK_OK(
        cuStreamCreateWithPriority(&own->native, CU_STREAM_NON_BLOCKING, 0));
    CHECK_WEFT(weft_stream_wrap(own->device, own->native, &own->stream));
    own->gate = make_gate(own->device, 2);
    own->memory = make_memory(own->device, WEFT_MEMORY_DEVICE, 3 * BYTES);
}

static void close_scene(scene *own)
{
    weft_stream_destroy(own->stream);
    CHECK_OK(cuStreamDestroy_v2(own->native));
    CHECK_OK(cuCtxPopCurrent_v2(NULL));
    weft_device_free(own->device, own->memory);
    weft_gate_destroy(own->gate);
    close_cuda(own->device);
}

static weft_status launch_copy(scene *own)
{
    wefti_copy_args args = {own->memory + 2 * BYTES, own->memory + BYTES,
                            BYTES};
    const wefti_launch launch = {.kernel = "wefti_copy_bytes",
                                 .blocks = 1,
                                 .threads = 32,
                                 .args = &args,
                                 .args_bytes = sizeof(args)};
    return wefti_stream_launch(own->stream, &launch);
}

static void capture(scene *own, bool launches)
{
    const wefti_flag begins[] = {{own->gate, 0, true, 0},
                                 {own->gate, 0, false, 0}};
    const wefti_flag ends = {own->gate, 1, false, 1};
    CUgraph graph = NULL;
    bool captured = true;
    CHECK_WEFT(wefti_stream_is_captured(own->stream, &captured));
    CHECK(!captured);
    CHECK_OK(
        cuStreamBeginCapture_v2(own->native, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_WEFT(wefti_stream_is_captured(own->stream, &captured));
    CHECK(captured);
    CHECK_WEFT(wefti_stream_flag(own->stream, begins, 2));
    CHECK_WEFT(weft_device_copy(own->device, own->memory + BYTES, own->memory,
                                BYTES, own->stream));
    if (launches) {
        CHECK_WEFT(launch_copy(own));
    } else {
        CHECK_WEFT(weft_device_copy(own->device, own->memory + 2 * BYTES,
                                    own->memory + BYTES, BYTES, own->stream));
    }
    CHECK_WEFT(wefti_stream_flag(own->stream, &ends, 1));
    CHECK_OK(cuStreamEndCapture(own->native, &graph));
    CHECK_OK(cuGraphInstantiateWithFlags(&own->exec, graph, 0));
    CHECK_OK(cuGraphDestroy(graph));
}

static void launch(scene *own)
{
    CHECK_OK(cuGraphLaunch(own->exec, own->native));
}

#ifdef TEST_KERNELS_RUN
static bool by_kernel = true;
#endif

/* Not NULL: by a kernel, too. */
static void check_launches(void *launches)
{
    scene own;
    char in[BYTES], out[BYTES];
    open_scene(&own);
    capture(&own, launches != NULL);
    for (int round = 1; round <= ROUNDS; round++) {
        const wefti_flag flags[] = {{own.gate, 1, false, 0},
                                    {own.gate, 0, false, 1}};
        memset(in, round, BYTES);
        CHECK_WEFT(weft_device_copy(own.device, own.memory, in, BYTES, NULL));
        launch(&own);
        if (round % 2) { /* not by a capture, behind the launch or before */
            weft_stream *beside = make_stream(own.device);
            CHECK_WEFT(wefti_stream_flag(beside, flags, 2));
            weft_stream_destroy(beside);
        } else {
            atomic_store(&own.gate->words[0], 1);
        }
        CHECK_WEFT(weft_stream_wait(own.stream));
        CHECK(wefti_gate_is_flagged(own.gate, 1));
        CHECK(!wefti_gate_is_flagged(own.gate, 0));
        CHECK_WEFT(weft_device_copy(own.device, out, own.memory + 2 * BYTES,
                                    BYTES, NULL));
        CHECK(memcmp(in, out, BYTES) == 0);
    }
    CHECK_OK(cuGraphExecDestroy(own.exec));
    close_scene(&own);
}

/* No flag of a launch hides the failure, which comes while one stands. */
static void check_failed(void *arg)
{
    (void)arg;
    scene own;
    open_scene(&own);
    capture(&own, false);
    for (int round = 0; round < ROUNDS; round++) {
        launch(&own);
    }
    CHECK_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(own.native));
    wefti_gate_fail(own.gate, WEFT_ERR_PEER, "gone");
    CHECK_OK(cuStreamSynchronize(own.native));
    for (int round = 0; round < ROUNDS; round++) {
        launch(&own);
    }
    CHECK_OK(cuStreamSynchronize(own.native));
    CHECK(wefti_gate_reached(own.gate, 0, WEFT_EPOCH_MAX));
    CHECK_OK(cuGraphExecDestroy(own.exec));
    close_scene(&own);
}

static void check_broken(void *arg)
{
    (void)arg;
    scene own;
    CUgraph graph = NULL;
    bool captured;
    open_scene(&own);
    CHECK_OK(
        cuStreamBeginCapture_v2(own.native, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuStreamSynchronize(own.native) != CUDA_SUCCESS);
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  wefti_stream_is_captured(own.stream, &captured), "broken");
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  weft_device_copy(own.device, own.memory + BYTES, own.memory,
                                   BYTES, own.stream),
                  "broken");
    CHECK(cuStreamEndCapture(own.native, &graph) != CUDA_SUCCESS);
    close_scene(&own);
}

static void test_cuda_graph_launches_do_the_same_again(void **state)
{
    (void)state;
    in_child(check_launches, NULL, NULL);
#ifdef TEST_KERNELS_RUN
    in_child(check_launches, &by_kernel, NULL);
#endif
}

/* Where the driver takes no batches, one call each. */
static void test_cuda_graph_flags_one_by_one(void **state)
{
    (void)state;
    in_child(check_launches, NULL, "WEFT_FAKE_GPU_MISSING",
             "cuStreamBatchMemOp", NULL);
}

static void test_cuda_graph_failed_gates_let_all_launches_go(void **state)
{
    (void)state;
    in_child(check_failed, NULL, NULL);
}

static void test_cuda_graph_broken_capture_is_said_to_be(void **state)
{
    (void)state;
    in_child(check_broken, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_graph_launches_do_the_same_again),
        cmocka_unit_test(test_cuda_graph_flags_one_by_one),
        cmocka_unit_test(test_cuda_graph_failed_gates_let_all_launches_go),
        cmocka_unit_test(test_cuda_graph_broken_capture_is_said_to_be),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}

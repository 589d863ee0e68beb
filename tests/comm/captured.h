/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/captured.h - a rank's native stream, and graphs captured from it,
 * as a program makes them beside weft; for tests linked with the fake driver,
 * or with WEFT_TEST_DRIVER=system on the first GPU of the machine.
 */
#ifndef TESTS_COMM_CAPTURED_H
#define TESTS_COMM_CAPTURED_H

#include "tests/comm/carried_scene.h"
#include "tests/fake/fake_functions.h"

/* While a global capture goes on no other thread of the process may make a
 * graph or memory: ranks that are threads capture for their thread alone. */
static CUstreamCaptureMode captured_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

typedef struct captured {
    struct own *own;
    CUstream native;
    weft_stream *stream; /* the same */
} captured;

static inline void captured_expect(captured *with, CUresult result,
                                   const char *what)
{
    scene_expect(with->own, result == CUDA_SUCCESS, what);
}

/* Its context stays current in this thread until the end. */
static inline void captured_init(captured *with, struct own *own)
{
    CUcontext context;
    *with = (captured){.own = own};
    captured_expect(
        with,
        cuDevicePrimaryCtxRetain(&context, wefti_device_get_index(own->device)),
        "context");
    captured_expect(with, cuCtxPushCurrent_v2(context), "current");
    captured_expect(
        with,
        cuStreamCreateWithPriority(&with->native, CU_STREAM_NON_BLOCKING, 0),
        "native stream");
    scene_expect(own,
                 weft_stream_wrap(own->device, with->native, &with->stream) ==
                     WEFT_OK,
                 "wrap");
}

static inline void captured_fini(captured *with)
{
    weft_stream_destroy(with->stream);
    captured_expect(with, cuStreamDestroy_v2(with->native), "destroy");
    captured_expect(with, cuCtxPopCurrent_v2(NULL), "pop");
    captured_expect(
        with,
        cuDevicePrimaryCtxRelease_v2(wefti_device_get_index(with->own->device)),
        "release");
}

static inline void captured_begin(captured *with)
{
    captured_expect(with, cuStreamBeginCapture_v2(with->native, captured_mode),
                    "begin");
}

static inline CUgraphExec captured_end(captured *with)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    captured_expect(with, cuStreamEndCapture(with->native, &graph), "end");
    if (graph) {
        captured_expect(with, cuGraphInstantiateWithFlags(&exec, graph, 0),
                        "instantiate");
        captured_expect(with, cuGraphDestroy(graph), "graph");
    }
    return exec;
}

/* A graph of one operation; weft's status in *status_out. */
static inline CUgraphExec captured_op(captured *with, const weft_op *op,
                                      weft_status *status_out)
{
    captured_begin(with);
    *status_out = weft_op_post(op, 0, with->own->comm, with->stream);
    return captured_end(with);
}

static inline void captured_launch(captured *with, CUgraphExec exec)
{
    captured_expect(with, cuGraphLaunch(exec, with->native), "launch");
}

static inline void captured_wait(captured *with)
{
    captured_expect(with, cuStreamSynchronize(with->native), "synchronize");
}

#endif

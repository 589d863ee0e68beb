// SPDX-License-Identifier: BSD-3-Clause
/*
 * Host calls of two streams: at once or one after the other; how soon they
 * come; and whether they still come after the context has failed (last, as
 * nothing works after it).
 */
#include "cu.h"

#include <time.h>

struct call {
    double begin_us, end_us;
    long hold_ms;
};

static void CUDA_CB on_call(void *arg)
{
    struct call *call = arg;
    struct timespec t = {0, call->hold_ms * 1000000L};
    call->begin_us = now_us();
    nanosleep(&t, NULL);
    call->end_us = now_us();
}

static void ask_serialised(void)
{
    CUstream a = gpu_stream(), b = gpu_stream();
    struct call first = {.hold_ms = 40}, second = {.hold_ms = 40};
    CU(cuLaunchHostFunc(a, on_call, &first));
    CU(cuLaunchHostFunc(b, on_call, &second));
    CU(cuStreamSynchronize(a));
    CU(cuStreamSynchronize(b));
    bool apart =
        first.end_us <= second.begin_us || second.end_us <= first.begin_us;
    fact_text("two_streams", "cuLaunchHostFunc of 40 ms on each", "%s",
              apart ? "one after the other" : "at once");
}

static void ask_delay(void)
{
    enum { ROUNDS = 50 };
    CUstream stream = gpu_stream();
    struct call call = {0};
    double us[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start_us = now_us();
        CU(cuLaunchHostFunc(stream, on_call, &call));
        CU(cuStreamSynchronize(stream));
        us[i] = call.begin_us - start_us;
    }
    fact_spread("delay", us, ROUNDS, "us",
                "cuLaunchHostFunc on an idle stream to the call");
}

static void ask_after_error(void)
{
    CUstream stream = gpu_stream(), other = gpu_stream();
    static struct call behind, beside;
    CUdeviceptr out = gpu_alloc(64);
    unsigned long long hold_ns = 20000000;
    LAUNCH(other, "hold", 1, 1, &out, &hold_ns);
    CU(cuLaunchHostFunc(other, on_call, &beside));
    gpu_launch(stream, "fail", 1, 1, NULL);
    CUresult queued = cu.cuLaunchHostFunc(stream, on_call, &behind);
    CUresult result = cu.cuStreamSynchronize(stream);
    struct timespec t = {0, 100000000L};
    nanosleep(&t, NULL); /* for calls that come late, if they come */
    fact_text("after_context_error", "a kernel that traps, then the host call",
              "queued: %s; stream: %s; called: %s",
              queued ? cu_name(queued) : "yes", cu_name(result),
              behind.end_us > 0 ? "yes" : "no");
    fact_text("after_context_error_other_stream",
              "behind a kernel of 20 ms on another stream", "called: %s",
              beside.end_us > 0 ? "yes" : "no");
}

void q_host_calls(int variant)
{
    (void)variant;
    gpu_open();
    ask_serialised();
    ask_delay();
    ask_after_error();
}

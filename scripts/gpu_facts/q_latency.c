// SPDX-License-Identifier: BSD-3-Clause
/*
 * From the end of one stream's kernel to what the next stream does, by five
 * ways of telling it. The end is the kernel's own stamp; what follows is a
 * copy of 4 bytes into a word that a third stream's kernel spins on, whose
 * stamp is the arrival. Both stamps are of one device's clock.
 *
 *      producer: mark (stamp 0) --way--> copier: copy ---> watcher (stamp 1)
 */
#include "cu.h"

#include <stdlib.h>

#define ROUNDS   60
#define LIMIT_NS 200000000ull
#define LIMIT_US 1e6

enum way { BY_EVENT, BY_POLLING, BY_HOST_CALL, BY_WAIT_VALUE, BY_KERNEL };

struct trigger {
    CUstream producer, copier, watcher;
    CUdeviceptr word, flag, source, started, marked, arrived;
    unsigned *started_host, *source_host, called;
    unsigned long long *marked_host, *arrived_host;
    CUevent event;
};

static void CUDA_CB on_call(void *arg)
{
    struct trigger *t = arg;
    __atomic_store_n(&t->called, t->called + 1, __ATOMIC_RELEASE);
}

static void post_copy(struct trigger *t)
{
    CU(cuMemcpyDtoDAsync(t->word, t->source, 4, t->copier));
}

/* Before the producer runs: what waits on the device. */
static void prepare(struct trigger *t, enum way way, unsigned round)
{
    unsigned long long limit_ns = LIMIT_NS;
    CUdeviceptr scratch = t->arrived + 64;
    if (way == BY_WAIT_VALUE) {
        CU(cuStreamWaitValue32(t->copier, t->flag, round, 0));
        post_copy(t);
    } else if (way == BY_KERNEL) {
        CUdeviceptr began = t->started + 64;
        LAUNCH(t->copier, "spin", 1, 1, &t->flag, &round, &began, &limit_ns,
               &scratch);
        post_copy(t);
    }
}

/* Once the producer is queued. */
static void follow(struct trigger *t, enum way way, unsigned round)
{
    double deadline_us = now_us() + LIMIT_US;
    switch (way) {
    case BY_EVENT:
        CU(cuEventRecord(t->event, t->producer));
        CU(cuStreamWaitEvent(t->copier, t->event, 0));
        post_copy(t);
        break;
    case BY_POLLING:
        CU(cuEventRecord(t->event, t->producer));
        while (cu.cuEventQuery(t->event) == CUDA_ERROR_NOT_READY)
            if (now_us() > deadline_us)
                give_up("an event that was never ready");
        post_copy(t);
        break;
    case BY_HOST_CALL:
        CU(cuLaunchHostFunc(t->producer, on_call, t));
        if (!host_await(&t->called, round, LIMIT_US))
            give_up("a host call that never came");
        post_copy(t);
        break;
    case BY_WAIT_VALUE:
    case BY_KERNEL:
        break;
    }
}

static double one_round(struct trigger *t, enum way way, unsigned round)
{
    unsigned long long limit_ns = LIMIT_NS, lead_ns = 30000;
    CUdeviceptr scratch = t->marked + 64;
    *t->source_host = round;
    CU(cuMemcpyHtoD(t->source, t->source_host, 4));
    LAUNCH(t->watcher, "spin", 1, 1, &t->word, &round, &t->started, &limit_ns,
           &t->arrived);
    if (!host_await(t->started_host, round, LIMIT_US))
        give_up("a kernel that never started");
    prepare(t, way, round);
    /* The lead lets the host queue what follows before the kernel ends. */
    LAUNCH(t->producer, "hold", 1, 1, &scratch, &lead_ns);
    LAUNCH(t->producer, "mark", 1, 1, &t->flag, &round, &t->marked);
    follow(t, way, round);
    CU(cuStreamSynchronize(t->watcher));
    CU(cuStreamSynchronize(t->copier));
    CU(cuStreamSynchronize(t->producer));
    if (!t->arrived_host[2])
        give_up("the copy came after the watcher's limit");
    return ((double)t->arrived_host[1] - (double)t->marked_host[0]) / 1e3;
}

static void ask_way(enum way way, const char *name, const char *how)
{
    static unsigned *host;
    struct trigger t = {.producer = gpu_stream(),
                        .copier = gpu_stream(),
                        .watcher = gpu_stream(),
                        .word = gpu_alloc(64),
                        .flag = gpu_alloc(64),
                        .source = gpu_alloc(64),
                        .event = gpu_event(false)};
    double us[ROUNDS];
    t.started_host = gpu_pinned(256, &t.started);
    t.marked_host = gpu_pinned(256, &t.marked);
    t.arrived_host = gpu_pinned(256, &t.arrived);
    t.source_host = host ? host : (host = gpu_pinned(64, NULL));
    one_round(&t, way, 1);
    for (unsigned i = 0; i < ROUNDS; i++)
        us[i] = one_round(&t, way, i + 2);
    fact_spread(name, us, ROUNDS, "us", how);
    CU(cuStreamDestroy(t.producer));
    CU(cuStreamDestroy(t.copier));
    CU(cuStreamDestroy(t.watcher));
}

void q_latency(int variant)
{
    (void)variant;
    /* No two of these streams may share a queue: one of them spins. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    gpu_open();
    ask_way(BY_EVENT, "event_between_streams", "cuStreamWaitEvent");
    ask_way(BY_POLLING, "event_and_polling_host", "cuEventQuery in a loop");
    ask_way(BY_HOST_CALL, "host_call", "cuLaunchHostFunc, a thread that polls");
    ask_way(BY_WAIT_VALUE, "wait_value", "cuStreamWaitValue32 before the copy");
    ask_way(BY_KERNEL, "spinning_kernel",
            "a kernel that spins before the copy");
}

// SPDX-License-Identifier: BSD-3-Clause
/*
 * What a stream that stands at a wait holds up besides itself: calls of the
 * driver that return only when it has gone on, and other streams, which the
 * driver may have put on the same connection. Each call is made by a thread of
 * its own; the host ends the wait by a store, which needs no call.
 */
#include "cu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define HOLD_US  1e5
#define DRAIN_US 2e6

/* The stream that stands, and what it stands at. */
struct stand {
    CUstream stream;
    unsigned *word, value;
    CUdeviceptr view;
};

/* What the calls need, made while nothing stands. */
struct things {
    CUdeviceptr memory, words;
    void *pinned;
    CUstream idle, stream;
    CUevent event;
    char *cubin;
};

struct attempt {
    void (*call)(struct things *things);
    struct things *things;
    atomic_bool done;
};

static void begin(struct stand *s)
{
    s->value++;
    CU(cuStreamWaitValue32(s->stream, s->view, s->value,
                           CU_STREAM_WAIT_VALUE_GEQ));
    if (gpu_drained(s->stream, 2e4))
        give_up("the wait did not hold");
}

static void end(struct stand *s)
{
    __atomic_store_n(s->word, s->value, __ATOMIC_SEQ_CST);
    if (!gpu_drained(s->stream, DRAIN_US))
        give_up("the wait held after its value was stored");
}

static void *run(void *arg)
{
    struct attempt *a = arg;
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, gpu_device()));
    CU(cuCtxSetCurrent(context));
    a->call(a->things);
    atomic_store(&a->done, true);
    return NULL;
}

static bool ends_in_time(struct attempt *a)
{
    double deadline_us = now_us() + HOLD_US;
    struct timespec t = {0, 200000};
    while (!atomic_load(&a->done) && now_us() < deadline_us)
        nanosleep(&t, NULL);
    return atomic_load(&a->done);
}

static void start(struct attempt *a, pthread_t *thread)
{
    if (pthread_create(thread, NULL, run, a) != 0)
        give_up("no thread");
}

static void call_query(struct things *things)
{
    CU(cuEventQuery(things->event));
}

static void call_alloc(struct things *things)
{
    CU(cuMemAlloc(&things->memory, 1 << 20));
}

static void call_free(struct things *things)
{
    CU(cuMemFree(things->memory));
}

static void call_host_alloc(struct things *things)
{
    CU(cuMemHostAlloc(&things->pinned, 1 << 20, 0));
}

static void call_host_free(struct things *things)
{
    CU(cuMemFreeHost(things->pinned));
}

static void call_stream_create(struct things *things)
{
    CU(cuStreamCreate(&things->idle, CU_STREAM_NON_BLOCKING));
}

static void call_stream_destroy(struct things *things)
{
    CU(cuStreamDestroy(things->idle));
}

static void call_first_launch(struct things *things)
{
    CUlibrary library;
    CUkernel kernel;
    unsigned long long words = 16;
    unsigned seed = 1;
    CU(cuLibraryLoadData(&library, things->cubin, NULL, NULL, 0, NULL, NULL,
                         0));
    CU(cuLibraryGetKernel(&kernel, library, "fill"));
    CU(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 32, 1, 1, 0, things->stream,
                      (void *[]){&things->words, &words, &seed}, NULL));
}

/* A call that is held up: does the driver answer other threads meanwhile? */
static void ask_call(struct stand *s, struct things *things, const char *name,
                     void (*call)(struct things *things))
{
    struct attempt a = {call, things, false};
    struct attempt query = {call_query, things, false};
    pthread_t thread, other;
    bool answered = true;
    begin(s);
    start(&a, &thread);
    bool returned = ends_in_time(&a);
    if (!returned) {
        start(&query, &other);
        answered = ends_in_time(&query);
    }
    end(s);
    pthread_join(thread, NULL);
    if (!returned)
        pthread_join(other, NULL);
    fact_text(name, "beside a stream that stands at a wait", "%s%s",
              returned ? "returns" : "waits for the stream",
              answered ? "" : ", and so do queries of other threads");
}

static void ask_calls(struct stand *s)
{
    struct things things = {.event = gpu_event(false), .stream = gpu_stream()};
    size_t bytes;
    int cc = 10 * gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
             gpu_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    things.words = gpu_alloc(64);
    ask_call(s, &things, "cuMemAlloc", call_alloc);
    ask_call(s, &things, "cuMemFree", call_free);
    ask_call(s, &things, "cuMemHostAlloc", call_host_alloc);
    ask_call(s, &things, "cuMemFreeHost", call_host_free);
    ask_call(s, &things, "cuStreamCreate", call_stream_create);
    ask_call(s, &things, "cuStreamDestroy", call_stream_destroy);
    char *why = kernels_compile(cc, &things.cubin, &bytes);
    if (why)
        give_up("the kernels do not compile: %s", why);
    ask_call(s, &things, "first_launch", call_first_launch);
}

/* How many idle streams come no further while another one stands. */
static void ask_streams(struct stand *s, const char *name, const char *how)
{
    enum { STREAMS = 40 };
    CUstream streams[STREAMS];
    CUdeviceptr view;
    unsigned *seen = gpu_pinned(STREAMS * sizeof(*seen), &view);
    int held_up = 0;
    for (int i = 0; i < STREAMS; i++)
        streams[i] = gpu_stream();
    begin(s);
    for (int i = 0; i < STREAMS; i++)
        CU(cuStreamWriteValue32(streams[i], view + 4 * (CUdeviceptr)i, 1, 0));
    host_await(&seen[STREAMS - 1], 1, HOLD_US);
    for (int i = 0; i < STREAMS; i++)
        held_up += !host_await(&seen[i], 1, HOLD_US / STREAMS);
    end(s);
    CU(cuCtxSynchronize());
    fact_text(name, how, "%d of %d", held_up, STREAMS);
}

/* VARIANT 1: only the streams, with as many connections as there can be. */
void q_held_up(int variant)
{
    struct stand s = {0};
    if (variant == 1)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    gpu_open();
    s.stream = gpu_stream();
    s.word = gpu_pinned(64, &s.view);
    if (variant == 1) {
        ask_streams(&s, "streams_of_32_connections",
                    "idle ones beside one that stands, "
                    "CUDA_DEVICE_MAX_CONNECTIONS=32");
        return;
    }
    ask_calls(&s);
    ask_streams(&s, "streams", "idle ones beside one that stands at a wait");
}

// SPDX-License-Identifier: BSD-3-Clause
/*
 * How much work of one kind the driver takes for a stream that stands at a
 * wait, before it lets its caller wait; and how many streams may stand, each at
 * a wait of its own, before creating, marking or following the next one does
 * so, or the streams behind them come no further. A thread of its own makes the
 * calls and counts; the host ends the waits by stores, which need no call.
 */
#include "cu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STALL_US 3e5
#define DRAIN_US 2e6

enum { MOST = 3000, STREAMS = 64 };

struct queue {
    void (*call)(struct queue *queue, int number);
    int most;
    CUstream stream;
    CUdeviceptr words, from, to; /* words: pinned */
    unsigned *host;
    CUevent event, events[STREAMS];
    CUstream standing[STREAMS], behind[STREAMS];
    atomic_int made;
};

static void *run(void *arg)
{
    struct queue *q = arg;
    CUcontext context;
    CU(cuDevicePrimaryCtxRetain(&context, gpu_device()));
    CU(cuCtxSetCurrent(context));
    for (int i = 0; i < q->most; i++) {
        q->call(q, i);
        atomic_store(&q->made, i + 1);
    }
    return NULL;
}

/* Until all calls are made, or none has been for a while; how many were. */
static int count_made(struct queue *q)
{
    const struct timespec pause = {0, 200000};
    int last = 0;
    double since_us = now_us();
    while (last < q->most && now_us() - since_us < STALL_US) {
        const int made = atomic_load(&q->made);
        if (made != last)
            since_us = now_us();
        last = made;
        nanosleep(&pause, NULL);
    }
    return last;
}

static void call_write(struct queue *q, int number)
{
    CU(cuStreamWriteValue64(q->stream, q->words + 64, (unsigned)number, 0));
}

static void call_batch(struct queue *q, int number)
{
    CUstreamBatchMemOpParams ops[2];
    memset(ops, 0, sizeof(ops));
    for (int i = 0; i < 2; i++) {
        ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
        ops[i].writeValue.address = q->words + 64 + 8 * (CUdeviceptr)i;
        ops[i].writeValue.value64 = (unsigned)number;
    }
    CU(cuStreamBatchMemOp(q->stream, 2, ops, 0));
}

static void call_wait(struct queue *q, int number)
{
    (void)number;
    CU(cuStreamWaitValue64(q->stream, q->words + 64, 0,
                           CU_STREAM_WAIT_VALUE_GEQ));
}

static void nothing(void *arg)
{
    (void)arg;
}

static void call_host(struct queue *q, int number)
{
    (void)number;
    CU(cuLaunchHostFunc(q->stream, nothing, NULL));
}

/* Work of the GPU behind a call of the host, which it must wait for. */
static void call_host_and_write(struct queue *q, int number)
{
    call_host(q, number);
    call_write(q, number);
}

static void call_kernel(struct queue *q, int number)
{
    unsigned long long words = 1;
    unsigned seed = (unsigned)number;
    LAUNCH(q->stream, "fill", 1, 32, &q->to, &words, &seed);
}

static void call_copy(struct queue *q, int number)
{
    (void)number;
    CU(cuMemcpyDtoDAsync(q->to, q->from, 64, q->stream));
}

static void call_copy_up(struct queue *q, int number)
{
    (void)number;
    CU(cuMemcpyHtoDAsync(q->to, q->host + 32, 64, q->stream));
}

static void call_record(struct queue *q, int number)
{
    (void)number;
    CU(cuEventRecord(q->event, q->stream));
}

static void ask_kind(const char *name, void (*call)(struct queue *, int))
{
    struct queue q = {.call = call, .most = MOST, .stream = gpu_stream()};
    char fact[72];
    pthread_t thread;
    q.host = gpu_pinned(256, &q.words);
    q.from = gpu_alloc(64);
    q.to = gpu_alloc(64);
    q.event = gpu_event(false);
    call(&q, 0); /* what the first one takes is another question */
    CU(cuStreamSynchronize(q.stream));
    CU(cuStreamWaitValue64(q.stream, q.words, 1, CU_STREAM_WAIT_VALUE_GEQ));
    if (pthread_create(&thread, NULL, run, &q) != 0)
        give_up("no thread");
    const int made = count_made(&q);
    __atomic_store_n((uint64_t *)(void *)q.host, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    snprintf(fact, sizeof(fact), "of_%s", name);
    fact_text(fact, "calls that return behind a wait", "%d%s of %d", made,
              gpu_drained(q.stream, DRAIN_US) ? "" : ", and stays", MOST);
}

/* One more that stands, and one that follows it by an event. */
static void call_stand(struct queue *q, int number)
{
    const CUdeviceptr word = q->words + 8 * (CUdeviceptr)number;
    q->standing[number] = gpu_stream();
    CU(cuStreamWaitValue64(q->standing[number], word, 1,
                           CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuEventRecord(q->events[number], q->standing[number]));
    q->behind[number] = gpu_stream();
    CU(cuStreamWaitEvent(q->behind[number], q->events[number], 0));
    CU(cuStreamWriteValue64(q->behind[number], word + 8 * (CUdeviceptr)STREAMS,
                            1, 0));
}

/* The last is let go first. */
static int release(struct queue *q, int made)
{
    uint64_t *words = (uint64_t *)(void *)q->host;
    int late = 0;
    for (int i = made; i-- > 0;) {
        const double begin_us = now_us();
        __atomic_store_n(&words[i], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&words[STREAMS + i], __ATOMIC_SEQ_CST) == 0 &&
               now_us() - begin_us < 2e4) {
        }
        late += __atomic_load_n(&words[STREAMS + i], __ATOMIC_SEQ_CST) == 0;
    }
    for (int i = made; i < STREAMS; i++)
        __atomic_store_n(&words[i], 1, __ATOMIC_SEQ_CST);
    return late;
}

static void ask_standing(void)
{
    struct queue q = {.call = call_stand, .most = STREAMS};
    pthread_t thread;
    q.host = gpu_pinned(16 * STREAMS, &q.words);
    for (int i = 0; i < STREAMS; i++)
        q.events[i] = gpu_event(false);
    if (pthread_create(&thread, NULL, run, &q) != 0)
        give_up("no thread");
    const int made = count_made(&q);
    fact_text("standing", "pairs of streams, one at a wait, one behind it",
              "%d of %d are made", made, STREAMS);
    const int late = release(&q, made);
    pthread_join(thread, NULL);
    fact_text("let_go", "the last first: pairs that had to wait for an earlier",
              "%d of %d", late, made);
    CU(cuCtxSynchronize());
}

/* VARIANT 1: the streams alone, with as many connections as there can be. */
void q_queue(int variant)
{
    if (variant == 1)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    gpu_open();
    ask_standing();
    if (variant == 1)
        return;
    ask_kind("write", call_write);
    ask_kind("batch_of_2", call_batch);
    ask_kind("wait", call_wait);
    ask_kind("host_call", call_host);
    ask_kind("host_call_and_write", call_host_and_write);
    ask_kind("kernel", call_kernel);
    ask_kind("copy", call_copy);
    ask_kind("copy_up", call_copy_up);
    ask_kind("event_record", call_record);
}

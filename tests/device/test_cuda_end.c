/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whoever queues more behind a stream that stands than a driver takes
 * waits outside of the driver, so that another thread's copy, which the stream
 * stands for, is still taken; and an error of the GPU ends that.
 * Method: the fake driver, which takes 1,020 operations, and then nobody else's
 * either. One thread queues several times as many of a kind; another raises the
 * gate by a copy's stream when the first comes no further.
 */
#include "cuda_test.h"

#include <stdatomic.h>

enum { ALL = 3000, SOME = 30, BYTES = 3 << 20, LOOK_US = 20 * 1000 };

/* What both threads use. */
typedef struct jam {
    weft_device *device;
    weft_stream *stands, *other;
    weft_gate *gate, *raised;
    char *memory, *host;
    atomic_int queued; /* calls that have returned */
    int at_gate;       /* of them, before the gate was raised */
} jam;

static weft_status copy_within(jam *all)
{
    return weft_device_copy(all->device, all->memory, all->memory + 8, 8,
                            all->stands);
}

static weft_status copy_down(jam *all)
{
    return weft_device_copy(all->device, all->memory, all->host, BYTES,
                            all->stands);
}

static weft_status signal_one(jam *all)
{
    const uint64_t epoch = (uint64_t)atomic_load(&all->queued) + 1;
    return weft_gate_signal(all->raised, 0, epoch, all->stands);
}

/* Until the other thread has come no further for two looks. */
static void await_jam(jam *all)
{
    int before = -1, now = 0;
    while (now == 0 || now != before) {
        usleep(LOOK_US);
        before = now;
        now = atomic_load(&all->queued);
    }
    all->at_gate = now;
}

static void *raise_gate(void *arg)
{
    jam *all = arg;
    await_jam(all);
    CHECK_WEFT(weft_device_copy(all->device, all->memory + 16, all->memory + 24,
                                8, all->other));
    CHECK_WEFT(weft_gate_signal(all->gate, 0, 1, all->other));
    return NULL;
}

static void open_jam(jam *all)
{
    all->device = open_cuda(0);
    all->stands = make_stream(all->device);
    all->other = make_stream(all->device);
    all->gate = make_gate(all->device, 1);
    all->raised = make_gate(all->device, 1);
    all->memory = make_memory(all->device, WEFT_MEMORY_DEVICE, BYTES);
    all->host = malloc(BYTES);
    CHECK(all->host != NULL);
    memset(all->host, 1, BYTES);
    CHECK_WEFT(weft_gate_wait(all->gate, 0, 1, all->stands));
}

static void close_jam(jam *all)
{
    weft_stream_destroy(all->stands);
    weft_stream_destroy(all->other);
    weft_gate_destroy(all->gate);
    weft_gate_destroy(all->raised);
    weft_device_free(all->device, all->memory);
    free(all->host);
}

/* A kind of work, so many times. */
typedef struct load {
    weft_status (*queue)(jam *all);
    int times;
} load;

static void check_jam(void *arg)
{
    const load *of = arg;
    jam all = {0};
    pthread_t thread;
    open_jam(&all);
    CHECK(pthread_create(&thread, NULL, raise_gate, &all) == 0);
    for (int i = 0; i < of->times; i++) {
        CHECK_WEFT(of->queue(&all));
        atomic_fetch_add(&all.queued, 1);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_WEFT(weft_stream_wait(all.stands));
    CHECK_WEFT(weft_stream_wait(all.other));
    CHECK(all.at_gate < of->times && all.at_gate < 1020);
    close_jam(&all);
    close_cuda(all.device);
}

static void test_cuda_stream_full_at_a_gate_holds_up_no_other(void **state)
{
    static const load loads[] = {
        {copy_within, ALL}, {copy_down, SOME}, {signal_one, ALL}};
    (void)state;
    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        load own = loads[i];
        in_child(check_jam, &own, "WEFT_FAKE_GPU_SEED", "5",
                 "WEFT_FAKE_GPU_DELAY", "10", NULL);
    }
}

static void *break_gpu(void *arg)
{
    jam *all = arg;
    await_jam(all);
    CHECK_WEFT(copy_within(&(jam){
        .device = all->device, .memory = all->memory, .stands = all->other}));
    return NULL;
}

static void check_error(void *arg)
{
    (void)arg;
    jam all = {0};
    pthread_t thread;
    weft_status status = WEFT_OK;
    open_jam(&all);
    CHECK(pthread_create(&thread, NULL, break_gpu, &all) == 0);
    for (int i = 0; i < ALL && status == WEFT_OK; i++) {
        status = copy_within(&all);
        atomic_fetch_add(&all.queued, 1);
    }
    CHECK(status == WEFT_ERR_SYSTEM);
    CHECK(strstr(weft_error_text(), "ILLEGAL_ADDRESS") != NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(weft_stream_wait(all.stands) < 0);
    close_jam(&all);
    weft_device_close(all.device);
}

static void test_cuda_stream_full_at_a_gate_ends_with_its_gpu(void **state)
{
    (void)state;
    in_child(check_error, NULL, "WEFT_FAKE_GPU_ERROR", "700@2",
             "WEFT_FAKE_GPU_SEED", "6", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_stream_full_at_a_gate_holds_up_no_other),
        cmocka_unit_test(test_cuda_stream_full_at_a_gate_ends_with_its_gpu),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}

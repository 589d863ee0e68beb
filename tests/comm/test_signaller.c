/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: between hosts, in a process that may run on one core only, who signals
 * a gate carries the operation on, from several threads at once, and also to
 * its end, after which another thread may destroy the gate; with more cores the
 * progress thread does it, and so it does where a device has to be asked: a
 * signaller does not ask, and gets away. A forked child does nothing there.
 *
 * Method: two ranks are threads of this process, in domains of their own; its
 * mask of processors is made of one, or left. Each gathers a buffer that two
 * threads make part by part; as the lock may be another thread's at a signal,
 * rounds go on until a signaller has had it, and their number has a bound.
 */
#include "comm/engine/engine.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 2,
    PARTS = 8,
    PART_BYTES = 16 << 10,
    BYTES = PARTS * PART_BYTES,
    ROUNDS_LEAST = 8,
    ROUNDS_MOST = 2000,
    DEVICE_ROUNDS = 200
};

typedef struct desk {
    weft_comm *comm;
    weft_device *device;
    weft_gate *ready;
    weft_request *request;
    void *send, *recv;    /* of the device: [BYTES], [RANKS * BYTES] */
    unsigned char *there; /* to look at what is in recv */
    uint64_t round;
} desk;

static unsigned char byte_at(int rank, size_t at, uint64_t round)
{
    return (unsigned char)((size_t)rank * 101 + round * 3 + at * 13 + at / 251);
}

/* Every second part, from first on. */
static int make_parts(const desk *self, size_t first)
{
    const int rank = weft_comm_get_rank(self->comm);
    int failures = 0;
    for (size_t part = first; part < PARTS; part += 2) {
        unsigned char made[PART_BYTES];
        const size_t at = part * PART_BYTES;
        for (size_t i = 0; i < PART_BYTES; i++) {
            made[i] = byte_at(rank, at + i, self->round);
        }
        failures += weft_device_copy(self->device, (char *)self->send + at,
                                     made, PART_BYTES, NULL) != WEFT_OK;
        failures += weft_gate_signal(self->ready, part, 1, NULL) != WEFT_OK;
    }
    return failures;
}

static void *make_odd_parts(void *argument)
{
    return make_parts(argument, 1) ? argument : NULL;
}

static int begin(desk *self)
{
    const size_t bytes = (size_t)RANKS * BYTES;
    memset(self->there, 0xee, bytes);
    if (weft_gate_create(self->device, PARTS, &self->ready) != WEFT_OK ||
        weft_device_copy(self->device, self->send, self->there, BYTES, NULL) !=
            WEFT_OK ||
        weft_device_copy(self->device, self->recv, self->there, bytes, NULL) !=
            WEFT_OK) {
        return 1;
    }
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLGATHER,
                        .send = self->send,
                        .recv = self->recv,
                        .count = BYTES,
                        .dtype = WEFT_DTYPE_U8,
                        .ready = self->ready,
                        .gate_elems = PART_BYTES,
                        .class_id = WEFT_CLASS_DP};
    return weft_op_begin(&op, 1, self->comm, &self->request) != WEFT_OK;
}

static int count_wrong(const desk *self)
{
    const size_t bytes = (size_t)RANKS * BYTES;
    int wrong = weft_device_copy(self->device, self->there, self->recv, bytes,
                                 NULL) != WEFT_OK;
    for (size_t at = 0; at < bytes; at++) {
        wrong += self->there[at] !=
                 byte_at((int)(at / BYTES), at % BYTES, self->round);
    }
    return wrong;
}

/* The helper may still be at its last signal when the gate goes. */
static int run_round(desk *self)
{
    pthread_t helper;
    void *failed;
    int failures = begin(self);
    if (failures || pthread_create(&helper, NULL, make_odd_parts, self) != 0) {
        return 63;
    }
    failures += make_parts(self, 0);
    while (weft_request_test(self->request) == WEFT_INPROGRESS) {
        (void)sched_yield();
    }
    failures += weft_request_wait(self->request) != WEFT_OK;
    weft_request_destroy(self->request);
    weft_gate_destroy(self->ready);
    failures += count_wrong(self) > 0;
    pthread_join(helper, &failed);
    return failures + (failed != NULL);
}

/* Its memory is a copy, the connections are not. Under the lock no other thread
 * holds what the child needs, and the operation comes to watch its gate. */
static int signal_in_child(desk *self)
{
    wefti_engine *engine = self->comm->engine;
    int status = 1, failures = begin(self);
    pthread_mutex_lock(&engine->lock);
    for (int i = 0; i < PARTS; i++) {
        (void)wefti_engine_push(engine);
    }
    const int64_t before_ns = atomic_load(&engine->signalled_ns);
    const pid_t child = fork();
    if (child == 0) {
        pthread_mutex_unlock(&engine->lock);
        (void)make_parts(self, 0);
        _exit(atomic_load(&engine->signalled_ns) != before_ns);
    }
    wefti_engine_unlock(engine);
    failures += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    failures += make_parts(self, 0) + make_parts(self, 1);
    failures += weft_request_wait(self->request) != WEFT_OK;
    weft_request_destroy(self->request);
    weft_gate_destroy(self->ready);
    return failures + (count_wrong(self) > 0);
}

/* Whether a signaller has carried anything on, at both ranks. */
static bool agree(weft_comm *comm, int *failures)
{
    float both = atomic_load(&comm->engine->signalled_ns) > 0 ? 1 : 0;
    *failures += weft_allreduce(&both, &both, 1, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                                comm, NULL) != WEFT_OK;
    return both == RANKS;
}

static bool sit_down(weft_comm *comm, weft_device *device, desk *self)
{
    *self = (desk){.comm = comm, .device = device};
    self->there = malloc((size_t)RANKS * BYTES);
    return self->there &&
           weft_device_alloc(device, BYTES, &self->send) == WEFT_OK &&
           weft_device_alloc(device, (size_t)RANKS * BYTES, &self->recv) ==
               WEFT_OK;
}

static void stand_up(desk *self)
{
    weft_device_free(self->device, self->send);
    weft_device_free(self->device, self->recv);
    free(self->there);
}

static int play(weft_comm *comm, void *context)
{
    const bool one_core = *(const bool *)context;
    desk self;
    weft_device *device;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK;
    if (failures || !sit_down(comm, device, &self)) {
        return 63;
    }
    bool carried = false;
    while (failures == 0 && self.round < ROUNDS_MOST &&
           (self.round < ROUNDS_LEAST || (one_core && !carried))) {
        self.round++;
        failures += run_round(&self);
        carried = agree(comm, &failures);
    }
    failures += carried != one_core;
    failures += signal_in_child(&self);
    stand_up(&self);
    weft_device_close(device);
    return failures;
}

/* Whose gates only the device knows to be open. */
static int play_on_device(weft_comm *comm, void *context)
{
    desk self;
    if (!sit_down(comm, context, &self)) {
        return 63;
    }
    int failures = 0;
    while (failures == 0 && self.round < DEVICE_ROUNDS) {
        self.round++;
        failures += run_round(&self);
    }
    stand_up(&self);
    return failures;
}

static int run_world(bool one_core)
{
    struct world world = {.nranks = RANKS, .call = play, .context = &one_core};
    setenv("WEFT_DOMAIN", "a,b", 1);
    return world_run_threads(&world);
}

/* The mask as it was. */
static cpu_set_t take_one_core(void)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    int core = 0;
    while (!CPU_ISSET(core, &all)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    return all;
}

static void test_signaller_with_one_core_carries_on(void **state)
{
    (void)state;
    const cpu_set_t all = take_one_core();
    const int failures = run_world(true);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(failures, 0);
}

static void test_signaller_does_not_wait_for_a_device(void **state)
{
    (void)state;
    weft_device *device;
    assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
    const cpu_set_t all = take_one_core();
    const struct world world = {.nranks = RANKS,
                                .config.device = device,
                                .call = play_on_device,
                                .context = device};
    setenv("WEFT_DOMAIN", "a,b", 1);
    const int failures = world_run_threads(&world);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(failures, 0);
    weft_device_close(device);
}

static void test_signaller_with_more_cores_leaves_it(void **state)
{
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(run_world(CPU_COUNT(&all) == 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signaller_with_one_core_carries_on),
        cmocka_unit_test(test_signaller_with_more_cores_leaves_it),
        cmocka_unit_test(test_signaller_does_not_wait_for_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the kind of a buffer's memory is each rank's own affair on weft's own
 * routes: host memory on one rank and a device's on another, or one of a rank's
 * two buffers in each, give the same elements; also where ranks have their
 * device later than their communicator, and at different times.
 *
 * Method: every collective of even parts and a message, small and in several
 * chunks, with kinds drawn anew for each rank, buffer and call; all elements
 * are compared, and those behind them. A receive is pending while a rank gets
 * its device. Argument: shadow, or cuda (the fake driver).
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NRANKS = 3,
    MOST = 100003, /* elements of one part: several chunks */
    ROUNDS = 6,
    SHUT = 0x3c3c3c3c
};

static const char *mode = "shadow";
static const size_t counts[] = {1, 1000, MOST};

/* One rank's buffers of both kinds: [kind], host and device. */
typedef struct desk {
    weft_comm *comm;
    weft_device *device;
    int rank, round;
    size_t count;
    int32_t *send[2], *recv[2], *host;
} desk;

static const size_t buffer_elems = (size_t)NRANKS * MOST;

/* Whether rank's buffer is the device's in this call. */
static bool is_device(const desk *self, int rank, bool send)
{
    const unsigned drawn = (unsigned)(rank * 7 + self->round * 5 + send * 3);
    return (drawn ^ drawn >> 2 ^ drawn >> 1) & 1;
}

static int32_t value_of(const desk *self, int from, int to, size_t i)
{
    return (int32_t)(self->round * 1000003 + from * 10007 + to * 101 +
                     (int)(i % 97));
}

/* What rank has for `to` is at part `part` of its send buffer. */
static int fill(desk *self, bool parts)
{
    int32_t *send = self->send[is_device(self, self->rank, true)];
    int32_t *recv = self->recv[is_device(self, self->rank, false)];
    const size_t bytes = buffer_elems * sizeof(int32_t);
    for (int to = 0; to < NRANKS; to++) {
        for (size_t i = 0; i < self->count; i++) {
            self->host[(size_t)to * self->count + i] =
                value_of(self, self->rank, parts ? to : 0, i);
        }
    }
    int failures = CHECK(
        weft_device_copy(self->device, send, self->host, bytes, NULL) == 0);
    for (size_t i = 0; i < buffer_elems; i++) {
        self->host[i] = SHUT;
    }
    return failures + CHECK(weft_device_copy(self->device, recv, self->host,
                                             bytes, NULL) == 0);
}

/* The element i of part `from` of what this rank has received. */
static int32_t expected(const desk *self, weft_collective collective, int from,
                        size_t i)
{
    int32_t sum = 0;
    switch (collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
    case WEFT_COLLECTIVE_REDUCE:
    case WEFT_COLLECTIVE_REDUCESCATTER:
        for (int rank = 0; rank < NRANKS; rank++) {
            const bool parts = collective == WEFT_COLLECTIVE_REDUCESCATTER;
            sum += value_of(self, rank, parts ? self->rank : 0, i);
        }
        return sum;
    case WEFT_COLLECTIVE_BROADCAST:
        return value_of(self, 1, 0, i);
    case WEFT_COLLECTIVE_SCATTER:
        return value_of(self, 1, self->rank, i);
    case WEFT_COLLECTIVE_ALLTOALL:
        return value_of(self, from, self->rank, i);
    default:
        return value_of(self, from, 0, i);
    }
}

static int compare(desk *self, weft_collective collective, int parts)
{
    const int32_t *recv = self->recv[is_device(self, self->rank, false)];
    size_t wrong = 0;
    int failures =
        CHECK(weft_device_copy(self->device, self->host, recv,
                               buffer_elems * sizeof(int32_t), NULL) == 0);
    for (size_t at = 0; at < buffer_elems; at++) {
        const size_t part = at / self->count, i = at % self->count;
        wrong +=
            self->host[at] != (part < (size_t)parts
                                   ? expected(self, collective, (int)part, i)
                                   : SHUT);
    }
    return failures + CHECK(wrong == 0);
}

/* How many parts a rank receives; rooted ones have root 1. */
static int received(const desk *self, weft_collective collective)
{
    switch (collective) {
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_ALLTOALL:
        return NRANKS;
    case WEFT_COLLECTIVE_GATHER:
        return self->rank == 1 ? NRANKS : 0;
    case WEFT_COLLECTIVE_REDUCE:
        return self->rank == 1;
    default:
        return 1;
    }
}

static int run(desk *self, weft_collective collective)
{
    const bool parts = collective == WEFT_COLLECTIVE_ALLTOALL ||
                       collective == WEFT_COLLECTIVE_SCATTER ||
                       collective == WEFT_COLLECTIVE_REDUCESCATTER;
    const bool rooted = collective == WEFT_COLLECTIVE_REDUCE ||
                        collective == WEFT_COLLECTIVE_BROADCAST ||
                        collective == WEFT_COLLECTIVE_GATHER ||
                        collective == WEFT_COLLECTIVE_SCATTER;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = collective,
                        .send = self->send[is_device(self, self->rank, true)],
                        .recv = self->recv[is_device(self, self->rank, false)],
                        .count = self->count,
                        .dtype = WEFT_DTYPE_I32,
                        .redop = WEFT_REDOP_SUM,
                        .root = rooted};
    int failures = fill(self, parts);
    failures += CHECK(weft_op_post(&op, 0, self->comm, NULL) == 0);
    return failures + compare(self, collective, received(self, collective));
}

/* To the next rank, from the one before. */
static int pass_on(desk *self)
{
    const int next = (self->rank + 1) % NRANKS;
    const int before = (self->rank + NRANKS - 1) % NRANKS;
    const weft_p2p list[] = {
        {.size_bytes = sizeof(weft_p2p),
         .kind = WEFT_P2P_SEND,
         .buffer = self->send[is_device(self, self->rank, true)],
         .count = self->count,
         .dtype = WEFT_DTYPE_I32,
         .peer = next},
        {.size_bytes = sizeof(weft_p2p),
         .kind = WEFT_P2P_RECV,
         .buffer = self->recv[is_device(self, self->rank, false)],
         .count = self->count,
         .dtype = WEFT_DTYPE_I32,
         .peer = before}};
    size_t wrong = 0;
    int failures = fill(self, false);
    failures += CHECK(weft_p2p_post(list, 2, self->comm, NULL) == 0);
    failures +=
        CHECK(weft_device_copy(self->device, self->host, list[1].buffer,
                               self->count * sizeof(int32_t), NULL) == 0);
    for (size_t i = 0; i < self->count; i++) {
        wrong += self->host[i] != value_of(self, before, 0, i);
    }
    return failures + CHECK(wrong == 0);
}

static int allocate(desk *self)
{
    const size_t bytes = buffer_elems * sizeof(int32_t);
    self->send[0] = malloc(bytes);
    self->recv[0] = malloc(bytes);
    self->host = malloc(bytes);
    return CHECK(self->send[0] && self->recv[0] && self->host) +
           CHECK(weft_device_alloc(self->device, bytes,
                                   (void **)&self->send[1]) == 0) +
           CHECK(weft_device_alloc(self->device, bytes,
                                   (void **)&self->recv[1]) == 0);
}

static int work(weft_comm *comm, void *context)
{
    static const weft_collective kinds[] = {
        WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
        WEFT_COLLECTIVE_ALLGATHER, WEFT_COLLECTIVE_REDUCESCATTER,
        WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_ALLTOALL,
        WEFT_COLLECTIVE_GATHER,    WEFT_COLLECTIVE_SCATTER};
    desk self = {.comm = comm,
                 .rank = weft_comm_get_rank(comm),
                 .device = *(weft_device **)context};
    int failures = allocate(&self);
    for (self.round = 0; failures == 0 && self.round < ROUNDS; self.round++) {
        self.count = counts[self.round % 3];
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            failures += run(&self, kinds[k]);
        }
        failures += pass_on(&self);
    }
    free(self.send[0]);
    free(self.recv[0]);
    weft_device_free(self.device, self.send[1]);
    weft_device_free(self.device, self.recv[1]);
    free(self.host);
    return failures;
}

static weft_device *devices[2];

static int sum_up(weft_comm *comm)
{
    int32_t value = weft_comm_get_rank(comm) + 1;
    return CHECK(weft_allreduce(&value, &value, 1, WEFT_DTYPE_I32,
                                WEFT_REDOP_SUM, comm, NULL) == 0) +
           CHECK(value == NRANKS * (NRANKS + 1) / 2);
}

/* While this rank waits for a message of host memory. */
static int get_device(weft_comm *comm)
{
    int32_t got = 0;
    const int rank = weft_comm_get_rank(comm);
    const int32_t own = rank;
    const weft_p2p list[] = {{.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_RECV,
                              .buffer = &got,
                              .count = 1,
                              .dtype = WEFT_DTYPE_I32,
                              .peer = (rank + NRANKS - 1) % NRANKS}};
    weft_request *request;
    int failures = CHECK(weft_p2p_begin(list, 1, comm, &request) == 0);
    failures += CHECK(weft_comm_set_device(comm, devices[0]) == 0);
    failures += CHECK(weft_send(&own, 1, WEFT_DTYPE_I32, (rank + 1) % NRANKS,
                                comm, NULL) == 0);
    failures += CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures + CHECK(got == list[0].peer);
}

static int work_late(weft_comm *comm, void *context)
{
    (void)context;
    const bool is_last = weft_comm_get_rank(comm) == 1;
    int failures = sum_up(comm);
    failures += CHECK(weft_comm_set_device(comm, NULL) == WEFT_ERR_INVALID);
    if (!is_last) {
        failures += CHECK(weft_comm_set_device(comm, devices[0]) == 0);
    }
    failures += sum_up(comm) + get_device(comm);
    failures += CHECK(weft_comm_set_device(comm, devices[0]) == 0);
    failures +=
        CHECK(weft_comm_set_device(comm, devices[1]) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "device 1") != NULL);
    return failures + work(comm, &devices[0]);
}

static void test_device_that_comes_late_is_as_good(void **state)
{
    (void)state;
    const struct world world = {.nranks = NRANKS, .call = work_late};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_device_open(mode, i, &devices[i]), 0);
    }
    assert_int_equal(world_run_threads(&world), 0);
    for (int i = 0; i < 2; i++) {
        weft_device_close(devices[i]);
    }
}

/* Refused by what a communicator has done, or is told to do. */
static int work_refused(weft_comm *comm, void *context)
{
    weft_device *host = NULL;
    weft_stream *stream = NULL;
    int failures = CHECK(weft_device_open("host", 0, &host) == 0) +
                   CHECK(weft_stream_create(host, 0, &stream) == 0);
    if (!context) {
        failures += CHECK(weft_barrier(comm, stream) == 0) +
                    CHECK(weft_stream_wait(stream) == 0);
    }
    failures +=
        CHECK(weft_comm_set_device(comm, devices[0]) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(),
                     context ? "WEFT_SINGLE_COPY" : "streams") != NULL) +
        sum_up(comm);
    weft_stream_destroy(stream);
    weft_device_close(host);
    return failures;
}

static void test_device_too_late_is_refused(void **state)
{
    (void)state;
    struct world world = {.nranks = NRANKS, .call = work_refused};
    assert_int_equal(weft_device_open(mode, 0, &devices[0]), 0);
    assert_int_equal(world_run_threads(&world), 0);
    setenv("WEFT_SINGLE_COPY", "on", 1);
    world.context = &world;
    assert_int_equal(world_run_threads(&world), 0);
    unsetenv("WEFT_SINGLE_COPY");
    weft_device_close(devices[0]);
}

static void test_mixed_memory_gives_the_same_elements(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, work), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_memory_gives_the_same_elements),
        cmocka_unit_test(test_device_that_comes_late_is_as_good),
        cmocka_unit_test(test_device_too_late_is_refused)};
    if (argc > 1) {
        mode = argv[1];
    }
    setenv("WEFT_FAKE_GPU_COUNT", "2", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

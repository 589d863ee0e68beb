/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: in v forms with a gate chunk per rank, what goes to one rank leaves
 * when it alone is ready, and what comes from one rank is announced when it
 * alone is there; empty parts arrive at once; wrong uses are refused by name.
 *
 * Method: one part after another is written, made ready and awaited at its
 * receiver while the parts behind it are neither written nor announced; any
 * byte that is sent early would be a wrong one. On host memory and on the
 * shadow device's. Threads.
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

enum { NRANKS = 4, MOST = 40000, ROOT = 2, EPOCHS = 3 };

static const char *kind = "host";

/* Elements from one rank to another; some pairs have nothing. */
static size_t count_of(int from, int to)
{
    return (from + 2 * to) % 5 == 0 ? 0 : (size_t)(from * 7919 + to * 4099 + 1);
}

static int32_t value_of(uint64_t epoch, int from, int to, size_t i)
{
    return (int32_t)(epoch * 1000003 + (size_t)from * 10007 + (size_t)to * 101 +
                     i % 97);
}

/* What one rank works with; buffers of the device are written by its copies. */
typedef struct desk {
    weft_comm *comm;
    int rank;
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready, *arrived;
    int32_t *send, *recv, *host;
    size_t send_counts[NRANKS], recv_counts[NRANKS];
    uint64_t epoch;
} desk;

static int set_up(desk *self, weft_comm *comm, weft_device *device)
{
    const size_t bytes = (size_t)NRANKS * MOST * sizeof(int32_t);
    *self = (desk){.comm = comm,
                   .rank = weft_comm_get_rank(comm),
                   .device = device,
                   .host = malloc(bytes)};
    for (int p = 0; p < NRANKS; p++) {
        self->send_counts[p] = count_of(self->rank, p);
        self->recv_counts[p] = count_of(p, self->rank);
    }
    return CHECK(weft_stream_create(device, 0, &self->stream) == WEFT_OK) +
           CHECK(weft_gate_create(device, NRANKS + 1, &self->ready) ==
                 WEFT_OK) +
           CHECK(weft_gate_create(device, NRANKS + 1, &self->arrived) ==
                 WEFT_OK) +
           CHECK(weft_device_alloc(device, bytes, (void **)&self->send) ==
                 WEFT_OK) +
           CHECK(weft_device_alloc(device, bytes, (void **)&self->recv) ==
                 WEFT_OK);
}

static void put_away(desk *self)
{
    weft_stream_destroy(self->stream);
    weft_gate_destroy(self->ready);
    weft_gate_destroy(self->arrived);
    weft_device_free(self->device, self->send);
    weft_device_free(self->device, self->recv);
    free(self->host);
}

static size_t place_of(const size_t *counts, int rank)
{
    size_t at = 0;
    for (int p = 0; p < rank; p++) {
        at += counts[p];
    }
    return at;
}

/* Writes the part that goes to rank `to` and makes it ready. */
static int fill(desk *self, int to)
{
    const size_t count = self->send_counts[to];
    int32_t *at = self->send + place_of(self->send_counts, to);
    for (size_t i = 0; i < count; i++) {
        self->host[i] = value_of(self->epoch, self->rank, to, i);
    }
    int failures = 0;
    if (count) {
        failures +=
            CHECK(weft_device_copy(self->device, at, self->host,
                                   count * sizeof(*at), NULL) == WEFT_OK) +
            CHECK(weft_gate_signal(self->ready, 1 + (size_t)to, self->epoch,
                                   NULL) == WEFT_OK);
    }
    return failures;
}

/* Waits for the part that comes from rank `from`, and compares it. */
static int take(desk *self, int from)
{
    const size_t count = self->recv_counts[from];
    const int32_t *at = self->recv + place_of(self->recv_counts, from);
    int failures = CHECK(weft_gate_wait(self->arrived, (size_t)from,
                                        self->epoch, NULL) == WEFT_OK);
    size_t wrong = 0;
    failures += CHECK(weft_device_copy(self->device, self->host, at,
                                       count * sizeof(*at), NULL) == WEFT_OK);
    for (size_t i = 0; i < count; i++) {
        wrong += self->host[i] != value_of(self->epoch, from, self->rank, i);
    }
    return failures + CHECK(wrong == 0);
}

static weft_op exchange(const desk *self)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = WEFT_COLLECTIVE_ALLTOALLV,
                     .send = self->send,
                     .recv = self->recv,
                     .send_counts = self->send_counts,
                     .recv_counts = self->recv_counts,
                     .dtype = WEFT_DTYPE_I32,
                     .ready = self->ready,
                     .arrived = self->arrived,
                     .ready_chunk = 1,
                     .gate_elems = WEFT_GATE_PER_RANK};
}

/* The part for rank + d is made only when that of rank - d + 1 has been taken,
 * so each has left and come alone. */
static int exchange_one_by_one(desk *self)
{
    int failures = 0;
    for (self->epoch = 1; self->epoch <= EPOCHS; self->epoch++) {
        const weft_op op = exchange(self);
        weft_request *request;
        failures += CHECK(
            weft_op_begin(&op, self->epoch, self->comm, &request) == WEFT_OK);
        for (int distance = 1; distance <= NRANKS; distance++) {
            const int to = (self->rank + distance) % NRANKS;
            const int from = (self->rank + NRANKS - distance) % NRANKS;
            failures += fill(self, to) + take(self, from);
        }
        failures += CHECK(weft_request_wait(request) == WEFT_OK);
        weft_request_destroy(request);
    }
    return failures;
}

/* What is not ready has not come, however long one looks; the rest has. */
static int hold_one_back(desk *self)
{
    const int late = 1, last = (late + NRANKS - 1) % NRANKS;
    self->epoch = EPOCHS + 1;
    const weft_op op = exchange(self);
    weft_request *request;
    int failures =
        CHECK(weft_op_begin(&op, self->epoch, self->comm, &request) == WEFT_OK);
    for (int p = 0; p < NRANKS; p++) {
        failures += self->rank == late && p == last ? 0 : fill(self, p);
    }
    for (int p = 0; p < NRANKS; p++) {
        failures += self->rank == last && p == late ? 0 : take(self, p);
    }
    if (self->rank == last) {
        failures += CHECK(weft_gate_test(self->arrived, (size_t)late,
                                         self->epoch) == WEFT_INPROGRESS);
    }
    /* Another communicator's barrier: this one has an operation pending. */
    weft_request *met;
    const weft_op meet = {.size_bytes = sizeof(meet),
                          .collective = WEFT_COLLECTIVE_BARRIER};
    failures += CHECK(weft_op_begin(&meet, 0, self->comm, &met) == WEFT_OK) +
                CHECK(weft_request_wait(met) == WEFT_OK);
    weft_request_destroy(met);
    if (self->rank == late) {
        failures += fill(self, last);
    }
    if (self->rank == last) {
        failures += take(self, late);
    }
    failures += CHECK(weft_request_wait(request) == WEFT_OK);
    weft_request_destroy(request);
    return failures;
}

/* One side has parts, the other has one; nothing else than that is raised. */
static int other_forms(desk *self)
{
    static const weft_collective forms[] = {
        WEFT_COLLECTIVE_ALLGATHERV, WEFT_COLLECTIVE_GATHERV,
        WEFT_COLLECTIVE_SCATTERV, WEFT_COLLECTIVE_REDUCESCATTERV};
    const size_t counts[NRANKS] = {5, 0, 30011, 3};
    const size_t own = counts[self->rank];
    int failures = 0;
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        const bool out = forms[f] == WEFT_COLLECTIVE_SCATTERV ||
                         forms[f] == WEFT_COLLECTIVE_REDUCESCATTERV;
        const bool rooted = forms[f] == WEFT_COLLECTIVE_SCATTERV ||
                            forms[f] == WEFT_COLLECTIVE_GATHERV;
        self->epoch++;
        const weft_op op = {.size_bytes = sizeof(op),
                            .collective = forms[f],
                            .send = self->send,
                            .recv = self->recv,
                            .count = own,
                            .send_counts = out ? counts : NULL,
                            .recv_counts = out ? NULL : counts,
                            .dtype = WEFT_DTYPE_I32,
                            .root = rooted ? ROOT : 0,
                            .ready = self->ready,
                            .arrived = self->arrived,
                            .gate_elems = WEFT_GATE_PER_RANK};
        weft_request *request;
        failures += CHECK(
            weft_op_begin(&op, self->epoch, self->comm, &request) == WEFT_OK);
        for (size_t p = 0; p < NRANKS && (out || p == 0); p++) {
            failures += CHECK(
                weft_gate_signal(self->ready, p, self->epoch, NULL) == WEFT_OK);
        }
        for (size_t p = 0; p < NRANKS && (!out || p == 0); p++) {
            failures += CHECK(
                weft_gate_wait(self->arrived, p, self->epoch, NULL) == WEFT_OK);
        }
        failures += CHECK(weft_request_wait(request) == WEFT_OK);
        weft_request_destroy(request);
    }
    return failures;
}

static int refuse(desk *self)
{
    weft_op op = exchange(self);
    weft_request *request;
    op.gate_elems = 7;
    int failures =
        CHECK(weft_op_begin(&op, 9, self->comm, &request) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "WEFT_GATE_PER_RANK") != NULL);
    op = exchange(self);
    op.ready_chunk = 2; /* its gate has one chunk less than that needs */
    failures +=
        CHECK(weft_op_begin(&op, 9, self->comm, &request) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "ready needs chunks 2..5") != NULL);
    op = exchange(self);
    op.collective = WEFT_COLLECTIVE_ALLREDUCE;
    op.count = 3;
    return failures +
           CHECK(weft_op_begin(&op, 9, self->comm, &request) ==
                 WEFT_ERR_INVALID) +
           CHECK(strstr(weft_error_text(),
                        "gate_elems WEFT_GATE_PER_RANK in all_reduce") != NULL);
}

static int work(weft_comm *comm, void *context)
{
    desk self;
    weft_device *device = ((weft_device **)context)[0];
    int failures = set_up(&self, comm, device);
    if (failures == 0) {
        failures += refuse(&self) + exchange_one_by_one(&self) +
                    hold_one_back(&self) + other_forms(&self) +
                    CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    }
    put_away(&self);
    return failures;
}

static void test_parts_leave_and_arrive_one_by_one(void **state)
{
    (void)state;
    weft_device *device;
    assert_int_equal(weft_device_open(kind, 0, &device), WEFT_OK);
    struct world world = {.nranks = NRANKS,
                          .config = {.device = device},
                          .call = work,
                          .context = &device};
    assert_int_equal(world_run_threads(&world), 0);
    weft_device_close(device);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_leave_and_arrive_one_by_one)};
    if (argc > 1) {
        kind = argv[1];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

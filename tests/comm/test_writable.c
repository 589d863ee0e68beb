/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what is received is written to a chunk of the receive buffer only once
 * that chunk's writable gate has been raised, whatever has come before; in
 * place nothing waits for what is not written; a failed gate and wrong uses are
 * named.
 *
 * Method: the receive buffer is filled with a pattern. Chunks are let go one by
 * one, each when the one before has arrived; all that are still shut must hold
 * the pattern, though the peers have sent them long since. Large operations go
 * chunk by chunk, small ones move as one. Argument: threads or processes, on
 * host memory, else the device: shadow or cuda (the fake driver).
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "device/device.h"

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
    ROOT = 1,
    LARGE = 40000, /* elements of a rank's part: some messages */
    GATE = 15000,
    SMALL = 12,
    CHUNKS_MOST = 32,
    FIRST = 2, /* the gates' chunk that belongs to element 0 */
    SHUT = 0x3c3c3c3c
};

static const char *mode = "threads";

/* What one rank works with. */
typedef struct desk {
    weft_comm *comm;
    int rank;
    weft_device *device;
    weft_gate *arrived, *writable;
    int32_t *send, *recv, *host; /* [NRANKS * LARGE] */
    uint64_t epoch;
} desk;

static const size_t buffer_bytes = (size_t)NRANKS * LARGE * sizeof(int32_t);

static int set_up(desk *self, weft_comm *comm, weft_device *device)
{
    *self = (desk){.comm = comm,
                   .rank = weft_comm_get_rank(comm),
                   .device = device,
                   .host = malloc(buffer_bytes)};
    int failures = 0;
    if (!device) {
        failures += CHECK(weft_device_open("host", 0, &self->device) == 0);
    }
    const size_t chunks = FIRST + CHUNKS_MOST;
    failures +=
        CHECK(weft_gate_create(self->device, chunks, &self->arrived) == 0) +
        CHECK(weft_gate_create(self->device, chunks, &self->writable) == 0) +
        CHECK(weft_device_alloc(self->device, buffer_bytes,
                                (void **)&self->send) == 0) +
        CHECK(weft_device_alloc(self->device, buffer_bytes,
                                (void **)&self->recv) == 0);
    for (size_t i = 0; failures == 0 && i < (size_t)NRANKS * LARGE; i++) {
        self->host[i] = (int32_t)(self->rank + 1);
    }
    return failures
               ? failures
               : CHECK(weft_device_copy(self->device, self->send, self->host,
                                        buffer_bytes, NULL) == 0);
}

static void put_away(desk *self, const weft_device *shared)
{
    weft_gate_destroy(self->arrived);
    weft_gate_destroy(self->writable);
    weft_device_free(self->device, self->send);
    weft_device_free(self->device, self->recv);
    if (!shared) {
        weft_device_close(self->device);
    }
    free(self->host);
}

static int shut_all(desk *self)
{
    for (size_t i = 0; i < (size_t)NRANKS * LARGE; i++) {
        self->host[i] = SHUT;
    }
    self->epoch++;
    return CHECK(weft_device_copy(self->device, self->recv, self->host,
                                  buffer_bytes, NULL) == 0);
}

/* Elements of the receive buffer that are in one of its chunks. */
typedef struct run {
    size_t begin, end;
} run;

/* Whether each element of a run holds the pattern, or something else. */
static int check_run(desk *self, run at, bool shut)
{
    const size_t bytes = (at.end - at.begin) * sizeof(int32_t);
    size_t wrong = 0;
    int failures =
        CHECK(weft_device_copy(self->device, self->host, self->recv + at.begin,
                               bytes, NULL) == 0);
    for (size_t i = 0; i < at.end - at.begin; i++) {
        wrong += (self->host[i] == SHUT) != shut;
    }
    return failures + CHECK(wrong == 0);
}

static int let_go(desk *self, size_t chunk)
{
    return CHECK(weft_gate_signal(self->writable, FIRST + chunk, self->epoch,
                                  NULL) == 0);
}

static int arrives(desk *self, size_t chunk)
{
    return CHECK(weft_gate_wait(self->arrived, chunk, self->epoch, NULL) == 0);
}

/* Everybody has entered what was posted before this. */
static int meet(desk *self)
{
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_BARRIER};
    weft_request *request;
    int failures = CHECK(weft_op_begin(&op, 0, self->comm, &request) == 0) +
                   CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures;
}

/* The chunks of op in the order in which they come: one after another. */
static int one_by_one(desk *self, const weft_op *op, const run *runs,
                      size_t count)
{
    size_t order[CHUNKS_MOST], chunks;
    weft_request *request;
    int failures =
        shut_all(self) +
        CHECK(weft_op_arrived_order(op, self->comm, order, CHUNKS_MOST,
                                    &chunks) == 0) +
        CHECK(chunks == count) +
        CHECK(weft_op_begin(op, self->epoch, self->comm, &request) == 0) +
        meet(self);
    for (size_t i = 0; failures == 0 && i < chunks; i++) {
        for (size_t later = i; later < chunks; later++) {
            failures += check_run(self, runs[order[later]], true);
        }
        failures += let_go(self, order[i]) + arrives(self, order[i]) +
                    check_run(self, runs[order[i]], false);
    }
    failures += CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures;
}

static weft_op plain(const desk *self, weft_collective collective, size_t count,
                     size_t gate_elems)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = collective,
                     .send = self->send,
                     .recv = self->recv,
                     .count = count,
                     .dtype = WEFT_DTYPE_I32,
                     .root = collective == WEFT_COLLECTIVE_BROADCAST ||
                                     collective == WEFT_COLLECTIVE_SCATTER
                                 ? ROOT
                                 : 0,
                     .arrived = self->arrived,
                     .gate_elems = gate_elems,
                     .writable = self->writable,
                     .writable_chunk = FIRST};
}

static int even_forms(desk *self)
{
    static const weft_collective forms[] = {
        WEFT_COLLECTIVE_ALLREDUCE,     WEFT_COLLECTIVE_ALLGATHER,
        WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_ALLTOALL,
        WEFT_COLLECTIVE_BROADCAST,     WEFT_COLLECTIVE_SCATTER};
    int failures = 0;
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        const bool parts = forms[f] == WEFT_COLLECTIVE_ALLGATHER ||
                           forms[f] == WEFT_COLLECTIVE_ALLTOALL;
        /* A part of a whole number of chunks: none is in two parts. */
        const size_t part = parts ? 2 * GATE : LARGE;
        const size_t elems = parts ? NRANKS * part : part;
        const weft_op op = plain(self, forms[f], part, GATE);
        run runs[CHUNKS_MOST];
        size_t count = 0;
        for (size_t at = 0; at < elems; at += GATE) {
            const size_t left = elems - at;
            runs[count++] = (run){at, at + (left < GATE ? left : GATE)};
        }
        failures += one_by_one(self, &op, runs, count);
    }
    return failures;
}

/* A chunk for each rank; from rank p come 9000 p elements: of 0 nothing. */
static int uneven_form(desk *self)
{
    size_t out[NRANKS], in[NRANKS], chunk = 0, at = 0;
    run runs[NRANKS];
    for (size_t p = 0; p < NRANKS; p++) {
        out[p] = (size_t)self->rank * 9000;
        in[p] = p * 9000;
        runs[p] = (run){at, at + in[p]};
        at += in[p];
    }
    weft_op op = plain(self, WEFT_COLLECTIVE_ALLTOALLV, 0, WEFT_GATE_PER_RANK);
    op.send_counts = out;
    op.recv_counts = in;
    int failures = one_by_one(self, &op, runs, NRANKS);
    op.gate_elems = 0; /* one chunk */
    weft_request *request;
    failures +=
        shut_all(self) +
        CHECK(weft_op_begin(&op, self->epoch, self->comm, &request) == 0) +
        meet(self) + check_run(self, (run){0, at}, true) + let_go(self, chunk) +
        CHECK(weft_request_wait(request) == 0) +
        check_run(self, (run){0, at}, false);
    weft_request_destroy(request);
    return failures;
}

/* It moves as one: nothing is written until all chunks may be. */
static int small_form(desk *self)
{
    const weft_op op = plain(self, WEFT_COLLECTIVE_ALLREDUCE, SMALL, SMALL / 2);
    weft_request *request;
    int failures =
        shut_all(self) +
        CHECK(weft_op_begin(&op, self->epoch, self->comm, &request) == 0) +
        let_go(self, 1) + meet(self) + check_run(self, (run){0, SMALL}, true) +
        CHECK(weft_request_test(request) == WEFT_INPROGRESS) + let_go(self, 0) +
        CHECK(weft_request_wait(request) == 0) +
        check_run(self, (run){0, SMALL}, false);
    weft_request_destroy(request);
    return failures;
}

/* This rank's own part stands where it belongs: its chunk stays shut. */
static int in_place(desk *self)
{
    weft_op op = plain(self, WEFT_COLLECTIVE_ALLGATHER, GATE, GATE);
    op.send = self->recv + (size_t)self->rank * GATE;
    weft_request *request;
    int failures =
        shut_all(self) +
        CHECK(weft_op_begin(&op, self->epoch, self->comm, &request) == 0);
    for (size_t p = 0; p < NRANKS; p++) {
        failures += p == (size_t)self->rank ? 0 : let_go(self, p);
    }
    failures += CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures;
}

/* A message of three chunks round the ranks, last chunk first, on a stream. */
static int messages(desk *self)
{
    const size_t chunks = 3, elems = (chunks - 1) * GATE + 100;
    weft_stream *stream;
    weft_p2p part = {.size_bytes = sizeof(part),
                     .kind = WEFT_P2P_SEND,
                     .buffer = self->send,
                     .count = elems,
                     .dtype = WEFT_DTYPE_I32,
                     .peer = (self->rank + 1) % NRANKS,
                     .gate_elems = GATE,
                     .chunk_order = WEFT_CHUNK_ORDER_DESCENDING};
    weft_p2p list[2] = {part, part};
    list[1].kind = WEFT_P2P_RECV;
    list[1].buffer = self->recv;
    list[1].peer = (self->rank + NRANKS - 1) % NRANKS;
    list[1].arrived = self->arrived;
    list[1].writable = self->writable;
    list[1].writable_chunk = FIRST;
    int failures = shut_all(self) +
                   CHECK(weft_stream_create(self->device, 0, &stream) == 0);
    list[1].epoch = self->epoch;
    failures +=
        CHECK(weft_p2p_post(list, 2, self->comm, stream) == 0) + meet(self);
    for (size_t chunk = chunks; failures == 0 && chunk-- > 0;) {
        const size_t end = (chunk + 1) * GATE;
        failures += check_run(self, (run){0, end < elems ? end : elems}, true) +
                    let_go(self, chunk) + arrives(self, chunk);
    }
    failures += CHECK(weft_stream_wait(stream) == 0) +
                check_run(self, (run){0, elems}, false);
    weft_stream_destroy(stream);
    return failures;
}

static int refuse(desk *self)
{
    weft_op op = plain(self, WEFT_COLLECTIVE_ALLREDUCE, LARGE, 100);
    int failures =
        CHECK(weft_op_post(&op, 9, self->comm, NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "arrived needs chunks") != NULL);
    op.arrived = NULL;
    failures +=
        CHECK(weft_op_post(&op, 9, self->comm, NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(),
                     "writable needs chunks 2..401: its gate has 34") != NULL);
    op.gate_elems = 0;
    failures +=
        CHECK(weft_op_post(&op, 0, self->comm, NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "epoch 0 with gates") != NULL);
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = WEFT_P2P_SEND,
                           .buffer = self->send,
                           .count = 1,
                           .writable = self->writable,
                           .epoch = 9};
    failures +=
        CHECK(weft_p2p_post(&part, 1, self->comm, NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "a SEND with a gate writable") != NULL);
    return failures;
}

static int work(weft_comm *comm, void *context)
{
    desk self;
    weft_device *device = *(weft_device **)context;
    int failures = set_up(&self, comm, device);
    if (failures == 0) {
        failures += refuse(&self) + even_forms(&self) + uneven_form(&self) +
                    small_form(&self) + in_place(&self) + messages(&self);
    }
    failures += CHECK(weft_barrier(comm, NULL) == 0);
    put_away(&self, device);
    return failures;
}

static void test_chunks_are_overwritten_once_they_may_be(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, work), 0);
}

/* The gate of one rank fails: all ranks learn why. */
static int fail_one(weft_comm *comm, void *context)
{
    static const size_t counts[] = {SMALL, LARGE};
    desk self;
    weft_device *device = *(weft_device **)context;
    weft_comm *part = NULL;
    int failures = set_up(&self, comm, device);
    for (size_t i = 0; failures == 0 && i < 2; i++) {
        failures +=
            CHECK(weft_comm_split(comm, 0, self.rank, NULL, &part) == WEFT_OK);
        weft_op op = plain(&self, WEFT_COLLECTIVE_ALLREDUCE, counts[i], 0);
        op.arrived = NULL;
        self.epoch = i + 1;
        if (self.rank == 1) {
            wefti_gate_fail(self.writable, WEFT_ERR_SYSTEM, "its GPU is gone");
        } else {
            failures += let_go(&self, 0);
        }
        weft_status status = weft_op_post(&op, self.epoch, part, NULL);
        /* A small one may have ended elsewhere before: then the next fails. */
        status = status == WEFT_OK ? weft_barrier(part, NULL) : status;
        failures += CHECK(status == WEFT_ERR_SYSTEM) +
                    CHECK(strstr(weft_error_text(), "its GPU is gone") != NULL);
        weft_comm_destroy(part);
    }
    put_away(&self, device);
    return failures;
}

static void test_failed_gate_is_named_on_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, fail_one), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_are_overwritten_once_they_may_be),
        cmocka_unit_test(test_failed_gate_is_named_on_all_ranks)};
    if (argc > 1) {
        mode = argv[1];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

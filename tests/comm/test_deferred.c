/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an alltoallv whose counts are deferred moves what each rank has once
 * its part is ready, tells the receiver how much came, and writes nothing
 * beyond; a count above its capacity, ranks that do not all defer, and wrong
 * uses are named.
 *
 * Method: counts are drawn anew in each round, empty and full parts and ends at
 * message borders among them, and are written only right before their part is
 * made ready. The receive buffer holds a pattern. Argument: threads or
 * processes, on host memory, else the device: shadow or cuda (the fake driver).
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
    NRANKS = 4,
    ROUNDS = 12,
    CHUNK = (128 << 10) / 4, /* elements of a large message at most */
    MOST = 3 * CHUNK,        /* capacity from one rank to another, at most */
    NEVER = 999,             /* what a count is before it is known */
    SHUT = 0x3c3c3c3c
};

static const char *mode = "threads";

static uint32_t draw(uint32_t seed)
{
    seed = (seed ^ 61) ^ (seed >> 16);
    seed *= 9;
    seed ^= seed >> 4;
    seed *= 0x27d4eb2d;
    return seed ^ (seed >> 15);
}

/* Elements that rank `from` may send to rank `to`: some pairs nothing. */
static size_t capacity(int from, int to)
{
    static const size_t capacities[] = {MOST, 1000, 0, CHUNK, CHUNK + 1, 7};
    return capacities[(from * 5 + to * 3) % 6];
}

/* And really does. */
static size_t count_in(int round, int from, int to)
{
    const size_t most = capacity(from, to);
    const uint32_t drawn =
        draw((uint32_t)(round * 1009 + from * 101 + to * 11 + 1));
    switch (drawn % 5) {
    case 0:
        return 0;
    case 1:
        return most;
    case 2:
        return most < CHUNK ? most / 2 : CHUNK;
    default:
        return drawn / 8 % (most + 1);
    }
}

static int32_t value_of(int round, int from, int to, size_t i)
{
    return (int32_t)(round * 1000003 + from * 10007 + to * 101 + (int)(i % 97));
}

/* What one rank works with. */
typedef struct desk {
    weft_comm *comm;
    int rank;
    weft_device *device;
    weft_gate *ready, *arrived;
    int32_t *send, *recv, *host;
    size_t most_out[NRANKS], most_in[NRANKS];
    size_t counts[NRANKS], came[NRANKS];
} desk;

static const size_t buffer_bytes = (size_t)NRANKS * MOST * sizeof(int32_t);

static bool on_device(void)
{
    return strcmp(mode, "shadow") == 0 || strcmp(mode, "cuda") == 0;
}

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
    for (int p = 0; p < NRANKS; p++) {
        self->most_out[p] = capacity(self->rank, p);
        self->most_in[p] = capacity(p, self->rank);
    }
    return failures +
           CHECK(weft_gate_create(self->device, NRANKS, &self->ready) == 0) +
           CHECK(weft_gate_create(self->device, NRANKS, &self->arrived) == 0) +
           CHECK(weft_device_alloc(self->device, buffer_bytes,
                                   (void **)&self->send) == 0) +
           CHECK(weft_device_alloc(self->device, buffer_bytes,
                                   (void **)&self->recv) == 0);
}

static void put_away(desk *self, const weft_device *shared)
{
    weft_gate_destroy(self->ready);
    weft_gate_destroy(self->arrived);
    weft_device_free(self->device, self->send);
    weft_device_free(self->device, self->recv);
    if (!shared) {
        weft_device_close(self->device);
    }
    free(self->host);
}

static weft_op exchange(desk *self)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = WEFT_COLLECTIVE_ALLTOALLV,
                     .send = self->send,
                     .recv = self->recv,
                     .send_counts = self->most_out,
                     .recv_counts = self->most_in,
                     .dtype = WEFT_DTYPE_I32,
                     .ready = self->ready,
                     .arrived = self->arrived,
                     .gate_elems = WEFT_GATE_PER_RANK,
                     .deferred_counts = self->counts,
                     .arrived_counts = self->came};
}

static size_t place_of(const size_t *capacities, int rank)
{
    size_t at = 0;
    for (int p = 0; p < rank; p++) {
        at += capacities[p];
    }
    return at;
}

static int write_pattern(desk *self)
{
    for (size_t i = 0; i < buffer_bytes / sizeof(int32_t); i++) {
        self->host[i] = SHUT;
    }
    for (int p = 0; p < NRANKS; p++) {
        self->counts[p] = self->most_out[p] ? NEVER : 0;
        self->came[p] = NEVER;
    }
    return CHECK(weft_device_copy(self->device, self->recv, self->host,
                                  buffer_bytes, NULL) == 0);
}

/* Writes what goes to rank `to`, and how much it is. */
static int fill(desk *self, int round, int to)
{
    const size_t count = count_in(round, self->rank, to);
    for (size_t i = 0; i < count; i++) {
        self->host[i] = value_of(round, self->rank, to, i);
    }
    self->counts[to] = count;
    return CHECK(weft_device_copy(
                     self->device, self->send + place_of(self->most_out, to),
                     self->host, count * sizeof(int32_t), NULL) == 0);
}

/* What came from rank `from`, and the pattern behind it. */
static int compare(desk *self, int round, int from)
{
    const size_t count = count_in(round, from, self->rank);
    const size_t most = self->most_in[from];
    size_t wrong = 0;
    int failures =
        CHECK(self->came[from] == count) +
        CHECK(weft_device_copy(self->device, self->host,
                               self->recv + place_of(self->most_in, from),
                               most * sizeof(int32_t), NULL) == 0);
    for (size_t i = 0; i < most; i++) {
        wrong += self->host[i] !=
                 (i < count ? value_of(round, from, self->rank, i) : SHUT);
    }
    return failures + CHECK(wrong == 0);
}

/* Each part is made ready by itself, in an order of the round's own. Long ones
 * go round by round, so all are before the first is awaited. */
static int part_by_part(desk *self, int round)
{
    const uint64_t epoch = (uint64_t)round + 1;
    const weft_op op = exchange(self);
    weft_request *request;
    int failures = write_pattern(self) +
                   CHECK(weft_op_begin(&op, epoch, self->comm, &request) == 0);
    for (int i = 0; failures == 0 && i < NRANKS; i++) {
        const int to = (self->rank + i + round) % NRANKS;
        if (self->most_out[to]) {
            failures += fill(self, round, to) +
                        CHECK(weft_gate_signal(self->ready, (size_t)to, epoch,
                                               NULL) == 0);
        }
    }
    for (int i = 0; failures == 0 && i < NRANKS; i++) {
        const int from = (self->rank + i) % NRANKS;
        failures += CHECK(weft_gate_wait(self->arrived, (size_t)from, epoch,
                                         NULL) == 0) +
                    compare(self, round, from);
    }
    failures += CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures;
}

/* One chunk, or no gates at all; with a plan, on a stream. */
static int as_a_whole(desk *self, int round, bool gated)
{
    const uint64_t epoch = gated ? (uint64_t)round + 1 : 0;
    weft_stream *stream;
    weft_plan *plan;
    weft_op op = exchange(self);
    op.gate_elems = 0;
    op.ready = gated ? self->ready : NULL;
    op.arrived = gated ? self->arrived : NULL;
    int failures = write_pattern(self) +
                   CHECK(weft_op_plan(&op, self->comm, &plan) == 0) +
                   CHECK(weft_stream_create(self->device, 0, &stream) == 0);
    if (gated) {
        failures += CHECK(weft_plan_post(plan, epoch, stream) == 0);
    }
    for (int to = 0; to < NRANKS; to++) {
        failures += self->most_out[to] ? fill(self, round, to) : 0;
    }
    failures +=
        gated ? CHECK(weft_gate_signal(self->ready, 0, epoch, NULL) == 0) +
                    CHECK(weft_gate_wait(self->arrived, 0, epoch, NULL) == 0)
              : CHECK(weft_plan_post(plan, epoch, stream) == 0);
    failures += CHECK(weft_stream_wait(stream) == 0);
    for (int from = 0; from < NRANKS; from++) {
        failures += compare(self, round, from);
    }
    weft_stream_destroy(stream);
    weft_plan_destroy(plan);
    return failures;
}

static int refuse(desk *self)
{
    weft_op op = exchange(self);
    op.collective = WEFT_COLLECTIVE_ALLTOALL;
    op.gate_elems = 0;
    op.count = 1;
    int failures =
        CHECK(weft_op_post(&op, 9, self->comm, NULL) == WEFT_ERR_UNSUPPORTED) +
        CHECK(strstr(weft_error_text(), "deferred_counts in alltoall") != NULL);
    op = exchange(self);
    op.deferred_counts = NULL;
    failures +=
        CHECK(weft_op_post(&op, 9, self->comm, NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "without deferred_counts") != NULL);
    if (on_device()) {
        op = exchange(self);
        op.arrived_counts = (size_t *)(void *)self->recv;
        failures +=
            CHECK(weft_op_post(&op, 9, self->comm, NULL) == WEFT_ERR_INVALID) +
            CHECK(strstr(weft_error_text(),
                         "arrived_counts is memory of the") != NULL);
    }
    return failures;
}

static int work(weft_comm *comm, void *context)
{
    desk self;
    weft_device *device = *(weft_device **)context;
    int failures = set_up(&self, comm, device);
    failures += failures ? 0 : refuse(&self);
    for (int round = 0; failures == 0 && round < ROUNDS; round += 3) {
        failures += part_by_part(&self, round) +
                    as_a_whole(&self, round + 1, true) +
                    as_a_whole(&self, round + 2, false);
    }
    failures += CHECK(weft_barrier(comm, NULL) == 0);
    put_away(&self, device);
    return failures;
}

static void test_deferred_counts_move_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, work), 0);
}

/* What goes wrong on rank 1 alone. */
enum { TOO_MANY, SOME_OF_NONE, NOT_DEFERRED, WRONGS };

static const char *const texts[WRONGS] = {
    [TOO_MANY] = "rank 1 has 8 i32 for rank 2, more than the capacity of 7 "
                 "that both declared",
    [SOME_OF_NONE] = "rank 1 has 1 i32 for rank 3, more than the capacity of 0",
    [NOT_DEFERRED] = "alltoallv of i32, deferred counts"};

static int overflow(weft_comm *comm, void *context)
{
    desk self;
    weft_device *device = *(weft_device **)context;
    weft_comm *part = NULL;
    int failures = set_up(&self, comm, device);
    for (int wrong = 0; failures == 0 && wrong < WRONGS; wrong++) {
        failures +=
            CHECK(weft_comm_split(comm, 0, self.rank, NULL, &part) == WEFT_OK);
        weft_op op = exchange(&self);
        op.ready = op.arrived = NULL;
        for (int p = 0; p < NRANKS; p++) {
            self.most_out[p] = self.most_in[p] = 5;
            self.counts[p] = 3;
        }
        const size_t odd = wrong == SOME_OF_NONE ? 0 : 7;
        const int to = wrong == SOME_OF_NONE ? 3 : 2;
        if (self.rank == 1) {
            self.most_out[to] = odd;
            self.counts[to] = odd + (wrong != NOT_DEFERRED);
        }
        if (self.rank == to) {
            self.most_in[1] = odd;
        }
        if (wrong == NOT_DEFERRED && self.rank == 1) {
            op.deferred_counts = op.arrived_counts = NULL;
        }
        weft_status status = weft_op_post(&op, 0, part, NULL);
        /* Whoever needs nothing of rank 1 learns it in its next. */
        status = status == WEFT_OK ? weft_barrier(part, NULL) : status;
        failures += CHECK(status == WEFT_ERR_MISMATCH) +
                    CHECK(strstr(weft_error_text(), texts[wrong]) != NULL);
        weft_comm_destroy(part);
    }
    put_away(&self, device);
    return failures;
}

static void test_deferred_wrong_is_named_on_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, overflow), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deferred_counts_move_what_there_is),
        cmocka_unit_test(test_deferred_wrong_is_named_on_all_ranks)};
    if (argc > 1) {
        mode = argv[1];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

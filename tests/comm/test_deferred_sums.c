/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a reduce_scatterv whose counts are deferred sums up what ranks have,
 * says how much that is, and writes nothing beyond; a count above its capacity,
 * and one that another rank does not have, are named on all ranks.
 *
 * Method: the counts of a round, empty and full parts and ends at message
 * borders among them, are the same on all ranks; in every other round they are
 * written behind the post, right before the data are made ready. Values are
 * small integers in f32, so sums are exact in any order. In place every third
 * time. Argument: threads, processes, or a device.
 */
#include "tests/comm/deferred_parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20 };

static const float shut = -77;
static const char *mode = "threads";

static float value_of(int rank, int round, int part, size_t i)
{
    return (float)((rank + 1) * ((int)(i % 89) + part) + round);
}

static float sum_of(int round, int part, size_t i)
{
    float sum = 0;
    for (int rank = 0; rank < NRANKS; rank++) {
        sum += value_of(rank, round, part, i);
    }
    return sum;
}

/* What one rank works with: buffers of its device, and what the host writes and
 * reads. */
typedef struct desk {
    weft_comm *comm;
    weft_device *device;
    int rank;
    weft_gate *ready;
    float *send_buffer, *recv_buffer, *send, *recv;
    size_t most[NRANKS], counts[NRANKS], came;
} desk;

static const size_t buffer_elems = (size_t)NRANKS * MOST;
static const size_t buffer_bytes = (size_t)NRANKS * MOST * sizeof(float);

static int copy(const desk *self, void *dst, const void *src, size_t bytes)
{
    return CHECK(weft_device_copy(self->device, dst, src, bytes, NULL) == 0);
}

static weft_op operation(desk *self, bool in_place)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = WEFT_COLLECTIVE_REDUCESCATTERV,
                     .send = self->send_buffer,
                     .recv = in_place ? self->send_buffer + place_of(self->rank)
                                      : self->recv_buffer,
                     .count = capacity(self->rank),
                     .send_counts = self->most,
                     .dtype = WEFT_DTYPE_F32,
                     .redop = WEFT_REDOP_SUM,
                     .deferred_counts = self->counts,
                     .arrived_counts = &self->came};
}

static int write_pattern(desk *self)
{
    for (size_t i = 0; i < buffer_elems; i++) {
        self->send[i] = self->recv[i] = shut;
    }
    for (int p = 0; p < NRANKS; p++) {
        self->counts[p] = capacity(p) ? NEVER : 0;
    }
    self->came = NEVER;
    return copy(self, self->send_buffer, self->send, buffer_bytes) +
           copy(self, self->recv_buffer, self->recv, buffer_bytes);
}

static int fill(desk *self, int round)
{
    for (int part = 0; part < NRANKS; part++) {
        const size_t count = count_in(round, part);
        float *to = self->send + place_of(part);
        for (size_t i = 0; i < count; i++) {
            to[i] = value_of(self->rank, round, part, i);
        }
        if (capacity(part)) { /* else it has been 0 from the post on */
            self->counts[part] = count;
        }
    }
    return copy(self, self->send_buffer, self->send, buffer_bytes);
}

static int compare(desk *self, int round, bool in_place)
{
    const size_t count = count_in(round, self->rank);
    const size_t most = capacity(self->rank);
    const float *at =
        in_place ? self->send_buffer + place_of(self->rank) : self->recv_buffer;
    size_t wrong = 0;
    int failures = CHECK(self->came == count) +
                   copy(self, self->recv, at, most * sizeof(float));
    for (size_t i = 0; i < most; i++) {
        const float kept =
            in_place ? self->send[place_of(self->rank) + i] : shut;
        wrong +=
            self->recv[i] != (i < count ? sum_of(round, self->rank, i) : kept);
    }
    return failures + CHECK(wrong == 0);
}

/* Counts and data become known behind the post, or are there before it. */
static int run_round(desk *self, int round)
{
    const bool later = round % 2 == 1, in_place = round % 3 == 0;
    const uint64_t epoch = later ? (uint64_t)round + 1 : 0;
    weft_op op = operation(self, in_place);
    weft_request *request;
    op.ready = later ? self->ready : NULL;
    op.gate_elems = later && round % 4 == 1 ? WEFT_GATE_PER_RANK : 0;
    int failures = write_pattern(self) + (later ? 0 : fill(self, round)) +
                   CHECK(weft_op_begin(&op, epoch, self->comm, &request) == 0);
    if (failures) {
        return failures;
    }
    failures += later ? fill(self, round) : 0;
    for (size_t chunk = 0; later && chunk < NRANKS; chunk++) {
        failures +=
            CHECK(weft_gate_signal(self->ready, chunk, epoch, NULL) == 0);
    }
    failures += CHECK(weft_request_wait(request) == 0);
    weft_request_destroy(request);
    return failures + (failures ? 0 : compare(self, round, in_place));
}

static int set_up(desk *self, weft_comm *comm, weft_device *device)
{
    *self = (desk){.comm = comm,
                   .rank = weft_comm_get_rank(comm),
                   .device = device,
                   .send = malloc(buffer_bytes),
                   .recv = malloc(buffer_bytes)};
    for (int p = 0; p < NRANKS; p++) {
        self->most[p] = capacity(p);
    }
    int failures = CHECK(self->send && self->recv);
    if (!device) {
        failures += CHECK(weft_device_open("host", 0, &self->device) == 0);
    }
    return failures +
           CHECK(weft_gate_create(self->device, NRANKS, &self->ready) == 0) +
           CHECK(weft_device_alloc(self->device, buffer_bytes,
                                   (void **)&self->send_buffer) == 0) +
           CHECK(weft_device_alloc(self->device, buffer_bytes,
                                   (void **)&self->recv_buffer) == 0);
}

static void put_away(desk *self, const weft_device *shared)
{
    weft_gate_destroy(self->ready);
    weft_device_free(self->device, self->send_buffer);
    weft_device_free(self->device, self->recv_buffer);
    if (!shared) {
        weft_device_close(self->device);
    }
    free(self->send);
    free(self->recv);
}

static int work(weft_comm *comm, void *context)
{
    desk self;
    weft_device *device = *(weft_device **)context;
    int failures = set_up(&self, comm, device);
    for (int i = 0; failures == 0 && i < ROUNDS; i++) {
        failures += run_round(&self, i);
    }
    failures += CHECK(weft_barrier(comm, NULL) == 0);
    put_away(&self, device);
    return failures;
}

static void test_deferred_sums_take_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, work), 0);
}

/* What rank 1 says of the part of rank 3, and what it is told. */
typedef struct fault_case {
    size_t others, odd;
    const char *text;
} fault_case;

static const fault_case faults[] = {
    {7, CHUNK + 2,
     "rank 1 has 32770 f32 for rank 3, more than the capacity of 32769"},
    {7, 6, "deferred counts for rank 3 differ"},
    {CHUNK, 3, "deferred counts for rank 3 differ"}, /* others send more */
    {0, CHUNK + 1, "deferred counts for rank 3 differ"},
};

static int disagree(weft_comm *comm, void *context)
{
    desk self;
    weft_comm *part;
    weft_device *device = *(weft_device **)context;
    int failures = set_up(&self, comm, device);
    for (size_t f = 0; failures == 0 && f < sizeof(faults) / sizeof(*faults);
         f++) {
        failures +=
            write_pattern(&self) +
            CHECK(weft_comm_split(comm, 0, self.rank, NULL, &part) == WEFT_OK);
        memset(self.counts, 0, sizeof(self.counts));
        self.counts[3] = self.rank == 1 ? faults[f].odd : faults[f].others;
        const weft_op op = operation(&self, false);
        weft_status status = weft_op_post(&op, 0, part, NULL);
        /* A rank that needs nothing of rank 1 learns it in its next. */
        status = status == WEFT_OK ? weft_barrier(part, NULL) : status;
        failures += CHECK(status == WEFT_ERR_MISMATCH) +
                    CHECK(strstr(weft_error_text(), faults[f].text) != NULL);
        weft_comm_destroy(part);
    }
    put_away(&self, device);
    return failures;
}

static void test_deferred_sums_that_differ_are_named(void **state)
{
    (void)state;
    assert_int_equal(world_run_as(mode, NRANKS, disagree), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deferred_sums_take_what_there_is),
        cmocka_unit_test(test_deferred_sums_that_differ_are_named)};
    if (argc > 1) {
        mode = argv[1];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

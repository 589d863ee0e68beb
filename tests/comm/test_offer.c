/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what comes over the network is written to the receive buffer itself,
 * and no byte of it once the operation has failed.
 *
 * Method: two ranks that share no memory. Rank 0 sends a long message whose
 * chunks become ready, all but the last; rank 1 ends the communicator when
 * the first chunk is there, with more of it on the way, writes a pattern over
 * its buffer, and meets rank 0 on another communicator, so that all that was on
 * the way has been read. And without a fault: the buffers that arrivals take
 * are few.
 */
#include "comm/core/core.h"
#include "comm/net/inbound.h"
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NRANKS = 2,
    ELEMS = 4 << 20,
    CHUNK = 64 << 10, /* elements, of the gate */
    TRIALS = 12
};

typedef struct desk {
    weft_comm *comm; /* the trial's */
    int rank;
    weft_gate *gate;
    int32_t *buffer;
} desk;

static weft_status begin(desk *self, bool gated, weft_request **request_out)
{
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = self->rank ? WEFT_P2P_RECV : WEFT_P2P_SEND,
                           .buffer = self->buffer,
                           .count = ELEMS,
                           .dtype = WEFT_DTYPE_I32,
                           .peer = 1 - self->rank,
                           .ready = gated && !self->rank ? self->gate : NULL,
                           .arrived = gated && self->rank ? self->gate : NULL,
                           .gate_elems = CHUNK,
                           .epoch = gated};
    return weft_p2p_begin(&part, 1, self->comm, request_out);
}

static void fill(desk *self, int32_t first)
{
    for (int i = 0; i < ELEMS; i++) {
        self->buffer[i] = first + i % 1000;
    }
}

static int count_wrong(const desk *self, int32_t first)
{
    int wrong = 0;
    for (int i = 0; i < ELEMS; i++) {
        wrong += self->buffer[i] != first + i % 1000;
    }
    return wrong;
}

static int send_part(desk *self)
{
    weft_request *request;
    int failures = CHECK(begin(self, true, &request) == WEFT_OK);
    for (size_t chunk = 0; chunk + 1 < ELEMS / CHUNK; chunk++) {
        failures +=
            CHECK(weft_gate_signal(self->gate, chunk, 1, NULL) == WEFT_OK);
    }
    failures += CHECK(weft_request_wait(request) != WEFT_OK);
    weft_request_destroy(request);
    return failures;
}

static int end_early(desk *self)
{
    weft_request *request;
    int failures = CHECK(begin(self, true, &request) == WEFT_OK) +
                   CHECK(weft_gate_wait(self->gate, 0, 1, NULL) == WEFT_OK) +
                   CHECK(weft_comm_abort(self->comm) == WEFT_OK) +
                   CHECK(weft_request_wait(request) != WEFT_OK);
    weft_request_destroy(request);
    fill(self, -5000);
    return failures;
}

static int trial(desk *self, weft_comm *world, weft_device *device)
{
    int failures =
        CHECK(weft_comm_split(world, 0, self->rank, NULL, &self->comm) ==
              WEFT_OK) +
        CHECK(weft_gate_create(device, ELEMS / CHUNK, &self->gate) == WEFT_OK);
    fill(self, 7);
    failures += failures ? 0 : self->rank ? end_early(self) : send_part(self);
    failures += CHECK(weft_barrier(world, NULL) == WEFT_OK);
    failures += self->rank ? CHECK(count_wrong(self, -5000) == 0) : 0;
    weft_comm_destroy(self->comm);
    weft_gate_destroy(self->gate);
    return failures;
}

static int set_up(desk *self, weft_comm *world)
{
    *self = (desk){.rank = weft_comm_get_rank(world),
                   .buffer = malloc(ELEMS * sizeof(int32_t))};
    return CHECK(self->buffer != NULL);
}

static int fail_often(weft_comm *world, void *context)
{
    desk self;
    weft_device *device;
    (void)context;
    int failures = set_up(&self, world) +
                   CHECK(weft_device_open("host", 0, &device) == WEFT_OK);
    for (int i = 0; failures == 0 && i < TRIALS; i++) {
        failures += trial(&self, world, device);
    }
    weft_device_close(device);
    free(self.buffer);
    return failures;
}

/* Rank 1's engine has come to the message: its places are with the network. */
static void await_offer(weft_comm *comm)
{
    const wefti_op *op = comm->queues[0].list[comm->nranks].op;
    bool offered = false;
    while (!offered) {
        pthread_mutex_lock(&comm->engine->lock);
        offered = op->lists[0].offered > 0;
        pthread_mutex_unlock(&comm->engine->lock);
        sched_yield();
    }
}

/* Rank 1 waits for its message before it is sent. */
static int pass_well(weft_comm *world, void *context)
{
    desk self;
    weft_request *request;
    (void)context;
    int failures = set_up(&self, world);
    self.comm = world;
    fill(&self, self.rank ? 0 : 7);
    failures += self.rank ? CHECK(begin(&self, false, &request) == WEFT_OK)
                          : CHECK(weft_barrier(world, NULL) == WEFT_OK);
    if (self.rank && failures == 0) {
        await_offer(world);
    }
    failures += self.rank ? CHECK(weft_barrier(world, NULL) == WEFT_OK)
                          : CHECK(begin(&self, false, &request) == WEFT_OK);
    failures += CHECK(weft_request_wait(request) == WEFT_OK) +
                CHECK(count_wrong(&self, 7) == 0);
    weft_request_destroy(request);
    if (self.rank) {
        const size_t bytes = wefti_inbound_count_bytes(world->fabric.inbound);
        failures += CHECK(world->fabric.net != NULL) +
                    CHECK(bytes < WEFTI_P2P_SLOT_BYTES);
    }
    free(self.buffer);
    return failures;
}

static void test_offer_message_goes_to_its_buffer(void **state)
{
    (void)state;
    struct world world = {.nranks = NRANKS, .call = pass_well};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_offer_failed_operation_is_not_written(void **state)
{
    (void)state;
    struct world world = {.nranks = NRANKS, .call = fail_often};
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offer_message_goes_to_its_buffer),
        cmocka_unit_test(test_offer_failed_operation_is_not_written)};
    setenv("WEFT_DOMAIN", "a,b", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

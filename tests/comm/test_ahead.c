/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: how far a rank sends ahead of one that is not ready to reduce: two
 * messages where ranks share memory, eight where they do not, as many as the
 * staging holds of long ones; results are exact in each case.
 *
 * Method: a reduce-scatter and an all-reduce of two ranks, of which rank 1 has
 * made nothing yet; what rank 0 has staged is read under the engine's lock.
 * Threads, in one domain or in two.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "base/clock.h"
#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { NRANKS = 2, BLOCKS = 20, LONG_BYTES = 512 << 10 };
static const int64_t DEADLINE_NS = INT64_C(30000000000);

/* ahead: messages that rank 0 is to have staged and sent; pthread_barrier: it
 * has. */
typedef struct scene {
    weft_collective collective;
    size_t gate_elems; /* each chunk is one message */
    uint64_t ahead;
    pthread_barrier_t barrier;
} scene;

/* What the only operation that runs has staged on its first channel, and
 * whether all that its channels may stage fits. */
static uint64_t count_sends(weft_comm *comm, bool *fits_out)
{
    uint64_t sends = 0;
    pthread_mutex_lock(&comm->engine->lock);
    for (int op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        const wefti_op *op = &comm->ops[op_slot];
        if (op->state == WEFTI_OP_RUNNING) {
            size_t slots = 0;
            for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
                slots += (size_t)op->slots[channel];
            }
            sends = op->sends[0];
            *fits_out = slots * op->slot_bytes <= WEFTI_STAGING_BYTES;
        }
    }
    pthread_mutex_unlock(&comm->engine->lock);
    return sends;
}

/* Until rank 0 has sent as far ahead as it may. */
static int await_ahead(weft_comm *comm, uint64_t ahead)
{
    const int64_t until_ns = wefti_clock_ns() + DEADLINE_NS;
    bool fits = false;
    uint64_t sends = 0;
    while (sends < ahead && wefti_clock_ns() < until_ns) {
        sched_yield();
        sends = count_sends(comm, &fits);
    }
    return CHECK(sends == ahead) + CHECK(fits);
}

static int make_all(const scene *on, weft_gate *ready, int32_t *send,
                    size_t elems, int rank)
{
    int failures = 0;
    for (size_t e = 0; e < elems; e++) {
        send[e] = (int32_t)(e % 1009) * (rank + 1);
    }
    for (size_t chunk = 0; chunk < elems / on->gate_elems; chunk++) {
        failures += CHECK(weft_gate_signal(ready, chunk, 1, NULL) == WEFT_OK);
    }
    return failures;
}

static int send_ahead(weft_comm *comm, void *context)
{
    scene *on = context;
    const int rank = weft_comm_get_rank(comm);
    const bool parts = on->collective == WEFT_COLLECTIVE_REDUCESCATTER;
    const size_t count = on->gate_elems * BLOCKS;
    const size_t elems = parts ? NRANKS * count : count;
    int32_t *send = calloc(elems, sizeof(*send));
    int32_t *recv = calloc(count, sizeof(*recv));
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready;
    int failures =
        CHECK(send && recv) +
        CHECK(weft_device_open("host", 0, &device) == WEFT_OK) +
        CHECK(weft_stream_create(device, 0, &stream) == WEFT_OK) +
        CHECK(weft_gate_create(device, NRANKS * BLOCKS, &ready) == WEFT_OK);
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = on->collective,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .dtype = WEFT_DTYPE_I32,
                        .ready = ready,
                        .gate_elems = on->gate_elems};
    failures += CHECK(weft_op_post(&op, 1, comm, stream) == WEFT_OK);
    if (rank == 0) {
        failures += make_all(on, ready, send, elems, rank);
        failures += await_ahead(comm, on->ahead);
    }
    pthread_barrier_wait(&on->barrier);
    if (rank == 1) {
        failures += make_all(on, ready, send, elems, rank);
    }
    failures += CHECK(weft_stream_wait(stream) == WEFT_OK);
    const size_t begin = parts ? (size_t)rank * count : 0;
    size_t wrong = 0;
    for (size_t e = 0; e < count; e++) {
        wrong += recv[e] != 3 * (int32_t)((begin + e) % 1009);
    }
    failures += CHECK(wrong == 0);
    weft_stream_destroy(stream);
    weft_gate_destroy(ready);
    weft_device_close(device);
    free(send);
    free(recv);
    return failures;
}

static void run(const char *domains, weft_collective collective,
                size_t message_bytes, uint64_t ahead)
{
    char bytes[16];
    scene on = {.collective = collective,
                .gate_elems = message_bytes / sizeof(int32_t),
                .ahead = ahead};
    struct world world = {.nranks = NRANKS, .call = send_ahead, .context = &on};
    snprintf(bytes, sizeof(bytes), "%zu", message_bytes);
    setenv("WEFT_CHUNK_BYTES", bytes, 1);
    setenv("WEFT_TEST_DOMAINS", domains, 1);
    setenv("WEFT_ALGO", "all_reduce:direct", 1);
    assert_int_equal(pthread_barrier_init(&on.barrier, NULL, NRANKS), 0);
    assert_int_equal(world_run_threads(&world), 0);
    pthread_barrier_destroy(&on.barrier);
}

static void test_shared_memory_stages_two_messages(void **state)
{
    (void)state;
    run("shared", WEFT_COLLECTIVE_REDUCESCATTER, 8192, 2);
    run("shared", WEFT_COLLECTIVE_ALLREDUCE, 8192, 2);
}

static void test_network_stages_eight_messages(void **state)
{
    (void)state;
    run("apart", WEFT_COLLECTIVE_REDUCESCATTER, 8192, 8);
    run("apart", WEFT_COLLECTIVE_ALLREDUCE, 8192, 8);
}

/* The staging buffer holds eight of them: all, or what the second channel
 * leaves. */
static void test_long_messages_stage_what_a_staging_holds(void **state)
{
    (void)state;
    run("apart", WEFT_COLLECTIVE_REDUCESCATTER, LONG_BYTES, 8);
    run("apart", WEFT_COLLECTIVE_ALLREDUCE, LONG_BYTES, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory_stages_two_messages),
        cmocka_unit_test(test_network_stages_eight_messages),
        cmocka_unit_test(test_long_messages_stage_what_a_staging_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    weft_comm_abort, from a thread of its own, ends whatever its ranks
 *         are in: every phase of every kind of call, soon, with one status.
 * Method  one rank is put into a call that cannot end by itself, because its
 *         peer stays away or its own gate stays down; a second thread aborts
 *         after a random moment (seed printed). Then the peer tries as well.
 *         The others' error names the rank and how far it had come.
 */
#include "base/clock.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGE = 1 << 20, SOON_MS = 10000, ROUNDS = 6 };

/* What rank 0 is in when it is aborted. */
typedef enum phase {
    IN_BARRIER,
    IN_ONE_SHOT,
    IN_LARGE,
    IN_SEND,
    IN_RECV,
    IN_SPLIT,
    IN_CREATE_FROM,
    IN_STREAM,
    IN_GATED, /* its own data are not ready */
    PHASES
} phase;

typedef struct scene {
    phase where;
    long after_us;
    float *large[2];
} scene;

static void *abort_later(void *argument)
{
    void **both = argument;
    const scene *own = both[1];
    struct timespec nap = {0, own->after_us * 1000};
    nanosleep(&nap, NULL);
    return weft_comm_abort(both[0]) == WEFT_OK ? NULL : argument;
}

/* On a stream behind an operation that waits for a gate nobody raises. */
static weft_status wait_for_stream(weft_comm *comm, bool gated)
{
    static float value[2];
    float *own = &value[weft_comm_get_rank(comm)];
    weft_device *device;
    weft_stream *stream = NULL;
    weft_gate *ready = NULL;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = own,
                  .recv = own,
                  .count = 1,
                  .dtype = WEFT_DTYPE_F32,
                  .redop = WEFT_REDOP_SUM};
    weft_status status = weft_device_open("host", 0, &device);
    if (status == WEFT_OK) {
        status = weft_stream_create(device, 0, &stream);
    }
    if (status == WEFT_OK) {
        status = weft_gate_create(device, 1, &ready);
    }
    op.ready = gated ? ready : NULL;
    if (status == WEFT_OK) {
        status = weft_op_post(&op, gated, comm, stream);
    }
    if (status == WEFT_OK) {
        status = weft_stream_wait(stream);
    }
    weft_stream_destroy(stream);
    weft_gate_destroy(ready);
    weft_device_close(device);
    return status;
}

static weft_status be_in(const scene *own, weft_comm *comm)
{
    static const int list[] = {0, 1};
    int rank = weft_comm_get_rank(comm);
    float *large = own->large[rank], small = 1;
    weft_comm *part;
    switch (own->where) {
    case IN_ONE_SHOT:
        return weft_allreduce(&small, &small, 1, WEFT_DTYPE_F32, WEFT_REDOP_SUM,
                              comm, NULL);
    case IN_LARGE:
        return weft_allreduce(large, large, LARGE, WEFT_DTYPE_F32,
                              WEFT_REDOP_SUM, comm, NULL);
    case IN_SEND:
        return weft_send(large, LARGE, WEFT_DTYPE_F32, !rank, comm, NULL);
    case IN_RECV:
        return weft_recv(large, LARGE, WEFT_DTYPE_F32, !rank, comm, NULL);
    case IN_SPLIT:
        return weft_comm_split(comm, 0, 0, NULL, &part);
    case IN_CREATE_FROM:
        return weft_comm_create_from(comm, list, 2, NULL, &part);
    case IN_STREAM:
    case IN_GATED:
        return wait_for_stream(comm, own->where == IN_GATED);
    case IN_BARRIER:
    case PHASES:
        break;
    }
    return weft_barrier(comm, NULL);
}

/* Rank 0 is in it alone, and is taken out of it by its second thread. */
static int be_aborted(weft_comm *world, void *context)
{
    scene *own = context;
    weft_comm *comm;
    if (weft_comm_split(world, 0, 0, NULL, &comm) != WEFT_OK) {
        return 1;
    }
    int rank = weft_comm_get_rank(comm), failures = 0;
    if (rank == 0) {
        void *both[] = {comm, own}, *failed;
        int64_t begin_ns = wefti_clock_ns();
        pthread_t thread;
        if (pthread_create(&thread, NULL, abort_later, both) != 0) {
            abort();
        }
        weft_status status = be_in(own, comm);
        int64_t took_ms = (wefti_clock_ns() - begin_ns) / 1000000;
        pthread_join(thread, &failed);
        failures += failed != NULL;
        if (status != WEFT_ERR_ABORTED || took_ms > SOON_MS) {
            fprintf(stderr, "phase %d: %s: \"%s\" after %lld ms\n",
                    (int)own->where, weft_status_text(status),
                    weft_error_text(), (long long)took_ms);
            failures++;
        }
    }
    failures += weft_barrier(world, NULL) != WEFT_OK; /* it is not aborted */
    weft_status late = be_in(own, comm);
    if (late != WEFT_ERR_ABORTED) {
        fprintf(stderr, "phase %d, later: rank %d: %s\n", (int)own->where, rank,
                weft_status_text(late));
        failures++;
    }
    weft_comm_destroy(comm);
    return failures;
}

static void test_abort_ends_every_phase(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    scene own = {
        .large = {calloc(LARGE, sizeof(float)), calloc(LARGE, sizeof(float))}};
    assert_true(own.large[0] && own.large[1]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int where = 0; where < PHASES; where++) {
            own.where = (phase)where;
            own.after_us = (long)(random_next(&seed) % 3000);
            struct world world = {
                .nranks = 2, .call = be_aborted, .context = &own};
            assert_int_equal(world_run_threads(&world), 0);
        }
    }
    free(own.large[0]);
    free(own.large[1]);
}

/* Many threads abort one communicator at once, of both ranks. */
static int abort_all_at_once(weft_comm *comm, void *context)
{
    scene now = {.after_us = 0};
    void *both[] = {comm, &now}, *failed;
    pthread_t threads[4];
    int32_t never;
    int failures = 0;
    (void)context;
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, abort_later, both) != 0) {
            abort();
        }
    }
    failures += weft_recv(&never, 1, WEFT_DTYPE_I32, !weft_comm_get_rank(comm),
                          comm, NULL) != WEFT_ERR_ABORTED;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        failures += failed != NULL;
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    failures += weft_comm_get_fault(comm, &fault) != WEFT_OK ||
                fault.status != WEFT_ERR_ABORTED || fault.rank < 0 ||
                fault.rank > 1;
    return failures;
}

static void test_abort_by_many_threads_is_one_abort(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct world world = {.nranks = 2, .call = abort_all_at_once};
        assert_int_equal(world_run_threads(&world), 0);
    }
    assert_int_equal(weft_comm_abort(NULL), WEFT_ERR_INVALID);
}

/* Rank 1 aborts behind its second operation; its communicator's making is
 * the first by number. */
static int hear_of_abort(weft_comm *comm, void *context)
{
    const int rank = weft_comm_get_rank(comm);
    float value = 0;
    (void)context;
    weft_status status = weft_barrier(comm, NULL);
    if (status == WEFT_OK) {
        status = weft_allreduce(&value, &value, 1, WEFT_DTYPE_F32,
                                WEFT_REDOP_SUM, comm, NULL);
    }
    if (rank == 1 && (status != WEFT_OK || weft_comm_abort(comm) != WEFT_OK)) {
        return 1;
    }
    if (status == WEFT_OK) { /* rank 0 may have been too slow to end it */
        status = weft_barrier(comm, NULL);
    }
    if (status != WEFT_ERR_ABORTED ||
        strcmp(weft_error_text(),
               "rank 1 aborted \"world\" (its last: #3 all_reduce)") != 0) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, weft_status_text(status),
                weft_error_text());
        return 1;
    }
    return 0;
}

static void test_abort_names_rank_and_its_last_operation(void **state)
{
    struct world world = {.nranks = 2, .call = hear_of_abort};
    (void)state;
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_ends_every_phase),
        cmocka_unit_test(test_abort_by_many_threads_is_one_abort),
        cmocka_unit_test(test_abort_names_rank_and_its_last_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

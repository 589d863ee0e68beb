/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: while the bytes of one operation move, its rank goes on with all
 * others; and it ends, well or not, when nothing of it moves any more.
 *
 * Method: the bytes are those of a program's reduction, which stands still
 * until the test lets it go: so what is seen meanwhile is seen while they move,
 * whatever the machine does. It gives up after HANG_S, which fails the test.
 * And threads that drive one rank's operations side by side, results compared.
 * Threads.
 */
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    RANKS = 2,
    HANG_S = 45,
    SMALL = 2,
    LARGE = 1 << 19, /* elements, 2 MiB */
    OPS = 4,
    ROUNDS = 12
};

/* A rank's reduction. */
typedef struct gatekeeper {
    _Atomic bool open;
    _Atomic int inside, most, calls, gave_up;
} gatekeeper;

static void pause_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* A sum, once the gate is open. */
static void add_slowly(void *context, void *inout, const void *in, size_t count,
                       weft_dtype dtype)
{
    gatekeeper *self = context;
    const int inside = atomic_fetch_add(&self->inside, 1) + 1;
    (void)dtype;
    if (inside > atomic_load(&self->most)) {
        atomic_store(&self->most, inside);
    }
    atomic_fetch_add(&self->calls, 1);
    for (int ms = 0; !atomic_load(&self->open); ms++) {
        if (ms >= HANG_S * 1000) {
            atomic_fetch_add(&self->gave_up, 1);
            break;
        }
        pause_ms(1);
    }
    for (size_t i = 0; i < count; i++) {
        ((float *)inout)[i] += ((const float *)in)[i];
    }
    atomic_fetch_sub(&self->inside, 1);
}

/* What a rank has: one communicator that is held, and another. */
typedef struct scene {
    gatekeeper gate;
    weft_comm *held, *other;
    weft_redop redop;
    float *data;
    weft_request *request;
} scene;

static int fill(float *data, size_t count, float value)
{
    for (size_t i = 0; data && i < count; i++) {
        data[i] = value;
    }
    return data == NULL;
}

static int count_wrong(const float *data, size_t count, float value)
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += data[i] != value;
    }
    return wrong > 0;
}

/* A sum by the reduction is begun; and it is at its bytes on all ranks. */
static int hold(scene *self, weft_comm *comm)
{
    int failures = 0;
    weft_op op = all_reduce_op(self->data, LARGE, WEFT_DTYPE_F32);
    self->other = comm;
    failures += fill(self->data, LARGE, 1);
    failures += expect(
        weft_comm_split(comm, 0, weft_comm_get_rank(comm), NULL, &self->held),
        WEFT_OK, NULL);
    failures += expect(weft_redop_create_user(self->held, "slowly", add_slowly,
                                              &self->gate, &op.redop),
                       WEFT_OK, NULL);
    failures += expect(weft_op_begin(&op, 0, self->held, &self->request),
                       WEFT_OK, NULL);
    for (int ms = 0; ms < HANG_S * 1000 && !atomic_load(&self->gate.inside);
         ms++) {
        pause_ms(1);
    }
    return failures + CHECK(atomic_load(&self->gate.inside) == 1) +
           expect(weft_barrier(self->other, NULL), WEFT_OK, NULL);
}

/* All that a rank does beside it ends, while it is held. */
static int do_others(scene *self)
{
    const int peer = 1 - weft_comm_get_rank(self->other);
    float small[SMALL], come[SMALL];
    float *large = malloc(LARGE * sizeof(float));
    int failures = fill(small, SMALL, 2) + fill(large, LARGE, 3);
    failures += expect(weft_allreduce(small, small, SMALL, WEFT_DTYPE_F32,
                                      WEFT_REDOP_SUM, self->other, NULL),
                       WEFT_OK, NULL);
    failures += CHECK(count_wrong(small, SMALL, 2 * RANKS) == 0);
    failures += expect(weft_allreduce(large, large, LARGE, WEFT_DTYPE_F32,
                                      WEFT_REDOP_SUM, self->other, NULL),
                       WEFT_OK, NULL);
    failures += CHECK(count_wrong(large, LARGE, 3 * RANKS) == 0);
    const weft_p2p list[] = {{.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_SEND,
                              .buffer = small,
                              .count = SMALL,
                              .dtype = WEFT_DTYPE_F32,
                              .peer = peer},
                             {.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_RECV,
                              .buffer = come,
                              .count = SMALL,
                              .dtype = WEFT_DTYPE_F32,
                              .peer = peer}};
    failures += expect(weft_p2p_post(list, 2, self->held, NULL), WEFT_OK, NULL);
    failures += CHECK(count_wrong(come, SMALL, 2 * RANKS) == 0);
    free(large);
    return failures + CHECK(atomic_load(&self->gate.inside) == 1);
}

static int let_go(scene *self, weft_status wanted)
{
    atomic_store(&self->gate.open, true);
    int failures = expect(weft_request_wait(self->request), wanted, NULL);
    failures += CHECK(atomic_load(&self->gate.inside) == 0);
    weft_request_destroy(self->request);
    return failures + CHECK(atomic_load(&self->gate.gave_up) == 0);
}

static scene *make_scene(void)
{
    scene *self = calloc(1, sizeof(*self));
    if (self) {
        self->data = malloc(LARGE * sizeof(float));
    }
    return self;
}

static void end_scene(scene *self)
{
    free(self->data);
    free(self);
}

static int go_on(weft_comm *comm, void *context)
{
    scene *self = make_scene();
    (void)context;
    int failures = hold(self, comm) + do_others(self);
    failures += let_go(self, WEFT_OK);
    failures += CHECK(count_wrong(self->data, LARGE, RANKS) == 0);
    weft_comm_destroy(self->held);
    end_scene(self);
    return failures;
}

/* It fails at once for who asks, and for its poster when it is let go. */
static int abort_held(weft_comm *comm, void *context)
{
    scene *self = make_scene();
    weft_fault fault = {.size_bytes = sizeof(fault)};
    (void)context;
    int failures = hold(self, comm);
    if (weft_comm_get_rank(comm) == 0) {
        failures += expect(weft_comm_abort(self->held), WEFT_OK, NULL);
    }
    failures += expect(weft_barrier(comm, NULL), WEFT_OK, NULL);
    failures += expect(weft_comm_get_fault(self->held, &fault), WEFT_OK, NULL);
    failures += CHECK(fault.status == WEFT_ERR_ABORTED && fault.rank == 0);
    failures += expect(weft_barrier(self->held, NULL), WEFT_ERR_ABORTED, NULL);
    failures += expect(weft_request_test(self->request), WEFT_INPROGRESS, NULL);
    failures += let_go(self, WEFT_ERR_ABORTED);
    weft_comm_destroy(self->held);
    end_scene(self);
    return failures;
}

static void *open_soon(void *argument)
{
    gatekeeper *gate = argument;
    pause_ms(50);
    atomic_store(&gate->open, true);
    return NULL;
}

/* The communicator is there until the reduction has returned. */
static int destroy_held(weft_comm *comm, void *context)
{
    const bool *aborted = context;
    scene *self = make_scene();
    pthread_t opener;
    int failures = hold(self, comm);
    if (*aborted) {
        failures += expect(weft_comm_abort(self->held), WEFT_OK, NULL);
    }
    if (pthread_create(&opener, NULL, open_soon, &self->gate) != 0) {
        return failures + 1;
    }
    weft_comm_destroy(self->held);
    failures += CHECK(atomic_load(&self->gate.inside) == 0);
    pthread_join(opener, NULL);
    failures += expect(weft_request_test(self->request),
                       *aborted ? WEFT_ERR_ABORTED : WEFT_OK, NULL);
    failures += CHECK(*aborted || !count_wrong(self->data, LARGE, RANKS));
    weft_request_destroy(self->request);
    failures += CHECK(atomic_load(&self->gate.gave_up) == 0);
    end_scene(self);
    return failures;
}

/* One of a rank's threads, on a communicator of its own. */
typedef struct crew {
    weft_comm *comm;
    weft_redop redop;
    int failures;
} crew;

static void *sum_often(void *argument)
{
    crew *self = argument;
    float *data[OPS];
    weft_request *requests[OPS];
    for (int i = 0; i < OPS; i++) {
        data[i] = malloc(LARGE * sizeof(float));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < OPS; i++) {
            weft_op op = all_reduce_op(data[i], LARGE >> i, WEFT_DTYPE_F32);
            op.redop = i % 2 ? WEFT_REDOP_SUM : self->redop;
            op.class_id = i ? WEFT_CLASS_DP : WEFT_CLASS_TP;
            self->failures += fill(data[i], LARGE >> i, (float)(round + i));
            self->failures += expect(
                weft_op_begin(&op, 0, self->comm, &requests[i]), WEFT_OK, NULL);
        }
        for (int i = 0; i < OPS; i++) {
            self->failures +=
                expect(weft_request_wait(requests[i]), WEFT_OK, NULL);
            self->failures += CHECK(!count_wrong(data[i], LARGE >> i,
                                                 (float)(RANKS * (round + i))));
            weft_request_destroy(requests[i]);
        }
    }
    for (int i = 0; i < OPS; i++) {
        free(data[i]);
    }
    return NULL;
}

/* Three threads of a rank, and its progress thread, drive all three. */
static int share(weft_comm *comm, void *context)
{
    gatekeeper gates[3] = {{.open = true}, {.open = true}, {.open = true}};
    crew crews[3] = {{0}};
    pthread_t threads[3];
    int failures = 0;
    (void)context;
    for (int i = 0; i < 3; i++) {
        failures += expect(weft_comm_split(comm, 0, weft_comm_get_rank(comm),
                                           NULL, &crews[i].comm),
                           WEFT_OK, NULL);
        failures +=
            expect(weft_redop_create_user(crews[i].comm, "slowly", add_slowly,
                                          &gates[i], &crews[i].redop),
                   WEFT_OK, NULL);
    }
    for (int i = 0; i < 3; i++) {
        failures +=
            pthread_create(&threads[i], NULL, sum_often, &crews[i]) != 0;
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        failures += crews[i].failures + CHECK(atomic_load(&gates[i].most) == 1);
        weft_comm_destroy(crews[i].comm);
    }
    return failures;
}

static void run(world_rank_call call, void *context)
{
    const struct world world = {.nranks = RANKS,
                                .call = call,
                                .context = context,
                                .deadline_s = 2 * HANG_S};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_others_go_on_beside_a_held_operation(void **state)
{
    (void)state;
    run(go_on, NULL);
}

static void test_abort_of_a_held_operation_returns_and_ends_it(void **state)
{
    (void)state;
    run(abort_held, NULL);
}

static void test_destroy_waits_for_a_held_operation(void **state)
{
    (void)state;
    for (int aborted = 0; aborted < 2; aborted++) {
        run(destroy_held, &(bool){aborted});
    }
}

static void test_threads_share_the_bytes(void **state)
{
    (void)state;
    run(share, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_go_on_beside_a_held_operation),
        cmocka_unit_test(test_abort_of_a_held_operation_returns_and_ends_it),
        cmocka_unit_test(test_destroy_waits_for_a_held_operation),
        cmocka_unit_test(test_threads_share_the_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

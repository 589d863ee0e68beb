/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a thread that is in weft_request_wait, _test or _destroy while another
 * one destroys the communicator returns how the request ended, and touches
 * nothing that is gone: the destroy returns after it.
 *
 * Method: two ranks as threads. One round keeps the waiting thread inside, in
 * its communicator's idle function, and looks whether the destroy returns
 * meanwhile. Many rounds, each with a job of its own, so that the engine ends
 * too, begin a sum, hand its request to a thread of each kind and destroy the
 * communicator at once; in some of them a rank does not come, and the time
 * limit ends the request. What is used after its end, a sanitizer sees.
 */
#include "base/clock.h"
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

enum { RANKS = 2, ROUNDS = 84, COUNT = 3000, LATE_EVERY = 7 };

typedef enum use_kind { WAITS, TESTS, DESTROYS, USES } use_kind;

typedef struct user {
    weft_request *request;
    use_kind kind;
    weft_status status;
    _Atomic bool begun;
} user;

static void *use(void *argument)
{
    user *own = argument;
    atomic_store(&own->begun, true);
    own->status = WEFT_OK;
    if (own->kind == WAITS) {
        own->status = weft_request_wait(own->request);
    }
    if (own->kind == TESTS) {
        do {
            own->status = weft_request_test(own->request);
            sched_yield();
        } while (own->status == WEFT_INPROGRESS);
    }
    weft_request_destroy(own->request);
    return NULL;
}

/* Destroys comm while a thread uses a request of it. Returns how that ended. */
static weft_status destroy_beside(weft_comm *comm, float *data, use_kind kind)
{
    user own = {.kind = kind, .begun = false};
    pthread_t thread;
    const weft_op op = all_reduce_op(data, COUNT, WEFT_DTYPE_F32);
    if (weft_op_begin(&op, 0, comm, &own.request) != WEFT_OK ||
        pthread_create(&thread, NULL, use, &own) != 0) {
        abort();
    }
    while (!atomic_load(&own.begun)) {
        sched_yield();
    }
    weft_comm_destroy(comm);
    pthread_join(thread, NULL);
    return own.status;
}

/* Its ranks meet once it is made, so that none fails in it. */
static weft_comm *make_brief(weft_comm *comm)
{
    weft_comm *made = NULL;
    weft_unique_id id = {0};
    if ((weft_comm_get_rank(comm) == 0 &&
         weft_unique_id_create(&id) != WEFT_OK) ||
        weft_broadcast(&id, &id, sizeof(id), WEFT_DTYPE_U8, 0, comm, NULL) !=
            WEFT_OK) {
        abort();
    }
    const weft_comm_config config = {.size_bytes = sizeof(config),
                                     .id = &id,
                                     .rank = weft_comm_get_rank(comm),
                                     .nranks = RANKS,
                                     .timeout_ms = 30000};
    return weft_comm_create(&config, &made) == WEFT_OK &&
                   weft_barrier(made, NULL) == WEFT_OK
               ? made
               : NULL;
}

static int destroy_again(weft_comm *comm, void *context)
{
    float *data = calloc(COUNT, sizeof(*data));
    int failures = 0;
    (void)context;
    for (int round = 0; round < ROUNDS; round++) {
        const bool late = round % LATE_EVERY == 0;
        weft_comm *made = make_brief(comm);
        if (!made) {
            free(data);
            return failures + 1;
        }
        for (int i = 0; i < COUNT; i++) {
            data[i] = (float)(round + i % 7);
        }
        if (late && weft_comm_get_rank(comm) == 1) {
            weft_comm_destroy(made);
            continue;
        }
        const use_kind kind = round % USES;
        const weft_status status = destroy_beside(made, data, kind);
        const bool ended = status == WEFT_OK && (late || kind == DESTROYS ||
                                                 data[6] == 2.F * (round + 6));
        const bool failed = status == WEFT_ERR_PEER ||
                            status == WEFT_ERR_ABORTED ||
                            status == WEFT_ERR_TIMEOUT;
        if (late && kind != DESTROYS ? !failed : !ended) {
            fprintf(stderr, "round %d, rank %d: %s, %g\n", round,
                    weft_comm_get_rank(comm), weft_status_text(status),
                    (double)data[6]);
            failures++;
        }
    }
    free(data);
    return failures;
}

static void test_destroy_beside_calls_ends_them(void **state)
{
    const struct world world = {
        .nranks = RANKS,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = destroy_again};
    (void)state;
    assert_int_equal(world_run_threads(&world), 0);
}

/* ---- inside ---------------------------------------------------------------
 */

enum { STAYS_MS = 60 };

/* in: the waiting thread is in the idle function; it stays there for a while.
 * early: the communicator was gone then. */
typedef struct stay {
    _Atomic bool in, destroyed, early;
} stay;

static void stay_inside(void *context)
{
    stay *at = context;
    if (!at || atomic_exchange(&at->in, true)) {
        return;
    }
    const int64_t until_ns = wefti_clock_ns() + STAYS_MS * INT64_C(1000000);
    while (wefti_clock_ns() < until_ns) {
        sched_yield();
    }
    atomic_store(&at->early, atomic_load(&at->destroyed));
}

/* Rank 1 joins the sum when rank 0's thread is inside; so the request ends, and
 * the destroy begins, while that thread stays. */
static int destroy_under_wait(weft_comm *comm, void *context)
{
    static stay at;
    static float data[RANKS][COUNT];
    const int rank = weft_comm_get_rank(comm);
    weft_comm *part = NULL;
    weft_comm_config config = {.size_bytes = sizeof(config)};
    (void)context;
    if (rank == 0) {
        config.idle = stay_inside;
        config.idle_context = &at;
    }
    if (weft_comm_split(comm, 0, 0, &config, &part) != WEFT_OK) {
        return 1;
    }
    atomic_store(&at.in, false);
    int failures = weft_barrier(comm, NULL) != WEFT_OK;
    const weft_op op = all_reduce_op(data[rank], COUNT, WEFT_DTYPE_F32);
    user own = {.kind = WAITS, .begun = false};
    pthread_t thread;
    if (rank == 1) {
        while (!atomic_load(&at.in)) {
            sched_yield();
        }
    }
    failures += weft_op_begin(&op, 0, part, &own.request) != WEFT_OK;
    if (failures || pthread_create(&thread, NULL, use, &own) != 0) {
        return failures + 1;
    }
    while (!atomic_load(&at.in)) {
        sched_yield();
    }
    weft_comm_destroy(part);
    if (rank == 0) {
        atomic_store(&at.destroyed, true);
    }
    pthread_join(thread, NULL);
    failures += own.status != WEFT_OK;
    return failures + (rank == 0 && atomic_load(&at.early));
}

static void test_destroy_returns_after_a_wait_inside(void **state)
{
    const struct world world = {
        .nranks = RANKS,
        .config = {.size_bytes = sizeof(weft_comm_config)},
        .call = destroy_under_wait};
    (void)state;
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_destroy_returns_after_a_wait_inside),
        cmocka_unit_test(test_destroy_beside_calls_ends_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

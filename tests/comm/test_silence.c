/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: nobody waits for ever where each rank has a reason to wait: ranks in
 * large operations of which no one has anything for the other, a rank whose own
 * gate stays shut while it also waits for a peer, a message to oneself that
 * nobody takes, a rank that says it waits and holds all up. All hear of it,
 * with the cause where it can be known.
 *
 * Method: worlds of threads. Every pair of collectives and of roots, large
 * enough that nothing goes through without the other side; gates of which one
 * rank never raises the last chunk; and time limits of a few hundred
 * milliseconds where only time can tell.
 */
#include "tests/comm/world.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/watch/waits.h"

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

/* No buffer of so many floats fits into what a rank can stage. */
enum { RANKS = 3, ODD = 1, ELEMS = 400000, BARRIERS = 20, TRIES = 3 };

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_ALLREDUCE, WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_ALLGATHER, WEFT_COLLECTIVE_REDUCESCATTER,
    WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_ALLTOALL,
    WEFT_COLLECTIVE_GATHER,    WEFT_COLLECTIVE_SCATTER,
    WEFT_COLLECTIVE_BARRIER};

/* What most ranks post, and what rank ODD does. */
struct pair {
    weft_collective most, odd;
    int odd_root;
};

/* As many elements as make the larger buffer ELEMS long. */
static size_t count_of(weft_collective collective)
{
    bool whole = collective == WEFT_COLLECTIVE_ALLREDUCE ||
                 collective == WEFT_COLLECTIVE_REDUCE ||
                 collective == WEFT_COLLECTIVE_BROADCAST;
    return whole ? ELEMS : ELEMS / RANKS;
}

static int differ(weft_comm *comm, void *context)
{
    const struct pair *pair = context;
    int rank = weft_comm_get_rank(comm);
    weft_collective mine = rank == ODD ? pair->odd : pair->most;
    float *send = calloc(ELEMS, sizeof(*send));
    float *recv = calloc(ELEMS, sizeof(*recv));
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = mine,
                  .send = send,
                  .recv = recv,
                  .count = count_of(mine),
                  .dtype = WEFT_DTYPE_F32,
                  .root = rank == ODD ? pair->odd_root : 0};
    weft_status status = weft_op_post(&op, 0, comm, NULL);
    for (int i = 0; i < BARRIERS && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    bool right = status == WEFT_ERR_MISMATCH &&
                 strstr(weft_error_text(), "rank 1 posted ") &&
                 strstr(weft_error_text(), weft_collective_text(pair->odd));
    if (!right) {
        fprintf(stderr, "%s, rank 1 %s with root %d: rank %d: %s: %s\n",
                weft_collective_text(pair->most),
                weft_collective_text(pair->odd), pair->odd_root, rank,
                weft_status_text(status), weft_error_text());
    }
    free(send);
    free(recv);
    return !right;
}

static bool is_rooted(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_REDUCE ||
           collective == WEFT_COLLECTIVE_BROADCAST ||
           collective == WEFT_COLLECTIVE_GATHER ||
           collective == WEFT_COLLECTIVE_SCATTER;
}

static void test_large_operations_that_differ_are_named(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < WEFTI_COUNT_OF(collectives); i++) {
        for (size_t k = 0; k < WEFTI_COUNT_OF(collectives); k++) {
            for (int root = 0; root < RANKS; root++) {
                struct pair pair = {collectives[i], collectives[k], root};
                bool same = i == k && (root == 0 || !is_rooted(pair.odd));
                if (same || (root > 0 && !is_rooted(pair.odd))) {
                    continue;
                }
                struct world world = {.nranks = RANKS,
                                      .config = {.timeout_ms = 20000},
                                      .call = differ,
                                      .context = &pair};
                failures += world_run_threads(&world);
            }
        }
    }
    assert_int_equal(failures, 0);
}

struct gated {
    weft_collective collective;
    size_t gate_elems;
    bool pretends; /* rank 0 says all the while that it waits */
};

/* A rank that the machine keeps off its cores for 0.4 s is late too. */
static int run_in_time(const struct world *world)
{
    int failures = 1;
    for (int turn = 0; turn < TRIES && failures; turn++) {
        failures = world_run_threads(world);
    }
    return failures;
}

/* What a rank's engine shows that waits for the other one. */
static void say_waiting(weft_comm *comm)
{
    wefti_wait_record found = {.kind = WEFTI_WAITS_COLLECTIVE, .peer = 1};
    int64_t now_ns = wefti_clock_coarse_ns();
    pthread_mutex_lock(&comm->engine->lock);
    wefti_waits_note(comm, &found, &found, WEFTI_WEIGHT_CAUSE, 1, now_ns, true);
    pthread_mutex_unlock(&comm->engine->lock);
    sched_yield();
}

/* Rank 0 raises all chunks of its ready gate but the last. */
static int leave_gate_shut(weft_comm *comm, void *context)
{
    const struct gated *gated = context;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    size_t count = (size_t)ELEMS / (size_t)nranks;
    size_t gate_elems = gated->gate_elems ? gated->gate_elems : ELEMS;
    size_t chunks = (ELEMS - 1) / gate_elems + 1;
    float *send = calloc(ELEMS, sizeof(*send));
    float *recv = calloc(ELEMS, sizeof(*recv));
    weft_device *device = NULL;
    weft_stream *stream = NULL;
    weft_gate *ready = NULL;
    bool whole = gated->collective == WEFT_COLLECTIVE_ALLREDUCE ||
                 gated->collective == WEFT_COLLECTIVE_BROADCAST;
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = gated->collective,
                  .send = send,
                  .recv = recv,
                  .count = whole ? ELEMS : count,
                  .dtype = WEFT_DTYPE_F32,
                  .gate_elems = gated->gate_elems};
    int failures = weft_device_open("host", 0, &device) != WEFT_OK;
    failures += weft_stream_create(device, 0, &stream) != WEFT_OK;
    failures += weft_gate_create(device, chunks, &ready) != WEFT_OK;
    op.ready = ready;
    failures += weft_op_post(&op, 1, comm, stream) != WEFT_OK;
    for (size_t i = 0; i + (rank == 0) < chunks; i++) {
        failures += weft_gate_signal(ready, i, 1, NULL) != WEFT_OK;
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    while (gated->pretends && rank == 0 && fault.status == WEFT_OK) {
        say_waiting(comm);
        failures += weft_comm_get_fault(comm, &fault) != WEFT_OK;
    }
    weft_status status = weft_stream_wait(stream);
    bool named =
        weft_comm_get_fault(comm, &fault) == WEFT_OK &&
        fault.status == WEFT_ERR_TIMEOUT &&
        (gated->pretends ? strstr(fault.text, "which waits here") != NULL
                         : fault.rank == 0);
    if (status == WEFT_OK || !named) {
        fprintf(stderr, "%s of %d, gate_elems %zu: rank %d: %s: %s\n",
                weft_collective_text(gated->collective), nranks,
                gated->gate_elems, rank, weft_status_text(status), fault.text);
        failures++;
    }
    weft_stream_destroy(stream);
    weft_gate_destroy(ready);
    weft_device_close(device);
    free(send);
    free(recv);
    return failures;
}

static void test_gate_that_stays_shut_is_named(void **state)
{
    (void)state;
    static const struct gated scenes[] = {
        {WEFT_COLLECTIVE_ALLREDUCE, 0, false},
        {WEFT_COLLECTIVE_ALLREDUCE, 100000, false},
        {WEFT_COLLECTIVE_BROADCAST, 100000, false},
        {WEFT_COLLECTIVE_REDUCESCATTER, 0, false},
        {WEFT_COLLECTIVE_ALLTOALL, 0, false}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(scenes); i++) {
        struct gated scene = scenes[i];
        struct world world = {.nranks = 2 + (int)(i % 2),
                              .config = {.warn_ms = 300, .timeout_ms = 600},
                              .call = leave_gate_shut,
                              .context = &scene};
        assert_int_equal(run_in_time(&world), 0);
    }
}

static void
test_rank_that_only_seems_to_wait_holds_nobody_for_ever(void **state)
{
    (void)state;
    struct gated scene = {WEFT_COLLECTIVE_ALLREDUCE, 100000, true};
    struct world world = {.nranks = 2,
                          .config = {.warn_ms = 200, .timeout_ms = 400},
                          .call = leave_gate_shut,
                          .context = &scene};
    assert_int_equal(run_in_time(&world), 0);
}

/* Two communicators of the same ranks, used in the other order by rank 1. */
static int cross(weft_comm *comm, void *context)
{
    const bool with_messages = *(const bool *)context;
    const weft_comm_config first = {.size_bytes = sizeof(first), .name = "tp"};
    int rank = weft_comm_get_rank(comm);
    weft_comm *both[2] = {NULL, NULL};
    float data[4] = {0};
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int failures = weft_comm_split(comm, 0, rank, &first, &both[0]) != WEFT_OK;
    failures += weft_comm_split(comm, 7, rank, NULL, &both[1]) != WEFT_OK;
    weft_comm *mine = both[rank == 1];
    weft_status status = with_messages && rank == 0
                             ? weft_recv(data, 4, WEFT_DTYPE_F32, 1, mine, NULL)
                             : weft_allreduce(data, data, 4, WEFT_DTYPE_F32,
                                              WEFT_REDOP_SUM, mine, NULL);
    char wanted[128];
    snprintf(wanted, sizeof(wanted),
             "it waits in %s #1 on \"%s\" for rank %d, which waits here: are "
             "the two used in different orders?",
             with_messages && rank == 1 ? "recv" : "all_reduce",
             rank == 1 ? "tp" : "world/7", rank);
    if (status != WEFT_ERR_TIMEOUT || !strstr(weft_error_text(), wanted)) {
        fprintf(stderr, "rank %d: %s: %s, not \"%s\"\n", rank,
                weft_status_text(status), weft_error_text(), wanted);
        failures++;
    }
    failures += weft_comm_get_fault(mine, &fault) != WEFT_OK || fault.rank != 0;
    weft_comm_destroy(both[0]);
    weft_comm_destroy(both[1]);
    return failures;
}

static void test_communicators_in_different_orders_are_both_named(void **state)
{
    (void)state;
    for (int messages = 0; messages < 2; messages++) {
        bool with_messages = messages;
        struct world world = {.nranks = 2,
                              .config = {.warn_ms = 400, .timeout_ms = 800},
                              .call = cross,
                              .context = &with_messages};
        assert_int_equal(run_in_time(&world), 0);
    }
}

static int write_to_oneself(weft_comm *comm, void *context)
{
    bool send = *(const bool *)context;
    int rank = weft_comm_get_rank(comm);
    float *data = calloc(ELEMS, sizeof(*data));
    weft_status status =
        send ? weft_send(data, ELEMS, WEFT_DTYPE_F32, rank, comm, NULL)
             : weft_recv(data, ELEMS, WEFT_DTYPE_F32, rank, comm, NULL);
    bool right =
        status == WEFT_ERR_TIMEOUT &&
        strstr(weft_error_text(), send ? "has not received" : "has not sent");
    if (!right) {
        fprintf(stderr, "rank %d, %s: %s: %s\n", rank, send ? "send" : "recv",
                weft_status_text(status), weft_error_text());
    }
    free(data);
    return !right;
}

static void test_message_to_oneself_without_partner_times_out(void **state)
{
    (void)state;
    for (int send = 0; send < 2; send++) {
        bool sends = send;
        struct world world = {.nranks = 2,
                              .config = {.warn_ms = 300, .timeout_ms = 600},
                              .call = write_to_oneself,
                              .context = &sends};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_operations_that_differ_are_named),
        cmocka_unit_test(test_gate_that_stays_shut_is_named),
        cmocka_unit_test(
            test_rank_that_only_seems_to_wait_holds_nobody_for_ever),
        cmocka_unit_test(test_communicators_in_different_orders_are_both_named),
        cmocka_unit_test(test_message_to_oneself_without_partner_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: numbers of operations and of messages pass 2^32 and 2^63 unharmed:
 * nothing keeps fewer bits of them than all, or compares them as signed.
 *
 * Method: each rank sets what counts in a communicator, its own and what it
 * knows of the others, to just before such a number, as if as many operations
 * had gone before; then come small and large sums, broadcasts, barriers and
 * messages, whose results are checked. Threads, over memory and over the
 * network (tests/comm/spread.h).
 */
#include "comm/core/core.h"
#include "comm/net/net.h"
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    RANKS = 4,
    ROUNDS = 3 * WEFTI_OP_SLOTS, /* of four operations */
    OPS_SHORT = 70,              /* of the number, when it starts */
    MESSAGES_SHORT = 2,
    SMALL = 5,
    LARGE = 200000,
    LOOKS = 30000 /* with naps of a millisecond */
};

typedef struct scene {
    uint64_t goal;
    pthread_barrier_t met;
} scene;

/* As if the communicator had done operations and messages up to these. Engine's
 * lock held. */
static void age(weft_comm *comm, uint64_t ops, uint64_t messages)
{
    wefti_fabric *fabric = &comm->fabric;
    comm->number = comm->completed = comm->settled = comm->peers_done = ops;
    for (int rank = 0; rank < RANKS; rank++) {
        atomic_store(&wefti_shared_get_page(&fabric->shared, rank)->completed,
                     ops);
        if (fabric->lines) {
            fabric->lines[rank].told = ops;
        }
        comm->queues[0].list[rank].number = messages;
        comm->queues[0].list[RANKS + rank].number = messages;
        for (int ring = 0; ring < WEFTI_ALL_SLOTS; ring++) {
            for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
                wefti_fabric_path path = {rank, ring, channel};
                fabric->posted[wefti_fabric_cell(&path)] = messages;
                fabric->taken[wefti_fabric_cell(&path)] = messages;
                if (fabric->told_taken) {
                    fabric->told_taken[wefti_fabric_cell(&path)] = messages;
                }
                atomic_store(wefti_shared_get_consumed(&fabric->shared, rank,
                                                       comm->rank, ring,
                                                       channel),
                             messages);
                atomic_store(wefti_shared_get_consumed(&fabric->shared,
                                                       comm->rank, rank, ring,
                                                       channel),
                             messages);
            }
        }
    }
}

static int sum(weft_comm *comm, uint64_t *data, size_t count, uint64_t round)
{
    int rank = weft_comm_get_rank(comm), failures = 0;
    for (size_t i = 0; i < count; i++) {
        data[i] = (uint64_t)rank * 1000 + i + round;
    }
    failures += weft_allreduce(data, data, count, WEFT_DTYPE_U64,
                               WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
    for (size_t i = 0; i < count && !failures; i++) {
        failures += data[i] != 6000 + RANKS * (i + round);
    }
    return failures;
}

static int broadcast(weft_comm *comm, uint64_t round)
{
    int root = (int)(round % RANKS);
    uint64_t word = weft_comm_get_rank(comm) == root ? round + 7 : 0;
    return weft_broadcast(&word, &word, 1, WEFT_DTYPE_U64, root, comm, NULL) !=
               WEFT_OK ||
           word != round + 7;
}

/* To the next rank, from the one before. */
static int pass_on(weft_comm *comm, uint64_t *out, uint64_t *in, size_t count,
                   uint64_t round)
{
    int rank = weft_comm_get_rank(comm), next = (rank + 1) % RANKS;
    int last = (rank + RANKS - 1) % RANKS, failures = 0;
    for (size_t i = 0; i < count; i++) {
        out[i] = round * 10 + (uint64_t)rank + i;
        in[i] = 0;
    }
    const weft_p2p list[] = {{.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_SEND,
                              .buffer = out,
                              .count = count,
                              .dtype = WEFT_DTYPE_U64,
                              .peer = next},
                             {.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_RECV,
                              .buffer = in,
                              .count = count,
                              .dtype = WEFT_DTYPE_U64,
                              .peer = last}};
    failures += weft_p2p_post(list, 2, comm, NULL) != WEFT_OK;
    for (size_t i = 0; i < count && !failures; i++) {
        failures += in[i] != round * 10 + (uint64_t)last + i;
    }
    return failures;
}

/* Whether both kinds of numbers have passed the goal on this rank. */
static int check_passed(weft_comm *comm, uint64_t goal)
{
    wefti_fabric *fabric = &comm->fabric;
    int next = (weft_comm_get_rank(comm) + 1) % RANKS;
    bool passed = false;
    pthread_mutex_lock(&comm->engine->lock);
    for (int ring = 0; ring < WEFTI_OP_SLOTS; ring++) {
        for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
            wefti_fabric_path path = {next, ring, channel};
            passed = passed || fabric->posted[wefti_fabric_cell(&path)] > goal;
        }
    }
    passed = passed && comm->completed > goal &&
             comm->queues[0].list[next].number > goal;
    pthread_mutex_unlock(&comm->engine->lock);
    return !passed;
}

/* Whether the operations so far are over, as this rank knows by now. Over
 * memory nothing is on its way, and some are settled by the next one. */
static bool is_settled(weft_comm *comm)
{
    if (!comm->fabric.net) {
        return true;
    }
    pthread_mutex_lock(&comm->engine->lock);
    while (wefti_net_progress(comm->fabric.net)) {
    }
    const bool settled = !comm->active && comm->settled == comm->number;
    pthread_mutex_unlock(&comm->engine->lock);
    return settled;
}

/*
 * Until the operations of creation are settled on all ranks, and what they say
 * of them has been heard: what is under way would find itself in a past that
 * never was.
 */
static int end_young(weft_comm *comm, pthread_barrier_t *met)
{
    const struct timespec nap = {0, 1000000};
    bool settled = false;
    for (int i = 0; i < LOOKS && !settled; i++) {
        settled = is_settled(comm);
        nanosleep(&nap, NULL);
    }
    pthread_barrier_wait(met);
    settled = settled && is_settled(comm);
    if (!settled) {
        fprintf(stderr, "rank %d: creation is not settled\n",
                weft_comm_get_rank(comm));
    }
    return !settled;
}

static int go_past(weft_comm *comm, void *context)
{
    scene *all = context;
    uint64_t *out = calloc(LARGE, sizeof(*out));
    uint64_t *in = calloc(LARGE, sizeof(*in));
    int failures = !out || !in;
    failures += end_young(comm, &all->met);
    /* Nothing is sent while some ranks are old and others young. */
    pthread_mutex_lock(&comm->engine->lock);
    pthread_barrier_wait(&all->met);
    age(comm, all->goal - OPS_SHORT, all->goal - MESSAGES_SHORT);
    pthread_barrier_wait(&all->met);
    pthread_mutex_unlock(&comm->engine->lock);
    for (uint64_t round = 0; round < ROUNDS && !failures; round++) {
        bool large = round % 8 == 7;
        failures += sum(comm, out, SMALL, round);
        failures += sum(comm, out, large ? LARGE : SMALL, round);
        failures += broadcast(comm, round);
        failures += weft_barrier(comm, NULL) != WEFT_OK;
        failures += pass_on(comm, out, in, large ? LARGE : SMALL, round);
        if (failures) {
            fprintf(stderr, "rank %d, round %llu: %s\n",
                    weft_comm_get_rank(comm), (unsigned long long)round,
                    weft_error_text());
        }
    }
    failures += failures == 0 && check_passed(comm, all->goal);
    free(out);
    free(in);
    return failures;
}

static void pass_goal(uint64_t goal)
{
    scene all = {.goal = goal};
    assert_int_equal(pthread_barrier_init(&all.met, NULL, RANKS), 0);
    struct world world = {.nranks = RANKS,
                          .call = go_past,
                          .context = &all,
                          .config = {.timeout_ms = 20000}};
    assert_int_equal(world_run_threads(&world), 0);
    pthread_barrier_destroy(&all.met);
}

static void test_numbers_beyond_32_bits_are_told_apart(void **state)
{
    (void)state;
    pass_goal(UINT64_C(1) << 32);
}

static void test_numbers_beyond_63_bits_are_told_apart(void **state)
{
    (void)state;
    pass_goal(UINT64_C(1) << 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_beyond_32_bits_are_told_apart),
        cmocka_unit_test(test_numbers_beyond_63_bits_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a rank that takes messages from another host says so with what it sends
 * there anyway: a message of its own says so only when the sender needs it, and
 * then of many at once.
 *
 * Method: one thread holds the locks of both ranks' engines, so that nobody
 * else moves anything, and gives the ranks turns; no clock decides what is
 * sent. Before each pause, as before a sleep, the network is armed. All
 * messages that each rank sends are counted, and bytes compared. Threads.
 */
#include "base/clock.h"
#include "comm/core/core.h"
#include "comm/engine/engine.h"
#include "comm/net/net.h"
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/locked_turn.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 2,
    PARTS = 16,
    PART_BYTES = 128 << 10, /* as a chunk is */
    BYTES = PARTS * PART_BYTES,
    MESSAGES = BYTES / WEFTI_P2P_REMOTE_BYTES,
    ASIDE = 4, /* that an operation has besides: its entry, its end */
    LIMIT_S = 60
};

typedef enum traffic { ONE_WAY, BOTH_WAYS, GATHERED } traffic;

typedef struct part {
    weft_comm *comm;
    weft_gate *ready;
    unsigned char *send, *recv; /* [BYTES], [RANKS * BYTES] */
    weft_request *request;
    uint64_t sent; /* messages, by this rank */
} part;

typedef struct scene {
    traffic kind;
    part parts[RANKS];
    pthread_barrier_t met;
} scene;

static unsigned char byte_at(int rank, size_t at)
{
    return (unsigned char)(rank * 101 + 7 + at * 13 + at / 251);
}

static uint64_t count_sent(const part *self)
{
    return self->comm->fabric.lines[1 - self->comm->rank].sent;
}

static weft_p2p message(part *self, weft_p2p_kind kind)
{
    const bool sends = kind == WEFT_P2P_SEND;
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = sends ? self->send : self->recv,
                      .count = BYTES,
                      .dtype = WEFT_DTYPE_U8,
                      .peer = 1 - self->comm->rank,
                      .class_id = WEFT_CLASS_PP};
}

static weft_status begin(part *self, traffic kind)
{
    if (kind == GATHERED) {
        const weft_op op = {.size_bytes = sizeof(op),
                            .collective = WEFT_COLLECTIVE_ALLGATHER,
                            .send = self->send,
                            .recv = self->recv,
                            .count = BYTES,
                            .dtype = WEFT_DTYPE_U8,
                            .ready = self->ready,
                            .gate_elems = PART_BYTES,
                            .class_id = WEFT_CLASS_DP};
        return weft_op_begin(&op, 1, self->comm, &self->request);
    }
    const weft_p2p list[] = {message(self, WEFT_P2P_SEND),
                             message(self, WEFT_P2P_RECV)};
    const bool both = kind == BOTH_WAYS;
    return weft_p2p_begin(list + (!both && self->comm->rank == 1), both ? 2 : 1,
                          self->comm, &self->request);
}

static bool is_done(const part *self)
{
    return weft_request_test(self->request) != WEFT_INPROGRESS;
}

static bool has_come(const scene *shown, size_t parts)
{
    bool come = true;
    for (int rank = 0; rank < RANKS; rank++) {
        const unsigned char *last =
            shown->parts[rank].recv + (size_t)(1 - rank) * BYTES;
        for (size_t i = 0; i < parts; i++) {
            const size_t at = (i + 1) * PART_BYTES - 1;
            come = come && last[at] == byte_at(1 - rank, at);
        }
    }
    return come;
}

/* Until both ranks are done, or so many parts have come. */
static int take_turns(scene *shown, size_t parts)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (parts ? !has_come(shown, parts)
                 : !is_done(&shown->parts[0]) || !is_done(&shown->parts[1])) {
        bool moved = false;
        for (int rank = 0; rank < RANKS; rank++) {
            wefti_engine *engine = shown->parts[rank].comm->engine;
            moved |= take_locked_turn(engine);
            if (!moved) {
                moved |= !wefti_net_arm(engine->net);
            }
        }
        if (!moved) {
            (void)sched_yield(); /* the kernel has it */
        }
        if (wefti_clock_ns() > until_ns) {
            fprintf(stderr, "the ranks stand still\n");
            return 1;
        }
    }
    return 0;
}

/* The engines' locks are held, so this thread alone moves anything. */
static int conduct(scene *shown)
{
    int failures = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        part *self = &shown->parts[rank];
        self->sent = count_sent(self);
        failures += begin(self, shown->kind) != WEFT_OK;
    }
    for (size_t i = 0; shown->kind == GATHERED && i < PARTS; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
            failures += weft_gate_signal(shown->parts[rank].ready, i, 1,
                                         NULL) != WEFT_OK;
        }
        failures += take_turns(shown, i + 1);
    }
    failures += take_turns(shown, 0);
    for (int rank = 0; rank < RANKS; rank++) {
        part *self = &shown->parts[rank];
        self->sent = count_sent(self) - self->sent;
    }
    return failures;
}

static int sit_down(part *self, weft_comm *comm, weft_device *device)
{
    const int rank = weft_comm_get_rank(comm);
    self->comm = comm;
    self->send = malloc(BYTES);
    self->recv = malloc((size_t)RANKS * BYTES);
    if (!self->send || !self->recv) {
        return 63;
    }
    for (size_t at = 0; at < BYTES; at++) {
        self->send[at] = byte_at(rank, at);
        /* Wrong everywhere, whoever sends it. */
        self->recv[at] = (unsigned char)~byte_at(rank ? 1 - rank : rank, at);
        self->recv[BYTES + at] = (unsigned char)~byte_at(1, at);
    }
    /* Both are connected and have their threads. */
    float one = 1;
    const weft_op op = all_reduce_op(&one, 1, WEFT_DTYPE_F32);
    weft_request *met;
    int failures = weft_gate_create(device, PARTS, &self->ready) != WEFT_OK ||
                   weft_op_begin(&op, 0, comm, &met) != WEFT_OK ||
                   weft_request_wait(met) != WEFT_OK;
    if (failures == 0) {
        weft_request_destroy(met);
    }
    return failures;
}

static int count_wrong(const part *self, traffic kind)
{
    const int peer = 1 - self->comm->rank;
    const unsigned char *from =
        self->recv + (kind == GATHERED ? (size_t)peer * BYTES : 0);
    int wrong = 0;
    for (size_t at = 0; at < BYTES; at++) {
        wrong += from[at] != byte_at(peer, at);
    }
    return kind == ONE_WAY && self->comm->rank == 0 ? 0 : wrong;
}

static int play(weft_comm *comm, void *context)
{
    scene *shown = context;
    part *self = &shown->parts[weft_comm_get_rank(comm)];
    weft_device *device;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK;
    failures += sit_down(self, comm, device);
    pthread_barrier_wait(&shown->met);
    if (weft_comm_get_rank(comm) == 0) {
        for (int rank = 0; rank < RANKS; rank++) {
            pthread_mutex_lock(&shown->parts[rank].comm->engine->lock);
        }
        failures += conduct(shown);
        for (int rank = RANKS; rank-- > 0;) {
            wefti_engine_unlock(shown->parts[rank].comm->engine);
        }
    }
    pthread_barrier_wait(&shown->met);
    failures += weft_request_wait(self->request) != WEFT_OK;
    failures += count_wrong(self, shown->kind) > 0;
    weft_request_destroy(self->request);
    weft_gate_destroy(self->ready);
    weft_device_close(device);
    free(self->send);
    free(self->recv);
    return failures;
}

/* most: messages of each rank. */
static void check(traffic kind, const uint64_t most[RANKS])
{
    scene shown = {.kind = kind};
    struct world world = {.nranks = RANKS, .call = play, .context = &shown};
    setenv("WEFT_DOMAIN", "a,b", 1);
    pthread_barrier_init(&shown.met, NULL, RANKS);
    assert_int_equal(world_run_threads(&world), 0);
    pthread_barrier_destroy(&shown.met);
    for (int rank = 0; rank < RANKS; rank++) {
        printf("traffic %d, rank %d: %llu messages\n", (int)kind, rank,
               (unsigned long long)shown.parts[rank].sent);
        assert_in_range(shown.parts[rank].sent, 0, most[rank]);
    }
}

/* Half of the slots are released at once. */
static void test_receiver_says_little_one_way(void **state)
{
    (void)state;
    check(ONE_WAY, (uint64_t[]){MESSAGES + ASIDE, MESSAGES / 2 + ASIDE});
}

static void test_receiver_that_sends_says_little_more(void **state)
{
    (void)state;
    const uint64_t most = MESSAGES + MESSAGES / 2 + ASIDE;
    check(BOTH_WAYS, (uint64_t[]){most, most});
}

/* Each part is awaited before the next is made, as behind compute. */
static void test_releases_ride_on_the_next_part(void **state)
{
    (void)state;
    check(GATHERED, (uint64_t[]){PARTS + ASIDE, PARTS + ASIDE});
}

/* Rank 0 has read a message of rank 1's and none of rank 2's when it goes. */
static int leave_first(weft_comm *comm, void *context)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    const int rank = weft_comm_get_rank(comm);
    float word = 1;
    weft_comm *all;
    (void)context;
    int failures = weft_comm_split(comm, 0, rank, NULL, &all) != WEFT_OK;
    if (failures) {
        return failures;
    }
    if (rank == 1) {
        failures +=
            weft_send(&word, 1, WEFT_DTYPE_F32, 0, all, NULL) != WEFT_OK;
    } else if (rank == 0) {
        failures +=
            weft_recv(&word, 1, WEFT_DTYPE_F32, 1, all, NULL) != WEFT_OK;
        weft_comm_destroy(all);
    }
    /* Its farewell came before it. */
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (rank != 0) {
        failures += weft_comm_get_fault(all, &fault) != WEFT_OK ||
                    fault.status != WEFT_OK;
        weft_comm_destroy(all);
    }
    return failures;
}

static void test_farewell_tells_each_peer_its_own_releases(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = leave_first};
    setenv("WEFT_DOMAIN", "a,b,c", 1);
    assert_int_equal(world_run_threads(&world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receiver_says_little_one_way),
        cmocka_unit_test(test_receiver_that_sends_says_little_more),
        cmocka_unit_test(test_releases_ride_on_the_next_part),
        cmocka_unit_test(test_farewell_tells_each_peer_its_own_releases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: weft_op_ready_order and weft_op_arrived_order say what happens: made in
 * that order, every chunk moves as soon as it is ready, and chunks come in the
 * order that was said, upwards and downwards.
 *
 * Method: all ranks make one chunk after another, each in its own order. After
 * each, what by definition can have arrived must arrive, with nothing else
 * being made, and what cannot have must not. Threads.
 */
#include "tests/comm/spread.h"
#include "tests/comm/world.h"

#include "base/clock.h"

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
    MOST_RANKS = 5,
    GATE = 400, /* one message of GATE_BYTES, or several */
    GATE_BYTES = GATE * 4 / 64 * 64 + 64,
    SHORT_BYTES = 256,
    BLOCKS = 3,
    COUNT = GATE * BLOCKS,
    ROOT = 1,
    MOST_CHUNKS = MOST_RANKS * BLOCKS,
    MOST_ELEMS = MOST_RANKS * COUNT
};
static const int64_t DEADLINE_NS = INT64_C(30000000000);

/* One operation of a world; what all ranks share is written between barriers.
 */
typedef struct scene {
    weft_collective collective;
    weft_chunk_order order;
    size_t count;
    int nranks;
    bool listed; /* messages: posted as a list */
    int message_bytes;
    bool exact; /* a chunk needs none behind it: parts end where chunks end,
                   those of a round do not take turns, and there is one level */
    size_t ready[MOST_RANKS][MOST_CHUNKS], ready_count[MOST_RANKS];
    pthread_barrier_t barrier;
} scene;

static int check(bool right, const char *what, int line, const scene *on)
{
    if (!right) {
        fprintf(stderr, "line %d: %s (%s of %zu, order %d, %d ranks; %s)\n",
                line, what, weft_collective_text(on->collective), on->count,
                on->order, on->nranks, weft_error_text());
    }
    return !right;
}
#define CHECK(condition) check(condition, #condition, __LINE__, on)

/* ---- the definition --------------------------------------------------------
 */

static bool is_message(const scene *on)
{
    return on->collective == WEFT_COLLECTIVE_SEND;
}

static bool is_rooted(const scene *on)
{
    return on->collective == WEFT_COLLECTIVE_BROADCAST ||
           on->collective == WEFT_COLLECTIVE_REDUCE ||
           on->collective == WEFT_COLLECTIVE_GATHER ||
           on->collective == WEFT_COLLECTIVE_SCATTER;
}

static bool sends_to_all(const scene *on)
{
    return on->collective == WEFT_COLLECTIVE_BROADCAST ||
           on->collective == WEFT_COLLECTIVE_SCATTER;
}

static bool receives(const scene *on, int rank)
{
    return is_message(on)  ? rank == 1
           : is_rooted(on) ? sends_to_all(on) || rank == ROOT
                           : true;
}

static bool sends(const scene *on, int rank)
{
    return is_message(on)  ? rank == 0
           : is_rooted(on) ? !sends_to_all(on) || rank == ROOT
                           : true;
}

static bool reduces(const scene *on)
{
    return on->collective == WEFT_COLLECTIVE_ALLREDUCE ||
           on->collective == WEFT_COLLECTIVE_REDUCE ||
           on->collective == WEFT_COLLECTIVE_REDUCESCATTER;
}

static bool has_send_parts(const scene *on)
{
    return on->collective == WEFT_COLLECTIVE_REDUCESCATTER ||
           on->collective == WEFT_COLLECTIVE_ALLTOALL ||
           on->collective == WEFT_COLLECTIVE_SCATTER;
}

static bool has_recv_parts(const scene *on)
{
    return on->collective == WEFT_COLLECTIVE_ALLGATHER ||
           on->collective == WEFT_COLLECTIVE_ALLTOALL ||
           on->collective == WEFT_COLLECTIVE_GATHER;
}

static size_t recv_elems(const scene *on)
{
    return on->count * (has_recv_parts(on) ? (size_t)on->nranks : 1);
}

static int32_t value_of(int rank, size_t elem)
{
    return rank * 100003 + (int32_t)(elem % 997);
}

/* Of which rank an element of rank's result is; of all, where it reduces. */
static int source_rank(const scene *on, size_t elem)
{
    return has_recv_parts(on) ? (int)(elem / on->count)
           : is_message(on)   ? 0
           : sends_to_all(on) ? ROOT
                              : 0;
}

/* Its place in the source's send buffer. */
static size_t source_elem(const scene *on, int rank, size_t elem)
{
    const size_t place = has_recv_parts(on) ? elem % on->count : elem;
    return has_send_parts(on) ? (size_t)rank * on->count + place : place;
}

static int32_t expected(const scene *on, int rank, size_t elem)
{
    const size_t from = source_elem(on, rank, elem);
    int32_t sum = 0;
    for (int p = 0; reduces(on) && p < on->nranks; p++) {
        sum += value_of(p, from);
    }
    return reduces(on) ? sum : value_of(source_rank(on, elem), from);
}

/* Whether `from` has made, of its order, the chunk among the first `made`. */
static bool has_made(const scene *on, int from, size_t elem, size_t made)
{
    for (size_t k = 0; k < made && k < on->ready_count[from]; k++) {
        if (on->ready[from][k] == elem / GATE) {
            return true;
        }
    }
    return false;
}

/* Whether all that a chunk of rank's result is made of has been made. */
static bool can_arrive(const scene *on, int rank, size_t chunk, size_t made)
{
    const size_t end = (chunk + 1) * GATE, elems = recv_elems(on);
    for (size_t e = chunk * GATE; e < end && e < elems; e++) {
        const size_t from = source_elem(on, rank, e);
        bool there = true;
        for (int p = 0; reduces(on) && p < on->nranks; p++) {
            there = there && has_made(on, p, from, made);
        }
        if (!there ||
            (!reduces(on) && !has_made(on, source_rank(on, e), from, made))) {
            return false;
        }
    }
    return true;
}

/* ---- a rank ----------------------------------------------------------------
 */

typedef struct desk {
    int rank;
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready, *arrived;
    size_t recv_chunks;
    size_t order[MOST_CHUNKS]; /* of arrivals */
    int32_t send[MOST_ELEMS], recv[MOST_ELEMS];
} desk;

static weft_op op_of(const scene *on, desk *self)
{
    const int rank = self->rank;
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = is_message(on) && rank == 1
                                       ? WEFT_COLLECTIVE_RECV
                                       : on->collective,
                     .send = self->send,
                     .recv = self->recv,
                     .count = on->count,
                     .dtype = WEFT_DTYPE_I32,
                     .root = is_message(on)  ? 1 - rank
                             : is_rooted(on) ? ROOT
                                             : 0,
                     .ready = sends(on, rank) ? self->ready : NULL,
                     .arrived = receives(on, rank) ? self->arrived : NULL,
                     .gate_elems = GATE,
                     .chunk_order = on->order};
}

/* Each of [0, count) is there once. */
static bool is_permutation(const size_t *chunks, size_t count)
{
    bool seen[MOST_CHUNKS] = {false};
    for (size_t i = 0; i < count; i++) {
        if (chunks[i] >= count || seen[chunks[i]]) {
            return false;
        }
        seen[chunks[i]] = true;
    }
    return true;
}

static int set_up(scene *on, desk *self, weft_comm *comm)
{
    const int rank = weft_comm_get_rank(comm);
    self->rank = rank;
    self->comm = comm;
    memset(self->recv, 0xA5, sizeof(self->recv));
    int failures =
        CHECK(weft_device_open("host", 0, &self->device) == WEFT_OK) +
        CHECK(weft_stream_create(self->device, 0, &self->stream) == WEFT_OK) +
        CHECK(weft_gate_create(self->device, MOST_CHUNKS, &self->ready) ==
              WEFT_OK) +
        CHECK(weft_gate_create(self->device, MOST_CHUNKS, &self->arrived) ==
              WEFT_OK);
    const weft_op op = op_of(on, self);
    failures +=
        CHECK(weft_op_ready_order(&op, comm, on->ready[rank], MOST_CHUNKS,
                                  &on->ready_count[rank]) == WEFT_OK) +
        CHECK(weft_op_arrived_order(&op, comm, self->order, MOST_CHUNKS,
                                    &self->recv_chunks) == WEFT_OK);
    const size_t send_elems =
        on->count * (has_send_parts(on) ? (size_t)on->nranks : 1);
    const size_t made = sends(on, rank) ? (send_elems - 1) / GATE + 1 : 0;
    return failures + CHECK(on->ready_count[rank] == made) +
           CHECK(is_permutation(on->ready[rank], made)) +
           CHECK(is_permutation(self->order, self->recv_chunks)) +
           CHECK(!receives(on, rank) ||
                 self->recv_chunks == (recv_elems(on) - 1) / GATE + 1);
}

static int put_away(const scene *on, desk *self)
{
    const int failures = CHECK(weft_stream_wait(self->stream) == WEFT_OK);
    weft_stream_destroy(self->stream);
    weft_gate_destroy(self->ready);
    weft_gate_destroy(self->arrived);
    weft_device_close(self->device);
    free(self);
    return failures;
}

/* Makes what stands at that place of the rank's order. */
static int make(const scene *on, desk *self, size_t place)
{
    if (place >= on->ready_count[self->rank]) {
        return 0;
    }
    const size_t chunk = on->ready[self->rank][place];
    for (size_t e = chunk * GATE; e < (chunk + 1) * GATE; e++) {
        self->send[e] = value_of(self->rank, e);
    }
    return CHECK(weft_gate_signal(self->ready, chunk, 1, NULL) == WEFT_OK);
}

static bool has_arrived(desk *self, size_t chunk)
{
    return weft_gate_test(self->arrived, chunk, 1) == WEFT_OK;
}

/* Until it has arrived, which nothing else that is made may be needed for. */
static int await(const scene *on, desk *self, size_t chunk)
{
    const int64_t until_ns = wefti_clock_ns() + DEADLINE_NS;
    while (!has_arrived(self, chunk) && wefti_clock_ns() < until_ns) {
        sched_yield();
    }
    int failures = CHECK(has_arrived(self, chunk));
    const size_t end = (chunk + 1) * GATE, elems = recv_elems(on);
    size_t wrong = 0;
    for (size_t e = chunk * GATE; e < end && e < elems; e++) {
        wrong += self->recv[e] != expected(on, self->rank, e);
    }
    return failures + CHECK(wrong == 0);
}

/* Whether it is the rank's own part, which no peer is needed for. */
static bool is_own(const scene *on, const desk *self, size_t chunk)
{
    return has_recv_parts(on) && chunk * GATE / on->count == (size_t)self->rank;
}

/* All ranks have made so many; nothing else is made meanwhile. */
static int look(const scene *on, desk *self, size_t made)
{
    int failures = 0;
    bool missing = false; /* of what comes from peers, in the order of it */
    for (size_t i = 0; i < self->recv_chunks; i++) {
        const size_t chunk = self->order[i];
        const bool can = can_arrive(on, self->rank, chunk, made);
        failures +=
            can ? await(on, self, chunk) : CHECK(!has_arrived(self, chunk));
        failures += CHECK(is_own(on, self, chunk) || !can || !missing);
        missing = missing || (!can && !is_own(on, self, chunk));
    }
    return failures;
}

static weft_status post(const scene *on, desk *self)
{
    const weft_op op = op_of(on, self);
    if (!on->listed) {
        return weft_op_post(&op, 1, self->comm, self->stream);
    }
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind =
                               self->rank == 0 ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                           .buffer = self->rank == 0 ? self->send : self->recv,
                           .count = op.count,
                           .dtype = op.dtype,
                           .peer = op.root,
                           .ready = op.ready,
                           .arrived = op.arrived,
                           .gate_elems = op.gate_elems,
                           .epoch = 1,
                           .chunk_order = op.chunk_order};
    return weft_p2p_post(&part, 1, self->comm, self->stream);
}

static int step_by_step(weft_comm *comm, void *context)
{
    scene *on = context;
    desk *self = calloc(1, sizeof(*self));
    if (!self) {
        return 1;
    }
    int failures = set_up(on, self, comm);
    failures += CHECK(post(on, self) == WEFT_OK);
    pthread_barrier_wait(&on->barrier);
    for (size_t k = 0; k < MOST_CHUNKS; k++) {
        failures += make(on, self, k);
        pthread_barrier_wait(&on->barrier);
        if (receives(on, self->rank) && (on->exact || k + 1 == MOST_CHUNKS)) {
            failures += look(on, self, k + 1);
        }
        pthread_barrier_wait(&on->barrier);
    }
    return failures + put_away(on, self);
}

static void run_scene(scene *on)
{
    struct world world = {
        .nranks = on->nranks, .call = step_by_step, .context = on};
    const char *spread = spread_get();
    char bytes[16];
    snprintf(bytes, sizeof(bytes), "%d", on->message_bytes);
    setenv("WEFT_CHUNK_BYTES", bytes, 1);
    on->exact = on->count % GATE == 0 &&
                (on->message_bytes >= GATE_BYTES || on->nranks == 2) &&
                (!spread || strcmp(spread, "apart") == 0);
    assert_int_equal(
        pthread_barrier_init(&on->barrier, NULL, (unsigned)on->nranks), 0);
    assert_int_equal(world_run_threads(&world), 0);
    pthread_barrier_destroy(&on->barrier);
}

static void test_chunks_made_in_order_arrive_at_once(void **state)
{
    static const weft_collective all[] = {
        WEFT_COLLECTIVE_ALLREDUCE,     WEFT_COLLECTIVE_REDUCE,
        WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_ALLGATHER,
        WEFT_COLLECTIVE_ALLTOALL,      WEFT_COLLECTIVE_BROADCAST,
        WEFT_COLLECTIVE_GATHER,        WEFT_COLLECTIVE_SCATTER};
    (void)state;
    for (size_t c = 0; c < sizeof(all) / sizeof(all[0]); c++) {
        for (int nranks = 2; nranks <= MOST_RANKS; nranks++) {
            for (int order = 0; order < WEFT_CHUNK_ORDER_COUNT; order++) {
                scene on = {.collective = all[c],
                            .order = (weft_chunk_order)order,
                            .count = COUNT,
                            .nranks = nranks,
                            .message_bytes = GATE_BYTES};
                run_scene(&on);
                if (nranks <= 3) { /* then chunks that lie in two parts */
                    on.message_bytes = SHORT_BYTES;
                    run_scene(&on);
                    on.count = COUNT - 77;
                    run_scene(&on);
                }
            }
        }
    }
}

static void test_messages_go_the_way_that_was_asked_for(void **state)
{
    (void)state;
    for (int order = 0; order < WEFT_CHUNK_ORDER_COUNT; order++) {
        scene on = {.collective = WEFT_COLLECTIVE_SEND,
                    .order = (weft_chunk_order)order,
                    .count = COUNT,
                    .nranks = 2,
                    .message_bytes = SHORT_BYTES};
        run_scene(&on);
        on.listed = true;
        run_scene(&on);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_made_in_order_arrive_at_once),
        cmocka_unit_test(test_messages_go_the_way_that_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

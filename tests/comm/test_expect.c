/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a rank that sleeps until whole messages have come from another host
 * never waits for bytes that do not come: not where the next chunk depends on
 * what it does with this one, nor behind a large operation, nor after a fault,
 * nor where its peer sends less than it expects. And it is woken seldom.
 *
 * Method: two ranks that share no memory; no caller drives an engine, but the
 * progress threads, as callers wait at gates. Where a rank waited for bytes
 * that do not come, it would go on after a silence of 20 ms, and find messages
 * that nobody had told it of: those are counted, and must be few beside the
 * rounds. Not where several chunks are of use together only (no arrived gate).
 * Sizes, gates and orders are drawn, with a printed seed. Threads.
 */
#include "comm/core/core.h"
#include "comm/net/net.h"
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"
#include "tests/repeat.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NRANKS = 2,
    CHUNK_BYTES = 96 << 10,
    CHUNKS = 48,
    BYTES = CHUNKS * CHUNK_BYTES,
    SMALL_ROUNDS = 60,
    DRAWN = 40,
    AFTER_ROUNDS = 10
};

#define MUST(call) CHECK((call) == WEFT_OK)

typedef struct desk {
    weft_comm *comm;
    int rank;
    weft_device *device;
    weft_stream *streams[2];
    weft_gate *ready, *arrived, *word;
    unsigned char *send, *recv;
    uint64_t epoch;
} desk;

enum { PERIOD = 251 * 256 }; /* of byte_at */

static unsigned char byte_at(int rank, uint64_t epoch, size_t at)
{
    return (unsigned char)((size_t)rank * 101 + epoch * 37 + at * 13 +
                           at / 251);
}

static int open_desk(desk *self, weft_comm *comm)
{
    *self = (desk){.comm = comm,
                   .rank = weft_comm_get_rank(comm),
                   .send = malloc(BYTES),
                   .recv = malloc((size_t)NRANKS * BYTES)};
    int failures = CHECK(self->send && self->recv) +
                   MUST(weft_device_open("host", 0, &self->device)) +
                   MUST(weft_gate_create(self->device, CHUNKS, &self->ready)) +
                   MUST(weft_gate_create(self->device, NRANKS * CHUNKS + 1,
                                         &self->arrived)) +
                   MUST(weft_gate_create(self->device, 1, &self->word));
    for (int i = 0; i < 2; i++) {
        failures +=
            MUST(weft_stream_create(self->device, 0, &self->streams[i]));
    }
    return failures;
}

static void close_desk(desk *self)
{
    for (int i = 0; i < 2; i++) {
        weft_stream_destroy(self->streams[i]);
    }
    weft_gate_destroy(self->ready);
    weft_gate_destroy(self->arrived);
    weft_gate_destroy(self->word);
    weft_device_close(self->device);
    free(self->send);
    free(self->recv);
}

static uint64_t count_late(const desk *self)
{
    pthread_mutex_lock(&self->comm->engine->lock);
    const uint64_t count = self->comm->engine->net->late_messages;
    pthread_mutex_unlock(&self->comm->engine->lock);
    return count;
}

static void fill(desk *self, size_t first, size_t bytes)
{
    for (size_t i = first; i < first + bytes && i < first + PERIOD; i++) {
        self->send[i] = byte_at(self->rank, self->epoch, i);
    }
    repeat(self->send + first, PERIOD, bytes);
}

/* What came of the other rank's first `bytes`, at recv + begin. */
static int count_wrong(const desk *self, size_t begin, size_t bytes)
{
    int wrong = !repeats(self->recv + begin, PERIOD, bytes);
    for (size_t i = 0; i < bytes && i < PERIOD; i++) {
        wrong +=
            self->recv[begin + i] != byte_at(1 - self->rank, self->epoch, i);
    }
    return wrong > 0;
}

/* All of `bytes`, gated by chunks; arrived: the other rank's show there. */
static weft_status post_gather(desk *self, size_t bytes, bool arrived)
{
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLGATHER,
                        .send = self->send,
                        .recv = self->recv,
                        .count = bytes,
                        .dtype = WEFT_DTYPE_U8,
                        .ready = self->ready,
                        .arrived = arrived ? self->arrived : NULL,
                        .gate_elems = CHUNK_BYTES,
                        .class_id = WEFT_CLASS_DP};
    return weft_op_post(&op, self->epoch, self->comm, self->streams[0]);
}

/* One byte to or from the other rank, in a queue of its own; its end shows at
 * the second stream. */
static weft_status post_word(desk *self, bool sends, unsigned char *word)
{
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = sends ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                           .buffer = word,
                           .count = 1,
                           .dtype = WEFT_DTYPE_U8,
                           .peer = 1 - self->rank,
                           .queue = 1,
                           .class_id = WEFT_CLASS_DP};
    return weft_p2p_post(&part, 1, self->comm, self->streams[1]);
}

/* Both ranks, in turns; each waits for its stream, no engine is driven. */
static int pass_word(desk *self, int first)
{
    unsigned char word = 7;
    int failures = 0;
    for (int turn = 0; turn < 2; turn++) {
        const bool sends = (first + turn) % 2 == self->rank;
        failures += MUST(post_word(self, sends, &word)) +
                    MUST(weft_stream_wait(self->streams[1]));
    }
    return failures + CHECK(word == 7);
}

/* Rank 1's next chunk is ready when rank 0's has come, and the other way: no
 * chunk follows one that nobody has taken. */
static int lean_on_chunks(weft_comm *comm, void *context)
{
    desk self;
    int failures = open_desk(&self, comm);
    (void)context;
    self.epoch = 1;
    fill(&self, 0, BYTES);
    failures += MUST(weft_barrier(comm, NULL));
    const uint64_t before = count_late(&self);
    failures += MUST(post_gather(&self, BYTES, true));
    for (size_t i = 0; i < CHUNKS && failures == 0; i++) {
        const size_t awaited = self.rank == 1 ? i : CHUNKS + i - 1;
        if (self.rank == 1 || i > 0) {
            failures += MUST(weft_gate_wait(self.arrived, awaited, 1, NULL));
        }
        failures += MUST(weft_gate_signal(self.ready, i, 1, NULL));
    }
    failures += MUST(weft_stream_wait(self.streams[0]));
    const uint64_t late = count_late(&self) - before;
    failures +=
        CHECK(late < CHUNKS / 3) +
        CHECK(count_wrong(&self, (size_t)(1 - self.rank) * BYTES, BYTES) == 0);
    close_desk(&self);
    return failures;
}

/* Small messages, while a large operation waits for chunks that are not made:
 * between any two of them. */
static int talk_behind(weft_comm *comm, void *context)
{
    desk self;
    int failures = open_desk(&self, comm);
    (void)context;
    self.epoch = 1;
    fill(&self, 0, BYTES);
    failures += MUST(weft_barrier(comm, NULL));
    const uint64_t before = count_late(&self);
    failures += MUST(post_gather(&self, BYTES, true));
    for (size_t i = 0; i < SMALL_ROUNDS && failures == 0; i++) {
        failures += pass_word(&self, (int)(i % 2));
        if (i < CHUNKS) {
            failures += MUST(weft_gate_signal(self.ready, i, 1, NULL));
        }
    }
    failures += MUST(weft_stream_wait(self.streams[0]));
    const uint64_t late = count_late(&self) - before;
    failures +=
        CHECK(late < SMALL_ROUNDS / 3) +
        CHECK(count_wrong(&self, (size_t)(1 - self.rank) * BYTES, BYTES) == 0);
    close_desk(&self);
    return failures;
}

typedef struct draw {
    uint64_t seed;
} draw;

/* Operations of any size, with and without arrived gates, the chunks made by
 * either rank in its own time, small messages between them. */
static int draw_operations(weft_comm *comm, void *context)
{
    desk self;
    uint64_t seed = ((const draw *)context)->seed;
    int failures = open_desk(&self, comm);
    failures += MUST(weft_barrier(comm, NULL));
    uint64_t late = 0;
    for (int i = 0; i < DRAWN && failures == 0; i++) {
        const uint64_t drawn = random_next(&seed);
        const size_t bytes = 1 + (size_t)(drawn >> 8) % BYTES;
        const size_t chunks = (bytes - 1) / CHUNK_BYTES + 1;
        self.epoch++;
        fill(&self, 0, bytes);
        const uint64_t before = count_late(&self);
        failures += MUST(post_gather(&self, bytes, drawn & 1));
        const size_t talks_at = (size_t)(drawn >> 32) % (2 * chunks);
        for (size_t chunk = 0; chunk < chunks && failures == 0; chunk++) {
            failures +=
                MUST(weft_gate_signal(self.ready, chunk, self.epoch, NULL)) +
                (chunk == talks_at ? pass_word(&self, (int)(drawn >> 1 & 1))
                                   : 0);
        }
        failures += MUST(weft_stream_wait(self.streams[0])) +
                    CHECK(count_wrong(&self, (size_t)(1 - self.rank) * bytes,
                                      bytes) == 0);
        late += drawn & 1 ? count_late(&self) - before : 0;
    }
    failures += CHECK(late < DRAWN / 4);
    close_desk(&self);
    return failures;
}

/* One rank ends a communicator while both wait for chunks of it; the others go
 * on as ever. */
static int end_one(weft_comm *world, void *context)
{
    desk self, other;
    weft_comm *comm;
    (void)context;
    int failures =
        MUST(weft_comm_split(world, 0, weft_comm_get_rank(world), NULL, &comm));
    failures += open_desk(&self, comm) + open_desk(&other, world);
    self.epoch = 1;
    fill(&self, 0, BYTES);
    failures += MUST(post_gather(&self, BYTES, false));
    for (size_t i = 0; i < CHUNKS / 2; i++) {
        failures += MUST(weft_gate_signal(self.ready, i, 1, NULL));
    }
    failures += pass_word(&other, 0);
    if (self.rank == 0) {
        failures += MUST(weft_comm_abort(comm));
    }
    failures += CHECK(weft_stream_wait(self.streams[0]) != WEFT_OK);
    failures += pass_word(&other, 1); /* both have seen the fault */
    const uint64_t before = count_late(&other);
    for (int i = 0; i < AFTER_ROUNDS && failures == 0; i++) {
        failures += pass_word(&other, i % 2);
    }
    failures += CHECK(count_late(&other) - before < AFTER_ROUNDS / 2);
    close_desk(&other);
    weft_comm_destroy(comm);
    close_desk(&self);
    return failures;
}

/* A message that is shorter than its receiver expects is named, though fewer
 * bytes come than it waits for. */
static int send_less(weft_comm *world, void *context)
{
    desk self;
    weft_comm *comm;
    weft_fault fault = {.size_bytes = sizeof(fault)};
    (void)context;
    int failures =
        MUST(weft_comm_split(world, 0, weft_comm_get_rank(world), NULL, &comm));
    failures += open_desk(&self, comm);
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = self.rank ? WEFT_P2P_RECV : WEFT_P2P_SEND,
                           .buffer = self.recv,
                           .count = self.rank ? BYTES : 20000,
                           .dtype = WEFT_DTYPE_U8,
                           .peer = 1 - self.rank,
                           .class_id = WEFT_CLASS_DP};
    failures += MUST(weft_p2p_post(&part, 1, comm, self.streams[0]));
    const weft_status ended = weft_stream_wait(self.streams[0]);
    if (self.rank == 1) {
        failures += CHECK(ended == WEFT_ERR_MISMATCH) +
                    MUST(weft_comm_get_fault(comm, &fault)) +
                    CHECK(fault.status == WEFT_ERR_MISMATCH);
    }
    failures += MUST(weft_barrier(world, NULL));
    weft_comm_destroy(comm);
    close_desk(&self);
    return failures;
}

static void run(world_rank_call call, void *context)
{
    struct world world = {.nranks = NRANKS, .call = call, .context = context};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_expect_chunk_that_depends_on_the_last_comes(void **state)
{
    (void)state;
    run(lean_on_chunks, NULL);
}

static void test_expect_small_message_behind_large_comes(void **state)
{
    (void)state;
    run(talk_behind, NULL);
}

static void test_expect_drawn_operations_come(void **state)
{
    (void)state;
    draw context = {random_seed()};
    run(draw_operations, &context);
}

static void test_expect_other_communicators_go_on_after_abort(void **state)
{
    (void)state;
    run(end_one, NULL);
}

static void test_expect_short_message_is_named(void **state)
{
    (void)state;
    run(send_less, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expect_chunk_that_depends_on_the_last_comes),
        cmocka_unit_test(test_expect_small_message_behind_large_comes),
        cmocka_unit_test(test_expect_drawn_operations_come),
        cmocka_unit_test(test_expect_other_communicators_go_on_after_abort),
        cmocka_unit_test(test_expect_short_message_is_named)};
    setenv("WEFT_DOMAIN", "a,b", 1);
    setenv("WEFT_TIMEOUT_MS", "20000", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

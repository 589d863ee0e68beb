/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a list may not be is refused by name and leaves nothing queued;
 * lists that do not match, whose peer dies, leaves or never comes end on all
 * sides with the names of rank and message; gates cut a list as they cut
 * everything else.
 *
 * Method: small worlds of threads (processes where a rank is killed), each
 * rank checks status, text and data.
 */
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ELEMS = 30000, CUT = 1000 };

static weft_p2p part(weft_p2p_kind kind, void *buffer, size_t count, int peer)
{
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = buffer,
                      .count = count,
                      .dtype = WEFT_DTYPE_F32,
                      .peer = peer};
}

static int refuse(weft_comm *comm, weft_p2p good, weft_p2p bad,
                  const char *text)
{
    weft_p2p list[] = {good, good, bad};
    list[1].buffer = (float *)good.buffer + 10;
    return expect(weft_p2p_post(list, 3, comm, NULL), WEFT_ERR_INVALID, text);
}

static int bad_parts(weft_comm *comm, void *context)
{
    (void)context;
    float data[64] = {0};
    weft_gate *gate;
    weft_device *device;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_gate_create(device, 2, &gate) != WEFT_OK;
    weft_p2p good = part(WEFT_P2P_SEND, data, 4, 0);
    weft_p2p bad = part(WEFT_P2P_RECV, data + 40, 4, 0);
    bad.size_bytes = 8;
    failures += refuse(comm, good, bad, "list[2]: weft_p2p->size_bytes 8");
    bad = part((weft_p2p_kind)7, data + 40, 4, 0);
    failures += refuse(comm, good, bad, "list[2]: kind 7");
    bad = part(WEFT_P2P_RECV, data + 40, 4, 5);
    failures += refuse(comm, good, bad, "list[2]: peer 5: allowed is 0..0");
    bad = part(WEFT_P2P_RECV, data + 40, 4, -1);
    failures += refuse(comm, good, bad, "list[2]: peer -1");
    bad = part(WEFT_P2P_RECV, NULL, 4, 0);
    failures += refuse(comm, good, bad, "list[2]: buffer is NULL");
    bad = part(WEFT_P2P_RECV, data + 40, SIZE_MAX / 4, 0);
    failures += refuse(comm, good, bad, "list[2]: count");
    bad = part(WEFT_P2P_RECV, data + 40, 4, 0);
    bad.dtype = (weft_dtype)99;
    failures += refuse(comm, good, bad, "list[2]: dtype 99");
    bad.dtype = WEFT_DTYPE_F32;
    bad.ready = gate;
    failures += refuse(comm, good, bad, "list[2]: a RECV with a gate ready");
    bad.ready = NULL;
    bad.arrived = gate;
    failures += refuse(comm, good, bad, "list[2]: epoch 0 with gates");
    bad.epoch = 1;
    bad.arrived_chunk = 2;
    failures += refuse(comm, good, bad, "list[2]: arrived needs chunks 2..2");
    bad = part(WEFT_P2P_RECV, data + 40, 4, 0);
    bad.chunk_order = WEFT_CHUNK_ORDER_COUNT;
    failures += refuse(comm, good, bad, "list[2]: chunk_order 2: allowed is");
    bad = part(WEFT_P2P_RECV, data + 3, 1, 0);
    failures += refuse(comm, good, bad, "overlaps that of list[0]");
    bad = part(WEFT_P2P_RECV, data + 8, 8, 0);
    failures += refuse(comm, good, bad, "overlaps that of list[2]");
    for (int i = 0; i < 3; i++) { /* over its end, over its begin, the same */
        weft_p2p pair[] = {part(WEFT_P2P_SEND, data + 20, 4, 0),
                           part(WEFT_P2P_RECV, data + 20 + (i - 1) * 3, 4, 0)};
        failures += expect(weft_p2p_post(pair, 2, comm, NULL), WEFT_ERR_INVALID,
                           "overlaps that of list[");
    }
    failures +=
        expect(weft_p2p_post(NULL, 1, comm, NULL), WEFT_ERR_INVALID, "list");
    failures +=
        expect(weft_p2p_post(&good, 1, NULL, NULL), WEFT_ERR_INVALID, "comm");
    failures += expect(weft_p2p_post(NULL, 0, comm, NULL), WEFT_OK, "");
    /* Nothing of all that is queued: the pair's first message is this one. */
    data[0] = 7;
    weft_p2p list[] = {part(WEFT_P2P_RECV, data + 32, 4, 0), good};
    failures += expect(weft_p2p_post(list, 2, comm, NULL), WEFT_OK, "");
    failures += data[32] != 7;
    weft_gate_destroy(gate);
    weft_device_close(device);
    return failures;
}

static void test_p2p_bad_part_refused_by_name_nothing_queued(void **state)
{
    (void)state;
    struct world world = {.nranks = 1, .call = bad_parts};
    assert_int_equal(world_run_threads(&world), 0);
}

/* context: the text that names rank 1's side of the second message. */
static int differ(weft_comm *comm, void *context)
{
    const char *theirs = context;
    float data[64] = {0};
    bool first = weft_comm_get_rank(comm) == 0;
    bool other_dtype = strstr(theirs, "i32") != NULL;
    weft_p2p list[] = {
        part(first ? WEFT_P2P_SEND : WEFT_P2P_RECV, data, 4, first),
        part(first ? WEFT_P2P_SEND : WEFT_P2P_RECV, data + 16, 8, first)};
    if (!first && other_dtype) {
        list[1].dtype = WEFT_DTYPE_I32;
    } else if (!first) {
        list[1].count = 9;
    }
    weft_status status = weft_p2p_post(list, 2, comm, NULL);
    if (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    return expect(status, WEFT_ERR_MISMATCH, theirs) +
           expect(status, WEFT_ERR_MISMATCH, "message #2") +
           expect(status, WEFT_ERR_MISMATCH, "rank 0 posted send of 8 f32");
}

static void test_p2p_mismatch_both_sides_named_on_both(void **state)
{
    (void)state;
    const char *const texts[] = {"rank 1 posted recv of 9 f32",
                                 "rank 1 posted recv of 8 i32"};
    for (int i = 0; i < 2; i++) {
        struct world world = {
            .nranks = 3, .call = differ, .context = (void *)texts[i]};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* To itself: the message is there before its receive is looked at. */
static int differ_at_once(weft_comm *comm, void *context)
{
    (void)context;
    float data[16] = {0};
    weft_p2p list[] = {part(WEFT_P2P_SEND, data, 4, 0),
                       part(WEFT_P2P_RECV, data + 8, 3, 0)};
    return expect(weft_p2p_post(list, 2, comm, NULL), WEFT_ERR_MISMATCH,
                  "rank 0 posted recv of 3 f32, rank 0 posted send of 4 f32");
}

static void test_p2p_mismatch_already_there_named(void **state)
{
    (void)state;
    struct world world = {.nranks = 1, .call = differ_at_once};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 1 posts nothing, and waits for the verdict. */
static int never_sent(weft_comm *comm, void *context)
{
    (void)context;
    float data[8];
    weft_p2p list[] = {part(WEFT_P2P_RECV, data, 4, 1),
                       part(WEFT_P2P_SEND, data + 4, 4, 1)};
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int64_t end_ns = wefti_clock_ns() + (int64_t)20 * 1000000000;
    while (weft_comm_get_rank(comm) == 1 && fault.status == WEFT_OK &&
           wefti_clock_ns() < end_ns) {
        if (weft_comm_get_fault(comm, &fault) != WEFT_OK) {
            return 1;
        }
        sched_yield();
    }
    return expect(weft_p2p_post(list, 2, comm, NULL), WEFT_ERR_TIMEOUT,
                  "recv #1 from rank 1 on \"world\": rank 1 has not sent");
}

/* The ranks in the all-reduce give up first. */
static void be_patient(int rank, weft_comm_config *config, void *context)
{
    (void)context;
    config->warn_ms = 500;
    config->timeout_ms = rank == 2 ? 60000 : 1000;
}

/* Rank 2 comes to the all-reduce after what rank 0 forgets to send. */
static int forgotten(weft_comm *comm, void *context)
{
    (void)context;
    float data[4] = {0};
    int failures = 0;
    weft_status status = weft_comm_get_rank(comm) == 2
                             ? weft_recv(data, 4, WEFT_DTYPE_F32, 0, comm, NULL)
                             : weft_allreduce(data, data, 4, WEFT_DTYPE_F32,
                                              WEFT_REDOP_SUM, comm, NULL);
    failures += expect(status, WEFT_ERR_TIMEOUT, "rank 2 has not entered");
    failures += expect(status, WEFT_ERR_TIMEOUT,
                       ": it waits in recv #1 from rank 0 of 4 f32");
    weft_fault fault = {.size_bytes = sizeof(fault)};
    failures += weft_comm_get_fault(comm, &fault) != WEFT_OK;
    return failures + (fault.rank != 0);
}

static void test_p2p_forgotten_send_named_by_who_waits_elsewhere(void **state)
{
    (void)state;
    struct world world = {
        .nranks = 3, .call = forgotten, .configure = be_patient};
    assert_int_equal(world_run_threads(&world), 0);
}

static void test_p2p_peer_never_sends_timeout_names_it(void **state)
{
    (void)state;
    struct world world = {.nranks = 2,
                          .config = {.warn_ms = 100, .timeout_ms = 400},
                          .call = never_sent};
    assert_int_equal(world_run_threads(&world), 0);
}

/* Rank 2 dies; the others have a list with it, one on a stream. */
static int lose_peer(weft_comm *comm, void *context)
{
    (void)context;
    static float data[3 * ELEMS];
    int rank = weft_comm_get_rank(comm);
    weft_device *device;
    weft_stream *stream;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK;
    weft_p2p list[] = {part(WEFT_P2P_SEND, data, ELEMS, 1 - rank),
                       part(WEFT_P2P_RECV, data + ELEMS, ELEMS, 1 - rank),
                       part(WEFT_P2P_RECV, data + 2 * (size_t)ELEMS, ELEMS, 2)};
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (rank == 2) {
        kill(getpid(), SIGKILL);
    }
    weft_status status =
        weft_p2p_post(list, 3, comm, rank == 0 ? stream : NULL);
    if (rank == 0 && status == WEFT_OK) {
        failures += weft_stream_wait(stream) != WEFT_ERR_PEER;
        status = weft_p2p_post(list, 3, comm, NULL);
    }
    failures += expect(status, WEFT_ERR_PEER, "from rank 2 on");
    failures += expect(status, WEFT_ERR_PEER, "rank 2 has died");
    weft_stream_destroy(stream);
    weft_device_close(device);
    return failures;
}

static void test_p2p_peer_killed_list_fails_by_name(void **state)
{
    (void)state;
    struct world world = {.nranks = 3, .call = lose_peer};
    assert_int_equal(world_run_killed(&world, 2), 0);
}

/* What the parent and the ranks that it kills share. */
struct arena {
    _Atomic int inside; /* ranks that have begun */
    int victim;
};

/* Lists of all sizes between all pairs until something ends them. */
static int until_fault(weft_comm *comm, void *context)
{
    struct arena *arena = context;
    const int *victim = &arena->victim;
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    float *out = calloc(ELEMS, sizeof(*out));
    float *in = calloc((size_t)nranks * ELEMS, sizeof(*in));
    weft_p2p list[16];
    weft_status status = WEFT_OK;
    atomic_fetch_add(&arena->inside, 1);
    for (size_t round = 1; status == WEFT_OK; round++) {
        size_t count = round * 997 % ELEMS;
        for (int peer = 0; peer < nranks; peer++) {
            list[2 * peer] =
                part(WEFT_P2P_RECV, in + (size_t)peer * ELEMS, count, peer);
            list[2 * peer + 1] = part(WEFT_P2P_SEND, out, count, peer);
        }
        status = weft_p2p_post(list, 2 * (size_t)nranks, comm, NULL);
    }
    char name[32];
    snprintf(name, sizeof(name), "rank %d has died", *victim);
    int failures = rank == *victim ? 1 : expect(status, WEFT_ERR_PEER, name);
    free(out);
    free(in);
    return failures;
}

static void test_p2p_killed_in_flight_survivors_name_it(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    int kills = getenv("WEFT_TEST_LONG") ? 200 : 6;
    struct arena *arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(arena, MAP_FAILED);
    for (int i = 0; i < kills; i++) {
        arena->victim = i % 4;
        atomic_store(&arena->inside, 0);
        struct world world = {
            .nranks = 4, .call = until_fault, .context = arena};
        world_processes started;
        world_start_processes(&world, &started);
        int64_t end_ns = wefti_clock_ns() + (int64_t)30 * 1000000000;
        while (atomic_load(&arena->inside) < 4 && wefti_clock_ns() < end_ns) {
            sched_yield();
        }
        struct timespec nap = {0, (long)(random_next(&seed) % 60000000)};
        nanosleep(&nap, NULL);
        kill(started.pids[arena->victim], SIGKILL);
        assert_int_equal(world_finish_survivors(&started, 30), 0);
        for (int rank = 0; rank < 4; rank++) {
            int ended = started.exit_status[rank];
            assert_true(rank == arena->victim ? WIFSIGNALED(ended)
                                              : ended == 0);
        }
    }
    munmap(arena, sizeof(*arena));
}

/* Sent chunk by chunk as it is made, used chunk by chunk as it comes. */
static int gated(weft_comm *comm, void *context)
{
    (void)context;
    static _Thread_local float out[ELEMS], in[ELEMS];
    int rank = weft_comm_get_rank(comm), nranks = weft_comm_get_nranks(comm);
    weft_device *device;
    weft_stream *stream;
    weft_gate *ready, *arrived;
    size_t chunks = ELEMS / CUT;
    int failures = weft_device_open("host", 0, &device) != WEFT_OK ||
                   weft_stream_create(device, 0, &stream) != WEFT_OK ||
                   weft_gate_create(device, chunks, &ready) != WEFT_OK ||
                   weft_gate_create(device, chunks + 1, &arrived) != WEFT_OK;
    int before = (rank + nranks - 1) % nranks;
    weft_p2p list[] = {part(WEFT_P2P_RECV, in, ELEMS, before),
                       part(WEFT_P2P_SEND, out, ELEMS, (rank + 1) % nranks)};
    list[0].gate_elems = list[1].gate_elems = CUT;
    list[0].arrived = arrived;
    list[0].arrived_chunk = 1;
    list[1].ready = ready;
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        list[0].epoch = list[1].epoch = epoch;
        memset(in, 0xA5, sizeof(in));
        failures += weft_p2p_post(list, 2, comm, stream) != WEFT_OK;
        for (size_t chunk = 0; chunk < chunks; chunk++) {
            for (size_t i = chunk * CUT; i < (chunk + 1) * CUT; i++) {
                out[i] = (float)(i + epoch + (size_t)rank);
            }
            failures += weft_gate_signal(ready, chunk, epoch, NULL) != WEFT_OK;
            failures +=
                weft_gate_wait(arrived, chunk + 1, epoch, NULL) != WEFT_OK;
            for (size_t i = chunk * CUT; i < (chunk + 1) * CUT; i++) {
                failures += in[i] != (float)(i + epoch + (size_t)before);
            }
        }
        failures += weft_stream_wait(stream) != WEFT_OK;
    }
    weft_stream_destroy(stream);
    weft_gate_destroy(ready);
    weft_gate_destroy(arrived);
    weft_device_close(device);
    return failures > 63 ? 63 : failures;
}

static void test_p2p_gated_ring_chunk_by_chunk_exact(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++) {
        struct world world = {.nranks = nranks, .call = gated};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p2p_peer_killed_list_fails_by_name),
        cmocka_unit_test(test_p2p_killed_in_flight_survivors_name_it),
        cmocka_unit_test(test_p2p_bad_part_refused_by_name_nothing_queued),
        cmocka_unit_test(test_p2p_mismatch_both_sides_named_on_both),
        cmocka_unit_test(test_p2p_mismatch_already_there_named),
        cmocka_unit_test(test_p2p_peer_never_sends_timeout_names_it),
        cmocka_unit_test(test_p2p_forgotten_send_named_by_who_waits_elsewhere),
        cmocka_unit_test(test_p2p_gated_ring_chunk_by_chunk_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

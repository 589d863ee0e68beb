/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    a rank has one progress thread, however often it has created a
 *         communicator; it sleeps on all of them at once, none is held up by
 *         another, by its fault or by its end.
 * Method  ranks make several communicators by ids of their own. The process's
 *         threads of that name are counted in /proc/self/task. Messages go back
 *         and forth on a communicator drawn each time while all others have
 *         something pending: a thread that does not sleep on one of them finds
 *         its news 20 ms late, and such rounds are counted for each.
 * Communicators are aborted, made and destroyed while others work.
 *
 * With the argument alone, under a filter that forbids futex_waitv, each of
 * them has a thread.
 */
#include "base/clock.h"
#include "base/doorbell.h"
#include "comm/engine/driver.h"
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/threads.h"
#include "tests/comm/world.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum {
    COMMS = 4,
    ROUNDS = 600,
    ATTEMPTS = 4,
    LATE = 16, /* what a late rank says, where nothing else is wrong */
    TIMES = 12,
    ELEMS = 4096
};

/* What a thread sleeps that has missed its bell, nearly. */
#define LATE_NS INT64_C(19000000)

static bool shared; /* a thread can serve several */

/* Fails ranks alike: each has made all, or the test ends there. */
static int create_all(weft_comm *comm, weft_comm *comms[COMMS])
{
    comms[0] = comm;
    for (int i = 1; i < COMMS; i++) {
        comms[i] = world_create_another(comm, "another");
        if (!comms[i]) {
            fprintf(stderr, "cannot create: %s\n", weft_error_text());
            return 1;
        }
    }
    return 0;
}

/* Its sum, by the thread. */
static int sum(weft_comm *comm)
{
    float data[ELEMS];
    const int nranks = weft_comm_get_nranks(comm);
    weft_request *request = NULL;
    for (int i = 0; i < ELEMS; i++) {
        data[i] = (float)(weft_comm_get_rank(comm) + i % 7);
    }
    const weft_op op = all_reduce_op(data, ELEMS, WEFT_DTYPE_F32);
    int failures = weft_op_begin(&op, 0, comm, &request) != WEFT_OK ||
                   weft_request_wait(request) != WEFT_OK;
    weft_request_destroy(request);
    for (int i = 0; i < ELEMS && !failures; i++) {
        failures +=
            data[i] != (float)(nranks * (nranks - 1) / 2 + nranks * (i % 7));
    }
    return failures;
}

/* ---- how many threads ------------------------------------------------------
 */

static int count_after_work(weft_comm *comm, void *context)
{
    weft_comm *comms[COMMS];
    const bool threads = context != NULL; /* ranks are threads */
    int failures = create_all(comm, comms);
    if (failures) {
        return failures;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    failures +=
        count_threads("weft-progress\n") != 0; /* none before one is needed */
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (int i = 0; i < COMMS; i++) {
        failures += sum(comms[i]);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    const int found = count_threads("weft-progress\n");
    const int expected =
        (threads ? weft_comm_get_nranks(comm) : 1) * (shared ? 1 : COMMS);
    if (found != expected) {
        fprintf(stderr, "rank %d: %d threads, expected %d\n",
                weft_comm_get_rank(comm), found, expected);
        failures++;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    for (int i = 1; i < COMMS; i++) {
        weft_comm_destroy(comms[i]);
    }
    failures += sum(comm);
    return failures;
}

static void test_process_with_several_comms_has_one_thread(void **state)
{
    const struct world world = {.nranks = 2, .call = count_after_work};
    (void)state;
    assert_int_equal(world_run_processes(&world), 0);
}

static void test_threads_of_one_process_have_a_thread_each(void **state)
{
    const struct world world = {
        .nranks = 3, .call = count_after_work, .context = &shared};
    (void)state;
    assert_int_equal(world_run_threads(&world), 0);
}

/* ---- one sleep -------------------------------------------------------------
 */

/* Until the other rank says so; in a queue of its own. */
static int begin_late(weft_comm *comm, int *late, weft_request **request)
{
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = WEFT_P2P_RECV,
                           .buffer = late,
                           .count = 1,
                           .dtype = WEFT_DTYPE_I32,
                           .peer = !weft_comm_get_rank(comm),
                           .queue = 1};
    return weft_p2p_begin(&part, 1, comm, request) != WEFT_OK;
}

static int end_late(weft_comm *comm, int *late, weft_request *request)
{
    int said = weft_comm_get_rank(comm) + 100;
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = WEFT_P2P_SEND,
                           .buffer = &said,
                           .count = 1,
                           .dtype = WEFT_DTYPE_I32,
                           .peer = !weft_comm_get_rank(comm),
                           .queue = 1};
    int failures = weft_p2p_post(&part, 1, comm, NULL) != WEFT_OK;
    failures += weft_request_wait(request) != WEFT_OK;
    weft_request_destroy(request);
    return failures + (*late != !weft_comm_get_rank(comm) + 100);
}

/* There and back on a stream, so that only the thread moves it. */
static int pass(weft_comm *comm, weft_stream *stream, int round)
{
    const int peer = !weft_comm_get_rank(comm);
    int out = round, in = -1;
    weft_status status =
        weft_comm_get_rank(comm) == 0
            ? weft_send(&out, 1, WEFT_DTYPE_I32, peer, comm, stream)
            : WEFT_OK;
    if (status == WEFT_OK) {
        status = weft_recv(&in, 1, WEFT_DTYPE_I32, peer, comm, stream);
    }
    if (status == WEFT_OK) {
        status = weft_stream_wait(stream);
    }
    if (status == WEFT_OK && weft_comm_get_rank(comm) == 1) {
        status = weft_send(&out, 1, WEFT_DTYPE_I32, peer, comm, stream);
    }
    if (status == WEFT_OK) {
        status = weft_stream_wait(stream);
    }
    return status != WEFT_OK || in != round;
}

static int pass_on_any(weft_comm *comm, void *context)
{
    weft_comm *comms[COMMS];
    weft_request *requests[COMMS];
    weft_device *device;
    weft_stream *stream;
    int late[COMMS];
    uint64_t seed = *(const uint64_t *)context;
    int failures = create_all(comm, comms);
    if (failures || weft_device_open("host", 0, &device) != WEFT_OK ||
        weft_stream_create(device, 0, &stream) != WEFT_OK) {
        fprintf(stderr, "no stream: %s\n", weft_error_text());
        return 1;
    }
    for (int i = 0; i < COMMS; i++) {
        failures += begin_late(comms[i], &late[i], &requests[i]);
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    int rounds[COMMS] = {0}, late_rounds[COMMS] = {0};
    for (int round = 0; round < ROUNDS && !failures; round++) {
        const size_t drawn = random_next(&seed) % COMMS;
        const int64_t begin_ns = wefti_clock_ns();
        failures += pass(comms[drawn], stream, round);
        rounds[drawn]++;
        late_rounds[drawn] += wefti_clock_ns() - begin_ns >= LATE_NS;
    }
    for (int i = 0; i < COMMS; i++) {
        failures += end_late(comms[i], &late[i], requests[i]);
    }
    bool late_often = false;
    for (int i = 0; i < COMMS; i++) {
        late_often = late_often || 2 * late_rounds[i] > rounds[i];
        if (weft_comm_get_rank(comm) == 0) {
            fprintf(stderr, "communicator %d: %d of %d rounds late\n", i,
                    late_rounds[i], rounds[i]);
        }
    }
    weft_stream_destroy(stream);
    weft_device_close(device);
    for (int i = 1; i < COMMS; i++) {
        weft_comm_destroy(comms[i]);
    }
    if (failures) {
        return 1;
    }
    return late_often ? LATE : 0;
}

/* Whether a rank says so; anything else that is wrong fails the test. */
static bool is_late(const struct world *world)
{
    world_processes ranks;
    bool late = false;
    world_start_processes(world, &ranks);
    assert_int_equal(world_finish_survivors(&ranks, 60), 0);
    for (int rank = 0; rank < ranks.nranks; rank++) {
        const int ended = ranks.exit_status[rank];
        assert_true(WIFEXITED(ended));
        assert_true(WEXITSTATUS(ended) == 0 || WEXITSTATUS(ended) == LATE);
        late = late || WEXITSTATUS(ended) == LATE;
    }
    return late;
}

/* A busy machine may be late for a while, and on any communicator; one whose
 * bell is missed is late in nearly all of its rounds. */
static void test_news_of_any_comm_end_the_sleep(void **state)
{
    uint64_t seed = random_seed();
    const struct world world = {
        .nranks = 2, .call = pass_on_any, .context = &seed};
    (void)state;
    bool late = true;
    for (int i = 0; i < ATTEMPTS && late; i++) {
        late = is_late(&world);
    }
    assert_false(late);
}

/* ---- faults and ends -------------------------------------------------------
 */

/* Rank 0 aborts one with something pending, as all do others. */
static int abort_one(weft_comm *comm, void *context)
{
    weft_comm *comms[COMMS];
    weft_request *request;
    int late;
    (void)context;
    int failures = create_all(comm, comms);
    if (failures || begin_late(comms[1], &late, &request)) {
        return 1;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (weft_comm_get_rank(comm) == 0) {
        failures += weft_comm_abort(comms[1]) != WEFT_OK;
    }
    for (int i = 0; i < COMMS; i++) {
        failures += i != 1 && sum(comms[i]) != 0;
    }
    failures += weft_request_wait(request) != WEFT_ERR_ABORTED;
    weft_request_destroy(request);
    failures += weft_barrier(comms[1], NULL) != WEFT_ERR_ABORTED;
    for (int i = 1; i < COMMS; i++) {
        weft_comm_destroy(comms[i]);
        failures += sum(comm);
    }
    return failures;
}

static void test_fault_of_one_stops_no_other(void **state)
{
    const struct world world = {.nranks = 2, .call = abort_one};
    (void)state;
    assert_int_equal(world_run_processes(&world), 0);
    assert_int_equal(world_run_threads(&world), 0);
}

/* Communicators come, work and go while a message of the first is awaited. */
static int come_and_go(weft_comm *comm, void *context)
{
    weft_request *request;
    int late, failures = begin_late(comm, &late, &request);
    (void)context;
    for (int i = 0; i < TIMES && !failures; i++) {
        weft_comm *one = world_create_another(comm, "one");
        weft_comm *other = one ? world_create_another(comm, "other") : NULL;
        if (!other) {
            return 1;
        }
        failures += sum(other) + sum(one) + sum(comm);
        weft_comm_destroy(i % 2 ? one : other);
        failures += sum(i % 2 ? other : one);
        weft_comm_destroy(i % 2 ? other : one);
    }
    return failures + end_late(comm, &late, request);
}

static void test_comms_come_and_go(void **state)
{
    const struct world world = {.nranks = 2, .call = come_and_go};
    (void)state;
    assert_int_equal(world_run_processes(&world), 0);
    assert_int_equal(world_run_threads(&world), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process_with_several_comms_has_one_thread),
        cmocka_unit_test(test_news_of_any_comm_end_the_sleep),
        cmocka_unit_test(test_fault_of_one_stops_no_other),
        cmocka_unit_test(test_comms_come_and_go),
        cmocka_unit_test(test_threads_of_one_process_have_a_thread_each),
    };
    const bool alone = argc > 1 && strcmp(argv[1], "alone") == 0;
    shared = wefti_doorbell_can_wait_for_any();
    if (alone && shared) {
        fprintf(stderr, "futex_waitv is not forbidden\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

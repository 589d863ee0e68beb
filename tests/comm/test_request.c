/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: operations that are begun without a stream are done beside their
 * caller, in the order of posting among all posts; posting never waits for
 * room, however many are pending; handles tell the end and the fault, also
 * after the communicator; bad arguments are refused by name, with nothing
 * queued.
 *
 * Method: more posts than there are op slots, begun or on a stream that a gate
 * holds (a post that waited for room would wait for ever); arrays and scalars
 * are overwritten behind the call; handles are waited for backwards, asked
 * again and again, and thrown away. Modes: threads, processes.
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

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NRANKS = 3, MANY = 300, SIZES = 4 };

typedef int (*runner)(const struct world *world);
static runner run = world_run_threads;

static size_t count_of(int number)
{
    static const size_t counts[SIZES] = {1, 1000, 30000, 7};
    return counts[number % SIZES];
}

/* MANY buffers, each all of its number and rank. */
static uint32_t **make_buffers(int rank)
{
    uint32_t **buffers = calloc(MANY, sizeof(*buffers));
    for (int i = 0; buffers && i < MANY; i++) {
        buffers[i] = calloc(count_of(i), sizeof(uint32_t));
        for (size_t e = 0; buffers[i] && e < count_of(i); e++) {
            buffers[i][e] = (uint32_t)(i + rank);
        }
    }
    return buffers;
}

static int check_sums(uint32_t **buffers, int nranks)
{
    int wrong = 0;
    for (int i = 0; i < MANY; i++) {
        const uint32_t sum = (uint32_t)(nranks * i + nranks * (nranks - 1) / 2);
        for (size_t e = 0; e < count_of(i); e++) {
            wrong += buffers[i][e] != sum;
        }
    }
    return CHECK(wrong == 0);
}

static void free_buffers(uint32_t **buffers)
{
    for (int i = 0; i < MANY; i++) {
        free(buffers[i]);
    }
    free(buffers);
}

/* Begun all at once; waited for from the last to the first. */
static int begin_many(weft_comm *comm, void *context)
{
    (void)context;
    uint32_t **buffers = make_buffers(weft_comm_get_rank(comm));
    weft_request *requests[MANY];
    int failures = 0;
    for (int i = 0; i < MANY; i++) {
        const weft_op op =
            all_reduce_op(buffers[i], count_of(i), WEFT_DTYPE_U32);
        failures += CHECK(weft_op_begin(&op, 0, comm, &requests[i]) == WEFT_OK);
    }
    for (int i = MANY; i-- > 0;) {
        failures += CHECK(weft_request_wait(requests[i]) == WEFT_OK);
        failures += CHECK(weft_request_test(requests[i]) == WEFT_OK);
        weft_request_destroy(requests[i]);
    }
    failures += check_sums(buffers, weft_comm_get_nranks(comm));
    free_buffers(buffers);
    return failures;
}

/* The stream comes to none of them before all are posted. */
static int post_many(weft_comm *comm, void *context)
{
    (void)context;
    uint32_t **buffers = make_buffers(weft_comm_get_rank(comm));
    weft_device *device;
    weft_stream *stream;
    weft_gate *gate;
    int failures = CHECK(weft_device_open("host", 0, &device) == WEFT_OK) +
                   CHECK(weft_stream_create(device, 0, &stream) == WEFT_OK) +
                   CHECK(weft_gate_create(device, 1, &gate) == WEFT_OK) +
                   CHECK(weft_gate_wait(gate, 0, 1, stream) == WEFT_OK);
    for (int i = 0; i < MANY; i++) {
        const weft_op op =
            all_reduce_op(buffers[i], count_of(i), WEFT_DTYPE_U32);
        failures += CHECK(weft_op_post(&op, 0, comm, stream) == WEFT_OK);
    }
    /* What is begun now comes after them. */
    uint32_t last = 1;
    const weft_op op = all_reduce_op(&last, 1, WEFT_DTYPE_U32);
    weft_request *request;
    failures += CHECK(weft_op_begin(&op, 0, comm, &request) == WEFT_OK) +
                CHECK(weft_request_test(request) == WEFT_INPROGRESS) +
                CHECK(weft_gate_signal(gate, 0, 1, NULL) == WEFT_OK) +
                CHECK(weft_request_wait(request) == WEFT_OK) +
                CHECK(weft_stream_wait(stream) == WEFT_OK) +
                CHECK(last == (uint32_t)weft_comm_get_nranks(comm));
    weft_request_destroy(request);
    failures += check_sums(buffers, weft_comm_get_nranks(comm));
    free_buffers(buffers);
    weft_stream_destroy(stream);
    weft_gate_destroy(gate);
    weft_device_close(device);
    return failures;
}

/* What the call has read may change behind it; begun and plain posts alternate.
 */
static int begin_each_kind(weft_comm *comm, void *context)
{
    (void)context;
    enum { ELEMS = 5 };
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    const int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    int64_t send[NRANKS * ELEMS], all[NRANKS * ELEMS], token = rank, other = -1;
    size_t counts[NRANKS];
    int64_t scale = rank + 1, scaled[2] = {1, 10}, plain = 1;
    for (int p = 0; p < nranks; p++) {
        counts[p] = ELEMS;
    }
    for (int e = 0; e < nranks * ELEMS; e++) {
        send[e] = 100 * rank + e;
    }
    const weft_op exchange = {.size_bytes = sizeof(exchange),
                              .collective = WEFT_COLLECTIVE_ALLTOALLV,
                              .send = send,
                              .recv = all,
                              .send_counts = counts,
                              .recv_counts = counts,
                              .dtype = WEFT_DTYPE_I64};
    const weft_op multiply = {.size_bytes = sizeof(multiply),
                              .collective = WEFT_COLLECTIVE_ALLREDUCE,
                              .send = scaled,
                              .recv = scaled,
                              .count = 2,
                              .dtype = WEFT_DTYPE_I64,
                              .redop = WEFT_REDOP_PREMULSUM,
                              .scale = &scale};
    weft_p2p list[] = {{.size_bytes = sizeof(weft_p2p),
                        .kind = WEFT_P2P_SEND,
                        .buffer = &token,
                        .count = 1,
                        .dtype = WEFT_DTYPE_I64,
                        .peer = next},
                       {.size_bytes = sizeof(weft_p2p),
                        .kind = WEFT_P2P_RECV,
                        .buffer = &other,
                        .count = 1,
                        .dtype = WEFT_DTYPE_I64,
                        .peer = before}};
    weft_request *requests[4];
    int failures =
        CHECK(weft_op_begin(&exchange, 0, comm, &requests[0]) == WEFT_OK) +
        CHECK(weft_op_begin(&multiply, 0, comm, &requests[1]) == WEFT_OK) +
        CHECK(weft_p2p_begin(list, 2, comm, &requests[2]) == WEFT_OK) +
        CHECK(weft_p2p_begin(NULL, 0, comm, &requests[3]) == WEFT_OK);
    memset(counts, 0xff, sizeof(counts));
    memset(list, 0xff, sizeof(list));
    scale = -1;
    failures += CHECK(weft_request_wait(requests[3]) == WEFT_OK) +
                CHECK(weft_allreduce(&plain, &plain, 1, WEFT_DTYPE_I64,
                                     WEFT_REDOP_SUM, comm, NULL) == WEFT_OK) +
                CHECK(plain == nranks);
    for (int i = 0; i < 4; i++) {
        failures += CHECK(weft_request_wait(requests[i]) == WEFT_OK);
        weft_request_destroy(requests[i]);
    }
    for (int p = 0; p < nranks; p++) {
        for (int e = 0; e < ELEMS; e++) {
            failures += CHECK(all[p * ELEMS + e] == 100 * p + rank * ELEMS + e);
        }
    }
    const int64_t sum = (int64_t)nranks * (nranks + 1) / 2;
    return failures + CHECK(scaled[0] == sum && scaled[1] == 10 * sum) +
           CHECK(other == before);
}

/* A plan's posts are all its own, and asking alone brings them to an end. */
static int begin_plan(weft_comm *comm, void *context)
{
    (void)context;
    uint32_t data[8] = {0};
    const weft_op op = all_reduce_op(data, 8, WEFT_DTYPE_U32);
    weft_plan *plan;
    int failures = CHECK(weft_op_plan(&op, comm, &plan) == WEFT_OK);
    uint32_t expected = 0;
    for (int turn = 0; turn < 20; turn++) {
        weft_request *request;
        data[3] += (uint32_t)weft_comm_get_rank(comm);
        expected = (uint32_t)weft_comm_get_nranks(comm) * expected + 3;
        failures += CHECK(weft_plan_begin(plan, 0, &request) == WEFT_OK);
        while (weft_request_test(request) == WEFT_INPROGRESS) {
            sched_yield();
        }
        failures += CHECK(weft_request_test(request) == WEFT_OK);
        weft_request_destroy(request);
        failures += CHECK(data[3] == expected);
    }
    weft_plan_destroy(plan);
    return failures;
}

static uint32_t **thrown[NRANKS];

/* Nobody holds the handles; the operations have ended with the communicator. */
static int throw_away(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    int failures = 0;
    thrown[rank] = make_buffers(rank);
    for (int i = 0; i < MANY; i++) {
        const weft_op op =
            all_reduce_op(thrown[rank][i], count_of(i), WEFT_DTYPE_U32);
        weft_request *request;
        failures += CHECK(weft_op_begin(&op, 0, comm, &request) == WEFT_OK);
        weft_request_destroy(request);
    }
    return failures;
}

static int look_at_thrown(int rank, void *context)
{
    (void)context;
    const int failures = check_sums(thrown[rank], NRANKS);
    free_buffers(thrown[rank]);
    return failures;
}

static void take_left(void *context, void *inout, const void *in, size_t count,
                      weft_dtype dtype)
{
    (void)context;
    (void)inout;
    (void)in;
    (void)count;
    (void)dtype;
}

/* A reduction is not destroyed while an operation waits that will call it. */
static int keep_reduction(weft_comm *comm, void *context)
{
    (void)context;
    weft_redop redop;
    uint32_t data[2][8] = {{0}};
    weft_request *requests[40];
    int failures = CHECK(weft_redop_create_user(comm, "left", take_left, NULL,
                                                &redop) == WEFT_OK);
    const bool late = weft_comm_get_rank(comm) == 0;
    /* Rank 0 begins nothing before the others have looked. */
    for (int i = 0; !late && i < 40; i++) {
        weft_op op = all_reduce_op(data[0], 8, WEFT_DTYPE_U32);
        op.redop = i == 39 ? redop : WEFT_REDOP_SUM;
        failures += CHECK(weft_op_begin(&op, 0, comm, &requests[i]) == WEFT_OK);
    }
    if (!late) {
        failures += CHECK(weft_redop_destroy(comm, redop) == WEFT_ERR_INVALID) +
                    CHECK(strstr(weft_error_text(), "still uses it") != NULL) +
                    CHECK(weft_send(data[1], 1, WEFT_DTYPE_U32, 0, comm,
                                    NULL) == WEFT_OK);
    }
    for (int peer = 1; late && peer < weft_comm_get_nranks(comm); peer++) {
        failures += CHECK(
            weft_recv(data[1], 1, WEFT_DTYPE_U32, peer, comm, NULL) == WEFT_OK);
    }
    for (int i = 0; late && i < 40; i++) {
        weft_op op = all_reduce_op(data[0], 8, WEFT_DTYPE_U32);
        op.redop = i == 39 ? redop : WEFT_REDOP_SUM;
        failures += CHECK(weft_op_begin(&op, 0, comm, &requests[i]) == WEFT_OK);
    }
    for (int i = 0; i < 40; i++) {
        failures += CHECK(weft_request_wait(requests[i]) == WEFT_OK);
        weft_request_destroy(requests[i]);
    }
    return failures + CHECK(weft_redop_destroy(comm, redop) == WEFT_OK);
}

static int refuse_all(weft_comm *comm, void *context)
{
    (void)context;
    uint32_t data[4] = {0};
    weft_request *request = NULL, *const poison = (weft_request *)data;
    weft_op op = all_reduce_op(data, 4, WEFT_DTYPE_U32);
    weft_p2p part = {.size_bytes = sizeof(part),
                     .buffer = data,
                     .count = 1,
                     .dtype = WEFT_DTYPE_U32,
                     .peer = 99};
    request = poison;
    int failures =
        CHECK(weft_op_begin(&op, 0, comm, NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "request_out is NULL") != NULL) +
        CHECK(weft_p2p_begin(&part, 1, comm, &request) == WEFT_ERR_INVALID) +
        CHECK(request == NULL) +
        CHECK(strstr(weft_error_text(), "list[0]: ") != NULL) +
        CHECK(weft_p2p_begin(NULL, 1, comm, &request) == WEFT_ERR_INVALID) +
        CHECK(weft_plan_begin(NULL, 1, &request) == WEFT_ERR_INVALID) +
        CHECK(weft_request_test(NULL) == WEFT_ERR_INVALID) +
        CHECK(weft_request_wait(NULL) == WEFT_ERR_INVALID) +
        CHECK(strstr(weft_error_text(), "request is NULL") != NULL);
    op.dtype = WEFT_DTYPE_COUNT;
    request = poison;
    failures +=
        CHECK(weft_op_begin(&op, 0, comm, &request) == WEFT_ERR_INVALID) +
        CHECK(request == NULL);
    weft_request_destroy(NULL);
    return failures + CHECK(weft_barrier(comm, NULL) == WEFT_OK);
}

enum { PENDING = 40 };

/* Rank 0 aborts while the others have more pending than there are op slots. */
static int abort_one(weft_comm *comm, void *context)
{
    (void)context;
    uint32_t data[4] = {0};
    const weft_op op = all_reduce_op(data, 4, WEFT_DTYPE_U32);
    weft_request *requests[PENDING], *late = NULL;
    int failures = CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    if (weft_comm_get_rank(comm) == 0) {
        return failures + CHECK(weft_comm_abort(comm) == WEFT_OK);
    }
    int begun = 0;
    while (begun < PENDING &&
           weft_op_begin(&op, 0, comm, &requests[begun]) == WEFT_OK) {
        begun++;
    }
    for (int i = 0; i < begun; i++) {
        failures += CHECK(weft_request_wait(requests[i]) == WEFT_ERR_ABORTED) +
                    CHECK(strstr(weft_error_text(), "rank 0 aborted") != NULL);
        if (i > 0) {
            weft_request_destroy(requests[i]);
        }
    }
    failures += CHECK(weft_op_begin(&op, 0, comm, &late) == WEFT_ERR_ABORTED) +
                CHECK(late == NULL);
    if (begun > 0) {
        failures += CHECK(weft_request_test(requests[0]) == WEFT_ERR_ABORTED);
        weft_request_destroy(requests[0]);
    }
    return failures;
}

static weft_request *outliving[NRANKS];
static uint32_t outlived[NRANKS][4];

/* The communicator is destroyed behind this call; its operation goes on. */
static int leave_behind(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    const weft_op op = all_reduce_op(outlived[rank], 4, WEFT_DTYPE_U32);
    outlived[rank][2] = 7;
    return CHECK(weft_op_begin(&op, 0, comm, &outliving[rank]) == WEFT_OK);
}

static int look_after(int rank, void *context)
{
    (void)context;
    const int failures = CHECK(weft_request_test(outliving[rank]) == WEFT_OK) +
                         CHECK(weft_request_wait(outliving[rank]) == WEFT_OK) +
                         CHECK(outlived[rank][2] == 7 * NRANKS);
    weft_request_destroy(outliving[rank]);
    return failures;
}

static void run_each(world_rank_call call, int (*after)(int, void *))
{
    struct world world = {.nranks = NRANKS, .call = call, .after = after};
    assert_int_equal(run(&world), 0);
}

#define TEST_OF(call, after)                                                   \
    static void test_##call(void **state)                                      \
    {                                                                          \
        (void)state;                                                           \
        run_each(call, after);                                                 \
    }

TEST_OF(begin_many, NULL)
TEST_OF(post_many, NULL)
TEST_OF(begin_each_kind, NULL)
TEST_OF(begin_plan, NULL)
TEST_OF(throw_away, look_at_thrown)
TEST_OF(keep_reduction, NULL)
TEST_OF(refuse_all, NULL)
TEST_OF(abort_one, NULL)
TEST_OF(leave_behind, look_after)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_begin_many),
                                       cmocka_unit_test(test_post_many),
                                       cmocka_unit_test(test_begin_each_kind),
                                       cmocka_unit_test(test_begin_plan),
                                       cmocka_unit_test(test_throw_away),
                                       cmocka_unit_test(test_keep_reduction),
                                       cmocka_unit_test(test_refuse_all),
                                       cmocka_unit_test(test_abort_one),
                                       cmocka_unit_test(test_leave_behind)};
    if (argc > 1 && strcmp(argv[1], "processes") == 0) {
        run = world_run_processes;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

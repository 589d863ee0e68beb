/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: small collectives that ranks wait for are exact, whichever rank is
 * late, however far the others may run ahead, and between operations that are
 * queued; and what one rank does differently is found though others have left
 * the operation long before.
 *
 * Method: worlds of threads and of processes, more operations than there are
 * slots for, ranks that sleep now and then; each operation has values of its
 * own, and receive buffers are poisoned.
 */
#include "tests/comm/one_op.h"
#include "tests/comm/world.h"

#include "base/check.h"
#include "comm/fabric/shared.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

enum {
    MOST_RANKS = 4,
    MOST_ELEMS = 250, /* of 4 ranks: within an entry */
    CALLS = 20 * WEFTI_OP_SLOTS,
    ROUNDS = 3 * WEFTI_OP_SLOTS,
    LATE_EVERY = 23,
    LATE_US = 1500
};

static const size_t counts[] = {1, 2, 5, 64, MOST_ELEMS};

static int32_t value_of(int rank, int call, size_t i)
{
    return (int32_t)(rank * 1000003 + call * 1009 + (int)i);
}

/* Element i of what rank receives of an operation; false: nothing. */
static bool expect(weft_collective collective, int rank, int nranks, int root,
                   int call, size_t count, size_t i, int32_t *value_out)
{
    const int part = (int)(i / count);
    int32_t sum = 0;
    switch (collective) {
    case WEFT_COLLECTIVE_BROADCAST:
        *value_out = value_of(root, call, i);
        return i < count;
    case WEFT_COLLECTIVE_SCATTER:
        *value_out = value_of(root, call, (size_t)rank * count + i);
        return i < count;
    case WEFT_COLLECTIVE_GATHER:
        *value_out = value_of(part, call, i % count);
        return rank == root;
    case WEFT_COLLECTIVE_ALLTOALL:
        *value_out = value_of(part, call, (size_t)rank * count + i % count);
        return true;
    default:
        for (int r = 0; r < nranks; r++) {
            sum += value_of(r, call, i);
        }
        *value_out = sum;
        return i < count;
    }
}

static const weft_collective collectives[] = {
    WEFT_COLLECTIVE_BROADCAST, WEFT_COLLECTIVE_SCATTER, WEFT_COLLECTIVE_GATHER,
    WEFT_COLLECTIVE_ALLTOALL, WEFT_COLLECTIVE_ALLREDUCE};

static int run_one(weft_comm *comm, weft_collective collective, int call)
{
    static _Thread_local int32_t send[MOST_RANKS * MOST_ELEMS],
        recv[MOST_RANKS * MOST_ELEMS];
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    const size_t count = counts[(size_t)call % WEFTI_COUNT_OF(counts)];
    const int root = call / 40 % nranks;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = collective,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .dtype = WEFT_DTYPE_I32,
                        .root = root};
    for (size_t i = 0; i < (size_t)nranks * count; i++) {
        send[i] = value_of(rank, call, i);
    }
    memset(recv, 0xA5, sizeof(recv));
    const weft_status status = weft_op_post(&op, 0, comm, NULL);
    memset(send, 0x5A, sizeof(send));
    int failures = CHECK(status == WEFT_OK);
    for (size_t i = 0; i < (size_t)nranks * count && !failures; i++) {
        int32_t value;
        const bool given =
            expect(collective, rank, nranks, root, call, count, i, &value);
        failures += CHECK(recv[i] == (given ? value : (int32_t)0xA5A5A5A5));
    }
    return failures;
}

/* One rank after another is late. */
static void be_late(const weft_comm *comm, int call)
{
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    if (call % LATE_EVERY == 0 && call / LATE_EVERY % nranks == rank) {
        usleep(LATE_US);
    }
}

static int runs_ahead(weft_comm *comm, void *context)
{
    (void)context;
    int failures = 0;
    for (size_t c = 0; c < WEFTI_COUNT_OF(collectives); c++) {
        for (int call = 0; call < CALLS && !failures; call++) {
            be_late(comm, call);
            failures += run_one(comm, collectives[c], call);
        }
    }
    return failures;
}

/* Two operations with handles around one that is waited for. */
static int runs_between(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    int failures = 0;
    for (int round = 0; round < ROUNDS && !failures; round++) {
        int32_t mine[2] = {value_of(rank, round, 0), value_of(rank, round, 1)};
        int32_t all[2][MOST_RANKS];
        weft_request *requests[2];
        weft_op op = {.size_bytes = sizeof(op),
                      .collective = WEFT_COLLECTIVE_ALLGATHER,
                      .count = 1,
                      .dtype = WEFT_DTYPE_I32};
        for (size_t k = 0; k < 2; k++) {
            op.send = &mine[k];
            op.recv = all[k];
            failures +=
                CHECK(weft_op_begin(&op, 0, comm, &requests[k]) == WEFT_OK);
            be_late(comm, 2 * round + (int)k);
            failures += run_one(comm, WEFT_COLLECTIVE_BROADCAST, round);
        }
        for (size_t k = 0; k < 2; k++) {
            failures += CHECK(weft_request_wait(requests[k]) == WEFT_OK);
            weft_request_destroy(requests[k]);
            for (int r = 0; r < nranks && !failures; r++) {
                failures += CHECK(all[k][r] == value_of(r, round, k));
            }
        }
    }
    return failures;
}

/* Both ranks see a mismatch by the second barrier, and who posted what. */
static int check_found(weft_comm *comm, weft_status status)
{
    for (int call = 0; call < 2 && status == WEFT_OK; call++) {
        status = weft_barrier(comm, NULL);
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int failures = CHECK(status == WEFT_ERR_MISMATCH);
    failures += CHECK(weft_comm_get_fault(comm, &fault) == WEFT_OK);
    failures += CHECK(strstr(fault.text, "rank 0 posted") != NULL);
    failures += CHECK(strstr(fault.text, "rank 1 posted") != NULL);
    return failures;
}

/* Each rank takes itself for the root, and so needs nothing of the other. */
static int has_two_roots(weft_comm *comm, void *context)
{
    (void)context;
    int32_t value = 1;
    return check_found(comm,
                       weft_broadcast(&value, &value, 1, WEFT_DTYPE_I32,
                                      weft_comm_get_rank(comm), comm, NULL));
}

/* The root has left when the other rank enters another operation. */
static int differs_late(weft_comm *comm, void *context)
{
    (void)context;
    const int rank = weft_comm_get_rank(comm);
    weft_status status = WEFT_OK;
    int32_t value[2] = {1, 2};
    for (int call = 0; call < WEFTI_OP_SLOTS / 2; call++) {
        if (rank == 1) {
            usleep(call == 0 ? LATE_US : 0);
        }
        const bool odd = rank == 1 && call == 3;
        const weft_status now = weft_broadcast(value, value, odd ? 2 : 1,
                                               WEFT_DTYPE_I32, 0, comm, NULL);
        status = status == WEFT_OK ? now : status;
    }
    return check_found(comm, status);
}

static void run(world_rank_call call, int least, int most)
{
    for (int nranks = least; nranks <= most; nranks++) {
        const struct world world = {.nranks = nranks, .call = call};
        assert_int_equal(world_run_threads(&world), 0);
    }
    const struct world world = {.nranks = 2, .call = call};
    assert_int_equal(world_run_processes(&world), 0);
}

static void test_quick_late_ranks_exact(void **state)
{
    (void)state;
    run(runs_ahead, 2, MOST_RANKS);
}

static void test_quick_between_queued_exact(void **state)
{
    (void)state;
    run(runs_between, 2, MOST_RANKS);
}

static void test_quick_late_difference_is_found(void **state)
{
    (void)state;
    run(differs_late, 2, 2);
}

/* Nobody is inside what all have left, though none has begun anything since. */
static int left_all(weft_comm *comm, void *context)
{
    char text[4096];
    int32_t value[MOST_RANKS] = {0}, wrong = 0;
    (void)context;
    for (int call = 0; call < 5; call++) {
        wrong += weft_broadcast(value, value, 1, WEFT_DTYPE_I32, 0, comm,
                                NULL) != WEFT_OK;
    }
    wrong +=
        weft_gather(value, value, 1, WEFT_DTYPE_I32, 0, comm, NULL) != WEFT_OK;
    wrong += weft_comm_dump(comm, text, sizeof(text)) != WEFT_OK;
    /* Others may still be on their way out. */
    char *own = strstr(text, weft_comm_get_rank(comm) ? "rank 1:" : "rank 0:");
    char *end = own ? strchr(own, '\n') : NULL;
    if (end) {
        *end = '\0';
    }
    wrong += !end || strstr(own, ", inside") != NULL;
    wrong += weft_barrier(comm, NULL) != WEFT_OK;
    return wrong;
}

static void test_quick_that_is_left_is_not_shown_as_entered(void **state)
{
    (void)state;
    run(left_all, 2, 2);
}

static void test_quick_two_roots_are_found(void **state)
{
    (void)state;
    run(has_two_roots, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick_late_ranks_exact),
        cmocka_unit_test(test_quick_between_queued_exact),
        cmocka_unit_test(test_quick_late_difference_is_found),
        cmocka_unit_test(test_quick_two_roots_are_found),
        cmocka_unit_test(test_quick_that_is_left_is_not_shown_as_entered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

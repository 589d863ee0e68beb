/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: communicators that do not block, that are split, shrunk, revoked and
 * aborted, as NCCL has it.
 *
 * Method: ranks that are threads of one process; where one has to be late,
 * it waits at a barrier of the test's.
 */
#include "tests/doors/door_ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { INT32 = 2, SUM = 0 };

static void run(int nranks, door_rank_call call, void *context)
{
    assert_int_equal(door_run_threads(nranks, call, context), 0);
}

static int sum_ranks(struct ncclComm *comm, int rank)
{
    int value = rank, got = -1;
    const int result = ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL);
    return result == WEFTI_DOOR_SUCCESS ? got : -result - 10;
}

static int number_of(struct ncclComm *comm)
{
    int rank = -1;
    return ncclCommUserRank(comm, &rank) == WEFTI_DOOR_SUCCESS ? rank : -1;
}

static int count_of(struct ncclComm *comm)
{
    int count = -1;
    return ncclCommCount(comm, &count) == WEFTI_DOOR_SUCCESS ? count : -1;
}

/* ---- not blocking ---- */

static int begin_behind(struct ncclComm **comm, const wefti_door_id *id,
                        int rank, int nranks)
{
    wefti_door_config config = door_config();
    config.blocking = 0;
    return ncclCommInitRankConfig(comm, nranks, *id, rank, &config);
}

/* The id comes from the blocking world around. */
static int pass_id(struct ncclComm *world, int rank, wefti_door_id *id)
{
    int failures = 0;
    if (rank == 0) {
        EXPECT_RESULT(SUCCESS, ncclGetUniqueId(id));
    }
    EXPECT_RESULT(SUCCESS, ncclBcast(id, sizeof(*id), 1, 0, world, NULL));
    return failures;
}

static int rank_not_blocking(struct ncclComm *world, int rank, int nranks,
                             void *context)
{
    pthread_barrier_t *late = context;
    struct ncclComm *comm = NULL;
    wefti_door_id id;
    int value = rank, got = -1, number;
    int failures = pass_id(world, rank, &id);
    EXPECT_RESULT(IN_PROGRESS, begin_behind(&comm, &id, rank, nranks));
    EXPECT(comm != NULL);
    EXPECT(door_await(comm) == WEFTI_DOOR_SUCCESS);
    EXPECT(count_of(comm) == nranks && number_of(comm) == rank);
    if (rank == 0) { /* nobody else has come: it is in progress */
        EXPECT_RESULT(IN_PROGRESS,
                      ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
        EXPECT_RESULT(INVALID_ARGUMENT,
                      ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
        EXPECT(door_said("still in progress"));
        EXPECT_RESULT(INVALID_ARGUMENT, ncclCommCount(comm, &number));
        EXPECT_RESULT(INVALID_ARGUMENT, ncclCommDestroy(comm));
        EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &number));
        EXPECT(number == WEFTI_DOOR_IN_PROGRESS);
    }
    pthread_barrier_wait(late);
    if (rank != 0) {
        EXPECT_RESULT(SUCCESS, ncclGroupStart());
        EXPECT_RESULT(SUCCESS,
                      ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
        EXPECT_RESULT(IN_PROGRESS, ncclGroupEnd());
    }
    EXPECT(door_await(comm) == WEFTI_DOOR_SUCCESS);
    EXPECT(got == nranks * (nranks - 1) / 2);
    EXPECT_RESULT(SUCCESS, ncclCommFinalize(comm));
    EXPECT(door_await(comm) == WEFTI_DOOR_SUCCESS);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    return failures;
}

static void test_calls_that_do_not_block_are_asked_about(void **state)
{
    pthread_barrier_t late;
    (void)state;
    pthread_barrier_init(&late, NULL, 3);
    run(3, rank_not_blocking, &late);
    pthread_barrier_destroy(&late);
}

static int rank_splits_behind(struct ncclComm *world, int rank, int nranks,
                              void *context)
{
    struct ncclComm *comm = NULL, *part = NULL, *none = world;
    wefti_door_id id;
    int value = rank, got = -1;
    int failures = pass_id(world, rank, &id);
    (void)context;
    EXPECT_RESULT(IN_PROGRESS, begin_behind(&comm, &id, rank, nranks));
    EXPECT(door_await(comm) == WEFTI_DOOR_SUCCESS);
    EXPECT_RESULT(IN_PROGRESS, ncclCommSplit(comm, rank % 2, 0, &part, NULL));
    EXPECT(door_await(comm) == WEFTI_DOOR_SUCCESS);
    EXPECT(part && door_await(part) == WEFTI_DOOR_SUCCESS);
    EXPECT(number_of(part) == rank / 2);
    EXPECT_RESULT(IN_PROGRESS,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, part, NULL));
    EXPECT(door_await(part) == WEFTI_DOOR_SUCCESS);
    EXPECT(got == (rank % 2 ? 4 : 2));
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(part));
    EXPECT_RESULT(IN_PROGRESS, ncclCommSplit(comm, rank == 0 ? -1 : 0, 0,
                                             rank == 0 ? &none : &part, NULL));
    EXPECT(door_await(comm) == WEFTI_DOOR_SUCCESS);
    EXPECT(rank != 0 || none == NULL);
    /* Of both kinds in one group */
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, world, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
    EXPECT(door_said("one group"));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclGroupEnd());
    if (rank != 0) {
        EXPECT(door_await(part) == WEFTI_DOOR_SUCCESS);
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(part));
    }
    EXPECT(sum_ranks(world, 1) == nranks); /* all are done with it */
    EXPECT_RESULT(SUCCESS, ncclCommAbort(comm));
    return failures;
}

static void test_split_that_does_not_block(void **state)
{
    (void)state;
    run(4, rank_splits_behind, NULL);
}

/* The other rank never comes. */
static void test_abort_ends_an_init_that_waits(void **state)
{
    struct ncclComm *comm = NULL;
    wefti_door_id id;
    int failures = 0, result = -1;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclGetUniqueId(&id));
    EXPECT_RESULT(IN_PROGRESS, begin_behind(&comm, &id, 0, 2));
    EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &result));
    EXPECT(result == WEFTI_DOOR_IN_PROGRESS);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommDestroy(comm));
    EXPECT_RESULT(SUCCESS, ncclCommAbort(comm));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommGetAsyncError(comm, &result));
    assert_int_equal(failures, 0);
}

/* The handle of one that failed stays, and says why. */
static void test_init_that_failed_says_so_later(void **state)
{
    struct ncclComm *comm = NULL;
    wefti_door_id id;
    int failures = 0, number = 0;
    (void)state;
    memset(&id, 0x44, sizeof(id));
    EXPECT_RESULT(IN_PROGRESS, begin_behind(&comm, &id, 0, 2));
    EXPECT(door_await(comm) == WEFTI_DOOR_INVALID_ARGUMENT);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommCount(comm, &number));
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    assert_int_equal(failures, 0);
}

/* ---- split, shrink, revoke ---- */

static int rank_split(struct ncclComm *comm, int rank, int nranks,
                      void *context)
{
    struct ncclComm *part = NULL, *none = comm;
    int failures = 0;
    (void)context;
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommSplit(comm, -2, 0, &part, NULL));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommSplit(comm, 0, 0, NULL, NULL));
    EXPECT_RESULT(SUCCESS, ncclCommSplit(comm, 7, -rank, &part, NULL));
    EXPECT(count_of(part) == nranks && number_of(part) == nranks - 1 - rank);
    EXPECT(sum_ranks(part, rank) == nranks * (nranks - 1) / 2);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(part));
    EXPECT_RESULT(SUCCESS, ncclCommSplit(comm, 0, 3, &part, NULL));
    EXPECT(number_of(part) == rank); /* equal keys keep their order */
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(part));
    part = NULL;
    EXPECT_RESULT(SUCCESS, ncclCommSplit(comm, rank == 0 ? -1 : 0, 0,
                                         rank == 0 ? &none : &part, NULL));
    EXPECT(rank == 0 ? none == NULL : count_of(part) == nranks - 1);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(part));
    return failures;
}

static void test_split_by_color_and_key(void **state)
{
    (void)state;
    run(4, rank_split, NULL);
}

static int rank_shrinks(struct ncclComm *comm, int rank, int nranks,
                        void *context)
{
    struct ncclComm *rest = NULL;
    int failures = 0, gone[2] = {1, 1};
    (void)context;
    if (rank == 1) {
        EXPECT_RESULT(INVALID_ARGUMENT,
                      ncclCommShrink(comm, gone, 1, &rest, NULL, 0));
        EXPECT(sum_ranks(comm, rank) == nranks * (nranks - 1) / 2);
        return failures;
    }
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommShrink(comm, gone, 0, &rest, NULL, 0));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommShrink(comm, NULL, 1, &rest, NULL, 0));
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommShrink(comm, gone, 1, &rest, NULL, 2));
    gone[0] = nranks;
    EXPECT_RESULT(INVALID_ARGUMENT,
                  ncclCommShrink(comm, gone, 1, &rest, NULL, 0));
    gone[0] = 1;
    EXPECT_RESULT(SUCCESS, ncclCommShrink(comm, gone, 1, &rest, NULL, 0));
    EXPECT(count_of(rest) == nranks - 1);
    EXPECT(number_of(rest) == (rank < 1 ? rank : rank - 1));
    EXPECT(sum_ranks(rest, 1) == nranks - 1);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(rest));
    EXPECT(sum_ranks(comm, rank) == nranks * (nranks - 1) / 2);
    return failures;
}

static void test_shrink_leaves_ranks_out(void **state)
{
    (void)state;
    run(3, rank_shrinks, NULL);
}

/* Rank 1 is in an operation that the others never come to. */
static int rank_shrinks_by_force(struct ncclComm *comm, int rank, int nranks,
                                 void *context)
{
    struct ncclComm *rest = NULL;
    int failures = 0, gone[1] = {1}, value = 0;
    (void)context;
    if (rank == 1) {
        EXPECT_RESULT(REMOTE_ERROR,
                      ncclAllReduce(&value, &value, 1, INT32, SUM, comm, NULL));
        return failures;
    }
    EXPECT_RESULT(SUCCESS, ncclCommShrink(comm, gone, 1, &rest, NULL,
                                          WEFTI_DOOR_SHRINK_ABORT));
    EXPECT(sum_ranks(rest, 1) == nranks - 1);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(rest));
    return failures;
}

static void test_shrink_may_end_what_goes_on(void **state)
{
    (void)state;
    run(3, rank_shrinks_by_force, NULL);
}

static int rank_revokes(struct ncclComm *comm, int rank, int nranks,
                        void *context)
{
    struct ncclComm *again = NULL, *rest = NULL;
    int failures = 0, value = 0, result = -1, gone[1] = {0};
    (void)context;
    if (rank == 0) {
        EXPECT_RESULT(INVALID_ARGUMENT, ncclCommRevoke(comm, 1));
        EXPECT_RESULT(SUCCESS, ncclCommRevoke(comm, 0));
    } else { /* it is stopped on all ranks, and each says so itself */
        EXPECT_RESULT(REMOTE_ERROR,
                      ncclAllReduce(&value, &value, 1, INT32, SUM, comm, NULL));
        EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &result));
        EXPECT(result == WEFTI_DOOR_REMOTE_ERROR);
        EXPECT_RESULT(SUCCESS, ncclCommRevoke(comm, 0));
    }
    EXPECT_RESULT(INVALID_USAGE, ncclCommRevoke(comm, 0));
    EXPECT_RESULT(INVALID_USAGE,
                  ncclAllReduce(&value, &value, 1, INT32, SUM, comm, NULL));
    EXPECT(door_said("revoked"));
    EXPECT_RESULT(INVALID_USAGE, ncclSend(&value, 1, INT32, 0, comm, NULL));
    EXPECT_RESULT(INVALID_USAGE, ncclCommFinalize(comm));
    EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &result));
    EXPECT(result == WEFTI_DOOR_SUCCESS);
    EXPECT_RESULT(SUCCESS, ncclCommSplit(comm, 0, -rank, &again, NULL));
    EXPECT(number_of(again) == nranks - 1 - rank);
    EXPECT(sum_ranks(again, 1) == nranks);
    EXPECT_RESULT(INVALID_USAGE,
                  ncclAllReduce(&value, &value, 1, INT32, SUM, comm, NULL));
    if (rank != 0) {
        EXPECT_RESULT(SUCCESS, ncclCommShrink(comm, gone, 1, &rest, NULL, 0));
        EXPECT(sum_ranks(rest, 1) == nranks - 1);
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(rest));
    }
    EXPECT(sum_ranks(again, 1) == nranks);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(again));
    return failures;
}

static void test_revoked_communicator_can_be_split(void **state)
{
    (void)state;
    run(3, rank_revokes, NULL);
}

/* ---- many ids ---- */

static int rank_scalable(struct ncclComm *world, int rank, int nranks,
                         void *context)
{
    struct ncclComm *comm = NULL;
    wefti_door_id ids[2];
    int failures = pass_id(world, rank, &ids[0]);
    (void)context;
    failures += pass_id(world, rank, &ids[1]);
    EXPECT_RESULT(SUCCESS,
                  ncclCommInitRankScalable(&comm, nranks, rank, 2, ids, NULL));
    EXPECT(sum_ranks(comm, 1) == nranks);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(comm));
    return failures;
}

static void test_several_ids_make_one_communicator(void **state)
{
    (void)state;
    run(3, rank_scalable, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_that_do_not_block_are_asked_about),
        cmocka_unit_test(test_split_that_does_not_block),
        cmocka_unit_test(test_abort_ends_an_init_that_waits),
        cmocka_unit_test(test_init_that_failed_says_so_later),
        cmocka_unit_test(test_split_by_color_and_key),
        cmocka_unit_test(test_shrink_leaves_ranks_out),
        cmocka_unit_test(test_shrink_may_end_what_goes_on),
        cmocka_unit_test(test_revoked_communicator_can_be_split),
        cmocka_unit_test(test_several_ids_make_one_communicator)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* host memory */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

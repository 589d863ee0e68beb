/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no call hangs, whatever other ranks do: an abort from a second thread
 * ends one that is blocked, a killed rank and ranks that disagree are named,
 * and the watchdog of a rank sees it.
 *
 * Method: ranks that are threads, with a second thread each; for kills,
 * processes. WEFT_TIMEOUT_MS is far beyond the test's end.
 */
#include "tests/doors/door_ranks.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { INT32 = 2, F32 = 7, SUM = 0, ELEMS = 1 << 20 };

typedef struct watch {
    struct ncclComm *comm;
    _Atomic int blocked; /* the other thread is about to call */
    int result, seen;
} watch;

/* Polls as a program's watchdog does, and aborts. */
static void *run_watchdog(void *argument)
{
    watch *own = argument;
    while (!atomic_load(&own->blocked)) {
        sched_yield();
    }
    for (int i = 0; i < 100; i++) {
        ncclCommGetAsyncError(own->comm, &own->seen);
        sched_yield();
    }
    own->result = ncclCommAbort(own->comm);
    return NULL;
}

/* what: 0 a collective, 1 a receive, 2 a group of both, 3 a split */
static int block(struct ncclComm *comm, int what)
{
    static int sent[ELEMS], got[ELEMS]; /* only rank 0 comes here */
    struct ncclComm *part = NULL;
    if (what == 0) {
        return ncclAllReduce(sent, got, ELEMS, INT32, SUM, comm, NULL);
    }
    if (what == 1) {
        return ncclRecv(got, ELEMS, INT32, 1, comm, NULL);
    }
    if (what == 3) {
        return ncclCommSplit(comm, 0, 0, &part, NULL);
    }
    if (ncclGroupStart() != 0 ||
        ncclSend(sent, ELEMS, INT32, 1, comm, NULL) != 0 ||
        ncclAllReduce(sent, got, 1, INT32, SUM, comm, NULL) != 0) {
        return -1;
    }
    return ncclGroupEnd();
}

/* Rank 0 is blocked in a call that rank 1 never makes. */
static int rank_aborted(struct ncclComm *comm, int rank, int nranks,
                        void *context)
{
    watch own = {.comm = comm, .result = -1};
    int failures = 0, value = 0;
    pthread_t thread;
    (void)nranks;
    if (rank == 1) {
        while (ncclCommGetAsyncError(comm, &value) == WEFTI_DOOR_SUCCESS &&
               value == WEFTI_DOOR_SUCCESS) {
            sched_yield();
        }
        EXPECT(value == WEFTI_DOOR_REMOTE_ERROR);
        EXPECT_RESULT(REMOTE_ERROR,
                      ncclAllReduce(&value, &value, 1, INT32, SUM, comm, NULL));
        return failures;
    }
    door_keep_out();
    if (pthread_create(&thread, NULL, run_watchdog, &own)) {
        abort();
    }
    atomic_store(&own.blocked, 1);
    EXPECT_RESULT(REMOTE_ERROR, block(comm, *(int *)context));
    pthread_join(thread, NULL);
    EXPECT(own.result == WEFTI_DOOR_SUCCESS);
    EXPECT(own.seen == WEFTI_DOOR_SUCCESS ||
           (*(int *)context == 3 && own.seen == WEFTI_DOOR_IN_PROGRESS));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommDestroy(comm));
    return failures;
}

static void test_abort_from_a_second_thread_ends_the_call(void **state)
{
    (void)state;
    for (int what = 0; what < 4; what++) {
        assert_int_equal(door_run_threads(2, rank_aborted, &what), 0);
    }
}

/* How rank 1 calls another thing than rank 0. */
static int call_other(struct ncclComm *comm, int how)
{
    float data[64] = {0}, out[64];
    switch (how) {
    case 0:
        return ncclAllReduce(data, out, 31, F32, SUM, comm, NULL);
    case 1:
        return ncclAllReduce(data, out, 32, INT32, SUM, comm, NULL);
    case 2:
        return ncclAllReduce(data, out, 32, F32, 2, comm, NULL);
    case 3:
        return ncclAllGather(data, out, 32, F32, comm, NULL);
    default:
        return ncclReduce(data, out, 32, F32, SUM, 1, comm, NULL);
    }
}

static int rank_disagrees(struct ncclComm *comm, int rank, int nranks,
                          void *context)
{
    const int how = *(int *)context;
    float data[64] = {0}, out[64];
    int failures = 0, result = -1, seen = -1;
    (void)nranks;
    if (rank == 1) {
        result = call_other(comm, how);
    } else if (how == 4) {
        result = ncclReduce(data, out, 32, F32, SUM, 0, comm, NULL);
    } else {
        result = ncclAllReduce(data, out, 32, F32, SUM, comm, NULL);
    }
    if (result == WEFTI_DOOR_SUCCESS) { /* it had left: then the next one */
        result = ncclAllReduce(data, out, 32, F32, SUM, comm, NULL);
    }
    EXPECT_RESULT(INVALID_USAGE, result);
    EXPECT(door_said("rank"));
    EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &seen));
    EXPECT(seen == WEFTI_DOOR_INVALID_USAGE);
    return failures;
}

static void test_ranks_that_disagree_are_named(void **state)
{
    (void)state;
    for (int how = 0; how < 5; how++) {
        assert_int_equal(door_run_threads(2, rank_disagrees, &how), 0);
    }
}

/* Rank 1 dies; the others find out, and go on without it. */
static int rank_killed(struct ncclComm *comm, int rank, int nranks,
                       void *context)
{
    struct ncclComm *rest = NULL;
    int failures = 0, value = 1, got = 0, seen = -1, gone[1] = {1};
    (void)context;
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
    if (rank == 1) {
        kill(getpid(), SIGKILL);
    }
    EXPECT_RESULT(REMOTE_ERROR,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
    EXPECT(door_said("rank 1"));
    EXPECT_RESULT(SUCCESS, ncclCommGetAsyncError(comm, &seen));
    EXPECT(seen == WEFTI_DOOR_REMOTE_ERROR);
    EXPECT_RESULT(SUCCESS, ncclCommShrink(comm, gone, 1, &rest, NULL,
                                          WEFTI_DOOR_SHRINK_ABORT));
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, rest, NULL));
    EXPECT(got == nranks - 1);
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(rest));
    return failures;
}

static void test_killed_rank_is_named_and_left_out(void **state)
{
    (void)state;
    assert_int_equal(door_run_killed(3, 1, rank_killed, NULL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest in_one[] = {
        cmocka_unit_test(test_abort_from_a_second_thread_ends_the_call),
        cmocka_unit_test(test_ranks_that_disagree_are_named)};
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(test_killed_rank_is_named_and_left_out)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* host memory */
    return argc > 1 && strcmp(argv[1], "processes") == 0
               ? cmocka_run_group_tests(processes, NULL, NULL)
               : cmocka_run_group_tests(in_one, NULL, NULL);
}

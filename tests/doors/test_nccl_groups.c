/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: groups are each thread's own, nest, launch at the outermost end, and
 * launch nothing where something in them was refused; sends and receives of one
 * group may stand in any order.
 *
 * Method: ranks that are threads; receive buffers show what has been launched.
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

enum { INT32 = 2, F32 = 7, TYPES = 12, SUM = 0, ELEMS = 40000 };

static void run(int nranks, door_rank_call call)
{
    assert_int_equal(door_run_threads(nranks, call, NULL), 0);
}

static int rank_nested(struct ncclComm *comm, int rank, int nranks,
                       void *context)
{
    int failures = 0, sent = rank + 1, got = -1, second = -1;
    (void)context;
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&sent, &got, 1, INT32, SUM, comm, NULL));
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    EXPECT(got == -1);
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&sent, &second, 1, INT32, 2, comm, NULL));
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    EXPECT(got == nranks * (nranks + 1) / 2);
    EXPECT(second == nranks);
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    return failures;
}

static void test_groups_nest(void **state)
{
    (void)state;
    run(3, rank_nested);
}

/* Each wrong call in a group between right ones; then the ranks still agree on
 * what comes next. */
static int rank_refused(struct ncclComm *comm, int rank, int nranks,
                        void *context)
{
    int failures = 0, sent = rank, got = -1, room[16] = {0};
    (void)context;
    for (int wrong = 0; wrong < 4; wrong++) {
        EXPECT_RESULT(SUCCESS, ncclGroupStart());
        EXPECT_RESULT(SUCCESS,
                      ncclAllReduce(&sent, &got, 1, INT32, SUM, comm, NULL));
        switch (wrong) {
        case 0:
            EXPECT_RESULT(INVALID_ARGUMENT, ncclAllReduce(&sent, &got, 1, TYPES,
                                                          SUM, comm, NULL));
            break;
        case 1: /* what only weft knows to be wrong */
            EXPECT_RESULT(INVALID_ARGUMENT,
                          ncclAlltoAll(room, room, 1, INT32, comm, NULL));
            break;
        case 2:
            EXPECT_RESULT(INVALID_ARGUMENT,
                          ncclSend(&sent, 1, INT32, nranks, comm, NULL));
            break;
        default:
            EXPECT_RESULT(INVALID_ARGUMENT, ncclAllReduce(&sent, &got, 1, INT32,
                                                          SUM, NULL, NULL));
        }
        EXPECT_RESULT(SUCCESS,
                      ncclAllReduce(&sent, &got, 1, INT32, SUM, comm, NULL));
        EXPECT_RESULT(INVALID_ARGUMENT, ncclGroupEnd());
        EXPECT(got == -1);
    }
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&sent, &got, 1, INT32, SUM, comm, NULL));
    EXPECT(got == nranks * (nranks - 1) / 2);
    return failures;
}

static void test_group_with_a_wrong_call_launches_nothing(void **state)
{
    (void)state;
    run(2, rank_refused);
}

static void *end_here(void *argument)
{
    *(int *)argument = ncclGroupEnd();
    return NULL;
}

static void test_group_is_of_its_thread(void **state)
{
    pthread_t thread;
    int failures = 0, result = -1;
    (void)state;
    EXPECT_RESULT(INVALID_USAGE, ncclGroupEnd());
    EXPECT(door_said("no group was started"));
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    assert_int_equal(pthread_create(&thread, NULL, end_here, &result), 0);
    pthread_join(thread, NULL);
    EXPECT(result == WEFTI_DOOR_INVALID_USAGE);
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    assert_int_equal(failures, 0);
}

/* To all and from all, itself too, in another order on each rank; and of 0
 * elements. */
static int rank_messages(struct ncclComm *comm, int rank, int nranks,
                         void *context)
{
    const size_t count = ELEMS;
    int(*sent)[ELEMS] = malloc(sizeof(*sent) * (size_t)nranks);
    int(*got)[ELEMS] = malloc(sizeof(*got) * (size_t)nranks);
    int failures = 0;
    (void)context;
    for (int p = 0; p < nranks; p++) {
        for (size_t i = 0; i < count; i++) {
            sent[p][i] = rank * 100 + p;
            got[p][i] = -1;
        }
    }
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    for (int at = 0; at < nranks; at++) {
        const int p = (at + rank) % nranks;
        EXPECT_RESULT(SUCCESS, ncclSend(sent[p], count, INT32, p, comm, NULL));
        EXPECT_RESULT(SUCCESS, ncclSend(NULL, 0, INT32, p, comm, NULL));
    }
    for (int p = nranks - 1; p >= 0; p--) {
        EXPECT_RESULT(SUCCESS, ncclRecv(got[p], count, INT32, p, comm, NULL));
        EXPECT_RESULT(SUCCESS, ncclRecv(NULL, 0, INT32, p, comm, NULL));
    }
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    for (int p = 0; p < nranks; p++) {
        EXPECT(got[p][0] == p * 100 + rank);
        EXPECT(got[p][count - 1] == p * 100 + rank);
    }
    free(sent);
    free(got);
    return failures;
}

/* Each part is sent to a rank and received from it, all in one buffer; twice,
 * the second time larger; beside it a part that nothing is received into. */
static int rank_exchanges(struct ncclComm *comm, int rank, int nranks,
                          void *context)
{
    int *both = malloc(sizeof(int) * ELEMS * (size_t)nranks);
    int failures = 0, apart = rank, got = -1;
    const int next = (rank + 1) % nranks, last = (rank + nranks - 1) % nranks;
    (void)context;
    for (size_t count = ELEMS / 8; count <= ELEMS; count *= 8) {
        for (size_t i = 0; i < count * (size_t)nranks; i++) {
            both[i] = rank * 100 + (int)(i / count);
        }
        EXPECT_RESULT(SUCCESS, ncclGroupStart());
        for (int p = 0; p < nranks; p++) {
            int *part = both + (size_t)p * count;
            EXPECT_RESULT(SUCCESS, ncclRecv(part, count, INT32, p, comm, NULL));
            EXPECT_RESULT(SUCCESS, ncclSend(part, count, INT32, p, comm, NULL));
        }
        EXPECT_RESULT(SUCCESS, ncclSend(&apart, 1, INT32, next, comm, NULL));
        EXPECT_RESULT(SUCCESS, ncclRecv(&got, 1, INT32, last, comm, NULL));
        EXPECT_RESULT(SUCCESS, ncclGroupEnd());
        for (int p = 0; p < nranks; p++) {
            EXPECT(both[(size_t)p * count] == p * 100 + rank);
            EXPECT(both[(size_t)(p + 1) * count - 1] == p * 100 + rank);
        }
        EXPECT(got == last);
    }
    free(both);
    return failures;
}

static void test_group_sends_from_where_it_receives(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 3; nranks++) {
        run(nranks, rank_exchanges);
    }
}

static void test_messages_of_a_group_are_one(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= 4; nranks++) {
        run(nranks, rank_messages);
    }
}

/* Without a group, one after the other. */
static int rank_ping(struct ncclComm *comm, int rank, int nranks, void *context)
{
    int failures = 0, value = rank;
    (void)nranks, (void)context;
    for (int i = 0; i < 20; i++) {
        if (rank == 0) {
            EXPECT_RESULT(SUCCESS, ncclSend(&i, 1, INT32, 1, comm, NULL));
            EXPECT_RESULT(SUCCESS, ncclRecv(&value, 1, INT32, 1, comm, NULL));
            EXPECT(value == i + 1);
        } else {
            EXPECT_RESULT(SUCCESS, ncclRecv(&value, 1, INT32, 0, comm, NULL));
            value++;
            EXPECT_RESULT(SUCCESS, ncclSend(&value, 1, INT32, 0, comm, NULL));
        }
    }
    return failures;
}

static void test_messages_alone_match_in_order(void **state)
{
    (void)state;
    run(2, rank_ping);
}

/* What a rank sends stands before, on the other behind, a collective. */
static int rank_mixture(struct ncclComm *comm, int rank, int nranks,
                        void *context)
{
    int failures = 0, value = rank, got = -1, sum = -1;
    (void)nranks, (void)context;
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    if (rank == 0) {
        EXPECT_RESULT(SUCCESS, ncclSend(&value, 1, INT32, 1, comm, NULL));
    }
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &sum, 1, INT32, SUM, comm, NULL));
    if (rank == 1) {
        EXPECT_RESULT(SUCCESS, ncclRecv(&got, 1, INT32, 0, comm, NULL));
    }
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    EXPECT(sum == 1 && (rank == 0 || got == 0));
    return failures;
}

static void test_messages_and_collectives_in_one_group(void **state)
{
    (void)state;
    run(2, rank_mixture);
}

/* Of several communicators, and one of them made in the same group as the
 * other's operation. */
static int rank_two_comms(struct ncclComm *comm, int rank, int nranks,
                          void *context)
{
    struct ncclComm *second = NULL, *third = NULL;
    int failures = 0, value = rank + 1, got[2] = {-1, -1};
    (void)context;
    EXPECT_RESULT(SUCCESS, ncclCommSplit(comm, 0, -rank, &second, NULL));
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got[0], 1, INT32, SUM, comm, NULL));
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got[1], 1, INT32, 2, second, NULL));
    EXPECT_RESULT(SUCCESS, ncclCommSplit(second, rank % 2, 0, &third, NULL));
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    EXPECT(got[0] == nranks * (nranks + 1) / 2 && got[1] == nranks);
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(third));
    EXPECT_RESULT(SUCCESS, ncclCommFinalize(second));
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommDestroy(third));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommFinalize(second));
    EXPECT_RESULT(SUCCESS, ncclCommDestroy(second));
    return failures;
}

static void test_group_of_several_communicators(void **state)
{
    (void)state;
    run(4, rank_two_comms);
}

/* All of one thread: made, split twice, ended in groups. */
static void test_one_thread_splits_all_its_ranks(void **state)
{
    struct ncclComm *all[4], *halves[4], *pairs[4];
    int failures = 0, number;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclCommInitAll(all, 4, NULL));
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    for (int i = 0; i < 4; i++) {
        EXPECT_RESULT(SUCCESS,
                      ncclCommSplit(all[i], i / 2, 0, &halves[i], NULL));
        EXPECT_RESULT(SUCCESS,
                      ncclCommSplit(all[i], i % 2, -i, &pairs[i], NULL));
    }
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    for (int i = 0; i < 4; i++) {
        EXPECT_RESULT(SUCCESS, ncclCommUserRank(halves[i], &number));
        EXPECT(number == i % 2);
        EXPECT_RESULT(SUCCESS, ncclCommUserRank(pairs[i], &number));
        EXPECT(number == 1 - i / 2);
    }
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    for (int i = 0; i < 4; i++) {
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(pairs[i]));
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(halves[i]));
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(all[i]));
    }
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    assert_int_equal(failures, 0);
}

/* What a failed group would have made is not there. */
static void test_init_in_a_failed_group_is_undone(void **state)
{
    struct ncclComm *comm = NULL;
    wefti_door_id id;
    int failures = 0;
    (void)state;
    EXPECT_RESULT(SUCCESS, ncclGetUniqueId(&id));
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS, ncclCommInitRank(&comm, 1, id, 0));
    EXPECT(comm != NULL);
    EXPECT_RESULT(INVALID_ARGUMENT, ncclCommInitRank(NULL, 1, id, 0));
    EXPECT_RESULT(INVALID_ARGUMENT, ncclGroupEnd());
    EXPECT(comm == NULL);
    assert_int_equal(failures, 0);
}

static int rank_simulated(struct ncclComm *comm, int rank, int nranks,
                          void *context)
{
    wefti_door_simulation told = {sizeof(told), WEFTI_DOOR_SIMULATION_MAGIC,
                                  22809, 7.0f};
    int failures = 0, value = rank, got = -1;
    (void)nranks, (void)context;
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
    EXPECT_RESULT(SUCCESS, ncclGroupSimulateEnd(&told));
    EXPECT(got == -1 && told.estimatedTime == -1.0f);
    EXPECT(told.size == sizeof(told));
    told.magic = 0;
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(INVALID_ARGUMENT, ncclGroupSimulateEnd(&told));
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    EXPECT_RESULT(INVALID_ARGUMENT, ncclGroupSimulateEnd(NULL));
    EXPECT_RESULT(INVALID_USAGE, ncclGroupEnd());
    EXPECT_RESULT(SUCCESS,
                  ncclAllReduce(&value, &got, 1, INT32, SUM, comm, NULL));
    EXPECT(got == 1);
    return failures;
}

static void test_simulated_end_launches_nothing(void **state)
{
    (void)state;
    run(2, rank_simulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_nest),
        cmocka_unit_test(test_group_with_a_wrong_call_launches_nothing),
        cmocka_unit_test(test_group_is_of_its_thread),
        cmocka_unit_test(test_messages_of_a_group_are_one),
        cmocka_unit_test(test_group_sends_from_where_it_receives),
        cmocka_unit_test(test_messages_alone_match_in_order),
        cmocka_unit_test(test_messages_and_collectives_in_one_group),
        cmocka_unit_test(test_group_of_several_communicators),
        cmocka_unit_test(test_one_thread_splits_all_its_ranks),
        cmocka_unit_test(test_init_in_a_failed_group_is_undone),
        cmocka_unit_test(test_simulated_end_launches_nothing)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* host memory */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

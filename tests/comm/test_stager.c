/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what another core reads next is written in the way that fits what
 * writing took, and in each way results are right, however many operations are
 * under way.
 *
 * Method: times of the three places that cores may be in, and of machines that
 * are slow whatever is done, some of them interrupted. Copies of lengths about
 * lines, at odd addresses, by several threads at once. Then all collectives
 * with each way given, buffers poisoned when an operation returns, and rounds
 * of operations that are begun before any is waited for, also while more
 * messages lie unread than there is room for.
 */
#include "comm/fabric/stager.h"

#include "base/check.h"
#include "comm/core/core.h"
#include "tests/comm/all_reduce_op.h"
#include "tests/comm/one_op.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 2, SIZES = 3 };
#else
enum { ROUNDS = 6, SIZES = 5 };
#endif
enum { RANKS = 3, AT_ONCE = 12, GUARD = 64, THREADS = 2 };

/* What is found where calls take so long; each third one is interrupted. */
static wefti_stager_way find(int near_ps, int past_ps)
{
    wefti_stager_size size = {0};
    int left = wefti_stager_begin();
    for (int call = 0; left > 0; call++) {
        const wefti_stager_way way = wefti_stager_find_way(&size, left);
        assert_true(call < wefti_stager_begin());
        assert_int_not_equal(way, WEFTI_STAGER_FAR);
        left = wefti_stager_learn(
            &size, left,
            call % 3 == 0 ? INT64_C(1) << 40
                          : (way == WEFTI_STAGER_NEAR ? near_ps : past_ps));
    }
    return wefti_stager_find_way(&size, 0);
}

static void test_stager_follows_what_writing_took(void **state)
{
    (void)state;
    assert_int_equal(find(18, 50), WEFTI_STAGER_NEAR);   /* one core */
    assert_int_equal(find(107, 33), WEFTI_STAGER_FAR);   /* one cache */
    assert_int_equal(find(430, 33), WEFTI_STAGER_PAST);  /* two */
    assert_int_equal(find(430, 400), WEFTI_STAGER_FAR);  /* a slow one */
    assert_int_equal(find(2000, 90), WEFTI_STAGER_PAST); /* another */
}

/* As long as it is so, and then anew. */
static void test_stager_is_timed_anew(void **state)
{
    wefti_stager_size size = {0};
    (void)state;
    for (int look = 0; look < 3; look++) {
        const int near_ps = look == 1 ? 18 : 430;
        int left = wefti_stager_begin();
        while (left > 0) {
            left = wefti_stager_learn(&size, left,
                                      wefti_stager_find_way(&size, left) ==
                                              WEFTI_STAGER_NEAR
                                          ? near_ps
                                          : 33);
        }
        assert_int_equal(wefti_stager_find_way(&size, 0),
                         look == 1 ? WEFTI_STAGER_NEAR : WEFTI_STAGER_PAST);
    }
}

/* From now on all is written so. */
static void set_way(wefti_stager *stager, wefti_stager_way way)
{
    for (int i = 0; i < WEFTI_STAGER_SIZES; i++) {
        atomic_store(&stager->sizes[i].way, (int)way);
        atomic_store(&stager->sizes[i].left, 0);
        atomic_store(&stager->sizes[i].due_ns, INT64_MAX);
    }
}

/* ---- copies ----------------------------------------------------------------
 */

static int copy_all(wefti_stager *stager)
{
    static const size_t lengths[] = {0,      1,      63,    8191,  8192,
                                     8193,   16384,  40001, 65536, 131072,
                                     131135, 300000, 524288};
    const size_t room = 524288 + 4 * GUARD;
    unsigned char *src = malloc(room), *dst = malloc(room);
    int failures = !src || !dst;
    for (size_t i = 0; !failures && i < room; i++) {
        src[i] = (unsigned char)(i % 251);
    }
    for (size_t i = 0; !failures && i < WEFTI_COUNT_OF(lengths); i++) {
        const size_t length = lengths[i], begin = GUARD + i * 7 % GUARD;
        memset(dst, 0xee, room);
        for (int call = 0; call < 3; call++) {
            wefti_stager_copy(stager, dst + begin, src + i, length);
        }
        failures += memcmp(dst + begin, src + i, length) != 0;
        failures += dst[begin - 1] != 0xee || dst[begin + length] != 0xee;
    }
    free(src);
    free(dst);
    return failures;
}

static void *copy_all_thread(void *stager)
{
    return (void *)(intptr_t)copy_all(stager);
}

static void test_stager_copies_exactly(void **state)
{
    (void)state;
    wefti_stager *stager = calloc(1, sizeof(*stager));
    assert_non_null(stager);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) { /* that time it, too */
        assert_int_equal(
            pthread_create(&threads[i], NULL, copy_all_thread, stager), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failures;
        assert_int_equal(pthread_join(threads[i], &failures), 0);
        assert_null(failures);
    }
    for (int way = 0; way <= WEFTI_STAGER_PAST; way++) {
        set_way(stager, (wefti_stager_way)way);
        assert_int_equal(copy_all(stager), 0);
        assert_int_equal(wefti_stager_is_far(stager, 100000),
                         way == WEFTI_STAGER_FAR);
        assert_false(wefti_stager_is_far(stager, 1000));
    }
    free(stager);
}

/* ---- operations ------------------------------------------------------------
 */

/* Sums in place of so many floats each, all under way at once. */
static int run_round(weft_comm *comm, size_t elems, int round)
{
    const int rank = weft_comm_get_rank(comm);
    float *data = malloc(AT_ONCE * elems * sizeof(*data));
    weft_request *requests[AT_ONCE] = {NULL};
    int failures = CHECK(data != NULL);
    for (size_t i = 0; data && i < AT_ONCE; i++) {
        float *mine = data + i * elems;
        for (size_t e = 0; e < elems; e++) {
            mine[e] = (float)(rank + (int)((i + e + (size_t)round) % 31));
        }
        const weft_op op = all_reduce_op(mine, elems, WEFT_DTYPE_F32);
        failures += CHECK(weft_op_begin(&op, 0, comm, &requests[i]) == WEFT_OK);
    }
    for (size_t i = 0; data && i < AT_ONCE; i++) {
        failures += CHECK(weft_request_wait(requests[i]) == WEFT_OK);
        weft_request_destroy(requests[i]);
        size_t wrong = 0;
        for (size_t e = 0; e < elems; e++) {
            wrong += data[i * elems + e] !=
                     (float)(RANKS * (RANKS - 1) / 2 +
                             RANKS * (int)((i + e + (size_t)round) % 31));
        }
        failures += CHECK(wrong == 0);
    }
    free(data);
    return failures;
}

/* ---- messages beside operations --------------------------------------------
 */

enum {
    QUEUED = 5, /* to each rank in each queue: more than may be unread */
    MESSAGES = RANKS * WEFT_P2P_QUEUES * QUEUED,
    MESSAGE_ELEMS = 16000 /* just less than a slot */
};

static float value_of(int from, int to, int number, size_t elem)
{
    return (float)(from * 1000 + to * 100 + number + (int)(elem % 511));
}

/* Begins to send to, or to receive from, every rank. */
static int begin_messages(weft_comm *comm, bool sends, float *data,
                          weft_request *requests[MESSAGES])
{
    const int rank = weft_comm_get_rank(comm);
    int failures = 0;
    for (int i = 0; i < MESSAGES; i++) {
        const int peer = i % RANKS, number = i / RANKS;
        float *mine = data + (size_t)i * MESSAGE_ELEMS;
        for (size_t e = 0; e < MESSAGE_ELEMS; e++) {
            mine[e] = sends ? value_of(rank, peer, number, e) : -1.0F;
        }
        const weft_p2p part = {.size_bytes = sizeof(part),
                               .kind = sends ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                               .buffer = mine,
                               .count = MESSAGE_ELEMS - (size_t)number * 700,
                               .dtype = WEFT_DTYPE_F32,
                               .peer = peer,
                               .queue = number % WEFT_P2P_QUEUES};
        failures +=
            CHECK(weft_p2p_begin(&part, 1, comm, &requests[i]) == WEFT_OK);
    }
    return failures;
}

static int end_messages(weft_request *requests[MESSAGES])
{
    int failures = 0;
    for (int i = 0; i < MESSAGES; i++) {
        failures += CHECK(weft_request_wait(requests[i]) == WEFT_OK);
        weft_request_destroy(requests[i]);
    }
    return failures;
}

/* Messages lie unread while operations that need as much room come and go. */
static int send_ahead(weft_comm *comm)
{
    const int rank = weft_comm_get_rank(comm);
    const size_t elems = (size_t)MESSAGES * MESSAGE_ELEMS;
    float *out = malloc(elems * sizeof(*out)),
          *in = malloc(elems * sizeof(*in));
    weft_request *sent[MESSAGES] = {NULL}, *received[MESSAGES] = {NULL};
    int failures = CHECK(out && in);
    if (failures == 0) {
        failures += begin_messages(comm, true, out, sent);
        failures += run_round(comm, 3000, 1) + run_round(comm, 3000, 2);
        failures += begin_messages(comm, false, in, received);
        failures += run_round(comm, 3000, 3);
        failures += end_messages(sent) + end_messages(received);
    }
    size_t wrong = 0;
    for (int i = 0; failures == 0 && i < MESSAGES; i++) {
        const int peer = i % RANKS, number = i / RANKS;
        for (size_t e = 0; e < MESSAGE_ELEMS - (size_t)number * 700; e++) {
            wrong += in[(size_t)i * MESSAGE_ELEMS + e] !=
                     value_of(peer, rank, number, e);
        }
    }
    free(out);
    free(in);
    return failures + CHECK(wrong == 0);
}

/* How often a message to oneself went round the areas, of so many. */
static int turn_messages(weft_comm *comm, int *turned_out)
{
    enum { TURNS = 7 };
    static const float out[2500];
    float *in = malloc(sizeof(out));
    int failures = CHECK(in != NULL);
    *turned_out = 0;
    for (int i = 0; in && i < TURNS; i++) {
        const int rank = weft_comm_get_rank(comm);
        weft_p2p list[2] = {{.size_bytes = sizeof(list[0]),
                             .kind = WEFT_P2P_SEND,
                             .buffer = (void *)(uintptr_t)out,
                             .count = WEFTI_COUNT_OF(out),
                             .dtype = WEFT_DTYPE_F32,
                             .peer = rank}};
        list[1] = list[0];
        list[1].kind = WEFT_P2P_RECV;
        list[1].buffer = in;
        const int begun = comm->far_area;
        failures += CHECK(weft_p2p_post(list, 2, comm, NULL) == WEFT_OK);
        *turned_out += comm->far_area != begun;
    }
    free(in);
    return failures + CHECK(*turned_out == 0 || *turned_out == TURNS);
}

static int is_right(weft_comm *comm, void *context)
{
    static const size_t sizes[] = {9000, 64000, 300000, 30000, 700000};
    wefti_stager *stager = &comm->engine->stager;
    int failures = 0;
    (void)context;
    for (int way = 0; way <= WEFTI_STAGER_PAST; way++) {
        const size_t begun = comm->far_begin;
        set_way(stager, (wefti_stager_way)way);
        for (size_t s = 0; s < SIZES; s++) {
            for (int c = 0; c < ONE_OP_COLLECTIVES; c++) {
                failures += one_op_run(comm, one_op_collectives[c],
                                       WEFT_DTYPE_F32, sizes[s], false, NULL);
            }
        }
        failures += one_op_run_messages(comm, NULL);
        for (int round = 0; round < ROUNDS; round++) {
            failures += run_round(comm, 3000, round);  /* in one shot */
            failures += run_round(comm, 20000, round); /* in steps */
        }
        int messages_turned;
        failures += send_ahead(comm) + turn_messages(comm, &messages_turned);
        failures += CHECK((messages_turned > 0) == (way == WEFTI_STAGER_FAR));
        const bool turned = comm->far_begin != begun;
        failures += CHECK(turned == (way == WEFTI_STAGER_FAR));
        failures += CHECK(comm->far_begin <= WEFTI_STAGER_FAR_BYTES);
    }
    return failures;
}

static void test_stager_results_are_right(void **state)
{
    assert_int_equal(world_run_as(*state, RANKS, is_right), 0);
}

int main(void)
{
    static char processes[] = "processes", threads[] = "threads";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stager_follows_what_writing_took),
        cmocka_unit_test(test_stager_is_timed_anew),
        cmocka_unit_test(test_stager_copies_exactly),
        cmocka_unit_test_prestate(test_stager_results_are_right, processes),
        cmocka_unit_test_prestate(test_stager_results_are_right, threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
 * of operations that are begun before any is waited for.
 */
#include "comm/fabric/stager.h"

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

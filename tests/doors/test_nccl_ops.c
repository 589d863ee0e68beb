/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: everything that moves data through NCCL's interface gives what it says
 * there, to the bit, on host memory: each collective, type, built-in reduction
 * and sum of products, in place and not, each root, sends and receives; by
 * ranks that are threads, processes, or one thread with all of them in groups.
 *
 * Method: inputs and expected results of tests/comm/values.h; outputs are
 * poisoned, and what lies behind them is looked at too.
 */
#include "tests/comm/values.h"
#include "tests/doors/door_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { MOST_ELEMS = 5000, POISON = 0xa5, MOST_RANKS = 4, GUARD = 16 };

/* One rank's side of one operation, between what goes before the call and what
 * comes after it: in a group, other ranks' calls come between. */
typedef struct side {
    struct ncclComm *comm;
    int rank, nranks;
    unsigned char *send, *recv, *wanted;
    size_t wanted_bytes;
} side;

typedef struct shape {
    weft_collective what;
    weft_dtype dtype;
    weft_redop redop;
    bool premul, in_place;
    int root;
    size_t count;
} shape;

static size_t room_bytes(int nranks)
{
    return (size_t)nranks * MOST_ELEMS * 8 + GUARD;
}

static void side_init(side *own, struct ncclComm *comm, int rank, int nranks)
{
    *own = (side){.comm = comm, .rank = rank, .nranks = nranks};
    own->send = malloc(room_bytes(nranks));
    own->recv = malloc(room_bytes(nranks));
    own->wanted = malloc(room_bytes(nranks));
}

static void side_fini(side *own)
{
    free(own->send);
    free(own->recv);
    free(own->wanted);
}

static bool reduces(weft_collective what)
{
    return what == WEFT_COLLECTIVE_ALLREDUCE ||
           what == WEFT_COLLECTIVE_REDUCE ||
           what == WEFT_COLLECTIVE_REDUCESCATTER;
}

/* Parts of the buffers, for each rank one; 1: the whole. */
static size_t parts_sent(const shape *made, int nranks)
{
    return made->what == WEFT_COLLECTIVE_REDUCESCATTER ||
                   made->what == WEFT_COLLECTIVE_ALLTOALL ||
                   made->what == WEFT_COLLECTIVE_SCATTER
               ? (size_t)nranks
               : 1;
}

static values values_of(const shape *made, const side *own)
{
    values filled;
    values_init(&filled, made->dtype,
                made->premul ? WEFT_REDOP_PREMULSUM : made->redop, own->rank,
                own->nranks, 5);
    return filled;
}

/* What this rank is to hold afterwards; 0 bytes: nothing. */
static void expect(const shape *made, side *own)
{
    const values filled = values_of(made, own);
    const size_t part = made->count * filled.elem_bytes;
    const size_t rank = (size_t)own->rank;
    own->wanted_bytes = part;
    switch (made->what) {
    case WEFT_COLLECTIVE_REDUCE:
        own->wanted_bytes = own->rank == made->root ? part : 0;
        values_expect(&filled, own->wanted, 0, made->count);
        break;
    case WEFT_COLLECTIVE_ALLREDUCE:
        values_expect(&filled, own->wanted, 0, made->count);
        break;
    case WEFT_COLLECTIVE_REDUCESCATTER:
        values_expect(&filled, own->wanted, rank * made->count, made->count);
        break;
    case WEFT_COLLECTIVE_BROADCAST:
        values_fill(&filled, own->wanted, made->root, 0, made->count);
        break;
    case WEFT_COLLECTIVE_SCATTER:
        values_fill(&filled, own->wanted, made->root, rank * made->count,
                    made->count);
        break;
    default: /* a part of each rank */
        own->wanted_bytes =
            made->what == WEFT_COLLECTIVE_GATHER && own->rank != made->root
                ? 0
                : part * (size_t)own->nranks;
        for (int p = 0; p < own->nranks; p++) {
            values_fill(
                &filled, own->wanted + (size_t)p * part, p,
                made->what == WEFT_COLLECTIVE_ALLTOALL ? rank * made->count : 0,
                made->count);
        }
    }
}

/* Where its own data lie in place; of REDUCESCATTER and SCATTER, where the
 * result does. */
static size_t own_place(const shape *made, const side *own, size_t part)
{
    switch (made->what) {
    case WEFT_COLLECTIVE_ALLGATHER:
    case WEFT_COLLECTIVE_GATHER:
    case WEFT_COLLECTIVE_REDUCESCATTER:
    case WEFT_COLLECTIVE_SCATTER:
        return (size_t)own->rank * part;
    default:
        return 0;
    }
}

/* Only roots use both buffers of these. */
static bool uses_both(const shape *made, const side *own)
{
    return (made->what != WEFT_COLLECTIVE_GATHER &&
            made->what != WEFT_COLLECTIVE_SCATTER &&
            made->what != WEFT_COLLECTIVE_REDUCE) ||
           own->rank == made->root;
}

static int post(const shape *made, side *own, const void *send, void *recv,
                int op)
{
    const int dtype = (int)made->dtype, root = made->root;
    const size_t count = made->count;
    struct ncclComm *comm = own->comm;
    switch (made->what) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        return ncclAllReduce(send, recv, count, dtype, op, comm, NULL);
    case WEFT_COLLECTIVE_REDUCE:
        return ncclReduce(send, recv, count, dtype, op, root, comm, NULL);
    case WEFT_COLLECTIVE_REDUCESCATTER:
        return ncclReduceScatter(send, recv, count, dtype, op, comm, NULL);
    case WEFT_COLLECTIVE_BROADCAST:
        return send == recv
                   ? ncclBcast(recv, count, dtype, root, comm, NULL)
                   : ncclBroadcast(send, recv, count, dtype, root, comm, NULL);
    case WEFT_COLLECTIVE_ALLGATHER:
        return ncclAllGather(send, recv, count, dtype, comm, NULL);
    case WEFT_COLLECTIVE_ALLTOALL:
        return ncclAlltoAll(send, recv, count, dtype, comm, NULL);
    case WEFT_COLLECTIVE_GATHER:
        return ncclGather(send, recv, count, dtype, root, comm, NULL);
    default:
        return ncclScatter(send, recv, count, dtype, root, comm, NULL);
    }
}

static int begin(const shape *made, side *own)
{
    const values filled = values_of(made, own);
    const size_t part = made->count * filled.elem_bytes;
    const bool in_place = made->in_place && uses_both(made, own);
    const bool result_moves = made->what == WEFT_COLLECTIVE_REDUCESCATTER ||
                              made->what == WEFT_COLLECTIVE_SCATTER;
    const size_t at = in_place ? own_place(made, own, part) : 0;
    int failures = 0, op = (int)made->redop;
    memset(own->send, POISON, room_bytes(own->nranks));
    memset(own->recv, POISON, room_bytes(own->nranks));
    unsigned char *send = own->send, *recv = own->recv;
    if (in_place && result_moves) {
        recv = send + at;
    } else if (in_place) {
        send = recv + at;
    }
    values_fill(&filled, send, own->rank, 0,
                made->count * parts_sent(made, own->nranks));
    expect(made, own);
    if (made->premul) {
        EXPECT_RESULT(SUCCESS,
                      ncclRedOpCreatePreMulSum(
                          &op, (void *)(uintptr_t)filled.scale,
                          (int)made->dtype, WEFTI_DOOR_SCALAR_HOST, own->comm));
    }
    const int result = post(made, own, send, recv, op);
    EXPECT(result == WEFTI_DOOR_SUCCESS);
    if (made->premul) { /* also within a group, before its end */
        EXPECT_RESULT(SUCCESS, ncclRedOpDestroy(op, own->comm));
    }
    if (recv != own->recv) { /* looked at where the result lies */
        unsigned char *swapped = own->send;
        own->send = own->recv;
        own->recv = swapped;
    }
    return failures;
}

static int finish(const shape *made, const side *own)
{
    const values filled = values_of(made, own);
    const size_t part = made->count * filled.elem_bytes;
    const bool moved = made->in_place && uses_both(made, own) &&
                       (made->what == WEFT_COLLECTIVE_REDUCESCATTER ||
                        made->what == WEFT_COLLECTIVE_SCATTER);
    const unsigned char *recv = own->recv + (moved ? own->rank : 0) * part;
    const bool good =
        memcmp(recv, own->wanted, own->wanted_bytes) == 0 &&
        (moved || own->wanted_bytes == 0 || recv[own->wanted_bytes] == POISON);
    if (!good) {
        fprintf(stderr, "%s, %s, %s, %zu elems, root %d%s, rank %d of %d\n",
                weft_collective_text(made->what), weft_dtype_text(made->dtype),
                made->premul ? "premulsum" : weft_redop_text(made->redop),
                made->count, made->root, made->in_place ? ", in place" : "",
                own->rank, own->nranks);
    }
    return !good;
}

/* Sanitized tests try every third, unless they are asked for the whole. */
static bool is_left_out(int at)
{
    return SANITIZED && !getenv("WEFT_TEST_WHOLE") &&
           (at + at / WEFT_DTYPE_COUNT) % 3 != 0;
}

/* Calls back with every shape that is worth trying. */
static int walk(int nranks, int (*call)(const shape *, void *), void *context)
{
    static const size_t counts[] = {1, 7, MOST_ELEMS};
    int failures = 0;
    shape made = {0};
    for (int what = WEFT_COLLECTIVE_ALLREDUCE; what <= WEFT_COLLECTIVE_SCATTER;
         what++) {
        made.what = (weft_collective)what;
        if (what == WEFT_COLLECTIVE_ALLTOALLV ||
            what == WEFT_COLLECTIVE_GATHERV) {
            continue;
        }
        const int ops = reduces(made.what) ? 6 : 1; /* the last: premulsum */
        for (int at = 0; at < WEFT_DTYPE_COUNT * ops * 6; at++) {
            made.dtype = (weft_dtype)(at % WEFT_DTYPE_COUNT);
            const int op = at / WEFT_DTYPE_COUNT % ops;
            made.premul = op == 5;
            made.redop = (weft_redop)(made.premul ? 0 : op);
            made.in_place = at / (WEFT_DTYPE_COUNT * ops) % 2 == 1;
            made.count = counts[at / (WEFT_DTYPE_COUNT * ops * 2)];
            made.root = at % nranks;
            if (is_left_out(at)) {
                continue;
            }
            if (!made.in_place || what != WEFT_COLLECTIVE_ALLTOALL) {
                failures += call(&made, context);
            }
        }
    }
    return failures;
}

static int one(const shape *made, void *context)
{
    side *own = context;
    int failures = begin(made, own);
    return failures + finish(made, own);
}

static int rank_all_ops(struct ncclComm *comm, int rank, int nranks,
                        void *context)
{
    side own;
    (void)context;
    side_init(&own, comm, rank, nranks);
    const int failures = walk(nranks, one, &own);
    side_fini(&own);
    return failures;
}

/* All ranks are this thread's. */
static int one_of_all(const shape *made, void *context)
{
    side *sides = context;
    const int nranks = sides[0].nranks;
    int failures = 0;
    EXPECT_RESULT(SUCCESS, ncclGroupStart());
    for (int i = 0; i < nranks; i++) {
        failures += begin(made, &sides[i]);
    }
    EXPECT_RESULT(SUCCESS, ncclGroupEnd());
    for (int i = 0; i < nranks; i++) {
        failures += finish(made, &sides[i]);
    }
    return failures;
}

static int run_all_in_one(int nranks)
{
    struct ncclComm *comms[MOST_RANKS];
    side sides[MOST_RANKS];
    int failures = 0;
    EXPECT_RESULT(SUCCESS, ncclCommInitAll(comms, nranks, NULL));
    for (int i = 0; i < nranks; i++) {
        side_init(&sides[i], comms[i], i, nranks);
    }
    failures += walk(nranks, one_of_all, sides);
    for (int i = 0; i < nranks; i++) {
        side_fini(&sides[i]);
        EXPECT_RESULT(SUCCESS, ncclCommDestroy(comms[i]));
    }
    return failures;
}

static void test_ops_of_threads_give_what_they_say(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
        assert_int_equal(door_run_threads(nranks, rank_all_ops, NULL), 0);
    }
}

static void test_ops_of_one_thread_in_groups_give_what_they_say(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
        assert_int_equal(run_all_in_one(nranks), 0);
    }
}

static void test_ops_of_processes_give_what_they_say(void **state)
{
    (void)state;
    for (int nranks = 1; nranks <= MOST_RANKS; nranks++) {
        assert_int_equal(door_run_processes(nranks, rank_all_ops, NULL), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest in_one[] = {
        cmocka_unit_test(test_ops_of_threads_give_what_they_say),
        cmocka_unit_test(test_ops_of_one_thread_in_groups_give_what_they_say)};
    const struct CMUnitTest processes[] = {
        cmocka_unit_test(test_ops_of_processes_give_what_they_say)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* host memory */
    return argc > 1 && strcmp(argv[1], "processes") == 0
               ? cmocka_run_group_tests(processes, NULL, NULL)
               : cmocka_run_group_tests(in_one, NULL, NULL);
}

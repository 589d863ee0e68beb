/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/comm/one_op.h"

#include "comm/core/core.h"
#include "tests/comm/values.h"
#include "tests/repeat.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const weft_collective one_op_collectives[ONE_OP_COLLECTIVES] = {
    WEFT_COLLECTIVE_ALLREDUCE,     WEFT_COLLECTIVE_REDUCE,
    WEFT_COLLECTIVE_REDUCESCATTER, WEFT_COLLECTIVE_ALLGATHER,
    WEFT_COLLECTIVE_BROADCAST,     WEFT_COLLECTIVE_ALLTOALL,
    WEFT_COLLECTIVE_GATHER,        WEFT_COLLECTIVE_SCATTER};

int one_op_check(bool right, const char *what, int line)
{
    if (!right) {
        fprintf(stderr, "line %d: %s\n", line, what);
    }
    return !right;
}

/* Room for so many bytes, at addresses of any kind. */
static unsigned char *take(one_op_room *room, int which, size_t bytes)
{
    if (!room || !room->memory[which]) {
        return malloc(bytes);
    }
    const size_t first = room->calls++ * 8 % 4096;
    if (first + bytes > room->bytes[which]) {
        abort(); /* the test's room is too small */
    }
    return room->memory[which] + first;
}

static void give_back(const one_op_room *room, int which, void *taken)
{
    if (!room || !room->memory[which]) {
        free(taken);
    }
}

/* One operation on one rank. */
typedef struct trial {
    values held;
    weft_op op;
    size_t send_elems, recv_elems; /* 0: no such buffer */
    unsigned char *send, *recv, *expected;
} trial;

static void size_up(trial *t, int rank, int nranks)
{
    const wefti_role role =
        wefti_role_of(t->op.collective, t->op.dtype, t->op.root, rank);
    t->send_elems =
        role.sends ? wefti_role_send_elems(&role, t->op.count, nranks) : 0;
    t->recv_elems =
        role.receives ? wefti_role_recv_elems(&role, t->op.count, nranks) : 0;
}

/* What rank must get, by the definition of each collective. */
static void expect(trial *t, int rank, int nranks)
{
    const size_t count = t->op.count, part = count * t->held.elem_bytes;
    const bool scatters = t->op.collective == WEFT_COLLECTIVE_REDUCESCATTER;
    if (wefti_shape_get(t->op.collective)->reduces) {
        values_expect(&t->held, t->expected,
                      scatters ? (size_t)rank * count : 0, count);
    } else if (wefti_shape_get(t->op.collective)->recv_parts) {
        const size_t first = t->op.collective == WEFT_COLLECTIVE_ALLTOALL
                                 ? (size_t)rank * count
                                 : 0;
        for (int from = 0; from < nranks; from++) {
            values_fill(&t->held, t->expected + (size_t)from * part, from,
                        first, count);
        }
    } else {
        const size_t first = t->op.collective == WEFT_COLLECTIVE_SCATTER
                                 ? (size_t)rank * count
                                 : 0;
        values_fill(&t->held, t->expected, t->op.root, first, count);
    }
}

/* Where the one buffer of an operation in place begins in the other; NULL: it
 * has none. */
static unsigned char *place_of(const trial *t, int rank)
{
    const size_t part = t->op.count * t->held.elem_bytes;
    switch (t->op.collective) {
    case WEFT_COLLECTIVE_ALLREDUCE:
        return t->recv;
    case WEFT_COLLECTIVE_ALLGATHER:
        return t->recv + (size_t)rank * part;
    default:
        return NULL;
    }
}

int one_op_run(weft_comm *comm, weft_collective collective, weft_dtype dtype,
               size_t bytes, bool in_place, one_op_room *room)
{
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    trial t = {.op = {.size_bytes = sizeof(t.op),
                      .collective = collective,
                      .dtype = dtype}};
    const wefti_shape *shape = wefti_shape_get(collective);
    values_init(&t.held, dtype, WEFT_REDOP_SUM, rank, nranks,
                (unsigned)collective + (unsigned)dtype);
    t.op.count = bytes / t.held.elem_bytes + 3;
    if (shape->reduces && shape->send_parts) {
        t.op.count = t.op.count / (size_t)nranks + 3;
    }
    t.op.root = shape->rooted ? ONE_OP_ROOT : 0;
    size_up(&t, rank, nranks);
    const size_t send_bytes = t.send_elems * t.held.elem_bytes;
    const size_t recv_bytes = t.recv_elems * t.held.elem_bytes;
    t.recv = take(room, 1, recv_bytes + 1);
    t.expected = malloc(recv_bytes + 1);
    unsigned char *own = take(room, 0, send_bytes + 1);
    memset(t.recv, 0xA5, recv_bytes);
    t.send = in_place ? place_of(&t, rank) : own;
    values_fill(&t.held, t.send, rank, 0, t.send_elems);
    t.op.send = t.send_elems ? t.send : NULL;
    t.op.recv = t.recv_elems ? t.recv : NULL;
    int failures = CHECK(weft_op_post(&t.op, 0, comm, NULL) == WEFT_OK);
    memset(own, 0x5A, send_bytes); /* peers have read it */
    if (t.recv_elems && failures == 0) {
        expect(&t, rank, nranks);
        failures += CHECK(memcmp(t.recv, t.expected, recv_bytes) == 0);
    }
    memset(t.recv, 0x5A, recv_bytes);
    if (failures) {
        fprintf(stderr, "rank %d of %d: %s of %s, %zu bytes%s\n", rank, nranks,
                weft_collective_text(collective), weft_dtype_text(dtype), bytes,
                in_place ? ", in place" : "");
    }
    give_back(room, 0, own);
    give_back(room, 1, t.recv);
    free(t.expected);
    return failures;
}

int one_op_run_messages(weft_comm *comm, one_op_room *room)
{
    enum { BYTES = 700001 };
    const int rank = weft_comm_get_rank(comm);
    const int nranks = weft_comm_get_nranks(comm);
    const int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
    unsigned char *out = take(room, 0, BYTES), *in = take(room, 1, BYTES);
    memset(out, 1 + rank, BYTES);
    memset(in, 0xA5, BYTES);
    const weft_p2p list[] = {{.size_bytes = sizeof(list[0]),
                              .kind = WEFT_P2P_SEND,
                              .buffer = out,
                              .count = BYTES,
                              .peer = next},
                             {.size_bytes = sizeof(list[0]),
                              .kind = WEFT_P2P_RECV,
                              .buffer = in,
                              .count = BYTES,
                              .peer = before}};
    weft_p2p parts[2];
    memcpy(parts, list, sizeof(parts));
    parts[0].dtype = parts[1].dtype = WEFT_DTYPE_U8;
    int failures = CHECK(weft_p2p_post(parts, 2, comm, NULL) == WEFT_OK);
    memset(out, 0x5A, BYTES);
    failures += CHECK(in[0] == 1 + before && repeats(in, 1, BYTES));
    give_back(room, 0, out);
    give_back(room, 1, in);
    return failures;
}

uint64_t one_op_unstaged(weft_comm *comm)
{
    pthread_mutex_lock(&comm->engine->lock);
    const uint64_t bytes = comm->fabric.unstaged_bytes;
    pthread_mutex_unlock(&comm->engine->lock);
    return bytes;
}

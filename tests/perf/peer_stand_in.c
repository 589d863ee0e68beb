/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/perf/peer_stand_in.c - a library for the peers' harness that is slow
 * and right, unless PEER_STAND_IN says how it is to be broken:
 *
 *     wrong   rank 0's last element is one too many in every call
 *     stale   a call does nothing
 *     dies    rank 1 fails in its second call
 *
 * Every operation is one exchange of all that everyone sends.
 */
#include "perf/peer/peer_library.h"

#include <stdlib.h>
#include <string.h>

static const char *version(void)
{
    return "stand-in <1>";
}

static int is_broken(const char *how)
{
    const char *asked = getenv("PEER_STAND_IN");
    return asked && strcmp(asked, how) == 0;
}

static void *room(size_t bytes)
{
    void *made = malloc(bytes + 1);
    if (!made) {
        wefti_peer_fail("out of memory");
    }
    return made;
}

/* [nranks][elems]: what each rank sends. NULL: the call is to do nothing. */
static float *exchange(const wefti_peer_call *it, const float *mine,
                       size_t elems)
{
    static int calls;
    if (++calls == 2 && it->rank == 1 && is_broken("dies")) {
        wefti_peer_fail("it was told to");
    }
    if (is_broken("stale")) {
        return NULL;
    }
    size_t bytes = elems * sizeof(float);
    float *all = room((size_t)it->nranks * bytes);
    wefti_peer_gather(mine, bytes, all);
    return all;
}

static void end(const wefti_peer_call *it, float *all, size_t elems)
{
    if (it->rank == 0 && elems > 0 && is_broken("wrong")) {
        it->recv[elems - 1] += 1;
    }
    free(all);
}

/* recv[i] = the sum over all ranks of element first + i. */
static void add(const wefti_peer_call *it, size_t send_elems, size_t first,
                size_t elems)
{
    float *all = exchange(it, it->send, send_elems);
    for (size_t i = 0; all && i < elems; i++) {
        it->recv[i] = 0;
        for (int rank = 0; rank < it->nranks; rank++) {
            it->recv[i] += all[(size_t)rank * send_elems + first + i];
        }
    }
    end(it, all, elems);
}

static void all_reduce(const wefti_peer_call *it)
{
    add(it, it->count, 0, it->count);
}

static void reduce(const wefti_peer_call *it)
{
    add(it, it->count, 0, it->rank == it->root ? it->count : 0);
}

static void reduce_scatter(const wefti_peer_call *it)
{
    add(it, it->count * (size_t)it->nranks, it->count * (size_t)it->rank,
        it->count);
}

/* Part `first` of rank `from` becomes part `to_part` of recv. */
static void take(const wefti_peer_call *it, const float *all, size_t send_elems,
                 int from, size_t first, size_t to_part)
{
    if (all) {
        memcpy(it->recv + to_part * it->count,
               all + (size_t)from * send_elems + first * it->count,
               it->count * sizeof(float));
    }
}

static void all_gather(const wefti_peer_call *it)
{
    float *all = exchange(it, it->send, it->count);
    for (int rank = 0; rank < it->nranks; rank++) {
        take(it, all, it->count, rank, 0, (size_t)rank);
    }
    end(it, all, it->count * (size_t)it->nranks);
}

static void gather(const wefti_peer_call *it)
{
    if (it->rank == it->root) {
        all_gather(it);
    } else {
        free(exchange(it, it->send, it->count));
    }
}

static void broadcast(const wefti_peer_call *it)
{
    float *all = exchange(it, it->recv, it->count);
    take(it, all, it->count, it->root, 0, 0);
    end(it, all, it->count);
}

static void alltoall(const wefti_peer_call *it)
{
    size_t send_elems = it->count * (size_t)it->nranks;
    float *all = exchange(it, it->send, send_elems);
    for (int rank = 0; rank < it->nranks; rank++) {
        take(it, all, send_elems, rank, (size_t)it->rank, (size_t)rank);
    }
    end(it, all, send_elems);
}

static void scatter(const wefti_peer_call *it)
{
    size_t send_elems = it->count * (size_t)it->nranks;
    float *all = exchange(it, it->send, send_elems);
    take(it, all, send_elems, it->root, (size_t)it->rank, 0);
    end(it, all, it->count);
}

static void sendrecv(const wefti_peer_call *it)
{
    float *all = exchange(it, it->send, it->count);
    take(it, all, it->count, it->from, 0, 0);
    end(it, all, it->count);
}

static void barrier(const wefti_peer_call *it)
{
    free(exchange(it, NULL, 0));
    char mine = 0;
    char *all = room((size_t)it->nranks);
    wefti_peer_gather(&mine, 1, all);
    free(all);
}

/* The parts that rank from has for the ranks before to. */
static size_t first_of(const size_t *row, int to)
{
    size_t first = 0;
    for (int rank = 0; rank < to; rank++) {
        first += row[rank];
    }
    return first;
}

static void alltoallv(const wefti_peer_call *it)
{
    size_t ranks = (size_t)it->nranks, most = 0;
    size_t *counts = room(ranks * ranks * sizeof(*counts));
    wefti_peer_gather(it->send_counts, ranks * sizeof(*counts), counts);
    for (size_t rank = 0; rank < ranks; rank++) {
        size_t elems = first_of(counts + rank * ranks, it->nranks);
        most = elems > most ? elems : most;
    }
    float *mine = room(most * sizeof(*mine));
    memset(mine, 0, most * sizeof(*mine));
    memcpy(mine, it->send,
           first_of(it->send_counts, it->nranks) * sizeof(float));
    float *all = exchange(it, mine, most);
    float *to = it->recv;
    for (int rank = 0; all && rank < it->nranks; rank++) {
        const size_t *row = counts + (size_t)rank * ranks;
        memcpy(to, all + (size_t)rank * most + first_of(row, it->rank),
               row[it->rank] * sizeof(float));
        to += row[it->rank];
    }
    end(it, all, (size_t)(to - it->recv));
    free(mine);
    free(counts);
}

const wefti_peer_library wefti_peer_library_used = {
    .version = version,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .reduce = reduce,
    .alltoall = alltoall,
    .alltoallv = alltoallv,
    .gather = gather,
    .scatter = scatter,
    .sendrecv = sendrecv,
    .barrier = barrier,
};

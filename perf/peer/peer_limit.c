/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_limit.c - no library, but what one could reach: every rank
 * reads the others' buffers where they are, and copies or adds each element
 * once. The start line has made the data visible, so most operations need no
 * further step; an all-reduce of more than 32 KiB is a reduce-scatter, a
 * barrier and an all-gather.
 */
#include "perf/peer/peer_library.h"

#include <string.h>

enum { DIRECT_BYTES = 32768 };

static const char *version(void)
{
    return "limit: one copy of shared buffers";
}

static void copy(float *to, const float *from, size_t elems)
{
    memcpy(to, from, elems * sizeof(float));
}

/* to[i] = the sum over all ranks of what they have at from[i]. */
static void add(const wefti_peer_call *it, float *restrict to,
                const float *from, size_t elems)
{
    const float *restrict first = wefti_peer_remote(from, 0);
    const float *restrict second = wefti_peer_remote(from, it->nranks > 1);
    for (size_t i = 0; i < elems; i++) {
        to[i] = it->nranks > 1 ? first[i] + second[i] : first[i];
    }
    for (int rank = 2; rank < it->nranks; rank++) {
        const float *restrict next = wefti_peer_remote(from, rank);
        for (size_t i = 0; i < elems; i++) {
            to[i] += next[i];
        }
    }
}

static void all_gather_from(const wefti_peer_call *it, const float *send,
                            size_t count)
{
    for (int step = 0; step < it->nranks; step++) {
        int rank = (it->rank + step) % it->nranks;
        copy(it->recv + (size_t)rank * count, wefti_peer_remote(send, rank),
             count);
    }
}

static void all_gather(const wefti_peer_call *it)
{
    all_gather_from(it, it->send, it->count);
}

static void reduce_scatter(const wefti_peer_call *it)
{
    add(it, it->recv, it->send + (size_t)it->rank * it->count, it->count);
}

static void all_reduce(const wefti_peer_call *it)
{
    if (it->count * sizeof(float) <= DIRECT_BYTES) {
        add(it, it->recv, it->send, it->count);
        return;
    }
    size_t ranks = (size_t)it->nranks, me = (size_t)it->rank;
    size_t begin = it->count * me / ranks;
    size_t end = it->count * (me + 1) / ranks;
    add(it, it->recv + begin, it->send + begin, end - begin);
    wefti_peer_wait();
    for (size_t step = 1; step < ranks; step++) {
        size_t from = (me + step) % ranks;
        begin = it->count * from / ranks;
        end = it->count * (from + 1) / ranks;
        copy(it->recv + begin, wefti_peer_remote(it->recv + begin, (int)from),
             end - begin);
    }
}

static void broadcast(const wefti_peer_call *it)
{
    if (it->rank != it->root) {
        copy(it->recv, wefti_peer_remote(it->recv, it->root), it->count);
    }
}

static void reduce(const wefti_peer_call *it)
{
    if (it->rank == it->root) {
        add(it, it->recv, it->send, it->count);
    }
}

static void alltoall(const wefti_peer_call *it)
{
    const float *mine = it->send + (size_t)it->rank * it->count;
    all_gather_from(it, mine, it->count);
}

static void gather(const wefti_peer_call *it)
{
    if (it->rank == it->root) {
        all_gather(it);
    }
}

static void scatter(const wefti_peer_call *it)
{
    const float *mine = it->send + (size_t)it->rank * it->count;
    copy(it->recv, wefti_peer_remote(mine, it->root), it->count);
}

static void sendrecv(const wefti_peer_call *it)
{
    copy(it->recv, wefti_peer_remote(it->send, it->from), it->count);
}

const wefti_peer_library wefti_peer_library_used = {
    .version = version,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .reduce = reduce,
    .alltoall = alltoall,
    .gather = gather,
    .scatter = scatter,
    .sendrecv = sendrecv,
    .shares_buffers = 1,
};

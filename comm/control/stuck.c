/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/stuck.c - one record per rank, in its page of shared memory.
 *
 * Whoever waits renews it every 20 ms; one that is not renewed counts no more,
 * so nothing is taken back when a wait ends, and the path of an operation that
 * does not wait is as short as it was.
 */
#include "comm/control/stuck.h"

#include "base/clock.h"

#include <stdio.h>

enum { FRESH_NS = 400000000 };

static wefti_stuck *record_of(weft_comm *comm, int rank)
{
    return &wefti_shared_get_page(&comm->fabric.shared, rank)->stuck;
}

static bool is_fresh(const wefti_stuck *record, int64_t now_ns)
{
    int64_t seen_ns = atomic_load(&record->seen_ns);
    return seen_ns && now_ns - seen_ns < FRESH_NS;
}

void wefti_stuck_note(weft_comm *comm, const wefti_op *op, int64_t now_ns)
{
    wefti_stuck *own = record_of(comm, comm->rank);
    uint64_t way = op->desc.collective == WEFT_COLLECTIVE_RECV;
    uint64_t pair = (uint64_t)op->desc.root << 1 | way;
    bool same = atomic_load(&own->number) == op->number &&
                atomic_load(&own->pair) == pair;
    if (!same && is_fresh(own, now_ns) &&
        atomic_load(&own->since_ns) < op->moved_ns) {
        return; /* another has waited for longer */
    }
    atomic_store(&own->number, op->number);
    atomic_store(&own->pair, pair);
    atomic_store(&own->count, op->desc.count);
    atomic_store(&own->dtype, (uint64_t)op->desc.dtype);
    atomic_store(&own->since_ns, op->moved_ns);
    atomic_store(&own->seen_ns, now_ns);
}

int wefti_stuck_get(weft_comm *comm, int rank, char *text, size_t text_bytes,
                    double *waited_s)
{
    const wefti_stuck *record = record_of(comm, rank);
    const int64_t now_ns = wefti_clock_coarse_ns();
    if (!is_fresh(record, now_ns)) {
        return -1;
    }
    uint64_t pair = atomic_load(&record->pair);
    int peer = (int)(pair >> 1);
    if (text) {
        snprintf(text, text_bytes, "%s #%llu %s rank %d of %llu %s",
                 pair & 1 ? "recv" : "send",
                 (unsigned long long)atomic_load(&record->number),
                 pair & 1 ? "from" : "to", peer,
                 (unsigned long long)atomic_load(&record->count),
                 weft_dtype_text((weft_dtype)atomic_load(&record->dtype)));
        *waited_s = (double)(now_ns - atomic_load(&record->since_ns)) / 1e9;
    }
    return peer < comm->nranks ? peer : -1;
}

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

static wefti_stuck *record_of(weft_comm *comm, int rank)
{
    return &wefti_shared_get_page(&comm->fabric.shared, rank)->stuck;
}

static bool is_fresh(const wefti_stuck *record, int64_t now_ns)
{
    int64_t seen_ns = atomic_load(&record->seen_ns);
    return seen_ns && now_ns - seen_ns < WEFTI_FRESH_NS;
}

/* What a rank waits in, as its record has it. */
typedef struct wait {
    uint64_t number, pair, count, dtype;
    int64_t since_ns;
} wait;

static void note(weft_comm *comm, const wait *found, int64_t now_ns)
{
    wefti_stuck *own = record_of(comm, comm->rank);
    bool same = atomic_load(&own->number) == found->number &&
                atomic_load(&own->pair) == found->pair &&
                atomic_load(&own->dtype) == found->dtype;
    if (!same && is_fresh(own, now_ns) &&
        atomic_load(&own->since_ns) < found->since_ns) {
        return; /* another has waited for longer */
    }
    atomic_store(&own->number, found->number);
    atomic_store(&own->pair, found->pair);
    atomic_store(&own->count, found->count);
    atomic_store(&own->dtype, found->dtype);
    atomic_store(&own->since_ns, found->since_ns);
    atomic_store(&own->seen_ns, now_ns);
}

void wefti_stuck_note(weft_comm *comm, const wefti_op *op, int64_t now_ns)
{
    uint64_t way = op->desc.collective == WEFT_COLLECTIVE_RECV;
    wait found = {.number = op->number,
                  .pair = (uint64_t)op->desc.root << 1 | way,
                  .count = op->desc.count,
                  .dtype = (uint64_t)op->desc.dtype,
                  .since_ns = op->moved_ns};
    note(comm, &found, now_ns);
}

void wefti_stuck_note_signal(weft_comm *comm, int peer, int slot,
                             uint64_t value, int64_t since_ns, int64_t now_ns)
{
    int whom = peer == WEFT_MEM_ANY_PEER ? comm->rank : peer;
    wait found = {.number = (uint64_t)slot,
                  .pair = (uint64_t)whom << 1 | (whom == peer),
                  .count = value,
                  .dtype = WEFTI_STUCK_SIGNAL,
                  .since_ns = since_ns};
    note(comm, &found, now_ns);
}

static void describe_signal(const wefti_stuck *record, uint64_t pair,
                            char *text, size_t text_bytes)
{
    char who[24] = "any rank";
    if (pair & 1) {
        snprintf(who, sizeof(who), "rank %d", (int)(pair >> 1));
    }
    snprintf(text, text_bytes, "signal slot %llu from %s to come to %llu",
             (unsigned long long)atomic_load(&record->number), who,
             (unsigned long long)atomic_load(&record->count));
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
    uint64_t dtype = atomic_load(&record->dtype);
    if (text && dtype == WEFTI_STUCK_SIGNAL) {
        describe_signal(record, pair, text, text_bytes);
    } else if (text) {
        snprintf(text, text_bytes, "%s #%llu %s rank %d of %llu %s",
                 pair & 1 ? "recv" : "send",
                 (unsigned long long)atomic_load(&record->number),
                 pair & 1 ? "from" : "to", peer,
                 (unsigned long long)atomic_load(&record->count),
                 weft_dtype_text((weft_dtype)dtype));
    }
    if (text) {
        *waited_s = (double)(now_ns - atomic_load(&record->since_ns)) / 1e9;
    }
    return peer < comm->nranks ? peer : -1;
}

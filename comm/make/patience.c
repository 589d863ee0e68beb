/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/patience.c - how long, and what ends it sooner.
 */
#include "comm/make/patience.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/relax.h"
#include "comm/control/fault.h"
#include "comm/engine/engine.h"
#include "comm/post/consensus.h"
#include "comm/watch/peer_life.h"

enum { GRACE_S = 10 /* for what has ended on another rank already */ };

/* A rank that will never come; -1: none. */
static int find_lost(weft_comm *comm)
{
    for (int peer = 0; comm->engine->members && peer < comm->nranks; peer++) {
        if (peer != comm->rank && wefti_peer_lost(comm, peer)) {
            return peer;
        }
        wefti_peer_doubt(comm, peer, comm->timeout_ns);
    }
    return -1;
}

wefti_patience wefti_patience_begin(weft_comm *comm, const char *what)
{
    return (wefti_patience){.comm = comm,
                            .what = what,
                            .limit_ns = comm->timeout_ns,
                            .until_ns = wefti_clock_ns() + comm->timeout_ns};
}

/* A rank that is where ranks conclude already. */
static bool has_one_concluded(weft_comm *comm)
{
    bool one = false;
    pthread_mutex_lock(&comm->engine->lock);
    (void)wefti_engine_push(comm->engine); /* what other hosts send */
    const uint64_t next = comm->number + 1;
    wefti_engine_unlock(comm->engine);
    for (int peer = 0; peer < comm->nranks && !one; peer++) {
        const wefti_entry *entry =
            wefti_shared_get_entry(&comm->fabric.shared, peer, next);
        one = atomic_load(&entry->number) == next;
    }
    return one;
}

weft_status wefti_patience_go_on(wefti_patience *own)
{
    weft_comm *comm = own->comm;
    const int64_t grace_ns = INT64_C(1000000000) * GRACE_S;
    const int lost = find_lost(comm);
    if (lost >= 0) {
        return wefti_error(WEFT_ERR_PEER, "rank %d was lost", lost);
    }
    if (wefti_fault_is_published(comm)) {
        return wefti_error(WEFT_ERR_PEER, "\"%s\" has failed", comm->name);
    }
    if (!own->concluded && has_one_concluded(comm)) {
        own->concluded = true;
        own->limit_ns =
            comm->timeout_ns / 4 < grace_ns ? comm->timeout_ns / 4 : grace_ns;
        own->until_ns = wefti_clock_ns() + own->limit_ns;
    }
    if (wefti_clock_ns() > own->until_ns) {
        return wefti_error(WEFT_ERR_TIMEOUT,
                           "%s has not ended within %lld ms%s", own->what,
                           (long long)(own->limit_ns / 1000000),
                           own->concluded ? " after another rank's" : "");
    }
    wefti_relax_longer(&own->pause_ns);
    return WEFT_OK;
}

weft_status wefti_patience_await(weft_comm *comm, weft_stream *stream,
                                 weft_event *event, const char *what)
{
    wefti_patience waits = wefti_patience_begin(comm, what);
    weft_status status = weft_event_post(event, stream);
    while (status == WEFT_OK &&
           (status = weft_event_test(event)) == WEFT_INPROGRESS) {
        status = wefti_patience_go_on(&waits);
    }
    return status;
}

weft_status wefti_patience_put(const weft_comm *comm, int32_t *data,
                               int32_t step)
{
    int32_t own[WEFTI_TRIED_ELEMS];
    for (int i = 0; i < WEFTI_TRIED_ELEMS; i++) {
        own[i] = step * (i + 1);
    }
    return weft_device_copy(comm->device, data, own, sizeof(own), NULL);
}

weft_status wefti_patience_compare(const weft_comm *comm, const int32_t *data,
                                   int32_t step, const char *what)
{
    int32_t got[WEFTI_TRIED_ELEMS] = {0};
    weft_status status =
        weft_device_copy(comm->device, got, data, sizeof(got), NULL);
    for (int i = 0; i < WEFTI_TRIED_ELEMS && status == WEFT_OK; i++) {
        if (got[i] != step * (i + 1)) {
            status =
                wefti_error(WEFT_ERR_SYSTEM, "%s gave %d where %d is right",
                            what, (int)got[i], (int)step * (i + 1));
        }
    }
    return status;
}

weft_status wefti_patience_conclude(weft_comm *comm, const char *what,
                                    weft_status built)
{
    wefti_consensus all = {
        .comm = comm, .purpose = WEFTI_PURPOSE_ROUTE, .what = what};
    weft_status status = wefti_consensus_conclude(&all, built);
    if (status != WEFT_ERR_TIMEOUT || wefti_fault_is_published(comm)) {
        return status;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        const wefti_verdict *theirs = wefti_consensus_get(&all, rank);
        if (theirs->status != WEFT_OK && theirs->status != WEFT_ERR_TIMEOUT) {
            return wefti_error((weft_status)theirs->status,
                               "rank %d could not %s: %.*s", rank, what,
                               (int)sizeof(theirs->text) - 1, theirs->text);
        }
    }
    return status;
}

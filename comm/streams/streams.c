/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/streams/streams.c - making it, and letting streams go after a fault.
 */
#include "comm/streams/streams.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>

enum {
    AREA_BYTES = 4 << 20, /* unless WEFT_CHUNK_BYTES says less */
    AREA_LEAST_BYTES = 4096
};

static const int64_t stop_ns = 500000000; /* for peers to be told */

static wefti_rank_page *page_of(const wefti_streams *streams, int rank)
{
    return wefti_shared_get_page(&streams->comm->fabric.shared, rank);
}

weft_status wefti_streams_create(weft_comm *comm, wefti_streams **streams_out)
{
    const size_t asked = comm->tuning.chunk_bytes;
    wefti_streams *streams = calloc(1, sizeof(*streams));
    wefti_streams_peer *peers =
        calloc((size_t)comm->nranks, sizeof(*streams->peers));
    if (!streams || !peers) {
        free(streams);
        free(peers);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           comm->nranks);
    }
    streams->comm = comm;
    streams->peers = peers;
    streams->turn = 1;
    streams->area_bytes = !asked                     ? AREA_BYTES
                          : asked > AREA_LEAST_BYTES ? asked / 64 * 64
                                                     : AREA_LEAST_BYTES;
    pthread_mutex_init(&streams->calls, NULL);
    *streams_out = streams;
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .sm_budget = comm->sm_budget};
    void *staging = NULL;
    weft_status status =
        weft_stream_create_as(comm->device, &config, &streams->stream);
    if (status == WEFT_OK) {
        status =
            weft_gate_create(comm->device, WEFTI_STREAM_AREAS, &streams->ended);
    }
    if (status == WEFT_OK) {
        status = weft_device_alloc(
            comm->device, WEFTI_WORK_AREAS * streams->area_bytes, &staging);
    }
    streams->staging = staging;
    return status;
}

weft_status wefti_streams_meet(wefti_streams *streams, int peer)
{
    const weft_comm *comm = streams->comm;
    const wefti_shared *shared = &comm->fabric.shared;
    wefti_streams_peer *own = &streams->peers[peer];
    _Atomic uint64_t *words = wefti_shared_get_marks(shared, peer, comm->rank);
    for (size_t area = 0; area < WEFTI_GRAPH_AREAS; area++) {
        /* The peer stores there only behind its first launch. */
        atomic_store(&words[wefti_streams_flag(area, WEFTI_MARK_READ)], 1);
    }
    weft_status status = wefti_gate_create_at(comm->device, words,
                                              WEFTI_WORK_WORDS, &own->comes);
    return status == WEFT_OK
               ? wefti_gate_create_at(
                     comm->device,
                     wefti_shared_get_marks(shared, comm->rank, peer),
                     WEFTI_WORK_WORDS, &own->goes)
               : status;
}

bool wefti_streams_launch_awaits(const wefti_streams *streams, int peer,
                                 bool *begun_out)
{
    const wefti_streams_peer *own = &streams->peers[peer];
    bool awaits = false;
    *begun_out = true;
    for (size_t area = 0; area < WEFTI_GRAPH_AREAS && !awaits; area++) {
        const size_t read = wefti_streams_flag(area, WEFTI_MARK_READ);
        awaits = !wefti_gate_is_flagged(own->comes, read);
        *begun_out = !awaits || !wefti_gate_is_flagged(own->goes, read);
    }
    return awaits;
}

void wefti_streams_watch(wefti_streams *streams)
{
    if (!streams->launches.watched && !streams->stopping) {
        streams->launches.watched = true;
        atomic_fetch_add(&streams->comm->engine->pending, 1);
    }
}

void wefti_streams_unwatch(wefti_streams *streams)
{
    if (streams->launches.watched) {
        streams->launches.watched = false;
        atomic_fetch_sub(&streams->comm->engine->pending, 1);
    }
}

void wefti_streams_count_done(wefti_streams *streams)
{
    atomic_fetch_add(&page_of(streams, streams->comm->rank)->streams_done, 1);
}

bool wefti_streams_own(const wefti_streams *streams, const weft_gate *gate)
{
    int peer = 0;
    while (streams && peer < streams->comm->nranks &&
           streams->peers[peer].comes != gate) {
        peer++;
    }
    return streams && peer < streams->comm->nranks;
}

/* ---- after a fault ------------------------------------------------------- */

/* Whether a peer may still take what this rank's streams leave for good. */
static bool is_engaged(const wefti_streams *streams, int peer)
{
    const weft_comm *comm = streams->comm;
    wefti_rank_page *page = page_of(streams, peer);
    return peer != comm->rank && !comm->peers[peer].dead &&
           !atomic_load(&page->streams_stopped) &&
           atomic_load(&page->left) == WEFTI_LEAVE_NONE &&
           atomic_load(&page->streams_posted) !=
               atomic_load(&page->streams_done);
}

void wefti_streams_stop(wefti_streams *streams)
{
    weft_comm *comm = streams->comm;
    if (streams->stopping) {
        return;
    }
    streams->stopping = true;
    streams->stop_ns = wefti_clock_ns() + stop_ns;
    atomic_store(&page_of(streams, comm->rank)->streams_stopped,
                 WEFTI_STREAMS_HALTED);
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_doorbell_ring(comm->bells[peer]);
    }
}

static bool may_let_go(const wefti_streams *streams)
{
    bool engaged = false;
    for (int peer = 0; !engaged && peer < streams->comm->nranks; peer++) {
        engaged = is_engaged(streams, peer);
    }
    return !engaged || wefti_clock_ns() >= streams->stop_ns;
}

/* Also those that a peer's stream has stored into since. */
static void fail_marks(wefti_streams *streams)
{
    const weft_comm *comm = streams->comm;
    const bool failed = comm->failed != WEFT_OK;
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (streams->peers[peer].comes) {
            wefti_gate_fail(streams->peers[peer].comes,
                            failed ? comm->failed : WEFT_ERR_ABORTED,
                            failed ? comm->fault.text
                                   : "the route streams was given up");
        }
    }
}

bool wefti_streams_are_right(const wefti_streams *streams)
{
    bool right = true;
    for (int rank = 0; right && rank < streams->comm->nranks; rank++) {
        right = atomic_load(&page_of(streams, rank)->streams_stopped) !=
                WEFTI_STREAMS_LET_GO;
    }
    return right;
}

bool wefti_streams_have_ended(const wefti_streams *streams)
{
    bool ended = atomic_load(&streams->queueing) == 0;
    for (size_t area = 0; ended && area < WEFTI_STREAM_AREAS; area++) {
        const uint64_t last = atomic_load(&streams->queued[area]);
        ended = last == 0 || wefti_gate_reached(streams->ended, area, last);
    }
    return ended;
}

bool wefti_streams_are_over(wefti_streams *streams)
{
    if (!streams) {
        return true;
    }
    if (!streams->let_go && !may_let_go(streams)) {
        return false;
    }
    if (!streams->let_go) {
        streams->let_go = true;
        atomic_store(&page_of(streams, streams->comm->rank)->streams_stopped,
                     WEFTI_STREAMS_LET_GO);
    }
    fail_marks(streams);
    return wefti_streams_have_ended(streams);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/streams_end.c - in this order: this rank's streams have passed its
 * operations, the others have read its staging, nobody reaches another's any
 * more.
 */
#include "comm/make/streams_end.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/relax.h"
#include "comm/watch/peer_life.h"
#include "device/cuda.h"
#include "device/holds.h"

#include <sched.h>
#include <stdlib.h>

static const int64_t end_ns = INT64_C(10000000000);

/* Whether a peer's streams have read all that this rank's have staged. */
static bool has_read(const wefti_streams *streams, int peer)
{
    bool read = true;
    for (size_t area = 0; read && area < WEFTI_STREAM_AREAS; area++) {
        const uint64_t last = atomic_load(&streams->queued[area]);
        read = last == 0 ||
               wefti_gate_reached(streams->peers[peer].comes,
                                  area * WEFTI_MARKS + WEFTI_MARK_READ, last);
    }
    /* Launches are over on this rank; what they have staged, is it read? */
    bool begun;
    return read && !wefti_streams_launch_awaits(streams, peer, &begun);
}

/* Whether it reaches this rank's staging no more. */
static bool has_closed(const wefti_streams *streams, int peer)
{
    const wefti_rank_page *page =
        wefti_shared_get_page(&streams->comm->fabric.shared, peer);
    return atomic_load(&page->streams_closed) != 0;
}

static bool have_all(wefti_streams *streams,
                     bool (*has)(const wefti_streams *streams, int peer))
{
    weft_comm *comm = streams->comm;
    bool all = true;
    for (int peer = 0; all && peer < comm->nranks; peer++) {
        all = peer == comm->rank || !streams->peers[peer].comes ||
              has(streams, peer) ||
              (comm->engine->members && wefti_peer_has_died(comm, peer));
    }
    return all;
}

static bool have_ended(wefti_streams *streams)
{
    wefti_engine *engine = streams->comm->engine;
    pthread_mutex_lock(&engine->lock);
    const bool ended = streams->stopping ? wefti_streams_are_over(streams)
                                         : wefti_streams_have_ended(streams);
    pthread_mutex_unlock(&engine->lock);
    return ended;
}

/* Until all peers have, or, has NULL, this rank's streams have ended. */
static bool await(wefti_streams *streams,
                  bool (*has)(const wefti_streams *streams, int peer),
                  int64_t until_ns)
{
    int64_t pause_ns = 0;
    bool there;
    while (!(there = has ? have_all(streams, has) : have_ended(streams)) &&
           wefti_clock_ns() < until_ns) {
        wefti_device_tend(streams->comm->device);
        wefti_relax_longer(&pause_ns);
    }
    return there;
}

/* Streams are seen to be past the marks a moment after they are. */
static void drop_marks(wefti_streams *streams)
{
    for (int peer = 0; peer < streams->comm->nranks; peer++) {
        weft_gate *const both[] = {streams->peers[peer].comes,
                                   streams->peers[peer].goes};
        for (int i = 0; i < 2; i++) {
            while (both[i] && wefti_gate_is_held(both[i])) {
                wefti_device_tend(streams->comm->device);
                sched_yield();
            }
            weft_gate_destroy(both[i]);
        }
    }
}

static void close_imports(wefti_streams *streams)
{
    weft_comm *comm = streams->comm;
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (streams->peers[peer].imported) {
            weft_device_unimport(comm->device, streams->peers[peer].staging);
        }
    }
    atomic_store(&wefti_shared_get_page(&comm->fabric.shared, comm->rank)
                      ->streams_closed,
                 1);
}

void wefti_streams_end(wefti_streams *streams)
{
    if (!streams) {
        return;
    }
    weft_comm *comm = streams->comm;
    const int64_t until_ns = wefti_clock_ns() + end_ns;
    if (!await(streams, NULL, until_ns)) {
        wefti_log(WEFTI_LOG_ERROR, comm->rank,
                  "\"%s\": a stream has not come past its operations within "
                  "%lld ms: what it uses is lost",
                  comm->name, (long long)(end_ns / 1000000));
        /* Its marks with it, which the stream may still come to. */
        (void)wefti_mapping_retain(comm->mapping);
        (void)!wefti_mapping_pin(comm->mapping, comm->device);
        return;
    }
    /* After a fault nothing is right that peers still read. */
    bool over = streams->stopping || await(streams, has_read, until_ns);
    drop_marks(streams);
    close_imports(streams);
    over = await(streams, has_closed, until_ns) && over;
    weft_stream_destroy(streams->stream);
    weft_gate_destroy(streams->ended);
    if (streams->has_graphs) {
        wefti_cuda_note_graphs(comm->device, false);
    }
    if (over) {
        weft_device_free(comm->device, streams->staging);
    } else {
        wefti_log(
            WEFTI_LOG_WARN, comm->rank,
            "\"%s\": other ranks have not left it within %lld ms: staging "
            "in device memory is lost",
            comm->name, (long long)(end_ns / 1000000));
    }
    pthread_mutex_destroy(&streams->calls);
    free(streams->peers);
    free(streams);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/streams/streams.h - what the route streams needs of a communicator: each
 * rank's staging in its device's memory, the peers' as this rank's device
 * reaches it, and the marks by which streams of different ranks wait for each
 * other (comm/pattern/stream_work.h).
 *
 * A mark is a word in the shared memory that one rank's streams store into and
 * one other's wait at. Turns of all operations are numbered in the order of
 * posting, the same on all ranks; turn t uses area t % AREAS, and its marks
 * hold t, so that they rise however the streams stand to each other.
 *
 * Operations that are captured into graphs have areas of their own, behind the
 * others, and flags in place of marks (device/device.h), which hold as often as
 * the graphs are launched.
 *
 * All ranks have this, or none (comm/make/route_join.h).
 *
 * When the communicator fails. Streams that wait at marks are let go by making
 * these fail; what they then copy is rubbish, and peers' streams would take it
 * for right. So each rank first makes the ends of its own operations fail (the
 * closed gates of tickets), says so in its page (streams_stopped), and lets its
 * streams go when all others that have operations out have said the same, or
 * after half a second: who waits for a stream is told of the fault in any case.
 * A launch of a graph has no such end. It is right if comm has no fault when it
 * is over: the fault is published before the first stream is let go.
 */
#ifndef COMM_STREAMS_STREAMS_H
#define COMM_STREAMS_STREAMS_H

#include "comm/core/core.h"
#include "comm/pattern/stream_work.h"

/*
 * A rank's way to another's staging, or its own.
 *
 * imported   it is another process's, and to be given back
 * comes      marks that it makes for this rank; goes: this rank for it
 */
typedef struct wefti_streams_peer {
    unsigned char *staging;
    bool imported;
    weft_gate *comes, *goes;
} wefti_streams_peer;

/*
 * What the watch of launches keeps (comm/watch/launches.c); the engine's lock.
 *
 * watched    there is something to watch, and the engine looks for it
 * suspect    rank + 1 that a look has found lost; 0: none
 * late       ranks that were late at the last look, since when, and said so
 */
typedef struct wefti_launches {
    bool watched, warned;
    int suspect;
    int64_t looked_ns, since_ns;
    uint64_t late;
} wefti_launches;

/*
 * reduces    all ranks' devices run kernels
 * calls      held by the thread that queues an operation; guards turn and
 *            captured
 * queueing   threads that are at it
 * ended      of this process alone: what the last mark of each area's turn
 *            stores, never failed but by the device
 * queued     [area] last turn whose end has been queued; stored behind that,
 *            loaded before ended is looked at
 * stopping, let_go   guarded by the engine's lock
 */
typedef struct wefti_streams {
    weft_comm *comm;
    bool reduces;
    size_t area_bytes;
    unsigned char *staging;    /* this rank's own */
    wefti_streams_peer *peers; /* [nranks] */
    weft_gate *ended;          /* [AREAS] */
    weft_stream *stream;       /* of posts that have none */
    pthread_mutex_t calls;
    uint64_t turn;     /* of the next */
    uint64_t captured; /* turns, all in all */
    bool has_graphs;   /* from the first capture on */
    _Atomic int queueing;
    _Atomic uint64_t queued[WEFTI_STREAM_AREAS];
    bool stopping, let_go;
    int64_t stop_ns; /* when streams are let go at the latest */
    wefti_launches launches;
} wefti_streams;

/* Without peers yet: staging of its own, and what is this process's alone.
 * Returns OK | ERR_NO_MEMORY | ERR_SYSTEM; end it after all. */
WEFT_NODISCARD weft_status wefti_streams_create(weft_comm *comm,
                                                wefti_streams **streams_out);

/* The marks between this rank and peer, whose staging is known. Returns as
 * weft_gate_create. */
WEFT_NODISCARD weft_status wefti_streams_meet(wefti_streams *streams, int peer);

/*
 * wefti_streams_carry - queue all turns of an operation of this communicator's.
 *
 * Returns     OK, also where the communicator has a fault already |
 *             ERR_NO_MEMORY, ERR_SYSTEM: what the stream refuses.
 */
WEFT_NODISCARD weft_status wefti_streams_carry(wefti_streams *streams,
                                               const weft_op *op,
                                               weft_stream *stream);

/*
 * wefti_streams_capture - the same for a stream that is being captured. What is
 * refused leaves a graph that lacks a part of it.
 *
 * Returns     as wefti_streams_carry.
 */
WEFT_NODISCARD weft_status wefti_streams_capture(wefti_streams *streams,
                                                 const weft_op *op,
                                                 weft_stream *stream);

/* Where flags lie in the gates of peers: of an area of graphs. */
static inline size_t wefti_streams_flag(size_t area, wefti_work_mark mark)
{
    return (WEFTI_STREAM_AREAS + area) * WEFTI_MARKS + mark;
}

/* Whether a launch has begun a turn that peer has not ended, and whether peer
 * has not begun it either. */
bool wefti_streams_launch_awaits(const wefti_streams *streams, int peer,
                                 bool *begun_out);

/* There are graphs now, and there are none any more, or nothing waits in them:
 * the engine looks at launches between. Lock held. */
void wefti_streams_watch(wefti_streams *streams);
void wefti_streams_unwatch(wefti_streams *streams);

/* One that was posted has ended on this rank. Lock held. */
void wefti_streams_count_done(wefti_streams *streams);

/* The communicator has failed, and its closed gates too: once. Lock held. */
void wefti_streams_stop(wefti_streams *streams);

/* After a stop: lets streams go when it is time, and whether none has anything
 * of the route's left; NULL: true. Lock held. */
bool wefti_streams_are_over(wefti_streams *streams);

/* Whether all that this rank's streams have been seen to pass is right: no rank
 * has let its streams go. Ask after they have passed. */
bool wefti_streams_are_right(const wefti_streams *streams);

/* Whether gate is one of its marks; of NULL none is. */
bool wefti_streams_own(const wefti_streams *streams, const weft_gate *gate);

/* Whether all that has been queued has run. */
bool wefti_streams_have_ended(const wefti_streams *streams);

#endif

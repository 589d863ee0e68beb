/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/host_event.c - events of the host's streams: a gate whose epochs count
 * the posts.
 *
 * Posts of one event may be under way on several streams and end in any order,
 * while a gate's word says "all up to here". So each post takes a chunk of the
 * gate whose last post has happened; a wait names the chunk and epoch of the
 * post that was the latest when it was made. Where all chunks are under way, a
 * post first waits, in its stream, for the oldest.
 */
#include "base/error.h"
#include "device/host_stream.h"
#include "device/object.h"

#include <stdlib.h>

enum { POSTS_MOST = 8 }; /* under way at once without waiting for each other */

typedef struct host_event {
    weft_event base; /* its lock guards what follows but times */
    weft_gate *gate;
    uint64_t epochs[POSTS_MOST]; /* last posted, by chunk; 0: never */
    uint64_t posts;              /* epoch of the latest post that queued */
    size_t latest;               /* its chunk */
    _Atomic int64_t times[POSTS_MOST]; /* stored before the chunk is raised */
} host_event;

static host_event *of(weft_event *event)
{
    return (host_event *)event;
}

weft_status wefti_host_event_create(weft_device *device, weft_event **out)
{
    host_event *event = calloc(1, sizeof(*event));
    if (!event) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an event");
    }
    weft_status status = weft_gate_create(device, POSTS_MOST, &event->gate);
    if (status < 0) {
        free(event);
        return status;
    }
    *out = &event->base;
    return WEFT_OK;
}

void wefti_host_event_destroy(weft_event *event)
{
    weft_gate_destroy(of(event)->gate);
    free(event);
}

/* A chunk whose last post has happened, else the one with the oldest post. */
static size_t pick_chunk(const host_event *event)
{
    size_t oldest = 0;
    for (size_t chunk = 0; chunk < POSTS_MOST; chunk++) {
        if (wefti_gate_reached(event->gate, chunk, event->epochs[chunk])) {
            return chunk;
        }
        if (event->epochs[chunk] < event->epochs[oldest]) {
            oldest = chunk;
        }
    }
    return oldest;
}

static weft_status post_locked(host_event *event, weft_stream *stream)
{
    size_t chunk = pick_chunk(event);
    uint64_t before = event->epochs[chunk];
    weft_status status = WEFT_OK;
    if (!wefti_gate_reached(event->gate, chunk, before)) {
        status = weft_gate_wait(event->gate, chunk, before, stream);
    }
    if (status == WEFT_OK) {
        status = wefti_host_stream_signal_timed(
            stream, event->gate, chunk, event->posts + 1, &event->times[chunk]);
    }
    if (status == WEFT_OK) {
        event->epochs[chunk] = ++event->posts;
        event->latest = chunk;
    }
    return status;
}

weft_status wefti_host_event_post(weft_event *base, weft_stream *stream)
{
    pthread_mutex_lock(&base->lock);
    weft_status status = post_locked(of(base), stream);
    pthread_mutex_unlock(&base->lock);
    return status;
}

/* Which epoch of which chunk the latest post is. */
static uint64_t get_latest(host_event *event, size_t *chunk_out)
{
    pthread_mutex_lock(&event->base.lock);
    *chunk_out = event->latest;
    uint64_t epoch = event->epochs[event->latest];
    pthread_mutex_unlock(&event->base.lock);
    return epoch;
}

weft_status wefti_host_event_test(weft_event *event)
{
    size_t chunk;
    uint64_t epoch = get_latest(of(event), &chunk);
    return weft_gate_test(of(event)->gate, chunk, epoch);
}

weft_status wefti_host_event_wait(weft_event *event, weft_stream *stream)
{
    size_t chunk;
    uint64_t epoch = get_latest(of(event), &chunk);
    return weft_gate_wait(of(event)->gate, chunk, epoch, stream);
}

weft_status wefti_host_event_time(weft_event *event, int64_t *ns_out)
{
    size_t chunk;
    uint64_t epoch = get_latest(of(event), &chunk);
    weft_status status = weft_gate_test(of(event)->gate, chunk, epoch);
    if (status == WEFT_OK) {
        *ns_out = atomic_load(&of(event)->times[chunk]);
    }
    return status;
}

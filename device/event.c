/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/event.c - events: a gate whose epochs count the posts.
 *
 * Posts of one event may be under way on several streams and end in any order,
 * while a gate's word says "all up to here". So each post takes a chunk of the
 * gate whose last post has happened; a wait names the chunk and epoch of the
 * post that was the latest when it was made. Where all chunks are under way, a
 * post first waits, in its stream, for the oldest.
 */
#include "base/error.h"
#include "device/object.h"

#include <stdlib.h>

enum { POSTS_MOST = 8 }; /* under way at once without waiting for each other */

struct weft_event {
    weft_gate *gate;
    pthread_mutex_t lock;        /* guards what follows */
    uint64_t epochs[POSTS_MOST]; /* last posted, by chunk; 0: never */
    uint64_t posts;              /* epoch of the latest post that queued */
    size_t latest;               /* its chunk */
    bool pending;                /* the latest post took a chunk */
};

weft_status weft_event_create(weft_device *device, weft_event **event_out)
{
    if (!device || !event_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            device ? "event_out" : "device");
    }
    weft_event *event = calloc(1, sizeof(*event));
    if (!event) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an event");
    }
    weft_status status = weft_gate_create(device, POSTS_MOST, &event->gate);
    if (status < 0) {
        free(event);
        return status;
    }
    pthread_mutex_init(&event->lock, NULL);
    *event_out = event;
    return WEFT_OK;
}

void weft_event_destroy(weft_event *event)
{
    if (event) {
        weft_gate_destroy(event->gate);
        pthread_mutex_destroy(&event->lock);
        free(event);
    }
}

/* A chunk whose last post has happened, else the one with the oldest post. */
static size_t pick_chunk(const weft_event *event)
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

static weft_status post_locked(weft_event *event, weft_stream *stream)
{
    size_t chunk = pick_chunk(event);
    uint64_t before = event->epochs[chunk];
    weft_status status = WEFT_OK;
    if (!wefti_gate_reached(event->gate, chunk, before)) {
        status = weft_gate_wait(event->gate, chunk, before, stream);
    }
    if (status == WEFT_OK) {
        status = weft_gate_signal(event->gate, chunk, event->posts + 1, stream);
    }
    if (status == WEFT_OK) {
        event->epochs[chunk] = ++event->posts;
        event->latest = chunk;
        event->pending = true;
    }
    return status;
}

weft_status weft_event_post(weft_event *event, weft_stream *stream)
{
    if (!event) {
        return wefti_error(WEFT_ERR_INVALID,
                           "event is NULL: allowed is an object");
    }
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&event->lock);
    if (stream) {
        status = post_locked(event, stream);
    } else {
        event->pending = false;
    }
    pthread_mutex_unlock(&event->lock);
    return status;
}

/* Which epoch of which chunk the latest post is; false: it has happened. */
static bool get_latest(weft_event *event, size_t *chunk_out,
                       uint64_t *epoch_out)
{
    pthread_mutex_lock(&event->lock);
    bool pending = event->pending;
    *chunk_out = event->latest;
    *epoch_out = event->epochs[event->latest];
    pthread_mutex_unlock(&event->lock);
    return pending;
}

weft_status weft_event_test(weft_event *event)
{
    size_t chunk;
    uint64_t epoch;
    if (!event) {
        return wefti_error(WEFT_ERR_INVALID,
                           "event is NULL: allowed is an object");
    }
    return get_latest(event, &chunk, &epoch)
               ? weft_gate_test(event->gate, chunk, epoch)
               : WEFT_OK;
}

weft_status weft_event_wait(weft_event *event, weft_stream *stream)
{
    size_t chunk;
    uint64_t epoch;
    if (!event) {
        return wefti_error(WEFT_ERR_INVALID,
                           "event is NULL: allowed is an object");
    }
    return get_latest(event, &chunk, &epoch)
               ? weft_gate_wait(event->gate, chunk, epoch, stream)
               : WEFT_OK;
}

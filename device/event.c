/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/event.c - the public face of events: checks, posts without a stream,
 * then the table.
 */
#include "base/clock.h"
#include "base/error.h"
#include "device/holds.h"
#include "device/object.h"

weft_status weft_event_create(weft_device *device, weft_event **event_out)
{
    if (!device || !event_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            device ? "event_out" : "device");
    }
    weft_event *event;
    weft_status status = device->table->event_create(device, &event);
    if (status == WEFT_OK) {
        event->device = device;
        event->pending = event->posted = false;
        pthread_mutex_init(&event->lock, NULL);
        wefti_device_count(device, 1);
        *event_out = event;
    }
    return status;
}

void weft_event_destroy(weft_event *event)
{
    if (event) {
        weft_device *device = event->device;
        pthread_mutex_destroy(&event->lock);
        device->table->event_destroy(event);
        wefti_device_count(device, -1);
    }
}

static weft_status check_event(const weft_event *event,
                               const weft_stream *stream)
{
    if (!event) {
        return wefti_error(WEFT_ERR_INVALID,
                           "event is NULL: allowed is an object");
    }
    if (stream && !wefti_device_is_same(stream->device, event->device)) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "stream of %s device %d: the event's is %s device %d",
            stream->device->table->kind, stream->device->index,
            event->device->table->kind, event->device->index);
    }
    return WEFT_OK;
}

/* Notes a post, and whether a device has to be asked about it. */
static void note_post(weft_event *event, bool pending)
{
    pthread_mutex_lock(&event->lock);
    event->posted = true;
    event->pending = pending;
    event->now_ns = pending ? 0 : wefti_clock_ns();
    pthread_mutex_unlock(&event->lock);
}

/* The latest post. */
typedef struct latest {
    bool posted, pending;
    int64_t now_ns;
} latest;

static latest get_latest(weft_event *event)
{
    pthread_mutex_lock(&event->lock);
    const latest post = {event->posted, event->pending, event->now_ns};
    pthread_mutex_unlock(&event->lock);
    return post;
}

static bool is_pending(weft_event *event)
{
    return get_latest(event).pending;
}

weft_status weft_event_post(weft_event *event, weft_stream *stream)
{
    weft_status status = check_event(event, stream);
    if (status == WEFT_OK && stream) {
        status = event->device->table->event_post(event, stream);
    }
    if (status == WEFT_OK) {
        note_post(event, stream != NULL);
    }
    return status;
}

/* Of a post that has not happened: who asks again and again never waits. */
static weft_status tend_unless_over(weft_event *event, weft_status status)
{
    if (status == WEFT_INPROGRESS &&
        !wefti_device_can(event->device, WEFT_CAP_NOTIFIES)) {
        wefti_device_tend(event->device);
    }
    return status;
}

weft_status weft_event_test(weft_event *event)
{
    weft_status status = check_event(event, NULL);
    return status == WEFT_OK && is_pending(event)
               ? tend_unless_over(event,
                                  event->device->table->event_test(event))
               : status;
}

weft_status weft_event_wait(weft_event *event, weft_stream *stream)
{
    weft_status status = check_event(event, stream);
    return status == WEFT_OK && is_pending(event)
               ? event->device->table->event_wait(event, stream)
               : status;
}

weft_status weft_event_get_time(weft_event *event, int64_t *ns_out)
{
    weft_status status = check_event(event, NULL);
    if (status < 0) {
        return status;
    }
    const latest post = get_latest(event);
    if (!ns_out || !post.posted) {
        return wefti_error(WEFT_ERR_INVALID,
                           ns_out ? "event was never posted"
                                  : "ns_out is NULL: allowed is a place");
    }
    if (!wefti_device_can(event->device, WEFT_CAP_TIMES)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "the %s device does not say when events happened",
                           event->device->table->kind);
    }
    if (!post.pending) {
        *ns_out = post.now_ns;
        return WEFT_OK;
    }
    return tend_unless_over(event,
                            event->device->table->event_time(event, ns_out));
}

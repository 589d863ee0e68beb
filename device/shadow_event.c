/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/shadow_event.c - events of the shadow device: each post is a record of
 * its own, so that later ones leave those alone who wait for it.
 */
#include "base/error.h"
#include "device/await.h"
#include "device/shadow_unit.h"

#include <stdlib.h>

typedef struct shadow_event {
    weft_event base;
    wefti_shadow_unit *unit;
    wefti_shadow_post *latest; /* guarded by the unit's lock; NULL: none */
} shadow_event;

static shadow_event *of(weft_event *event)
{
    return (shadow_event *)event;
}

weft_status wefti_shadow_event_create(weft_device *device, weft_event **out)
{
    shadow_event *event = calloc(1, sizeof(*event));
    if (!event) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an event");
    }
    event->unit = wefti_shadow_unit_of(device);
    *out = &event->base;
    return WEFT_OK;
}

static wefti_shadow_post *take_post_locked(wefti_shadow_unit *unit)
{
    wefti_shadow_post *post = unit->spare_posts;
    if (post) {
        unit->spare_posts = post->next;
    } else {
        post = malloc(sizeof(*post));
    }
    if (post) {
        *post = (wefti_shadow_post){.users = 0};
    }
    return post;
}

void wefti_shadow_drop_post_locked(wefti_shadow_unit *unit,
                                   wefti_shadow_post *post)
{
    if (post && --post->users == 0) {
        post->next = unit->spare_posts;
        unit->spare_posts = post;
    }
}

void wefti_shadow_event_destroy(weft_event *base)
{
    shadow_event *event = of(base);
    pthread_mutex_lock(&event->unit->lock);
    wefti_shadow_drop_post_locked(event->unit, event->latest);
    pthread_mutex_unlock(&event->unit->lock);
    free(event);
}

static weft_status post_locked(shadow_event *event, wefti_shadow_stream *stream)
{
    wefti_shadow_unit *unit = event->unit;
    wefti_shadow_post *post = take_post_locked(unit);
    if (!post) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an event's post");
    }
    const wefti_shadow_item item = {.kind = WEFTI_SHADOW_POST, .of.post = post};
    post->users = 1; /* the queue's */
    weft_status status = wefti_shadow_push_locked(stream, &item, 1);
    if (status < 0) {
        wefti_shadow_drop_post_locked(unit, post);
        return status;
    }
    post->users++;
    wefti_shadow_drop_post_locked(unit, event->latest);
    event->latest = post;
    return WEFT_OK;
}

weft_status wefti_shadow_event_post(weft_event *base, weft_stream *stream)
{
    shadow_event *event = of(base);
    pthread_mutex_lock(&event->unit->lock);
    weft_status status = post_locked(event, (wefti_shadow_stream *)stream);
    wefti_shadow_unlock(event->unit);
    return status;
}

static bool has_happened(const void *arg)
{
    const wefti_shadow_post *post = arg;
    return atomic_load_explicit(&post->happened, memory_order_acquire);
}

weft_status wefti_shadow_event_test(weft_event *event)
{
    int64_t time_ns;
    return wefti_shadow_event_time(event, &time_ns);
}

static weft_status wait_on_stream_locked(shadow_event *event,
                                         wefti_shadow_stream *stream)
{
    const wefti_shadow_item item = {.kind = WEFTI_SHADOW_WAIT_POST,
                                    .of.post = event->latest};
    weft_status status = wefti_shadow_push_locked(stream, &item, 1);
    if (status == WEFT_OK) {
        event->latest->users++;
    }
    return status;
}

weft_status wefti_shadow_event_wait(weft_event *base, weft_stream *stream)
{
    shadow_event *event = of(base);
    wefti_shadow_unit *unit = event->unit;
    wefti_shadow_post *post = NULL;
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&unit->lock);
    if (stream) {
        status = wait_on_stream_locked(event, (wefti_shadow_stream *)stream);
    } else {
        post = event->latest;
        post->users++;
    }
    wefti_shadow_unlock(unit);
    if (post) {
        wefti_poll(base->device, has_happened, post);
        pthread_mutex_lock(&unit->lock);
        wefti_shadow_drop_post_locked(unit, post);
        pthread_mutex_unlock(&unit->lock);
    }
    return status;
}

weft_status wefti_shadow_event_time(weft_event *base, int64_t *ns_out)
{
    shadow_event *event = of(base);
    pthread_mutex_lock(&event->unit->lock);
    const bool happened = has_happened(event->latest);
    if (happened) {
        *ns_out = event->latest->time_ns;
    }
    pthread_mutex_unlock(&event->unit->lock);
    return happened ? WEFT_OK : WEFT_INPROGRESS;
}

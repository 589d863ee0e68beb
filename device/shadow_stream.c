/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/shadow_stream.c - queues of the shadow device: whatever is posted is
 * only noted, and run by the unit's thread when it likes (shadow_thread.c).
 */
#include "base/clock.h"
#include "base/error.h"
#include "device/await.h"
#include "device/shadow.h"
#include "device/shadow_unit.h"

#include <stdlib.h>

enum {
    RING_FIRST = 64,
    TEND_NS = 1000000, /* a wait at a failed gate is not kept for longer */
};

static wefti_shadow_stream *of(weft_stream *stream)
{
    return (wefti_shadow_stream *)stream;
}

static uint64_t get_done(const wefti_shadow_stream *stream)
{
    return atomic_load(&stream->done);
}

static weft_status grow(wefti_shadow_stream *stream)
{
    const size_t capacity =
        stream->capacity ? 2 * stream->capacity : RING_FIRST;
    wefti_shadow_item *ring = calloc(capacity, sizeof(*ring));
    if (!ring) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the stream's queue of %zu items",
                           capacity);
    }
    for (uint64_t at = get_done(stream); at < stream->posted; at++) {
        ring[at & (capacity - 1)] = *wefti_shadow_get_item(stream, at);
    }
    free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    return WEFT_OK;
}

weft_status wefti_shadow_push_locked(wefti_shadow_stream *stream,
                                     const wefti_shadow_item *items,
                                     size_t count)
{
    wefti_shadow_unit *unit = stream->unit;
    const bool idle = stream->posted == get_done(stream);
    while (stream->capacity - (stream->posted - get_done(stream)) < count) {
        weft_status status = grow(stream);
        if (status < 0) {
            return status;
        }
    }
    for (size_t i = 0; i < count; i++) {
        *wefti_shadow_get_item(stream, stream->posted++) = items[i];
    }
    if (idle) { /* else the thread knows of the stream */
        stream->resume_ns =
            wefti_clock_ns() + wefti_shadow_draw_delay_locked(unit);
        wefti_shadow_due_locked(unit, stream->resume_ns);
    }
    return WEFT_OK;
}

static weft_status push(weft_stream *base, const wefti_shadow_item *items,
                        size_t count)
{
    wefti_shadow_stream *stream = of(base);
    pthread_mutex_lock(&stream->unit->lock);
    weft_status status = wefti_shadow_push_locked(stream, items, count);
    wefti_shadow_unlock(stream->unit);
    return status;
}

static weft_status join_unit(wefti_shadow_stream *stream)
{
    wefti_shadow_unit *unit = stream->unit;
    pthread_mutex_lock(&unit->lock);
    weft_status status = wefti_shadow_start_locked(unit);
    if (status == WEFT_OK) {
        stream->next = unit->streams;
        unit->streams = stream;
    }
    pthread_mutex_unlock(&unit->lock);
    return status;
}

weft_status wefti_shadow_stream_create(weft_device *device,
                                       const weft_stream_config *config,
                                       weft_stream **out)
{
    (void)config; /* a priority is a wish */
    wefti_shadow_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stream");
    }
    stream->unit = wefti_shadow_unit_of(device);
    wefti_doorbell_init(&stream->empty);
    weft_status status = grow(stream);
    if (status == WEFT_OK) {
        status = wefti_holds_create(device, &stream->base, &stream->holds);
    }
    if (status == WEFT_OK) {
        status = join_unit(stream);
    }
    if (status < 0) {
        wefti_holds_abandon(stream->holds);
        free(stream->ring);
        free(stream);
        return status;
    }
    *out = &stream->base;
    return WEFT_OK;
}

/* How far a drain waits. */
typedef struct goal {
    const wefti_shadow_stream *stream;
    uint64_t posted;
} goal;

static bool is_drained(const void *arg)
{
    const goal *wanted = arg;
    return get_done(wanted->stream) >= wanted->posted;
}

/* Like a driver's own call: it sleeps until the stream's thread rings. */
static void await_all(wefti_shadow_stream *stream)
{
    pthread_mutex_lock(&stream->unit->lock);
    const goal wanted = {stream, stream->posted};
    pthread_mutex_unlock(&stream->unit->lock);
    while (!is_drained(&wanted)) {
        wefti_device_tend(stream->base.device);
        const uint32_t seen = wefti_doorbell_arm(&stream->empty);
        if (!is_drained(&wanted)) {
            wefti_doorbell_sleep(&stream->empty, seen, TEND_NS);
        }
        wefti_doorbell_disarm(&stream->empty, seen);
    }
    wefti_holds_pass(stream->holds);
}

weft_status wefti_shadow_stream_drain(weft_stream *stream)
{
    await_all(of(stream));
    return wefti_holds_get_error(of(stream)->holds);
}

void wefti_shadow_stream_destroy(weft_stream *base)
{
    wefti_shadow_stream *stream = of(base);
    wefti_shadow_unit *unit = stream->unit;
    await_all(stream);
    pthread_mutex_lock(&unit->lock); /* the thread has left it then */
    wefti_shadow_stream **place = &unit->streams;
    while (*place != stream) {
        place = &(*place)->next;
    }
    *place = stream->next;
    pthread_mutex_unlock(&unit->lock);
    wefti_holds_abandon(stream->holds);
    free(stream->ring);
    free(stream);
}

weft_status wefti_shadow_stream_copy(weft_stream *stream, void *dst,
                                     const void *src, size_t bytes)
{
    char *to, *from;
    weft_status status = wefti_shadow_reach("dst", dst, bytes, &to);
    if (status == WEFT_OK) {
        status = wefti_shadow_reach("src", src, bytes, &from);
    }
    if (status < 0) {
        return status;
    }
    const wefti_shadow_item item = {.kind = WEFTI_SHADOW_COPY,
                                    .of.copy = {to, from, bytes}};
    return push(stream, &item, 1);
}

weft_status wefti_shadow_stream_compute(weft_stream *stream,
                                        void (*run)(void *arg), void *arg)
{
    const wefti_shadow_item item = {.kind = WEFTI_SHADOW_KERNEL,
                                    .of.kernel = {run, arg}};
    return push(stream, &item, 1);
}

weft_status wefti_shadow_launch(weft_stream *stream, void (*kernel)(void *arg),
                                void *arg)
{
    if (stream->device->table != &wefti_device_shadow) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream of a %s device: allowed is one of a shadow",
                           stream->device->table->kind);
    }
    return wefti_shadow_stream_compute(stream, kernel, arg);
}

weft_status wefti_shadow_stream_mark(weft_stream *base, const wefti_mark *marks,
                                     size_t count)
{
    wefti_holds *holds = of(base)->holds;
    wefti_shadow_item items[WEFTI_MARKS_MOST + 1];
    uint64_t batch;
    weft_status status = wefti_holds_add(holds, marks, count, &batch);
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = (wefti_shadow_item){
            .kind = marks[i].waits ? WEFTI_SHADOW_WAIT : WEFTI_SHADOW_STORE,
            .of.word = {&marks[i].gate->words[marks[i].chunk], marks[i].epoch}};
    }
    items[count] = (wefti_shadow_item){.kind = WEFTI_SHADOW_STORE,
                                       .of.word = {holds->passed, batch}};
    status = push(base, items, count + 1);
    if (status < 0) {
        wefti_holds_cancel(holds);
    }
    return status;
}

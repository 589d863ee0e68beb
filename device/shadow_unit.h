/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/shadow_unit.h - what the parts of the shadow device share: a unit for
 * each ordinal, which belongs to the process, since what is opened twice is the
 * same device.
 *
 *   device_shadow.c   units: opened, closed; the table
 *   shadow_memory.c   memory that faults, and what is known of pointers
 *   shadow_stream.c   queues: what is posted to them
 *   shadow_thread.c   the unit's thread, which alone runs them
 *   shadow_event.c    posts of events
 */
#ifndef DEVICE_SHADOW_UNIT_H
#define DEVICE_SHADOW_UNIT_H

#include "base/doorbell.h"
#include "device/holds.h"
#include "device/object.h"

enum { WEFTI_SHADOW_UNITS = 2 };

/* One post of an event. It lives as long as the event has no later one, or a
 * queue still holds it. */
typedef struct wefti_shadow_post {
    struct wefti_shadow_post *next; /* among the unit's spare ones */
    size_t users;                   /* guarded by the unit's lock */
    int64_t time_ns;                /* written before happened: released */
    _Atomic bool happened;          /* acquired by who reads the time */
} wefti_shadow_post;

typedef enum wefti_shadow_kind {
    WEFTI_SHADOW_COPY,
    WEFTI_SHADOW_KERNEL,
    WEFTI_SHADOW_STORE, /* of a word: a signal, or how far the stream is */
    WEFTI_SHADOW_WAIT,  /* for a word */
    WEFTI_SHADOW_POST,
    WEFTI_SHADOW_WAIT_POST
} wefti_shadow_kind;

typedef struct wefti_shadow_item {
    wefti_shadow_kind kind;
    union {
        struct {
            char *dst;
            const char *src;
            size_t bytes;
        } copy;
        struct {
            void (*run)(void *arg);
            void *arg;
        } kernel;
        struct {
            _Atomic uint64_t *at;
            uint64_t value;
        } word;
        wefti_shadow_post *post;
    } of;
} wefti_shadow_item;

typedef struct wefti_shadow_stream {
    weft_stream base;
    struct wefti_shadow_unit *unit;
    wefti_holds *holds;
    wefti_doorbell empty; /* rung, under the lock, when all is done: drains */

    /* From here on guarded by the unit's lock. */
    struct wefti_shadow_stream *next; /* of the unit */
    wefti_shadow_item *ring;          /* [capacity], a power of two */
    size_t capacity;
    uint64_t posted;       /* items ever queued */
    _Atomic uint64_t done; /* items ever finished; drains read it without */
    size_t copied_bytes;   /* of the copy at hand */
    int64_t resume_ns;     /* not run before */
} wefti_shadow_stream;

/* A stretch of memory that the driver of the device would know. */
typedef struct wefti_shadow_range {
    char *base;
    size_t bytes;
    weft_memory_kind kind; /* PINNED or DEVICE */
    uint64_t id;
    weft_device *owner; /* who may free it; NULL: not weft's, or registered */
} wefti_shadow_range;

typedef struct wefti_shadow_unit {
    int index;
    size_t handles; /* how often it is open; guarded by the list of units */

    /* Guarded by the lock of memory (shadow_memory.c). */
    int file;
    char *pointers, *alias;     /* NULL: not open */
    wefti_shadow_range *ranges; /* [range_capacity], by address */
    size_t range_count, range_capacity;
    uint64_t last_id;

    pthread_mutex_t lock;   /* guards from here on */
    pthread_cond_t changed; /* work was posted, or it is to quit */
    wefti_shadow_stream *streams;
    wefti_shadow_post *spare_posts;
    uint64_t random;      /* state */
    int64_t slice_ns;     /* of the next sleep with streams at gates */
    int64_t asleep_to_ns; /* when the thread's sleep ends; 0: it is awake */
    bool to_wake;         /* by whoever has the lock, once that is given back */
    bool quit, has_thread;
    pthread_t thread;
} wefti_shadow_unit;

static inline wefti_shadow_unit *wefti_shadow_unit_of(const weft_device *device)
{
    return device->own;
}

/* ---- memory: slots of the table, and what units need ----------------------
 */

WEFT_NODISCARD weft_status wefti_shadow_memory_map(wefti_shadow_unit *unit);
void wefti_shadow_memory_unmap(wefti_shadow_unit *unit);

weft_status wefti_shadow_mem_alloc(weft_device *device, weft_memory_kind kind,
                                   size_t bytes, void **out);
bool wefti_shadow_mem_free(weft_device *device, void *pointer);
weft_status wefti_shadow_mem_query(weft_device *device, const void *pointer,
                                   weft_pointer *out);
weft_status wefti_shadow_mem_register(weft_device *device, void *pointer,
                                      size_t bytes);
void wefti_shadow_mem_unregister(weft_device *device, void *pointer);

/*
 * wefti_shadow_reach - where devices find bytes bytes at pointer: other memory
 * than the devices' own comes back as it is.
 *
 * Returns     OK | ERR_INVALID (no allocation has so many bytes there; the text
 *             calls the pointer name).
 */
WEFT_NODISCARD weft_status wefti_shadow_reach(const char *name,
                                              const void *pointer, size_t bytes,
                                              char **out);

/* ---- streams --------------------------------------------------------------
 */

weft_status wefti_shadow_stream_create(weft_device *device,
                                       const weft_stream_config *config,
                                       weft_stream **out);
void wefti_shadow_stream_destroy(weft_stream *stream);
weft_status wefti_shadow_stream_copy(weft_stream *stream, void *dst,
                                     const void *src, size_t bytes);
weft_status wefti_shadow_stream_compute(weft_stream *stream,
                                        void (*run)(void *arg), void *arg);
weft_status wefti_shadow_stream_mark(weft_stream *stream,
                                     const wefti_mark *marks, size_t count);
weft_status wefti_shadow_stream_drain(weft_stream *stream);

/* Queues all of items or none; the caller holds the unit's lock. */
WEFT_NODISCARD weft_status wefti_shadow_push_locked(
    wefti_shadow_stream *stream, const wefti_shadow_item *items, size_t count);

static inline wefti_shadow_item *
wefti_shadow_get_item(const wefti_shadow_stream *stream, uint64_t number)
{
    return &stream->ring[number & (stream->capacity - 1)];
}

/* ---- the thread ------------------------------------------------------------
 */

/* Starts it unless it runs; the caller holds the unit's lock. */
WEFT_NODISCARD weft_status wefti_shadow_start_locked(wefti_shadow_unit *unit);

/* What has to be looked at from then on has been posted. */
void wefti_shadow_due_locked(wefti_shadow_unit *unit, int64_t at_ns);

/* Gives the lock back, and then wakes the thread if something is due: woken
 * before, it would only run into the lock. */
void wefti_shadow_unlock(wefti_shadow_unit *unit);

/* Ends and joins it, if it runs. */
void wefti_shadow_stop(wefti_shadow_unit *unit);

/* How long the next item is kept back; mostly not at all. */
int64_t wefti_shadow_draw_delay_locked(wefti_shadow_unit *unit);

/* ---- events ----------------------------------------------------------------
 */

weft_status wefti_shadow_event_create(weft_device *device, weft_event **out);
void wefti_shadow_event_destroy(weft_event *event);
weft_status wefti_shadow_event_post(weft_event *event, weft_stream *stream);
weft_status wefti_shadow_event_test(weft_event *event);
weft_status wefti_shadow_event_wait(weft_event *event, weft_stream *stream);
weft_status wefti_shadow_event_time(weft_event *event, int64_t *ns_out);

/* A use of the post is over; the last one makes it spare. */
void wefti_shadow_drop_post_locked(wefti_shadow_unit *unit,
                                   wefti_shadow_post *post);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/host_stream.c - a stream as a ring of items that anyone may advance.
 *
 *      done              posted
 *       v                  v
 *   | . | wait | signal | call |         ring[number % capacity]
 *
 * At most one thread at a time advances a stream: the one that has set "busy".
 * Others that want it advanced (they have raised the gate it stands at) leave
 * "dirty" behind, which makes the busy one look again before it stops. Signals,
 * waits and small copies are run by whoever is busy; before a call or a large
 * copy the busy thread hands its office ("handed") to the stream's own thread.
 *
 *   idle --claim--> busy --stands at a wait, or empty--> idle
 *                    |  ^
 *            needs a |  | the stream's thread goes on
 *             thread v  |
 *                   handed
 *
 * A signal inside an advance may wake further streams. They are not advanced
 * there and then, which would nest as deep as the streams are many, but noted
 * in the thread's "turn" and taken up when the stream at hand stops or is
 * about to block.
 *
 * No lock is held while a gate is raised, watched or unwatched. Everything not
 * marked otherwise belongs to the busy thread and travels with the office
 * through "lock".
 */
#include "device/host_stream.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "device/await.h"
#include "device/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING_FIRST = 64,
    INLINE_COPY_BYTES = 4096, /* about as long as waking a thread takes */
};

typedef enum item_kind {
    ITEM_SIGNAL,
    ITEM_WAIT,
    ITEM_COPY,
    ITEM_CALL
} item_kind;

typedef struct item {
    item_kind kind;
    union {
        struct {
            weft_gate *gate;
            size_t chunk;
            uint64_t epoch;
            _Atomic int64_t *time_out; /* ITEM_SIGNAL; NULL: nobody asks */
        } mark;                        /* ITEM_SIGNAL, ITEM_WAIT */
        struct {
            void *dst;
            const void *src;
            size_t bytes;
        } copy;
        struct {
            void (*call)(void *arg);
            void *arg;
        } call;
    } of;
} item;

typedef struct host_stream {
    weft_stream base;
    pthread_mutex_t lock;   /* guards from here to has_thread */
    pthread_cond_t changed; /* handed, quit, or busy over while closing */
    item *ring;             /* [capacity], a power of two */
    size_t capacity;
    uint64_t posted;       /* items ever queued */
    _Atomic uint64_t done; /* items ever finished: take -> is_drained */
    bool busy, dirty, handed, closing, quit, has_thread;

    pthread_t thread;     /* set before has_thread */
    wefti_doorbell bell;  /* rung after done has moved */
    _Atomic int error;    /* the first one stays; stored before done moves */
    char error_text[256]; /* of that one; written before error */
    weft_gate *watched;   /* where watcher is, or NULL */
    wefti_gate_watcher watcher;
    struct host_stream *next_due; /* in the turn of the busy thread */
} host_stream;

/* What the calling thread still has to advance, in order. */
typedef struct turn {
    bool inside; /* an advance is under way in this thread */
    host_stream *first, *last;
} turn;

static _Thread_local turn my_turn;

static void advance(host_stream *stream);

static host_stream *of(weft_stream *stream)
{
    return (host_stream *)stream;
}

static bool needs_thread(const item *it)
{
    return it->kind == ITEM_CALL ||
           (it->kind == ITEM_COPY && it->of.copy.bytes > INLINE_COPY_BYTES);
}

static bool holds_gate(const item *it)
{
    return it->kind == ITEM_SIGNAL || it->kind == ITEM_WAIT;
}

/* Called by the busy thread alone. */
static void keep_error(host_stream *stream, weft_status status,
                       const char *text)
{
    if (status < 0 && atomic_load(&stream->error) == WEFT_OK) {
        snprintf(stream->error_text, sizeof(stream->error_text), "%s", text);
        atomic_store(&stream->error, (int)status);
    }
}

/* Asks to go on from the gate it stands at; true: the caller is busy now. */
static bool claim(host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool claimed = !stream->busy;
    stream->busy = true;
    stream->dirty = true;
    pthread_mutex_unlock(&stream->lock);
    return claimed;
}

static void leave_locked(host_stream *stream)
{
    stream->busy = false;
    if (stream->closing) {
        pthread_cond_broadcast(&stream->changed);
    }
}

/*
 * Finishes the item before, if there was one, and gets the next. False: the
 * caller is no longer busy here and may not touch the stream.
 */
static bool take(host_stream *stream, bool own_thread, bool finished,
                 item *item_out)
{
    bool taken = false;
    pthread_mutex_lock(&stream->lock);
    uint64_t done = atomic_load_explicit(&stream->done, memory_order_relaxed);
    if (finished) {
        atomic_store(&stream->done, ++done);
        wefti_doorbell_ring(&stream->bell);
    }
    if (done == stream->posted) {
        leave_locked(stream);
    } else {
        *item_out = stream->ring[done & (stream->capacity - 1)];
        taken = own_thread || !needs_thread(item_out);
        if (!taken) {
            stream->handed = true;
            pthread_cond_broadcast(&stream->changed);
        }
    }
    stream->dirty = false;
    pthread_mutex_unlock(&stream->lock);
    return taken;
}

/* True: stopped at a wait, not busy any more. False: look again. */
static bool stop(host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    bool stopped = !stream->dirty;
    stream->dirty = false;
    if (stopped) {
        leave_locked(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    return stopped;
}

/* True: the wait is over. False: the gate will call woken(). */
static bool pass_wait(host_stream *stream, const item *it)
{
    weft_gate *gate = it->of.mark.gate;
    size_t chunk = it->of.mark.chunk;
    uint64_t epoch = it->of.mark.epoch;
    bool reached = wefti_gate_reached(gate, chunk, epoch);
    if (!reached && !stream->watched) {
        stream->watched = gate;
        wefti_gate_watch(gate, &stream->watcher);
        reached = wefti_gate_reached(gate, chunk, epoch);
    }
    if (!reached) {
        return false;
    }
    if (stream->watched) {
        stream->watched = NULL;
        /* Others inside woken() only leave "dirty": this returns soon. */
        wefti_gate_unwatch(gate, &stream->watcher);
    }
    const char *text;
    weft_status failure = wefti_gate_get_failure(gate, &text);
    keep_error(stream, failure, text);
    return true;
}

static void run_due(void);

/* Runs a call or a large copy in the stream's thread. */
static void run_long(const item *it)
{
    run_due();
    my_turn.inside = false; /* a call's own signals take effect at once */
    if (it->kind == ITEM_CALL) {
        it->of.call.call(it->of.call.arg);
    } else {
        memcpy(it->of.copy.dst, it->of.copy.src, it->of.copy.bytes);
    }
    my_turn.inside = true;
}

/* True: the item is over. */
static bool run_item(host_stream *stream, const item *it)
{
    if (needs_thread(it)) {
        run_long(it);
    } else if (it->kind == ITEM_COPY) {
        memcpy(it->of.copy.dst, it->of.copy.src, it->of.copy.bytes);
    } else if (it->kind == ITEM_SIGNAL) {
        if (it->of.mark.time_out) {
            atomic_store(it->of.mark.time_out, wefti_clock_ns());
        }
        wefti_gate_raise(it->of.mark.gate, it->of.mark.chunk,
                         it->of.mark.epoch);
    } else {
        return pass_wait(stream, it);
    }
    return true;
}

/* Advances a stream whose busy thread the caller is, as far as it goes. */
static void run(host_stream *stream, bool own_thread)
{
    item it;
    bool finished = false;
    while (take(stream, own_thread, finished, &it)) {
        finished = run_item(stream, &it);
        if (finished && holds_gate(&it)) {
            wefti_gate_drop(it.of.mark.gate);
        }
        if (!finished && stop(stream)) {
            return;
        }
    }
}

static void run_due(void)
{
    while (my_turn.first) {
        host_stream *stream = my_turn.first;
        my_turn.first = stream->next_due;
        run(stream, false);
    }
}

/* Advances a claimed stream: now, or in turn. */
static void advance(host_stream *stream)
{
    if (my_turn.inside) {
        stream->next_due = NULL;
        *(my_turn.first ? &my_turn.last->next_due : &my_turn.first) = stream;
        my_turn.last = stream;
        return;
    }
    my_turn.inside = true;
    run(stream, false);
    run_due();
    my_turn.inside = false;
}

/* wefti_gate_watcher.woken of the gate that the stream stands at. */
static void woken(void *context)
{
    host_stream *stream = context;
    if (claim(stream)) {
        advance(stream);
    }
}

static void *thread_main(void *context)
{
    host_stream *stream = context;
    pthread_mutex_lock(&stream->lock);
    while (!stream->quit) {
        if (!stream->handed) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->handed = false;
        pthread_mutex_unlock(&stream->lock);
        my_turn.inside = true;
        run(stream, true);
        run_due();
        my_turn.inside = false;
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static weft_status start_thread(host_stream *stream)
{
    if (wefti_thread_start(thread_main, stream, &stream->thread) != 0) {
        return wefti_error_system("the stream's thread could not be started");
    }
    pthread_setname_np(stream->thread, "weft-stream");
    stream->has_thread = true;
    return WEFT_OK;
}

static weft_status grow(host_stream *stream)
{
    size_t capacity = stream->capacity ? 2 * stream->capacity : RING_FIRST;
    item *ring = calloc(capacity, sizeof(*ring));
    if (!ring) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the stream's queue of %zu items",
                           capacity);
    }
    for (uint64_t at = atomic_load(&stream->done); at < stream->posted; at++) {
        ring[at & (capacity - 1)] = stream->ring[at & (stream->capacity - 1)];
    }
    free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    return WEFT_OK;
}

/* Queues all of items or none. */
static weft_status post(weft_stream *base, const item *items, size_t count)
{
    host_stream *stream = of(base);
    weft_status status = WEFT_OK;
    bool claimed = false;
    pthread_mutex_lock(&stream->lock);
    while (status == WEFT_OK &&
           stream->capacity - (stream->posted - atomic_load(&stream->done)) <
               count) {
        status = grow(stream);
    }
    if (status == WEFT_OK && needs_thread(items) && !stream->has_thread) {
        status = start_thread(stream);
    }
    if (status == WEFT_OK) {
        for (size_t i = 0; i < count; i++) {
            if (holds_gate(&items[i])) {
                wefti_gate_hold(items[i].of.mark.gate);
            }
            stream->ring[stream->posted++ & (stream->capacity - 1)] = items[i];
        }
        claimed = !stream->busy;
        stream->busy = true;
    }
    pthread_mutex_unlock(&stream->lock);
    if (claimed) {
        advance(stream);
    }
    return status;
}

weft_status wefti_host_stream_create(weft_device *device,
                                     const weft_stream_config *config,
                                     weft_stream **out)
{
    (void)device;
    (void)config; /* threads of one process have the same priority */
    host_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stream");
    }
    weft_status status = grow(stream);
    if (status < 0) {
        free(stream);
        return status;
    }
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    wefti_doorbell_init(&stream->bell);
    stream->watcher.woken = woken;
    stream->watcher.context = stream;
    *out = &stream->base;
    return WEFT_OK;
}

/* How far a drain waits. */
typedef struct goal {
    const host_stream *stream;
    uint64_t posted;
} goal;

static bool is_drained(const void *arg)
{
    const goal *wanted = arg;
    return atomic_load(&wanted->stream->done) >= wanted->posted;
}

static bool is_own_thread(const host_stream *stream)
{
    return stream->has_thread && pthread_equal(stream->thread, pthread_self());
}

weft_status wefti_host_stream_drain(weft_stream *base)
{
    host_stream *stream = of(base);
    pthread_mutex_lock(&stream->lock);
    goal wanted = {stream, stream->posted};
    bool own_thread = is_own_thread(stream);
    pthread_mutex_unlock(&stream->lock);
    if (own_thread) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a call may not wait for its own stream");
    }
    wefti_await(&stream->bell, base->device->spins, is_drained, &wanted);
    weft_status error = (weft_status)atomic_load(&stream->error);
    return error == WEFT_OK ? WEFT_OK
                            : wefti_error(error, "%s", stream->error_text);
}

bool wefti_host_stream_stand(weft_device *device, weft_stream *base,
                             wefti_stream_stand *out)
{
    (void)device;
    host_stream *stream = of(base);
    pthread_mutex_lock(&stream->lock);
    const uint64_t done = atomic_load(&stream->done);
    const item *first = &stream->ring[done & (stream->capacity - 1)];
    const bool stands =
        !stream->busy && done < stream->posted && first->kind == ITEM_WAIT;
    if (stands) {
        *out = (wefti_stream_stand){first->of.mark.gate, first->of.mark.chunk,
                                    first->of.mark.epoch};
    }
    pthread_mutex_unlock(&stream->lock);
    return stands;
}

void wefti_host_stream_destroy(weft_stream *base)
{
    host_stream *stream = of(base);
    goal wanted = {stream, stream->posted};
    wefti_await(&stream->bell, base->device->spins, is_drained, &wanted);

    /* Whoever finished the last item may still be on its way out. */
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    while (stream->busy) {
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
    stream->quit = true;
    pthread_cond_broadcast(&stream->changed);
    bool has_thread = stream->has_thread;
    pthread_mutex_unlock(&stream->lock);
    WEFTI_ASSERT(!stream->watched);
    if (has_thread) {
        pthread_join(stream->thread, NULL);
    }
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    free(stream);
}

weft_status wefti_host_stream_copy(weft_stream *stream, void *dst,
                                   const void *src, size_t bytes)
{
    item it = {.kind = ITEM_COPY, .of.copy = {dst, src, bytes}};
    return post(stream, &it, 1);
}

weft_status wefti_host_stream_call(weft_stream *stream, void (*call)(void *),
                                   void *arg)
{
    item it = {.kind = ITEM_CALL, .of.call = {call, arg}};
    return post(stream, &it, 1);
}

weft_status wefti_host_stream_signal_timed(weft_stream *stream, weft_gate *gate,
                                           size_t chunk, uint64_t epoch,
                                           _Atomic int64_t *time_out)
{
    item it = {.kind = ITEM_SIGNAL, .of.mark = {gate, chunk, epoch, time_out}};
    return post(stream, &it, 1);
}

weft_status wefti_host_stream_mark(weft_stream *stream, const wefti_mark *marks,
                                   size_t count)
{
    item items[WEFTI_MARKS_MOST];
    WEFTI_ASSERT(count > 0 && count <= WEFTI_MARKS_MOST);
    for (size_t i = 0; i < count; i++) {
        items[i] = (item){
            .kind = marks[i].waits ? ITEM_WAIT : ITEM_SIGNAL,
            .of.mark = {marks[i].gate, marks[i].chunk, marks[i].epoch, NULL}};
    }
    return post(stream, items, count);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/shadow_thread.c - the thread of a unit, which runs its streams as
 * unkindly as a device may.
 *
 * It takes one item after another, each time of a stream drawn among those that
 * could go on, and may keep a stream back for a while before its next item. Of
 * a copy it runs a part, and perhaps something else before the next. What it
 * stores into a word it stores without a look at what was there, and it tells
 * nobody; only drains sleep until a stream has run all.
 *
 * Words are raised by hosts that do not notify it either: while nothing but
 * waits is left it looks at them in slices that grow, fast up to SLICE_NS and
 * slowly up to SLICE_MOST_NS, which it takes some 25 ms to come to.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "device/shadow_unit.h"

#include <string.h>
#include <time.h>

enum {
    DELAYED_1_IN = 8,       /* items before which there is a delay */
    DELAY_MOST_NS = 200000, /* as a rule */
    LONG_1_IN = 1024,       /* items before which it is a long one */
    LONG_MOST_NS = 3000000,
    SOON_NS = 50000, /* no sleep that ends so soon is cut short */
    SLICE_FIRST_NS = 10000,
    SLICE_NS = 200000,
    SLICE_MOST_NS = 1000000,
};

/* Vigna's splitmix64 (public domain; "Fast splittable pseudorandom number
 * generators", Steele, Lea, Flood 2014). */
/* A number below most, which is not 0. */
static uint64_t draw_locked(wefti_shadow_unit *unit, uint64_t most)
{
    uint64_t z = unit->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % most;
}

int64_t wefti_shadow_draw_delay_locked(wefti_shadow_unit *unit)
{
    if (draw_locked(unit, LONG_1_IN) == 0) {
        return (int64_t)draw_locked(unit, LONG_MOST_NS);
    }
    return draw_locked(unit, DELAYED_1_IN) == 0
               ? (int64_t)draw_locked(unit, DELAY_MOST_NS)
               : 0;
}

static bool is_over(const wefti_shadow_item *item)
{
    if (item->kind == WEFTI_SHADOW_WAIT) {
        return (int64_t)(atomic_load(item->of.word.at) - item->of.word.value) >=
               0;
    }
    return item->kind != WEFTI_SHADOW_WAIT_POST ||
           atomic_load_explicit(&item->of.post->happened, memory_order_acquire);
}

/*
 * A stream whose next item can run, each with the same chance; NULL: none, and
 * *wake_ns_out says when to look again, INT64_MAX: when something is posted.
 */
static wefti_shadow_stream *pick_locked(wefti_shadow_unit *unit,
                                        int64_t *wake_ns_out)
{
    const int64_t now_ns = wefti_clock_ns();
    wefti_shadow_stream *picked = NULL;
    uint64_t ready = 0;
    *wake_ns_out = INT64_MAX;
    for (wefti_shadow_stream *stream = unit->streams; stream;
         stream = stream->next) {
        const uint64_t done =
            atomic_load_explicit(&stream->done, memory_order_relaxed);
        int64_t look_ns = now_ns + unit->slice_ns;
        if (done == stream->posted) {
            continue;
        }
        if (stream->resume_ns > now_ns) {
            look_ns = stream->resume_ns;
        } else if (is_over(wefti_shadow_get_item(stream, done))) {
            picked = draw_locked(unit, ++ready) == 0 ? stream : picked;
        }
        *wake_ns_out = look_ns < *wake_ns_out ? look_ns : *wake_ns_out;
    }
    return picked;
}

/* A part of the copy, or what is left of it; true: that was the last. */
static bool run_copy(wefti_shadow_stream *stream, const wefti_shadow_item *item)
{
    wefti_shadow_unit *unit = stream->unit;
    const size_t at = stream->copied_bytes;
    size_t bytes = item->of.copy.bytes - at;
    if (draw_locked(unit, 2) == 0) {
        bytes = 1 + draw_locked(unit, bytes);
    }
    pthread_mutex_unlock(&unit->lock);
    memcpy(item->of.copy.dst + at, item->of.copy.src + at, bytes);
    pthread_mutex_lock(&unit->lock);
    const bool over = at + bytes == item->of.copy.bytes;
    stream->copied_bytes = over ? 0 : at + bytes;
    return over;
}

/* Runs an item that can run; true: it is over. */
static bool run_item(wefti_shadow_stream *stream, const wefti_shadow_item *item)
{
    wefti_shadow_unit *unit = stream->unit;
    switch (item->kind) {
    case WEFTI_SHADOW_COPY:
        return run_copy(stream, item);
    case WEFTI_SHADOW_KERNEL:
        pthread_mutex_unlock(&unit->lock);
        item->of.kernel.run(item->of.kernel.arg);
        pthread_mutex_lock(&unit->lock);
        break;
    case WEFTI_SHADOW_STORE:
        atomic_store_explicit(item->of.word.at, item->of.word.value,
                              memory_order_release);
        break;
    case WEFTI_SHADOW_POST:
        item->of.post->time_ns = wefti_clock_ns();
        atomic_store_explicit(&item->of.post->happened, true,
                              memory_order_release);
        wefti_shadow_drop_post_locked(unit, item->of.post);
        break;
    case WEFTI_SHADOW_WAIT_POST:
        wefti_shadow_drop_post_locked(unit, item->of.post);
        break;
    case WEFTI_SHADOW_WAIT:
        break;
    }
    return true;
}

static void run_one(wefti_shadow_stream *stream)
{
    wefti_shadow_unit *unit = stream->unit;
    const uint64_t done =
        atomic_load_explicit(&stream->done, memory_order_relaxed);
    const wefti_shadow_item item = *wefti_shadow_get_item(stream, done);
    const bool over = run_item(stream, &item);
    stream->resume_ns = wefti_clock_ns() + wefti_shadow_draw_delay_locked(unit);
    if (over) {
        atomic_store(&stream->done, done + 1); /* read by drains */
        if (done + 1 == stream->posted) {
            wefti_doorbell_ring(&stream->empty);
        }
    }
}

static void sleep_locked(wefti_shadow_unit *unit, int64_t wake_ns)
{
    const struct timespec wake = {.tv_sec = wake_ns / 1000000000,
                                  .tv_nsec = wake_ns % 1000000000};
    unit->asleep_to_ns = wake_ns;
    if (wake_ns == INT64_MAX) {
        pthread_cond_wait(&unit->changed, &unit->lock);
    } else {
        pthread_cond_timedwait(&unit->changed, &unit->lock, &wake);
    }
    unit->asleep_to_ns = 0;
}

void wefti_shadow_due_locked(wefti_shadow_unit *unit, int64_t at_ns)
{
    if (unit->asleep_to_ns > at_ns + SOON_NS) {
        unit->to_wake = true;
        unit->asleep_to_ns = 0; /* once is enough */
    }
}

void wefti_shadow_unlock(wefti_shadow_unit *unit)
{
    const bool wakes = unit->to_wake;
    unit->to_wake = false;
    pthread_mutex_unlock(&unit->lock);
    if (wakes) {
        pthread_cond_signal(&unit->changed);
    }
}

static int64_t next_slice(int64_t slice_ns)
{
    const int64_t next_ns =
        slice_ns < SLICE_NS ? 2 * slice_ns : slice_ns + slice_ns / 32;
    return next_ns < SLICE_MOST_NS ? next_ns : SLICE_MOST_NS;
}

static void *unit_main(void *arg)
{
    wefti_shadow_unit *unit = arg;
    pthread_mutex_lock(&unit->lock);
    while (!unit->quit) {
        int64_t wake_ns;
        wefti_shadow_stream *stream = pick_locked(unit, &wake_ns);
        if (stream) {
            unit->slice_ns = SLICE_FIRST_NS;
            run_one(stream);
        } else {
            unit->slice_ns = next_slice(unit->slice_ns);
            sleep_locked(unit, wake_ns);
        }
    }
    pthread_mutex_unlock(&unit->lock);
    return NULL;
}

weft_status wefti_shadow_start_locked(wefti_shadow_unit *unit)
{
    if (unit->has_thread) {
        return WEFT_OK;
    }
    unit->slice_ns = SLICE_FIRST_NS;
    if (wefti_thread_start(unit_main, unit, &unit->thread) != 0) {
        return wefti_error_system(
            "the shadow device's thread could not be started");
    }
    pthread_setname_np(unit->thread, "weft-shadow");
    unit->has_thread = true;
    return WEFT_OK;
}

void wefti_shadow_stop(wefti_shadow_unit *unit)
{
    pthread_mutex_lock(&unit->lock);
    const bool has_thread = unit->has_thread;
    unit->quit = true;
    pthread_cond_signal(&unit->changed);
    pthread_mutex_unlock(&unit->lock);
    if (has_thread) {
        pthread_join(unit->thread, NULL);
    }
}

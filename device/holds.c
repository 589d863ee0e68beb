/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/holds.c - a ring of marks per stream, and the device's list of them.
 *
 * Locks: a list, then one of the holds. No gate is let go under either, since
 * that may be its end.
 */
#include "device/holds.h"

#include "base/error.h"
#include "device/failure.h"
#include "device/object.h"

#include <stdio.h>
#include <stdlib.h>

enum { RING_FIRST = 64, DROPS_AT_ONCE = 32 };

/* Of all devices: what stands at a failed gate need not be of the gate's handle
 * of the device, nor of the device that somebody waits for. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_holds *all; /* guarded by that */

/* Whether a wait at a failed gate may be queued. Set after the failure, or
 * after such a wait, can be seen; cleared before a walk that finds none. */
static _Atomic bool any_failed;

static wefti_hold *get(const wefti_holds *holds, uint64_t number)
{
    return &holds->ring[number & (holds->capacity - 1)];
}

/* Of a device that works no more all has passed. */
static uint64_t get_passed(wefti_holds *holds)
{
    return atomic_load(&holds->device->failure) == WEFT_OK
               ? atomic_load(holds->passed)
               : UINT64_MAX;
}

static weft_status grow(wefti_holds *holds)
{
    const size_t capacity = holds->capacity ? 2 * holds->capacity : RING_FIRST;
    wefti_hold *ring = calloc(capacity, sizeof(*ring));
    if (!ring) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the stream's queue of %zu marks",
                           capacity);
    }
    for (uint64_t at = holds->first; at < holds->end; at++) {
        ring[at & (capacity - 1)] = *get(holds, at);
    }
    free(holds->ring);
    holds->ring = ring;
    holds->capacity = capacity;
    return WEFT_OK;
}

weft_status wefti_holds_create(weft_device *device, const weft_stream *stream,
                               wefti_holds **holds_out)
{
    wefti_holds *holds = calloc(1, sizeof(*holds));
    if (!holds) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a stream");
    }
    holds->device = device;
    holds->stream = stream;
    weft_status status = grow(holds);
    if (status == WEFT_OK) {
        status = device->table->gate_words(device, 1, &holds->passed);
    }
    if (status < 0) {
        free(holds->ring);
        free(holds);
        return status;
    }
    pthread_mutex_init(&holds->lock, NULL);
    pthread_mutex_lock(&device->holds_lock);
    holds->next = device->holds;
    device->holds = holds;
    pthread_mutex_unlock(&device->holds_lock);
    pthread_mutex_lock(&all_lock);
    holds->next_of_all = all;
    all = holds;
    pthread_mutex_unlock(&all_lock);
    *holds_out = holds;
    return WEFT_OK;
}

static void free_holds(wefti_holds *holds)
{
    pthread_mutex_lock(&all_lock);
    wefti_holds **place = &all;
    while (*place != holds) {
        place = &(*place)->next_of_all;
    }
    *place = holds->next_of_all;
    pthread_mutex_unlock(&all_lock);
    holds->device->table->gate_words_free(holds->device, holds->passed);
    pthread_mutex_destroy(&holds->lock);
    free(holds->ring);
    free(holds);
}

void wefti_holds_note_failure(void)
{
    atomic_store(&any_failed, true);
}

/* The caller holds the gates. */
static void note_failed_waits(const wefti_mark *marks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *text;
        if (marks[i].waits &&
            wefti_gate_get_failure(marks[i].gate, &text) != WEFT_OK) {
            wefti_holds_note_failure();
        }
    }
}

weft_status wefti_holds_add(wefti_holds *holds, const wefti_mark *marks,
                            size_t count, uint64_t *batch_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&holds->lock);
    while (status == WEFT_OK &&
           holds->capacity - (holds->end - holds->first) < count) {
        status = grow(holds);
    }
    if (status == WEFT_OK) {
        *batch_out = ++holds->batches;
        for (size_t i = 0; i < count; i++) {
            wefti_gate_hold(marks[i].gate);
            *get(holds, holds->end++) = (wefti_hold){marks[i], *batch_out};
        }
    }
    pthread_mutex_unlock(&holds->lock);
    if (status == WEFT_OK) {
        note_failed_waits(marks, count);
    }
    return status;
}

void wefti_holds_cancel(wefti_holds *holds)
{
    weft_gate *gate = NULL;
    do {
        gate = NULL;
        pthread_mutex_lock(&holds->lock);
        if (holds->end > holds->first &&
            get(holds, holds->end - 1)->batch == holds->batches) {
            gate = get(holds, --holds->end)->mark.gate;
        } else {
            holds->batches--;
        }
        pthread_mutex_unlock(&holds->lock);
        if (gate) {
            wefti_gate_drop(gate);
        }
    } while (gate);
}

static void keep_error_locked(wefti_holds *holds, weft_status status,
                              const char *text)
{
    if (status < 0 && holds->error == WEFT_OK) {
        snprintf(holds->error_text, sizeof(holds->error_text), "%s", text);
        holds->error = status;
    }
}

/* Takes up to DROPS_AT_ONCE gates that the stream has passed off the ring. */
static size_t take_passed(wefti_holds *holds, weft_gate **gates_out)
{
    size_t count = 0;
    pthread_mutex_lock(&holds->lock);
    const uint64_t passed = get_passed(holds);
    while (count < DROPS_AT_ONCE && holds->first < holds->end &&
           get(holds, holds->first)->batch <= passed) {
        const wefti_mark *mark = &get(holds, holds->first++)->mark;
        const char *text;
        weft_status failure = wefti_gate_get_failure(mark->gate, &text);
        if (mark->waits) {
            keep_error_locked(holds, failure, text);
        }
        gates_out[count++] = mark->gate;
    }
    pthread_mutex_unlock(&holds->lock);
    return count;
}

void wefti_holds_pass(wefti_holds *holds)
{
    weft_gate *gates[DROPS_AT_ONCE];
    size_t count;
    do {
        count = take_passed(holds, gates);
        for (size_t i = 0; i < count; i++) {
            wefti_gate_drop(gates[i]);
        }
    } while (count == DROPS_AT_ONCE);
}

/* Whether the stream has passed all that was added. */
static bool are_passed(wefti_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    bool passed = get_passed(holds) >= holds->batches;
    pthread_mutex_unlock(&holds->lock);
    return passed;
}

weft_status wefti_holds_get_error(wefti_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    weft_status status =
        holds->error == WEFT_OK
            ? WEFT_OK
            : wefti_error(holds->error, "%s", holds->error_text);
    pthread_mutex_unlock(&holds->lock);
    return status;
}

static bool get_stand(wefti_holds *holds, wefti_stream_stand *out)
{
    bool stands = false;
    pthread_mutex_lock(&holds->lock);
    const uint64_t passed = get_passed(holds);
    for (uint64_t at = holds->first; at < holds->end && !stands; at++) {
        const wefti_hold *hold = get(holds, at);
        const wefti_mark *mark = &hold->mark;
        stands = hold->batch > passed && mark->waits &&
                 !wefti_gate_reached(mark->gate, mark->chunk, mark->epoch);
        if (stands) {
            *out = (wefti_stream_stand){mark->gate, mark->chunk, mark->epoch};
        }
    }
    pthread_mutex_unlock(&holds->lock);
    return stands;
}

bool wefti_holds_find_stand(weft_device *device, weft_stream *stream,
                            wefti_stream_stand *out)
{
    pthread_mutex_lock(&device->holds_lock);
    wefti_holds *holds = device->holds;
    while (holds && (holds->abandoned || holds->stream != stream)) {
        holds = holds->next;
    }
    const bool stands = holds && get_stand(holds, out);
    pthread_mutex_unlock(&device->holds_lock);
    return stands;
}

/* Releases again the waits that a signal from before the failure has shut;
 * false: there is none at a failed gate. */
static bool release_failed(wefti_holds *holds)
{
    bool found = false;
    pthread_mutex_lock(&holds->lock);
    for (uint64_t at = holds->first; at < holds->end; at++) {
        const wefti_mark *mark = &get(holds, at)->mark;
        found |= mark->waits && wefti_gate_fail_again(mark->gate, mark->chunk);
    }
    pthread_mutex_unlock(&holds->lock);
    return found;
}

static void release_all(void)
{
    bool found = false;
    atomic_store(&any_failed, false);
    pthread_mutex_lock(&all_lock);
    for (wefti_holds *holds = all; holds; holds = holds->next_of_all) {
        found |= release_failed(holds);
    }
    pthread_mutex_unlock(&all_lock);
    if (found) {
        wefti_holds_note_failure();
    }
}

bool wefti_holds_may_stand(void)
{
    return atomic_load(&any_failed);
}

static size_t find_unfailed(wefti_holds *holds, weft_gate **gates_out,
                            size_t most)
{
    size_t count = 0;
    const char *text;
    pthread_mutex_lock(&holds->lock);
    for (uint64_t at = holds->first; at < holds->end && count < most; at++) {
        weft_gate *gate = get(holds, at)->mark.gate;
        if (wefti_gate_get_failure(gate, &text) == WEFT_OK) {
            wefti_gate_hold(gate);
            gates_out[count++] = gate;
        }
    }
    pthread_mutex_unlock(&holds->lock);
    return count;
}

/* A batch without marks ends by itself. */
static bool may_stand(wefti_holds *holds)
{
    pthread_mutex_lock(&holds->lock);
    const bool may = holds->end > holds->first &&
                     get(holds, holds->end - 1)->batch > get_passed(holds);
    pthread_mutex_unlock(&holds->lock);
    return may;
}

bool wefti_holds_any_of(const void *own)
{
    bool any = false;
    pthread_mutex_lock(&all_lock);
    for (wefti_holds *holds = all; holds && !any; holds = holds->next_of_all) {
        any = holds->device->own == own && may_stand(holds);
    }
    pthread_mutex_unlock(&all_lock);
    return any;
}

void wefti_holds_fail(weft_device *device, weft_status status, const char *text)
{
    weft_gate *gates[DROPS_AT_ONCE];
    size_t count;
    do {
        count = 0;
        pthread_mutex_lock(&device->holds_lock);
        for (wefti_holds *holds = device->holds; holds; holds = holds->next) {
            count += find_unfailed(holds, gates + count, DROPS_AT_ONCE - count);
        }
        pthread_mutex_unlock(&device->holds_lock);
        for (size_t i = 0; i < count; i++) {
            wefti_gate_fail(gates[i], status, text);
            wefti_gate_drop(gates[i]);
        }
    } while (count > 0);
}

/* Nothing is held, nor will the stream store anything more. */
static bool is_over(wefti_holds *holds)
{
    return holds->first == holds->end && are_passed(holds);
}

/* Takes an abandoned one that is over off the list. */
static wefti_holds *take_abandoned(weft_device *device)
{
    wefti_holds *found = NULL;
    pthread_mutex_lock(&device->holds_lock);
    for (wefti_holds **place = &device->holds; *place && !found;) {
        wefti_holds *holds = *place;
        if (holds->abandoned && is_over(holds)) {
            found = holds;
            *place = holds->next;
        } else {
            place = &holds->next;
        }
    }
    pthread_mutex_unlock(&device->holds_lock);
    return found;
}

static void unlist_locked(wefti_holds *holds)
{
    wefti_holds **place = &holds->device->holds;
    while (*place != holds) {
        place = &(*place)->next;
    }
    *place = holds->next;
}

/* What is left to pass keeps the device, whose memory the stream stores to. */
void wefti_holds_abandon(wefti_holds *holds)
{
    if (!holds) {
        return;
    }
    weft_device *device = holds->device;
    wefti_holds_pass(holds);
    pthread_mutex_lock(&device->holds_lock);
    const bool over = is_over(holds);
    if (over) {
        unlist_locked(holds);
    } else {
        wefti_device_count(device, 1);
        holds->abandoned = true;
    }
    pthread_mutex_unlock(&device->holds_lock);
    if (over) {
        free_holds(holds);
    }
    wefti_device_tend(device);
}

bool wefti_holds_are_ending(weft_device *device)
{
    bool any = false;
    pthread_mutex_lock(&device->holds_lock);
    for (wefti_holds *holds = device->holds; holds; holds = holds->next) {
        any |= holds->abandoned && holds->first == holds->end;
    }
    pthread_mutex_unlock(&device->holds_lock);
    return any;
}

void wefti_device_tend(weft_device *device)
{
    wefti_device_look(device);
    weft_gate *gates[DROPS_AT_ONCE];
    size_t count = 0;
    do {
        count = 0;
        pthread_mutex_lock(&device->holds_lock);
        wefti_holds *holds = device->holds;
        for (; holds && count == 0; holds = holds->next) {
            count = take_passed(holds, gates);
        }
        pthread_mutex_unlock(&device->holds_lock);
        for (size_t i = 0; i < count; i++) {
            wefti_gate_drop(gates[i]);
        }
    } while (count > 0);
    if (wefti_holds_may_stand()) {
        release_all();
    }
    wefti_holds *done;
    while ((done = take_abandoned(device)) != NULL) {
        free_holds(done);
        wefti_device_count(device, -1);
    }
}

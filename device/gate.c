/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/gate.c - gates: arrays of epochs that only rise.
 *
 * A signal that nobody waits for is one compare-and-swap and two loads. A
 * failed gate has all its words at the top, so that every wait is over on
 * every kind of device, and the error beside them for those who ask.
 */
#include "base/check.h"
#include "base/error.h"
#include "device/await.h"
#include "device/failure.h"
#include "device/holds.h"
#include "device/object.h"

#include <stdio.h>
#include <stdlib.h>

static weft_status check_gate(const weft_gate *gate, size_t chunk,
                              uint64_t epoch, const weft_stream *stream)
{
    if (!gate) {
        return wefti_error(WEFT_ERR_INVALID,
                           "gate is NULL: allowed is an object");
    }
    if (chunk >= gate->chunks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "chunk %zu: the gate has %zu chunks", chunk,
                           gate->chunks);
    }
    if (epoch == 0 || epoch > WEFT_EPOCH_MAX) {
        return wefti_error(WEFT_ERR_INVALID, "epoch %llu: allowed is 1 to %llu",
                           (unsigned long long)epoch,
                           (unsigned long long)WEFT_EPOCH_MAX);
    }
    if (stream && !wefti_device_is_same(stream->device, gate->device)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream of %s device %d: the gate's is %s device %d",
                           stream->device->table->kind, stream->device->index,
                           gate->device->table->kind, gate->device->index);
    }
    return WEFT_OK;
}

static weft_gate *take_spare(weft_device *device)
{
    pthread_mutex_lock(&device->spare_lock);
    weft_gate *gate = device->spare_gates;
    if (gate) {
        device->spare_gates = gate->next_spare;
    }
    pthread_mutex_unlock(&device->spare_lock);
    return gate;
}

static void put_spare(weft_gate *gate)
{
    weft_device *device = gate->device;
    pthread_mutex_lock(&device->spare_lock);
    gate->next_spare = device->spare_gates;
    device->spare_gates = gate;
    pthread_mutex_unlock(&device->spare_lock);
}

static weft_gate *make_gate(weft_device *device)
{
    weft_gate *gate = calloc(1, sizeof(*gate));
    if (gate) {
        gate->device = device;
        wefti_doorbell_init(&gate->bell);
        pthread_mutex_init(&gate->lock, NULL);
        pthread_cond_init(&gate->left, NULL);
    }
    return gate;
}

void wefti_gate_free_spares(weft_device *device)
{
    weft_gate *gate;
    while ((gate = take_spare(device)) != NULL) {
        pthread_cond_destroy(&gate->left);
        pthread_mutex_destroy(&gate->lock);
        free(gate);
    }
}

/* words: the caller's; NULL: the device gives some. */
static weft_status create(weft_device *device, _Atomic uint64_t *words,
                          size_t chunks, weft_gate **gate_out)
{
    weft_gate *gate = take_spare(device);
    if (!gate && !(gate = make_gate(device))) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a gate");
    }
    weft_status status = WEFT_OK;
    gate->words = words;
    gate->lent = words != NULL;
    if (!words) {
        status = device->table->gate_words(device, chunks, &gate->words);
    }
    if (status < 0) {
        put_spare(gate);
        return status;
    }
    atomic_store(&gate->failure, WEFT_OK);
    atomic_store(&gate->users, 1);
    gate->chunks = chunks;
    wefti_device_count(device, 1);
    *gate_out = gate;
    return WEFT_OK;
}

weft_status weft_gate_create(weft_device *device, size_t chunks,
                             weft_gate **gate_out)
{
    if (!device || !gate_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            device ? "gate_out" : "device");
    }
    if (chunks == 0) {
        return wefti_error(WEFT_ERR_INVALID, "chunks 0: allowed is 1 or more");
    }
    return create(device, NULL, chunks, gate_out);
}

weft_status wefti_gate_create_at(weft_device *device, _Atomic uint64_t *words,
                                 size_t chunks, weft_gate **gate_out)
{
    return create(device, words, chunks, gate_out);
}

bool wefti_gate_is_held(const weft_gate *gate)
{
    return atomic_load(&gate->users) > 1 + atomic_load(&gate->watched);
}

void wefti_gate_hold(weft_gate *gate)
{
    atomic_fetch_add_explicit(&gate->users, 1, memory_order_relaxed);
}

void wefti_gate_drop(weft_gate *gate)
{
    if (atomic_fetch_sub_explicit(&gate->users, 1, memory_order_acq_rel) > 1) {
        return;
    }
    weft_device *device = gate->device;
    WEFTI_ASSERT(atomic_load(&gate->watched) == 0);
    pthread_mutex_lock(&gate->lock); /* wefti_gate_fail may be at the words */
    if (!gate->lent) {
        device->table->gate_words_free(device, gate->words);
    }
    gate->words = NULL;
    gate->chunks = 0;
    pthread_mutex_unlock(&gate->lock);
    put_spare(gate);
    wefti_device_count(device, -1);
}

void weft_gate_destroy(weft_gate *gate)
{
    if (gate) {
        wefti_gate_drop(gate);
    }
}

/* Whether word has come to epoch, on the circle of 2^64. */
static bool is_at(uint64_t word, uint64_t epoch)
{
    return (int64_t)(word - epoch) >= 0;
}

void wefti_gate_raise(weft_gate *gate, size_t chunk, uint64_t epoch)
{
    /* Nothing of the words may be touched once the swap has succeeded. */
    _Atomic uint64_t *word = &gate->words[chunk];
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    while (!is_at(now, epoch)) {
        if (atomic_compare_exchange_weak(word, &now, epoch)) {
            wefti_doorbell_ring(&gate->bell);
            if (atomic_load(&gate->watched) != 0) {
                wefti_gate_call_watchers(gate);
            }
            return;
        }
    }
}

bool wefti_gate_is_flagged(const weft_gate *gate, size_t chunk)
{
    return (uint32_t)wefti_gate_get(gate, chunk) != 0;
}

bool wefti_gate_reached(const weft_gate *gate, size_t chunk, uint64_t epoch)
{
    WEFTI_ASSERT(chunk < gate->chunks);
    return is_at(atomic_load(&gate->words[chunk]), epoch) ||
           atomic_load(&gate->failure) != WEFT_OK;
}

weft_status wefti_gate_get_failure(const weft_gate *gate, const char **text_out)
{
    weft_status failure = (weft_status)atomic_load(&gate->failure);
    *text_out = failure == WEFT_OK ? "" : gate->failure_text;
    return failure;
}

static weft_status return_failure(const weft_gate *gate)
{
    const char *text;
    weft_status failure = wefti_gate_get_failure(gate, &text);
    return failure == WEFT_OK ? WEFT_OK : wefti_error(failure, "%s", text);
}

weft_status weft_gate_signal(weft_gate *gate, size_t chunk, uint64_t epoch,
                             weft_stream *stream)
{
    weft_status status = check_gate(gate, chunk, epoch, stream);
    if (status == WEFT_OK && stream) {
        const wefti_mark mark = {gate, chunk, epoch, false};
        status = stream->device->table->stream_mark(stream, &mark, 1);
    } else if (status == WEFT_OK) {
        wefti_gate_raise(gate, chunk, epoch);
    }
    return status;
}

weft_status wefti_stream_mark(weft_stream *stream, const wefti_mark *marks,
                              size_t count)
{
    WEFTI_ASSERT(count > 0 && count <= WEFTI_MARKS_MOST);
    for (size_t i = 0; i < count; i++) {
        weft_status status =
            check_gate(marks[i].gate, marks[i].chunk, marks[i].epoch, stream);
        if (status < 0) {
            return status;
        }
    }
    return stream->device->table->stream_mark(stream, marks, count);
}

/* What one host thread waits for. */
typedef struct want {
    const weft_gate *gate;
    size_t chunk;
    uint64_t epoch;
} want;

static bool is_reached(const void *arg)
{
    const want *wanted = arg;
    return wefti_gate_reached(wanted->gate, wanted->chunk, wanted->epoch);
}

weft_status weft_gate_wait(weft_gate *gate, size_t chunk, uint64_t epoch,
                           weft_stream *stream)
{
    weft_status status = check_gate(gate, chunk, epoch, stream);
    if (status < 0) {
        return status;
    }
    if (stream) {
        const wefti_mark mark = {gate, chunk, epoch, true};
        return stream->device->table->stream_mark(stream, &mark, 1);
    }
    want wanted = {gate, chunk, epoch};
    if (wefti_device_can(gate->device, WEFT_CAP_NOTIFIES)) {
        wefti_await(&gate->bell, gate->device->spins, is_reached, &wanted);
    } else {
        wefti_poll(gate->device, is_reached, &wanted);
    }
    return is_reached(&wanted) ? return_failure(gate)
                               : wefti_device_get_failure(gate->device);
}

weft_status weft_gate_test(weft_gate *gate, size_t chunk, uint64_t epoch)
{
    weft_status status = check_gate(gate, chunk, epoch, NULL);
    if (status < 0) {
        return status;
    }
    if (wefti_gate_reached(gate, chunk, epoch)) {
        return return_failure(gate);
    }
    if (!wefti_device_can(gate->device, WEFT_CAP_NOTIFIES)) {
        wefti_device_tend(gate->device); /* the caller may never wait */
    }
    status = wefti_device_get_failure(gate->device);
    return status < 0 ? status : WEFT_INPROGRESS;
}

size_t wefti_gate_get_chunks(const weft_gate *gate)
{
    return gate->chunks;
}

weft_device *wefti_gate_get_device(const weft_gate *gate)
{
    return gate->device;
}

uint64_t wefti_gate_get(const weft_gate *gate, size_t chunk)
{
    WEFTI_ASSERT(chunk < gate->chunks);
    return atomic_load(&gate->words[chunk]);
}

void wefti_gate_fail(weft_gate *gate, weft_status status, const char *text)
{
    WEFTI_ASSERT(status < 0);
    pthread_mutex_lock(&gate->lock);
    if (atomic_load(&gate->failure) == WEFT_OK) {
        snprintf(gate->failure_text, sizeof(gate->failure_text), "%s", text);
        atomic_store(&gate->failure, (int)status);
        wefti_holds_note_failure();
    }
    for (size_t chunk = 0; chunk < gate->chunks; chunk++) {
        atomic_store(&gate->words[chunk], WEFTI_GATE_FAILED);
    }
    pthread_mutex_unlock(&gate->lock);
    wefti_doorbell_ring(&gate->bell);
    if (atomic_load(&gate->watched) != 0) {
        wefti_gate_call_watchers(gate);
    }
}

bool wefti_gate_fail_again(weft_gate *gate, size_t chunk)
{
    const bool failed = atomic_load(&gate->failure) != WEFT_OK;
    if (failed) {
        atomic_store(&gate->words[chunk], WEFTI_GATE_FAILED);
    }
    return failed;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device.h - what is behind weft/device.h for the rest of weft: the one
 * table of functions that host, shadow and CUDA fill, and the hooks by which
 * the engine follows gates.
 *
 * Host and shadow streams need no thread of their own for waits and signals:
 * a stream is a queue that anyone may advance as far as it goes without
 * blocking. Who raises a gate advances the streams that stand waiting at it.
 * Only calls and copies wait for the stream's thread, started with the first
 * of them.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "weft/device.h"

#include <stdbool.h>

/* The gate that a stream stands waiting at. */
typedef struct wefti_stream_stand {
    const weft_gate *gate; /* to compare: nothing keeps it alive */
    size_t chunk;
    uint64_t epoch;
} wefti_stream_stand;

/*
 * wefti_device_table - one kind of device. All slots are set; none blocks
 * except where it says so; all may be called from any thread.
 *
 * host_reads      the host may dereference this device's memory.
 * open, close     index as in weft_device_open.
 * mem_alloc, mem_free
 * mem_owns        whether an address lies in memory from mem_alloc; asked of
 *                 kinds without host_reads only.
 * copy_now        blocks until done.
 * stream_*        create .. destroy (drains); copy, call, signal and wait
 *                 queue one item each; drain blocks and returns the first
 *                 error that work of the stream has met; stand: see
 *                 wefti_stream_get_stand.
 * gate_words      counters of chunks words that host and device both see, all
 *                 zero; gate_words_free gives them back.
 *
 * Arguments have been checked by the caller as far as they can be without
 * knowing the kind: nothing is NULL that may not be, bytes and epochs are not
 * 0, chunks are in range, the gate's device is of the same kind.
 */
typedef struct wefti_device_table {
    const char *kind;
    bool host_reads;
    weft_status (*open)(weft_device *device, int index);
    void (*close)(weft_device *device);
    weft_status (*mem_alloc)(weft_device *device, size_t bytes, void **out);
    void (*mem_free)(weft_device *device, void *pointer);
    bool (*mem_owns)(weft_device *device, const void *pointer);
    weft_status (*copy_now)(weft_device *device, void *dst, const void *src,
                            size_t bytes);
    weft_status (*stream_create)(weft_device *device, int priority,
                                 weft_stream **out);
    void (*stream_destroy)(weft_stream *stream);
    weft_status (*stream_copy)(weft_stream *stream, void *dst, const void *src,
                               size_t bytes);
    weft_status (*stream_call)(weft_stream *stream, void (*call)(void *),
                               void *arg);
    weft_status (*stream_signal)(weft_stream *stream, weft_gate *gate,
                                 size_t chunk, uint64_t epoch);
    weft_status (*stream_wait)(weft_stream *stream, weft_gate *gate,
                               size_t chunk, uint64_t epoch);
    weft_status (*stream_drain)(weft_stream *stream);
    bool (*stream_stand)(weft_stream *stream, wefti_stream_stand *out);
    weft_status (*gate_words)(weft_device *device, size_t chunks,
                              _Atomic uint64_t **out);
    void (*gate_words_free)(weft_device *device, _Atomic uint64_t *words);
} wefti_device_table;

/* The kinds this build knows, ended by NULL. To add one, add it here. */
extern const wefti_device_table *const wefti_device_tables[];
extern const wefti_device_table wefti_device_host;
extern const wefti_device_table wefti_device_shadow;

const wefti_device_table *wefti_device_get_table(const weft_device *device);
weft_device *wefti_stream_get_device(const weft_stream *stream);

/* Whether the stream stands waiting at a gate now, and at which. */
bool wefti_stream_get_stand(weft_stream *stream, wefti_stream_stand *stand_out);

/*
 * wefti_device_owns - whether pointer is memory of this device that the host
 * must not touch. False for a NULL device and for host_reads devices.
 */
bool wefti_device_owns(weft_device *device, const void *pointer);

/*
 * wefti_shadow_translate - where the shadow device itself finds the memory of
 * a device pointer; other pointers come back as they are. For tests whose
 * stream calls play the part of GPU kernels: no code of weft may use it.
 */
void *wefti_shadow_translate(weft_device *device, void *pointer);

/*
 * wefti_gate_watcher - call woken(context) after each signal that raises a
 * gate, in the signalling thread; it must be short and may not block.
 *
 * Who watches looks at the gate once more after watch has returned: a signal
 * from before then may not have called. Watchers of a gate with the same
 * woken and context are called once for all of them. Calls may come from
 * several threads at once, and may come without cause.
 *
 * Memory is the caller's and zeroed but for woken and context. A watcher is at
 * one gate at a time, there as often as it was watched: n watches need n
 * unwatches. The last unwatch returns when no call for it is running in
 * another thread, so the caller may hold nothing that woken needs; it may be
 * made from inside woken itself. After it the memory is free.
 */
typedef struct wefti_gate_watcher {
    struct wefti_gate_watcher *next;
    void (*woken)(void *context);
    void *context;
    size_t watches;
} wefti_gate_watcher;

void wefti_gate_watch(weft_gate *gate, wefti_gate_watcher *watcher);
void wefti_gate_unwatch(weft_gate *gate, wefti_gate_watcher *watcher);

size_t wefti_gate_get_chunks(const weft_gate *gate);
weft_device *wefti_gate_get_device(const weft_gate *gate);

/*
 * wefti_device_abandon - close, now or when the last thing made from the device
 * is gone. No call on the device itself may follow.
 */
void wefti_device_abandon(weft_device *device);

/* The chunk's counter now. No locks, no side effects. */
uint64_t wefti_gate_get(const weft_gate *gate, size_t chunk);

/*
 * wefti_gate_fail - release everyone who waits at the gate, now and later,
 * with an error: host waits return it, streams go on and keep it as theirs.
 * text is copied: it is what weft_error_text() then says. The first stays.
 */
void wefti_gate_fail(weft_gate *gate, weft_status status, const char *text);

#endif

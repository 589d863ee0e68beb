/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/device.h - memory, streams, events and gates, on whatever computes.
 *
 * A stream is an in-order queue. An event says that work already queued on a
 * stream has finished. A gate ties chunks of a buffer to whoever makes and
 * whoever uses them: an array of 64-bit counters ("epochs") that host, stream
 * and fabric can all raise and all wait for, also before anyone has raised
 * them.
 *
 *      producer                       gate[c]                  consumer
 *   compute chunk c --signal(c, e)-->    e    --wait(c, e)--> send chunk c
 *
 * A NULL stream everywhere means "the calling thread, here and now".
 */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weft_device weft_device;
typedef struct weft_stream weft_stream;
typedef struct weft_event weft_event;
typedef struct weft_gate weft_gate;

/*
 * weft_device_open - take a device into use.
 *
 * kind    "host": ordinary memory, streams are threads of this process.
 *         "shadow": the same, but its memory faults when the host touches it,
 *         as a GPU's would: for tests of code that must not assume otherwise.
 * index   which one of that kind; 0 for host and shadow.
 *
 * Returns     OK | ERR_INVALID (no such kind or index) | ERR_NO_MEMORY.
 * Threads     any.  Blocks: no.  Allocates: the device; close with
 *             weft_device_close after everything made from it is gone.
 */
WEFT_NODISCARD weft_status weft_device_open(const char *kind, int index,
                                            weft_device **device_out);

/*
 * weft_device_close - give it back; while anything made from the device still
 * exists, this logs an error and closes nothing. NULL is legal.
 */
void weft_device_close(weft_device *device);

/*
 * weft_device_alloc - memory of the device, at least 64-byte aligned.
 *
 * bytes   0 gives a pointer that may be freed and not dereferenced.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.  Threads: any.
 */
WEFT_NODISCARD weft_status weft_device_alloc(weft_device *device, size_t bytes,
                                             void **pointer_out);
void weft_device_free(weft_device *device, void *pointer); /* NULL is legal */

/*
 * weft_device_copy - bytes from anywhere to anywhere: host or this device.
 *
 * dst, src   not overlapping; borrowed until the copy has run.
 * stream     runs after work already queued on it; NULL = done on return.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY, ERR_SYSTEM (as for
 *             weft_stream_call).  Threads: any.  Blocks: only if stream is
 *             NULL.
 */
WEFT_NODISCARD weft_status weft_device_copy(weft_device *device, void *dst,
                                            const void *src, size_t bytes,
                                            weft_stream *stream);

/*
 * weft_stream_create - a new in-order queue on the device.
 *
 * priority   lower runs first where the device can tell; 0 = ordinary.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 * Threads     one poster per stream at a time.
 */
WEFT_NODISCARD weft_status weft_stream_create(weft_device *device, int priority,
                                              weft_stream **stream_out);
void weft_stream_destroy(weft_stream *stream); /* drains first; NULL is legal */

/*
 * weft_stream_call - run a host function in stream order.
 *
 * call, arg   borrowed until it has run; it may block, and may not post to or
 *             wait for its own stream.
 *
 * Returns     OK | ERR_INVALID | ERR_UNSUPPORTED (device without host streams)
 *             | ERR_NO_MEMORY (the queue could not grow) | ERR_SYSTEM (its
 *             thread could not be started); nothing was queued.
 */
WEFT_NODISCARD weft_status weft_stream_call(weft_stream *stream,
                                            void (*call)(void *arg), void *arg);

/*
 * weft_stream_wait - block until everything queued so far has run.
 *
 * Returns     OK | the first error of the stream's work, with its text: of an
 *             operation that failed, the communicator's fault, rank and
 *             operation named (the stream has drained, the work behind the
 *             failed wait has run without it; the error stays for the stream's
 *             life) | ERR_INVALID (called from a weft_stream_call of this
 *             stream).
 * Blocks      yes, as long as the work does.
 */
WEFT_NODISCARD weft_status weft_stream_wait(weft_stream *stream);

/*
 * Events. One that was never posted counts as happened.
 *
 * weft_event_create   an event for streams of the device.
 * weft_event_destroy  not while posted; NULL is legal.
 * weft_event_post     marks the end of what is queued on stream now (NULL: it
 *                     happens at once).
 * weft_event_test     whether it has happened.
 * weft_event_wait     makes stream (NULL: the caller) wait for the latest post
 *                     at that time, whatever is posted later.
 *
 * Returns     OK | INPROGRESS (test: not yet) | ERR_INVALID (something is
 *             NULL, or a stream is of another kind) | ERR_NO_MEMORY (create;
 *             the stream's queue could not grow).
 * Threads     any.  Blocks: wait, if stream is NULL.
 */
WEFT_NODISCARD weft_status weft_event_create(weft_device *device,
                                             weft_event **event_out);
void weft_event_destroy(weft_event *event);
WEFT_NODISCARD weft_status weft_event_post(weft_event *event,
                                           weft_stream *stream);
WEFT_NODISCARD weft_status weft_event_test(weft_event *event);
WEFT_NODISCARD weft_status weft_event_wait(weft_event *event,
                                           weft_stream *stream);

/*
 * weft_gate_create - one counter for each of chunks, all 0.
 *
 * One gate serves one tensor for its whole life: every step uses the next
 * epoch, nothing is reset, nothing allocated.
 *
 * Returns     OK | ERR_INVALID (chunks is 0) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status weft_gate_create(weft_device *device, size_t chunks,
                                            weft_gate **gate_out);
/*
 * weft_gate_destroy - nobody may wait or signal any more; a signaller whose
 * epoch has been waited for may still be on its way out. NULL is legal.
 */
void weft_gate_destroy(weft_gate *gate);

/*
 * weft_gate_signal - raise a chunk's counter to epoch; lower values are kept
 * from going backwards (an older epoch changes nothing).
 *
 * stream   after the work queued on it, of a device of the gate's kind; NULL =
 *          now. What the signaller wrote before is visible to whoever has
 *          waited for the epoch.
 *
 * Returns     OK | ERR_INVALID (chunk out of range, epoch 0, stream of another
 *             kind) | ERR_NO_MEMORY (the stream's queue could not grow).
 * Threads     any.  Blocks: no.  Allocates: only to let a queue grow.
 */
WEFT_NODISCARD weft_status weft_gate_signal(weft_gate *gate, size_t chunk,
                                            uint64_t epoch,
                                            weft_stream *stream);

/*
 * weft_gate_wait - go on when the chunk's counter is at least epoch.
 *
 * stream   work queued later waits; NULL = the caller blocks. Legal before
 *          anyone has signalled.
 *
 * Returns     OK | ERR_INVALID, ERR_NO_MEMORY (as for weft_gate_signal) | with
 *             a NULL stream also the error the gate was released with (its
 *             communicator has failed).
 * Threads     any.  Blocks: only if stream is NULL.  Allocates: as signal.
 */
WEFT_NODISCARD weft_status weft_gate_wait(weft_gate *gate, size_t chunk,
                                          uint64_t epoch, weft_stream *stream);

/*
 * weft_gate_test - like wait, but says INPROGRESS instead of blocking.
 *
 * Returns     OK | INPROGRESS | ERR_INVALID | the error the gate was released
 *             with.  Threads: any.  Blocks: no.  Allocates: no.
 */
WEFT_NODISCARD weft_status weft_gate_test(weft_gate *gate, size_t chunk,
                                          uint64_t epoch);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

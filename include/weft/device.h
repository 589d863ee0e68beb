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
 *
 * The rules of gates are those that a GPU can keep:
 *
 *   - Epochs are 1 to WEFT_EPOCH_MAX and compared cyclically: a wait for e is
 *     over when (int64_t)(counter - e) >= 0.
 *   - A chunk has one signaller at a time, whose epochs rise. A device's signal
 *     is a plain store, which could not tell an older epoch from a newer one.
 *   - A gate that has failed (its communicator has) lets every wait pass, and
 *     the error is found beside it: host waits return it, a stream keeps it for
 *     weft_stream_wait().
 *   - A device whose stores notify nobody (no WEFT_CAP_NOTIFIES) is looked at
 *     by host threads that wait for it: for about a millisecond all the time,
 *     then in short slices.
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

/* The last epoch of a gate. */
#define WEFT_EPOCH_MAX (((uint64_t)1 << 62) - 1)

/* What a device can do: bits of weft_device_get_caps. */
enum {
    WEFT_CAP_HOST_READS = 1, /* the host may access all of its memory */
    WEFT_CAP_NOTIFIES = 2,   /* its streams' signals wake host threads */
    WEFT_CAP_HOST_CALLS = 4, /* weft_stream_call */
    WEFT_CAP_TIMES = 8,      /* weft_event_get_time */
    WEFT_CAP_IPC = 16,       /* weft_device_export and _import */
    WEFT_CAP_SM_BUDGET = 32, /* weft_stream_config.sm_budget */
    WEFT_CAP_LAUNCHES = 64   /* it runs weft's own kernels */
};

/* Where memory is, and who reaches it. */
typedef enum weft_memory_kind {
    WEFT_MEMORY_HOST = 0,   /* ordinary memory of the process */
    WEFT_MEMORY_PINNED = 1, /* the host's; the device reaches it by itself */
    WEFT_MEMORY_DEVICE = 2, /* the device's */
    WEFT_MEMORY_EXPORTABLE = 3, /* the device's, to be given away by a file
                                   descriptor: weft_device_export */
    WEFT_MEMORY_MANAGED = 4     /* moved by the driver; only ever asked about */
} weft_memory_kind;

/*
 * weft_device_open - take a device into use.
 *
 * kind    "host": ordinary memory, streams are threads of this process.
 *         "cuda": a GPU, by the order of the CUDA driver, which is opened now.
 *         "shadow": for tests of code that must not assume a host: its memory
 *         faults when the host touches it, its streams run late and in random
 *         order to each other, its signals notify nobody.
 * index   which one of that kind: 0 for host, 0 or 1 for shadow. What is opened
 *         twice is the same device, with two users: objects of one are the
 *         other's as well.
 *
 * Returns     OK | ERR_INVALID (no such kind or index; WEFT_KERNELS names no
 *             file) | ERR_UNSUPPORTED (no driver, or one that is too old; the
 *             text says which) | ERR_SYSTEM (the driver refused, in its words;
 *             the file with the kernels for GPUs is damaged) | ERR_NO_MEMORY.
 * Threads     any.  Blocks: cuda may wait for what the program has queued on
 *             the GPU (its kernels are loaded).  Allocates: the device; close
 *             with weft_device_close after everything made from it is gone.
 */
WEFT_NODISCARD weft_status weft_device_open(const char *kind, int index,
                                            weft_device **device_out);

/*
 * weft_device_close - give it back, as often as it was opened; the last time,
 * while anything made from it still exists, this logs an error and closes
 * nothing. NULL is legal. Blocks, the last time: until streams that were
 * wrapped have come past what was queued on them, 10 s at most.
 */
void weft_device_close(weft_device *device);

/* weft_device_get_caps - what it can do, bits of WEFT_CAP_*. */
uint32_t weft_device_get_caps(const weft_device *device);

/*
 * weft_device_alloc - memory of the device, at least 64-byte aligned.
 *
 * bytes   0 gives a pointer that may be freed and not dereferenced.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.  Threads: any.
 */
WEFT_NODISCARD weft_status weft_device_alloc(weft_device *device, size_t bytes,
                                             void **pointer_out);

/*
 * weft_device_free - gives it back; nothing queued may use it. NULL is legal.
 *
 * Blocks: not on weft's gates; cuda may wait for what a program has queued
 * beside weft. While streams stand at gates, or graphs with weft's operations
 * exist, cuda keeps the memory, and gives it back later.
 */
void weft_device_free(weft_device *device, void *pointer);

/*
 * weft_device_alloc_kind - memory of a kind; weft_device_free gives it back.
 *
 * kind    WEFT_MEMORY_PINNED, _DEVICE or _EXPORTABLE. Pinned memory is the
 *         host's own, and copies between it and the device run beside all else.
 *
 * Returns     OK | ERR_INVALID | ERR_UNSUPPORTED (exportable memory, of a
 *             device without) | ERR_NO_MEMORY.  Threads: any.
 */
WEFT_NODISCARD weft_status weft_device_alloc_kind(weft_device *device,
                                                  weft_memory_kind kind,
                                                  size_t bytes,
                                                  void **pointer_out);

/* What a pointer points to. */
typedef struct weft_pointer {
    size_t size_bytes; /* set by the caller */
    weft_memory_kind kind;
    int index;    /* of the device; -1: host memory that none knows */
    void *base;   /* of the allocation that it lies in; NULL: unknown */
    size_t bytes; /* of that */
    uint64_t id;  /* of that: the same address has another after it was freed
                     and allocated again; 0: unknown */
} weft_pointer;

/*
 * weft_device_query - what pointer points to, wherever it comes from: memory
 * that weft has never seen is known as well as its own.
 *
 * pointer_out   size_bytes is set by the caller.
 *
 * Returns     OK (also of pointers that nobody knows: they are HOST) |
 *             ERR_INVALID | ERR_SYSTEM.  Threads: any.  Blocks: no.
 */
WEFT_NODISCARD weft_status weft_device_query(weft_device *device,
                                             const void *pointer,
                                             weft_pointer *pointer_out);

/*
 * weft_device_register    make host memory that is there already PINNED.
 * weft_device_unregister  end that; nobody may be using it on the device then.
 *
 * Returns     OK | ERR_INVALID (also what is registered already) |
 *             ERR_UNSUPPORTED (memory that can not be pinned) | ERR_NO_MEMORY |
 *             ERR_SYSTEM.  Threads: any.
 */
WEFT_NODISCARD weft_status weft_device_register(weft_device *device,
                                                void *pointer, size_t bytes);
void weft_device_unregister(weft_device *device, void *pointer);

/* A way to memory for other processes of this host: plain bytes, and for
 * EXPORTABLE memory a file descriptor (else -1), which travels by SCM_RIGHTS
 * and which its receiver puts in here. */
typedef struct weft_export {
    size_t size_bytes; /* set by the caller */
    size_t offset;     /* of the pointer in its allocation */
    size_t bytes;      /* of the allocation */
    int32_t index;     /* of the exporter's device */
    int32_t process;   /* the exporter's */
    int32_t descriptor;
    unsigned char handle[64];
} weft_export;

/*
 * weft_device_export    let other processes reach the allocation that pointer
 *                       lies in. It must stay until they have closed it.
 *                       export_out->descriptor is the caller's to close.
 * weft_device_import    the same place, as this process sees it.
 * weft_device_unimport  gives back what was imported; nothing may use it then.
 *
 * Returns     OK | ERR_INVALID (not the device's memory; an import by the
 *             process that exported it) | ERR_UNSUPPORTED (no WEFT_CAP_IPC, or
 *             memory that the driver does not share) | ERR_NO_MEMORY |
 *             ERR_SYSTEM.  Threads: any.
 */
WEFT_NODISCARD weft_status weft_device_export(weft_device *device,
                                              const void *pointer,
                                              weft_export *export_out);
WEFT_NODISCARD weft_status weft_device_import(weft_device *device,
                                              const weft_export *given,
                                              void **pointer_out);
void weft_device_unimport(weft_device *device, void *pointer);

/*
 * weft_device_copy - bytes from anywhere to anywhere: host or this device.
 *
 * dst, src   not overlapping; borrowed until the copy has run.
 * stream     runs after work already queued on it; NULL = done on return.
 *
 * Returns     OK | ERR_INVALID (also beyond the end of an allocation that the
 *             device knows) | ERR_UNSUPPORTED (the stream is being captured,
 *             and the copy takes the host) | ERR_NO_MEMORY, ERR_SYSTEM
 *             (as for weft_stream_call; the device has failed).
 * Threads     any.  Blocks: only if stream is NULL.
 */
WEFT_NODISCARD weft_status weft_device_copy(weft_device *device, void *dst,
                                            const void *src, size_t bytes,
                                            weft_stream *stream);

/*
 * weft_stream_create - a new in-order queue on the device.
 *
 * priority   lower runs first where the device can tell; 0 = ordinary.
 * A cuda stream has some 900 operations out at most (docs/gpu.md): what queues
 * one more blocks until it has done some, also where its comment says no.
 *
 * Returns     OK | ERR_INVALID | ERR_NO_MEMORY.
 * Threads     one poster per stream at a time.
 */
WEFT_NODISCARD weft_status weft_stream_create(weft_device *device, int priority,
                                              weft_stream **stream_out);

/* What a stream is asked to be. Zeros are what weft_stream_create gives. */
typedef struct weft_stream_config {
    size_t size_bytes; /* set by the caller */
    int priority;
    int sm_budget; /* multiprocessors that its kernels may keep busy at most,
                      rounded down to what the device can part; 0: all. Copies
                      use none. */
    void *native;  /* a queue that is there already (a CUstream) to post to; it
                      stays its owner's. Not with priority or sm_budget. */
} weft_stream_config;

/*
 * weft_stream_create_as  a stream as config says.
 * weft_stream_wrap       a stream that posts to a native queue of the device.
 *
 * Returns     OK | ERR_INVALID (also a budget below the least the device can
 *             part, named) | ERR_UNSUPPORTED (the device has no budgets, no
 *             native queues) | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status
weft_stream_create_as(weft_device *device, const weft_stream_config *config,
                      weft_stream **stream_out);
WEFT_NODISCARD weft_status weft_stream_wrap(weft_device *device, void *native,
                                            weft_stream **stream_out);

/*
 * weft_stream_get_native  the CUstream behind it, for kernels of the program's
 *                         own; NULL where there is none.
 * weft_stream_get_sms     the multiprocessors that its kernels have; 0 where
 *                         the device has none to count.
 */
void *weft_stream_get_native(const weft_stream *stream);
int weft_stream_get_sms(const weft_stream *stream);

/* Drains it first, unless it was wrapped; NULL is legal. */
void weft_stream_destroy(weft_stream *stream);

/*
 * weft_stream_call - run a host function in stream order.
 *
 * call, arg   borrowed until it has run; it may block, and may not post to or
 *             wait for its own stream.
 *
 * Returns     OK | ERR_INVALID | ERR_UNSUPPORTED (no WEFT_CAP_HOST_CALLS)
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
 * weft_event_get_time  when the latest post happened, in nanoseconds of
 *                     CLOCK_MONOTONIC: as the device measured it, not when
 *                     somebody looked.
 *
 * Returns     OK | INPROGRESS (test, get_time: not yet) | ERR_INVALID
 * (something is NULL, a stream is of another device, get_time: never posted) |
 *             ERR_UNSUPPORTED (get_time without WEFT_CAP_TIMES) | ERR_NO_MEMORY
 *             (create; the stream's queue could not grow) | ERR_SYSTEM (the
 *             device has failed).
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
WEFT_NODISCARD weft_status weft_event_get_time(weft_event *event,
                                               int64_t *ns_out);

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
 * weft_gate_signal - raise a chunk's counter to epoch. An older epoch changes
 * nothing where the host signals, and is an error that nobody sees where a
 * stream does: epochs rise.
 *
 * stream   after the work queued on it, of the gate's own device; NULL = now.
 *          What the signaller wrote before is visible to whoever has waited for
 *          the epoch.
 *
 * Returns     OK | ERR_INVALID (chunk out of range, epoch not 1 to
 *             WEFT_EPOCH_MAX, stream of another device) | ERR_UNSUPPORTED (the
 *             stream is being captured) | ERR_NO_MEMORY (the stream's queue
 *             could not grow) | ERR_SYSTEM (the device has failed).
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
 * Returns     OK | ERR_INVALID, ERR_UNSUPPORTED, ERR_NO_MEMORY, ERR_SYSTEM (as
 *             for weft_gate_signal) | with a NULL stream also the error the
 *             gate was released with (its communicator has failed).
 * Threads     any.  Blocks: only if stream is NULL.  Allocates: as signal.
 */
WEFT_NODISCARD weft_status weft_gate_wait(weft_gate *gate, size_t chunk,
                                          uint64_t epoch, weft_stream *stream);

/*
 * weft_gate_test - like wait, but says INPROGRESS instead of blocking.
 *
 * Returns     OK | INPROGRESS | ERR_INVALID | ERR_SYSTEM (the device failed) |
 *             the error the gate was released with.  Threads: any.  Blocks: no.
 *             Allocates: no.
 */
WEFT_NODISCARD weft_status weft_gate_test(weft_gate *gate, size_t chunk,
                                          uint64_t epoch);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/object.h - what the opaque names of weft/device.h stand for; seen by
 * this folder only.
 *
 * The generic half (device.c, memory.c, stream.c, event.c, gate.c, watch.c,
 * await.c) checks arguments, keeps watchers and lets host threads wait; it
 * knows streams only through the table. A kind keeps its own things behind
 * weft_device.own, and in structs that begin with a weft_stream or weft_event.
 * What streams of the host's own share is host_stream.c and host_event.c; what
 * those share that a device runs is holds.c.
 */
#ifndef DEVICE_OBJECT_H
#define DEVICE_OBJECT_H

#include "base/doorbell.h"
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

struct weft_device {
    const wefti_device_table *table;
    int index;
    uint32_t caps;
    bool spins; /* waiting threads may spin: there are several CPUs */
    void *own;  /* the kind's state */

    weft_device *next; /* among those that are open */
    size_t opened;     /* how often */
    pid_t process;     /* that opened it */

    pthread_mutex_t copies_lock; /* guards copies */
    weft_stream *copies; /* of copies without a stream; NULL: none yet */

    pthread_mutex_t holds_lock; /* guards holds */
    struct wefti_holds *holds;  /* of streams that the device runs by itself */
    _Atomic int failure;        /* of the device itself: device/failure.h */
    char failure_text[256];     /* written before failure, under holds_lock */
    _Atomic int64_t looked_ns;  /* when it was last asked */

    /* Allocations, streams, events, gates alive; the top bit: abandoned. The
     * subtraction that leaves nothing pairs with all before it. */
    _Atomic size_t objects;
    pthread_mutex_t spare_lock; /* guards spare_gates */
    weft_gate *spare_gates;     /* destroyed, kept for the next create */
};

struct weft_stream {
    weft_device *device;
};

/* pending and lock are the generic half's: the latest post was on a stream. */
struct weft_event {
    weft_device *device;
    pthread_mutex_t lock;
    bool pending, posted;
    int64_t now_ns; /* when it was posted without a stream */
};

/* One pass of a signaller over the watchers, on its stack; see watch.c. */
typedef struct wefti_gate_pass wefti_gate_pass;

/*
 * A gate lives until its owner has destroyed it and no stream holds a signal
 * or wait of it any more (users: every decrement is a release, the last one an
 * acquire). Its own memory is given back only when its device closes: who waits
 * for an epoch may destroy the gate as soon as it sees it, while the signaller
 * still looks for sleepers and watchers. All that such a straggler touches is
 * atomic or under the lock, and says "nobody" in a spare gate.
 *
 * Signaller                          Waiter or watcher
 *   raise the word to epoch            sleepers + 1, or watched + 1
 *   look at sleepers and watched       look at the word
 * all seq_cst: one of the two sees the other. The swap that raises a word is
 * also the release, and the look at it the acquire, of what the signaller wrote
 * before; failure is stored before the words rise, and loaded after.
 */
struct weft_gate {
    weft_device *device;
    size_t chunks;           /* 0: destroyed */
    _Atomic size_t users;    /* its owner, and streams and watchers */
    _Atomic uint64_t *words; /* shared with the device */
    bool lent;              /* by who made the gate; see wefti_gate_create_at */
    _Atomic int failure;    /* weft_status; written before the words rise */
    char failure_text[256]; /* written before failure, under the lock */
    wefti_doorbell bell;    /* host threads that sleep until a signal */
    _Atomic size_t watched; /* length of watchers; signallers peek at it */
    pthread_mutex_t lock;   /* guards all below */
    pthread_cond_t left;    /* a pass has returned from a watcher */
    wefti_gate_watcher *watchers;
    wefti_gate_pass *passes;
    weft_gate *next_spare;
};

/* Gives back what weft_gate_destroy() keeps; when the device closes. */
void wefti_gate_free_spares(weft_device *device);

/* Counts an object of the device in (+1) or out (-1); see weft_device_close. */
void wefti_device_count(weft_device *device, int change);

/*
 * wefti_gate_raise - what a signal does, arguments known to be good: raises
 * the word, wakes host waiters and calls the watchers.
 */
void wefti_gate_raise(weft_gate *gate, size_t chunk, uint64_t epoch);

/* A stream or a watcher holds the gate, and holds it no more. */
void wefti_gate_hold(weft_gate *gate);
void wefti_gate_drop(weft_gate *gate);

/* If the gate has failed: lets the chunk's waits pass again, and is true. */
bool wefti_gate_fail_again(weft_gate *gate, size_t chunk);

/* Calls the watchers of the gate. Blocks: no, beyond what they do. */
void wefti_gate_call_watchers(weft_gate *gate);

#endif

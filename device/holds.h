/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/holds.h - what a stream that a device runs by itself still holds.
 *
 * The host learns how far such a stream has come from a word that the stream
 * stores to behind each batch of marks. Up to there gates are let go, and waits
 * at gates that have failed become the stream's error.
 *
 *      passed (the device's word)          end
 *        v                                  v
 *   ... | signal A | wait B | | wait C | |
 *
 * All of a device's are listed in it, because whoever waits for one stream may
 * have to release another: a signal that was queued before a gate failed may
 * have overwritten the word since.
 */
#ifndef DEVICE_HOLDS_H
#define DEVICE_HOLDS_H

#include "device/device.h"

#include <pthread.h>

/* A mark, and the batch it belongs to. */
typedef struct wefti_hold {
    wefti_mark mark;
    uint64_t batch;
} wefti_hold;

typedef struct wefti_holds {
    struct wefti_holds *next; /* of the device */
    struct wefti_holds *next_of_all;
    weft_device *device;
    const weft_stream *stream; /* to compare */
    _Atomic uint64_t *passed;  /* what the stream stores: number of a batch */
    pthread_mutex_t lock;      /* guards what follows */
    wefti_hold *ring;          /* [capacity], a power of two */
    size_t capacity;
    uint64_t first, end; /* marks ever let go, and ever added */
    uint64_t batches;    /* number of the last batch */
    bool abandoned;
    weft_status error;    /* the first */
    char error_text[256]; /* of that one */
} wefti_holds;

WEFT_NODISCARD weft_status wefti_holds_create(weft_device *device,
                                              const weft_stream *stream,
                                              wefti_holds **holds_out);

/* Gives it up: freed now, or by whoever looks when the stream has passed all
 * that it holds. NULL is legal. */
void wefti_holds_abandon(wefti_holds *holds);

/*
 * wefti_holds_add - note marks before they are queued; *batch_out is what the
 * stream must store into passed behind them.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_holds_add(wefti_holds *holds,
                                           const wefti_mark *marks,
                                           size_t count, uint64_t *batch_out);

/* The last batch, which has not been queued after all. */
void wefti_holds_cancel(wefti_holds *holds);

/* Lets go of what the stream has passed. */
void wefti_holds_pass(wefti_holds *holds);

/* Whether any stream of a GPU (weft_device.own) has marks that it has not: it
 * may stand. */
bool wefti_holds_any_of(const void *own);

/* Whether one that was given up holds nothing but has yet to be passed. */
bool wefti_holds_are_ending(weft_device *device);

/* OK, or the first error, which becomes this thread's. */
weft_status wefti_holds_get_error(wefti_holds *holds);

/* The table's stream_stand: of those of the device that are not given up. */
bool wefti_holds_find_stand(weft_device *device, weft_stream *stream,
                            wefti_stream_stand *out);

/* Fails all gates that streams of the device still hold: what was to raise them
 * will not, and the threads that wait at them return the error. */
void wefti_holds_fail(weft_device *device, weft_status status,
                      const char *text);

/* A gate has failed: waits at it may have to be released again. */
void wefti_holds_note_failure(void);

/* Whether any may: each look at a device is then one at all that is queued. */
bool wefti_holds_may_stand(void);

/* Lets go of what streams of the device have passed, and releases again the
 * waits of all devices at gates that have failed. Called by whatever waits for
 * or tests what a device does that does not notify, each time it looks. */
void wefti_device_tend(weft_device *device);

#endif

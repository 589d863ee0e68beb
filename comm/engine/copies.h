/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/copies.h - copies between a device's memory and the host's
 * staging, for a communicator whose device has memory that the host must not
 * touch.
 *
 *   engine's lock held               not held                       held
 *   wefti_copies_ask --> requests --> wefti_copies_hand_over --> wefti_copies_
 *                                     stream: copy, raise copied      are_done
 *
 * Nothing of a device is called under the lock, so a copy is asked for there
 * and given to a stream by the thread that gives the lock back
 * (wefti_engine_unlock). Two streams, one for what is fetched and one for what
 * is stored, keep both directions busy; they never wait for a gate, so what
 * they have been given ends by itself.
 *
 * Each list of an operation has three places, each for one copy at a time:
 * two fetches, of which one runs ahead, and a store. Two more are for memory
 * that peers write into: what this rank puts, and what peers put by messages.
 */
#ifndef COMM_ENGINE_COPIES_H
#define COMM_ENGINE_COPIES_H

#include "comm/core/core.h"

enum {
    WEFTI_COPY_FETCHES = 2, /* ways 0 and 1 of a list */
    WEFTI_COPY_STORE = 2,
    WEFTI_COPY_WAYS = 3
};

typedef struct wefti_copies wefti_copies;

/*
 * wefti_copies_create - what comm, which is being made, needs for copies; none
 * (and comm->copies stays NULL) where the host reads all of its device's
 * memory. The staging that copies touch is made known to the device; what it
 * refuses is named in the log once and copied all the same. create_late: device
 * becomes comm's, which may be at work for host memory; without the engine's
 * lock.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM | ERR_INVALID (sm_budget is below
 *             what the device can part): nothing has changed; destroy is legal
 *             after all.
 */
WEFT_NODISCARD weft_status wefti_copies_create(weft_comm *comm);
WEFT_NODISCARD weft_status wefti_copies_create_late(weft_comm *comm,
                                                    weft_device *device);
void wefti_copies_destroy(weft_comm *comm);

/* Makes a mapping known to comm's device, or unknown again; where it needs not
 * be, nothing happens. Without the lock. */
void wefti_copies_pin(weft_comm *comm, wefti_mapping *mapping);
void wefti_copies_unpin(weft_comm *comm, wefti_mapping *mapping);

/* The place of a list's copy, and those of what this rank puts into a weft_mem
 * and of what it stores for a peer that has put it there. */
size_t wefti_copy_place(const weft_comm *comm, const wefti_op *op,
                        const wefti_step_list *list, int way);
size_t wefti_copy_place_of_mem(const weft_comm *comm, bool stored);
void *wefti_copies_get_bounce(const weft_comm *comm); /* of puts; one message */

/* A copy that place has to make; it has none under way. Lock held. */
void wefti_copies_ask(weft_comm *comm, size_t place, void *dst, const void *src,
                      size_t bytes);

/*
 * wefti_copies_run - one copy here and now, by a stream of comm's copies, while
 * comm has nothing under way. Without the lock.
 *
 * Returns     OK | as weft_device_copy, weft_stream_wait.
 */
WEFT_NODISCARD weft_status wefti_copies_run(weft_comm *comm, void *dst,
                                            const void *src, size_t bytes);

/* Whether place has nothing under way; if it has, the engine looks again. That
 * of a device that has failed fails the communicator. Lock held. */
bool wefti_copies_are_done(weft_comm *comm, size_t place);

/* Whether the device has nothing of the place any more. Lock held. */
bool wefti_copies_is_over(const weft_comm *comm, size_t place);

/*
 * wefti_copies_hand_over - give what has been asked for to the streams, of all
 * communicators of the engine, in the order of asking. The lock is held, and
 * given back meanwhile. What a device refuses fails the communicator.
 */
void wefti_copies_hand_over(wefti_engine *engine);

/*
 * wefti_copies_look - ask each device of the engine's whether it has failed,
 * not more often than is cheap: nothing else would end what waits for one. The
 * lock is held, and given back meanwhile.
 */
void wefti_copies_look(wefti_engine *engine);

/* Until no thread is at the device for comm, which no list holds any more: as
 * long as a call of the driver. Lock held, and let go meanwhile. */
void wefti_copies_await_hands(weft_comm *comm);

/* Forgets what has not been handed over. Lock held. */
void wefti_copies_drop(weft_comm *comm);

/* Whether nothing is asked for, nor under way; and whether at least no thread
 * is between the lock and a stream. Lock held. */
bool wefti_copies_are_over(weft_comm *comm);
bool wefti_copies_are_handed(const weft_comm *comm);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/engine.h - the one place where operations move: a rank's engine
 * in one job, of all communicators there, pushed by the rank's progress thread
 * (comm/engine/driver.h), by the thread that waits, or by one that signals.
 */
#ifndef COMM_ENGINE_ENGINE_H
#define COMM_ENGINE_ENGINE_H

#include "comm/core/wake.h"

WEFT_NODISCARD weft_status wefti_engine_create(wefti_engine **engine_out);
void wefti_engine_retain(wefti_engine *engine);
void wefti_engine_release(wefti_engine *engine); /* the last one ends it */

/*
 * wefti_engine_start - from now on a thread drives stream operations.
 * Idempotent.
 *
 * Returns     OK | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_engine_start(wefti_engine *engine);

/*
 * wefti_engine_unlock - give the lock back, and copies that were asked for to
 * their devices: after whatever may have pushed operations. _settle: the same,
 * but the lock, by who comes back at once.
 */
void wefti_engine_unlock(wefti_engine *engine);
void wefti_engine_settle(wefti_engine *engine);

/* Pushes all operations once. Lock held. Returns whether anything moved. */
bool wefti_engine_push(wefti_engine *engine);

/*
 * wefti_engine_drive - push until done(context), which is called with the lock
 * held. Spins, yields, then sleeps until there is news.
 */
void wefti_engine_drive(wefti_engine *engine, bool (*done)(const void *context),
                        const void *context);

/* The same for a caller that has something else to keep going; see idle of
 * weft_comm_config. */
void wefti_engine_drive_idle(wefti_engine *engine, const wefti_idle *idle,
                             bool (*done)(const void *context),
                             const void *context);

/* The network's watcher has news: carries operations on, or wakes the caller
 * that waits. Takes the engine's lock. Returns whether there is more to do: the
 * watcher's thread may serve other engines meanwhile. */
bool wefti_engine_attend(void *engine);

/*
 * wefti_engine_signalled - for wefti_gate_watcher, of what an operation waits
 * for: as wefti_engine_woken; but where the process has one core and the other
 * ranks are behind a network, the signaller carries operations on itself, if it
 * gets the lock, instead of losing that core to the thread that would.
 */
void wefti_engine_signalled(void *engine);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine.h - the one place where operations move: a rank's engine, pushed
 * by its progress thread or by whoever waits.
 */
#ifndef COMM_ENGINE_H
#define COMM_ENGINE_H

#include "comm/core.h"

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

/* A stream operation was posted: see that the thread is awake. */
void wefti_engine_wake(wefti_engine *engine);

/* For wefti_gate_watcher: context is the engine. */
void wefti_engine_woken(void *engine);

/* Whether a waiting caller may keep a core busy: there is one for each rank. */
bool wefti_engine_spins(const wefti_engine *engine);

/*
 * wefti_engine_unlock - give the lock back, and copies that were asked for to
 * their devices: after whatever may have pushed operations.
 */
void wefti_engine_unlock(wefti_engine *engine);

/* A gate is not yet raised: where its device rings no bell, whoever drives the
 * engine looks again soon. Lock held. */
static inline void wefti_engine_look(wefti_engine *engine,
                                     const weft_gate *gate)
{
    if (!wefti_device_can(wefti_gate_get_device(gate), WEFT_CAP_NOTIFIES)) {
        engine->looks = true;
    }
}

/* Pushes all operations once. Lock held. Returns whether anything moved. */
bool wefti_engine_push(wefti_engine *engine);

/*
 * wefti_engine_drive - push until done(context), which is called with the lock
 * held. Spins, yields, then sleeps until there is news.
 */
void wefti_engine_drive(wefti_engine *engine, bool (*done)(const void *context),
                        const void *context);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/wake.h - what posts, gates and devices have to tell the thread that
 * drives a rank's engine.
 */
#ifndef COMM_CORE_WAKE_H
#define COMM_CORE_WAKE_H

#include "comm/core/core.h"

/* Something has changed that the thread, or a caller that waits, has to see. */
void wefti_engine_wake(wefti_engine *engine);

/* For wefti_gate_watcher: context is the engine. While nothing is pending its
 * thread need not know. */
void wefti_engine_woken(void *engine);

/* Something was posted: see that the thread is awake. first: nothing had been
 * pending before, and it may sleep without the engine's bell. */
void wefti_engine_posted(wefti_engine *engine, bool first);

/* Whether a waiting caller may keep a core busy: there is one for each rank. */
static inline bool wefti_engine_spins(const wefti_engine *engine)
{
    return !engine->oversubscribed && engine->spin_ns > 0;
}

/* A gate is not yet raised: where its device rings no bell, the thread that
 * drives the engine looks again soon. Lock held. */
static inline void wefti_engine_look(wefti_engine *engine,
                                     const weft_gate *gate)
{
    if (!wefti_device_can(wefti_gate_get_device(gate), WEFT_CAP_NOTIFIES)) {
        engine->looks = true;
    }
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/driver.h - the progress thread of a rank, which drives all its
 * engines: one for each communicator that was created, with what was split
 * from it.
 *
 *   weft_comm_create, job A --- engine --+
 *   weft_comm_create, job B --- engine --+-- driver: one thread, one sleep
 *   weft_comm_create, job C --- engine --+
 *
 * Which engines are one rank's is not said anywhere, as ranks may be threads.
 * But two ranks of one job are two ranks: so an engine joins a driver of this
 * process that drives none of its job, and a process has as many drivers as it
 * has ranks of one job at most.
 *
 * An engine that stands still, or has failed, holds up no other: no push blocks
 * and each has its own lock.
 */
#ifndef COMM_ENGINE_DRIVER_H
#define COMM_ENGINE_DRIVER_H

#include "base/thread.h"
#include "comm/core/core.h"

typedef struct wefti_driver wefti_driver;

/*
 * wefti_driver_join - from now on a thread pushes the engine while something is
 * pending there; sets its driver and thread_bell. Lock of the engine held.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_SYSTEM.
 */
WEFT_NODISCARD weft_status wefti_driver_join(wefti_engine *engine);

/* The thread does not look at it any more; the last one ends the thread. Legal
 * for an engine that has not joined. Its lock is not held. */
void wefti_driver_leave(wefti_engine *engine);

/* What the thread has done; NULL: there is none. */
const wefti_thread_work *wefti_driver_get_work(const wefti_driver *driver);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/held_work.h - bytes that the host moves and adds up without the
 * engine's lock.
 *
 *   lock held                      not held       held
 *   wefti_held_work_ask --> works --> make ----------> end --> the next push
 * goes on
 *
 * An operation whose step has more bytes than the lock should be held for asks
 * for the work and is held: whoever pushes it leaves that list alone, and it
 * ends, failed or not, when nothing of it is under way. Whoever pushes an
 * engine does one piece of work between two pushes; other threads may do others
 * meanwhile, and post, push and end whatever is not held.
 */
#ifndef COMM_ENGINE_HELD_WORK_H
#define COMM_ENGINE_HELD_WORK_H

#include "comm/core/core.h"

/* From here on giving the lock back and taking it again costs little beside
 * the bytes. */
enum { WEFTI_WORK_LEAST_BYTES = 64 << 10 };

/* work, which is filled in, is to be done; what is urgent first. Lock held. */
void wefti_held_work_ask(wefti_held_work *work);

/* Does the first that may be done now; false: there is none. The lock is held,
 * and given back meanwhile. */
bool wefti_engine_work(wefti_engine *engine);

/* Its parts, around work->make: the first that may be done, NULL: there is
 * none; and what follows. Lock held. */
wefti_held_work *wefti_held_work_take(wefti_engine *engine);
void wefti_held_work_end(wefti_held_work *work);

/* Wakes those that sleep because an operation was held, if any was: for whoever
 * will not push again, or has ended something. Lock held. */
void wefti_held_work_tell(wefti_engine *engine);

#endif

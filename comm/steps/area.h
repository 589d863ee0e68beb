/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/area.h - the areas of this rank's region (comm/fabric/shared.h):
 * places for payloads that no entry holds, and for messages that are better
 * put where none was for a while (comm/fabric/stager.h) than into the slots of
 * their pair.
 *
 * An operation with an op slot always finds one: each has one at most, and
 * messages leave as many.
 *
 * Threads     with the engine's lock.
 */
#ifndef COMM_STEPS_AREA_H
#define COMM_STEPS_AREA_H

#include "comm/core/core.h"

/*
 * wefti_area_take - an area of WEFTI_AREA_BYTES, op's until all ranks have
 * completed it. far: one that was not used for a while; else one that probably
 * lies in this core's cache. NULL: as far as is known of the ranks, none is
 * free. wefti_area_take_any - the first free one: there is, once it has been
 * looked what all have completed.
 */
unsigned char *wefti_area_take(weft_comm *comm, const wefti_op *op, bool far);
unsigned char *wefti_area_take_any(weft_comm *comm, const wefti_op *op);

/*
 * wefti_area_take_for_message - an area for the next message of that path to a
 * rank of this domain, until that has released it; for at most
 * WEFTI_P2P_SLOT_BYTES.
 *
 * Returns     NULL: it is to go into a slot of its pair.
 */
unsigned char *wefti_area_take_for_message(weft_comm *comm,
                                           wefti_fabric_path path,
                                           size_t bytes);

/* Brings a payload's area into this core's cache: the one that is taken next,
 * if it is not far. */
void wefti_area_prefetch(const weft_comm *comm, size_t bytes);

#endif

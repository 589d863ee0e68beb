/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/single_copy.h - whether ranks of a domain can read each other's
 * processes: found by doing it when the world is created, and used if all can.
 *
 *   offer      each writes where it is to be read      } the meeting's verdict
 *   attempt    each reads all others, writes what came } the barrier
 *   conclude   each sees the same attempts, and comes to the same end
 */
#ifndef COMM_MAKE_SINGLE_COPY_H
#define COMM_MAKE_SINGLE_COPY_H

#include "comm/core/core.h"

/* All are for the world. offer returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status
wefti_single_copy_offer(weft_comm *world, const wefti_membership *members);
void wefti_single_copy_attempt(weft_comm *world);
void wefti_single_copy_conclude(weft_comm *world);

#endif

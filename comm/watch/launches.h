/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/launches.h - launches of graphs that hold operations of a
 * communicator (comm/streams/streams.h).
 */
#ifndef COMM_WATCH_LAUNCHES_H
#define COMM_WATCH_LAUNCHES_H

#include "comm/core/core.h"

/*
 * wefti_launches_look - publishes a fault if a launch of this rank waits for a
 * rank that was lost, and warns of one that waits long. Lock held.
 */
void wefti_launches_look(weft_comm *comm);

#endif

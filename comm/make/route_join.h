/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/route_join.h - the ranks of a new communicator make what the route
 * needs that WEFT_ROUTE asks for, or agree that they cannot.
 */
#ifndef COMM_MAKE_ROUTE_JOIN_H
#define COMM_MAKE_ROUTE_JOIN_H

#include "comm/core/core.h"

/* Collective, while nothing is posted; of the route steps nothing is done. A
 * fault of comm meanwhile is left to its next operation. Blocks: as its
 * operations do. */
void wefti_route_join(weft_comm *comm);

/* The same for NCCL (comm/nccl/twin.h), and for the route streams
 * (comm/streams/streams.h). */
void wefti_twin_join(weft_comm *comm);
void wefti_streams_join(weft_comm *comm);

/* The route is not possible: why, the same on all ranks. */
void wefti_route_keep_why(weft_comm *comm, const char *why);

#endif

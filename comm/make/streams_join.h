/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/streams_join.h - the ranks of a new communicator make what the
 * route streams needs (comm/streams/streams.h), or agree that they do not.
 */
#ifndef COMM_MAKE_STREAMS_JOIN_H
#define COMM_MAKE_STREAMS_JOIN_H

#include "comm/core/core.h"

/* Collective, while nothing is posted. A fault of comm meanwhile is left to its
 * next operation. Blocks: as its operations do. */
void wefti_streams_join(weft_comm *comm);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/streams_end.h - how a communicator gives up the route streams.
 */
#ifndef COMM_MAKE_STREAMS_END_H
#define COMM_MAKE_STREAMS_END_H

#include "comm/streams/streams.h"

/*
 * wefti_streams_end - gives all back when no stream of any rank uses it any
 * more; NULL is legal. Without the lock; nothing is posted any more, and comm
 * does not know of it.
 *
 * Blocks: for the other ranks' ends, 10 s at most. What is in use then is lost.
 */
void wefti_streams_end(wefti_streams *streams);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/abort.h - failing a communicator because this rank wants that.
 */
#ifndef COMM_WATCH_ABORT_H
#define COMM_WATCH_ABORT_H

#include "comm/core/core.h"

/* Fails a live communicator, on all its ranks: "rank 3 <did> \"world\"".
 * Threads: any. Blocks: no. */
void wefti_abort_publish(weft_comm *comm, const char *did);

#endif

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

/* The same with a status and a text of the caller's: what this rank was asked
 * to do cannot be done. */
void wefti_abort_because(weft_comm *comm, weft_status status, const char *text);

#endif

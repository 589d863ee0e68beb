/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/remains.h - what is left of a communicator that is destroyed: the
 * memory in which messages to other hosts may lie until the network has taken
 * them. Nobody waits for that.
 */
#ifndef COMM_MAKE_REMAINS_H
#define COMM_MAKE_REMAINS_H

#include "comm/core/core.h"

typedef struct wefti_remains wefti_remains;

/* Takes comm->remains, the room to leave in: leaving cannot fail. For
 * communicators with ranks on other hosts. */
weft_status wefti_remains_prepare(weft_comm *comm);

/* Of those that did not leave; NULL does nothing. */
void wefti_remains_free(wefti_remains *own);

/*
 * wefti_remains_leave - gives the communicator's memory back to the host, when
 * the last of its ranks here does: now, or once all is sent. It stays mapped
 * until then, whatever becomes of comm.
 */
void wefti_remains_leave(weft_comm *comm);

#endif

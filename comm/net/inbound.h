/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/inbound.h - buffers for what comes from other domains: taken when a
 * message begins to arrive, given back when its reader has released it. So a
 * rank has as much memory for it as was ever under way at once, however many
 * ranks may send.
 *
 * One for each communicator. The engine's lock guards it.
 */
#ifndef COMM_NET_INBOUND_H
#define COMM_NET_INBOUND_H

#include "comm/fabric/shared.h"

/* Bytes that a rank can have sent to a peer and not seen released. */
#define WEFTI_INBOUND_MOST_BYTES                                               \
    ((size_t)WEFTI_OP_SLOTS * WEFTI_STAGING_BYTES +                            \
     (size_t)WEFTI_P2P_AREAS * WEFTI_P2P_REMOTE_SLOTS *                        \
         WEFTI_P2P_REMOTE_BYTES)

typedef struct wefti_inbound wefti_inbound;

/* wefti_inbound_create - for so many peers; NULL: no memory. */
wefti_inbound *wefti_inbound_create(int nranks);

/* Frees all buffers, those that are held too. NULL is legal. */
void wefti_inbound_destroy(wefti_inbound *inbound);

/*
 * wefti_inbound_fits - whether peer may send a message of so many bytes, whose
 * arrival that is: it holds them already, or has no more under way than it can.
 */
bool wefti_inbound_fits(const wefti_inbound *inbound, int peer,
                        const wefti_arrival *arrival, uint64_t sequence,
                        size_t bytes);

/*
 * wefti_inbound_hold - the buffer of a message that fits, the same at each
 * call until it is let go; NULL: no memory.
 */
unsigned char *wefti_inbound_hold(wefti_inbound *inbound, int peer,
                                  wefti_arrival *arrival, uint64_t sequence,
                                  size_t bytes);
void wefti_inbound_let_go(wefti_inbound *inbound, int peer,
                          wefti_arrival *arrival);

/*
 * wefti_inbound_offer - a message of so many bytes is wanted at memory: there
 * it goes if it has not begun to arrive and has that length.
 *
 * wefti_inbound_withdraw - memory is not to be written from now on. What has
 * begun to arrive is of no use any more.
 */
void wefti_inbound_offer(wefti_arrival *arrival, uint64_t sequence,
                         unsigned char *memory, size_t bytes);
void wefti_inbound_withdraw(wefti_inbound *inbound, int peer,
                            wefti_arrival *arrival);

/* Memory of all buffers. */
size_t wefti_inbound_count_bytes(const wefti_inbound *inbound);

#endif

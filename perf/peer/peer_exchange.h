/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_exchange.h - the ranks of one machine use a folder to
 * exchange bytes, so that nothing that is said about a library passes
 * through the library itself. Free of weft, as startline.h.
 *
 * Emulated hosts are one machine: their ranks see one folder.
 */
#ifndef PERF_PEER_PEER_EXCHANGE_H
#define PERF_PEER_PEER_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct wefti_peer_exchange wefti_peer_exchange;

/*
 * wefti_peer_exchange_open - join the other ranks in folder, which is empty
 * when the first one comes, and is used once only.
 *
 * Returns     the exchange; NULL with errno where the folder cannot be used or
 *             rank 0 has not come within a minute.
 * Blocks      until rank 0 has come.
 */
wefti_peer_exchange *wefti_peer_exchange_open(const char *folder, int rank,
                                              int nranks);
/* NULL is legal. */
void wefti_peer_exchange_close(wefti_peer_exchange *exchange);

int wefti_peer_exchange_ranks(const wefti_peer_exchange *exchange);

/*
 * wefti_peer_exchange_wait   - a barrier: start line of timed calls.
 * wefti_peer_exchange_gather - all_out, [nranks][bytes]: what each has given.
 *
 * Returns     false if a rank has not come within a minute; the exchange is of
 *             no more use.
 */
bool wefti_peer_exchange_wait(wefti_peer_exchange *exchange);
bool wefti_peer_exchange_gather(wefti_peer_exchange *exchange, const void *mine,
                                size_t bytes, void *all_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_blocks.h - a block of memory of each rank that all ranks of
 * the machine map: what a library could do at best if it had the users'
 * buffers.
 */
#ifndef PERF_PEER_PEER_BLOCKS_H
#define PERF_PEER_PEER_BLOCKS_H

#include "perf/peer/peer_exchange.h"

typedef struct wefti_peer_blocks wefti_peer_blocks;

/*
 * wefti_peer_blocks_create  - every rank makes a block of bytes and maps all;
 *                             every rank must call it, with the same bytes.
 * wefti_peer_blocks_get     - where rank's block is mapped here.
 * wefti_peer_blocks_destroy - every rank may still use its mappings.
 *
 * Returns     the blocks; NULL where there is no memory or another rank's
 * cannot be reached.
 */
wefti_peer_blocks *wefti_peer_blocks_create(wefti_peer_exchange *exchange,
                                            size_t bytes);
unsigned char *wefti_peer_blocks_get(const wefti_peer_blocks *blocks, int rank);
void wefti_peer_blocks_destroy(wefti_peer_blocks *blocks);

#endif

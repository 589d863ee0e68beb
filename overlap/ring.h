/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/ring.h - what weft-train does with a ring beside weft/ring.h.
 */
#ifndef OVERLAP_RING_H
#define OVERLAP_RING_H

#include "weft/ring.h"

#include <stdbool.h>

/*
 * wefti_ring_set_blocking - from the next round on: before a block is used, all
 * that can come beside it has, so that nothing is hidden; of a CARRY ring once
 * one is passed on. Between rounds.
 */
void wefti_ring_set_blocking(weft_ring *ring, bool blocking);

/*
 * wefti_ring_pass_on - of a CARRY ring: what has been queued on compute before
 * has done with the block that next gave last, which goes on its way now and
 * not with the next call of next; compute has time to do something else until
 * the one that comes instead is needed. Again, or before the first: nothing.
 *
 * Returns, threads, blocks  as weft_ring_next; of a ring that blocks, with a
 * NULL compute, until that one has come.
 */
WEFT_NODISCARD weft_status wefti_ring_pass_on(weft_ring *ring,
                                              weft_stream *compute);

#endif

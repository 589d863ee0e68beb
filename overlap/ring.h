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
 * that can come beside it has, so that nothing is hidden. A CARRY ring's comes
 * when it is needed anyway. Between rounds.
 */
void wefti_ring_set_blocking(weft_ring *ring, bool blocking);

#endif

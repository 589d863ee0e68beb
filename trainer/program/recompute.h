/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/recompute.h - values that are not kept from F to the
 * backward, and nodes that make them again.
 *
 *   kept       F: norm -> normed -> product         W: reads normed
 *   made again F: norm -> normed -> product         W: norm -> normed, reads it
 *
 * Which ones follows from the program: of a node that the program's recompute
 * names, what it writes is dropped, unless another node writes to it too, or
 * another block needs it. To the end of the block come copies of the nodes that
 * make what its I and W read of that, from what is kept; of FULL, to the end of
 * the last block of a layer, from the layer's input. They call what F calls, in
 * chunks of the same rows: the same bits. A copy runs in I if I needs it, and
 * in W if W does; in B once.
 *
 * Where I and W run apart, what W's copies begin with stays until W: a node
 * that reads more than it writes is not run again then.
 *
 * A node that has changed what it reads, in place, cannot run again from it.
 * Transfers run again in FULL alone, but never those of a pipeline's edges.
 *
 * Source: Chen et al. 2016 (arXiv 1604.06174); Korthikanti et al. 2022
 * (selective: attention, not the products, arXiv 2205.05198).
 */
#ifndef TRAINER_PROGRAM_RECOMPUTE_H
#define TRAINER_PROGRAM_RECOMPUTE_H

#include "trainer/program/program.h"

/*
 * wefti_program_recompute - the first part of a plan. Returns OK |
 * ERR_NO_MEMORY | the program's status.
 */
WEFT_NODISCARD weft_status wefti_program_recompute(wefti_program *program);

#endif

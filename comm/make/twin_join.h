/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/twin_join.h - the ranks of a new communicator join NCCL, or agree
 * that they do not.
 */
#ifndef COMM_MAKE_TWIN_JOIN_H
#define COMM_MAKE_TWIN_JOIN_H

#include "comm/core/core.h"

/*
 * wefti_twin_join - see whether the ranks of comm can have twins, and make
 * them; collective, while nothing is posted. A fault of comm meanwhile is left
 * to its next operation. Blocks: as its operations do.
 */
void wefti_twin_join(weft_comm *comm);

#endif

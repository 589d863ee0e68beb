/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/nccl_op.h - what the engine does beside an operation that NCCL
 * carries out (comm/post/nccl_route.h).
 */
#ifndef COMM_STEPS_NCCL_OP_H
#define COMM_STEPS_NCCL_OP_H

#include "comm/core/core.h"

/* op shows itself to the peers; and one push: whether anything moved. Lock
 * held. */
void wefti_nccl_enter(weft_comm *comm, wefti_op *op);
bool wefti_nccl_advance(weft_comm *comm, wefti_op *op);

#endif

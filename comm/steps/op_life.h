/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/op_life.h - the life of one operation inside the engine.
 */
#ifndef COMM_STEPS_OP_LIFE_H
#define COMM_STEPS_OP_LIFE_H

#include "comm/core/core.h"

/*
 * wefti_op_measure - what follows from desc and role: elements, the pattern's
 * problem but for chunk_elems, blocks and gate chunks. A v form's arrays are
 * copied into counts.
 */
void wefti_op_measure(const weft_comm *comm, wefti_op *op);

/*
 * wefti_op_init - fill a free operation from what was posted; counts its
 * chunks, chooses nothing.
 */
void wefti_op_init(weft_comm *comm, wefti_op *op, const weft_op *desc,
                   const wefti_role *role, uint64_t epoch);

/* One push: returns whether anything moved. */
bool wefti_op_advance(weft_comm *comm, wefti_op *op);

/* Looks up which operations all ranks have completed: comm->peers_done. */
void wefti_op_look_completed(weft_comm *comm);

/* Whether all ranks have left the operation that used that number's op slot
 * before. */
bool wefti_op_may_enter(weft_comm *comm, uint64_t number);

/* Ends a quick one (comm/steps/quick.h), that all it needs has been made of;
 * it drains if peers that it does not need have not been looked at. */
void wefti_op_finish_plain(weft_comm *comm, wefti_op *op);

/* Settles what has ended before number, as far as peers have entered it: as
 * finish_plain leaves what it has not seen of all. */
void wefti_op_settle_before(weft_comm *comm, uint64_t number);

/* Whether op, all of whose peers are here, may end well: those have entered
 * what came before it, which is settled now; not where that has shown a
 * mismatch. */
bool wefti_op_may_end(weft_comm *comm, const wefti_op *op);

/* Ends op for its poster; what peers still read keeps its staging buffer. */
void wefti_op_finish(weft_comm *comm, wefti_op *op, weft_status status);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step_gates.h - which gate chunks a step reads and writes.
 */
#ifndef COMM_STEPS_STEP_GATES_H
#define COMM_STEPS_STEP_GATES_H

#include "comm/core/core.h"

/* The gate chunks, first to last, that hold what step reads of the send buffer,
 * or writes of the receive buffer; it has elements. */
void wefti_step_get_chunks(const wefti_op *op, const wefti_step *step,
                           bool send, size_t *first_out, size_t *last_out);

/* The first chunk of the send buffer that step reads and that is not ready;
 * false: none. */
bool wefti_step_find_shut(const wefti_op *op, const wefti_step *step,
                          size_t *chunk_out);

/* The first chunk of the receive buffer that step writes and that may not be
 * overwritten; false: none. */
bool wefti_step_find_unwritable(const wefti_op *op, const wefti_step *step,
                                size_t *chunk_out);

/* Whether the chunks of the send buffer that step reads may be read. */
bool wefti_step_source_ready(weft_comm *comm, const wefti_op *op,
                             const wefti_step *step);

/* Whether the chunks of the receive buffer that step writes may be overwritten;
 * asked when all that it writes is there. */
bool wefti_step_target_writable(weft_comm *comm, const wefti_op *op,
                                const wefti_step *step);

/* What step writes of the receive buffer is there: raises the arrived gate's
 * chunks that are complete with it. */
void wefti_step_announce(wefti_op *op, const wefti_step *step);

/* Whether the program sees what step writes of the receive buffer no sooner
 * than what other does: they are of one chunk of the arrived gate, or no gate
 * tells of chunks. */
bool wefti_step_shows_with(const wefti_op *op, const wefti_step *step,
                           const wefti_step *other);

#endif

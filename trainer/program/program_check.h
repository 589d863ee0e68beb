/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_check.h - what must be true of a program before it
 * runs.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_CHECK_H
#define TRAINER_PROGRAM_PROGRAM_CHECK_H

#include "trainer/program/program.h"
#include "weft/comm.h"

#include <stdint.h>

/*
 * wefti_program_check - of a planned program, in F then B as in F then I then W
 * (not if I and W run together alone):
 *
 *   what a call reads has been written, in this pass or to the slot, and is
 *   where it was written;
 *   a POST has one AWAIT of its operation, after it and of its class, in the
 *   same pass.
 *
 * Returns     OK | ERR_INVALID (the text names node, value and pass) |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_program_check(const wefti_program *program);

/*
 * wefti_program_agree - that a communicator's ranks post to it in one order, in
 * each pass: what is posted, of which kind of block. Collective over comm, one
 * small all-gather; all ranks return the same.
 *
 * class_id    of what is posted there
 *
 * Returns     OK | ERR_INVALID (the text names rank, class and pass) |
 *             ERR_NO_MEMORY | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_program_agree(const wefti_program *program,
                                               weft_comm *comm,
                                               weft_class class_id);

/* "F", "I", "W" or "B". */
const char *wefti_order_text(size_t order);

#endif

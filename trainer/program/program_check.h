/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_check.h - what must be true of a program before it
 * runs.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_CHECK_H
#define TRAINER_PROGRAM_PROGRAM_CHECK_H

#include "trainer/program/program.h"

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
 * wefti_program_digest - of the order in which a pass posts to a class: ranks
 * of one communicator must have the same. No POST: 0.
 */
uint64_t wefti_program_digest(const wefti_program *program,
                              const wefti_order *order, weft_class class_id);

/*
 * wefti_program_check_ranks - that all programs of a communicator's ranks post
 * to each class in one order, in each pass. Programs are as F, I, W, B.
 *
 * Returns     OK | ERR_INVALID (the text names rank, class and pass).
 */
WEFT_NODISCARD weft_status wefti_program_check_ranks(
    const wefti_program *const *programs, size_t count, weft_class class_id);

/* "F", "I", "W" or "B". */
const char *wefti_order_text(size_t order);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_plan.h - in which steps a program runs, how long its
 * values live, and where.
 *
 *   F . . . . . | I . . . . . | W . . . . .
 *     [--- gated -------------------]          slot: between passes
 *                   [d.attended]               inputs: within one pass
 *                     [delta]                  scratch: within one step
 *
 * A value lives from the first to the last step that uses it. Two that live at
 * once lie apart; what is dead is given to those born later, the smallest place
 * that fits first. What W uses of a block, F has written or I of that block or
 * of one behind it: so values of one region begin and end in the same order in
 * I and W as in B, and one plan holds for both. Regions lie apart: while F of
 * one micro-batch and B of another take turns, only a step's scratch is common,
 * and what a step holds that may be left in the middle is not there.
 *
 * What is made again lives within B of a block, or within its I and once more
 * within its W: that region is laid out by the steps of B, and the next block
 * has the same memory. So has, where I and W run together alone, what I leaves
 * for W; else that is the slot's.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_PLAN_H
#define TRAINER_PROGRAM_PROGRAM_PLAN_H

#include "trainer/program/program.h"

/*
 * wefti_program_plan - fills in what is the plan's, of a program whose blocks
 * have all been appended.
 *
 * rows_most   tokens of a micro-batch, at most
 *
 * Returns     OK | ERR_NO_MEMORY | the program's status.
 */
WEFT_NODISCARD weft_status wefti_program_plan(wefti_program *program,
                                              size_t rows_most);

#endif

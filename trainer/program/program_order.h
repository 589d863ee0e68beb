/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_order.h - a program's nodes as the steps of each
 * pass: the first part of its plan.
 */
#ifndef TRAINER_PROGRAM_PROGRAM_ORDER_H
#define TRAINER_PROGRAM_PROGRAM_ORDER_H

#include "trainer/program/program.h"

/* Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_program_order(wefti_program *program);

/*
 * Empties steps of B: what W would make again is there from I. Lives are found
 * before, so that what W alone needs in between keeps its place.
 */
void wefti_program_order_trim(wefti_program *program);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step_list.h - the in-order lists of steps that an operation runs
 * side by side.
 */
#ifndef COMM_STEPS_STEP_LIST_H
#define COMM_STEPS_STEP_LIST_H

#include "comm/core/core.h"

/*
 * wefti_step_list_begin - before the first step of list t; the pattern is
 * chosen.
 *
 * wefti_step_list_settle - goes on to the next block that has steps, unless
 * there is a step here; false: there is none any more.
 *
 * wefti_step_list_get_step - the step where settle has stopped.
 */
wefti_step_place wefti_step_list_begin(const wefti_op *op, int t);
bool wefti_step_list_settle(const wefti_op *op, int t, wefti_step_place *at);
void wefti_step_list_get_step(const wefti_op *op, int t,
                              const wefti_step_place *at, wefti_step *step_out);

/* All lists before their first step; the pattern is chosen. */
void wefti_step_lists_start(wefti_op *op);

/*
 * wefti_step_lists_run - push every list; ends the operation after the last
 * step. Returns whether anything moved.
 */
bool wefti_step_lists_run(weft_comm *comm, wefti_op *op);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/sum.h - what a REDUCE or a RELAY adds up, and how.
 *
 * Sums have one level, or two where some ranks share memory and others do not:
 * then each host's sum is rounded to the type before hosts are added up, by
 * whatever algorithm (weft/op.h). A REDUCE of all ranks makes both levels; a
 * RELAY the first, and a REDUCE of agents the second. Through levels inside
 * hosts a RELAY makes a part of the first, unfinished, or its end.
 */
#ifndef COMM_STEPS_SUM_H
#define COMM_STEPS_SUM_H

#include "comm/core/core.h"

/* How many sources step adds up: ranks, or sums of several. */
static inline int wefti_sum_sources(const wefti_op *op, const wefti_step *step)
{
    return wefti_peer_count(&op->problem,
                            wefti_step_sources(&op->problem, step), step->owner,
                            step->round);
}

/* Whether rank's are read from this rank's send buffer, not from a message. */
static inline bool wefti_sum_is_own(const wefti_op *op, const wefti_step *step,
                                    int rank)
{
    return rank == op->problem.rank && step->src != WEFTI_BUFFER_NONE;
}

/* result = the sum of the elements at list->sources, place by place. */
void wefti_sum_make(const weft_comm *comm, const wefti_op *op,
                    const wefti_step_list *list, void *result);

/* dst = the sum of elems elements of all ranks, as a REDUCE of all makes it. */
void wefti_sum_all(const wefti_op *op, void *dst, const void *const *sources,
                   size_t elems);

/* What a tree does with a wide partial sum: ends the host's level of it, or
 * makes the result of it. */
void wefti_sum_round(const wefti_op *op, void *wide, size_t elems);
void wefti_sum_finish(const wefti_op *op, void *dst, const void *wide,
                      size_t elems);

#endif

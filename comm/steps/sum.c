/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/sum.c - the arithmetic of kernels/wire, one level or two.
 */
#include "comm/steps/sum.h"

#include "base/check.h"
#include "comm/steps/reduction.h"
#include "kernels/wire/reduce.h"

void wefti_sum_all(const wefti_op *op, void *dst, const void *const *sources,
                   size_t elems)
{
    const wefti_problem *problem = &op->problem;
    if (wefti_problem_has_levels(problem)) {
        wefti_reduce_groups(dst, sources, problem->grouping->begins,
                            (size_t)problem->grouping->host_count, elems,
                            op->desc.dtype, op->desc.redop);
    } else {
        wefti_reduce(dst, sources, (size_t)problem->nranks, elems,
                     op->desc.dtype, op->desc.redop);
    }
}

/* One level of a sum that has two. */
static void make_level(const wefti_op *op, const wefti_step_list *list,
                       size_t sources, bool inner, void *result)
{
    const weft_dtype dtype = op->desc.dtype;
    const weft_redop redop = op->desc.redop;
    wefti_reduce_part(result, list->sources, sources,
                      (size_t)op->problem.nranks, list->step.elems, dtype,
                      inner ? wefti_redop_inner(dtype, redop)
                            : wefti_redop_outer(dtype, redop));
}

/* What is given to this rank, through levels inside hosts. */
static void make_given(const wefti_op *op, const wefti_step_list *list,
                       size_t sources, void *result)
{
    const wefti_step *step = &list->step;
    const weft_dtype dtype = op->desc.dtype;
    const bool inner = wefti_problem_has_levels(&op->problem);
    wefti_reduce_nodes(
        result, list->sources, list->begins, sources,
        step->wide ? 0 : (size_t)op->problem.nranks, step->elems, dtype,
        inner ? wefti_redop_inner(dtype, op->desc.redop) : op->desc.redop);
}

void wefti_sum_make(const weft_comm *comm, const wefti_op *op,
                    const wefti_step_list *list, void *result)
{
    const wefti_step *step = &list->step;
    const size_t sources = (size_t)wefti_sum_sources(op, step);
    const bool all =
        step->kind == WEFTI_STEP_REDUCE && step->peer == WEFTI_ALL_PEERS;
    if (step->elems == 0) { /* the end of a part whose count was deferred */
        return;
    }
    if (wefti_redop_is_user(op->desc.redop)) { /* never in levels: select.h */
        WEFTI_ASSERT(all);
        wefti_reduction_apply(wefti_reduction_get(comm, op->desc.redop), result,
                              list->sources, sources, step->elems,
                              op->desc.dtype);
    } else if (wefti_step_sources(&op->problem, step) == WEFTI_GIVER_PEERS) {
        make_given(op, list, sources, result);
    } else if (all) {
        wefti_sum_all(op, result, list->sources, step->elems);
    } else {
        make_level(op, list, sources, step->kind == WEFTI_STEP_RELAY, result);
    }
}

void wefti_sum_round(const wefti_op *op, void *wide, size_t elems)
{
    WEFTI_ASSERT(!wefti_redop_is_user(op->desc.redop)); /* never in levels */
    wefti_round(wide, (size_t)op->problem.nranks, elems, op->desc.dtype,
                op->desc.redop);
}

void wefti_sum_finish(const wefti_op *op, void *dst, const void *wide,
                      size_t elems)
{
    const weft_dtype dtype = op->desc.dtype;
    if (wefti_redop_is_user(op->desc.redop)) {
        wefti_copy(dst, wide, elems * weft_dtype_bytes(dtype));
        return;
    }
    const bool levels = wefti_problem_has_levels(&op->problem);
    wefti_narrow(dst, wide, (size_t)op->problem.nranks, elems, dtype,
                 levels ? wefti_redop_outer(dtype, op->desc.redop)
                        : op->desc.redop);
}

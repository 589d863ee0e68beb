/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/plan.c - prepared operations and lists.
 *
 * A plan is a master copy: a post on a stream takes what it needs from it, so
 * posts of one plan may overlap, and nothing in flight refers to it.
 */
#include "weft/plan.h"
#include "comm/steps/reduction.h"

#include "base/error.h"
#include "comm/core/live.h"
#include "comm/engine/extent.h"
#include "comm/engine/op.h"
#include "comm/post/op_check.h"
#include "comm/post/p2p.h"
#include "comm/post/post.h"

#include <stdlib.h>
#include <string.h>

struct weft_plan {
    weft_comm *comm;
    bool gated;
    bool is_list;
    wefti_prepared prepared;    /* not of a list */
    size_t *arrays;             /* of a v form: what desc's arrays point to */
    unsigned char scale[8];     /* its scalar, if it has one */
    wefti_reduction *reduction; /* its own, if it has one: held */
    size_t count;
    wefti_p2p_message messages[]; /* [count] of a list */
};

static weft_status make_plan(weft_comm *comm, size_t count,
                             weft_plan **plan_out)
{
    size_t bytes;
    weft_plan *plan = NULL;
    if (!__builtin_mul_overflow(count, sizeof(wefti_p2p_message), &bytes) &&
        !__builtin_add_overflow(bytes, sizeof(*plan), &bytes)) {
        plan = calloc(1, bytes);
    }
    if (!plan) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a plan of %zu parts", count);
    }
    plan->comm = comm;
    plan->count = count;
    *plan_out = plan;
    return WEFT_OK;
}

/* The counts and places of a v form, which the post would have copied. */
static weft_status keep_arrays(weft_plan *plan)
{
    const size_t ranks = (size_t)plan->comm->nranks;
    if (!plan->prepared.role.shape->varied) {
        return WEFT_OK;
    }
    plan->arrays = calloc(4 * ranks, sizeof(*plan->arrays));
    if (!plan->arrays) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for a plan of %zu ranks", ranks);
    }
    wefti_extent_copy_counts(&plan->prepared.desc, plan->arrays,
                             plan->comm->nranks);
    return WEFT_OK;
}

weft_status weft_op_plan(const weft_op *op, weft_comm *comm,
                         weft_plan **plan_out)
{
    if (!plan_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "plan_out is NULL: allowed is a place for the "
                           "plan");
    }
    *plan_out = NULL;
    wefti_prepared prepared;
    weft_status status = wefti_post_prepare(op, 1, comm, &prepared);
    weft_plan *plan = NULL;
    if (status == WEFT_OK) {
        status = make_plan(comm, 0, &plan);
    }
    if (status == WEFT_OK) {
        plan->prepared = prepared;
        if (prepared.desc.scale) {
            memcpy(plan->scale, prepared.desc.scale,
                   weft_dtype_bytes(prepared.desc.dtype));
            plan->prepared.desc.scale = plan->scale;
        }
        plan->reduction = wefti_reduction_get(comm, prepared.desc.redop);
        wefti_reduction_hold(plan->reduction);
        plan->gated = wefti_op_is_gated(&prepared.desc);
        status = keep_arrays(plan);
    }
    if (status != WEFT_OK) {
        weft_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return WEFT_OK;
}

weft_status weft_p2p_plan(const weft_p2p *list, size_t list_count,
                          weft_comm *comm, weft_plan **plan_out)
{
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!plan_out || (!list && list_count > 0)) {
        return wefti_error(WEFT_ERR_INVALID, "%s",
                           !plan_out
                               ? "plan_out is NULL: allowed is a place for the "
                                 "plan"
                               : "list is NULL: allowed is list_count parts");
    }
    *plan_out = NULL;
    weft_plan *plan;
    weft_status status = make_plan(comm, list_count, &plan);
    if (status != WEFT_OK) {
        return status;
    }
    plan->is_list = true;
    if (list_count) {
        status = wefti_p2p_check(list, list_count, 1, comm, plan->messages);
    }
    if (status != WEFT_OK) {
        free(plan);
        return status;
    }
    for (size_t i = 0; i < list_count; i++) {
        const weft_op *desc = &plan->messages[i].desc;
        plan->gated |= wefti_op_is_gated(desc);
    }
    *plan_out = plan;
    return WEFT_OK;
}

static weft_status post_list(weft_plan *plan, uint64_t epoch,
                             weft_stream *stream, weft_request **handle_out)
{
    weft_status status =
        stream ? wefti_check_stream(stream, plan->comm) : WEFT_OK;
    if (status != WEFT_OK || (plan->count == 0 && !handle_out)) {
        return status;
    }
    for (size_t i = 0; i < plan->count; i++) {
        plan->messages[i].epoch = epoch;
    }
    return wefti_p2p_post_messages(plan->messages, plan->count, plan->comm,
                                   stream, handle_out);
}

static weft_status post(weft_plan *plan, uint64_t epoch, weft_stream *stream,
                        weft_request **handle_out)
{
    if (!plan) {
        return wefti_error(WEFT_ERR_INVALID,
                           "plan is NULL: allowed is a weft_plan");
    }
    if (!wefti_comm_is_live(plan->comm)) {
        return wefti_comm_refuse(plan->comm, "the plan's communicator");
    }
    if (plan->gated && epoch == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "epoch 0 of a plan with gates: allowed is 1 and "
                           "more");
    }
    return plan->is_list ? post_list(plan, epoch, stream, handle_out)
                         : wefti_post_prepared(&plan->prepared, epoch,
                                               plan->comm, stream, handle_out);
}

weft_status weft_plan_post(weft_plan *plan, uint64_t epoch, weft_stream *stream)
{
    return post(plan, epoch, stream, NULL);
}

weft_status weft_plan_begin(weft_plan *plan, uint64_t epoch,
                            weft_request **request_out)
{
    weft_status status = wefti_request_check_out(request_out);
    return status == WEFT_OK ? post(plan, epoch, NULL, request_out) : status;
}

void weft_plan_destroy(weft_plan *plan)
{
    if (plan) {
        wefti_reduction_drop(plan->reduction);
        free(plan->arrays);
        free(plan);
    }
}

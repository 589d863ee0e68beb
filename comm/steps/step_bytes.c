/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step_bytes.c - moving and adding up, with the lock or without.
 *
 * Without it nothing is touched but the list, what its operation has had since
 * it entered, and the bytes: other lists of it may go on meanwhile.
 */
#include "comm/steps/step_bytes.h"

#include "base/clock.h"
#include "comm/control/fault.h"
#include "comm/engine/held_work.h"
#include "comm/engine/op.h"
#include "comm/steps/reduction.h"
#include "comm/steps/sum.h"
#include "comm/steps/taking.h"
#include "comm/steps/unstaged.h"
#include "kernels/wire/reduce.h"

static bool is_user(const wefti_op *op)
{
    return wefti_redop_is_user(op->desc.redop);
}

static size_t written_bytes(const wefti_op *op, const wefti_step *step)
{
    return step->elems * wefti_elem_bytes(op, step->dst);
}

/* Of the receive buffer, what nobody reads before the end; a device's is a
 * bounce. */
static size_t left_bytes(const wefti_op *op, wefti_buffer buffer)
{
    return buffer == WEFTI_BUFFER_RECV && !op->places.recv
               ? wefti_op_recv_elems(op) * wefti_elem_bytes(op, buffer)
               : 0;
}

/* This rank's own, multiplied if they are to be. */
static const void *own_of(const wefti_op *op, wefti_step_list *list)
{
    void *bounce = list->bounces[list->way];
    if (!wefti_step_scales(op, &list->step)) {
        return list->from;
    }
    wefti_scale(bounce, list->from, op->desc.scale, list->step.elems,
                op->desc.dtype);
    return bounce;
}

static void make_copy(const wefti_op *op, wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const void *own = own_of(op, list);
    if (own != list->to) {
        wefti_copy_part(list->to, own, written_bytes(op, step),
                        left_bytes(op, step->dst));
    }
}

static void make_send(weft_comm *comm, const wefti_op *op,
                      const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    if (wefti_step_scales(op, step)) {
        wefti_scale(list->to, list->from, op->desc.scale, step->elems,
                    op->desc.dtype);
    } else {
        wefti_stager_copy(&comm->engine->stager, list->to, list->from,
                          step->elems * wefti_elem_bytes(op, step->src));
    }
}

static bool make_recv(weft_comm *comm, const wefti_op *op,
                      const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const wefti_incoming message = {.data = list->from,
                                    .bytes = list->from_bytes,
                                    .place = list->from_place};
    if (message.place != WEFTI_PLACE_STAGED) {
        return wefti_unstaged_copy(comm, op, step->peer, list->to, &message);
    }
    wefti_copy_part(list->to, message.data, message.bytes,
                    left_bytes(op, step->dst));
    return true;
}

static bool make_sum(weft_comm *comm, const wefti_op *op, wefti_step_list *list)
{
    if (list->step.src != WEFTI_BUFFER_NONE) {
        (void)own_of(op, list); /* where list->sources has it */
    }
    if (!wefti_sources_bring(comm, op, list)) {
        return false;
    }
    wefti_sum_make(comm, op, list, list->to);
    return true;
}

static void make_wide(const wefti_op *op, wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const void *own = own_of(op, list);
    if (is_user(op)) {
        wefti_copy(list->to, own, written_bytes(op, step));
    } else {
        wefti_widen(list->to, own, step->elems, op->desc.dtype);
    }
}

static void make_combined(const weft_comm *comm, const wefti_op *op,
                          const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    if (is_user(op)) {
        wefti_reduction_combine(wefti_reduction_get(comm, op->desc.redop),
                                list->to, list->from, step->elems,
                                op->desc.dtype);
    } else {
        wefti_combine(list->to, list->from, step->elems, op->desc.dtype,
                      op->desc.redop);
    }
}

/* Whether they are right. */
static bool make(weft_comm *comm, const wefti_op *op, wefti_step_list *list)
{
    switch (list->step.kind) {
    case WEFTI_STEP_COPY:
        make_copy(op, list);
        return true;
    case WEFTI_STEP_SEND:
        make_send(comm, op, list);
        return true;
    case WEFTI_STEP_RECV:
        return make_recv(comm, op, list);
    case WEFTI_STEP_REDUCE:
    case WEFTI_STEP_RELAY:
        return make_sum(comm, op, list);
    case WEFTI_STEP_WIDEN:
        make_wide(op, list);
        return true;
    case WEFTI_STEP_COMBINE:
        make_combined(comm, op, list);
        return true;
    case WEFTI_STEP_ROUND:
        wefti_sum_round(op, list->to, list->step.elems);
        return true;
    case WEFTI_STEP_NARROW:
        wefti_sum_finish(op, list->to, list->scratch, list->step.elems);
        return true;
    }
    return true;
}

/* As work, without the lock. */
static void make_held(wefti_held_work *work)
{
    wefti_step_list *list = (wefti_step_list *)work;
    list->unread = !make(work->comm, list->op, list);
}

static void end_held(wefti_held_work *work)
{
    wefti_step_list *list = (wefti_step_list *)work;
    list->op->held--;
    list->op->moved_ns = wefti_clock_coarse_ns();
    list->phase = list->unread ? WEFTI_PHASE_START : WEFTI_PHASE_MADE;
    list->place = 0;
}

static void hold(weft_comm *comm, wefti_op *op, wefti_step_list *list,
                 bool calls)
{
    list->op = op;
    list->work =
        (wefti_held_work){.comm = comm,
                          .make = make_held,
                          .end = end_held,
                          .urgent = wefti_class_is_urgent(op->desc.class_id),
                          .alone = calls};
    list->phase = WEFTI_PHASE_HELD;
    op->held++;
    wefti_held_work_ask(&list->work);
}

wefti_wait wefti_step_bytes(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    /* The program's function, one call at a time. */
    const bool calls =
        is_user(op) && step->elems > 0 &&
        (step->kind == WEFTI_STEP_REDUCE || step->kind == WEFTI_STEP_COMBINE);
    /* What a fault lets end is ended before the lock is given back; what could
     * not be read is not asked for again. */
    if ((calls ||
         step->elems * op->role.elem_bytes >= WEFTI_WORK_LEAST_BYTES) &&
        !list->unread && !wefti_fault_is_published(comm)) {
        hold(comm, op, list, calls);
        return WEFTI_WAIT_HOST;
    }
    if (calls && comm->alone) {
        return WEFTI_WAIT_HOST;
    }
    if (!make(comm, op, list)) {
        list->phase = WEFTI_PHASE_START;
        list->place = 0;
        return WEFTI_WAIT_PEER;
    }
    return WEFTI_WAIT_NOTHING;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step.c - the steps, as resumable state.
 *
 *   START --ready gate--> [FETCH] --> READY --peers, room, writable gate-->
 *   [STORE] --> done
 *
 * FETCH brings a source from device memory the host cannot read into a bounce
 * of the list (SEND: straight into the staged message); STORE takes the result
 * back. Both are copies of the device (comm/engine/copies.h) and do not occur
 * for host memory. While a step is under way, the source of the next one that
 * reads the send buffer is fetched too:
 *
 *   fetches  | source 0 | source 1 |     source 2      |
 *   host                | step 0: reduce, send | step 1: ...
 *   stores                              | result 0 |
 *
 * A RELAY is a REDUCE whose result is a staged message. What this rank gives to
 * a pre-multiplied sum is multiplied on its way to that, or to the bounce.
 */
#include "comm/steps/step.h"

#include "base/check.h"
#include "comm/engine/copies.h"
#include "comm/engine/op.h"
#include "comm/steps/agree.h"
#include "comm/steps/deferred.h"
#include "comm/steps/reduction.h"
#include "comm/steps/slot.h"
#include "comm/steps/step_gates.h"
#include "comm/steps/sum.h"
#include "comm/steps/taking.h"
#include "comm/steps/unstaged.h"
#include "kernels/wire/reduce.h"

static unsigned char *target(const wefti_op *op, const wefti_step_list *list,
                             wefti_buffer buffer, size_t elem)
{
    unsigned char *begin =
        buffer == WEFTI_BUFFER_SCRATCH ? list->scratch : op->desc.recv;
    return begin + elem * wefti_elem_bytes(op, buffer);
}

static const unsigned char *source(const wefti_op *op,
                                   const wefti_step_list *list,
                                   wefti_buffer buffer, size_t elem)
{
    if (buffer != WEFTI_BUFFER_SEND) {
        return target(op, list, buffer, elem);
    }
    return (const unsigned char *)op->desc.send +
           elem * wefti_elem_bytes(op, buffer);
}

static bool on_device(const wefti_op *op, wefti_buffer buffer)
{
    return buffer == WEFTI_BUFFER_SEND   ? op->places.send
           : buffer == WEFTI_BUFFER_RECV ? op->places.recv
                                         : false;
}

bool wefti_step_fetches(const wefti_op *op, const wefti_step *step)
{
    /* From device to device a copy goes straight. */
    return step->elems > 0 && on_device(op, step->src) &&
           !(step->kind == WEFTI_STEP_COPY && on_device(op, step->dst));
}

static void ask(weft_comm *comm, const wefti_op *op,
                const wefti_step_list *list, int way, void *dst,
                const void *src, size_t bytes)
{
    wefti_copies_ask(comm, wefti_copy_place(comm, op, list, way), dst, src,
                     bytes);
}

static bool is_copied(weft_comm *comm, const wefti_op *op,
                      const wefti_step_list *list, int way)
{
    return wefti_copies_are_done(comm, wefti_copy_place(comm, op, list, way));
}

/* Whether the step reads this rank's own data to a pre-multiplied sum. */
static bool scales(const wefti_op *op, const wefti_step *step)
{
    return op->desc.scale && step->src == WEFTI_BUFFER_SEND;
}

static void scale(const wefti_op *op, const wefti_step *step, void *dst,
                  const void *src)
{
    wefti_scale(dst, src, op->desc.scale, step->elems, op->desc.dtype);
}

/*
 * Makes the fetch that ran ahead the step's own: the next step that reads the
 * send buffer is the one it was made for.
 */
static bool take_ahead(wefti_step_list *list)
{
    if (!list->ahead || list->step.src != WEFTI_BUFFER_SEND) {
        return false;
    }
    list->way = 1 - list->way;
    list->ahead = false;
    return true;
}

void wefti_step_fetch_ahead(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list, const wefti_step *step,
                            const size_t later[WEFTI_CHANNELS])
{
    const int way = 1 - list->way;
    const size_t bytes = step->elems * wefti_elem_bytes(op, step->src);
    const void *src = source(op, list, step->src, step->src_elem);
    const size_t before = later[step->channel];
    const bool sends = step->kind == WEFTI_STEP_SEND;
    if (!wefti_step_source_ready(comm, op, step) ||
        (sends && wefti_slot_blocker(comm, op, step, before) >= 0)) {
        return;
    }
    void *dst =
        sends ? wefti_slot_stage(comm, op, step, before) : list->bounces[way];
    ask(comm, op, list, way, dst, src, bytes);
    list->ahead = true;
}

/* Brings a message's bytes into its slot. */
static wefti_wait stage_step(weft_comm *comm, wefti_op *op,
                             wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const size_t bytes = step->elems * wefti_elem_bytes(op, step->src);
    const void *src = source(op, list, step->src, step->src_elem);
    const bool fetches = wefti_step_fetches(op, step);
    if (!wefti_step_source_ready(comm, op, step)) {
        return WEFTI_WAIT_GATE;
    }
    wefti_op_piece_open(op);
    if (fetches && take_ahead(list)) {
        list->phase = WEFTI_PHASE_FETCH;
        return WEFTI_WAIT_DEVICE;
    }
    int blocker = fetches ? -1 : wefti_slot_find_full(comm, op, step);
    if (blocker < 0) {
        blocker = wefti_slot_blocker(comm, op, step, 0);
    }
    if (blocker >= 0) {
        list->peer = blocker;
        return WEFTI_WAIT_PEER;
    }
    if (wefti_unstaged_place(comm, op, step, src, bytes)) {
        list->phase = WEFTI_PHASE_READY;
        return WEFTI_WAIT_NOTHING;
    }
    void *staged = wefti_slot_stage(comm, op, step, 0);
    if (fetches) {
        ask(comm, op, list, list->way, staged, src, bytes);
        list->phase = WEFTI_PHASE_FETCH;
        return WEFTI_WAIT_DEVICE;
    }
    if (scales(op, step)) {
        scale(op, step, staged, src);
    } else {
        wefti_copy(staged, src, bytes);
    }
    list->phase = WEFTI_PHASE_READY;
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait send_step(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    if (list->phase == WEFTI_PHASE_START) {
        wefti_wait wait = stage_step(comm, op, list);
        if (wait != WEFTI_WAIT_NOTHING) {
            return wait;
        }
    }
    if (list->phase == WEFTI_PHASE_FETCH) {
        if (!is_copied(comm, op, list, list->way)) {
            return WEFTI_WAIT_DEVICE;
        }
        if (scales(op, step)) {
            void *staged = wefti_slot_stage(comm, op, step, 0);
            scale(op, step, staged, staged);
        }
        list->phase = WEFTI_PHASE_READY;
    }
    const int full = wefti_slot_find_full(comm, op, step);
    if (full >= 0) {
        list->peer = full;
        return WEFTI_WAIT_PEER;
    }
    wefti_slot_post(comm, op, step,
                    step->elems * wefti_elem_bytes(op, step->src),
                    source(op, list, step->src, step->src_elem));
    return WEFTI_WAIT_NOTHING;
}

/* The end of every step that writes a result: host memory is written already,
 * device memory from `from`, by a copy that this waits for. */
static wefti_wait store_result(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list, const void *from)
{
    const wefti_step *step = &list->step;
    if (!on_device(op, step->dst) || step->elems == 0) {
        return WEFTI_WAIT_NOTHING;
    }
    if (list->phase != WEFTI_PHASE_STORE) {
        ask(comm, op, list, WEFTI_COPY_STORE,
            target(op, list, step->dst, step->dst_elem), from,
            step->elems * wefti_elem_bytes(op, step->dst));
        list->phase = WEFTI_PHASE_STORE;
    }
    return is_copied(comm, op, list, WEFTI_COPY_STORE) ? WEFTI_WAIT_NOTHING
                                                       : WEFTI_WAIT_DEVICE;
}

/* The same, and what has been written is there. */
static wefti_wait end_result(weft_comm *comm, wefti_op *op,
                             wefti_step_list *list, const void *from)
{
    wefti_wait wait = store_result(comm, op, list, from);
    if (wait == WEFTI_WAIT_NOTHING) {
        wefti_step_announce(op, &list->step);
    }
    return wait;
}

/* Of the buffer, what nobody reads before the end; a device's is a bounce. */
static size_t left_bytes(const wefti_op *op, wefti_buffer buffer)
{
    return buffer == WEFTI_BUFFER_RECV && !op->places.recv
               ? wefti_op_recv_elems(op) * wefti_elem_bytes(op, buffer)
               : 0;
}

static wefti_wait recv_step(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list)
{
    wefti_step *step = &list->step;
    void *dst = target(op, list, step->dst, step->dst_elem);
    wefti_incoming message;
    list->peer = step->peer;
    if (!wefti_look_for(comm, op, step, step->peer, &message)) {
        return WEFTI_WAIT_PEER;
    }
    const size_t bytes = message.bytes;
    step->elems = bytes / wefti_elem_bytes(op, step->dst);
    if (list->phase != WEFTI_PHASE_STORE &&
        !wefti_step_target_writable(comm, op, step)) {
        return WEFTI_WAIT_GATE;
    }
    wefti_op_piece_open(op);
    if (message.place != WEFTI_PLACE_STAGED) {
        WEFTI_ASSERT(!on_device(op, step->dst)); /* comm/steps/unstaged.c */
        if (!wefti_unstaged_copy(comm, op, step->peer, dst, &message)) {
            return WEFTI_WAIT_PEER;
        }
    } else if (!on_device(op, step->dst) && message.data != dst) {
        wefti_copy_part(dst, message.data, bytes, left_bytes(op, step->dst));
    }
    wefti_wait wait = store_result(comm, op, list, message.data);
    if (wait == WEFTI_WAIT_NOTHING) {
        wefti_take(comm, op, step, step->peer, bytes);
        wefti_step_announce(op, step);
    }
    return wait;
}

/* Brings the step's own source to where the host can read it. */
static wefti_wait fetch_source(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list, const void **source_out)
{
    const wefti_step *step = &list->step;
    const void *src = source(op, list, step->src, step->src_elem);
    const bool fetches = wefti_step_fetches(op, step);
    if (list->phase == WEFTI_PHASE_START) {
        if (!wefti_step_source_ready(comm, op, step)) {
            return WEFTI_WAIT_GATE;
        }
        wefti_op_piece_open(op);
        if (fetches && !take_ahead(list)) {
            ask(comm, op, list, list->way, list->bounces[list->way], src,
                step->elems * wefti_elem_bytes(op, step->src));
        }
        if (fetches) {
            list->phase = WEFTI_PHASE_FETCH;
            return WEFTI_WAIT_DEVICE;
        }
        list->phase = WEFTI_PHASE_READY;
        if (scales(op, step)) {
            scale(op, step, list->bounces[list->way], src);
        }
    }
    void *fetched = list->bounces[list->way];
    if (list->phase == WEFTI_PHASE_FETCH) {
        if (!is_copied(comm, op, list, list->way)) {
            return WEFTI_WAIT_DEVICE;
        }
        list->phase = WEFTI_PHASE_READY;
        if (scales(op, step)) {
            scale(op, step, fetched, fetched);
        }
    }
    *source_out = fetches || scales(op, step) ? fetched : src;
    return WEFTI_WAIT_NOTHING;
}

/* Where the host puts a result. */
static void *result_of(const wefti_op *op, const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    return on_device(op, step->dst)
               ? (void *)list->bounces[list->way]
               : (void *)target(op, list, step->dst, step->dst_elem);
}

static wefti_wait reduce_step(weft_comm *comm, wefti_op *op,
                              wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    void *result = NULL;
    if (list->phase != WEFTI_PHASE_STORE) {
        const void *own = NULL;
        wefti_wait wait = step->src == WEFTI_BUFFER_NONE
                              ? WEFTI_WAIT_NOTHING
                              : fetch_source(comm, op, list, &own);
        if (wait != WEFTI_WAIT_NOTHING) {
            return wait;
        }
        if (!wefti_sources_find(comm, op, list, own)) {
            return WEFTI_WAIT_PEER;
        }
        if (!wefti_step_target_writable(comm, op, step)) {
            return WEFTI_WAIT_GATE;
        }
        result = result_of(op, list);
        wefti_sum_make(comm, op, list, result);
        if (list->lent && !wefti_unstaged_holds(comm)) {
            return WEFTI_WAIT_PEER;
        }
        wefti_sources_take(comm, op, list);
    }
    return end_result(comm, op, list, result);
}

static wefti_wait relay_step(weft_comm *comm, wefti_op *op,
                             wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const void *own;
    wefti_wait wait = fetch_source(comm, op, list, &own);
    if (wait != WEFTI_WAIT_NOTHING) {
        return wait;
    }
    if (!wefti_sources_find(comm, op, list, own)) {
        return WEFTI_WAIT_PEER;
    }
    int blocker = wefti_slot_find_full(comm, op, step);
    if (blocker < 0) {
        blocker = wefti_slot_blocker(comm, op, step, 0);
    }
    if (blocker >= 0) {
        list->peer = blocker;
        return WEFTI_WAIT_PEER;
    }
    wefti_sum_make(comm, op, list, wefti_slot_stage(comm, op, step, 0));
    if (list->lent && !wefti_unstaged_holds(comm)) {
        return WEFTI_WAIT_PEER;
    }
    wefti_sources_take(comm, op, list);
    wefti_slot_post(comm, op, step,
                    step->elems *
                        wefti_elem_bytes(op, step->wide ? WEFTI_BUFFER_SCRATCH
                                                        : WEFTI_BUFFER_SEND),
                    NULL);
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait widen_step(weft_comm *comm, wefti_op *op,
                             wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const void *own;
    wefti_wait wait = fetch_source(comm, op, list, &own);
    if (wait != WEFTI_WAIT_NOTHING) {
        return wait;
    }
    if (wefti_redop_is_user(op->desc.redop)) {
        wefti_copy(list->scratch, own,
                   step->elems * wefti_elem_bytes(op, step->dst));
    } else {
        wefti_widen(list->scratch, own, step->elems, op->desc.dtype);
    }
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait combine_step(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    wefti_incoming message;
    list->peer = step->peer;
    if (!wefti_look_for(comm, op, step, step->peer, &message)) {
        return WEFTI_WAIT_PEER;
    }
    if (wefti_redop_is_user(op->desc.redop)) {
        wefti_reduction_combine(wefti_reduction_get(comm, op->desc.redop),
                                list->scratch, message.data, step->elems,
                                op->desc.dtype);
    } else {
        wefti_combine(list->scratch, message.data, step->elems, op->desc.dtype,
                      op->desc.redop);
    }
    wefti_take(comm, op, step, step->peer, message.bytes);
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait narrow_step(weft_comm *comm, wefti_op *op,
                              wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    void *result = result_of(op, list);
    if (list->phase != WEFTI_PHASE_STORE) {
        if (!wefti_step_target_writable(comm, op, step)) {
            return WEFTI_WAIT_GATE;
        }
        wefti_sum_finish(op, result, list->scratch, step->elems);
    }
    return end_result(comm, op, list, result);
}

static wefti_wait copy_step(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    if (!op->desc.recv) {
        return WEFTI_WAIT_NOTHING; /* a root that does not want its own data */
    }
    const void *src = source(op, list, step->src, step->src_elem);
    void *dst = target(op, list, step->dst, step->dst_elem);
    const void *from = src;
    if (list->phase != WEFTI_PHASE_STORE) {
        wefti_wait wait = fetch_source(comm, op, list, &from);
        if (wait != WEFTI_WAIT_NOTHING) {
            return wait;
        }
    }
    if (src != dst && list->phase != WEFTI_PHASE_STORE &&
        !wefti_step_target_writable(comm, op, step)) {
        return WEFTI_WAIT_GATE;
    }
    if (src != dst) {
        const bool straight =
            on_device(op, step->src) && on_device(op, step->dst);
        if (list->phase != WEFTI_PHASE_STORE && !straight) {
            wefti_copy_part(result_of(op, list), from,
                            step->elems * wefti_elem_bytes(op, step->dst),
                            left_bytes(op, step->dst));
            from = result_of(op, list);
        }
        return end_result(comm, op, list, from);
    }
    wefti_step_announce(op, step);
    return WEFTI_WAIT_NOTHING;
}

wefti_wait wefti_step_advance(weft_comm *comm, wefti_op *op,
                              wefti_step_list *list)
{
    wefti_wait wait;
    if (!wefti_op_may_read(comm, op, list)) {
        return WEFTI_WAIT_PEER;
    }
    if (wefti_op_is_deferred(op) && list->phase == WEFTI_PHASE_START &&
        !wefti_deferred_settle(comm, op, list, &wait)) {
        return wait;
    }
    switch (list->step.kind) {
    case WEFTI_STEP_COPY:
        return copy_step(comm, op, list);
    case WEFTI_STEP_SEND:
        return send_step(comm, op, list);
    case WEFTI_STEP_RECV:
        return recv_step(comm, op, list);
    case WEFTI_STEP_REDUCE:
        return reduce_step(comm, op, list);
    case WEFTI_STEP_RELAY:
        return relay_step(comm, op, list);
    case WEFTI_STEP_WIDEN:
        return widen_step(comm, op, list);
    case WEFTI_STEP_COMBINE:
        return combine_step(comm, op, list);
    case WEFTI_STEP_ROUND:
        wefti_sum_round(op, list->scratch, list->step.elems);
        return WEFTI_WAIT_NOTHING;
    case WEFTI_STEP_NARROW:
        return narrow_step(comm, op, list);
    }
    return WEFTI_WAIT_NOTHING;
}

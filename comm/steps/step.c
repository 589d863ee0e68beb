/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step.c - the steps, as resumable state.
 *
 *   START --ready gate--> [FETCH] --> READY --peers, room, writable gate-->
 *   bytes, if many [HELD] --> MADE --> [STORE] --> done
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
#include "comm/steps/slot.h"
#include "comm/steps/step_bytes.h"
#include "comm/steps/step_gates.h"
#include "comm/steps/taking.h"
#include "comm/steps/unstaged.h"

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

bool wefti_step_fetches(const wefti_op *op, const wefti_step *step)
{
    /* From device to device a copy goes straight. */
    return step->elems > 0 && wefti_step_on_device(op, step->src) &&
           !(step->kind == WEFTI_STEP_COPY &&
             wefti_step_on_device(op, step->dst));
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

/* ---- what a step needs before its bytes can move --------------------------
 */

static wefti_wait prepare_send(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const size_t bytes = step->elems * wefti_elem_bytes(op, step->src);
    const bool fetches = wefti_step_fetches(op, step);
    if (list->phase == WEFTI_PHASE_FETCH) {
        if (!is_copied(comm, op, list, list->way)) {
            return WEFTI_WAIT_DEVICE;
        }
        list->from = wefti_slot_stage(comm, op, step, 0);
        list->to = wefti_step_scales(op, step)
                       ? wefti_slot_stage(comm, op, step, 0)
                       : NULL;
        return WEFTI_WAIT_NOTHING;
    }
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
    list->from = source(op, list, step->src, step->src_elem);
    if (wefti_unstaged_place(comm, op, step, list->from, bytes)) {
        return WEFTI_WAIT_NOTHING;
    }
    if (!fetches) {
        wefti_slot_choose(comm, op, step, bytes);
    }
    list->to = wefti_slot_stage(comm, op, step, 0);
    if (fetches) {
        ask(comm, op, list, list->way, list->to, list->from, bytes);
        list->phase = WEFTI_PHASE_FETCH;
        return WEFTI_WAIT_DEVICE;
    }
    return WEFTI_WAIT_NOTHING;
}

/* Its one message: where that lies, and how long it is. */
static bool find_message(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    wefti_incoming message;
    list->peer = list->step.peer;
    if (!wefti_look_for(comm, op, &list->step, list->peer, &message)) {
        return false;
    }
    list->from = message.data;
    list->from_bytes = message.bytes;
    list->from_place = message.place;
    return true;
}

static wefti_wait prepare_recv(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
{
    wefti_step *step = &list->step;
    void *dst = target(op, list, step->dst, step->dst_elem);
    if (!find_message(comm, op, list)) {
        return WEFTI_WAIT_PEER;
    }
    step->elems = list->from_bytes / wefti_elem_bytes(op, step->dst);
    if (!wefti_step_target_writable(comm, op, step)) {
        return WEFTI_WAIT_GATE;
    }
    wefti_op_piece_open(op);
    const bool staged = list->from_place == WEFTI_PLACE_STAGED;
    const bool device = wefti_step_on_device(op, step->dst);
    WEFTI_ASSERT(staged || !device); /* comm/steps/unstaged.c */
    list->to = staged && (device || list->from == dst) ? NULL : dst;
    return WEFTI_WAIT_NOTHING;
}

/* Brings the step's own source to where the host can read it: list->from. */
static wefti_wait fetch_source(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
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
        list->phase = fetches ? WEFTI_PHASE_FETCH : WEFTI_PHASE_READY;
        if (fetches) {
            return WEFTI_WAIT_DEVICE;
        }
    }
    if (list->phase == WEFTI_PHASE_FETCH) {
        if (!is_copied(comm, op, list, list->way)) {
            return WEFTI_WAIT_DEVICE;
        }
        list->phase = WEFTI_PHASE_READY;
    }
    list->from = fetches ? list->bounces[list->way] : src;
    return WEFTI_WAIT_NOTHING;
}

/* Where the host puts a result. */
static void *result_of(const wefti_op *op, const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    return wefti_step_on_device(op, step->dst)
               ? (void *)list->bounces[list->way]
               : (void *)target(op, list, step->dst, step->dst_elem);
}

/* All that is added up. */
static wefti_wait find_sources(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    if (step->src != WEFTI_BUFFER_NONE) {
        wefti_wait wait = fetch_source(comm, op, list);
        if (wait != WEFTI_WAIT_NOTHING) {
            return wait;
        }
    }
    const void *own =
        wefti_step_scales(op, step) ? list->bounces[list->way] : list->from;
    return wefti_sources_find(comm, op, list, own) ? WEFTI_WAIT_NOTHING
                                                   : WEFTI_WAIT_PEER;
}

static wefti_wait prepare_reduce(weft_comm *comm, wefti_op *op,
                                 wefti_step_list *list)
{
    wefti_wait wait = find_sources(comm, op, list);
    if (wait == WEFTI_WAIT_NOTHING &&
        !wefti_step_target_writable(comm, op, &list->step)) {
        wait = WEFTI_WAIT_GATE;
    }
    list->to = result_of(op, list);
    return wait;
}

static wefti_wait prepare_relay(weft_comm *comm, wefti_op *op,
                                wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    wefti_wait wait = find_sources(comm, op, list);
    if (wait != WEFTI_WAIT_NOTHING) {
        return wait;
    }
    int blocker = wefti_slot_find_full(comm, op, step);
    if (blocker < 0) {
        blocker = wefti_slot_blocker(comm, op, step, 0);
    }
    if (blocker >= 0) {
        list->peer = blocker;
        return WEFTI_WAIT_PEER;
    }
    list->to = wefti_slot_stage(comm, op, step, 0);
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait prepare_narrow(weft_comm *comm, wefti_op *op,
                                 wefti_step_list *list)
{
    list->to = result_of(op, list);
    return wefti_step_target_writable(comm, op, &list->step)
               ? WEFTI_WAIT_NOTHING
               : WEFTI_WAIT_GATE;
}

/* From device to device; the host has no part in it. */
static bool goes_straight(const wefti_op *op, const wefti_step *step)
{
    return wefti_step_on_device(op, step->src) &&
           wefti_step_on_device(op, step->dst) && !wefti_step_scales(op, step);
}

static bool stays(const wefti_op *op, const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    return source(op, list, step->src, step->src_elem) ==
           target(op, list, step->dst, step->dst_elem);
}

/* Of a root that does not want its own data; what passes parts on has scratch.
 */
static bool lacks_target(const wefti_op *op, const wefti_step *step)
{
    return step->dst == WEFTI_BUFFER_RECV && !op->desc.recv;
}

static wefti_wait prepare_copy(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    if (lacks_target(op, step)) {
        return WEFTI_WAIT_NOTHING;
    }
    wefti_wait wait = fetch_source(comm, op, list);
    if (wait != WEFTI_WAIT_NOTHING || stays(op, list)) {
        return wait;
    }
    if (!wefti_step_target_writable(comm, op, step)) {
        return WEFTI_WAIT_GATE;
    }
    list->to = goes_straight(op, step) ? NULL : result_of(op, list);
    return WEFTI_WAIT_NOTHING;
}

static wefti_wait prepare(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    list->to = list->scratch;
    switch (list->step.kind) {
    case WEFTI_STEP_COPY:
        list->to = NULL;
        return prepare_copy(comm, op, list);
    case WEFTI_STEP_SEND:
        list->to = NULL;
        return prepare_send(comm, op, list);
    case WEFTI_STEP_RECV:
        return prepare_recv(comm, op, list);
    case WEFTI_STEP_REDUCE:
        return prepare_reduce(comm, op, list);
    case WEFTI_STEP_RELAY:
        return prepare_relay(comm, op, list);
    case WEFTI_STEP_WIDEN:
        return fetch_source(comm, op, list);
    case WEFTI_STEP_COMBINE:
        return find_message(comm, op, list) ? WEFTI_WAIT_NOTHING
                                            : WEFTI_WAIT_PEER;
    case WEFTI_STEP_ROUND:
        return WEFTI_WAIT_NOTHING;
    case WEFTI_STEP_NARROW:
        return prepare_narrow(comm, op, list);
    }
    return WEFTI_WAIT_NOTHING;
}

/* ---- what becomes of the bytes ---------------------------------------------
 */

/* The end of every step that writes a result: host memory is written already,
 * device memory from `from`, by a copy that this waits for. */
static wefti_wait store_result(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list, const void *from)
{
    const wefti_step *step = &list->step;
    if (!wefti_step_on_device(op, step->dst) || step->elems == 0) {
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

static wefti_wait end_send(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    const wefti_step *step = &list->step;
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

static wefti_wait end_recv(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    wefti_wait wait = store_result(comm, op, list, list->from);
    if (wait == WEFTI_WAIT_NOTHING) {
        wefti_take(comm, op, step, step->peer, list->from_bytes);
        wefti_step_announce(op, step);
    }
    return wait;
}

static wefti_wait end_reduce(weft_comm *comm, wefti_op *op,
                             wefti_step_list *list)
{
    if (list->phase != WEFTI_PHASE_STORE) {
        if (list->lent && !wefti_unstaged_holds(comm)) {
            return WEFTI_WAIT_PEER;
        }
        wefti_sources_take(comm, op, list);
    }
    return end_result(comm, op, list, list->to);
}

static wefti_wait end_relay(weft_comm *comm, wefti_op *op,
                            wefti_step_list *list)
{
    const wefti_step *step = &list->step;
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

static wefti_wait end_copy(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    if (lacks_target(op, &list->step)) {
        return WEFTI_WAIT_NOTHING;
    }
    if (stays(op, list)) {
        wefti_step_announce(op, &list->step);
        return WEFTI_WAIT_NOTHING;
    }
    return end_result(comm, op, list, list->to ? list->to : list->from);
}

static wefti_wait end(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    switch (list->step.kind) {
    case WEFTI_STEP_COPY:
        return end_copy(comm, op, list);
    case WEFTI_STEP_SEND:
        return end_send(comm, op, list);
    case WEFTI_STEP_RECV:
        return end_recv(comm, op, list);
    case WEFTI_STEP_REDUCE:
        return end_reduce(comm, op, list);
    case WEFTI_STEP_RELAY:
        return end_relay(comm, op, list);
    case WEFTI_STEP_COMBINE:
        wefti_take(comm, op, &list->step, list->step.peer, list->from_bytes);
        return WEFTI_WAIT_NOTHING;
    case WEFTI_STEP_NARROW:
        return end_result(comm, op, list, list->to);
    case WEFTI_STEP_WIDEN:
    case WEFTI_STEP_ROUND:
        return WEFTI_WAIT_NOTHING;
    }
    return WEFTI_WAIT_NOTHING;
}

wefti_wait wefti_step_advance(weft_comm *comm, wefti_op *op,
                              wefti_step_list *list)
{
    wefti_wait wait;
    if (list->phase < WEFTI_PHASE_HELD) {
        if (!wefti_op_may_read(comm, op, list)) {
            return WEFTI_WAIT_PEER;
        }
        if (wefti_op_is_deferred(op) && list->phase == WEFTI_PHASE_START &&
            !wefti_deferred_settle(comm, op, list, &wait)) {
            return wait;
        }
        wait = prepare(comm, op, list);
        if (wait == WEFTI_WAIT_NOTHING) {
            wait = list->to ? wefti_step_bytes(comm, op, list) : wait;
        }
        if (wait != WEFTI_WAIT_NOTHING) {
            return wait;
        }
        list->phase = WEFTI_PHASE_MADE;
    }
    return end(comm, op, list);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/taking.c - from the fabric, whoever sent it and however wide.
 */
#include "comm/steps/taking.h"

#include "base/check.h"
#include "comm/engine/op.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/deferred.h"
#include "comm/steps/slot.h"
#include "comm/steps/sum.h"
#include "comm/steps/unstaged.h"
#include "kernels/wire/reduce.h"

size_t wefti_elem_bytes(const wefti_op *op, wefti_buffer buffer)
{
    bool wide = buffer == WEFTI_BUFFER_SCRATCH && op->role.shape->reduces &&
                !wefti_redop_is_user(op->desc.redop);
    return wide ? wefti_wide_bytes(op->desc.dtype)
                : weft_dtype_bytes(op->desc.dtype);
}

bool wefti_look_for(weft_comm *comm, wefti_op *op, const wefti_step *step,
                    int peer, wefti_incoming *message)
{
    const bool wide = step->dst == WEFTI_BUFFER_SCRATCH,
               p2p = wefti_op_slot_is_p2p(op->op_slot),
               told = wefti_op_is_signed(comm, op, peer);
    size_t bytes = step->elems *
                   wefti_elem_bytes(op, wide ? step->dst : WEFTI_BUFFER_RECV);
    if ((!told && !wefti_op_check_peer(comm, op, peer)) ||
        !wefti_fabric_peek(&comm->fabric, wefti_slot_path(op, step, peer),
                           message, &comm->engine->due_ns) ||
        (told && !wefti_op_check_sent(comm, op, peer, message->signature))) {
        return false;
    }
    if (p2p && !wefti_signature_equal(message->signature, op->signature)) {
        wefti_op_report_mismatch(comm, op, peer, message->signature);
        return false;
    }
    if (wefti_op_is_deferred(op) &&
        !wefti_deferred_fits(comm, op, step, peer, message->bytes, &bytes)) {
        return false;
    }
    if (!wefti_op_check_bytes(comm, op, peer, message->bytes, bytes)) {
        return false;
    }
    wefti_op_piece_note(op, message->ready_ns);
    return true;
}

void wefti_take(weft_comm *comm, wefti_op *op, const wefti_step *step, int peer,
                size_t bytes)
{
    op->piece.bytes += peer == comm->rank ? 0 : bytes;
    wefti_fabric_release(&comm->fabric, wefti_slot_path(op, step, peer));
}

/*
 * Where rank's elements, of another process, can be reduced: the list's
 * scratch, or the bounces behind it, which such operations do not use. NULL:
 * they could not be read.
 */
static const void *bring_here(weft_comm *comm, const wefti_op *op,
                              const wefti_step_list *list, int rank,
                              const wefti_incoming *message)
{
    const int piece = rank > comm->rank ? rank - 1 : rank;
    WEFTI_ASSERT(piece <= WEFTI_BOUNCES);
    void *room = piece == 0 ? list->scratch : list->bounces[piece - 1];
    return wefti_unstaged_copy(comm, op, rank, room, message) ? room : NULL;
}

/* The step as it reads from one source: what is a sum already is wide. */
static wefti_step reading_of(const wefti_step *step, const wefti_source *from)
{
    wefti_step reading = *step;
    reading.channel = from->channel;
    reading.dst = from->ranks > 1 ? WEFTI_BUFFER_SCRATCH : step->dst;
    return reading;
}

bool wefti_sources_find(weft_comm *comm, wefti_op *op, wefti_step_list *list,
                        const void *own)
{
    const wefti_step *step = &list->step;
    const int places = wefti_sum_sources(op, step);
    list->begins[0] = 0;
    for (; list->place < places; list->place++) {
        const wefti_source from =
            wefti_source_at(&op->problem, step, list->place);
        wefti_incoming message = {.data = own};
        list->peer = from.rank;
        if (!wefti_sum_is_own(op, step, from.rank)) {
            const wefti_step reading = reading_of(step, &from);
            if (!wefti_look_for(comm, op, &reading, from.rank, &message)) {
                return false;
            }
            list->lent |= message.place != WEFTI_PLACE_STAGED;
            if (!wefti_unstaged_is_here(comm, from.rank, &message)) {
                WEFTI_ASSERT(list->place <= WEFTI_BOUNCES + 1);
                list->apart |= 1u << list->place;
            }
        }
        list->sources[list->place] = message.data;
        list->begins[list->place + 1] = list->begins[list->place] + from.ranks;
    }
    return true;
}

bool wefti_sources_bring(weft_comm *comm, const wefti_op *op,
                         wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    for (int place = 0; list->apart >> place; place++) {
        if (!(list->apart >> place & 1)) {
            continue;
        }
        const wefti_source from = wefti_source_at(&op->problem, step, place);
        const wefti_incoming message = {
            .data = list->sources[place],
            .bytes = step->elems * wefti_elem_bytes(op, WEFTI_BUFFER_SEND),
            .place = WEFTI_PLACE_PROCESS};
        list->sources[place] = bring_here(comm, op, list, from.rank, &message);
        if (!list->sources[place]) {
            return false;
        }
    }
    return true;
}

void wefti_sources_take(weft_comm *comm, wefti_op *op,
                        const wefti_step_list *list)
{
    const wefti_step *step = &list->step;
    const int places = wefti_sum_sources(op, step);
    for (int place = 0; place < places; place++) {
        const wefti_source from = wefti_source_at(&op->problem, step, place);
        if (!wefti_sum_is_own(op, step, from.rank)) {
            const wefti_step reading = reading_of(step, &from);
            const size_t bytes =
                step->elems * wefti_elem_bytes(op, from.ranks > 1
                                                       ? WEFTI_BUFFER_SCRATCH
                                                       : WEFTI_BUFFER_SEND);
            wefti_take(comm, op, &reading, from.rank, bytes);
        }
    }
}

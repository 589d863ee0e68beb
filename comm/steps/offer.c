/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/offer.c - finding the places of the next messages.
 */
#include "comm/steps/offer.h"

#include "comm/net/remote.h"
#include "comm/steps/deferred.h"
#include "comm/steps/step_gates.h"
#include "comm/steps/step_list.h"

enum {
    OFFERS = WEFTI_DEPTH,   /* twice what a sender has under way */
    STEPS_MOST = 3 * OFFERS /* that are looked at */
};

/* Earlier offers of the same walk, whose messages come before. */
typedef struct walk {
    int peers[OFFERS], channels[OFFERS];
    int count;
} walk;

static uint64_t count_before(const walk *seen, const wefti_step *step)
{
    uint64_t before = 0;
    for (int i = 0; i < seen->count; i++) {
        before +=
            seen->peers[i] == step->peer && seen->channels[i] == step->channel;
    }
    return before;
}

/* Whether its message can go straight to the receive buffer. */
static bool suits(const weft_comm *comm, const wefti_op *op,
                  const wefti_step *step)
{
    size_t chunk;
    return step->dst == WEFTI_BUFFER_RECV && step->elems > 0 &&
           wefti_fabric_is_remote(&comm->fabric, step->peer) &&
           !wefti_step_find_unwritable(op, step, &chunk);
}

static void offer(weft_comm *comm, const wefti_op *op, walk *seen,
                  const wefti_step *step)
{
    const size_t elem_bytes = op->role.elem_bytes;
    unsigned char *memory =
        (unsigned char *)op->desc.recv + step->dst_elem * elem_bytes;
    const wefti_fabric_path path = {step->peer, op->op_slot, step->channel};
    wefti_remote_offer(&comm->fabric, path, count_before(seen, step), memory,
                       step->elems * elem_bytes);
    seen->peers[seen->count] = step->peer;
    seen->channels[seen->count++] = step->channel;
}

void wefti_offer_places(weft_comm *comm, const wefti_op *op,
                        wefti_step_list *list)
{
    const int t = (int)(list - op->lists);
    wefti_step_place at = list->at;
    wefti_step step = list->step;
    walk seen = {.count = 0};
    if (!comm->fabric.net || op->places.recv || wefti_op_is_deferred(op) ||
        step.kind != WEFTI_STEP_RECV || list->offered > OFFERS / 2) {
        return;
    }
    for (int look = 0; look < STEPS_MOST && seen.count < OFFERS; look++) {
        const bool takes = step.kind == WEFTI_STEP_RECV;
        if (step.kind == WEFTI_STEP_REDUCE || step.kind == WEFTI_STEP_RELAY ||
            (takes && !suits(comm, op, &step))) {
            break; /* it takes messages that are not counted here */
        }
        if (takes) {
            offer(comm, op, &seen, &step);
        }
        at.next++;
        if (!wefti_step_list_settle(op, t, &at)) {
            break;
        }
        wefti_step_list_get_step(op, t, &at, &step);
    }
    list->offered = seen.count;
}

void wefti_offers_withdraw(weft_comm *comm, const wefti_op *op)
{
    if (!comm->fabric.net || !op->desc.recv) {
        return;
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (wefti_fabric_is_remote(&comm->fabric, peer)) {
            wefti_remote_withdraw(&comm->fabric, peer, op->op_slot);
        }
    }
}

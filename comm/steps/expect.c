/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/expect.c - the shortest message that a list waits for.
 *
 * One that has come already is not waited for; those behind it on the same
 * path have not come either, but for short ones, which may overtake it.
 */
#include "comm/steps/expect.h"

#include "comm/control/fault.h"
#include "comm/engine/request.h"
#include "comm/engine/ticket.h"
#include "comm/steps/deferred.h"
#include "comm/steps/step_gates.h"
#include "comm/steps/step_list.h"

enum {
    TOGETHER_BYTES = 512 << 10, /* of messages in a row */
    OVERTAKES_BYTES = 8 << 10,  /* as comm/net/tcp_stream.c has it */
    STEPS_MOST = 16
};

/* Whether all that a step does is to take one message of peer's, and where its
 * bytes go. */
static bool takes_one(const wefti_op *op, const wefti_step *step, int peer)
{
    const bool receives = step->kind == WEFTI_STEP_RECV && step->peer == peer;
    const bool reduces = step->kind == WEFTI_STEP_REDUCE &&
                         step->peer == WEFTI_ALL_PEERS &&
                         step->src == WEFTI_BUFFER_SEND;
    return (receives || reduces) && step->dst == WEFTI_BUFFER_RECV &&
           op->problem.nranks == 2 && step->elems > 0;
}

/* How many of its messages a rank can send before it knows that one was read:
 * half of its slots, at least, as it asks early (comm/net/remote.c). */
static size_t count_free(const wefti_op *op, int channel)
{
    const int slots = op->slots[channel];
    return slots > 2 ? (size_t)slots / 2 : 1;
}

/* What the list waits for, with what comes behind it if that is seen by none:
 * as far as the chunk of an arrived gate that the first is of. */
static wefti_expected add_up(const wefti_op *op, const wefti_step_list *list,
                             int peer)
{
    const int t = (int)(list - op->lists);
    const size_t most = count_free(op, list->step.channel);
    wefti_step_place at = list->at;
    wefti_step step = list->step;
    wefti_expected sum = {1, step.elems * op->role.elem_bytes, false};
    while (sum.messages < most && sum.messages < STEPS_MOST) {
        at.next++;
        if (!wefti_step_list_settle(op, t, &at)) {
            break;
        }
        wefti_step_list_get_step(op, t, &at, &step);
        const size_t bytes = step.elems * op->role.elem_bytes;
        if (!takes_one(op, &step, peer) || step.channel != list->step.channel ||
            bytes <= OVERTAKES_BYTES || sum.bytes + bytes > TOGETHER_BYTES ||
            !wefti_step_shows_with(op, &step, &list->step)) {
            break;
        }
        sum.messages++;
        sum.bytes += bytes;
    }
    return sum;
}

static void take_less(wefti_expected *least, wefti_expected other)
{
    const bool first = least->messages == 0;
    if (first || other.messages < least->messages) {
        least->messages = other.messages; /* their headers count too */
    }
    if (first || other.bytes < least->bytes) {
        least->bytes = other.bytes;
    }
}

/* What comes for a list that waits for this rank's own gate or device. */
static const wefti_expected of_use_later = {1, TOGETHER_BYTES, false};

static bool find_of_lists(const wefti_op *op, int peer, wefti_expected *least)
{
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        const wefti_step_list *list = &op->lists[t];
        wefti_step_place at = list->at;
        if (!wefti_step_list_settle(op, t, &at)) {
            continue;
        }
        const bool waits = list->wait == WEFTI_WAIT_PEER;
        if (waits && list->loaded && list->step.kind == WEFTI_STEP_SEND) {
            least->blocked = true; /* until peer has read more */
            continue;
        }
        if (!list->loaded || list->wait == WEFTI_WAIT_NOTHING ||
            (waits && !takes_one(op, &list->step, peer))) {
            return false;
        }
        take_less(least, waits ? add_up(op, list, peer) : of_use_later);
    }
    return true;
}

/* Whether the stream of what is posted has yet to come to it. */
static bool is_ahead(const wefti_request *request)
{
    const wefti_ticket *ticket = request ? request->ticket : NULL;
    return ticket &&
           !wefti_gate_reached(ticket->start, ticket->chunk, ticket->turn);
}

static bool find_of_op(const wefti_op *op, int peer, wefti_expected *least)
{
    switch (op->state) {
    case WEFTI_OP_FREE:
    case WEFTI_OP_DRAINING: /* whatever waits for its slot says so */
        return true;
    case WEFTI_OP_POSTED:
        return is_ahead(op->request);
    case WEFTI_OP_RUNNING:
        break;
    }
    return wefti_choice_has_steps(&op->choice) && !op->role.shape->varied &&
           !wefti_op_is_deferred(op) &&
           !(op->being_read && op->unstaged != WEFTI_PLACE_LENT) &&
           !wefti_redop_is_user(op->desc.redop) &&
           find_of_lists(op, peer, least);
}

static bool find_of_messages(const weft_comm *comm, int peer,
                             wefti_expected *least)
{
    for (const wefti_p2p_queue *queue = comm->busy_queues; queue;
         queue = queue->next_busy) {
        const bool free = queue->op->state == WEFTI_OP_FREE;
        if (free ? !queue->ahead : !find_of_op(queue->op, peer, least)) {
            return false;
        }
    }
    return true;
}

bool wefti_expect(weft_comm *comm, int peer, wefti_expected *expected_out)
{
    *expected_out = (wefti_expected){0, 0, false};
    if (comm->nranks == 1) {
        return true;
    }
    if (comm->failed != WEFT_OK || wefti_fault_is_published(comm) ||
        comm->mems || comm->mem_ops || comm->posted || comm->streams ||
        comm->twin || atomic_load(&comm->inbox)) {
        return false;
    }
    for (int i = 0; i < WEFTI_OP_SLOTS; i++) {
        if (!find_of_op(&comm->ops[i], peer, expected_out)) {
            return false;
        }
    }
    return find_of_messages(comm, peer, expected_out);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/post/collective.c - from a posted collective to its op slot.
 */
#include "comm/post/collective.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/relax.h"
#include "comm/core/wake.h"
#include "comm/engine/extent.h"
#include "comm/engine/op.h"
#include "comm/post/carried_route.h"
#include "comm/steps/entry.h"
#include "comm/steps/op_life.h"
#include "comm/steps/quick.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKS_AT_ONCE = 100 }; /* some microseconds */

static wefti_op *next_op_slot(weft_comm *comm)
{
    return &comm->ops[(comm->number + 1) % WEFTI_OP_SLOTS];
}

static bool has_op_slot(weft_comm *comm)
{
    return next_op_slot(comm)->state == WEFTI_OP_FREE &&
           comm->number - comm->completed < (uint64_t)comm->ops_in_flight;
}

/* Whether its caller waits, and it is plain and may go first: it has entered
 * then. */
static bool enter_quickly(weft_comm *comm, const wefti_collective *self,
                          uint64_t number)
{
    const wefti_prepared *prepared = self->prepared;
    const wefti_quick quick = {.desc = &prepared->desc,
                               .role = &prepared->role,
                               .signature = &prepared->signature,
                               .number = number};
    return !self->request.block && !prepared->places.send &&
           !prepared->places.recv &&
           wefti_quick_suits(comm, &prepared->desc, &prepared->role,
                             &prepared->choice) &&
           wefti_quick_enter(comm, &quick);
}

static void take_op_slot(weft_comm *comm, wefti_collective *self)
{
    const wefti_prepared *prepared = self->prepared;
    wefti_op *op = next_op_slot(comm);
    op->number = ++comm->number;
    const bool entered = enter_quickly(comm, self, op->number);
    wefti_op_init(comm, op, &prepared->desc, &prepared->role, self->epoch);
    op->request = &self->request;
    op->ticket = self->request.ticket;
    op->places = prepared->places;
    op->choice = prepared->choice;
    op->signature = prepared->signature;
    op->state = WEFTI_OP_POSTED;
    if (entered) {
        wefti_quick_begin(comm, op);
    }
    const uint32_t op_slot = 1u << (op->number % WEFTI_OP_SLOTS);
    comm->active |= op_slot;
    if (wefti_class_is_urgent(prepared->desc.class_id)) {
        comm->urgent |= op_slot;
    }
}

/* What peers still read from the next op slot holds this rank up from now on.
 */
static void want_op_slot(weft_comm *comm)
{
    wefti_op *op = next_op_slot(comm);
    if (comm->wanted != op && op->state == WEFTI_OP_DRAINING) {
        op->moved_ns = wefti_clock_coarse_ns();
    }
    comm->wanted = op;
}

/* Gives op slots to as many as there are op slots for. */
static void launch(weft_comm *comm)
{
    while (comm->posted && has_op_slot(comm)) {
        wefti_collective *first = comm->posted;
        comm->posted = first->next;
        take_op_slot(comm, first);
    }
    if (comm->posted) {
        want_op_slot(comm);
    } else {
        comm->wanted = NULL;
    }
}

static void fail_chunks(weft_comm *comm, const wefti_collective *self)
{
    weft_gate *arrived = self->prepared->desc.arrived;
    if (arrived) {
        wefti_gate_fail(arrived, comm->failed, comm->fault.text);
    }
}

static void fail(weft_comm *comm)
{
    for (int op_slot = 0; op_slot < WEFTI_OP_SLOTS; op_slot++) {
        if (wefti_op_pending(&comm->ops[op_slot])) {
            wefti_op_finish(comm, &comm->ops[op_slot], comm->failed);
        }
    }
    while (comm->posted) {
        wefti_collective *first = comm->posted;
        comm->posted = first->next;
        fail_chunks(comm, first);
        wefti_request_end(comm, &first->request, comm->failed);
    }
    comm->wanted = NULL;
}

uint64_t wefti_collectives_find_user(const weft_comm *comm, weft_redop redop)
{
    uint64_t number = comm->number;
    for (const wefti_collective *at = comm->posted; at; at = at->next) {
        number++;
        if (at->prepared->desc.redop == redop) {
            return number;
        }
    }
    return 0;
}

static void refuse(weft_comm *comm, const wefti_request *request)
{
    fail_chunks(comm, (const wefti_collective *)request);
}

static void submit(weft_comm *comm, wefti_request *request)
{
    wefti_collective *self = (wefti_collective *)request;
    self->next = NULL;
    if (!comm->posted) {
        comm->posted_end = &comm->posted;
    }
    *comm->posted_end = self;
    comm->posted_end = &self->next;
}

/*
 * Looks for the end of a small operation a few times before the lock is given
 * back: its peers are mostly just about to enter it. Bounded, because others
 * may want the lock.
 */
static void push(weft_comm *comm, wefti_request *request)
{
    launch(comm);
    wefti_op *op = &comm->ops[comm->number % WEFTI_OP_SLOTS];
    if (op->request != request) {
        return; /* others come first */
    }
    const bool spin = wefti_engine_spins(comm->engine);
    if (op->state == WEFTI_OP_RUNNING) { /* it has entered quickly */
        for (int look = 0;
             !wefti_quick_look(comm, op) && spin && look < LOOKS_AT_ONCE;
             look++) {
            wefti_relax();
        }
        return;
    }
    wefti_op_advance(comm, op);
    const bool small = op->choice.pattern == &wefti_pattern_oneshot &&
                       !op->places.send && !op->places.recv &&
                       comm->fabric.ns_per_byte <= 0;
    for (int look = 0;
         small && spin && look < LOOKS_AT_ONCE && op->state == WEFTI_OP_RUNNING;
         look++) {
        if (!wefti_oneshot_advance(comm, op)) {
            wefti_relax();
        }
    }
}

static wefti_title describe(const weft_comm *comm, const wefti_request *request)
{
    const wefti_op *op = comm->ops;
    while (op->request !=
           request) { /* it has an op slot, or no rank would ask */
        op++;
    }
    return (wefti_title){op->signature.kind, op->number};
}

/* Those of a set of op slots, as long as the turn's budget lasts. */
static bool push_op_slots(weft_comm *comm, uint32_t op_slots)
{
    bool moved = false;
    for (uint64_t i = 1; i <= WEFTI_OP_SLOTS && op_slots & comm->active; i++) {
        /* Oldest first: later ones often wait for them. */
        size_t op_slot = (size_t)((comm->number + i) % WEFTI_OP_SLOTS);
        if ((op_slots & comm->active) >> op_slot & 1) {
            moved |= wefti_op_advance(comm, &comm->ops[op_slot]);
        }
        if (comm->budget_bytes <= 0) {
            break;
        }
    }
    return moved;
}

static bool advance(weft_comm *comm, bool urgent)
{
    if (comm->posted) {
        launch(comm);
    }
    bool moved = push_op_slots(comm, comm->urgent);
    if (!urgent) {
        moved |= push_op_slots(comm, ~comm->urgent);
    }
    return moved;
}

static bool are_done(const weft_comm *comm)
{
    bool done = comm->posted == NULL;
    for (int op_slot = 0; done && op_slot < WEFTI_OP_SLOTS; op_slot++) {
        done = !wefti_op_pending(&comm->ops[op_slot]);
    }
    return done;
}

const wefti_request_kind wefti_collective_kind = {.submit = submit,
                                                  .push = push,
                                                  .refuse = refuse,
                                                  .describe = describe,
                                                  .advance = advance,
                                                  .fail = fail,
                                                  .are_done = are_done};

/* One that its caller does not wait for, and all that he may take back. */
typedef struct queued {
    wefti_collective self;
    wefti_prepared prepared;
    unsigned char scale[8];
    size_t counts[]; /* [4][nranks] of a v form */
} queued;

static queued *make_queued(const wefti_prepared *prepared, uint64_t epoch,
                           int nranks)
{
    const weft_op *desc = &prepared->desc;
    const size_t ranks = prepared->role.shape->varied ? (size_t)nranks : 0;
    queued *made = malloc(sizeof(*made) + 4 * ranks * sizeof(size_t));
    if (!made) {
        return NULL;
    }
    made->prepared = *prepared;
    made->self = (wefti_collective){.request = {.kind = &wefti_collective_kind,
                                                .block = made,
                                                .uncaptured = true},
                                    .prepared = &made->prepared,
                                    .epoch = epoch};
    if (ranks) {
        wefti_extent_copy_counts(&made->prepared.desc, made->counts, nranks);
    }
    if (desc->scale) {
        memcpy(made->scale, desc->scale, prepared->role.elem_bytes);
        made->prepared.desc.scale = made->scale;
    }
    return made;
}

static weft_status no_memory(void)
{
    return wefti_error(WEFT_ERR_NO_MEMORY,
                       "no memory for an operation that is queued");
}

/* Carried out by the caller's stream, else by one of the route's, behind a
 * handle. */
static weft_status post_carried(const wefti_prepared *prepared, uint64_t epoch,
                                weft_comm *comm, weft_stream *stream,
                                weft_request **handle_out)
{
    wefti_carried handed = {comm, prepared, epoch};
    queued *made = make_queued(prepared, epoch, comm->nranks);
    return made ? wefti_request_carry(
                      comm, &made->self.request, stream,
                      wefti_carrier_of(prepared->choice.route)->stream(comm),
                      handle_out, wefti_carried_queue, &handed)
                : no_memory();
}

/* The stream is being captured. The ranks compare what they capture, which no
 * launch waits for. */
static weft_status capture(const wefti_prepared *prepared, weft_comm *comm,
                           weft_stream *stream)
{
    wefti_carried handed = {comm, prepared, 0};
    weft_status status = wefti_capture_check(&handed);
    if (status != WEFT_OK) {
        return status;
    }
    queued *made = make_queued(prepared, 0, comm->nranks);
    if (!made) {
        return no_memory();
    }
    wefti_choice *choice = &made->prepared.choice;
    choice->digest = WEFTI_CHOICE_GRAPH;
    made->prepared.signature =
        wefti_signature_pack(&prepared->desc, choice->digest);
    status = wefti_request_post(comm, &made->self.request);
    return status == WEFT_OK ? wefti_capture_queue(&handed, stream) : status;
}

weft_status wefti_collective_post(const wefti_prepared *prepared,
                                  uint64_t epoch, weft_comm *comm,
                                  weft_stream *stream,
                                  weft_request **handle_out)
{
    bool captured = false;
    weft_status status =
        stream ? wefti_stream_is_captured(stream, &captured) : WEFT_OK;
    if (status != WEFT_OK || captured) {
        return status == WEFT_OK ? capture(prepared, comm, stream) : status;
    }
    if (wefti_choice_is_carried(&prepared->choice)) {
        return post_carried(prepared, epoch, comm, stream, handle_out);
    }
    if (!stream && !handle_out) {
        wefti_collective here = {.request.kind = &wefti_collective_kind,
                                 .prepared = prepared,
                                 .epoch = epoch};
        return wefti_request_run(comm, &here.request);
    }
    queued *made = make_queued(prepared, epoch, comm->nranks);
    return made ? wefti_request_queue(comm, &made->self.request, stream,
                                      handle_out)
                : no_memory();
}

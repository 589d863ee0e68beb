/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/op_life.c - from posted to done: the states of comm/core/core.h.
 *
 * An operation enters when its stream has reached it and its op slot is free on
 * all ranks; then it runs its lists, or rides in the entries. Its poster is
 * free when the last step is done, its staging buffer when the last reader is.
 */
#include "comm/steps/op_life.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/control/fault.h"
#include "comm/core/wake.h"
#include "comm/engine/extent.h"
#include "comm/engine/op.h"
#include "comm/engine/request.h"
#include "comm/net/net.h"
#include "comm/net/remote.h"
#include "comm/net/rounds.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/carried.h"
#include "comm/steps/deferred.h"
#include "comm/steps/entry.h"
#include "comm/steps/host_counts.h"
#include "comm/steps/offer.h"
#include "comm/steps/slot.h"
#include "comm/steps/step_list.h"
#include "comm/steps/taking.h"
#include "comm/steps/unstaged.h"
#include "kernels/wire/reduce.h"

#include <stdio.h>
#include <string.h>

enum { REMOTE_SLOTS = 8 }; /* of a channel, where no two ranks share memory */

static size_t sum_of(const size_t *counts, int nranks)
{
    size_t sum = 0;
    for (int p = 0; p < nranks; p++) {
        sum += counts[p];
    }
    return sum;
}

/* Who gives how much to whom, and what pattern and gates make of it. */
static void size_up(const weft_comm *comm, wefti_op *op)
{
    weft_op *desc = &op->desc;
    const wefti_shape *shape = op->role.shape;
    if (shape->varied) {
        int nranks = comm->nranks;
        wefti_extent_copy_counts(desc, op->counts, nranks);
        op->send_elems = shape->send_parts && desc->send_counts
                             ? sum_of(desc->send_counts, nranks)
                             : desc->count;
        op->recv_elems = shape->recv_parts && desc->recv_counts
                             ? sum_of(desc->recv_counts, nranks)
                             : desc->count;
    } else {
        op->send_elems =
            wefti_role_send_elems(&op->role, desc->count, comm->nranks);
        op->recv_elems =
            wefti_role_recv_elems(&op->role, desc->count, comm->nranks);
    }
    op->problem =
        (wefti_problem){.collective = desc->collective,
                        .rank = comm->rank,
                        .nranks = comm->nranks,
                        .root = desc->root,
                        .count = desc->count,
                        .chunk_elems = 1,
                        .grouping = comm->grouping,
                        .flat = wefti_select_is_flat(&comm->tuning, desc),
                        .deferred = desc->deferred_counts != NULL,
                        .gated = desc->gate_elems == WEFT_GATE_PER_RANK,
                        .send_counts = desc->send_counts,
                        .send_displs = desc->send_displs,
                        .recv_counts = desc->recv_counts,
                        .recv_displs = desc->recv_displs};
}

/* Where messages and gate chunks end. */
static void cut_blocks(wefti_op *op)
{
    const weft_op *desc = &op->desc;
    op->blocks = 1;
    op->gate_per_rank = false;
    if (op->role.shape->varied) {
        op->gate_per_rank = desc->gate_elems == WEFT_GATE_PER_RANK;
        op->gate_elems = SIZE_MAX; /* else one chunk, whatever its span */
        return;
    }
    size_t send = op->send_elems, recv = op->recv_elems;
    size_t most = send > recv ? send : recv;
    bool cut = desc->gate_elems && desc->gate_elems < most;
    op->gate_elems = cut ? desc->gate_elems : most ? most : 1;
    /* Gates are each rank's own; where messages end is every rank's. */
    if (desc->count > op->gate_elems) {
        op->blocks = (desc->count - 1) / op->gate_elems + 1;
    }
}

void wefti_op_measure(const weft_comm *comm, wefti_op *op)
{
    size_up(comm, op);
    cut_blocks(op);
}

/* A signal of either wakes the thread that drives the engine. */
static void watch_gates(wefti_op *op)
{
    if (op->desc.ready) {
        wefti_gate_watch(op->desc.ready, &op->watcher);
    }
    if (op->desc.writable) {
        wefti_gate_watch(op->desc.writable, &op->writable_watcher);
    }
}

static void unwatch_gates(wefti_op *op)
{
    if (op->desc.ready) {
        wefti_gate_unwatch(op->desc.ready, &op->watcher);
    }
    if (op->desc.writable) {
        wefti_gate_unwatch(op->desc.writable, &op->writable_watcher);
    }
}

void wefti_op_init(weft_comm *comm, wefti_op *op, const weft_op *desc,
                   const wefti_role *role, uint64_t epoch)
{
    op->desc = *desc;
    op->role = *role;
    if (desc->scale) {
        memcpy(op->scale, desc->scale, role->elem_bytes);
        op->desc.scale = op->scale;
    }
    op->epoch = epoch;
    op->status = WEFT_OK;
    op->staging = -1;
    op->unstaged = WEFTI_PLACE_STAGED;
    op->being_read = false;
    op->lent = 0;
    op->held = 0;
    op->area = NULL;
    op->missing = op->round = 0;
    memset(op->sends, 0, sizeof(op->sends));
    memset(op->slots, 0, sizeof(op->slots));
    op->entered_ns = op->moved_ns = op->checked_ns = 0;
    op->warned = false;
    op->suspect = op->cause = -1;
    op->cause_ns = 0;
    op->request = NULL;
    op->ticket = NULL;
    op->brief = false;
    op->piece.open = false;
    op->piece.bytes = 0;
    op->piece.posted_ns = op->piece.ready_ns = 0;
    wefti_op_measure(comm, op);
    if (desc->arrived) {
        memset(op->gate_arrived, 0,
               wefti_op_recv_chunks(op) * sizeof(*op->gate_arrived));
    }
    watch_gates(op);
}

/* Parts that nothing will come of are there at once. */
static void empty_arrived(const wefti_op *op)
{
    const int parts = op->role.shape->recv_parts ? op->problem.nranks : 1;
    for (int part = 0; part < parts; part++) {
        if (wefti_op_recv_part(op, part) == 0) {
            wefti_op_raise_arrived(op, (size_t)part);
        }
    }
}

void wefti_op_look_completed(weft_comm *comm)
{
    uint64_t least = UINT64_MAX;
    if (comm->fabric.net) {
        least = wefti_rounds_get_completed(&comm->fabric);
    }
    for (int peer = 0; !comm->fabric.net && peer < comm->nranks; peer++) {
        wefti_rank_page *page =
            wefti_shared_get_page(&comm->fabric.shared, peer);
        uint64_t completed = atomic_load(&page->completed);
        least = completed < least ? completed : least;
    }
    comm->peers_done = least;
}

bool wefti_op_may_enter(weft_comm *comm, uint64_t number)
{
    if (number <= WEFTI_OP_SLOTS) {
        return true;
    }
    if (comm->fabric.net) { /* other hosts wait for the same */
        wefti_rounds_need(&comm->fabric, number - WEFTI_OP_SLOTS);
    }
    if (comm->peers_done >= number - WEFTI_OP_SLOTS) {
        return true;
    }
    wefti_op_look_completed(comm);
    return comm->peers_done >= number - WEFTI_OP_SLOTS;
}

/*
 * How many messages each channel has room for. No more than the pattern needs
 * where ranks share memory: what is in a cache is copied faster. Where none do,
 * a round trip and two wake-ups lie between a message and the word that its
 * slot is free, which are not to keep the link waiting.
 */
static void count_slots(const weft_comm *comm, wefti_op *op)
{
    const wefti_pattern *pattern = op->choice.pattern;
    const bool remote = comm->fabric.net && !comm->grouping;
    int spare = (int)(WEFTI_STAGING_BYTES / op->slot_bytes);
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        int slots = pattern->slots(&op->problem, channel);
        slots = slots < comm->slots_max ? slots : comm->slots_max;
        op->slots[channel] = slots < spare ? slots : spare;
        spare -= op->slots[channel];
    }
    for (int channel = 0; remote && channel < WEFTI_CHANNELS; channel++) {
        int more = op->slots[channel] ? REMOTE_SLOTS - op->slots[channel] : 0;
        more = more < spare ? more : spare;
        op->slots[channel] += more > 0 ? more : 0;
        spare -= more > 0 ? more : 0;
    }
}

/* How long its messages are, by the first of a list that begins with one. */
static size_t message_bytes(const wefti_op *op)
{
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        wefti_step_place at = op->lists[t].at;
        wefti_step step;
        if (!wefti_step_list_settle(op, t, &at)) {
            continue;
        }
        wefti_step_list_get_step(op, t, &at, &step);
        if (step.kind == WEFTI_STEP_SEND) {
            return step.elems * wefti_elem_bytes(op, step.src);
        }
    }
    return op->slot_bytes;
}

/* Where in a staging buffer the slots of an operation begin. */
static size_t find_begin(weft_comm *comm, const wefti_op *op)
{
    size_t bytes = 0;
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        bytes += (size_t)op->slots[channel] * op->slot_bytes;
    }
    /* An operation that goes round much memory by itself gains nothing. */
    if (bytes >= WEFTI_STAGER_FAR_BYTES / 2 ||
        !wefti_stager_is_far(&comm->engine->stager, message_bytes(op))) {
        return 0;
    }
    if (comm->far_begin + bytes > WEFTI_STAGER_FAR_BYTES) {
        comm->far_begin = 0;
    }
    const size_t begin = comm->far_begin;
    comm->far_begin += bytes;
    return begin;
}

static void open_staging(weft_comm *comm, wefti_op *op)
{
    size_t elem = wefti_wide_bytes(op->desc.dtype);
    op->slot_bytes = (op->choice.chunk_elems * elem + 63) / 64 * 64;
    count_slots(comm, op);
    size_t begin = find_begin(comm, op);
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        op->slots_begin[channel] = begin;
        begin += (size_t)op->slots[channel] * op->slot_bytes;
    }
    for (op->staging = 0; comm->staging_used >> op->staging & 1;) {
        op->staging++;
    }
    WEFTI_ASSERT(op->staging < WEFTI_OP_SLOTS);
    comm->staging_used |= 1u << op->staging;
}

/* Opens its lists, as soon as their lengths are known; whether they are. */
static bool begin_lists(weft_comm *comm, wefti_op *op)
{
    if (op->problem.relay_elems && !wefti_host_counts_find(comm, op)) {
        return false;
    }
    wefti_step_lists_start(op);
    open_staging(comm, op);
    op->unstaged = wefti_unstaged_choose(comm, op);
    return true;
}

static bool lists_are_open(const wefti_op *op)
{
    return op->staging >= 0 || wefti_op_slot_is_p2p(op->op_slot);
}

static void enter(weft_comm *comm, wefti_op *op)
{
    op->state = WEFTI_OP_RUNNING;
    op->entered_ns = op->moved_ns = wefti_clock_coarse_ns();
    if (wefti_op_slot_is_p2p(op->op_slot)) {
        wefti_op_piece_open(op);
        if (wefti_choice_is_carried(&op->choice)) {
            wefti_carried_enter_message(comm, op);
        }
        return;
    }
    op->checked[comm->rank] = op->number;
    op->unchecked = 0;
    wefti_comm_note(comm, op->number, op->signature.kind);
    if (wefti_choice_is_carried(&op->choice)) {
        wefti_carried_enter(comm, op);
        return;
    }
    if (!wefti_choice_has_steps(&op->choice)) {
        wefti_oneshot_enter(comm, op);
        return;
    }
    wefti_op_take_choice(comm, op);
    if (op->problem.relay_elems) {
        wefti_host_counts_declare(comm, op);
    } else {
        (void)begin_lists(comm, op);
    }
    if (!op->desc.ready) {
        wefti_op_piece_open(op);
    }
    if (wefti_op_is_deferred(op)) {
        wefti_deferred_start(comm, op);
    }
    if (op->gate_per_rank && op->desc.arrived && op->role.receives &&
        op->desc.recv) {
        empty_arrived(op);
    }
    const bool varied = op->role.shape->varied;
    wefti_oneshot_announce(comm, op,
                           varied ? wefti_op_declare_counts(comm, op) : 0, 0);
}

static bool try_enter(weft_comm *comm, wefti_op *op)
{
    if (op->request && !wefti_request_reached(comm, op->request)) {
        return false;
    }
    if (!wefti_op_slot_is_p2p(op->op_slot) &&
        !wefti_op_may_enter(comm, op->number)) {
        comm->watch->stalled(comm, op);
        return false;
    }
    if (!wefti_choice_has_steps(&op->choice) && !wefti_op_all_ready(op)) {
        wefti_engine_look(comm->engine, op->desc.ready);
        comm->watch->stalled(comm, op);
        return false;
    }
    if (op->role.sends && wefti_op_find_failed(comm, op, op->desc.ready)) {
        return false;
    }
    enter(comm, op);
    return true;
}

/* How far all operations have ended, and how far they are settled too. */
/* Of a line that no peer waits at. */
static void show_finished(weft_comm *comm)
{
    atomic_store_explicit(
        &wefti_shared_get_page(&comm->fabric.shared, comm->rank)->finished,
        comm->completed, memory_order_relaxed);
}

static void count_completed(weft_comm *comm)
{
    while (comm->completed < comm->number) {
        const wefti_op *next =
            &comm->ops[(comm->completed + 1) % WEFTI_OP_SLOTS];
        if (next->number == comm->completed + 1 && wefti_op_pending(next)) {
            break;
        }
        comm->completed++;
    }
    show_finished(comm);
}

/* How far this rank has got; peers may be waiting for it. */
static void publish(weft_comm *comm, uint64_t number)
{
    comm->settled = number;
    wefti_rank_page *page =
        wefti_shared_get_page(&comm->fabric.shared, comm->rank);
    atomic_store(&page->completed, number);
    if (comm->fabric.net) {
        wefti_remote_note_completed(&comm->fabric);
    }
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank) {
            wefti_doorbell_ring(comm->bells[peer]);
        }
    }
}

/* An entry may be written over when all have settled its operation: before
 * that, this rank must have looked at every rank's. */
static void publish_settled(weft_comm *comm)
{
    uint64_t number = comm->settled;
    while (number < comm->completed) {
        const wefti_op *next = &comm->ops[(number + 1) % WEFTI_OP_SLOTS];
        if (next->number == number + 1 && next->state == WEFTI_OP_DRAINING &&
            next->status == WEFT_OK && next->unchecked < comm->nranks) {
            break;
        }
        number++;
    }
    if (number != comm->settled) {
        publish(comm, number);
    }
}

static void free_op_slot(weft_comm *comm, wefti_op *op)
{
    op->state = WEFTI_OP_FREE;
    comm->active &= ~(1u << op->number % WEFTI_OP_SLOTS);
    comm->urgent &= comm->active;
}

/* Frees an op slot when no rank needs anything of it. */
static void drain(weft_comm *comm, wefti_op *op)
{
    bool failed = op->status != WEFT_OK; /* no rank reads any more */
    if (!failed && !wefti_op_check_all(comm, op)) {
        return;
    }
    publish_settled(comm);
    if (op->staging >= 0 && !failed && wefti_slots_find_reader(comm, op) >= 0) {
        return;
    }
    if (op->staging >= 0) {
        comm->staging_used &= ~(1u << op->staging);
    }
    free_op_slot(comm, op);
}

/* Pushes a running operation, and asks why if it does not move. */
static bool push(weft_comm *comm, wefti_op *op)
{
    wefti_engine *engine = comm->engine;
    int64_t others_due_ns = engine->due_ns;
    engine->due_ns = INT64_MAX;
    bool pushed = wefti_choice_has_steps(&op->choice)
                      ? (lists_are_open(op) || begin_lists(comm, op)) &&
                            wefti_step_lists_run(comm, op)
                  : wefti_choice_is_carried(&op->choice)
                      ? wefti_op_slot_is_p2p(op->op_slot)
                            ? wefti_carried_advance_message(comm, op)
                            : wefti_carried_advance(comm, op)
                      : wefti_oneshot_advance(comm, op);
    if (engine->due_ns != INT64_MAX) {
        /* What is still on the emulated link has been sent: no stall. */
        op->moved_ns = wefti_clock_coarse_ns();
    } else if (!pushed && op->state == WEFTI_OP_RUNNING && op->held == 0) {
        comm->watch->stalled(comm, op);
    }
    if (others_due_ns < engine->due_ns) {
        engine->due_ns = others_due_ns;
    }
    return pushed;
}

bool wefti_op_advance(weft_comm *comm, wefti_op *op)
{
    bool moved = false;
    if (op->state == WEFTI_OP_POSTED) {
        moved = try_enter(comm, op);
    }
    if (op->state == WEFTI_OP_RUNNING) {
        moved |= push(comm, op);
    }
    if (op->state == WEFTI_OP_DRAINING) {
        drain(comm, op);
        if (op->state == WEFTI_OP_DRAINING && op == comm->wanted) {
            comm->watch->stalled(comm, op);
        }
    }
    return moved;
}

void wefti_op_finish(weft_comm *comm, wefti_op *op, weft_status status)
{
    WEFTI_ASSERT(op->held == 0);
    op->status = status;
    if (op->piece.open) {
        wefti_op_piece_close(comm, op,
                             comm->observer.moved ? wefti_clock_ns() : 0);
    }
    unwatch_gates(op);
    if (status != WEFT_OK && wefti_choice_has_steps(&op->choice)) {
        wefti_offers_withdraw(comm, op);
    }
    if (op->lent > 0) {
        wefti_net_give_back(comm->fabric.net, &op->lent);
    }
    if (op->desc.arrived) {
        bool receives = op->role.receives && op->desc.recv;
        if (status != WEFT_OK) {
            wefti_gate_fail(op->desc.arrived, status, comm->fault.text);
        } else if (!receives ||
                   (!op->gate_per_rank &&
                    (op->desc.count == 0 || op->role.shape->varied))) {
            wefti_op_all_arrived(op);
        }
    }
    bool collective = !wefti_op_slot_is_p2p(op->op_slot);
    op->state = collective ? WEFTI_OP_DRAINING : WEFTI_OP_FREE;
    if (collective) {
        count_completed(comm);
    }
    if (op->request) {
        wefti_request *request = op->request;
        op->request = NULL;
        wefti_request_end(comm, request, status);
    }
    if (collective) {
        drain(comm, op);
    }
}

static bool all_checked(const weft_comm *comm, const wefti_op *op)
{
    int peer = 0;
    while (peer < comm->nranks && op->checked[peer] == op->number) {
        peer++;
    }
    return peer == comm->nranks;
}

void wefti_op_finish_plain(weft_comm *comm, wefti_op *op)
{
    if (comm->completed + 1 != op->number) {
        wefti_op_finish(comm, op, WEFT_OK);
        return;
    }
    wefti_request *request = op->request;
    op->request = NULL;
    op->status = WEFT_OK;
    comm->completed = op->number;
    if (comm->settled + 1 != op->number || !all_checked(comm, op)) {
        op->state = WEFTI_OP_DRAINING;
        show_finished(comm);
        wefti_request_end(comm, request, WEFT_OK);
        return;
    }
    free_op_slot(comm, op);
    wefti_request_end(comm, request, WEFT_OK);
    publish(comm, op->number);
}

bool wefti_op_may_end(weft_comm *comm, const wefti_op *op)
{
    if (comm->settled + 1 >= op->number) {
        return true;
    }
    wefti_op_settle_before(comm, op->number);
    return !wefti_fault_is_published(comm);
}

void wefti_op_settle_before(weft_comm *comm, uint64_t number)
{
    for (uint64_t next = comm->settled + 1;
         next < number && next == comm->settled + 1; next++) {
        wefti_op *op = &comm->ops[next % WEFTI_OP_SLOTS];
        if (op->number == next && op->state == WEFTI_OP_DRAINING) {
            drain(comm, op);
        }
    }
}

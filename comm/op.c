/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/op.c - from posted to done: the states of comm/core.h.
 *
 * An operation enters when its stream has reached it and its lane is free on
 * all ranks; then it runs its tracks, or the one-shot exchange. Its poster is
 * free when the last step is done, its window when the last reader is.
 */
#include "comm/op.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/control/diagnosis.h"
#include "comm/control/fault.h"
#include "comm/oneshot.h"
#include "comm/step.h"
#include "comm/track.h"
#include "kernels/wire/fold.h"

#include <stdio.h>
#include <string.h>

size_t wefti_op_send_elems(const wefti_op *op)
{
    size_t ranks = (size_t)op->problem.nranks;
    return op->desc.collective == WEFT_COLLECTIVE_REDUCESCATTER
               ? op->desc.count * ranks
               : op->desc.count;
}

size_t wefti_op_recv_elems(const wefti_op *op)
{
    size_t ranks = (size_t)op->problem.nranks;
    return op->desc.collective == WEFT_COLLECTIVE_ALLGATHER
               ? op->desc.count * ranks
               : op->desc.count;
}

size_t wefti_op_chunk(const weft_comm *comm, const wefti_op *op)
{
    return op->ring == WEFTI_RING_LETTERS
               ? WEFTI_LANES + (size_t)(op - comm->letters)
               : (size_t)(op - comm->ops);
}

size_t wefti_op_copy_chunk(const weft_comm *comm, const wefti_op *op,
                           const wefti_track *track)
{
    return wefti_op_chunk(comm, op) * WEFTI_TRACKS +
           (size_t)(track - op->tracks);
}

void wefti_op_text(const weft_comm *comm, const wefti_op *op, char *text_out,
                   size_t text_bytes)
{
    const char *name = weft_collective_text(op->desc.collective);
    if (op->ring == WEFTI_RING_LETTERS) {
        snprintf(text_out, text_bytes, "%s #%llu %s rank %d on \"%s\"", name,
                 (unsigned long long)op->number,
                 op->desc.collective == WEFT_COLLECTIVE_SEND ? "to" : "from",
                 op->desc.root, comm->name);
    } else {
        snprintf(text_out, text_bytes, "%s #%llu on \"%s\"", name,
                 (unsigned long long)op->number, comm->name);
    }
}

void wefti_op_init(weft_comm *comm, wefti_op *op, const weft_op *desc,
                   uint64_t epoch, bool on_stream)
{
    op->desc = *desc;
    op->epoch = epoch;
    op->on_stream = on_stream;
    op->status = WEFT_OK;
    op->problem = (wefti_problem){desc->collective, comm->rank,  comm->nranks,
                                  desc->root,       desc->count, 1};
    op->window = -1;
    op->missing = 0;
    op->sends[0] = op->sends[1] = 0;
    op->slots[0] = op->slots[1] = 0;
    op->entered_ns = op->moved_ns = op->checked_ns = 0;
    op->warned = false;
    op->suspect = -1;
    op->piece.open = false;
    op->piece.bytes = 0;
    op->piece.posted_ns = op->piece.ready_ns = 0;
    size_t send = wefti_op_send_elems(op), recv = wefti_op_recv_elems(op);
    size_t most = send > recv ? send : recv;
    bool cut = desc->gate_elems && desc->gate_elems < most;
    op->gate_elems = cut ? desc->gate_elems : most ? most : 1;
    /* Gates are each rank's own; where messages end is everybody's. */
    op->blocks = desc->count > op->gate_elems
                     ? (desc->count - 1) / op->gate_elems + 1
                     : 1;
    op->watching = desc->ready != NULL;
    if (op->watching) {
        wefti_gate_watch(desc->ready, &op->watcher);
    }
    if (desc->arrived) {
        size_t chunks = (recv + op->gate_elems - 1) / op->gate_elems;
        memset(op->gate_arrived, 0, chunks * sizeof(*op->gate_arrived));
    }
}

/* Whether this rank has a send buffer, and a receive buffer. */
static bool sends(const wefti_op *op)
{
    return op->desc.collective != WEFT_COLLECTIVE_BROADCAST ||
           op->problem.rank == op->desc.root;
}

static bool receives(const wefti_op *op)
{
    return op->desc.recv && op->desc.collective != WEFT_COLLECTIVE_SEND &&
           (op->desc.collective != WEFT_COLLECTIVE_REDUCE ||
            op->problem.rank == op->desc.root);
}

bool wefti_op_all_ready(const wefti_op *op)
{
    if (!op->desc.ready || !sends(op)) {
        return true;
    }
    size_t elems = wefti_op_send_elems(op);
    for (size_t at = 0; at < elems || at == 0; at += op->gate_elems) {
        size_t chunk = op->desc.ready_chunk + at / op->gate_elems;
        if (wefti_gate_get(op->desc.ready, chunk) < op->epoch) {
            return false;
        }
    }
    return true;
}

void wefti_op_all_arrived(wefti_op *op)
{
    if (!op->desc.arrived) {
        return;
    }
    size_t elems = wefti_op_recv_elems(op);
    for (size_t at = 0; at < elems || at == 0; at += op->gate_elems) {
        size_t chunk = op->desc.arrived_chunk + at / op->gate_elems;
        weft_status status =
            weft_gate_signal(op->desc.arrived, chunk, op->epoch, NULL);
        WEFTI_ASSERT(status == WEFT_OK);
        (void)status;
    }
}

void wefti_op_piece_open(weft_comm *comm, wefti_op *op)
{
    if (!op->piece.open) {
        op->piece.open = true;
        op->piece.posted_ns = wefti_clock_ns();
        op->piece.ready_ns = op->piece.posted_ns;
    }
    (void)comm;
}

void wefti_op_piece_close(weft_comm *comm, wefti_op *op, int64_t end_ns)
{
    wefti_piece piece = op->piece;
    op->piece.open = false;
    op->piece.bytes = 0;
    if (!piece.open || !comm->observer.moved) {
        return;
    }
    if (piece.ready_ns > end_ns) {
        piece.ready_ns = end_ns;
    }
    wefti_transfer transfer = {
        op->desc.collective, op->desc.class_id, op->desc.label, op->number,
        piece.bytes,         piece.posted_ns,   piece.ready_ns, end_ns};
    comm->observer.moved(comm->observer.context, &transfer);
}

void wefti_op_fail(weft_comm *comm, const wefti_op *op, weft_status status,
                   const char *what)
{
    char text[160];
    wefti_op_text(comm, op, text, sizeof(text));
    wefti_fault_publish(comm, status, comm->rank, op->number, "%s: %s", text,
                        what);
}

void wefti_op_report_mismatch(weft_comm *comm, const wefti_op *op, int peer,
                              wefti_signature theirs)
{
    char mine_text[112], theirs_text[112];
    wefti_signature_text(op->signature, mine_text, sizeof(mine_text));
    wefti_signature_text(theirs, theirs_text, sizeof(theirs_text));
    wefti_fault_publish(comm, WEFT_ERR_MISMATCH, peer, op->number,
                        "operation #%llu on \"%s\" differs: rank %d posted "
                        "%s, rank %d posted %s",
                        (unsigned long long)op->number, comm->name, comm->rank,
                        mine_text, peer, theirs_text);
}

bool wefti_op_check_peer(weft_comm *comm, wefti_op *op, int peer)
{
    if (op->ring == WEFTI_RING_LETTERS || op->checked[peer] == op->number) {
        return true;
    }
    wefti_entry *entry = wefti_shared_get_entry(
        &comm->fabric.layout, comm->fabric.base, peer, op->number);
    if (atomic_load(&entry->number) != op->number) {
        return false;
    }
    wefti_signature theirs = {
        atomic_load_explicit(&entry->count, memory_order_relaxed),
        atomic_load_explicit(&entry->kind, memory_order_relaxed),
        atomic_load_explicit(&entry->cut, memory_order_relaxed)};
    if (!wefti_signature_equal(theirs, op->signature)) {
        wefti_op_report_mismatch(comm, op, peer, theirs);
        return false;
    }
    op->checked[peer] = op->number;
    return true;
}

/* Whether all ranks have left the operation that used this lane before. */
static bool lane_free(weft_comm *comm, const wefti_op *op)
{
    if (op->number <= WEFTI_LANES ||
        comm->peers_done >= op->number - WEFTI_LANES) {
        return true;
    }
    uint64_t least = UINT64_MAX;
    for (int peer = 0; peer < comm->nranks; peer++) {
        wefti_rank_page *page = wefti_shared_get_page(&comm->fabric.layout,
                                                      comm->fabric.base, peer);
        uint64_t completed = atomic_load(&page->completed);
        least = completed < least ? completed : least;
    }
    comm->peers_done = least;
    return least >= op->number - WEFTI_LANES;
}

static void open_window(weft_comm *comm, wefti_op *op)
{
    const wefti_pattern *pattern = op->choice.pattern;
    size_t elem = wefti_wide_bytes(op->desc.dtype);
    op->slot_bytes = (op->choice.chunk_elems * elem + 63) / 64 * 64;
    int most = (int)(WEFTI_WINDOW_BYTES / 2 / op->slot_bytes);
    for (int channel = 0; channel < WEFTI_CHANNELS; channel++) {
        int slots = pattern->slots(&op->problem, channel);
        slots = slots < comm->slots_max ? slots : comm->slots_max;
        op->slots[channel] = slots < most ? slots : most;
    }
    for (op->window = 0; comm->windows_used >> op->window & 1;) {
        op->window++;
    }
    WEFTI_ASSERT(op->window < WEFTI_LANES);
    comm->windows_used |= 1u << op->window;
}

/* Tells the launcher where this rank is. */
static void note_on_board(weft_comm *comm, const wefti_op *op)
{
    wefti_engine *engine = comm->engine;
    if (engine->noted != comm) {
        wefti_board_set_name(engine->board, comm->name);
        engine->noted = comm;
    }
    wefti_board_note(engine->board, op->number, op->desc.collective);
}

static void enter(weft_comm *comm, wefti_op *op)
{
    op->state = WEFTI_OP_RUNNING;
    op->entered_ns = op->moved_ns = wefti_clock_coarse_ns();
    if (op->ring == WEFTI_RING_LETTERS) {
        wefti_op_piece_open(comm, op);
        return;
    }
    op->checked[comm->rank] = op->number;
    if (comm->engine->board) {
        note_on_board(comm, op);
    }
    if (!op->choice.pattern) {
        wefti_oneshot_enter(comm, op);
        return;
    }
    op->problem.chunk_elems = op->choice.chunk_elems;
    wefti_track_start_all(op);
    open_window(comm, op);
    if (!op->desc.ready) {
        wefti_op_piece_open(comm, op);
    }
    wefti_oneshot_announce(comm, op, 0);
}

static bool try_enter(weft_comm *comm, wefti_op *op)
{
    if (op->on_stream &&
        wefti_gate_get(comm->start, wefti_op_chunk(comm, op)) < op->turn) {
        return false;
    }
    if (op->ring != WEFTI_RING_LETTERS && !lane_free(comm, op)) {
        wefti_watch_stalled(comm, op);
        return false;
    }
    if (op->ring != WEFTI_RING_LETTERS && !op->choice.pattern &&
        !wefti_op_all_ready(op)) {
        return false;
    }
    enter(comm, op);
    return true;
}

static void drain(weft_comm *comm, wefti_op *op)
{
    bool failed = op->status != WEFT_OK; /* nobody reads any more */
    if (op->window >= 0 && !failed && !wefti_step_drained(comm, op)) {
        return;
    }
    if (op->window >= 0) {
        comm->windows_used &= ~(1u << op->window);
    }
    op->state = WEFTI_OP_FREE;
    comm->active &= ~(1u << (op - comm->ops));
}

/* Pushes a running operation, and asks why if it does not move. */
static bool push(weft_comm *comm, wefti_op *op)
{
    wefti_engine *engine = comm->engine;
    int64_t others_due_ns = engine->due_ns;
    engine->due_ns = INT64_MAX;
    bool pushed = op->ring == WEFTI_RING_LETTERS || op->choice.pattern
                      ? wefti_track_run_all(comm, op)
                      : wefti_oneshot_advance(comm, op);
    if (engine->due_ns != INT64_MAX) {
        /* What is still on the emulated link has been sent: no stall. */
        op->moved_ns = wefti_clock_coarse_ns();
    } else if (!pushed && op->state == WEFTI_OP_RUNNING) {
        wefti_watch_stalled(comm, op);
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
            wefti_watch_stalled(comm, op);
        }
    }
    return moved;
}

/* Publishes how far this rank has got; peers may be waiting for it. */
static void publish_completed(weft_comm *comm)
{
    uint64_t number = comm->completed;
    while (number < comm->number) {
        const wefti_op *next = &comm->ops[(number + 1) % WEFTI_LANES];
        if (next->number == number + 1 && wefti_op_pending(next)) {
            break;
        }
        number++;
    }
    if (number == comm->completed) {
        return;
    }
    comm->completed = number;
    wefti_rank_page *page = wefti_shared_get_page(
        &comm->fabric.layout, comm->fabric.base, comm->rank);
    atomic_store(&page->completed, number);
    for (int peer = 0; peer < comm->nranks; peer++) {
        if (peer != comm->rank) {
            wefti_doorbell_ring(comm->bells[peer]);
        }
    }
}

void wefti_op_finish(weft_comm *comm, wefti_op *op, weft_status status)
{
    op->status = status;
    if (op->piece.open) {
        wefti_op_piece_close(comm, op,
                             comm->observer.moved ? wefti_clock_ns() : 0);
    }
    if (op->watching) {
        wefti_gate_unwatch(op->desc.ready, &op->watcher);
    }
    if (status == WEFT_OK && (op->desc.count == 0 || !receives(op))) {
        wefti_op_all_arrived(op);
    }
    if (status != WEFT_OK && op->desc.arrived) {
        wefti_gate_fail(op->desc.arrived, status);
    }
    bool collective = op->ring != WEFTI_RING_LETTERS;
    op->state = collective ? WEFTI_OP_DRAINING : WEFTI_OP_FREE;
    if (collective) {
        publish_completed(comm);
    }
    if (op->on_stream) {
        if (status == WEFT_OK) { /* else the fault releases all, at its end */
            weft_status signalled = weft_gate_signal(
                comm->done, wefti_op_chunk(comm, op), op->turn, NULL);
            WEFTI_ASSERT(signalled == WEFT_OK);
            (void)signalled;
        }
        atomic_fetch_sub(&comm->engine->pending, 1);
    }
    if (collective) {
        drain(comm, op);
    }
}

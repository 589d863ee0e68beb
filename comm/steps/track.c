/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/track.c - an operation's tracks: pull the next step out of the
 * pattern, push it as far as it goes.
 *
 * A pattern knows nothing of gates. A gated operation is cut into blocks here,
 * one per gate chunk, and the pattern is asked about one block after another;
 * so no message straddles two gate chunks, and a chunk that is ready early
 * arrives early.
 */
#include "comm/steps/track.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/engine/op.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/deferred.h"
#include "comm/steps/op_life.h"
#include "comm/steps/slot.h"
#include "comm/steps/step.h"

enum {
    STEPS_PER_PUSH = 8, /* so that no operation starves the others */
    STEPS_AHEAD = 8     /* that are looked at for something to fetch */
};

/* Where the part of a rank begins that runs as number `block`. */
static size_t block_begin(const wefti_op *op, size_t block)
{
    const bool down = op->desc.chunk_order == WEFT_CHUNK_ORDER_DESCENDING;
    return (down ? op->blocks - 1 - block : block) * op->gate_elems;
}

/* The pattern's problem for one block. */
static wefti_problem block_problem(const wefti_op *op, size_t block)
{
    wefti_problem problem = op->problem;
    if (op->blocks > 1) {
        size_t left = op->desc.count - block_begin(op, block);
        problem.count = left < op->gate_elems ? left : op->gate_elems;
    }
    return problem;
}

/* An element of a block's buffer as an element of the whole buffer. */
static size_t whole_elem(const wefti_op *op, wefti_buffer buffer, size_t block,
                         size_t block_elems, size_t elem)
{
    const wefti_shape *shape = op->role.shape;
    bool parts =
        buffer == WEFTI_BUFFER_SEND ? shape->send_parts : shape->recv_parts;
    if (op->blocks == 1 || buffer == WEFTI_BUFFER_SCRATCH) {
        return elem;
    }
    size_t begin = block_begin(op, block);
    return parts ? elem / block_elems * op->desc.count + begin +
                       elem % block_elems
                 : begin + elem;
}

wefti_track_place wefti_track_begin(const wefti_op *op, int t)
{
    wefti_problem problem = block_problem(op, 0);
    return (wefti_track_place){.count =
                                   op->choice.pattern->step_count(&problem, t)};
}

bool wefti_track_settle(const wefti_op *op, int t, wefti_track_place *at)
{
    while (at->next >= at->count) {
        if (at->block + 1 >= op->blocks) {
            return false;
        }
        wefti_problem problem = block_problem(op, ++at->block);
        at->next = 0;
        at->count = op->choice.pattern->step_count(&problem, t);
    }
    return true;
}

void wefti_track_get_step(const wefti_op *op, int t,
                          const wefti_track_place *at, wefti_step *step_out)
{
    wefti_problem problem = block_problem(op, at->block);
    op->choice.pattern->step_at(&problem, t, at->next, step_out);
    WEFTI_ASSERT(step_out->elems <= problem.chunk_elems); /* a bounce's room */
    step_out->src_elem = whole_elem(op, step_out->src, at->block, problem.count,
                                    step_out->src_elem);
    step_out->dst_elem = whole_elem(op, step_out->dst, at->block, problem.count,
                                    step_out->dst_elem);
}

void wefti_track_start_all(wefti_op *op)
{
    for (int t = 0; t < WEFTI_TRACKS; t++) {
        wefti_track *track = &op->tracks[t];
        track->at = wefti_track_begin(op, t);
        track->loaded = false;
        track->ahead = false;
    }
}

/* Makes the next step the track's current one; false: there is none. */
static bool load_step(wefti_op *op, wefti_track *track)
{
    const int t = (int)(track - op->tracks);
    if (!wefti_track_settle(op, t, &track->at)) {
        return false;
    }
    if (!track->loaded) {
        wefti_track_get_step(op, t, &track->at, &track->step);
        track->loaded = true;
        track->phase = WEFTI_PHASE_START;
        track->place = 0;
        track->peer = -1;
        track->lent = false;
    }
    return true;
}

/*
 * The current step waits: the source of the next one that reads the send buffer
 * can be on its way meanwhile. Its own fetch must have been asked for, or the
 * two would change places.
 */
static void fetch_ahead(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    const int t = (int)(track - op->tracks);
    wefti_track_place at = track->at;
    wefti_step step = track->step;
    size_t later[WEFTI_CHANNELS] = {0};
    if (!op->places.send || track->ahead || wefti_op_is_deferred(op) ||
        (track->phase == WEFTI_PHASE_START && wefti_step_fetches(op, &step))) {
        return;
    }
    for (int look = 0; look < STEPS_AHEAD; look++) {
        if (step.kind == WEFTI_STEP_SEND) {
            later[step.channel]++;
        } else if (step.kind == WEFTI_STEP_RELAY) {
            later[step.to_channel]++;
        }
        at.next++;
        if (!wefti_track_settle(op, t, &at)) {
            return;
        }
        wefti_track_get_step(op, t, &at, &step);
        if (step.src == WEFTI_BUFFER_SEND) {
            if (wefti_step_fetches(op, &step)) {
                wefti_step_fetch_ahead(comm, op, track, &step, later);
            }
            return;
        }
    }
}

/* The current step as far as it goes, and something to fetch meanwhile. */
static wefti_wait advance_step(weft_comm *comm, wefti_op *op,
                               wefti_track *track)
{
    const bool starts = track->phase == WEFTI_PHASE_START;
    wefti_wait wait = wefti_step_advance(comm, op, track);
    if (wait != WEFTI_WAIT_NOTHING) {
        fetch_ahead(comm, op, track);
    }
    return starts && wait == WEFTI_WAIT_DEVICE
               ? wefti_step_advance(comm, op, track)
               : wait;
}

/* Nothing is left to do on the track. */
static bool track_is_done(const wefti_op *op, const wefti_track *track)
{
    return track->at.next >= track->at.count &&
           track->at.block + 1 >= op->blocks;
}

/* One track as far as it goes. Returns whether a step was done. */
static bool push_track(weft_comm *comm, wefti_op *op, wefti_track *track)
{
    int done = 0;
    while (done < STEPS_PER_PUSH && (done == 0 || comm->budget_bytes > 0) &&
           load_step(op, track)) {
        track->wait = advance_step(comm, op, track);
        if (track->wait != WEFTI_WAIT_NOTHING) {
            break;
        }
        comm->budget_bytes -=
            (int64_t)(track->step.elems * op->role.elem_bytes);
        track->at.next++;
        track->loaded = false;
        done++;
    }
    return done > 0;
}

/* Nothing is under way: what is left waits for this rank's own compute. */
static bool waits_for_compute(const wefti_op *op)
{
    bool gated = false;
    if (!op->desc.ready && !op->desc.writable) {
        return false;
    }
    if (op->desc.count == 0 || op->gate_elems == SIZE_MAX) {
        /* An empty letter waits for its peer only; a v form counts as waiting
         * for its peers until its one gate chunk is ready. */
        return false;
    }
    for (int t = 0; t < WEFTI_TRACKS; t++) {
        const wefti_track *track = &op->tracks[t];
        if (track_is_done(op, track)) {
            continue;
        }
        if (track->wait == WEFTI_WAIT_GATE) {
            gated = true;
            continue;
        }
        /* What goes through scratch is of the block at hand. */
        size_t elem = track->step.dst == WEFTI_BUFFER_SCRATCH
                          ? block_begin(op, track->at.block)
                          : track->step.dst_elem % op->desc.count;
        /* A FOLD of agents takes from itself too. */
        bool takes = track->step.kind == WEFTI_STEP_RECV ||
                     (track->step.kind == WEFTI_STEP_FOLD &&
                      track->step.peer == WEFTI_AGENT_PEERS);
        bool asked =
            track->wait != WEFTI_WAIT_PEER || !takes || !op->desc.ready ||
            wefti_gate_reached(op->desc.ready,
                               op->desc.ready_chunk + elem / op->gate_elems,
                               op->epoch);
        if (asked) {
            return false;
        }
    }
    return gated;
}

bool wefti_track_run_all(weft_comm *comm, wefti_op *op)
{
    bool moved = false, left = false;
    for (int t = 0; t < WEFTI_TRACKS; t++) {
        moved |= push_track(comm, op, &op->tracks[t]);
        left |= !track_is_done(op, &op->tracks[t]);
    }
    op->being_read =
        op->direct && !left && wefti_slots_find_reader(comm, op) >= 0;
    if (!left && wefti_op_check_sources(comm, op) && !op->being_read) {
        wefti_op_finish(comm, op, WEFT_OK);
        return true;
    }
    if (moved) {
        op->moved_ns = wefti_clock_coarse_ns();
    } else if (op->piece.open && waits_for_compute(op)) {
        wefti_op_piece_close(comm, op, wefti_clock_ns());
    }
    return moved;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/step_list.c - an operation's lists: pull the next step out of the
 * pattern, push it as far as it goes.
 *
 * A pattern knows nothing of gates. A gated operation is cut into blocks here,
 * one per gate chunk, and the pattern is asked about one block after another;
 * so no message straddles two gate chunks, and a chunk that is ready early
 * arrives early.
 */
#include "comm/steps/step_list.h"

#include "base/check.h"
#include "base/clock.h"
#include "comm/engine/op.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/shape.h"
#include "comm/steps/agree.h"
#include "comm/steps/deferred.h"
#include "comm/steps/meeting.h"
#include "comm/steps/offer.h"
#include "comm/steps/op_life.h"
#include "comm/steps/step.h"
#include "comm/steps/unstaged.h"

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
    return wefti_part_whole_elem(parts, op->desc.count, block_elems,
                                 block_begin(op, block), elem);
}

wefti_step_place wefti_step_list_begin(const wefti_op *op, int t)
{
    wefti_problem problem = block_problem(op, 0);
    return (wefti_step_place){.count =
                                  op->choice.pattern->step_count(&problem, t)};
}

bool wefti_step_list_settle(const wefti_op *op, int t, wefti_step_place *at)
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

void wefti_step_list_get_step(const wefti_op *op, int t,
                              const wefti_step_place *at, wefti_step *step_out)
{
    wefti_problem problem = block_problem(op, at->block);
    op->choice.pattern->step_at(&problem, t, at->next, step_out);
    WEFTI_ASSERT(step_out->elems <= problem.chunk_elems); /* a bounce's room */
    step_out->src_elem = whole_elem(op, step_out->src, at->block, problem.count,
                                    step_out->src_elem);
    step_out->dst_elem = whole_elem(op, step_out->dst, at->block, problem.count,
                                    step_out->dst_elem);
}

void wefti_step_lists_start(wefti_op *op)
{
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        wefti_step_list *list = &op->lists[t];
        list->at = wefti_step_list_begin(op, t);
        list->loaded = false;
        list->ahead = false;
        list->offered = 0;
    }
}

/* Makes the next step the list's current one; false: there is none. */
static bool load_step(wefti_op *op, wefti_step_list *list)
{
    const int t = (int)(list - op->lists);
    if (!wefti_step_list_settle(op, t, &list->at)) {
        return false;
    }
    if (!list->loaded) {
        wefti_step_list_get_step(op, t, &list->at, &list->step);
        list->loaded = true;
        list->phase = WEFTI_PHASE_START;
        list->place = 0;
        list->peer = -1;
        list->lent = false;
        list->unread = false;
        list->apart = 0;
    }
    return true;
}

/*
 * The current step waits: the source of the next one that reads the send buffer
 * can be on its way meanwhile. Its own fetch must have been asked for, or the
 * two would change places.
 */
static void fetch_ahead(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    const int t = (int)(list - op->lists);
    wefti_step_place at = list->at;
    wefti_step step = list->step;
    size_t later[WEFTI_CHANNELS] = {0};
    if (!op->places.send || list->ahead || wefti_op_is_deferred(op) ||
        (list->phase == WEFTI_PHASE_START && wefti_step_fetches(op, &step))) {
        return;
    }
    for (int look = 0; look < STEPS_AHEAD; look++) {
        if (step.kind == WEFTI_STEP_SEND) {
            later[step.channel]++;
        } else if (step.kind == WEFTI_STEP_RELAY) {
            later[step.to_channel]++;
        }
        at.next++;
        if (!wefti_step_list_settle(op, t, &at)) {
            return;
        }
        wefti_step_list_get_step(op, t, &at, &step);
        if (step.src == WEFTI_BUFFER_SEND) {
            if (wefti_step_fetches(op, &step)) {
                wefti_step_fetch_ahead(comm, op, list, &step, later);
            }
            return;
        }
    }
}

/* The current step as far as it goes, and something to fetch meanwhile. */
static wefti_wait advance_step(weft_comm *comm, wefti_op *op,
                               wefti_step_list *list)
{
    const bool starts = list->phase == WEFTI_PHASE_START;
    wefti_wait wait = wefti_step_advance(comm, op, list);
    if (wait != WEFTI_WAIT_NOTHING) {
        fetch_ahead(comm, op, list);
    }
    return starts && wait == WEFTI_WAIT_DEVICE
               ? wefti_step_advance(comm, op, list)
               : wait;
}

/* Nothing is left to do on the list. */
static bool list_is_done(const wefti_op *op, const wefti_step_list *list)
{
    return list->at.next >= list->at.count && list->at.block + 1 >= op->blocks;
}

/* One list as far as it goes. Returns whether a step was done. */
static bool push_list(weft_comm *comm, wefti_op *op, wefti_step_list *list)
{
    int done = 0;
    if (list->loaded && list->phase == WEFTI_PHASE_HELD) {
        return false;
    }
    while (done < STEPS_PER_PUSH && (done == 0 || comm->budget_bytes > 0) &&
           load_step(op, list)) {
        wefti_offer_places(comm, op, list);
        list->wait = advance_step(comm, op, list);
        if (list->wait != WEFTI_WAIT_NOTHING) {
            break;
        }
        wefti_offer_count(list);
        comm->budget_bytes -= (int64_t)(list->step.elems * op->role.elem_bytes);
        list->at.next++;
        list->loaded = false;
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
        /* An empty message waits for its peer only; a v form counts as waiting
         * for its peers until its one gate chunk is ready. */
        return false;
    }
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        const wefti_step_list *list = &op->lists[t];
        if (list_is_done(op, list)) {
            continue;
        }
        if (list->wait == WEFTI_WAIT_GATE) {
            gated = true;
            continue;
        }
        /* What goes through scratch is of the block at hand. */
        size_t elem = list->step.dst == WEFTI_BUFFER_SCRATCH
                          ? block_begin(op, list->at.block)
                          : list->step.dst_elem % op->desc.count;
        /* A REDUCE of agents takes from itself too. */
        bool takes = list->step.kind == WEFTI_STEP_RECV ||
                     (list->step.kind == WEFTI_STEP_REDUCE &&
                      list->step.peer == WEFTI_AGENT_PEERS);
        bool asked =
            list->wait != WEFTI_WAIT_PEER || !takes || !op->desc.ready ||
            wefti_gate_reached(op->desc.ready,
                               op->desc.ready_chunk + elem / op->gate_elems,
                               op->epoch);
        if (asked) {
            return false;
        }
    }
    return gated;
}

bool wefti_step_lists_run(weft_comm *comm, wefti_op *op)
{
    bool moved = false, left = false;
    if (wefti_meeting_has_rounds(comm, op)) { /* others wait for them, too */
        (void)wefti_op_check_sources(comm, op);
    }
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        moved |= push_list(comm, op, &op->lists[t]);
        left |= !list_is_done(op, &op->lists[t]);
    }
    op->being_read = !left && wefti_unstaged_is_read(comm, op);
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

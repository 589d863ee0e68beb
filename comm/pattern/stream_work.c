/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/stream_work.c - a pattern's steps in the order of one stream.
 */
#include "comm/pattern/stream_work.h"

#include "base/check.h"
#include "comm/pattern/parts.h"
#include "comm/pattern/shape.h"

/* Below so many elements a rank, a sum of one hop: each adds up everything. */
enum { TWO_HOPS_ELEMS = 1024, ALIGN_ELEMS = 16 };

/* What of a turn's steps is listed at a time, of one channel after another. */
typedef enum pass { PASS_SENDS, PASS_OWN, PASS_TAKES } pass;

/* One turn being listed. */
typedef struct list {
    const wefti_problem *whole;
    const wefti_pattern *pattern;
    wefti_problem turn; /* what the pattern is asked about: its elements */
    size_t begin;       /* of these in a part */
    weft_status (*take)(void *context, const wefti_work *work);
    void *context;
    weft_status status;
    wefti_work copy; /* not given yet, as the next may go on where it ends */
    bool flagged;
    uint64_t awaited[WEFTI_MARKS]; /* a bit for each peer */
} list;

bool wefti_work_has(weft_collective collective)
{
    const wefti_problem problem = {.collective = collective, .nranks = 2};
    return !wefti_shape_get(collective)->varied &&
           wefti_pattern_first(&problem) != NULL;
}

/* An area is as the buffer that is sent: it has one part of the turn, or one
 * for each rank. */
static size_t piece_of(const wefti_problem *problem, size_t area_elems)
{
    const size_t piece = wefti_shape_get(problem->collective)->send_parts
                             ? area_elems / (size_t)problem->nranks
                             : area_elems;
    WEFTI_ASSERT(piece > 0);
    return piece > ALIGN_ELEMS ? piece / ALIGN_ELEMS * ALIGN_ELEMS : piece;
}

size_t wefti_work_turns(const wefti_problem *problem, size_t area_elems)
{
    return (problem->count - 1) / piece_of(problem, area_elems) + 1;
}

static void give(list *own, const wefti_work *work)
{
    if (own->status == WEFT_OK) {
        own->status = own->take(own->context, work);
    }
}

static void flush(list *own)
{
    if (own->copy.elems > 0) {
        give(own, &own->copy);
        own->copy.elems = 0;
    }
}

static void add(list *own, wefti_work work)
{
    flush(own);
    give(own, &work);
}

static void add_copy(list *own, wefti_work work)
{
    wefti_work *last = &own->copy;
    if (last->elems > 0 && last->src == work.src && last->dst == work.dst &&
        last->peer == work.peer &&
        last->src_elem + last->elems == work.src_elem &&
        last->dst_elem + last->elems == work.dst_elem) {
        last->elems += work.elems;
        return;
    }
    flush(own);
    *last = work;
}

static void await(list *own, wefti_work_mark mark, int peer)
{
    const uint64_t bit = (uint64_t)1 << peer;
    if (peer == own->whole->rank ? own->flagged || mark != WEFTI_MARK_READ
                                 : (own->awaited[mark] & bit) != 0) {
        return;
    }
    own->awaited[mark] |= bit;
    add(own,
        (wefti_work){.kind = WEFTI_WORK_AWAIT, .mark = mark, .peer = peer});
}

static void await_all(list *own, wefti_work_mark mark)
{
    for (int peer = 0; peer < own->whole->nranks; peer++) {
        await(own, mark, peer);
    }
}

static void raise_mark(list *own, wefti_work_mark mark)
{
    add(own, (wefti_work){.kind = WEFTI_WORK_SIGNAL, .mark = mark});
}

/* Where the program's buffer has an element of the turn's. */
static size_t whole_elem(const list *own, bool parts, size_t elem)
{
    return wefti_part_whole_elem(parts, own->whole->count, own->turn.count,
                                 own->begin, elem);
}

/* A message lies in its sender's area where its elements lie in the sender's
 * buffer; of a RECV that is told by where they go. */
static size_t area_elem(const list *own, const wefti_step *step)
{
    const wefti_shape *shape = wefti_shape_get(own->whole->collective);
    const size_t count = own->turn.count;
    if (step->kind != WEFTI_STEP_RECV) {
        return step->src_elem;
    }
    return (shape->recv_parts ? step->dst_elem % count : step->dst_elem) +
           (shape->send_parts ? (size_t)own->whole->rank * count : 0);
}

static void add_step(list *own, const wefti_step *step, wefti_work_mark mark)
{
    const wefti_shape *shape = wefti_shape_get(own->whole->collective);
    const bool sends = step->kind == WEFTI_STEP_SEND;
    const bool comes = step->kind == WEFTI_STEP_RECV;
    const size_t area = area_elem(own, step);
    wefti_work work = {
        .kind = WEFTI_WORK_COPY,
        .src = comes                            ? WEFTI_WORK_AREA
               : step->src == WEFTI_BUFFER_RECV ? WEFTI_WORK_RECV
                                                : WEFTI_WORK_SEND,
        .dst = sends ? WEFTI_WORK_AREA : WEFTI_WORK_RECV,
        .peer = comes ? step->peer : own->whole->rank,
        .src_elem = comes ? area
                          : whole_elem(own,
                                       step->src == WEFTI_BUFFER_RECV
                                           ? shape->recv_parts
                                           : shape->send_parts,
                                       step->src_elem),
        .dst_elem =
            sends ? area : whole_elem(own, shape->recv_parts, step->dst_elem),
        .peer_elem = area,
        .elems = step->elems};
    if (comes) {
        await(own, mark, step->peer);
    }
    if (step->kind == WEFTI_STEP_REDUCE) {
        await_all(own, mark);
        work.kind = WEFTI_WORK_REDUCE;
        add(own, work);
    } else {
        add_copy(own, work);
    }
}

static void add_steps(list *own, int channel, pass wanted)
{
    for (int t = 0; t < WEFTI_FLAT_STEP_LISTS; t++) {
        const size_t steps = own->pattern->step_count(&own->turn, t);
        for (size_t i = 0; i < steps && own->status == WEFT_OK; i++) {
            wefti_step step;
            own->pattern->step_at(&own->turn, t, i, &step);
            const pass its = step.kind == WEFTI_STEP_SEND   ? PASS_SENDS
                             : step.kind == WEFTI_STEP_COPY ? PASS_OWN
                                                            : PASS_TAKES;
            if (step.channel == channel && its == wanted) {
                add_step(own, &step, (wefti_work_mark)channel);
            }
        }
    }
}

/* Channel 0 is what is sent as it was, 1 what has been summed. */
static void add_channel(list *own, int channel)
{
    add_steps(own, channel, PASS_SENDS);
    raise_mark(own, (wefti_work_mark)channel);
    add_steps(own, channel, PASS_OWN);
    add_steps(own, channel, PASS_TAKES);
}

weft_status wefti_work_list(
    const wefti_problem *problem, size_t area_elems, size_t turn, bool flagged,
    weft_status (*take)(void *context, const wefti_work *work), void *context)
{
    const size_t piece = piece_of(problem, area_elems);
    list own = {.whole = problem,
                .turn = *problem,
                .begin = turn * piece,
                .take = take,
                .context = context,
                .flagged = flagged};
    WEFTI_ASSERT(own.begin < problem->count);
    const size_t left = problem->count - own.begin;
    const size_t elems = left < piece ? left : piece;
    const bool two_hops = problem->collective == WEFT_COLLECTIVE_ALLREDUCE &&
                          elems >= (size_t)problem->nranks * TWO_HOPS_ELEMS;
    own.turn.count = own.turn.chunk_elems = elems;
    own.pattern = problem->collective == WEFT_COLLECTIVE_ALLREDUCE && !two_hops
                      ? &wefti_pattern_exchange
                      : wefti_pattern_first(&own.turn);
    await_all(&own, WEFTI_MARK_READ);
    add_channel(&own, WEFTI_MARK_FILLED);
    if (two_hops) { /* no share is empty: each rank raises SUMMED for good */
        add_channel(&own, WEFTI_MARK_SUMMED);
    }
    if (flagged) {
        await_all(&own, WEFTI_MARK_FILLED);
    }
    raise_mark(&own, WEFTI_MARK_READ);
    return own.status;
}

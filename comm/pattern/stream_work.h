/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/stream_work.h - a collective as work of one stream: what one
 * rank's stream copies, reduces, waits for and signals, in one order.
 *
 * Each rank has staging of areas in its device's memory, which all others
 * reach. An operation goes in turns, one piece of its elements each; a turn
 * uses one area of every rank:
 *
 *      stage   own elements -> own area          FILLED ->
 *      take    others' areas -> own buffer    <- FILLED    READ ->
 *
 * and an area is staged in again when all ranks have READ what it held. A sum
 * of two hops is between them: each rank adds up its share of the piece, leaves
 * it in its area (SUMMED), and takes the others' shares.
 *
 * It is the list of steps of a pattern that needs no relays (direct, exchange,
 * pairwise), turn by turn as operations with gates go block by block, brought
 * into the one order that a stream has: several streams may share one of a
 * GPU's connections, where one that waits holds up the others. What is sent
 * comes first, then what is taken. No rank starves: what a rank waits for in a
 * turn, others signal in the same turn before they wait for anything that it
 * signals later.
 *
 * In a graph that is launched again and again, marks can not rise: they are
 * flags, up or down, that the rank which awaits one takes down. Then every flag
 * that is raised is awaited once, in its turn, also where the rank needs
 * nothing of that peer:
 *
 *      READ taken, FILLED -> | <- FILLED taken, READ -> | READ taken, FILLED ->
 *
 * so that none is raised again before it is down: the peer raises READ only
 * behind a FILLED that this rank raises when it has taken the last READ, and
 * FILLED and SUMMED only behind a READ that it raises when it has taken those.
 * A turn leaves the flags of its area as it has found them, so turns of graphs
 * and of operations in them may follow each other as all ranks like, if only it
 * is the same on all. They must follow each other on each: a flag knows no
 * turns. That is why operations outside of graphs, on streams of any order,
 * keep rising marks and areas of their own.
 *
 * Sums are the balanced tree over all ranks, the bits of every other route.
 *
 * Pure: no memory, no clock, no other rank.
 *
 * Source: those of the patterns.
 */
#ifndef COMM_PATTERN_STREAM_WORK_H
#define COMM_PATTERN_STREAM_WORK_H

#include "comm/pattern/pattern.h"
#include "weft/status.h"

/* Turns that may be under way, and those in graphs: areas of their own. */
enum { WEFTI_STREAM_AREAS = 4, WEFTI_GRAPH_AREAS = 2 };

typedef enum wefti_work_kind {
    WEFTI_WORK_AWAIT,  /* mark of peer, of this turn; a flag is taken down */
    WEFTI_WORK_SIGNAL, /* mark to all ranks, this one too; a flag to others */
    WEFTI_WORK_COPY,   /* dst = src */
    WEFTI_WORK_REDUCE  /* dst = tree over ranks: own src, of each other rank
                          what its area has from peer_elem on; finished */
} wefti_work_kind;

typedef enum wefti_work_mark {
    WEFTI_MARK_FILLED,
    WEFTI_MARK_SUMMED,
    WEFTI_MARK_READ, /* awaited: of the turn that used the area before */
    WEFTI_MARKS
} wefti_work_mark;

/* Words for [area][mark], between two ranks: marks, then flags. */
enum {
    WEFTI_WORK_AREAS = WEFTI_STREAM_AREAS + WEFTI_GRAPH_AREAS,
    WEFTI_WORK_WORDS = WEFTI_WORK_AREAS * WEFTI_MARKS
};

/* AREA: the area of the turn, of peer where it is read, else one's own. */
typedef enum wefti_work_place {
    WEFTI_WORK_SEND,
    WEFTI_WORK_RECV,
    WEFTI_WORK_AREA
} wefti_work_place;

typedef struct wefti_work {
    wefti_work_kind kind;
    wefti_work_mark mark;
    wefti_work_place src, dst;
    int peer; /* who is awaited; whose area is src */
    size_t src_elem, dst_elem, peer_elem;
    size_t elems; /* 1 or more */
} wefti_work;

/* Whether a collective can go so. */
bool wefti_work_has(weft_collective collective);

/* How many turns problem, with count above 0, takes with areas of area_elems,
 * at least one for each rank. problem's chunk_elems is not looked at. */
size_t wefti_work_turns(const wefti_problem *problem, size_t area_elems);

/*
 * wefti_work_list - the work of a turn, each given to take(context) in its
 * order, as long as that returns OK. flagged: marks are flags.
 *
 * Returns     OK | what take has returned.
 */
WEFT_NODISCARD weft_status wefti_work_list(
    const wefti_problem *problem, size_t area_elems, size_t turn, bool flagged,
    weft_status (*take)(void *context, const wefti_work *work), void *context);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/step_replay.h - a step once more, on paper: ranks that compute in the
 * order they did, and operations that each take their links for as long as they
 * took alone and cost no compute.
 *
 *   rank    compute 3 | post a | compute 5 | await a | compute 2
 *   link               [ a, 7             ]
 *   wall    0 . 3                8 ..... 10 ....... 12: 2 more than compute
 *
 * What is left over compute is the rest: what these nodes, in this order, can
 * not hide. An operation is cut into chunks. A chunk begins when compute has
 * made it and all links of its operation are free, of those that could begin
 * the one of least priority number, then of the operation posted first, then
 * the first chunk; an await is of a chunk. A chunk of an operation that yields
 * stands back for one of a lesser number, and goes on where it was. Only the
 * rank that comes to an await stands still.
 *
 * All times are in one unit, the caller's; exact, there is no clock.
 */
#ifndef TRAINER_STEP_REPLAY_H
#define TRAINER_STEP_REPLAY_H

#include "weft/status.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum wefti_replay_kind {
    WEFTI_REPLAY_COMPUTE, /* for length */
    WEFTI_REPLAY_READY,   /* a chunk, or all, may leave; again: no matter */
    WEFTI_REPLAY_AWAIT,   /* of a chunk, or all that have not been awaited */
    WEFTI_REPLAY_MARK     /* when the rank comes here is wanted */
} wefti_replay_kind;

#define WEFTI_REPLAY_ALL SIZE_MAX

typedef struct wefti_replay_event {
    wefti_replay_kind kind;
    size_t op;    /* READY, AWAIT: below op_count */
    size_t chunk; /* likewise: below its chunks, or WEFTI_REPLAY_ALL */
    double length;
} wefti_replay_event;

enum { WEFTI_REPLAY_LINKS = 64 };

/*
 * links     which it takes, a bit each; none: it is done when it is ready
 * yields    a chunk under way leaves its links to one of a lesser priority
 * length    of all its chunks together, alone
 * waited    out: for how long ranks stood still for it
 */
typedef struct wefti_replay_op {
    uint64_t links;
    int priority;
    bool yields;
    size_t chunks; /* 1 at least */
    double length;
    double waited;
} wefti_replay_op;

typedef struct wefti_replay_rank {
    const wefti_replay_event *events; /* borrowed */
    size_t count;
} wefti_replay_rank;

/*
 * ops       [op_count], in the order in which they are posted; borrowed
 * marks     [mark_room], out: those of rank 0, in order; NULL: none
 * length    out: until the last rank has come to its end
 */
typedef struct wefti_replay {
    const wefti_replay_rank *ranks;
    size_t rank_count;
    wefti_replay_op *ops;
    size_t op_count;
    double *marks;
    size_t mark_room;
    double length;
} wefti_replay;

/*
 * wefti_replay_run - fills what is out.
 *
 * Returns     OK | ERR_NO_MEMORY | ERR_INVALID (an event names no operation or
 *             chunk that there is, or a rank awaits what nobody makes ready:
 *             the text names it).
 * Allocates   and frees.
 */
WEFT_NODISCARD weft_status wefti_replay_run(wefti_replay *replay);

/*
 * wefti_replay_least - of one rank: by how much any order on the links is
 * longer than compute, at least. What is made ready at compute time p or later
 * and awaited by q keeps a link busy for as long as it takes, and compute
 * meanwhile goes from p to q: what it takes more than that is stood still. Such
 * stretches of compute add up where they do not overlap; of all choices of
 * stretches the greatest sum, of the link that gives most.
 *
 * Returns     as wefti_replay_run.
 */
WEFT_NODISCARD weft_status wefti_replay_least(const wefti_replay *replay,
                                              double *least_out);

#endif

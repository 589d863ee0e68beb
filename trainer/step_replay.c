/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/step_replay.c - the replay, event by event.
 *
 * A unit is a chunk of an operation. Each turn carries ranks on to where they
 * compute or wait, begins the units that can begin, and goes on to the next
 * moment at which a rank has computed or a unit is done.
 */
#include "trainer/step_replay.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

typedef enum unit_state { UNMADE, READY, UNDER_WAY, DONE } unit_state;

typedef struct unit {
    size_t op;
    double left; /* READY: of its length */
    double end;  /* UNDER_WAY */
    unit_state state;
} unit;

typedef struct walker {
    size_t at;    /* its event */
    double until; /* it computes till then, or has passed its last event */
    bool waits;   /* from since on */
    double since;
} walker;

typedef struct replayer {
    wefti_replay *replay;
    unit *units;   /* by operation, by chunk */
    size_t *first; /* [op_count + 1]: of the operation's */
    walker *walkers;
    size_t *listed; /* [listed_count]: units that are READY or UNDER_WAY */
    size_t listed_count;
    double free_at[WEFTI_REPLAY_LINKS];
    size_t taken_by[WEFTI_REPLAY_LINKS]; /* the unit that took it last */
    double now;
    size_t marks;
} replayer;

/* ---- what is given --------------------------------------------------------
 */

static weft_status check_event(const wefti_replay *replay, size_t rank,
                               size_t index)
{
    const wefti_replay_event *event = &replay->ranks[rank].events[index];
    if (event->kind != WEFTI_REPLAY_READY &&
        event->kind != WEFTI_REPLAY_AWAIT) {
        return WEFT_OK;
    }
    if (event->op >= replay->op_count ||
        (event->chunk != WEFTI_REPLAY_ALL &&
         event->chunk >= replay->ops[event->op].chunks)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "replay: event %zu of rank %zu: operation %zu, "
                           "chunk %zu: allowed is one that there is",
                           index, rank, event->op, event->chunk);
    }
    return WEFT_OK;
}

static weft_status check(const wefti_replay *replay)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < replay->op_count; i++) {
        if (replay->ops[i].chunks == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "replay: operation %zu has 0 chunks: allowed is "
                               "1 or more",
                               i);
        }
    }
    for (size_t r = 0; r < replay->rank_count; r++) {
        for (size_t i = 0; i < replay->ranks[r].count && status == WEFT_OK;
             i++) {
            status = check_event(replay, r, i);
        }
    }
    return status;
}

static void close_replayer(replayer *own)
{
    free(own->units);
    free(own->first);
    free(own->walkers);
    free(own->listed);
}

static weft_status open_replayer(replayer *own, wefti_replay *replay)
{
    size_t count = 0;
    *own = (replayer){.replay = replay};
    own->first = calloc(replay->op_count + 1, sizeof(*own->first));
    own->walkers = calloc(replay->rank_count + 1, sizeof(*own->walkers));
    for (size_t i = 0; own->first && i < replay->op_count; i++) {
        own->first[i] = count;
        count += replay->ops[i].chunks;
    }
    own->units = calloc(count + 1, sizeof(*own->units));
    own->listed = calloc(count + 1, sizeof(*own->listed));
    if (!own->first || !own->walkers || !own->units || !own->listed) {
        close_replayer(own);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to replay %zu chunks",
                           count);
    }
    own->first[replay->op_count] = count;
    for (size_t i = 0; i < replay->op_count; i++) {
        for (size_t u = own->first[i]; u < own->first[i + 1]; u++) {
            own->units[u].op = i;
        }
    }
    return WEFT_OK;
}

/* The units that an event names: [*begin_out, *end_out). */
static void find_units(const replayer *own, const wefti_replay_event *event,
                       size_t *begin_out, size_t *end_out)
{
    const size_t first = own->first[event->op];
    const bool all = event->chunk == WEFTI_REPLAY_ALL;
    *begin_out = all ? first : first + event->chunk;
    *end_out = all ? own->first[event->op + 1] : *begin_out + 1;
}

/* ---- ranks ----------------------------------------------------------------
 */

static void make_ready(replayer *own, const wefti_replay_event *event)
{
    size_t begin, end;
    find_units(own, event, &begin, &end);
    for (size_t u = begin; u < end; u++) {
        if (own->units[u].state != UNMADE) {
            continue;
        }
        if (own->replay->ops[event->op].links == 0) {
            own->units[u].state = DONE;
        } else {
            const wefti_replay_op *op = &own->replay->ops[event->op];
            own->units[u].state = READY;
            own->units[u].left = op->length / (double)op->chunks;
            own->listed[own->listed_count++] = u;
        }
    }
}

static bool has_come(const replayer *own, const wefti_replay_event *event)
{
    size_t begin, end;
    find_units(own, event, &begin, &end);
    while (begin < end && own->units[begin].state == DONE) {
        begin++;
    }
    return begin == end;
}

static void mark(replayer *own, size_t rank)
{
    wefti_replay *replay = own->replay;
    if (rank == 0 && replay->marks && own->marks < replay->mark_room) {
        replay->marks[own->marks++] = own->now;
    }
}

/* One event of a rank that does not compute; false: it stays where it is. */
static bool pass(replayer *own, size_t rank)
{
    walker *at = &own->walkers[rank];
    const wefti_replay_event *event = &own->replay->ranks[rank].events[at->at];
    at->until = own->now;
    switch (event->kind) {
    case WEFTI_REPLAY_COMPUTE:
        at->until += event->length;
        break;
    case WEFTI_REPLAY_READY:
        make_ready(own, event);
        break;
    case WEFTI_REPLAY_AWAIT:
        if (!at->waits) {
            at->since = own->now;
        }
        at->waits = !has_come(own, event);
        if (at->waits) {
            return false;
        }
        own->replay->ops[event->op].waited += own->now - at->since;
        break;
    case WEFTI_REPLAY_MARK:
        mark(own, rank);
        break;
    }
    at->at++;
    return true;
}

/* What one rank makes ready another may wait for: until none goes on. */
static void carry_on(replayer *own)
{
    for (bool any = true; any;) {
        any = false;
        for (size_t r = 0; r < own->replay->rank_count; r++) {
            while (own->walkers[r].at < own->replay->ranks[r].count &&
                   own->walkers[r].until <= own->now && pass(own, r)) {
                any = true;
            }
        }
    }
}

/* ---- links ----------------------------------------------------------------
 */

static const wefti_replay_op *op_of(const replayer *own, size_t u)
{
    return &own->replay->ops[own->units[u].op];
}

/* Whether a link is free for a unit, or made free by what has it. */
static bool can_take(const replayer *own, size_t u, size_t link)
{
    const wefti_replay_op *other = op_of(own, own->taken_by[link]);
    return own->free_at[link] <= own->now ||
           (other->yields && op_of(own, u)->priority < other->priority);
}

static bool can_begin(const replayer *own, size_t u)
{
    const uint64_t links = op_of(own, u)->links;
    for (size_t i = 0; i < WEFTI_REPLAY_LINKS && links >> i; i++) {
        if ((links >> i & 1) && !can_take(own, u, i)) {
            return false;
        }
    }
    return true;
}

static bool goes_before(const replayer *own, size_t a, size_t b)
{
    const wefti_replay_op *of_a = op_of(own, a), *of_b = op_of(own, b);
    return of_a->priority != of_b->priority ? of_a->priority < of_b->priority
                                            : a < b;
}

/* The unit that begins next; SIZE_MAX: none can. */
static size_t find_next(const replayer *own)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < own->listed_count; i++) {
        const size_t u = own->listed[i];
        if (own->units[u].state == READY &&
            (best == SIZE_MAX || goes_before(own, u, best)) &&
            can_begin(own, u)) {
            best = u;
        }
    }
    return best;
}

/* A unit has its links until end. */
static void occupy(replayer *own, size_t u, double end)
{
    const uint64_t links = op_of(own, u)->links;
    for (size_t i = 0; i < WEFTI_REPLAY_LINKS && links >> i; i++) {
        if (links >> i & 1) {
            own->free_at[i] = end;
            own->taken_by[i] = u;
        }
    }
}

/* What has a link that another unit is to take goes on later. */
static void stand_back(replayer *own, size_t link)
{
    const size_t u = own->taken_by[link];
    if (own->free_at[link] > own->now) {
        own->units[u].state = READY;
        own->units[u].left = own->units[u].end - own->now;
        occupy(own, u, own->now);
    }
}

static void begin_units(replayer *own)
{
    for (size_t u; (u = find_next(own)) != SIZE_MAX;) {
        const uint64_t links = op_of(own, u)->links;
        for (size_t i = 0; i < WEFTI_REPLAY_LINKS && links >> i; i++) {
            if (links >> i & 1) {
                stand_back(own, i);
            }
        }
        own->units[u].state = UNDER_WAY;
        own->units[u].end = own->now + own->units[u].left;
        occupy(own, u, own->units[u].end);
    }
}

static void end_units(replayer *own)
{
    size_t kept = 0;
    for (size_t i = 0; i < own->listed_count; i++) {
        unit *of = &own->units[own->listed[i]];
        if (of->state == UNDER_WAY && of->end <= own->now) {
            of->state = DONE;
        } else {
            own->listed[kept++] = own->listed[i];
        }
    }
    own->listed_count = kept;
}

/* ---- the whole ------------------------------------------------------------
 */

/* When anything happens next; infinite: nothing does. */
static double find_moment(const replayer *own)
{
    double next = (double)INFINITY;
    for (size_t i = 0; i < own->listed_count; i++) {
        const unit *of = &own->units[own->listed[i]];
        next = of->state == UNDER_WAY ? fmin(next, of->end) : next;
    }
    for (size_t r = 0; r < own->replay->rank_count; r++) {
        const double until = own->walkers[r].until;
        next = until > own->now ? fmin(next, until) : next;
    }
    return next;
}

static weft_status check_end(const replayer *own)
{
    for (size_t r = 0; r < own->replay->rank_count; r++) {
        const wefti_replay_rank *rank = &own->replay->ranks[r];
        if (own->walkers[r].at < rank->count) {
            const size_t index = own->walkers[r].at;
            return wefti_error(WEFT_ERR_INVALID,
                               "replay: event %zu of rank %zu awaits operation "
                               "%zu, which is never ready",
                               index, r, rank->events[index].op);
        }
    }
    return WEFT_OK;
}

weft_status wefti_replay_run(wefti_replay *replay)
{
    replayer own;
    weft_status status = check(replay);
    if (status == WEFT_OK) {
        status = open_replayer(&own, replay);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < replay->op_count; i++) {
        replay->ops[i].waited = 0;
    }
    for (;;) {
        carry_on(&own);
        begin_units(&own);
        const double next = find_moment(&own);
        if (isinf(next)) {
            break;
        }
        own.now = next;
        end_units(&own);
    }
    replay->length = 0;
    for (size_t r = 0; r < replay->rank_count; r++) {
        replay->length = fmax(replay->length, own.walkers[r].until);
    }
    status = check_end(&own);
    close_replayer(&own);
    return status;
}

/* ---- in any order ---------------------------------------------------------
 */

/* A moment of compute: behind so many events. Of two at one time the order of
 * events says which is first. */
typedef struct moment {
    size_t event;
    double time;
} moment;

/* A chunk: when it is made, and when it is wanted. */
typedef struct demand {
    moment ready, due;
    double length;
    double least; /* of all that are due by then */
    uint64_t links;
    bool made, wanted;
} demand;

static int by_ready(const void *a, const void *b)
{
    const demand *const *left = a, *const *right = b;
    return ((*left)->ready.event > (*right)->ready.event) -
           ((*left)->ready.event < (*right)->ready.event);
}

static int by_due(const void *a, const void *b)
{
    const demand *left = a, *right = b;
    return (left->due.event > right->due.event) -
           (left->due.event < right->due.event);
}

/* When each chunk is made and first awaited, of compute alone. */
static void find_demands(const replayer *own, demand *all)
{
    const wefti_replay_rank *rank = own->replay->ranks;
    moment at = {0, 0};
    for (; at.event < rank->count; at.event++) {
        const wefti_replay_event *event = &rank->events[at.event];
        size_t begin = 0, end = 0;
        if (event->kind == WEFTI_REPLAY_COMPUTE) {
            at.time += event->length;
        } else if (event->kind != WEFTI_REPLAY_MARK) {
            find_units(own, event, &begin, &end);
        }
        for (size_t u = begin; u < end; u++) {
            demand *of = &all[u];
            if (event->kind == WEFTI_REPLAY_READY && !of->made) {
                of->ready = at;
                of->made = true;
            } else if (event->kind == WEFTI_REPLAY_AWAIT && !of->wanted) {
                of->due = at;
                of->wanted = true;
            }
        }
    }
}

/* The best sum with a stretch that ends where all[last] is due, or without. */
static double find_best(const demand *all, size_t last, demand *const *sorted,
                        size_t count)
{
    const moment due = all[last].due;
    double best = last > 0 ? all[last - 1].least : 0, work = 0;
    size_t before = last; /* demands that are due before the stretch begins */
    for (size_t i = count; i-- > 0;) {
        const moment ready = sorted[i]->ready;
        if (sorted[i]->due.event > due.event) {
            continue;
        }
        work += sorted[i]->length;
        while (before > 0 && all[before - 1].due.event > ready.event) {
            before--;
        }
        best = fmax(best, (before > 0 ? all[before - 1].least : 0) + work -
                              (due.time - ready.time));
    }
    return best;
}

/* all: by due. */
static double find_least(demand *all, size_t count, uint64_t link,
                         demand **sorted)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (all[i].links & link) {
            sorted[used++] = &all[i];
        }
        all[i].least = 0;
    }
    qsort(sorted, used, sizeof(*sorted), by_ready);
    for (size_t i = 0; i < count && used > 0; i++) {
        const bool same =
            i + 1 < count && all[i + 1].due.event == all[i].due.event;
        all[i].least = same ? (i > 0 ? all[i - 1].least : 0)
                            : find_best(all, i, sorted, used);
    }
    return count > 0 ? all[count - 1].least : 0;
}

/* Those that are made and awaited, by due. */
static size_t list_demands(const replayer *own, demand *all, size_t units)
{
    size_t count = 0;
    for (size_t u = 0; u < units; u++) {
        const wefti_replay_op *op = &own->replay->ops[own->units[u].op];
        all[u] = (demand){.length = op->length / (double)op->chunks,
                          .links = op->links};
    }
    find_demands(own, all);
    for (size_t u = 0; u < units; u++) {
        if (all[u].made && all[u].wanted) {
            all[count++] = all[u];
        }
    }
    qsort(all, count, sizeof(*all), by_due);
    return count;
}

weft_status wefti_replay_least(const wefti_replay *replay, double *least_out)
{
    wefti_replay copy = *replay;
    replayer own;
    *least_out = 0;
    weft_status status = check(replay);
    if (status == WEFT_OK) {
        status = open_replayer(&own, &copy);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const size_t units = own.first[replay->op_count];
    demand *all = calloc(units + 1, sizeof(*all));
    demand **sorted = calloc(units + 1, sizeof(demand *));
    if (all && sorted) {
        const size_t count = list_demands(&own, all, units);
        for (size_t i = 0; i < WEFTI_REPLAY_LINKS; i++) {
            *least_out = fmax(*least_out,
                              find_least(all, count, (uint64_t)1 << i, sorted));
        }
    } else {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu chunks", units);
    }
    free(all);
    free(sorted);
    close_replayer(&own);
    return status;
}

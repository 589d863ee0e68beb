/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/simulate.c - a schedule on paper.
 *
 * Each rank is somewhere in its list: running the action there (it is on the
 * agenda for its end), or stopped before it, until the last of its inputs is
 * known. Events come in the order of time, so messages get to shared links in
 * the order in which they are sent.
 *
 *     end of an action -> its results are there, or are sent
 *                      -> ranks that wait for them go on
 *                      -> the rank goes on to its next action
 */
#include "overlap/schedule/agenda.h"
#include "overlap/schedule/pass.h"
#include "overlap/schedule/price.h"
#include "overlap/schedule/verdict.h"

#include "base/error.h"
#include "base/memory_limit.h"

#include <math.h>
#include <stdlib.h>

/* Something that becomes known: when it is there, and when it was sent. */
typedef struct arrival {
    double sent, there; /* NAN: not yet */
} arrival;

typedef struct state {
    size_t next;             /* the action it runs, or stops before */
    double time;             /* end of the action before */
    double begin;            /* of the action that runs */
    bool running, started;   /* started: it has run something */
    double reduced, fetched; /* ends of what runs beside its compute */
} state;

typedef struct simulation {
    const weft_schedule *schedule;
    const weft_schedule_cost *cost;
    weft_schedule_run *plan;
    wefti_agenda agenda;
    state *states;      /* [ranks] */
    arrival *made[2];   /* [stages][per_stage] by F, by I or B */
    double *params;     /* [stages] when they are gathered; 0: were there */
    double *reduce[2];  /* [stages] when posted, when done; NAN: not yet */
    double *link_free;  /* [links] */
    int at_barrier;     /* ranks that stop at it */
    double barrier;     /* the latest of them */
    double last_beside; /* end of the last reduction or gathering */
} simulation;

static arrival *made_by(const simulation *s, bool back, int stage,
                        int microbatch)
{
    return &s->made[back][(size_t)stage * (size_t)s->schedule->per_stage +
                          (size_t)microbatch];
}

/* ---- what an action waits for ---------------------------------------------
 */

/* The latest input so far. */
typedef struct need {
    double sent, there;
    weft_schedule_wait wait;
    int rank;
    bool known;
} need;

static void take_later(need *n, double sent, double there,
                       weft_schedule_wait wait, int rank)
{
    if (isnan(there)) {
        n->known = false;
    } else if (there > n->there) {
        n->sent = sent;
        n->there = there;
        n->wait = wait;
        n->rank = rank;
    }
}

static void need_part(const simulation *s, const weft_action *part, need *n)
{
    wefti_edge edge = wefti_edge_in(s->schedule, part);
    bool back = part->type != WEFT_ACTION_F;
    if (edge.exists) {
        const arrival *a = made_by(s, back, edge.from_stage, part->microbatch);
        take_later(n, a->sent, a->there,
                   back ? WEFT_WAIT_BACKWARD : WEFT_WAIT_FORWARD,
                   edge.from_rank);
    }
    double params = s->params[part->stage];
    take_later(n, params, params, WEFT_WAIT_PARAM, -1);
}

static need find_need(const simulation *s, const weft_action *action)
{
    need n = {.rank = -1, .known = true};
    weft_action parts[2];
    if (wefti_action_is_compute(action)) {
        int count = wefti_action_split(action, parts);
        for (int p = 0; p < count; p++) {
            need_part(s, &parts[p], &n);
        }
    } else if (action->type == WEFT_ACTION_OPT &&
               !isnan(s->reduce[0][action->stage])) {
        double done = s->reduce[1][action->stage];
        take_later(&n, done, done, WEFT_WAIT_REDUCE, -1);
    }
    return n;
}

/* The time from the rank's last end to begin, by what took it. */
static void note_wait(simulation *s, int rank, const need *n, double begin)
{
    weft_schedule_rank *plan = &s->plan->ranks[rank];
    double from = s->states[rank].time;
    double sent = fmin(fmax(n->sent, from), begin);
    plan->wait[n->wait] += sent - from;
    plan->wait[WEFT_WAIT_TRANSFER] += begin - sent;
    if (plan->spans) {
        weft_schedule_span *span = &plan->spans[s->states[rank].next];
        bool sending = begin - sent > sent - from;
        span->wait = begin > from ? (sending ? WEFT_WAIT_TRANSFER : n->wait)
                                  : WEFT_WAIT_NONE;
        span->wait_rank = begin > from ? n->rank : -1;
    }
}

static bool takes_time(const weft_action *action)
{
    return wefti_action_is_compute(action) || action->type == WEFT_ACTION_OPT ||
           action->type == WEFT_ACTION_RECOMPUTE;
}

/* Begins the action a rank stopped at, if its inputs are known. */
static void try_begin(simulation *s, int rank)
{
    state *st = &s->states[rank];
    const wefti_actions *list = &s->schedule->lists[rank];
    if (st->running || st->next == list->count) {
        return;
    }
    const weft_action *action = &list->items[st->next];
    need n = find_need(s, action);
    if (!takes_time(action) || !n.known) {
        return; /* it is at a barrier, or has not come to its first action */
    }
    double begin = fmax(st->time, n.there);
    note_wait(s, rank, &n, begin);
    st->running = true;
    st->begin = begin;
    double price = wefti_price_action(s->schedule, s->cost, action);
    wefti_agenda_put(&s->agenda, (wefti_agenda_event){begin + price, rank});
}

/* ---- what an action makes -------------------------------------------------
 */

/* When a message sent now is there; links are taken in turn. */
static double send_over(simulation *s, int from, int to, double now)
{
    int links[WEFT_ROUTE_LINKS_MOST];
    int count = s->cost->link_count > 0
                    ? s->cost->route(s->cost->context, from, to, links)
                    : 0;
    double begin = now, busy = 0, latency = s->cost->p2p;
    for (int l = 0; l < count; l++) {
        begin = fmax(begin, s->link_free[links[l]]);
        busy = fmax(busy, s->cost->links[links[l]].busy);
        latency += s->cost->links[links[l]].latency;
    }
    for (int l = 0; l < count; l++) {
        s->link_free[links[l]] = begin + busy;
    }
    return begin + busy + latency;
}

/* The result on this edge is there, or is sent off. */
static void deliver(simulation *s, const wefti_edge *edge, int microbatch,
                    double now)
{
    bool back = edge->to_stage < edge->from_stage;
    arrival *a = made_by(s, back, edge->from_stage, microbatch);
    a->sent = now;
    a->there =
        edge->remote ? send_over(s, edge->from_rank, edge->to_rank, now) : now;
    if (edge->remote) {
        try_begin(s, edge->to_rank);
    }
}

static void deliver_results(simulation *s, const weft_action *action,
                            double now)
{
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    for (int p = 0; p < count; p++) {
        wefti_edge edge = wefti_edge_out(s->schedule, &parts[p]);
        if (edge.exists && !(edge.remote && s->schedule->lowered)) {
            deliver(s, &edge, parts[p].microbatch, now);
        }
    }
}

/* A reduction runs when all its members have posted it. */
static void start_reduce(simulation *s, int stage, double now)
{
    int mirror = wefti_mirror_stage(s->schedule, stage);
    int member[2] = {stage, mirror < 0 ? stage : mirror};
    double begin = now;
    s->reduce[0][stage] = now;
    for (int k = 0; k < 2; k++) {
        if (isnan(s->reduce[0][member[k]])) {
            return;
        }
        int rank = s->schedule->rank_of[member[k]];
        begin = fmax(begin, s->states[rank].reduced);
    }
    double end = begin + s->cost->reduce / s->schedule->chunks;
    for (int k = 0; k < 2; k++) {
        int rank = s->schedule->rank_of[member[k]];
        s->reduce[1][member[k]] = end;
        s->states[rank].reduced = end;
        if (member[k] != stage) { /* this rank goes on by itself */
            try_begin(s, rank);
        }
    }
    s->last_beside = fmax(s->last_beside, end);
}

static void start_gather(simulation *s, int rank, int stage, double now)
{
    double begin = fmax(now, s->states[rank].fetched);
    double end = begin + s->cost->gather / s->schedule->chunks;
    s->states[rank].fetched = end;
    s->params[stage] = end;
    s->last_beside = fmax(s->last_beside, end);
}

/* The last rank to reach a barrier releases all. */
static void reach_barrier(simulation *s, double now)
{
    s->at_barrier++;
    s->barrier = fmax(s->barrier, now);
    if (s->at_barrier < s->schedule->ranks) {
        return;
    }
    s->at_barrier = 0;
    for (int r = 0; r < s->schedule->ranks; r++) {
        need n = {s->barrier, s->barrier, WEFT_WAIT_BARRIER, -1, true};
        note_wait(s, r, &n, s->barrier);
        s->states[r].running = true;
        s->states[r].begin = s->barrier;
        wefti_agenda_put(&s->agenda, (wefti_agenda_event){s->barrier, r});
    }
}

/* ---- going on -------------------------------------------------------------
 */

/* What takes none of the rank's time. */
static void do_at_once(simulation *s, int rank, const weft_action *action)
{
    double now = s->states[rank].time;
    wefti_edge edge;
    switch (action->type) {
    case WEFT_ACTION_SEND_F:
    case WEFT_ACTION_SEND_B:
        edge = wefti_edge_of_message(s->schedule, action);
        if (edge.exists) {
            deliver(s, &edge, action->microbatch, now);
        }
        break;
    case WEFT_ACTION_REDUCE_GRAD:
        start_reduce(s, action->stage, now);
        break;
    case WEFT_ACTION_UNSHARD:
    case WEFT_ACTION_GATHER_PARAM:
        start_gather(s, rank, action->stage, now);
        break;
    default:
        break;
    }
}

/* To the next action that takes time, or cannot begin yet. */
static void go_on(simulation *s, int rank)
{
    state *st = &s->states[rank];
    const wefti_actions *list = &s->schedule->lists[rank];
    weft_schedule_span *spans = s->plan->ranks[rank].spans;
    while (st->next < list->count && !takes_time(&list->items[st->next])) {
        const weft_action *action = &list->items[st->next];
        if (action->type == WEFT_ACTION_BARRIER) {
            reach_barrier(s, st->time);
            return;
        }
        if (spans) {
            spans[st->next] =
                (weft_schedule_span){st->time, st->time, WEFT_WAIT_NONE, -1};
        }
        st->next++;
        do_at_once(s, rank, action);
    }
    try_begin(s, rank);
}

static void end_action(simulation *s, wefti_agenda_event event)
{
    int rank = event.rank;
    state *st = &s->states[rank];
    weft_schedule_rank *plan = &s->plan->ranks[rank];
    const weft_action *action = &s->schedule->lists[rank].items[st->next];
    if (plan->spans) {
        plan->spans[st->next].begin = st->begin;
        plan->spans[st->next].end = event.time;
    }
    if (action->type != WEFT_ACTION_BARRIER) {
        plan->begin = st->started ? plan->begin : st->begin;
        plan->busy += event.time - st->begin;
        plan->end = event.time;
        st->started = true;
    }
    st->running = false;
    st->time = event.time;
    st->next++;
    deliver_results(s, action, event.time);
    go_on(s, rank);
}

static weft_status run(simulation *s)
{
    for (int r = 0; r < s->schedule->ranks; r++) {
        go_on(s, r);
    }
    while (s->agenda.count > 0) {
        end_action(s, wefti_agenda_take(&s->agenda));
    }
    for (int r = 0; r < s->schedule->ranks; r++) {
        const wefti_actions *list = &s->schedule->lists[r];
        if (s->states[r].next < list->count) {
            char text[WEFT_ACTION_TEXT_BYTES];
            weft_action_pack(&list->items[s->states[r].next], text);
            return wefti_error(WEFT_ERR_INVALID,
                               "simulate: rank %d can never run %s; "
                               "weft_schedule_check says why",
                               r, text);
        }
    }
    return WEFT_OK;
}

/* ---- the whole ------------------------------------------------------------
 */

static double *make_times(size_t count, double value)
{
    double *times = malloc((count + 1) * sizeof(*times));
    for (size_t k = 0; times && k < count; k++) {
        times[k] = value;
    }
    return times;
}

static arrival *make_arrivals(size_t count)
{
    arrival *made = malloc(count * sizeof(*made));
    for (size_t k = 0; made && k < count; k++) {
        made[k] = (arrival){(double)NAN, (double)NAN};
    }
    return made;
}

static uint64_t predict_bytes(const weft_schedule *schedule, size_t entries,
                              bool keep_spans)
{
    uint64_t bytes = 2 * (uint64_t)entries * sizeof(arrival);
    for (int r = 0; r < schedule->ranks && keep_spans; r++) {
        bytes += schedule->lists[r].count * sizeof(weft_schedule_span);
    }
    return bytes;
}

static weft_status init(simulation *s, bool keep_spans)
{
    size_t ranks = (size_t)s->schedule->ranks;
    size_t stages = (size_t)s->schedule->stages;
    size_t entries = stages * (size_t)s->schedule->per_stage;
    weft_status status = wefti_memory_check(
        "its simulation", predict_bytes(s->schedule, entries, keep_spans));
    if (status != WEFT_OK) {
        return status;
    }
    s->agenda.heap = calloc(ranks, sizeof(*s->agenda.heap));
    s->states = calloc(ranks, sizeof(*s->states));
    s->made[0] = make_arrivals(entries);
    s->made[1] = make_arrivals(entries);
    s->params = make_times(stages, 0);
    s->reduce[0] = make_times(stages, (double)NAN);
    s->reduce[1] = make_times(stages, (double)NAN);
    s->link_free = make_times((size_t)s->cost->link_count, 0);
    s->plan->ranks = calloc(ranks, sizeof(*s->plan->ranks));
    bool enough = s->agenda.heap && s->states && s->made[0] && s->made[1] &&
                  s->params && s->reduce[0] && s->reduce[1] && s->link_free &&
                  s->plan->ranks;
    s->plan->rank_count = enough ? s->schedule->ranks : 0;
    for (size_t r = 0; r < ranks && enough && keep_spans; r++) {
        s->plan->ranks[r].spans =
            calloc(s->schedule->lists[r].count + 1, sizeof(weft_schedule_span));
        enough = s->plan->ranks[r].spans != NULL;
    }
    return enough ? WEFT_OK
                  : wefti_error(WEFT_ERR_NO_MEMORY,
                                "%zu micro-batches of %zu "
                                "ranks",
                                entries, ranks);
}

static void fini(simulation *s)
{
    free(s->agenda.heap);
    free(s->states);
    free(s->made[0]);
    free(s->made[1]);
    free(s->params);
    free(s->reduce[0]);
    free(s->reduce[1]);
    free(s->link_free);
}

static weft_status sum_up(simulation *s)
{
    weft_schedule_run *plan = s->plan;
    double end = s->last_beside;
    double *peaks = calloc((size_t)plan->rank_count, sizeof(*peaks));
    weft_status status =
        peaks ? wefti_schedule_peaks(s->schedule, peaks, NULL)
              : wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++) {
        end = fmax(end, s->states[r].time);
    }
    plan->makespan = end;
    for (int r = 0; r < plan->rank_count && status == WEFT_OK; r++) {
        weft_schedule_rank *rank = &plan->ranks[r];
        rank->wait[WEFT_WAIT_END] += end - s->states[r].time;
        rank->bubble = end - rank->busy;
        rank->window_bubble = rank->end - rank->begin - rank->busy;
        rank->activations = peaks[r];
        plan->ideal = fmax(plan->ideal, rank->busy);
        plan->bubble = fmax(plan->bubble, rank->bubble);
        plan->window_bubble = fmax(plan->window_bubble, rank->window_bubble);
        plan->activations = fmax(plan->activations, rank->activations);
    }
    free(peaks);
    return status;
}

weft_status weft_schedule_simulate(const weft_schedule *schedule,
                                   const weft_schedule_cost *cost,
                                   bool keep_spans, weft_schedule_run *run_out)
{
    if (!schedule || !run_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "schedule and run_out must not be NULL");
    }
    *run_out = (weft_schedule_run){0};
    weft_schedule_cost own;
    weft_status status = wefti_price_read(cost, &own);
    cost = &own;
    if (status == WEFT_OK) {
        status = wefti_price_check(schedule, cost);
    }
    if (status == WEFT_OK) {
        status = wefti_pass_need_whole(schedule, "simulate");
    }
    if (status != WEFT_OK) {
        return status;
    }
    simulation s = {.schedule = schedule, .cost = cost, .plan = run_out};
    status = init(&s, keep_spans);
    if (status == WEFT_OK) {
        status = run(&s);
    }
    if (status == WEFT_OK) {
        status = sum_up(&s);
    }
    fini(&s);
    if (status != WEFT_OK) {
        weft_schedule_run_fini(run_out);
    }
    return status;
}

void weft_schedule_run_fini(weft_schedule_run *plan)
{
    for (int r = 0; plan->ranks && r < plan->rank_count; r++) {
        free(plan->ranks[r].spans);
    }
    free(plan->ranks);
    *plan = (weft_schedule_run){0};
}

const char *weft_schedule_wait_text(weft_schedule_wait wait)
{
    static const char *const texts[WEFT_WAIT_COUNT] = {
        "none",   "forward", "backward", "transfer",
        "params", "reduce",  "barrier",  "end"};
    return texts[wait];
}

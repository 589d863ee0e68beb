/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/wait_graph.c - rule 4: no ranks wait in a circle.
 *
 * Messages match by what they carry, never by which comes first. So in whatever
 * order ranks move, the lists always get equally far, and it is enough to run
 * them once, without time: all get to their ends, or the ranks that are left
 * wait for one another.
 *
 * A rank's state is how many of its actions are complete, and how many are
 * posted: a group of messages is posted as a whole and complete as a whole.
 *
 *     done[r] <= posted[r]        what r waits for lies in [done, posted)
 */
#include "overlap/schedule/verdict.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef struct machine {
    wefti_schedule_trial *trial;
    const weft_schedule *schedule;
    size_t *done, *posted; /* [ranks] */
    size_t *waits_at;      /* [ranks] the action that cannot go on */
    int32_t *waits_for;    /* [ranks] for which rank; -1: none */
    int32_t *first_waiter; /* [ranks] which rank waits for this one; -1: none */
    int32_t *next_waiter;  /* [ranks] chain of the above */
    int32_t *ready;        /* [ranks] stack of those that may go on */
    int ready_count;
    uint32_t *room[2]; /* eager, [stages][per_stage], for SEND_F, SEND_B:
                          the receive that makes room, + 1 */
    int32_t *order;
    size_t order_count;
} machine;

static bool is_done(const machine *m, int rank, uint32_t place)
{
    return place != 0 && place - 1 < m->done[rank];
}

static bool is_posted(const machine *m, int rank, uint32_t place)
{
    return place != 0 && place - 1 < m->posted[rank];
}

/* The rank whose result a compute action still lacks; -1: none. */
static int lacking_input(const machine *m, const weft_action *action)
{
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    for (int p = 0; p < count; p++) {
        wefti_edge edge = wefti_edge_in(m->schedule, &parts[p]);
        wefti_places_table table =
            parts[p].type == WEFT_ACTION_F ? WEFTI_PLACES_F : WEFTI_PLACES_BACK;
        if (edge.exists && edge.remote &&
            !is_done(m, edge.from_rank,
                     wefti_places_get(&m->trial->places, table, edge.from_stage,
                                      parts[p].microbatch))) {
            return edge.from_rank;
        }
    }
    return -1;
}

/* The rank that a posted message still waits for; -1: none. */
static int lacking_peer(const machine *m, const weft_action *message)
{
    const wefti_stage_places *places = &m->trial->places;
    int peer = wefti_message_peer(m->schedule, message);
    if (peer < 0) {
        return -1; /* no message at all: rule 1 has reported it */
    }
    uint32_t other = wefti_places_counterpart(places, message);
    if (m->trial->config.semantics != WEFT_SEMANTICS_EAGER) {
        return is_posted(m, peer, other) ? -1 : peer;
    }
    if (message->type == WEFT_ACTION_RECV_F ||
        message->type == WEFT_ACTION_RECV_B) {
        return is_done(m, peer, other) ? -1 : peer;
    }
    size_t entry = (size_t)message->stage * (size_t)m->schedule->per_stage +
                   (size_t)message->microbatch;
    uint32_t room = m->room[message->type == WEFT_ACTION_SEND_B][entry];
    return room == 0 || is_done(m, peer, room) ? -1 : peer;
}

/* A rank that has not come to rank's BARRIER at index; -1: all have. */
static int lacking_at_barrier(const machine *m, int rank)
{
    const weft_action *own = &m->schedule->lists[rank].items[m->done[rank]];
    for (int r = 0; r < m->schedule->ranks; r++) {
        const wefti_actions *list = &m->schedule->lists[r];
        bool there = false;
        /* a rank past it has left this barrier behind in its list */
        for (size_t k = m->posted[r]; k > 0 && !there; k--) {
            there = list->items[k - 1].type == WEFT_ACTION_BARRIER &&
                    list->items[k - 1].stage == own->stage;
        }
        if (!there) {
            return r;
        }
    }
    return -1;
}

static int lacking_member(const machine *m, int rank, const weft_action *action)
{
    if (action->type == WEFT_ACTION_BARRIER) {
        return lacking_at_barrier(m, rank);
    }
    int mirror = action->type == WEFT_ACTION_REDUCE_GRAD
                     ? wefti_mirror_stage(m->schedule, action->stage)
                     : -1;
    if (mirror < 0) {
        return -1;
    }
    int other = m->schedule->rank_of[mirror];
    uint32_t place = m->trial->places.reduce[mirror];
    return other == rank || is_posted(m, other, place) ? -1 : other;
}

/* Past the last action that is posted together with the one at index. */
static size_t end_of_group(const machine *m, int rank, size_t index)
{
    const wefti_actions *list = &m->schedule->lists[rank];
    bool grouped = m->trial->config.semantics == WEFT_SEMANTICS_GROUPED &&
                   wefti_action_is_message(&list->items[index]);
    index++;
    while (grouped && index < list->count && list->items[index].joined &&
           wefti_action_is_message(&list->items[index])) {
        index++;
    }
    return index;
}

/* The rank that the posted action at index waits for; -1: none. */
static int lacking(const machine *m, int rank, size_t index)
{
    const weft_action *action = &m->schedule->lists[rank].items[index];
    if (wefti_action_is_message(action)) {
        return lacking_peer(m, action);
    }
    if (wefti_action_is_compute(action)) {
        return m->schedule->lowered ? -1 : lacking_input(m, action);
    }
    return lacking_member(m, rank, action);
}

/* All that wait for rank check again. */
static void wake(machine *m, int rank)
{
    int32_t waiter = m->first_waiter[rank];
    m->first_waiter[rank] = -1;
    while (waiter >= 0) {
        m->waits_for[waiter] = -1;
        m->ready[m->ready_count++] = waiter;
        waiter = m->next_waiter[waiter];
    }
}

static void wait_for(machine *m, int rank, size_t index, int other)
{
    m->waits_at[rank] = index;
    m->waits_for[rank] = other;
    m->next_waiter[rank] = m->first_waiter[other];
    m->first_waiter[other] = rank;
}

/* As far as rank gets. */
static void run(machine *m, int rank)
{
    const wefti_actions *list = &m->schedule->lists[rank];
    while (m->done[rank] < list->count) {
        size_t end = end_of_group(m, rank, m->done[rank]);
        if (m->posted[rank] < end) {
            m->posted[rank] = end;
            wake(m, rank);
        }
        for (size_t k = m->done[rank]; k < end; k++) {
            int other = lacking(m, rank, k);
            if (other >= 0) {
                wait_for(m, rank, k, other);
                return;
            }
        }
        for (; m->order && m->done[rank] < end; m->done[rank]++) {
            m->order[m->order_count++] = rank;
        }
        m->done[rank] = end;
        wake(m, rank);
    }
}

/* ---- eager: which receive makes room for a send ---------------------------
 */

/* The last slots receives of each peer, and how many there were. */
typedef struct queue {
    uint32_t places[WEFT_EAGER_SLOTS_MOST];
    size_t count;
} queue;

static void note_room(machine *m, int rank, queue **queues)
{
    const wefti_actions *list = &m->schedule->lists[rank];
    size_t slots = (size_t)m->trial->config.eager_slots;
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *send = &list->items[k];
        bool back = send->type == WEFT_ACTION_SEND_B;
        int peer = back || send->type == WEFT_ACTION_SEND_F
                       ? wefti_message_peer(m->schedule, send)
                       : -1;
        if (peer < 0) {
            continue;
        }
        size_t entry = (size_t)send->stage * (size_t)m->schedule->per_stage +
                       (size_t)send->microbatch;
        uint32_t *slot = &queues[peer]->places[queues[peer]->count++ % slots];
        m->room[back][entry] = queues[peer]->count > slots ? *slot : 0;
        *slot = wefti_places_counterpart(&m->trial->places, send);
    }
}

/* Creates a queue for each peer of rank. */
static bool make_queues(const machine *m, int rank, queue **queues)
{
    const wefti_actions *list = &m->schedule->lists[rank];
    for (size_t k = 0; k < list->count; k++) {
        int peer = wefti_action_is_message(&list->items[k])
                       ? wefti_message_peer(m->schedule, &list->items[k])
                       : -1;
        if (peer >= 0 && !queues[peer]) {
            queues[peer] = calloc(1, sizeof(queue));
            if (!queues[peer]) {
                return false;
            }
        }
    }
    return true;
}

static weft_status find_room(machine *m)
{
    int ranks = m->schedule->ranks;
    size_t entries =
        (size_t)m->schedule->stages * (size_t)m->schedule->per_stage;
    queue **queues = calloc((size_t)ranks, sizeof(queue *));
    m->room[0] = calloc(entries, sizeof(uint32_t));
    m->room[1] = calloc(entries, sizeof(uint32_t));
    bool enough = queues && m->room[0] && m->room[1];
    for (int r = 0; r < ranks && enough; r++) {
        enough = make_queues(m, r, queues);
        if (enough) {
            note_room(m, r, queues);
        }
        for (int peer = 0; peer < ranks; peer++) {
            free(queues[peer]);
            queues[peer] = NULL;
        }
    }
    free(queues);
    return enough ? WEFT_OK
                  : wefti_error(WEFT_ERR_NO_MEMORY, "the slots of %d ranks",
                                ranks);
}

/* ---- the cycle ------------------------------------------------------------
 */

/* Any stuck rank leads into a circle, or to one that has ended. */
static weft_status keep_cycle(machine *m, int from)
{
    weft_verdict *verdict = m->trial->verdict;
    int ranks = m->schedule->ranks;
    int32_t *seen_at = calloc((size_t)ranks, sizeof(*seen_at));
    verdict->cycle = calloc((size_t)ranks, sizeof(*verdict->cycle));
    if (!verdict->cycle || !seen_at) {
        free(seen_at);
        return wefti_error(WEFT_ERR_NO_MEMORY, "a cycle");
    }
    int rank = from;
    while (rank >= 0 && seen_at[rank] == 0 && m->waits_for[rank] >= 0) {
        verdict->cycle[verdict->cycle_count] =
            wefti_schedule_place(m->schedule, rank, m->waits_at[rank]);
        seen_at[rank] = (int32_t)++verdict->cycle_count;
        rank = m->waits_for[rank];
    }
    if (seen_at[rank] > 0) { /* what led into the circle is no part of it */
        size_t before = (size_t)seen_at[rank] - 1;
        verdict->cycle_count -= before;
        memmove(verdict->cycle, verdict->cycle + before,
                verdict->cycle_count * sizeof(*verdict->cycle));
    }
    free(seen_at);
    return WEFT_OK;
}

/* The breach: where the first waits, and where those it waits for do. */
static void find_cycle(const machine *m)
{
    enum { SHOWN = 3 };
    const weft_verdict *verdict = m->trial->verdict;
    char chain[SHOWN * (WEFTI_CELL_TEXT_BYTES + 32)] = "";
    size_t used = 0;
    for (size_t k = 1; k < verdict->cycle_count && k <= SHOWN; k++) {
        char text[WEFTI_CELL_TEXT_BYTES];
        weft_place next = verdict->cycle[k];
        wefti_cell_text(m->schedule, next.rank, next.index, text);
        used += (size_t)snprintf(chain + used, sizeof(chain) - used,
                                 "%s rank %d at %s", k > 1 ? "," : ":",
                                 next.rank, text);
    }
    weft_place at = verdict->cycle[0];
    wefti_trial_find(m->trial, WEFT_RULE_DEADLOCK, at.rank, at.index,
                     "waits for rank %d for ever%s%s", m->waits_for[at.rank],
                     chain, verdict->cycle_count > SHOWN + 1 ? ", ..." : "");
}

static weft_status report(machine *m)
{
    weft_verdict *verdict = m->trial->verdict;
    verdict->deadlock_known = true;
    verdict->deadlock_free = true;
    for (int r = 0; r < m->schedule->ranks; r++) {
        if (m->done[r] == m->schedule->lists[r].count) {
            continue;
        }
        verdict->deadlock_free = false;
        weft_status status = keep_cycle(m, r);
        if (status == WEFT_OK) {
            find_cycle(m);
        }
        return status;
    }
    return WEFT_OK;
}

static weft_status init(machine *m)
{
    size_t ranks = (size_t)m->schedule->ranks, actions = 0;
    for (size_t r = 0; r < ranks; r++) {
        actions += m->schedule->lists[r].count;
    }
    m->done = calloc(ranks, sizeof(*m->done));
    m->posted = calloc(ranks, sizeof(*m->posted));
    m->waits_at = calloc(ranks, sizeof(*m->waits_at));
    m->waits_for = malloc(ranks * sizeof(int32_t));
    m->first_waiter = malloc(ranks * sizeof(int32_t));
    m->next_waiter = malloc(ranks * sizeof(int32_t));
    m->ready = malloc(ranks * sizeof(int32_t));
    bool keep = m->trial->config.keep_order;
    m->order = keep ? malloc((actions + 1) * sizeof(int32_t)) : NULL;
    if (!m->done || !m->posted || !m->waits_at || !m->waits_for ||
        !m->first_waiter || !m->next_waiter || !m->ready ||
        (keep && !m->order)) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%zu ranks", ranks);
    }
    for (size_t r = 0; r < ranks; r++) {
        m->waits_for[r] = m->first_waiter[r] = -1;
        m->ready[ranks - 1 - r] = (int32_t)r;
    }
    m->ready_count = (int)ranks;
    bool eager = m->trial->config.semantics == WEFT_SEMANTICS_EAGER;
    return eager && m->schedule->lowered ? find_room(m) : WEFT_OK;
}

static void fini(machine *m)
{
    free(m->done);
    free(m->posted);
    free(m->waits_at);
    free(m->waits_for);
    free(m->first_waiter);
    free(m->next_waiter);
    free(m->ready);
    free(m->room[0]);
    free(m->room[1]);
    free(m->order);
}

weft_status wefti_rule_deadlock(wefti_schedule_trial *trial)
{
    machine m = {.trial = trial, .schedule = trial->schedule};
    weft_status status = init(&m);
    if (status == WEFT_OK) {
        while (m.ready_count > 0) {
            run(&m, m.ready[--m.ready_count]);
        }
        status = report(&m);
    }
    if (status == WEFT_OK && trial->verdict->valid) {
        trial->verdict->order = m.order;
        trial->verdict->order_count = m.order_count;
        m.order = NULL;
    }
    fini(&m);
    return status;
}

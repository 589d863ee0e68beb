/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_plan.c - goes through a rank's list once to see how much it
 * holds, and once more to assign the buffers.
 *
 * Free buffers wait in a queue, which both walks go through alike; the first
 * has no queue yet and only counts. Slots are numbers: the lowest free ones, so
 * that there are as many as live at once.
 */
#include "overlap/pipeline_plan.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>

enum { SPARE_PER_PEER = 2 };

/* A micro-batch on a stage of this rank; -1: nothing there now. */
typedef struct cell {
    int32_t made[2], got[2]; /* by or for F; by or for I or B */
    int32_t slot, stage_slot, kept;
    bool recomputed; /* somewhere in the list */
} cell;

/* Numbers that are taken and given back; the lowest free one comes next. */
typedef struct numbers {
    uint8_t *taken;
    int room, in_use, peak;
} numbers;

typedef struct walk {
    wefti_pipeline_plan *plan;
    int rank;
    int32_t *local;       /* [stages] which of this rank's it is; -1 */
    cell *cells;          /* [stages here][per_stage] */
    numbers slots, kept;  /* [as many as there are cells] */
    numbers *stage_slots; /* [stages here] */
    int32_t *queue;       /* free buffers; NULL: only count */
    int queue_slots, queue_first;
    uint32_t release_count;
    int held, received;
    size_t at; /* the action */
} walk;

static cell *cell_of(const walk *w, int stage, int microbatch)
{
    return &w->cells[(size_t)w->local[stage] *
                         (size_t)w->plan->schedule->per_stage +
                     (size_t)microbatch];
}

/* ---- numbers and buffers --------------------------------------------------
 */

static int32_t take_number(numbers *n)
{
    int32_t number = 0;
    while (n->taken[number]) {
        number++;
    }
    WEFTI_ASSERT(number < n->room);
    n->taken[number] = 1;
    n->in_use++;
    n->peak = n->in_use > n->peak ? n->in_use : n->peak;
    return number;
}

static void release_number(numbers *n, int32_t *number)
{
    n->taken[*number] = 0;
    n->in_use--;
    *number = -1;
}

static int wrap(const walk *w, int at)
{
    return at < w->queue_slots ? at : at - w->queue_slots;
}

/* A free buffer; 0 where they are only counted. */
static int32_t take_buffer(walk *w)
{
    int *peak = &w->plan->peaks.held;
    int32_t buffer = 0;
    w->held++;
    if (w->queue) {
        WEFTI_ASSERT(w->held <= *peak);
        buffer = w->queue[w->queue_first];
        w->queue_first = wrap(w, w->queue_first + 1);
    } else {
        *peak = w->held > *peak ? w->held : *peak;
    }
    return buffer;
}

static void release_buffer(walk *w, int32_t *buffer)
{
    if (w->queue) {
        int free_count = w->queue_slots - w->held;
        w->queue[wrap(w, w->queue_first + free_count)] = *buffer;
        w->plan->releases[w->release_count] = *buffer;
    }
    w->release_count++;
    w->held--;
    *buffer = -1;
}

/* ---- what an action holds -------------------------------------------------
 */

static void take_slot(walk *w, cell *c, int stage)
{
    c->slot = take_number(&w->slots);
    c->stage_slot = take_number(&w->stage_slots[w->local[stage]]);
}

static void release_slot(walk *w, cell *c, int stage)
{
    release_number(&w->slots, &c->slot);
    release_number(&w->stage_slots[w->local[stage]], &c->stage_slot);
}

static bool takes_slot(weft_action_type type)
{
    return type == WEFT_ACTION_F || type == WEFT_ACTION_RECOMPUTE ||
           type == WEFT_ACTION_RELOAD;
}

/* Where the input of F, I or B is while it is there; NULL: none. */
static int32_t *find_input(const walk *w, const weft_action *part)
{
    wefti_edge edge = wefti_edge_in(w->plan->schedule, part);
    bool back = part->type != WEFT_ACTION_F;
    if (!edge.exists) {
        return NULL;
    }
    return edge.remote
               ? &cell_of(w, part->stage, part->microbatch)->got[back]
               : &cell_of(w, edge.from_stage, part->microbatch)->made[back];
}

/* The checker has proved that activations are where they are needed. */
static void begin_part(walk *w, const weft_action *part,
                       wefti_pipeline_part *out)
{
    weft_action_type type = (weft_action_type)part->type;
    cell *c = cell_of(w, part->stage, part->microbatch);
    bool keeps =
        (type == WEFT_ACTION_F && c->recomputed) || type == WEFT_ACTION_OFFLOAD;
    bool needs_kept =
        type == WEFT_ACTION_RECOMPUTE || type == WEFT_ACTION_RELOAD;
    WEFTI_ASSERT(takes_slot(type) == (c->slot < 0));
    WEFTI_ASSERT(keeps ? c->kept < 0 : !needs_kept || c->kept >= 0);
    if (takes_slot(type)) {
        take_slot(w, c, part->stage);
    }
    if (keeps) {
        c->kept = take_number(&w->kept);
    }
    wefti_edge made = wefti_edge_out(w->plan->schedule, part);
    int32_t *input = find_input(w, part);
    *out = (wefti_pipeline_part){.input = input ? *input : -1,
                                 .output = -1,
                                 .from = -1,
                                 .slot = c->slot,
                                 .stage_slot = c->stage_slot,
                                 .kept = keeps || needs_kept ? c->kept : -1};
    if (input) {
        wefti_edge edge = wefti_edge_in(w->plan->schedule, part);
        out->from = edge.remote ? edge.from_rank : -1;
    }
    if (made.exists) {
        out->output = take_buffer(w);
        c->made[type != WEFT_ACTION_F] = out->output;
    }
}

static void end_part(walk *w, const weft_action *part)
{
    weft_action_type type = (weft_action_type)part->type;
    cell *c = cell_of(w, part->stage, part->microbatch);
    bool back = type == WEFT_ACTION_I || type == WEFT_ACTION_B;
    int32_t *input = find_input(w, part);
    if (input) {
        w->received -= wefti_edge_in(w->plan->schedule, part).remote;
        release_buffer(w, input);
    }
    if (back && c->made[0] >= 0) { /* never released */
        release_buffer(w, &c->made[0]);
    }
    if (type == WEFT_ACTION_RECOMPUTE || type == WEFT_ACTION_RELOAD) {
        release_number(&w->kept, &c->kept);
    }
    if ((type == WEFT_ACTION_F && c->recomputed) || type == WEFT_ACTION_B ||
        type == WEFT_ACTION_W || type == WEFT_ACTION_OFFLOAD) {
        release_slot(w, c, part->stage);
    }
}

/* What is made for another rank is sent when the list says so. */
static void release(walk *w, const weft_action *action)
{
    cell *c = cell_of(w, action->stage, action->microbatch);
    weft_action f =
        wefti_action(WEFT_ACTION_F, action->stage, action->microbatch);
    if (wefti_edge_out(w->plan->schedule, &f).remote && c->made[0] >= 0) {
        release_buffer(w, &c->made[0]);
    }
}

/* ---- messages -------------------------------------------------------------
 */

/* Where the message's buffer is noted. */
static int32_t *find_message(const walk *w, const weft_action *message)
{
    cell *c = cell_of(w, message->stage, message->microbatch);
    switch (message->type) {
    case WEFT_ACTION_SEND_F:
        return &c->made[0];
    case WEFT_ACTION_SEND_B:
        return &c->made[1];
    case WEFT_ACTION_RECV_F:
        return &c->got[0];
    default:
        return &c->got[1];
    }
}

static void post_messages(walk *w)
{
    wefti_pipeline_plan *plan = w->plan;
    for (uint32_t p = plan->items[w->at].posts;
         p < plan->items[w->at + 1].posts; p++) {
        const weft_action *message = &plan->actions[plan->posts[p]];
        int32_t *buffer = find_message(w, message);
        if (!wefti_pipeline_is_send(message)) {
            *buffer = take_buffer(w);
            w->received++;
            plan->peaks.received = w->received > plan->peaks.received
                                       ? w->received
                                       : plan->peaks.received;
        }
        plan->items[plan->posts[p]].buffer = *buffer;
    }
}

/* Behind the last message of a group, the gradients it sent are let go. */
static void end_group(walk *w)
{
    const weft_action *actions = w->plan->actions;
    size_t first = w->at;
    if (w->at + 1 < w->plan->count && actions[w->at + 1].joined) {
        return;
    }
    while (first > 0 && actions[first].joined) {
        first--;
    }
    for (size_t k = first; k <= w->at; k++) {
        if (actions[k].type == WEFT_ACTION_SEND_B) {
            release_buffer(w, find_message(w, &actions[k]));
        }
    }
}

/* ---- the walk -------------------------------------------------------------
 */

static void walk_list(walk *w)
{
    wefti_pipeline_plan *plan = w->plan;
    w->release_count = 0;
    for (w->at = 0; w->at < plan->count; w->at++) {
        const weft_action *action = &plan->actions[w->at];
        wefti_pipeline_item *item = &plan->items[w->at];
        weft_action parts[2];
        int count = wefti_pipeline_has_parts(action)
                        ? wefti_action_split(action, parts)
                        : 0;
        item->releases = w->release_count;
        for (int p = 0; p < count; p++) {
            begin_part(w, &parts[p], &item->parts[p]);
        }
        post_messages(w);
        for (int p = 0; p < count; p++) {
            end_part(w, &parts[p]);
        }
        if (action->type == WEFT_ACTION_RELEASE) {
            release(w, action);
        } else if (wefti_action_is_message(action)) {
            end_group(w);
        }
    }
    plan->items[plan->count].releases = w->release_count;
    WEFTI_ASSERT(w->held == 0 && w->received == 0 && w->slots.in_use == 0);
}

/* ---- the whole ------------------------------------------------------------
 */

static bool make_numbers(numbers *n, int room)
{
    *n = (numbers){.taken = calloc((size_t)room + 1, 1), .room = room};
    return n->taken != NULL;
}

static bool make_walk(walk *w)
{
    const weft_schedule *s = w->plan->schedule;
    int here = 0;
    w->local = calloc((size_t)s->stages, sizeof(*w->local));
    for (int stage = 0; w->local && stage < s->stages; stage++) {
        w->local[stage] = s->rank_of[stage] == w->rank ? here++ : -1;
    }
    size_t cells = (size_t)here * (size_t)s->per_stage;
    w->cells = malloc((cells + 1) * sizeof(*w->cells));
    w->stage_slots = calloc((size_t)here + 1, sizeof(*w->stage_slots));
    bool enough = w->local && w->cells && w->stage_slots &&
                  make_numbers(&w->slots, (int)cells) &&
                  make_numbers(&w->kept, (int)cells);
    for (int n = 0; n < here && enough; n++) {
        enough = make_numbers(&w->stage_slots[n], s->per_stage);
    }
    for (size_t c = 0; c < cells && enough; c++) {
        w->cells[c] = (cell){.made = {-1, -1},
                             .got = {-1, -1},
                             .slot = -1,
                             .stage_slot = -1,
                             .kept = -1};
    }
    return enough;
}

static void free_walk(walk *w)
{
    const weft_schedule *s = w->plan->schedule;
    for (int stage = 0; w->stage_slots && stage < s->stages; stage++) {
        if (w->local[stage] >= 0) {
            free(w->stage_slots[w->local[stage]].taken);
        }
    }
    free(w->slots.taken);
    free(w->kept.taken);
    free(w->stage_slots);
    free(w->cells);
    free(w->local);
    free(w->queue);
}

/* The second walk's queue, with all buffers in it. */
static bool make_queue(walk *w, int spare_buffers)
{
    wefti_pipeline_plan *plan = w->plan;
    int most = (int)w->release_count; /* no more are ever taken */
    w->queue_slots = plan->peaks.held + spare_buffers;
    w->queue_slots = w->queue_slots < most ? w->queue_slots : most;
    plan->peaks.buffers = w->queue_slots;
    plan->releases =
        calloc((size_t)w->release_count + 1, sizeof(*plan->releases));
    w->queue = calloc((size_t)w->queue_slots + 1, sizeof(*w->queue));
    for (int b = 0; w->queue && b < w->queue_slots; b++) {
        w->queue[b] = b;
    }
    return w->queue && plan->releases;
}

static void find_recomputed(walk *w)
{
    for (size_t k = 0; k < w->plan->count; k++) {
        const weft_action *action = &w->plan->actions[k];
        if (action->type == WEFT_ACTION_RECOMPUTE) {
            cell_of(w, action->stage, action->microbatch)->recomputed = true;
        }
    }
}

static weft_status plan_list(walk *w, int receive_ahead, int spare_buffers)
{
    wefti_pipeline_plan *plan = w->plan;
    int peers = 0;
    weft_status status = wefti_pipeline_posts_init(plan, receive_ahead, &peers);
    if (status != WEFT_OK) {
        return status;
    }
    find_recomputed(w);
    walk_list(w);
    int spare = spare_buffers > 0 ? spare_buffers : SPARE_PER_PEER * peers;
    if (!make_queue(w, spare)) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d buffers", w->queue_slots);
    }
    walk_list(w);
    plan->peaks.slots = w->slots.peak;
    plan->peaks.kept = w->kept.peak;
    for (int stage = 0; stage < plan->schedule->stages; stage++) {
        int32_t local = w->local[stage];
        plan->stage_slots[stage] = local < 0 ? 0 : w->stage_slots[local].peak;
    }
    return WEFT_OK;
}

weft_status wefti_pipeline_plan_init(wefti_pipeline_plan *plan,
                                     const weft_schedule *s, int rank,
                                     int receive_ahead, int spare_buffers)
{
    *plan = (wefti_pipeline_plan){.schedule = s};
    plan->count = weft_schedule_get_actions(s, rank, &plan->actions);
    plan->items = calloc(plan->count + 1, sizeof(*plan->items));
    plan->stage_slots = calloc((size_t)s->stages, sizeof(int));
    walk w = {.plan = plan, .rank = rank};
    bool enough = make_walk(&w) && plan->items && plan->stage_slots;
    weft_status status =
        enough ? plan_list(&w, receive_ahead, spare_buffers)
               : wefti_error(WEFT_ERR_NO_MEMORY, "%zu actions", plan->count);
    free_walk(&w);
    if (status != WEFT_OK) {
        wefti_pipeline_plan_fini(plan);
    }
    return status;
}

void wefti_pipeline_plan_fini(wefti_pipeline_plan *plan)
{
    free(plan->items);
    free(plan->posts);
    free(plan->releases);
    free(plan->stage_slots);
    *plan = (wefti_pipeline_plan){0};
}

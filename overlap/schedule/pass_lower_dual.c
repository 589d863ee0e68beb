/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/pass_lower_dual.c - messages where DualPipe's authors put
 * them.
 *
 * Before each compute action goes one group: the sends that are queued by then,
 * and the action's receives. Steps 2 to 4 depart from that, so that ranks that
 * turn from sending one phase to the other match:
 *
 *  - F of phase 0 in step 2, and the first of step 4, have been received one
 *    action ahead;
 *  - in step 2 the send of phase 0 is queued behind that of phase 1;
 *  - step 3 asks for its F before its W;
 *  - the ranks in the middle (of DualPipeV: the last) keep the last send of
 *    phase 1 in step 2 until after the first F of step 4, and the send of that
 *    F until after the B that follows.
 *
 * Source: deepseek-ai/DualPipe, dualpipe.py and dualpipev.py.
 */
#include "overlap/schedule/pass.h"

enum { QUEUE_MOST = 16 };

typedef struct porter {
    const weft_schedule *schedule;
    wefti_actions *fresh;
    const wefti_actions *list; /* all of the rank's actions */
    size_t carried;            /* of these, those that are in fresh */
    wefti_actions compute;     /* the recipe's alone */
    int phase0;                /* its stage */
    bool middle; /* turns a direction round, or sits between them */
    bool early;  /* middle of DualPipe: phase 0's send not behind phase 1's */
    int steps2;  /* actions of step 2 that are left */
    weft_action queue[QUEUE_MOST];
    int queued;
    weft_action held[2]; /* sends kept back: F of phase 1, F of phase 0 */
    int held_count;
} porter;

static void queue_edge(porter *p, wefti_edge edge, bool send)
{
    if (edge.exists && edge.remote && p->queued < QUEUE_MOST) {
        p->queue[p->queued++] =
            send ? wefti_edge_send(&edge) : wefti_edge_recv(&edge);
    }
}

static void queue_recv(porter *p, weft_action part)
{
    queue_edge(p, wefti_edge_in(p->schedule, &part), false);
}

static void queue_send(porter *p, weft_action part)
{
    queue_edge(p, wefti_edge_out(p->schedule, &part), true);
}

/* What is queued becomes one group. */
static void flush(porter *p)
{
    for (int q = 0; q < p->queued; q++) {
        p->queue[q].joined = q > 0;
        wefti_actions_add(p->fresh, p->queue[q]);
    }
    p->queued = 0;
}

/* Up to the next compute action: what passes have put in before it. */
static void carry_others(porter *p)
{
    while (p->carried < p->list->count &&
           !wefti_action_is_compute(&p->list->items[p->carried])) {
        wefti_actions_add(p->fresh, p->list->items[p->carried++]);
    }
}

static void run(porter *p, const weft_action *action)
{
    carry_others(p);
    flush(p);
    wefti_actions_add(p->fresh, *action);
    p->carried++;
}

static void recv_all(porter *p, const weft_action *action)
{
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    for (int i = 0; i < count; i++) {
        queue_recv(p, parts[i]);
    }
}

static void send_all(porter *p, const weft_action *action)
{
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    for (int i = 0; i < count; i++) {
        queue_send(p, parts[i]);
    }
}

/* F of phase 0, then F of phase 1. */
static void run_step2(porter *p, const weft_action *action)
{
    weft_action own = *action;
    if (own.stage == p->phase0) {
        run(p, action); /* received ahead */
        if (p->early) {
            queue_send(p, own);
        }
        queue_recv(p,
                   wefti_action(WEFT_ACTION_F, own.stage, own.microbatch + 1));
        return;
    }
    queue_recv(p, own);
    run(p, action);
    bool last = p->steps2 == 0;
    if (p->middle && last) {
        p->held[p->held_count++] = own;
    } else {
        queue_send(p, own);
    }
    if (!p->early) {
        /* the F of phase 0 just before, of the middle too where it is local */
        weft_action f0 = *(action - 1);
        queue_send(p, f0);
    }
}

/* I, W, F: the F is asked for before the W, where these two are not merged. */
static void run_step3(porter *p, const weft_action *action)
{
    if (action->type == WEFT_ACTION_I || action->type == WEFT_ACTION_B) {
        queue_recv(p, *action);
        run(p, action);
        queue_send(p, *action);
        queue_recv(p, action[action->type == WEFT_ACTION_I ? 2 : 1]);
    } else {
        run(p, action);
        send_all(p, action);
    }
}

/* The first F of step 4; in the middle, with the B after it. */
static void run_turn(porter *p, const weft_action *action)
{
    if (action->type == WEFT_ACTION_FB) { /* its F has been received */
        weft_action b = wefti_action(WEFT_ACTION_B, action->pair_stage,
                                     action->pair_microbatch);
        queue_recv(p, b);
        run(p, action);
        send_all(p, action);
    } else {
        run(p, action);
        for (int h = 0; h < p->held_count; h++) {
            queue_send(p, p->held[h]);
        }
        p->held[0] = *action; /* until after the B that comes next */
        p->held_count = 1;
    }
}

static void run_any(porter *p, const weft_action *action)
{
    recv_all(p, action);
    run(p, action);
    if (p->held_count > 0) {
        queue_send(p, p->held[0]);
        p->held_count = 0;
    }
    send_all(p, action);
}

static void lower_rank(porter *p)
{
    bool turned = false;
    uint8_t step = 0;
    for (size_t k = 0; k < p->list->count; k++) {
        if (wefti_action_is_compute(&p->list->items[k])) {
            wefti_actions_add(&p->compute, p->list->items[k]);
            p->steps2 += p->list->items[k].step == 2;
        }
    }
    p->fresh->failed = p->compute.failed;
    for (size_t k = 0; k < p->compute.count && !p->compute.failed; k++) {
        const weft_action *action = &p->compute.items[k];
        if (action->step == 2) {
            p->steps2--;
            if (step < 2) {
                queue_recv(p, *action);
            }
            run_step2(p, action);
        } else if (action->step == 3) {
            run_step3(p, action);
        } else if (action->step == 4 && !turned) {
            turned = true;
            run_turn(p, action);
        } else {
            run_any(p, action);
        }
        step = action->step;
    }
    carry_others(p);
    flush(p);
    wefti_actions_fini(&p->compute);
}

void wefti_lower_dual(wefti_pass *pass)
{
    const weft_schedule *schedule = pass->schedule;
    bool dual = schedule->directions == 2;
    int ranks = schedule->ranks;
    for (int r = 0; r < ranks; r++) {
        bool second_half = dual && r >= ranks / 2;
        bool middle =
            dual ? r == ranks / 2 || r == ranks / 2 - 1 : r == ranks - 1;
        porter p = {.schedule = schedule,
                    .fresh = &pass->fresh[r],
                    .list = &schedule->lists[r],
                    .phase0 = second_half ? 2 * ranks - 1 - r : r,
                    .middle = middle,
                    .early = dual && middle};
        lower_rank(&p);
    }
}

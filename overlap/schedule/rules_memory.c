/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/rules_memory.c - rule 2 for activations: they are in the
 * rank's memory where they are used. Between F and its last backward they may
 * be on the host, or dropped at the end of F until they are computed again:
 *
 *     F -> THERE <-> AWAY             OFFLOAD and RELOAD
 *     F -> DROPPED -> THERE <-> AWAY  where the list has a RECOMPUTE
 *     THERE -> GONE                   B or W
 */
#include "overlap/schedule/verdict.h"

#include "base/error.h"

#include <stdlib.h>

enum { NOTHING, THERE, AWAY, DROPPED, GONE };

/* Activations of a stage and a micro-batch, so far in the rank's list. */
typedef struct activations {
    uint8_t state;
    bool recomputed; /* the list has a RECOMPUTE of them somewhere */
    bool released;
} activations;

typedef struct store {
    wefti_schedule_trial *trial;
    activations *cells; /* [stages][per_stage] */
    int rank;
    size_t index; /* the action that is checked */
} store;

static activations *cell_of(const store *s, const weft_action *action)
{
    return &s->cells[(size_t)action->stage *
                         (size_t)s->trial->schedule->per_stage +
                     (size_t)action->microbatch];
}

static bool is_memory(const weft_action *action)
{
    return action->type >= WEFT_ACTION_OFFLOAD &&
           action->type <= WEFT_ACTION_RELEASE;
}

static bool has_memory(const weft_schedule *schedule)
{
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            if (is_memory(&list->items[k])) {
                return true;
            }
        }
    }
    return false;
}

static void find(const store *s, weft_rule rule, const char *what)
{
    wefti_trial_find(s->trial, rule, s->rank, s->index, "%s", what);
}

/* What needs activations in the rank's memory. */
static void need_there(const store *s, const activations *own)
{
    if (own->state == AWAY) {
        find(s, WEFT_RULE_ORDER,
             "its activations are on the host: no RELOAD since the OFFLOAD");
    } else if (own->state == DROPPED) {
        find(s, WEFT_RULE_ORDER,
             "its activations were dropped: no RECOMPUTE before it");
    } else if (own->state == GONE) {
        find(s, WEFT_RULE_ORDER,
             "comes after the backward that needs its activations");
    } /* before F: that has been reported already */
}

static void recompute(const store *s, activations *own)
{
    if (own->state == THERE || own->state == AWAY) {
        find(s, WEFT_RULE_COMPLETE, "stands in the list twice");
    } else if (own->state == GONE) {
        need_there(s, own);
    } else if (own->state == DROPPED) {
        own->state = THERE;
    }
}

static void reload(const store *s, activations *own)
{
    if (own->state != AWAY) {
        find(s, WEFT_RULE_ORDER,
             "nothing has been offloaded that it could bring back");
    } else {
        own->state = THERE;
    }
}

static void release(const store *s, activations *own)
{
    if (own->released) {
        find(s, WEFT_RULE_COMPLETE, "stands in the list twice");
    }
    own->released = true;
}

static void step(const store *s, const weft_action *part)
{
    if (part->microbatch < 0) {
        return; /* of a whole stage */
    }
    activations *own = cell_of(s, part);
    switch (part->type) {
    case WEFT_ACTION_F:
        own->state = own->recomputed ? DROPPED : THERE;
        break;
    case WEFT_ACTION_I:
        need_there(s, own);
        break;
    case WEFT_ACTION_W:
    case WEFT_ACTION_B:
        need_there(s, own);
        own->state = own->state == THERE ? GONE : own->state;
        break;
    case WEFT_ACTION_OFFLOAD:
        need_there(s, own);
        own->state = own->state == THERE ? AWAY : own->state;
        break;
    case WEFT_ACTION_RELOAD:
        reload(s, own);
        break;
    case WEFT_ACTION_RECOMPUTE:
        recompute(s, own);
        break;
    case WEFT_ACTION_RELEASE:
        release(s, own);
        break;
    default:
        break;
    }
}

static void walk_list(store *s, const wefti_actions *list)
{
    for (size_t k = 0; k < list->count; k++) {
        if (list->items[k].type == WEFT_ACTION_RECOMPUTE) {
            cell_of(s, &list->items[k])->recomputed = true;
        }
    }
    for (s->index = 0; s->index < list->count; s->index++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[s->index], parts);
        for (int p = 0; p < count; p++) {
            step(s, &parts[p]);
        }
    }
}

weft_status wefti_rule_memory(wefti_schedule_trial *trial)
{
    const weft_schedule *schedule = trial->schedule;
    size_t cells = (size_t)schedule->stages * (size_t)schedule->per_stage;
    if (!has_memory(schedule)) {
        return WEFT_OK; /* from F to the backward nothing moves */
    }
    store s = {.trial = trial, .cells = calloc(cells, sizeof(*s.cells))};
    if (!s.cells) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%zu micro-batches", cells);
    }
    for (s.rank = 0; s.rank < schedule->ranks; s.rank++) {
        walk_list(&s, &schedule->lists[s.rank]);
    }
    free(s.cells);
    return WEFT_OK;
}

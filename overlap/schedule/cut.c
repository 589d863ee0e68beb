/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/cut.c - from prefixes of the checker's order to cuts.
 *
 *     rank 0   F SEND F | SEND ...         a prefix of the order may end
 *     rank 1     RECV F | RECV F ...       between a SEND and its RECV
 *
 * A prefix of the order takes no message before it was sent, but may have a
 * message sent and not yet received: that other side, and all that its rank
 * does before it, is taken in too, and so on until nothing is missing. What
 * comes out is again a prefix of an order in which all can run, because nothing
 * in it waits for anything outside. As the order has both sides of a message
 * close together, little is added.
 */
#include "overlap/schedule/cut.h"

#include "base/error.h"
#include "overlap/schedule/verdict.h"

#include <stdlib.h>
#include <string.h>

typedef struct cutter {
    const weft_schedule *schedule;
    wefti_stage_places places;
    size_t *ends; /* [ranks] of the cut being made */
    size_t *seen; /* [ranks] actions whose other side has been taken in */
} cutter;

/* A valid list has nothing twice. */
static void ignore_twice(void *context, int rank, size_t index)
{
    (void)context;
    (void)rank;
    (void)index;
}

/* What must be on the same side of a cut; *place_out is its index + 1. */
static int find_partner(const cutter *c, const weft_action *action,
                        uint32_t *place_out)
{
    int peer = -1;
    if (wefti_action_is_message(action)) {
        peer = wefti_message_peer(c->schedule, action);
        *place_out =
            peer < 0 ? 0 : wefti_places_counterpart(&c->places, action);
    } else if (action->type == WEFT_ACTION_REDUCE_GRAD) {
        int mirror = wefti_mirror_stage(c->schedule, action->stage);
        peer = mirror < 0 ? -1 : c->schedule->rank_of[mirror];
        *place_out = mirror < 0 ? 0 : c->places.reduce[mirror];
    }
    return peer;
}

/* Takes in the other sides of what the cut has; false: none was missing. */
static bool take_in(cutter *c)
{
    bool more = false;
    for (int rank = 0; rank < c->schedule->ranks; rank++) {
        const weft_action *items = c->schedule->lists[rank].items;
        for (; c->seen[rank] < c->ends[rank]; c->seen[rank]++) {
            uint32_t place = 0;
            int peer = find_partner(c, &items[c->seen[rank]], &place);
            if (peer >= 0 && place > c->ends[peer]) {
                c->ends[peer] = place;
                more = true;
            }
        }
    }
    return more;
}

static bool is_all(const cutter *c)
{
    bool all = true;
    for (int rank = 0; rank < c->schedule->ranks; rank++) {
        all = all && c->ends[rank] == c->schedule->lists[rank].count;
    }
    return all;
}

/* Cuts follow one another, so each goes on from the one before. */
static void make_cuts(cutter *c, const weft_verdict *verdict, size_t count,
                      size_t *ends_out, size_t *found_out)
{
    size_t ranks = (size_t)c->schedule->ranks;
    size_t bytes = ranks * sizeof(*ends_out);
    size_t *reached = c->seen + ranks; /* by the order alone */
    size_t at = 0;
    *found_out = 0;
    for (size_t i = 1; i <= count; i++) {
        size_t until = verdict->order_count / (count + 1) * i +
                       verdict->order_count % (count + 1) * i / (count + 1);
        for (; at < until; at++) {
            int rank = verdict->order[at];
            reached[rank]++;
            if (c->ends[rank] < reached[rank]) {
                c->ends[rank] = reached[rank];
            }
        }
        while (take_in(c)) {
        }
        const size_t *before =
            *found_out ? ends_out + (*found_out - 1) * ranks : NULL;
        bool fresh =
            until > 0 && (!before || memcmp(before, c->ends, bytes) != 0);
        if (fresh && !is_all(c)) {
            memcpy(ends_out + (*found_out)++ * ranks, c->ends, bytes);
        }
    }
}

static weft_status check_list(const weft_schedule *schedule,
                              weft_verdict *verdict)
{
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = WEFT_SEMANTICS_GROUPED,
                                .keep_order = true};
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const wefti_actions *list = &schedule->lists[rank];
        for (size_t k = 0; k < list->count; k++) {
            if (list->items[k].type == WEFT_ACTION_BARRIER) {
                return wefti_error(WEFT_ERR_INVALID,
                                   "rank %d, action %zu: a list with BARRIER "
                                   "is not cut",
                                   rank, k);
            }
        }
    }
    weft_status status = weft_schedule_check(schedule, &config, verdict);
    if (status == WEFT_OK && (!verdict->valid || !schedule->lowered)) {
        status = wefti_error(
            WEFT_ERR_INVALID, "a cut needs a valid schedule with messages: %s",
            verdict->finding_count ? verdict->findings[0].text : "lower it");
        weft_verdict_fini(verdict);
    }
    return status;
}

weft_status wefti_schedule_cut(const weft_schedule *schedule, size_t count,
                               size_t *ends_out, size_t *found_out)
{
    weft_verdict verdict;
    weft_status status = check_list(schedule, &verdict);
    if (status != WEFT_OK) {
        return status;
    }
    cutter c = {.schedule = schedule};
    size_t ranks = (size_t)schedule->ranks;
    c.ends = calloc(3 * ranks, sizeof(*c.ends));
    status = c.ends
                 ? wefti_places_init(&c.places, schedule, ignore_twice, NULL)
                 : wefti_error(WEFT_ERR_NO_MEMORY, "a cut of %zu ranks", ranks);
    if (status == WEFT_OK) {
        c.seen = c.ends + ranks;
        make_cuts(&c, &verdict, count, ends_out, found_out);
    }
    wefti_places_fini(&c.places);
    free(c.ends);
    weft_verdict_fini(&verdict);
    return status;
}

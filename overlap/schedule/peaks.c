/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/peaks.c - rule 5: how much a rank holds at most.
 *
 * Both peaks follow from the order of a rank's own list, whatever the others
 * do: an activation lives from the start of its F to the end of its B or W, a
 * message from its RECV to the end of the action that uses it. Pools of these
 * sizes are enough.
 */
#include "overlap/schedule/verdict.h"

#include "base/error.h"

#include <stdlib.h>

/* Activations in chunks: what the action holds while it runs, and after. */
static void count_part(const weft_action *part, const uint8_t *recomputed,
                       int per_stage, int64_t *during, int64_t *after)
{
    size_t entry = (size_t)part->stage * (size_t)per_stage +
                   (size_t)(part->microbatch < 0 ? 0 : part->microbatch);
    switch (part->type) {
    case WEFT_ACTION_F:
        *during += 1;
        *after += !(recomputed && recomputed[entry]);
        break;
    case WEFT_ACTION_RECOMPUTE:
    case WEFT_ACTION_RELOAD:
        *during += 1;
        *after += 1;
        break;
    case WEFT_ACTION_B:
    case WEFT_ACTION_W:
    case WEFT_ACTION_OFFLOAD:
        *after -= 1;
        break;
    default:
        break;
    }
}

static int64_t peak_activations(const weft_schedule *schedule, int rank,
                                const uint8_t *recomputed)
{
    const wefti_actions *list = &schedule->lists[rank];
    int64_t held = 0, peak = 0;
    for (size_t k = 0; k < list->count; k++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[k], parts);
        int64_t during = held;
        for (int p = 0; p < count; p++) {
            count_part(&parts[p], recomputed, schedule->per_stage, &during,
                       &held);
        }
        peak = during > peak ? during : peak;
    }
    return peak;
}

/* Messages that part uses up. */
static int uses(const weft_schedule *schedule, const weft_action *part)
{
    wefti_edge edge = wefti_edge_in(schedule, part);
    return edge.exists && edge.remote;
}

static int32_t peak_early(const weft_schedule *schedule, int rank)
{
    const wefti_actions *list = &schedule->lists[rank];
    int32_t held = 0, peak = 0;
    for (size_t k = 0; k < list->count; k++) {
        weft_action parts[2];
        int count = wefti_action_split(&list->items[k], parts);
        held += parts[0].type == WEFT_ACTION_RECV_F ||
                parts[0].type == WEFT_ACTION_RECV_B;
        peak = held > peak ? held : peak;
        for (int p = 0; p < count; p++) {
            held -= uses(schedule, &parts[p]);
        }
    }
    return peak;
}

/* Which activations F does not keep, as RECOMPUTE makes them again; or NULL. */
static weft_status find_recomputed(const weft_schedule *schedule,
                                   uint8_t **recomputed_out)
{
    size_t entries = (size_t)schedule->stages * (size_t)schedule->per_stage;
    uint8_t *recomputed = NULL;
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            const weft_action *action = &list->items[k];
            if (action->type != WEFT_ACTION_RECOMPUTE) {
                continue;
            }
            if (!recomputed) {
                recomputed = calloc(entries, 1);
            }
            if (!recomputed) {
                return wefti_error(WEFT_ERR_NO_MEMORY, "%zu micro-batches",
                                   entries);
            }
            recomputed[(size_t)action->stage * (size_t)schedule->per_stage +
                       (size_t)action->microbatch] = 1;
        }
    }
    *recomputed_out = recomputed;
    return WEFT_OK;
}

weft_status wefti_schedule_peaks(const weft_schedule *schedule,
                                 double *activations, int32_t *early)
{
    uint8_t *recomputed = NULL;
    weft_status status = find_recomputed(schedule, &recomputed);
    for (int r = 0; r < schedule->ranks && status == WEFT_OK; r++) {
        if (activations) {
            activations[r] = (double)peak_activations(schedule, r, recomputed) /
                             schedule->chunks;
        }
        if (early) {
            early[r] = schedule->lowered ? peak_early(schedule, r) : 0;
        }
    }
    free(recomputed);
    return status;
}

weft_status wefti_rule_peaks(wefti_schedule_trial *trial)
{
    weft_verdict *verdict = trial->verdict;
    const weft_check_config *config = &trial->config;
    size_t ranks = (size_t)trial->schedule->ranks;
    verdict->activations = calloc(ranks, sizeof(*verdict->activations));
    verdict->early = calloc(ranks, sizeof(*verdict->early));
    if (!verdict->activations || !verdict->early) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%zu ranks", ranks);
    }
    weft_status status = wefti_schedule_peaks(
        trial->schedule, verdict->activations, verdict->early);
    for (size_t r = 0; r < ranks && status == WEFT_OK; r++) {
        if (config->activations_most > 0 &&
            verdict->activations[r] > config->activations_most) {
            wefti_trial_find(trial, WEFT_RULE_PEAK, -1, 0,
                             "rank %zu holds %g activations at its peak; "
                             "allowed is %g",
                             r, verdict->activations[r],
                             config->activations_most);
        }
        if (config->early_most > 0 && verdict->early[r] > config->early_most) {
            wefti_trial_find(trial, WEFT_RULE_PEAK, -1, 0,
                             "rank %zu holds %d received messages at its peak; "
                             "allowed is %d",
                             r, verdict->early[r], config->early_most);
        }
    }
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/verdict.c - the checker: asks rule after rule, and stops
 * where a broken one leaves the next without meaning.
 */
#include "overlap/schedule/verdict.h"

#include "base/check.h"
#include "base/error.h"
#include "base/sized.h"

#include <stdarg.h>
#include <stdlib.h>

const char *weft_rule_text(weft_rule rule)
{
    static const char *const texts[] = {[WEFT_RULE_COMPLETE] = "complete",
                                        [WEFT_RULE_ORDER] = "order",
                                        [WEFT_RULE_FIFO] = "fifo",
                                        [WEFT_RULE_DEADLOCK] = "deadlock",
                                        [WEFT_RULE_PEAK] = "peak",
                                        [WEFT_RULE_COLLECTIVE] = "collective"};
    return texts[rule];
}

const char *wefti_cell_text(const weft_schedule *schedule, int rank,
                            size_t index, char text[WEFTI_CELL_TEXT_BYTES])
{
    weft_place at = wefti_schedule_place(schedule, rank, index);
    size_t used = weft_action_pack(&schedule->lists[rank].items[index], text);
    if (at.row > 0) {
        snprintf(text + used, WEFTI_CELL_TEXT_BYTES - used,
                 " (row %d, column %d)", at.row, at.column);
    }
    return text;
}

/* "row 2, column 1, rank 1, action 0, 1B0: "; returns its length. */
static size_t put_place(const weft_schedule *schedule, const weft_place *at,
                        char *text, size_t text_bytes)
{
    char cell[48] = "", action[WEFT_ACTION_TEXT_BYTES];
    if (at->row > 0) {
        snprintf(cell, sizeof(cell), "row %d, column %d, ", at->row,
                 at->column);
    }
    weft_action_pack(&schedule->lists[at->rank].items[at->index], action);
    return (size_t)snprintf(text, text_bytes,
                            "%srank %d, action %zu, %s: ", cell, at->rank,
                            at->index, action);
}

void wefti_trial_find(wefti_schedule_trial *trial, weft_rule rule, int rank,
                      size_t index, const char *format, ...)
{
    weft_verdict *verdict = trial->verdict;
    verdict->valid = false;
    if (verdict->finding_count++ >= WEFT_FINDINGS_MOST) {
        return;
    }
    weft_finding *finding = &verdict->findings[verdict->finding_count - 1];
    *finding = (weft_finding){.rule = rule, .at.rank = -1};
    size_t used = 0;
    if (rank >= 0) {
        finding->at = wefti_schedule_place(trial->schedule, rank, index);
        used = put_place(trial->schedule, &finding->at, finding->text,
                         sizeof(finding->text));
    }
    va_list args;
    va_start(args, format);
    vsnprintf(finding->text + used, sizeof(finding->text) - used, format, args);
    va_end(args);
}

static void find_twice(void *context, int rank, size_t index)
{
    wefti_trial_find(context, WEFT_RULE_COMPLETE, rank, index,
                     "stands in the list twice");
}

static weft_status try_all(wefti_schedule_trial *trial)
{
    weft_status status = wefti_rule_counts(trial);
    if (status == WEFT_OK && trial->verdict->valid) {
        status = wefti_places_init(&trial->places, trial->schedule, find_twice,
                                   trial);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (!trial->verdict->valid) { /* one twice is another one missing */
        return WEFT_OK;
    }
    if (trial->schedule->lowered) {
        wefti_rule_messages(trial);
    }
    wefti_rule_order(trial);
    status = wefti_rule_memory(trial);
    if (status == WEFT_OK) {
        status = wefti_rule_stages(trial);
    }
    if (status == WEFT_OK && trial->schedule->lowered) {
        status = wefti_rule_fifo(trial);
    }
    wefti_rule_collectives(trial);
    if (status == WEFT_OK) {
        status = wefti_rule_deadlock(trial);
    }
    return status == WEFT_OK ? wefti_rule_peaks(trial) : status;
}

static weft_status check_config(const weft_check_config *config)
{
    if (config->semantics == WEFT_SEMANTICS_EAGER &&
        (config->eager_slots < 1 ||
         config->eager_slots > WEFT_EAGER_SLOTS_MOST)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "eager_slots %d: allowed is 1 .. %d",
                           config->eager_slots, WEFT_EAGER_SLOTS_MOST);
    }
    if (config->activations_most < 0 || config->early_most < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "limits: allowed is 0 (none) or more");
    }
    return WEFT_OK;
}

weft_status weft_schedule_check(const weft_schedule *schedule,
                                const weft_check_config *config,
                                weft_verdict *verdict_out)
{
    wefti_schedule_trial trial = {.schedule = schedule, .verdict = verdict_out};
    if (!schedule || !verdict_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "schedule and verdict_out must not be NULL");
    }
    *verdict_out = (weft_verdict){.valid = true};
    weft_status status =
        config ? wefti_sized_read("config", config,
                                  offsetof(weft_check_config, eager_slots),
                                  &trial.config, sizeof(trial.config))
               : WEFT_OK;
    if (status == WEFT_OK) {
        status = check_config(&trial.config);
    }
    if (status == WEFT_OK) {
        status = try_all(&trial);
    }
    wefti_places_fini(&trial.places);
    if (status != WEFT_OK) {
        weft_verdict_fini(verdict_out);
    }
    return status;
}

void weft_verdict_fini(weft_verdict *verdict)
{
    free(verdict->cycle);
    free(verdict->activations);
    free(verdict->early);
    free(verdict->order);
    *verdict = (weft_verdict){0};
}

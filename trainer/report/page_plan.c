/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_plan.c - what follows from a step's costs.
 */
#include "trainer/report/page_plan.h"

#include "base/error.h"
#include "overlap/schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHOICES_MOST = 8 };

/* Other numbers of micro-batches, of a quarter to four times as many, that
 * cut the sequences evenly. */
static int list_choices(int microbatches, int sequences,
                        int choices[CHOICES_MOST])
{
    int count = 0;
    for (int m = (microbatches + 3) / 4;
         m <= sequences && m <= 4 * microbatches && count < CHOICES_MOST; m++) {
        if (m > 0 && sequences % m == 0 && m != microbatches) {
            choices[count++] = m;
        }
    }
    return count;
}

/* KEY=NUMBER of what an end of the model takes. */
static void put_end(FILE *file, const char *flag, const weft_stage_cost *end)
{
    fprintf(file, " %s F=%.6g,I=%.6g,W=%.6g,B=%.6g", flag, end->f, end->i,
            end->w, end->b);
}

/* What was asked, in weft-sched's words; NULL: no memory. */
static char *tell_command(const weft_advice_config *question, bool pairs)
{
    const weft_schedule_cost *cost = question->cost;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (!file) {
        return NULL;
    }
    fprintf(file, "weft-sched compare --ranks %d --layers %d --microbatches %d",
            question->ranks, question->layers, question->microbatches);
    for (int k = 0; k < question->choice_count; k++) {
        fprintf(file, ",%d", question->choices[k]);
    }
    fprintf(file, " --cost F=%.6g,I=%.6g,W=%.6g,B=%.6g", cost->f, cost->i,
            cost->w, cost->b);
    if (pairs) { /* else they take as long as their halves */
        fprintf(file, ",FB=%.6g", cost->fb);
    }
    fprintf(file, ",p2p=%.6g", cost->p2p);
    put_end(file, "--first", question->first);
    put_end(file, "--last", question->last);
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* All other schedules, with the model's ends where they would be. */
static weft_status advise(wefti_page_plan *plan, int layers, int sequences)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(plan->schedule, &info);
    int choices[CHOICES_MOST];
    wefti_layer_cost each =
        wefti_layer_cost_fit(&plan->found, plan->schedule, layers);
    weft_schedule_cost asked =
        wefti_layer_cost_rank(&each, info.ranks, layers, plan->found.hidden);
    asked.p2p = plan->found.p2p;
    weft_advice_config question = {
        .size_bytes = sizeof(question),
        .ranks = info.ranks,
        .microbatches = info.microbatches,
        .choices = choices,
        .choice_count = list_choices(info.microbatches, sequences, choices),
        .layers = layers,
        .cost = &asked,
        .first = &each.first,
        .last = &each.last};
    plan->microbatches = info.microbatches;
    if (status == WEFT_OK) {
        status = weft_schedule_advise(&question, &plan->advice);
    }
    if (status == WEFT_OK) {
        plan->command = tell_command(&question, plan->found.hidden > 0);
        status = plan->command ? WEFT_OK
                               : wefti_error(WEFT_ERR_NO_MEMORY, "a command");
    }
    return status;
}

weft_status wefti_page_plan_init(wefti_page_plan *plan,
                                 const weft_schedule *schedule,
                                 weft_schedule_run *measured, int layers,
                                 int sequences)
{
    *plan = (wefti_page_plan){.schedule = schedule, .measured = *measured};
    *measured = (weft_schedule_run){0};
    weft_status status =
        wefti_pipe_cost_init(&plan->found, schedule, &plan->measured, 1);
    if (status == WEFT_OK) { /* the same on paper, stage by stage */
        plan->cost = wefti_pipe_cost_mean(&plan->found, schedule);
        weft_schedule_cost exact = plan->cost;
        exact.stages = plan->found.stages;
        status = weft_schedule_simulate(schedule, &exact, true, &plan->planned);
    }
    if (status == WEFT_OK) {
        status = advise(plan, layers, sequences);
    }
    if (status != WEFT_OK) {
        wefti_page_plan_fini(plan);
    }
    return status;
}

void wefti_page_plan_fini(wefti_page_plan *plan)
{
    weft_schedule_run_fini(&plan->measured);
    weft_schedule_run_fini(&plan->planned);
    weft_advice_fini(&plan->advice);
    wefti_pipe_cost_fini(&plan->found);
    free(plan->command);
    *plan = (wefti_page_plan){0};
}

void wefti_page_plan_deferred(const weft_schedule *schedule, int rank,
                              size_t *deferred_out, size_t *waiting_out)
{
    const wefti_actions *list = &schedule->lists[rank];
    const weft_action *before = NULL; /* the last compute */
    size_t waiting = 0;
    *deferred_out = *waiting_out = 0;
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *action = &list->items[k];
        if (!wefti_action_is_compute(action)) {
            continue;
        }
        if (action->type == WEFT_ACTION_W) {
            *deferred_out += !before || before->type != WEFT_ACTION_I ||
                             before->stage != action->stage ||
                             before->microbatch != action->microbatch;
            waiting--;
        }
        waiting += action->type == WEFT_ACTION_I;
        *waiting_out = waiting > *waiting_out ? waiting : *waiting_out;
        before = action;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_plan.c - what follows from a step's costs.
 */
#include "trainer/report/page_plan.h"

#include "overlap/schedule/imbalance.h"

/* The same step on paper, stage by stage. */
static weft_status plan_step(wefti_page_plan *plan)
{
    plan->cost = wefti_pipe_cost_mean(&plan->found, plan->schedule);
    weft_schedule_cost exact = plan->cost;
    exact.stages = plan->found.stages;
    weft_status status =
        weft_schedule_simulate(plan->schedule, &exact, true, &plan->planned);
    if (status == WEFT_OK) {
        plan->imbalance =
            wefti_imbalance_find(plan->schedule, &exact, &plan->planned).time;
    }
    return status;
}

static weft_status advise(wefti_page_plan *plan, const wefti_pipe_job *job)
{
    wefti_pipe_basis basis =
        wefti_pipe_basis_fit(&plan->found, plan->schedule, job->layers);
    plan->advice = &plan->own;
    return wefti_pipe_advice_init(&plan->own, job, &basis);
}

weft_status wefti_page_plan_init(wefti_page_plan *plan,
                                 const weft_schedule *schedule,
                                 weft_schedule_run *measured,
                                 const wefti_pipe_job *job,
                                 const wefti_pipe_advice *given)
{
    *plan = (wefti_page_plan){
        .schedule = schedule, .measured = *measured, .advice = given};
    *measured = (weft_schedule_run){0};
    weft_status status =
        wefti_pipe_cost_init(&plan->found, schedule, &plan->measured, 1);
    if (status == WEFT_OK) {
        status = plan_step(plan);
    }
    /* Equal layers are what others are advised for. */
    if (status == WEFT_OK && job && !given && schedule->encoder_stages == 0) {
        status = advise(plan, job);
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
    wefti_pipe_cost_fini(&plan->found);
    wefti_pipe_advice_fini(&plan->own);
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

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/price.c - what each action takes.
 */
#include "overlap/schedule/price.h"

#include "base/error.h"
#include "base/sized.h"

#include <math.h>

/* Sums of 10^9 such costs are finite, and none is too small to divide by. */
static bool is_cost(double value)
{
    return value == 0 || (value >= WEFT_SCHEDULE_COST_LEAST &&
                          value <= WEFT_SCHEDULE_COST_MOST);
}

static weft_status check_cost(const char *name, double value)
{
    if (!is_cost(value)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "cost %s %g: allowed is 0, or %g to %g", name, value,
                           WEFT_SCHEDULE_COST_LEAST, WEFT_SCHEDULE_COST_MOST);
    }
    return WEFT_OK;
}

static weft_status check_links(const weft_schedule_cost *cost)
{
    weft_status status = WEFT_OK;
    if (cost->link_count < 0 ||
        (cost->link_count > 0 && (!cost->links || !cost->route))) {
        return wefti_error(WEFT_ERR_INVALID,
                           "link_count %d: links and route must say which",
                           cost->link_count);
    }
    for (int l = 0; l < cost->link_count && status == WEFT_OK; l++) {
        status = check_cost("of a link", cost->links[l].busy);
        if (status == WEFT_OK) {
            status = check_cost("latency of a link", cost->links[l].latency);
        }
    }
    return status;
}

weft_status wefti_price_read(const weft_schedule_cost *given,
                             weft_schedule_cost *cost_out)
{
    return given ? wefti_sized_read("cost", given,
                                    offsetof(weft_schedule_cost, stages),
                                    cost_out, sizeof(*cost_out))
                 : wefti_error(WEFT_ERR_INVALID, "cost must not be NULL");
}

weft_status wefti_price_check(const weft_schedule *schedule,
                              const weft_schedule_cost *cost)
{
    const struct {
        const char *name;
        double value;
    } all[] = {{"F", cost->f},           {"I", cost->i},
               {"W", cost->w},           {"B", cost->b},
               {"FB", cost->fb},         {"p2p", cost->p2p},
               {"reduce", cost->reduce}, {"gather", cost->gather},
               {"opt", cost->optimizer}};
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        status = check_cost(all[k].name, all[k].value);
        if (status != WEFT_OK) {
            return status;
        }
    }
    for (int s = 0; cost->stages && s < schedule->stages; s++) {
        const weft_stage_cost *c = &cost->stages[s];
        if (!is_cost(c->f) || !is_cost(c->i) || !is_cost(c->w) ||
            !is_cost(c->b)) {
            return wefti_error(WEFT_ERR_INVALID,
                               "cost of stage %d: F %g, I %g, W %g, B %g: "
                               "allowed is 0, or %g to %g",
                               s, c->f, c->i, c->w, c->b,
                               WEFT_SCHEDULE_COST_LEAST,
                               WEFT_SCHEDULE_COST_MOST);
        }
    }
    return check_links(cost);
}

static double full_backward(const weft_schedule_cost *cost)
{
    return cost->b > 0 ? cost->b : cost->i + cost->w;
}

/* By its own stage, or an equal share of the rank's. */
static double price_part(const weft_schedule *schedule,
                         const weft_schedule_cost *cost,
                         const weft_action *part)
{
    weft_stage_cost share = {
        cost->f / schedule->chunks, cost->i / schedule->chunks,
        cost->w / schedule->chunks, full_backward(cost) / schedule->chunks};
    const weft_stage_cost *c =
        cost->stages ? &cost->stages[part->stage] : &share;
    switch (part->type) {
    case WEFT_ACTION_F:
    case WEFT_ACTION_RECOMPUTE:
        return c->f;
    case WEFT_ACTION_I:
        return c->i;
    case WEFT_ACTION_W:
        return c->w;
    case WEFT_ACTION_B:
        return c->b > 0 ? c->b : c->i + c->w;
    case WEFT_ACTION_OPT:
        return cost->optimizer / schedule->chunks;
    default:
        return 0;
    }
}

/* Two halves, less what the pair hides of the shorter. */
static double price_pair(const weft_schedule *schedule,
                         const weft_schedule_cost *cost,
                         const weft_action *action)
{
    weft_action parts[2];
    wefti_action_split(action, parts);
    double f = price_part(schedule, cost, &parts[0]);
    double b = price_part(schedule, cost, &parts[1]);
    double whole = cost->f + full_backward(cost);
    double shorter = fmin(cost->f, full_backward(cost));
    if (cost->fb <= 0 || shorter <= 0) {
        return f + b;
    }
    if (!cost->stages) {
        return cost->fb / schedule->chunks;
    }
    return f + b - (whole - cost->fb) / shorter * fmin(f, b);
}

double wefti_price_action(const weft_schedule *schedule,
                          const weft_schedule_cost *cost,
                          const weft_action *action)
{
    return action->type == WEFT_ACTION_FB ? price_pair(schedule, cost, action)
                                          : price_part(schedule, cost, action);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_balance.c - loads, and biases moved by a fixed step.
 *
 * Source: Wang et al. 2024 (loss-free balancing, arXiv 2408.15664).
 */
#include "trainer/expert_balance.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

static double mean_load(const double *loads, size_t experts)
{
    double sum = 0;
    for (size_t e = 0; e < experts; e++) {
        sum += loads[e];
    }
    return sum / (double)experts;
}

double wefti_expert_balance_ratio(const wefti_replica *replica,
                                  const double *loads)
{
    const wefti_model_shape *shape = &replica->config.shape;
    double worst = (double)NAN;
    for (size_t layer = 0; layer < shape->layers && shape->experts; layer++) {
        const double *own = loads + layer * shape->experts;
        double mean = mean_load(own, shape->experts), most = 0;
        for (size_t e = 0; e < shape->experts; e++) {
            most = fmax(most, own[e]);
        }
        worst = mean > 0 ? fmax(worst, most / mean) : worst;
    }
    return worst;
}

/* Biases of experts first .., which fall where there is more than the mean. */
static void move(real *bias, const double *loads, size_t experts, size_t first,
                 size_t count, double rate)
{
    const double mean = mean_load(loads, experts);
    for (size_t i = 0; i < count; i++) {
        double load = loads[first + i];
        bias[i] += (real)(load > mean ? -rate : load < mean ? rate : 0);
    }
}

/* A layer's share, of masters where the update rounds these, by way of the
 * host's memory. */
static weft_status balance_share(wefti_replica *replica,
                                 const wefti_tensor *tensor,
                                 const double *loads, real *room)
{
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    wefti_tensor_share share;
    if (!wefti_tensor_cut(&replica->plan, tensor, group->rank, &share)) {
        return WEFT_OK;
    }
    void *there = group->optimizer.masters
                      ? group->optimizer.masters + share.own_elems
                      : wefti_parameter_group_at(group, share.start_elems);
    const size_t bytes = share.elems * sizeof(real);
    weft_status status = wefti_replica_copy(replica, room, there, bytes);
    if (status == WEFT_OK) {
        move(room, loads, replica->config.shape.experts, share.offset_elems,
             share.elems, replica->config.balance_rate);
        status = wefti_replica_copy(replica, there, room, bytes);
    }
    return status;
}

weft_status wefti_expert_balance_step(wefti_replica *replica, uint64_t step)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const size_t every = replica->config.balance_every;
    if (shape->experts == 0 || every == 0 || step % every != 0) {
        return WEFT_OK;
    }
    real *room = malloc(shape->experts * sizeof(*room));
    weft_status status =
        room ? WEFT_OK
             : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu biases",
                           shape->experts);
    wefti_step_facts facts;
    if (status == WEFT_OK) {
        status = wefti_step_sums_read(&replica->sums, &facts);
    }
    size_t layer = 0; /* each has one bias, in order */
    for (size_t i = 0; i < replica->plan.tensor_count && status == WEFT_OK;
         i++) {
        const wefti_tensor *tensor = &replica->plan.tensors[i];
        if (tensor->info.kind == WEFTI_TENSOR_BIAS) {
            status = balance_share(
                replica, tensor, facts.loads + shape->experts * layer++, room);
        }
    }
    free(room);
    return status;
}

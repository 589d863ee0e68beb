/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/gradient_stats.c - norms from the blocks' squares, the rest from this
 * rank's shares.
 */
#include "trainer/gradient_stats.h"

#include "base/error.h"
#include "kernels/math/sumsq.h"
#include "weft/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

weft_status wefti_gradient_stats_init(wefti_gradient_stats *stats,
                                      const wefti_replica *replica)
{
    const wefti_parameters *plan = &replica->plan;
    *stats = (wefti_gradient_stats){.count = plan->tensor_count};
    if (plan->copies_head) {
        stats->count--; /* the last; its gradient is the embedding's */
    }
    double *values = calloc(3 * stats->count, sizeof(*values));
    stats->norms = values;
    stats->infos = calloc(stats->count, sizeof(*stats->infos));
    stats->squares = calloc(plan->block_count, sizeof(*stats->squares));
    if (!values || !stats->infos || !stats->squares) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "statistics of %zu gradients",
                           stats->count);
    }
    stats->most = values + stats->count;
    stats->zeros = values + 2 * stats->count;
    for (size_t t = 0; t < stats->count; t++) {
        stats->infos[t] = plan->tensors[t].info;
    }
    return WEFT_OK;
}

void wefti_gradient_stats_fini(wefti_gradient_stats *stats)
{
    free(stats->squares);
    free(stats->norms);
    free(stats->infos);
    *stats = (wefti_gradient_stats){0};
}

/* Of a tensor what lies in this rank's share of its bucket. */
static weft_status look_at(const wefti_replica *replica,
                           const wefti_tensor *tensor, double *most_out,
                           double *zeros_out)
{
    const wefti_parameter_group *group = &replica->groups[tensor->info.group];
    wefti_tensor_share own = {.elems = 0};
    double most = 0;
    size_t zeros = 0;
    if (wefti_tensor_cut(&replica->plan, tensor, group->rank, &own)) {
        size_t end =
            wefti_tensor_counted_end(tensor, own.offset_elems + own.elems);
        own.elems = end > own.offset_elems ? end - own.offset_elems : 0;
    }
    real *values = malloc(own.elems * sizeof(*values) + 1);
    if (!values) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for %zu gradients of %s", own.elems,
                           tensor->info.name);
    }
    weft_status status = wefti_replica_copy(
        replica, values, group->gradient.leaf + own.start_elems,
        own.elems * sizeof(*values));
    for (size_t i = 0; i < own.elems && status == WEFT_OK; i++) {
        double value = fabs((double)values[i]);
        size_t end;
        most = value > most ? value : most;
        zeros += !(value > 0) &&
                 !wefti_tensor_is_replica(tensor, own.offset_elems + i, &end);
    }
    free(values);
    *most_out = most;
    *zeros_out = (double)zeros;
    return status;
}

weft_status wefti_gradient_stats_take(wefti_gradient_stats *stats,
                                      const wefti_replica *replica)
{
    weft_comm *comm = replica->config.comm;
    weft_status status =
        wefti_replica_copy(replica, stats->squares, replica->sums.squares,
                           replica->plan.block_count * sizeof(*stats->squares));
    for (size_t t = 0; t < stats->count && status == WEFT_OK; t++) {
        const wefti_tensor *tensor = &replica->plan.tensors[t];
        stats->norms[t] = sqrt(wefti_sumsq_reduce(
            stats->squares + tensor->first_block,
            wefti_tensor_square_blocks(&replica->plan, tensor)));
        status = look_at(replica, tensor, &stats->most[t], &stats->zeros[t]);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(stats->most, stats->most, stats->count,
                                WEFT_DTYPE_F64, WEFT_REDOP_MAX, comm, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(stats->zeros, stats->zeros, stats->count,
                                WEFT_DTYPE_F64, WEFT_REDOP_SUM, comm, NULL);
    }
    stats->step = replica->step;
    return status;
}

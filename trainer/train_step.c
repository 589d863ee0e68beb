/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/train_step.c - one training step.
 *
 * Squares for the norm, the losses of all sequences and the times of the step
 * before travel in one array and one all-reduce: each rank fills in its own
 * places and zeros in all others, so the sum only collects, exactly, and every
 * rank then adds in the same order.
 */
#include "trainer/train_step.h"

#include "base/error.h"
#include "trainer/ema.h"
#include "trainer/pipe/pipe_reduce.h"

#include <math.h>
#include <string.h>

/* Squares of this rank's shares, in the order in which they arrive. */
static weft_status square_shares(wefti_replica *replica, size_t number)
{
    const wefti_parameter_group *group = &replica->groups[number];
    for (size_t i = group->plan->bucket_count; i > 0; i--) {
        weft_status status = wefti_pipe_reduced(&replica->pipe, number, i - 1);
        if (status != WEFT_OK) {
            return status;
        }
        wefti_replica_work_begin(replica, "norm");
        status = wefti_optimizer_square(&group->optimizer, i - 1,
                                        group->gradient.leaf, replica->squares);
        wefti_replica_work_end(replica);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* Squares to the device, as zeros, or from there. */
static weft_status copy_squares(wefti_replica *replica, bool back)
{
    double *here = replica->sums, *there = replica->squares;
    return weft_device_copy(
        replica->config.device, back ? here : there, back ? there : here,
        replica->plan.block_count * sizeof(*here), replica->compute);
}

static weft_status collect_sums(wefti_replica *replica, weft_bucket_mode mode)
{
    if (mode == WEFT_BUCKET_OFF || replica->nranks == 1) {
        return WEFT_OK;
    }
    weft_op op = {.size_bytes = sizeof(op),
                  .collective = WEFT_COLLECTIVE_ALLREDUCE,
                  .send = replica->sums,
                  .recv = replica->sums,
                  .count = replica->step_sums,
                  .dtype = WEFT_DTYPE_F64,
                  .redop = WEFT_REDOP_SUM,
                  .class_id = WEFT_CLASS_DP,
                  .label = "norm, losses, times"};
    return weft_op_post(&op, 0, replica->config.comm, NULL);
}

/* Updates this rank's shares, each sent on its way at once. */
static weft_status update_shares(wefti_replica *replica,
                                 wefti_parameter_group *group, double scale,
                                 weft_bucket_mode gather)
{
    weft_status status = wefti_parameter_group_begin(group, gather);
    for (size_t i = 0; i < group->plan->bucket_count && status == WEFT_OK;
         i++) {
        wefti_replica_work_begin(replica, "update");
        status =
            wefti_optimizer_update(&group->optimizer, i, replica->step + 1,
                                   scale, group->gradient.leaf, group->values);
        wefti_replica_work_end(replica);
        if (status == WEFT_OK) {
            status = wefti_ema_take(replica->ema, group->optimizer.group, i);
        }
        if (status == WEFT_OK) {
            status = weft_bucket_ready(group->gather, i);
        }
    }
    return status;
}

/* Zeros everywhere but in the places of this rank's times. */
static void begin_sums(wefti_replica *replica,
                       const double times[WEFTI_STEP_TIMES])
{
    memset(replica->sums, 0, replica->step_sums * sizeof(*replica->sums));
    memcpy(wefti_replica_times(replica, replica->rank), times,
           WEFTI_STEP_TIMES * sizeof(*times));
}

static void read_sums(const wefti_replica *replica,
                      wefti_train_step_result *result_out)
{
    const wefti_replica_config *config = &replica->config;
    result_out->grad_norm =
        sqrt(wefti_sumsq_reduce(replica->sums, replica->plan.block_count));
    result_out->loss =
        wefti_gradient_tree_sum(wefti_replica_losses(replica),
                                config->global_batch) /
        ((double)config->global_batch * (double)config->shape.seq);
    for (size_t i = 0; i < WEFTI_STEP_TIMES; i++) {
        result_out->times_most[i] = 0;
        for (size_t rank = 0; rank < replica->nranks; rank++) {
            result_out->times_most[i] =
                fmax(result_out->times_most[i],
                     wefti_replica_times(replica, rank)[i]);
        }
    }
}

weft_status wefti_train_step_diverged(const wefti_replica *replica,
                                      uint64_t step, const char *what,
                                      double value)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "step %llu: the %s is %s: training has diverged and "
                       "this state is not saved; lower train.lr (now %g) or "
                       "set train.clip (now %g), then begin anew or --resume "
                       "from a checkpoint before it",
                       (unsigned long long)step, what,
                       isnan(value) ? "not a number" : "infinite",
                       replica->config.optimizer.lr,
                       replica->config.optimizer.clip);
}

static weft_status check_sums(const wefti_replica *replica,
                              wefti_train_step_result *result_out)
{
    bool loss_good = isfinite(result_out->loss);
    result_out->diverged = !loss_good || !isfinite(result_out->grad_norm);
    return result_out->diverged
               ? wefti_train_step_diverged(
                     replica, replica->step + 1,
                     loss_good ? "gradient's norm" : "loss",
                     loss_good ? result_out->grad_norm : result_out->loss)
               : WEFT_OK;
}

weft_status wefti_train_step_run(wefti_replica *replica,
                                 wefti_train_step_modes modes,
                                 const double times[WEFTI_STEP_TIMES],
                                 wefti_train_step_result *result_out)
{
    const wefti_replica_config *config = &replica->config;
    result_out->diverged = false;
    begin_sums(replica, times);
    weft_status status = copy_squares(replica, false);
    if (status == WEFT_OK) {
        status = wefti_pipe_train(replica, modes.reduce);
    }
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = square_shares(replica, g);
    }
    if (status == WEFT_OK) {
        status = copy_squares(replica, true);
    }
    if (status == WEFT_OK) { /* the host's one wait */
        status = wefti_pipe_read_losses(replica);
    }
    if (status == WEFT_OK) {
        status = collect_sums(replica, modes.reduce);
    }
    if (status != WEFT_OK) {
        return status;
    }
    read_sums(replica, result_out);
    if (modes.reduce != WEFT_BUCKET_OFF) {
        status = check_sums(replica, result_out);
        if (status != WEFT_OK) {
            return status;
        }
    }
    result_out->rate =
        wefti_optimizer_rate(&config->optimizer, replica->step + 1);
    double scale =
        wefti_optimizer_clip(&config->optimizer, result_out->grad_norm);
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status =
            update_shares(replica, &replica->groups[g], scale, modes.gather);
    }
    if (status == WEFT_OK) {
        status = wefti_ema_start(replica->ema, replica->step + 1);
    }
    if (status == WEFT_OK) {
        replica->step++;
        replica->next_sequence += config->global_batch;
    }
    return status;
}

weft_status wefti_train_step_transfer(wefti_replica *replica)
{
    weft_status status = wefti_pipe_reduce_alone(replica);
    if (status == WEFT_OK) {
        status = collect_sums(replica, WEFT_BUCKET_BLOCKING);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_gather(replica, WEFT_BUCKET_OVERLAPPED);
    }
    return status == WEFT_OK ? wefti_replica_wait(replica) : status;
}

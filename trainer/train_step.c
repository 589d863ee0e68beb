/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/train_step.c - one training step.
 */
#include "trainer/train_step.h"

#include "base/error.h"
#include "trainer/ema.h"
#include "trainer/expert_balance.h"
#include "trainer/expert_place.h"
#include "trainer/model/expert_exchange.h"
#include "trainer/pipe/pipe_reduce.h"

#include <math.h>

/* Whom a tensor's gradient is summed over; NULL: nobody. */
static weft_comm *find_sharers(const wefti_replica *replica,
                               const wefti_tensor *tensor)
{
    return tensor->info.split != WEFTI_SPLIT_NONE ? replica->kv_sharers
           : replica->plan.tensor.sequence
               ? replica->mesh.comms[WEFTI_MESH_TENSOR]
               : NULL;
}

/*
 * Of what several ranks of a layer have, each has the gradient of its own rows,
 * or of its own queries, alone. Their shares are alike. Without shared rows all
 * have the same of whole tensors.
 */
static weft_status sum_shared(const wefti_replica *replica,
                              const wefti_parameter_group *group, size_t bucket)
{
    const wefti_parameters *plan = &replica->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->tensor_count && status == WEFT_OK; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!find_sharers(replica, tensor) ||
            &plan->groups[tensor->info.group] != group->plan ||
            tensor->bucket != bucket ||
            !wefti_tensor_cut(plan, tensor, group->rank, &own)) {
            continue;
        }
        const size_t end = own.offset_elems + own.elems;
        const size_t first = own.offset_elems > tensor->shared_elems
                                 ? own.offset_elems
                                 : tensor->shared_elems;
        if (first >= end) {
            continue;
        }
        real *sum =
            group->gradient.leaf + own.start_elems + (first - own.offset_elems);
        const weft_op op = {.size_bytes = sizeof(op),
                            .collective = WEFT_COLLECTIVE_ALLREDUCE,
                            .send = sum,
                            .recv = sum,
                            .count = end - first,
                            .dtype = WEFTI_REAL_DTYPE,
                            .redop = WEFT_REDOP_SUM,
                            .class_id = wefti_mesh_class(WEFTI_MESH_TENSOR),
                            .label = "gradients of shared tensors"};
        status = weft_op_post(&op, 0, find_sharers(replica, tensor),
                              replica->compute);
    }
    return status;
}

/* Ranks have shares of different tensors: noted is one operation for all. */
static weft_status sum_noted(const wefti_replica *replica,
                             const wefti_parameter_group *group, size_t bucket)
{
    const wefti_node_link *link = &replica->pipe.links[WEFTI_LINK_TENSOR];
    wefti_score_begin(replica->score);
    wefti_score_inline(replica->score, wefti_mesh_class(WEFTI_MESH_TENSOR),
                       "gradients of shared tensors", group, bucket);
    weft_status status = link->mode != WEFT_BUCKET_OFF
                             ? sum_shared(replica, group, bucket)
                             : WEFT_OK;
    wefti_score_end(replica->score);
    return status;
}

/* Behind it this rank's share of a bucket's gradients is the sum of all. */
static weft_status await_bucket(const wefti_replica *replica, size_t number,
                                size_t bucket)
{
    weft_status status = wefti_pipe_reduced(replica, number, bucket);
    if (status == WEFT_OK && number == WEFTI_TENSOR_GROUP_EXPERTS &&
        replica->place &&
        replica->pipe.links[WEFTI_LINK_EXPERTS].mode != WEFT_BUCKET_OFF) {
        status = wefti_expert_move_sum(replica->place->move, bucket);
    }
    return status == WEFT_OK && replica->plan.tensor.parts > 1
               ? sum_noted(replica, &replica->groups[number], bucket)
               : status;
}

/* Squares of this rank's shares, in the order in which they arrive. */
static weft_status square_shares(wefti_replica *replica, size_t number)
{
    const wefti_parameter_group *group = &replica->groups[number];
    for (size_t i = group->plan->bucket_count; i > 0; i--) {
        weft_status status = await_bucket(replica, number, i - 1);
        if (status != WEFT_OK) {
            return status;
        }
        wefti_replica_work_begin(replica, "norm");
        status =
            wefti_optimizer_square(&group->optimizer, i - 1,
                                   group->gradient.leaf, replica->sums.squares);
        wefti_replica_work_end(replica);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* What all ranks must know of this step, once gradients are reduced. */
static weft_status collect_sums(wefti_replica *replica, bool of_all)
{
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = square_shares(replica, g);
    }
    if (status == WEFT_OK) {
        status = wefti_pipe_total_losses(replica);
    }
    wefti_score_begin(replica->score);
    wefti_score_inline(replica->score, WEFT_CLASS_DP, "norm", &replica->sums,
                       0);
    if (status == WEFT_OK && of_all) {
        status = wefti_step_sums_collect(&replica->sums);
    }
    wefti_score_end(replica->score);
    return status == WEFT_OK ? wefti_step_sums_clip(&replica->sums) : status;
}

static weft_status post_bucket(const wefti_replica *replica,
                               const wefti_parameter_group *group,
                               size_t bucket)
{
    wefti_score_begin(replica->score);
    wefti_replica_note_bucket(replica, WEFTI_SCORE_POST, group->gather, bucket);
    wefti_replica_note_bucket(replica, WEFTI_SCORE_SERIAL, group->gather,
                              bucket);
    weft_status status = weft_bucket_ready(group->gather, bucket);
    wefti_score_end(replica->score);
    return status;
}

/* Updates this rank's shares, each sent on its way at once. */
static weft_status update_shares(wefti_replica *replica,
                                 wefti_parameter_group *group,
                                 weft_bucket_mode gather)
{
    /* What lands in values may do so once no replica reads them any more. */
    const bool moves = wefti_expert_place_is_due(replica->place) &&
                       group->optimizer.group == WEFTI_TENSOR_GROUP_EXPERTS;
    weft_status status = wefti_parameter_group_begin(
        group, moves ? WEFT_BUCKET_BLOCKING : gather);
    for (size_t i = 0; i < group->plan->bucket_count && status == WEFT_OK;
         i++) {
        wefti_replica_work_begin(replica, "update");
        status = wefti_optimizer_update(&group->optimizer, i, replica->step + 1,
                                        replica->sums.factor,
                                        group->gradient.leaf, group->values);
        wefti_replica_work_end(replica);
        if (status == WEFT_OK) {
            status = wefti_ema_take(replica->ema, group->optimizer.group, i);
        }
        if (status == WEFT_OK) {
            status = post_bucket(replica, group, i);
        }
        if (status == WEFT_OK && moves) {
            status = wefti_expert_move_post(replica->place->move, i,
                                            replica->place->next);
        }
    }
    return status;
}

/* What was waited for holds if no communicator has failed before. */
static weft_status check_comms(const wefti_replica *replica)
{
    weft_fault fault;
    if (wefti_replica_find_fault(replica, &fault)) {
        return wefti_error(fault.status, "%s", fault.text);
    }
    return replica->place ? wefti_expert_move_check(replica->place->move)
                          : WEFT_OK;
}

/* Loads of a step that trains decide where experts are in the next one. */
static weft_status place_experts(wefti_replica *replica)
{
    wefti_step_facts facts;
    weft_status status = wefti_step_sums_read(&replica->sums, &facts);
    return status == WEFT_OK
               ? wefti_expert_place_choose(replica->place, replica->step + 1,
                                           facts.loads)
               : status;
}

/* The host's one wait. */
static weft_status read_sums(wefti_replica *replica,
                             wefti_train_step_result *result_out)
{
    const wefti_replica_config *config = &replica->config;
    wefti_step_facts facts;
    weft_status status = wefti_step_sums_read(&replica->sums, &facts);
    if (status == WEFT_OK) {
        status = check_comms(replica);
    }
    if (status == WEFT_OK) { /* else they are losses of nothing */
        status = wefti_experts_check(replica->pipe.experts);
    }
    result_out->grad_norm = facts.norm;
    result_out->loss =
        wefti_gradient_tree_sum(facts.losses, config->global_batch) /
        ((double)config->global_batch * (double)config->shape.seq);
    result_out->expert_loads = facts.loads;
    result_out->expert_ratio = wefti_expert_balance_ratio(replica, facts.loads);
    result_out->expert_rank_ratio =
        wefti_expert_place_ratio(replica, facts.loads);
    result_out->expert_moved_bytes = wefti_expert_place_bytes(replica->place);
    for (size_t i = 0; i < WEFTI_STEP_TIMES; i++) {
        result_out->times_most[i] = 0;
        for (size_t rank = 0; rank < replica->nranks; rank++) {
            result_out->times_most[i] =
                fmax(result_out->times_most[i],
                     facts.times[rank * WEFTI_STEP_TIMES + i]);
        }
    }
    return status;
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

static const wefti_pipe_modes overlapped = {{WEFT_BUCKET_OVERLAPPED},
                                            WEFT_BUCKET_OVERLAPPED};

static const weft_class link_classes[WEFTI_LINKS] = {
    [WEFTI_LINK_TENSOR] = WEFT_CLASS_TP,
    [WEFTI_LINK_CONTEXT] = WEFT_CLASS_CP,
    [WEFTI_LINK_EXPERTS] = WEFT_CLASS_EP};

void wefti_train_step_set(wefti_train_step_modes *modes, weft_class class_id,
                          weft_bucket_mode mode)
{
    for (size_t i = 0; i < WEFTI_LINKS; i++) {
        if (link_classes[i] == class_id) {
            modes->pipe.links[i] = mode;
        }
    }
    if (class_id == WEFT_CLASS_DP) {
        modes->reduce = modes->gather = mode;
    } else if (class_id == WEFT_CLASS_PP) {
        modes->pipe.line = mode;
    }
}

/* What a class that has fallen back has in place of a mode. */
static weft_bucket_mode lower(const wefti_replica *replica, weft_class class_id,
                              weft_bucket_mode mode)
{
    return mode == WEFT_BUCKET_OVERLAPPED &&
                   replica->config.overlap.classes[class_id].lost
               ? WEFT_BUCKET_BLOCKING
               : mode;
}

static wefti_train_step_modes lower_all(const wefti_replica *replica,
                                        wefti_train_step_modes modes)
{
    modes.reduce = lower(replica, WEFT_CLASS_DP, modes.reduce);
    modes.gather = lower(replica, WEFT_CLASS_DP, modes.gather);
    for (size_t i = 0; i < WEFTI_LINKS; i++) {
        modes.pipe.links[i] =
            lower(replica, link_classes[i], modes.pipe.links[i]);
    }
    return modes;
}

void wefti_train_step_rest(wefti_replica *replica)
{
    const wefti_train_step_modes modes =
        lower_all(replica, (wefti_train_step_modes){.pipe = overlapped});
    wefti_pipe_links_set(replica, &modes.pipe, false);
}

/* Whether nothing is left out. */
static bool is_whole(const wefti_train_step_modes *modes)
{
    bool whole =
        modes->reduce != WEFT_BUCKET_OFF && modes->pipe.line != WEFT_BUCKET_OFF;
    for (size_t i = 0; i < WEFTI_LINKS; i++) {
        whole = whole && modes->pipe.links[i] != WEFT_BUCKET_OFF;
    }
    return whole;
}

/* All of a step that is queued. */
static weft_status queue_step(wefti_replica *replica,
                              wefti_train_step_modes modes,
                              const double times[WEFTI_STEP_TIMES])
{
    weft_status status = wefti_step_sums_begin(&replica->sums, times);
    if (status == WEFT_OK) {
        status = wefti_pipe_train(replica, modes.reduce);
    }
    if (status == WEFT_OK) {
        status = collect_sums(replica, modes.reduce != WEFT_BUCKET_OFF);
    }
    if (status == WEFT_OK && modes.reduce != WEFT_BUCKET_OFF) {
        status = wefti_expert_balance_step(replica, replica->step + 1);
    }
    if (status == WEFT_OK && modes.places && replica->place) {
        status = place_experts(replica);
    }
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = update_shares(replica, &replica->groups[g], modes.gather);
    }
    return status;
}

weft_status wefti_train_step_run(wefti_replica *replica,
                                 wefti_train_step_modes modes,
                                 const double times[WEFTI_STEP_TIMES],
                                 wefti_train_step_result *result_out)
{
    const wefti_replica_config *config = &replica->config;
    modes = lower_all(replica, modes);
    result_out->diverged = false;
    result_out->rate =
        wefti_optimizer_rate(&config->optimizer, replica->step + 1);
    wefti_pipe_links_set(replica, &modes.pipe, !is_whole(&modes));
    weft_status status = queue_step(replica, modes, times);
    wefti_train_step_rest(replica);
    if (status == WEFT_OK) {
        status = read_sums(replica, result_out);
    }
    if (status == WEFT_OK && is_whole(&modes)) {
        status = check_sums(replica, result_out);
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

/* Everything but the gathering of parameters, and no compute. */
static weft_status transfer_list(wefti_replica *replica)
{
    wefti_pipe_links_set(replica, &overlapped, true);
    weft_status status = wefti_pipe_train(replica, WEFT_BUCKET_OVERLAPPED);
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        for (size_t i = replica->groups[g].plan->bucket_count;
             i > 0 && status == WEFT_OK; i--) {
            status = await_bucket(replica, g, i - 1);
        }
    }
    return status == WEFT_OK ? wefti_step_sums_collect(&replica->sums) : status;
}

weft_status wefti_train_step_transfer(wefti_replica *replica)
{
    replica->pipe.workspace.idle = true;
    weft_status status = transfer_list(replica);
    replica->pipe.workspace.idle = false;
    wefti_train_step_rest(replica);
    if (status == WEFT_OK) {
        status = wefti_replica_gather(replica, WEFT_BUCKET_OVERLAPPED);
    }
    return status == WEFT_OK ? wefti_replica_wait(replica) : status;
}

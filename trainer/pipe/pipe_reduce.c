/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_reduce.c - sets of buckets, one for each part and end.
 */
#include "trainer/pipe/pipe_reduce.h"

#include "base/check.h"
#include "base/error.h"
#include "kernels/math/math_stream.h"
#include "trainer/replica.h"
#include "weft/p2p.h"

#include <stdlib.h>

/* ---- life -----------------------------------------------------------------
 */

bool wefti_pipe_adds(const weft_action *action, int stage)
{
    bool adds = action->type == WEFT_ACTION_W || action->type == WEFT_ACTION_B;
    return (adds && action->stage == stage) ||
           (action->type == WEFT_ACTION_FB && action->pair_stage == stage);
}

/* The ends of a tied embedding that is cut. */
static size_t end_tensor(const wefti_parameters *plan, int end)
{
    return end == 0 ? wefti_tensor_embedding(plan) : wefti_tensor_head(plan);
}

static bool is_early(const wefti_pipe *pipe, int stage)
{
    const weft_action *actions;
    size_t count =
        weft_schedule_get_actions(pipe->schedule, pipe->rank, &actions);
    bool behind = false; /* its W, nothing but messages between */
    for (size_t k = 0; pipe->info.directions == 1 && k < count; k++) {
        switch (actions[k].type) {
        case WEFT_ACTION_SEND_F:
        case WEFT_ACTION_RECV_F:
        case WEFT_ACTION_SEND_B:
        case WEFT_ACTION_RECV_B:
        case WEFT_ACTION_RELEASE:
            break;
        case WEFT_ACTION_REDUCE_GRAD:
            if (actions[k].stage == stage) {
                return behind;
            }
            behind = false;
            break;
        default:
            behind = wefti_pipe_adds(&actions[k], stage);
        }
    }
    return false;
}

/* Of a part's buckets those that end with its last W. */
static wefti_bucket_run untied(const wefti_parameters *plan, size_t part,
                               size_t group)
{
    const wefti_layer_run *layers = &plan->parts[part];
    wefti_bucket_run run = plan->groups[group].parts[part];
    if (plan->copies_head &&
        group == plan->tensors[end_tensor(plan, 0)].info.group) {
        run.first += layers->first_layer == 0;
        run.end -= layers->layers_end == wefti_model_layers(&plan->shape);
    }
    return run;
}

/* Where a group has nothing of a part, nothing is left of it ever. */
static weft_status make_reduce(wefti_replica *replica, size_t group,
                               wefti_bucket_run run, bool early)
{
    wefti_pipe *pipe = &replica->pipe;
    wefti_pipe_reduce *own = &pipe->reduces[pipe->reduce_count++];
    *own = (wefti_pipe_reduce){.group = group, .run = run, .early = early};
    return run.first < run.end ? wefti_parameter_group_reduce(
                                     &replica->groups[group], run, &own->set)
                               : WEFT_OK;
}

weft_status wefti_pipe_reduce_open(wefti_replica *replica)
{
    wefti_pipe *pipe = &replica->pipe;
    const wefti_parameters *plan = &replica->plan;
    pipe->reduces = calloc(plan->part_count * plan->group_count + 2,
                           sizeof(*pipe->reduces));
    if (!pipe->reduces) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu parts",
                           plan->part_count);
    }
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->part_count; i++) {
        bool early = is_early(pipe, pipe->stages[i].number);
        for (size_t g = 0; g < plan->group_count && status == WEFT_OK; g++) {
            status = make_reduce(replica, g, untied(plan, i, g), early);
        }
    }
    for (int end = 0; end < 2 && plan->copies_head && status == WEFT_OK;
         end++) {
        const wefti_tensor *tensor = &plan->tensors[end_tensor(plan, end)];
        if (tensor->here) {
            status = make_reduce(
                replica, tensor->info.group,
                (wefti_bucket_run){tensor->bucket, tensor->bucket + 1}, false);
        }
    }
    return status;
}

void wefti_pipe_reduce_close(wefti_pipe *pipe)
{
    for (size_t i = 0; i < pipe->reduce_count; i++) {
        weft_bucket_destroy(pipe->reduces[i].set);
    }
    free(pipe->reduces);
}

/* ---- a step ---------------------------------------------------------------
 */

void wefti_pipe_reduce_begin(wefti_pipe *pipe)
{
    for (size_t i = 0; i < pipe->reduce_count; i++) {
        wefti_pipe_reduce *reduce = &pipe->reduces[i];
        reduce->left = reduce->run.end - reduce->run.first;
    }
}

wefti_pipe_reduce *wefti_pipe_find_reduce(const wefti_replica *replica,
                                          size_t part, size_t group)
{
    return &replica->pipe.reduces[part * replica->plan.group_count + group];
}

void wefti_pipe_reduce_skip(wefti_replica *replica, size_t part)
{
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        wefti_pipe_find_reduce(replica, part, g)->left = 0;
    }
}

/*
 * Those from bucket on are final: off they go. Their communicator has got this
 * step's parameters by now, but for stages that no forward has used yet.
 */
static weft_status start_from(wefti_replica *replica, wefti_pipe_reduce *reduce,
                              size_t bucket)
{
    weft_status status = WEFT_OK;
    wefti_score_begin(replica->score);
    if (reduce->left == reduce->run.end - reduce->run.first) {
        const wefti_parameter_group *group = &replica->groups[reduce->group];
        for (size_t i = group->arrived; i < group->plan->bucket_count; i++) {
            wefti_replica_note_bucket(replica, WEFTI_SCORE_AWAIT, group->gather,
                                      i);
        }
        status = wefti_parameter_group_settle(&replica->groups[reduce->group]);
        if (status == WEFT_OK) {
            status = weft_bucket_begin(reduce->set, replica->pipe.mode);
        }
    }
    while (status == WEFT_OK && reduce->run.first + reduce->left > bucket) {
        wefti_replica_note_bucket(replica, WEFTI_SCORE_POST, reduce->set,
                                  --reduce->left);
        wefti_replica_note_bucket(replica, WEFTI_SCORE_SERIAL, reduce->set,
                                  reduce->left);
        status = weft_bucket_ready(reduce->set, reduce->left);
    }
    wefti_score_end(replica->score);
    return status;
}

weft_status wefti_pipe_reduce_final(wefti_replica *replica, size_t part,
                                    size_t group, size_t bucket)
{
    const wefti_pipe *pipe = &replica->pipe;
    wefti_pipe_reduce *reduce = wefti_pipe_find_reduce(replica, part, group);
    if (!reduce->early || bucket < reduce->run.first ||
        bucket >= reduce->run.end) {
        return WEFT_OK;
    }
    weft_pipeline_stop(pipe->pipeline, pipe->mode == WEFT_BUCKET_BLOCKING
                                           ? WEFT_WAIT_REDUCE
                                           : WEFT_WAIT_NONE);
    weft_status status = start_from(replica, reduce, bucket);
    weft_pipeline_resume(pipe->pipeline);
    return status;
}

static weft_status start_rest(wefti_replica *replica, wefti_pipe_reduce *reduce)
{
    return reduce->left > 0 ? start_from(replica, reduce, reduce->run.first)
                            : WEFT_OK;
}

weft_status wefti_pipe_reduce_rest(wefti_replica *replica, size_t part)
{
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = start_rest(replica, wefti_pipe_find_reduce(replica, part, g));
    }
    return status;
}

weft_status wefti_pipe_reduced(const wefti_replica *replica, size_t group,
                               size_t bucket)
{
    const wefti_pipe *pipe = &replica->pipe;
    const wefti_pipe_reduce *reduce = pipe->reduces;
    while (reduce->group != group || bucket < reduce->run.first ||
           bucket >= reduce->run.end) {
        reduce++;
        WEFTI_ASSERT(reduce < pipe->reduces + pipe->reduce_count);
    }
    wefti_score_begin(replica->score);
    wefti_replica_note_bucket(replica, WEFTI_SCORE_AWAIT, reduce->set,
                              bucket - reduce->run.first);
    weft_status status =
        weft_bucket_wait(reduce->set, bucket - reduce->run.first);
    wefti_score_end(replica->score);
    return status;
}

/* ---- a tied embedding -----------------------------------------------------
 */

/* The gradient of the other end, from its rank. */
static weft_status exchange_tied(const wefti_replica *replica, real *own,
                                 size_t elems)
{
    const wefti_pipe *pipe = &replica->pipe;
    int first = weft_schedule_get_rank(pipe->schedule, 0);
    int last = wefti_pipe_last(pipe);
    weft_p2p both[2];
    both[0] = (weft_p2p){.size_bytes = sizeof(weft_p2p),
                         .kind = WEFT_P2P_SEND,
                         .buffer = own,
                         .count = elems,
                         .dtype = WEFTI_REAL_DTYPE,
                         .peer = pipe->rank == first ? last : first,
                         .class_id = wefti_mesh_class(WEFTI_MESH_DATA),
                         .label = "tied embedding"};
    both[1] = both[0];
    both[1].kind = WEFT_P2P_RECV;
    both[1].buffer = pipe->tied;
    return weft_p2p_post(both, 2, pipe->mesh->comms[WEFTI_MESH_CHAIN],
                         replica->compute);
}

/* sum += more. */
static weft_status add(const wefti_replica *replica, real *sum, real *more,
                       size_t elems)
{
    const wefti_math_tensor to = wefti_math_flat(sum, WEFTI_REAL_DTYPE, elems);
    const wefti_math_tensor from =
        wefti_math_flat(more, WEFTI_REAL_DTYPE, elems);
    return wefti_stream_add(replica->compute, &to, &to, &from);
}

weft_status wefti_pipe_reduce_tied(wefti_replica *replica)
{
    wefti_pipe *pipe = &replica->pipe;
    const wefti_parameters *plan = &replica->plan;
    const wefti_tensor *embedding = &plan->tensors[end_tensor(plan, 0)];
    const wefti_tensor *head = &plan->tensors[end_tensor(plan, 1)];
    size_t elems = wefti_tensor_here_elems(embedding->here ? embedding : head);
    weft_status status = WEFT_OK;
    if (embedding->here && head->here) {
        real *table = wefti_replica_gradient(replica, embedding);
        real *copy = wefti_replica_gradient(replica, head);
        status = add(replica, table, copy, elems);
        if (status == WEFT_OK) {
            status = weft_device_copy(replica->config.device, copy, table,
                                      elems * sizeof(*copy), replica->compute);
        }
    } else if (embedding->here || head->here) {
        real *own =
            wefti_replica_gradient(replica, embedding->here ? embedding : head);
        status = pipe->mode == WEFT_BUCKET_OFF
                     ? WEFT_OK
                     : exchange_tied(replica, own, elems);
        if (status == WEFT_OK) {
            status = add(replica, own, pipe->tied, elems);
        }
    }
    for (size_t i = plan->part_count * plan->group_count;
         i < pipe->reduce_count; i++) {
        if (status == WEFT_OK) {
            status = start_rest(replica, &pipe->reduces[i]);
        }
    }
    return status;
}

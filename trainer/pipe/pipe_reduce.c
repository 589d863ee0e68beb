/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_reduce.c - sets of buckets, one for each part and end.
 */
#include "trainer/pipe/pipe_reduce.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/replica.h"
#include "weft/p2p.h"

#include <stdlib.h>
#include <string.h>

/* ---- life -----------------------------------------------------------------
 */

bool wefti_pipe_adds(const weft_action *action, int stage)
{
    bool adds = action->type == WEFT_ACTION_W || action->type == WEFT_ACTION_B;
    return (adds && action->stage == stage) ||
           (action->type == WEFT_ACTION_FB && action->pair_stage == stage);
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
static wefti_pipe_reduce untied(const wefti_parameters *plan, size_t part)
{
    const wefti_layer_run *own = &plan->parts[part];
    bool first = own->first_layer == 0;
    bool last = own->layers_end == plan->shape.layers;
    return (wefti_pipe_reduce){
        .first_bucket = own->first_bucket + (plan->copies_head && first),
        .buckets_end = own->buckets_end - (plan->copies_head && last)};
}

static weft_status make_reduce(wefti_replica *replica, wefti_pipe_reduce reduce)
{
    wefti_pipe *pipe = &replica->pipe;
    weft_bucket_config config = {
        .size_bytes = sizeof(config),
        .comm = pipe->mesh->comms[WEFTI_MESH_DATA],
        .device = replica->config.device,
        .collective = WEFT_COLLECTIVE_REDUCESCATTER,
        .buffer = replica->gradient.leaf,
        .dtype = WEFTI_REAL_DTYPE,
        .extents = replica->plan.buckets + reduce.first_bucket,
        .count = reduce.buckets_end - reduce.first_bucket,
        .backwards = true,
        .class_id = wefti_mesh_class(WEFTI_MESH_DATA),
        .label = "gradients"};
    wefti_pipe_reduce *own = &pipe->reduces[pipe->reduce_count++];
    *own = reduce;
    return weft_bucket_create(&config, &own->set);
}

weft_status wefti_pipe_reduce_open(wefti_replica *replica)
{
    wefti_pipe *pipe = &replica->pipe;
    const wefti_parameters *plan = &replica->plan;
    pipe->reduces = calloc(plan->part_count + 2, sizeof(*pipe->reduces));
    if (!pipe->reduces) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu parts",
                           plan->part_count);
    }
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->part_count && status == WEFT_OK; i++) {
        wefti_pipe_reduce reduce = untied(plan, i);
        reduce.early = is_early(pipe, pipe->stages[i].number);
        status = make_reduce(replica, reduce);
    }
    const size_t ends[] = {wefti_tensor_embedding(), wefti_tensor_head(plan)};
    for (size_t i = 0; i < 2 && plan->copies_head && status == WEFT_OK; i++) {
        const wefti_tensor *tensor = &plan->tensors[ends[i]];
        if (tensor->here) {
            status = make_reduce(
                replica,
                (wefti_pipe_reduce){.first_bucket = tensor->bucket,
                                    .buckets_end = tensor->bucket + 1});
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
        reduce->left = reduce->buckets_end - reduce->first_bucket;
    }
}

void wefti_pipe_reduce_skip(wefti_pipe *pipe, size_t part)
{
    pipe->reduces[part].left = 0;
}

/*
 * Those from bucket on are final: off they go. Their communicator has got this
 * step's parameters by now, but for stages that no forward has used yet.
 */
static weft_status start_from(wefti_replica *replica, wefti_pipe_reduce *reduce,
                              size_t bucket)
{
    weft_status status = WEFT_OK;
    if (reduce->left == reduce->buckets_end - reduce->first_bucket) {
        status = wefti_replica_settle(replica);
        if (status == WEFT_OK) {
            status = weft_bucket_begin(reduce->set, replica->pipe.mode);
        }
    }
    while (status == WEFT_OK && reduce->first_bucket + reduce->left > bucket) {
        status = weft_bucket_ready(reduce->set, --reduce->left);
    }
    return status;
}

weft_status wefti_pipe_reduce_final(wefti_replica *replica, size_t part,
                                    size_t bucket)
{
    const wefti_pipe *pipe = &replica->pipe;
    wefti_pipe_reduce *reduce = &replica->pipe.reduces[part];
    if (!reduce->early || bucket < reduce->first_bucket ||
        bucket >= reduce->buckets_end) {
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
    return reduce->left > 0 ? start_from(replica, reduce, reduce->first_bucket)
                            : WEFT_OK;
}

weft_status wefti_pipe_reduce_rest(wefti_replica *replica, size_t part)
{
    return start_rest(replica, &replica->pipe.reduces[part]);
}

weft_status wefti_pipe_reduced(const wefti_pipe *pipe, size_t bucket)
{
    size_t i = 0;
    while (bucket < pipe->reduces[i].first_bucket ||
           bucket >= pipe->reduces[i].buckets_end) {
        i++;
        WEFTI_ASSERT(i < pipe->reduce_count);
    }
    return weft_bucket_wait(pipe->reduces[i].set,
                            bucket - pipe->reduces[i].first_bucket);
}

weft_status wefti_pipe_reduce_alone(wefti_replica *replica)
{
    wefti_pipe *pipe = &replica->pipe;
    weft_status status = WEFT_OK;
    pipe->mode = WEFT_BUCKET_OVERLAPPED;
    wefti_pipe_reduce_begin(pipe);
    for (size_t i = 0; i < pipe->reduce_count && status == WEFT_OK; i++) {
        wefti_pipe_reduce *reduce = &pipe->reduces[i];
        status = start_rest(replica, reduce);
        for (size_t b = reduce->buckets_end;
             b > reduce->first_bucket && status == WEFT_OK; b--) {
            status = wefti_pipe_reduced(pipe, b - 1);
        }
    }
    return status;
}

/* ---- a tied embedding -----------------------------------------------------
 */

/* The gradient of the other end, from its rank. */
static weft_status exchange_tied(wefti_pipe *pipe, real *own, size_t elems)
{
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
    return weft_p2p_post(both, 2, pipe->mesh->comms[WEFTI_MESH_CHAIN], NULL);
}

weft_status wefti_pipe_reduce_tied(wefti_replica *replica)
{
    wefti_pipe *pipe = &replica->pipe;
    const wefti_parameters *plan = &replica->plan;
    const wefti_tensor *embedding = &plan->tensors[wefti_tensor_embedding()];
    const wefti_tensor *head = &plan->tensors[wefti_tensor_head(plan)];
    real *leaf = replica->gradient.leaf;
    size_t elems = wefti_tensor_elems(&embedding->info);
    weft_status status = WEFT_OK;
    if (embedding->here && head->here) {
        real *table = leaf + embedding->start_elems;
        replica->gradient.math->add(table, table, leaf + head->start_elems,
                                    elems);
        memcpy(leaf + head->start_elems, table, elems * sizeof(*leaf));
    } else if (embedding->here || head->here) {
        real *own = leaf + (embedding->here ? embedding : head)->start_elems;
        status = exchange_tied(pipe, own, elems);
        if (status == WEFT_OK) {
            replica->gradient.math->add(own, own, pipe->tied, elems);
        }
    }
    for (size_t i = plan->part_count; i < pipe->reduce_count; i++) {
        if (status == WEFT_OK) {
            status = start_rest(replica, &pipe->reduces[i]);
        }
    }
    return status;
}

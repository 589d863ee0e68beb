/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/replica.c - making a rank's copy of the model, and evaluating it.
 */
#include "trainer/replica.h"

#include "base/error.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/ema.h"
#include "trainer/expert_place.h"
#include "trainer/footprint.h"
#include "trainer/model/storage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Tokens of each expert of each layer. */
static size_t count_loads(const wefti_replica *replica)
{
    const wefti_model_shape *shape = &replica->config.shape;
    return shape->layers * shape->experts;
}

real *wefti_replica_gradient(const wefti_replica *replica,
                             const wefti_tensor *tensor)
{
    return replica->groups[tensor->info.group].gradient.leaf +
           tensor->start_elems;
}

static weft_status make_sums(wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    const wefti_step_sums sums = {.device = config->device,
                                  .compute = replica->compute,
                                  .comm = config->comm,
                                  .blocks = replica->plan.block_count,
                                  .experts = count_loads(replica),
                                  .sequences = config->global_batch,
                                  .most = config->optimizer.clip};
    replica->window = calloc(config->shape.seq + 1, sizeof(*replica->window));
    return replica->window
               ? wefti_step_sums_init(&replica->sums, &sums)
               : wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a sequence");
}

size_t wefti_replica_first_micro(const wefti_replica *replica, size_t copy)
{
    const wefti_replica_config *config = &replica->config;
    return wefti_mesh_first(config->global_batch / config->micro_batch, copy,
                            replica->copies);
}

bool wefti_replica_is_fault(weft_status status)
{
    return status == WEFT_ERR_PEER || status == WEFT_ERR_TIMEOUT ||
           status == WEFT_ERR_ABORTED || status == WEFT_ERR_MISMATCH;
}

size_t wefti_replica_length(const wefti_replica *replica)
{
    const wefti_model_shape *shape = &replica->config.shape;
    return wefti_context_length(&shape->context, wefti_model_positions(shape));
}

/* A host needs no thread beside the one that calls. */
static weft_status make_compute(wefti_replica *replica)
{
    weft_device *device = replica->config.device;
    return weft_device_get_caps(device) & WEFT_CAP_HOST_READS
               ? WEFT_OK
               : weft_stream_create(device, 0, &replica->compute);
}

weft_status wefti_replica_mesh(const wefti_replica_config *config, int nranks,
                               wefti_mesh *mesh_out)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    wefti_mesh sizes = config->mesh;
    weft_status status = weft_schedule_get_info(config->pipe.schedule, &info);
    sizes.mirrored = info.directions == 2;
    return status == WEFT_OK ? wefti_mesh_make(&sizes, nranks, mesh_out)
                             : status;
}

/* The mesh of the job, and this rank's place in it. */
static weft_status connect_mesh(wefti_replica *replica, size_t groups)
{
    const wefti_replica_config *config = &replica->config;
    wefti_mesh mesh;
    weft_status status =
        wefti_replica_mesh(config, (int)replica->nranks, &mesh);
    if (status == WEFT_OK) {
        status = wefti_mesh_connect(&replica->mesh, &mesh, config->comm,
                                    config->ledger, groups);
    }
    if (status == WEFT_OK) {
        replica->config.shape.context.part = (size_t)replica->mesh.at.cp;
        replica->copy = (size_t)replica->mesh.at.dp;
        replica->copies = (size_t)mesh.dp;
    }
    return status;
}

/* Where ranks of a layer are more than heads of keys and values. */
static weft_status connect_sharers(wefti_replica *replica)
{
    const int heads = (int)replica->config.shape.kv_heads;
    const wefti_mesh_place *at = &replica->mesh.at;
    const int tp = replica->mesh.mesh.tp;
    if (tp <= heads) {
        return WEFT_OK;
    }
    const int sharers = tp / heads;
    char name[32];
    weft_comm_config config = {.size_bytes = sizeof(config), .name = name};
    snprintf(name, sizeof(name), "keys of tensor rank %d",
             at->tp / sharers * sharers);
    weft_status status = weft_comm_split(replica->mesh.comms[WEFTI_MESH_TENSOR],
                                         at->tp / sharers, at->tp % sharers,
                                         &config, &replica->kv_sharers);
    return status == WEFT_OK && replica->config.ledger
               ? weft_ledger_attach(replica->config.ledger, replica->kv_sharers)
               : status;
}

static void leave_sharers(wefti_replica *replica)
{
    if (replica->kv_sharers && replica->config.ledger) {
        weft_ledger_detach(replica->config.ledger, replica->kv_sharers);
    }
    weft_comm_destroy(replica->kv_sharers);
}

static weft_comm *find_replicas(const wefti_replica *replica, size_t group)
{
    return replica->mesh.comms[WEFTI_MESH_DATA + group];
}

/* This rank's parts of the model, often all of it. */
static weft_status plan_parts(wefti_replica *replica,
                              const wefti_tensor_list *list)
{
    const wefti_replica_config *config = &replica->config;
    const size_t most = wefti_model_layers(&config->shape);
    wefti_layer_run *parts = calloc(most, sizeof(*parts));
    if (!parts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu parts", most);
    }
    wefti_parameters_config plan = {
        .shape = config->shape,
        .bucket_bytes = config->bucket_bytes,
        .expert_part = (size_t)replica->mesh.at.ep,
        .expert_parts = (size_t)replica->mesh.mesh.ep,
        .expert_slots = config->expert_slots,
        .tensor = {(size_t)replica->mesh.at.tp, (size_t)replica->mesh.mesh.tp,
                   config->sequence_parallel},
        .parts = parts};
    weft_status status = wefti_pipe_place(
        &replica->pipe, &config->pipe, &replica->mesh, &config->shape,
        config->micro_batch, parts, &plan.part_count);
    if (status == WEFT_OK) {
        plan.cut = replica->pipe.info.stages > 1;
        for (size_t g = 0; g < list->group_count; g++) {
            plan.nranks[g] =
                (size_t)weft_comm_get_nranks(find_replicas(replica, g));
        }
        status = wefti_parameters_plan_list(&plan, list, &replica->plan);
    }
    free(parts);
    return status;
}

/* Which ranks have what. */
static weft_status place(wefti_replica *replica)
{
    wefti_tensor_list list;
    weft_status status = wefti_tensor_list_init(&list, &replica->config.shape);
    if (status == WEFT_OK) {
        status = connect_mesh(replica, list.group_count);
    }
    if (status == WEFT_OK) {
        status = connect_sharers(replica);
    }
    if (status == WEFT_OK) {
        status = plan_parts(replica, &list);
    }
    wefti_tensor_list_fini(&list);
    return status;
}

size_t wefti_replica_count_micro(const wefti_replica *replica)
{
    return wefti_replica_first_micro(replica, replica->copy + 1) -
           wefti_replica_first_micro(replica, replica->copy);
}

size_t wefti_replica_count_passes(const wefti_replica *replica)
{
    return wefti_replica_count_micro(replica) /
           (size_t)replica->pipe.info.directions;
}

weft_status wefti_replica_wait(const wefti_replica *replica)
{
    weft_status status =
        replica->compute ? weft_stream_wait(replica->compute) : WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = wefti_optimizer_wait(&replica->groups[g].optimizer);
    }
    return status;
}

weft_status wefti_replica_copy(const wefti_replica *replica, void *dst,
                               const void *src, size_t bytes)
{
    weft_status status = wefti_replica_wait(replica);
    return status == WEFT_OK
               ? weft_device_copy(replica->config.device, dst, src, bytes, NULL)
               : status;
}

static weft_status make_all(wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    weft_status status = make_sums(replica);
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        const wefti_parameter_group_config group = {
            .plan = &replica->plan,
            .number = g,
            .comm = find_replicas(replica, g),
            .device = config->device,
            .compute = replica->compute,
            .passes = wefti_replica_count_passes(replica),
            .offloads = config->offload,
            .optimizer = config->optimizer};
        status = wefti_parameter_group_init(&replica->groups[g], &group);
    }
    return status == WEFT_OK
               ? wefti_pipe_open(&replica->pipe, &config->pipe, replica)
               : status;
}

static weft_status keep_start_values(const wefti_replica *replica,
                                     real *const *values)
{
    const wefti_parameters *plan = &replica->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->tensor_count && status == WEFT_OK; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->here) {
            status = wefti_replica_set(replica, tensor,
                                       values[tensor->info.group] +
                                           tensor->start_elems);
        }
    }
    return status;
}

/* The host draws them; where they lie elsewhere or are bf16, in arrays of its
 * own. */
static weft_status set_start_values(wefti_replica *replica)
{
    const size_t groups = replica->plan.group_count;
    const bool apart = replica->compute || replica->plan.shape.narrow;
    real *values[WEFTI_TENSOR_GROUPS_MOST] = {NULL};
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < groups && status == WEFT_OK; g++) {
        values[g] = replica->groups[g].values;
        if (apart) {
            status = wefti_storage_alloc(replica->plan.groups[g].flat_elems,
                                         &values[g]);
        }
    }
    if (status == WEFT_OK) {
        wefti_parameters_init(&replica->plan, replica->config.seed,
                              &replica->config.start, values);
    }
    if (status == WEFT_OK && apart) {
        status = keep_start_values(replica, values);
    }
    for (size_t g = 0; apart && g < groups; g++) {
        wefti_storage_free(values[g]);
    }
    return status;
}

weft_status wefti_replica_init(wefti_replica *replica,
                               const wefti_replica_config *config)
{
    *replica =
        (wefti_replica){.config = *config,
                        .rank = (size_t)weft_comm_get_rank(config->comm),
                        .nranks = (size_t)weft_comm_get_nranks(config->comm)};
    weft_status status = place(replica);
    if (status == WEFT_OK) {
        status = wefti_footprint_check(replica);
    }
    if (status == WEFT_OK) {
        status = make_compute(replica);
    }
    if (status == WEFT_OK) {
        status = make_all(replica);
    }
    if (status == WEFT_OK) {
        status = set_start_values(replica);
    }
    if (status == WEFT_OK) {
        status = wefti_pipe_rehearse(replica);
    }
    if (status != WEFT_OK) {
        int failed = replica->failed;
        weft_fault fault;
        (void)!wefti_replica_find_fault(replica, &fault);
        if (failed == 0) { /* else all know, and none waits */
            wefti_replica_abort(replica);
        }
        wefti_replica_fini(replica);
        replica->failed = failed;
        replica->fault = fault;
        return status;
    }
    return WEFT_OK;
}

void wefti_replica_fini(wefti_replica *replica)
{
    wefti_saver_destroy(replica->saver); /* which reads the pause's list */
    wefti_pause_destroy(replica->pause);
    wefti_ema_destroy(replica->ema);
    wefti_expert_place_destroy(replica->place);
    (void)!wefti_replica_wait(replica); /* what is queued uses the rest */
    wefti_pipe_fini(&replica->pipe);
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        wefti_parameter_group_fini(&replica->groups[g]);
    }
    wefti_step_sums_fini(&replica->sums);
    free(replica->window);
    wefti_parameters_fini(&replica->plan);
    weft_stream_destroy(replica->compute);
    leave_sharers(replica);
    wefti_mesh_leave(&replica->mesh);
    *replica = (wefti_replica){0};
}

weft_status wefti_replica_settle(wefti_replica *replica)
{
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = wefti_parameter_group_settle(&replica->groups[g]);
    }
    return status;
}

weft_status wefti_replica_gather(wefti_replica *replica, weft_bucket_mode mode)
{
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        wefti_parameter_group *group = &replica->groups[g];
        status = wefti_parameter_group_begin(group, mode);
        for (size_t i = 0; i < group->plan->bucket_count && status == WEFT_OK;
             i++) {
            status = weft_bucket_ready(group->gather, i);
        }
    }
    return status == WEFT_OK ? wefti_replica_settle(replica) : status;
}

void wefti_replica_work_begin(wefti_replica *replica, const char *label)
{
    wefti_replica_work_end(replica);
    replica->label = label;
    replica->span = weft_span_open(replica->config.ledger, WEFT_CLASS_COMPUTE,
                                   label, replica->compute);
}

void wefti_replica_work_end(wefti_replica *replica)
{
    if (replica->label) {
        weft_span_close(replica->config.ledger, replica->span,
                        replica->compute);
        replica->label = NULL;
    }
}

void wefti_replica_note_bucket(const wefti_replica *replica,
                               wefti_score_kind kind,
                               const weft_bucket_set *set, size_t bucket)
{
    const char *label = "gradients";
    for (size_t g = 0; replica->score && g < replica->plan.group_count; g++) {
        label = replica->groups[g].gather == set ? "parameters" : label;
    }
    wefti_score_note_down(replica->score,
                          &(wefti_score_note){.kind = kind,
                                              .class_id = WEFT_CLASS_DP,
                                              .label = label,
                                              .of = set,
                                              .number = bucket,
                                              .chunk = kind == WEFTI_SCORE_POST
                                                           ? 1
                                                           : WEFTI_SCORE_ALL});
}

/* Buckets come in their order: who asks for one waits for those before too. */
weft_status wefti_replica_use(void *context, size_t tensor)
{
    wefti_replica *replica = context;
    const wefti_tensor *used = &replica->plan.tensors[tensor];
    wefti_parameter_group *group = &replica->groups[used->info.group];
    const char *label = replica->label;
    weft_status status = WEFT_OK;
    if (group->arrived > used->bucket) {
        return WEFT_OK;
    }
    wefti_score_begin(replica->score);
    while (group->arrived <= used->bucket && status == WEFT_OK) {
        wefti_replica_note_bucket(replica, WEFTI_SCORE_AWAIT, group->gather,
                                  group->arrived);
        status = wefti_parameter_group_arrive(group, false);
        if (status == WEFT_INPROGRESS && label) {
            wefti_replica_work_end(replica);
            status = wefti_parameter_group_arrive(group, true);
            wefti_replica_work_begin(replica, label);
        } else if (status == WEFT_INPROGRESS) {
            weft_pipeline_stop(replica->pipe.pipeline, WEFT_WAIT_PARAM);
            status = wefti_parameter_group_arrive(group, true);
            weft_pipeline_resume(replica->pipe.pipeline);
        }
    }
    wefti_score_end(replica->score);
    return status;
}

/* How many targets all windows together have. */
static size_t count_targets(const wefti_replica *replica, size_t windows)
{
    size_t first_target;
    size_t sum = 0;
    for (size_t i = 0; i < windows; i++) {
        (void)wefti_data_validation(replica->config.data, i, &first_target);
        sum += replica->config.shape.seq - first_target;
    }
    return sum;
}

/*
 * Losses of the groups of windows that fall to this copy; zeros elsewhere.
 * Where copies exchange rows of experts, those without a group of their own
 * take part with the last one.
 */
static weft_status evaluate_own(wefti_replica *replica, size_t windows,
                                double *losses)
{
    const size_t group = replica->config.micro_batch;
    const bool together = wefti_mesh_ep_of_dp(&replica->mesh.mesh) > 1;
    for (size_t round = 0; round < windows; round += replica->copies * group) {
        size_t first = round + replica->copy * group;
        if (first >= windows && together) {
            wefti_micro_batch last =
                wefti_replica_load_windows(replica, windows - 1, 1);
            weft_status status =
                wefti_pipe_evaluate(replica, &last, NULL, NULL);
            if (status != WEFT_OK) {
                return status;
            }
        }
        if (first >= windows) {
            continue;
        }
        size_t left = windows - first;
        wefti_micro_batch batch = wefti_replica_load_windows(
            replica, first, group < left ? group : left);
        weft_status status =
            wefti_pipe_evaluate(replica, &batch, losses + first, NULL);
        if (status != WEFT_OK) {
            return status;
        }
    }
    /* Of ranks that share the layers, the first says what all have. */
    for (size_t i = 0; replica->mesh.at.tp > 0 && i < windows; i++) {
        losses[i] = 0;
    }
    return WEFT_OK;
}

/* To losses, which are zeros, those of all windows. */
static weft_status evaluate_all(wefti_replica *replica, size_t windows,
                                double *losses)
{
    weft_status status = evaluate_own(replica, windows, losses);
    wefti_replica_work_end(replica);
    if (status == WEFT_OK) {
        /* A rank without windows has not waited for the parameters yet. */
        status = wefti_replica_settle(replica);
    }
    return status == WEFT_OK
               ? weft_allreduce(losses, losses, windows, WEFT_DTYPE_F64,
                                WEFT_REDOP_SUM, replica->config.comm, NULL)
               : status;
}

weft_status wefti_replica_evaluate(wefti_replica *replica, double *loss_out)
{
    size_t windows = wefti_data_validation_windows(replica->config.data);
    *loss_out = (double)NAN;
    if (windows == 0) {
        return WEFT_OK;
    }
    double *losses = calloc(windows, sizeof(*losses));
    if (!losses) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu losses",
                           windows);
    }
    weft_status status = evaluate_all(replica, windows, losses);
    if (status == WEFT_OK) {
        *loss_out = wefti_gradient_tree_sum(losses, windows) /
                    (double)count_targets(replica, windows);
    }
    free(losses);
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/replica.c - making a rank's copy of the model, and evaluating it.
 */
#include "trainer/replica.h"

#include "base/error.h"
#include "comm/make/explain.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/footprint.h"
#include "trainer/model/storage.h"

#include <math.h>
#include <stdlib.h>

double *wefti_replica_losses(const wefti_replica *replica)
{
    return replica->sums + replica->plan.block_count;
}

double *wefti_replica_times(const wefti_replica *replica, size_t rank)
{
    return wefti_replica_losses(replica) + replica->config.global_batch +
           rank * WEFTI_STEP_TIMES;
}

/*
 * What the ranks of the group exchange: in memory that they read from each
 * other where they can, as no message is copied on its way then.
 */
static weft_status make_exchanged(wefti_replica *replica, real **leaf_out)
{
    const size_t elems = replica->plan.flat_elems;
    const size_t line = WEFTI_STORAGE_ALIGN_BYTES / sizeof(real);
    const size_t stride = (elems + line) / line * line;
    weft_status status;
    if (wefti_comm_reads_mapped(replica->mesh.comms[WEFTI_MESH_DATA])) {
        status = weft_mem_create(replica->mesh.comms[WEFTI_MESH_DATA],
                                 2 * stride * sizeof(real), &replica->shared);
        real *base = weft_mem_get_base(replica->shared);
        replica->values = base;
        *leaf_out = base ? base + stride : NULL;
        return status;
    }
    status = wefti_storage_alloc(elems, &replica->own_values);
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(elems, &replica->own_leaf);
    }
    replica->values = replica->own_values;
    *leaf_out = replica->own_leaf;
    return status;
}

static weft_status make_sums(wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    replica->step_sums = replica->plan.block_count + config->global_batch +
                         replica->nranks * WEFTI_STEP_TIMES;
    /* Validation losses travel in sums too. */
    size_t windows = wefti_data_validation_windows(config->data);
    replica->sums =
        calloc(replica->step_sums > windows ? replica->step_sums : windows,
               sizeof(*replica->sums));
    return replica->sums ? WEFT_OK
                         : wefti_error(WEFT_ERR_NO_MEMORY,
                                       "no memory for the sums of a step");
}

static weft_status make_gather(wefti_replica *replica)
{
    const weft_bucket_config config = {
        .size_bytes = sizeof(config),
        .comm = replica->mesh.comms[WEFTI_MESH_DATA],
        .device = replica->config.device,
        .collective = WEFT_COLLECTIVE_ALLGATHER,
        .buffer = replica->values,
        .dtype = WEFTI_REAL_DTYPE,
        .extents = replica->plan.buckets,
        .count = replica->plan.bucket_count,
        .class_id = wefti_mesh_class(WEFTI_MESH_DATA),
        .label = "parameters"};
    return weft_bucket_create(&config, &replica->gather);
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

void wefti_replica_load(const wefti_replica *replica, uint64_t first,
                        int32_t *tokens, int32_t *targets)
{
    size_t seq = replica->config.shape.seq;
    for (size_t i = 0; i < replica->config.micro_batch; i++) {
        const uint8_t *window =
            wefti_data_sequence(replica->config.data, first + i);
        for (size_t t = 0; t < seq; t++) {
            tokens[i * seq + t] = window[t];
            targets[i * seq + t] = window[t + 1];
        }
    }
}

/* A host needs no thread beside the one that calls. */
static weft_status make_compute(wefti_replica *replica)
{
    weft_device *device = replica->config.device;
    return weft_device_get_caps(device) & WEFT_CAP_HOST_READS
               ? WEFT_OK
               : weft_stream_create(device, 0, &replica->compute);
}

/* The mesh of the job, and this rank's place in it. */
static weft_status connect_mesh(wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    wefti_mesh sizes = config->mesh;
    wefti_mesh mesh;
    weft_status status = weft_schedule_get_info(config->pipe.schedule, &info);
    sizes.mirrored = info.directions == 2;
    if (status == WEFT_OK) {
        status = wefti_mesh_make(&sizes, (int)replica->nranks, &mesh);
    }
    if (status == WEFT_OK) {
        status = wefti_mesh_connect(&replica->mesh, &mesh, config->comm,
                                    config->ledger, 1);
    }
    if (status == WEFT_OK) {
        weft_comm *data = replica->mesh.comms[WEFTI_MESH_DATA];
        replica->copy = (size_t)replica->mesh.at.dp;
        replica->copies = (size_t)mesh.dp;
        replica->share = (size_t)weft_comm_get_rank(data);
        replica->shares = (size_t)weft_comm_get_nranks(data);
    }
    return status;
}

/* This rank's parts of the model, often all of it. */
static weft_status plan_parts(wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    size_t count = 0;
    wefti_layer_run *parts = calloc(config->shape.layers, sizeof(*parts));
    if (!parts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu parts",
                           config->shape.layers);
    }
    weft_status status =
        wefti_pipe_place(&replica->pipe, &config->pipe, &replica->mesh,
                         &config->shape, parts, &count);
    if (status == WEFT_OK) {
        status = wefti_parameters_plan_parts(
            &config->shape, config->bucket_bytes, replica->shares, parts, count,
            replica->pipe.info.stages > 1, &replica->plan);
    }
    free(parts);
    return status;
}

size_t wefti_replica_count_passes(const wefti_replica *replica)
{
    size_t all = wefti_replica_first_micro(replica, replica->copy + 1) -
                 wefti_replica_first_micro(replica, replica->copy);
    return all / (size_t)replica->pipe.info.directions;
}

static weft_status make_all(wefti_replica *replica)
{
    const wefti_replica_config *config = &replica->config;
    real *leaf;
    weft_status status = make_exchanged(replica, &leaf);
    if (status == WEFT_OK) {
        status = wefti_gradient_init(&replica->gradient, &replica->plan, leaf,
                                     wefti_replica_count_passes(replica));
    }
    if (status == WEFT_OK) {
        status = wefti_optimizer_init(&replica->optimizer, &replica->plan,
                                      replica->share, &config->optimizer);
    }
    if (status == WEFT_OK) {
        status = make_sums(replica);
    }
    if (status == WEFT_OK) {
        status = make_gather(replica);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return wefti_pipe_open(&replica->pipe, &config->pipe, replica);
}

weft_status wefti_replica_init(wefti_replica *replica,
                               const wefti_replica_config *config)
{
    *replica =
        (wefti_replica){.config = *config,
                        .rank = (size_t)weft_comm_get_rank(config->comm),
                        .nranks = (size_t)weft_comm_get_nranks(config->comm),
                        .resident_bytes = wefti_footprint_resident_bytes()};
    weft_status status = connect_mesh(replica);
    if (status == WEFT_OK) {
        status = plan_parts(replica);
    }
    if (status == WEFT_OK) {
        status = wefti_footprint_check(replica);
    }
    if (status == WEFT_OK) {
        status = make_compute(replica);
    }
    if (status == WEFT_OK) {
        status = make_all(replica);
    }
    if (status != WEFT_OK) {
        int failed = replica->failed;
        if (failed == 0) { /* else all know, and none waits */
            wefti_replica_abort(replica);
        }
        wefti_replica_fini(replica);
        replica->failed = failed;
        return status;
    }
    wefti_parameters_init(&replica->plan, config->seed, &config->start,
                          replica->values);
    return WEFT_OK;
}

void wefti_replica_abort(wefti_replica *replica)
{
    wefti_saver_abort(replica->saver);
    wefti_mesh_abort(&replica->mesh);
}

void wefti_replica_fini(wefti_replica *replica)
{
    wefti_saver_destroy(replica->saver); /* which reads the pause's list */
    wefti_pause_destroy(replica->pause);
    weft_stream_destroy(replica->compute); /* what is queued uses the rest */
    weft_bucket_destroy(replica->gather);
    wefti_pipe_fini(&replica->pipe);
    free(replica->sums);
    wefti_storage_free(replica->own_values);
    wefti_storage_free(replica->own_leaf);
    wefti_optimizer_fini(&replica->optimizer);
    wefti_gradient_fini(&replica->gradient);
    wefti_parameters_fini(&replica->plan);
    weft_mem_destroy(replica->shared);
    wefti_mesh_leave(&replica->mesh);
    *replica = (wefti_replica){0};
}

weft_status wefti_replica_settle(wefti_replica *replica)
{
    for (; replica->arrived < replica->plan.bucket_count; replica->arrived++) {
        weft_status status =
            weft_bucket_wait(replica->gather, replica->arrived);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

weft_status wefti_replica_collect(wefti_replica *replica)
{
    weft_status status =
        weft_bucket_begin(replica->gather, WEFT_BUCKET_BLOCKING);
    replica->arrived = 0;
    for (size_t i = 0; i < replica->plan.bucket_count && status == WEFT_OK;
         i++) {
        status = weft_bucket_ready(replica->gather, i);
    }
    return status == WEFT_OK ? wefti_replica_settle(replica) : status;
}

void wefti_replica_work_begin(wefti_replica *replica, const char *label)
{
    wefti_replica_work_end(replica);
    replica->label = label;
    replica->span =
        weft_span_open(replica->config.ledger, WEFT_CLASS_COMPUTE, label, NULL);
}

void wefti_replica_work_end(wefti_replica *replica)
{
    if (replica->label) {
        weft_span_close(replica->config.ledger, replica->span, NULL);
        replica->label = NULL;
    }
}

/* Buckets come in their order: who asks for one waits for those before too. */
weft_status wefti_replica_use(void *context, size_t tensor)
{
    wefti_replica *replica = context;
    size_t end = replica->plan.tensors[tensor].bucket + 1;
    const char *label = replica->label;
    weft_status status = WEFT_OK;
    while (replica->arrived < end && status == WEFT_OK) {
        status = weft_bucket_test(replica->gather, replica->arrived);
        if (status == WEFT_INPROGRESS && label) {
            wefti_replica_work_end(replica);
            status = weft_bucket_wait(replica->gather, replica->arrived);
            wefti_replica_work_begin(replica, label);
        } else if (status == WEFT_INPROGRESS) {
            weft_pipeline_stop(replica->pipe.pipeline, WEFT_WAIT_PARAM);
            status = weft_bucket_wait(replica->gather, replica->arrived);
            weft_pipeline_resume(replica->pipe.pipeline);
        }
        replica->arrived += status == WEFT_OK;
    }
    return status;
}

/* Validation windows first .. first + count - 1 into tokens and targets. */
static wefti_micro_batch load_windows(const wefti_replica *replica,
                                      size_t first, size_t count)
{
    int32_t *tokens = replica->pipe.tokens[0];
    int32_t *targets = replica->pipe.targets[0];
    size_t seq = replica->config.shape.seq;
    for (size_t i = 0; i < count; i++) {
        size_t first_target;
        const uint8_t *window = wefti_data_validation(replica->config.data,
                                                      first + i, &first_target);
        for (size_t t = 0; t < seq; t++) {
            tokens[i * seq + t] = window[t];
            targets[i * seq + t] = t >= first_target ? window[t + 1] : -1;
        }
    }
    return (wefti_micro_batch){tokens, targets, count, seq};
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

/* Losses of the groups of windows that fall to this copy, zeros elsewhere. */
static weft_status evaluate_own(wefti_replica *replica, size_t windows)
{
    size_t group = replica->config.micro_batch;
    for (size_t i = 0; i < windows; i++) {
        replica->sums[i] = 0;
    }
    for (size_t first = replica->copy * group; first < windows;
         first += replica->copies * group) {
        size_t left = windows - first;
        wefti_micro_batch batch =
            load_windows(replica, first, group < left ? group : left);
        weft_status status =
            wefti_pipe_evaluate(replica, &batch, replica->sums + first, NULL);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

weft_status wefti_replica_evaluate(wefti_replica *replica, double *loss_out)
{
    size_t windows = wefti_data_validation_windows(replica->config.data);
    *loss_out = (double)NAN;
    if (windows == 0) {
        return WEFT_OK;
    }
    weft_status status = evaluate_own(replica, windows);
    wefti_replica_work_end(replica);
    if (status == WEFT_OK) {
        /* A rank without windows has not waited for the parameters yet. */
        status = wefti_replica_settle(replica);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(replica->sums, replica->sums, windows,
                                WEFT_DTYPE_F64, WEFT_REDOP_SUM,
                                replica->config.comm, NULL);
    }
    if (status == WEFT_OK) {
        *loss_out = wefti_gradient_tree_sum(replica->sums, windows) /
                    (double)count_targets(replica, windows);
    }
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe.c - making a rank's place in a pipeline.
 */
#include "trainer/pipe/pipe.h"

#include "base/check.h"
#include "base/error.h"
#include "overlap/schedule/schedule.h"
#include "trainer/model/expert_exchange.h"
#include "trainer/model/storage.h"
#include "trainer/pipe/pipe_call.h"
#include "trainer/pipe/pipe_links.h"
#include "trainer/pipe/pipe_reduce.h"
#include "trainer/pipe/pipe_schedule.h"
#include "trainer/replica.h"

#include <stdlib.h>

/* Stages of one direction: the model's. */
static int model_stages(const wefti_pipe *pipe)
{
    return pipe->info.stages / pipe->info.directions;
}

int wefti_pipe_last(const wefti_pipe *pipe)
{
    return weft_schedule_get_rank(pipe->schedule, model_stages(pipe) - 1);
}

wefti_layer_run wefti_pipe_layers(const wefti_model_shape *shape,
                                  int encoder_stages, int stages, int part)
{
    const bool encoder = part < encoder_stages;
    const int first = encoder ? 0 : encoder_stages;
    const int count = encoder ? encoder_stages : stages - encoder_stages;
    const int layers = (int)(encoder ? shape->encoder_layers : shape->layers);
    const size_t before = encoder ? 0 : shape->encoder_layers;
    return (wefti_layer_run){
        before + (size_t)wefti_layers_before(layers, count, part - first),
        before + (size_t)wefti_layers_before(layers, count, part - first + 1)};
}

/* What an encoder's stages send on is shorter than what the others do. */
static weft_status count_stage_rows(wefti_pipe *pipe,
                                    const wefti_model_shape *shape,
                                    size_t sequences)
{
    if (pipe->encoder_stages == 0) {
        return WEFT_OK;
    }
    pipe->stage_rows =
        calloc((size_t)pipe->info.stages, sizeof(*pipe->stage_rows));
    if (!pipe->stage_rows) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d stages",
                           pipe->info.stages);
    }
    for (int i = 0; i < pipe->info.stages; i++) {
        const bool encoder = i % model_stages(pipe) < pipe->encoder_stages;
        pipe->stage_rows[i] =
            sequences *
            (encoder ? shape->encoder_seq : wefti_model_positions(shape));
    }
    return WEFT_OK;
}

/* The rank's stages in order of the model's layers, the plan's. */
static void list_stages(wefti_pipe *pipe, const wefti_model_shape *shape,
                        wefti_layer_run *parts_out)
{
    int stages = model_stages(pipe);
    for (int part = 0; part < stages; part++) {
        for (int way = 0; way < pipe->info.directions; way++) {
            int number = way * stages + part;
            if (weft_schedule_get_rank(pipe->schedule, number) != pipe->rank) {
                continue;
            }
            parts_out[pipe->stage_count] =
                wefti_pipe_layers(shape, pipe->encoder_stages, stages, part);
            pipe->stages[pipe->stage_count] = (wefti_pipe_stage){
                .number = number,
                .part = pipe->stage_count,
                .first_micro = (size_t)(way * pipe->info.microbatches /
                                        pipe->info.directions)};
            pipe->stage_count++;
        }
    }
}

weft_status wefti_pipe_place(wefti_pipe *pipe, const wefti_pipe_config *config,
                             const wefti_mesh_comms *mesh,
                             const wefti_model_shape *shape, size_t sequences,
                             wefti_layer_run *parts_out, size_t *part_count_out)
{
    *pipe = (wefti_pipe){.schedule = config->schedule,
                         .recompute = config->recompute,
                         .keeps_places = config->keeps_places,
                         .mesh = mesh,
                         .rank = mesh->at.pp,
                         .encoder_stages = config->encoder_stages};
    pipe->info.size_bytes = sizeof(pipe->info);
    weft_status status = weft_schedule_get_info(config->schedule, &pipe->info);
    if (status != WEFT_OK) {
        return status;
    }
    WEFTI_ASSERT(mesh->mesh.pp == pipe->info.ranks);
    WEFTI_ASSERT((shape->encoder_layers > 0) == (pipe->encoder_stages > 0));
    WEFTI_ASSERT(shape->encoder_layers >= (size_t)pipe->encoder_stages);
    WEFTI_ASSERT(shape->layers + (size_t)pipe->encoder_stages >=
                 (size_t)model_stages(pipe));
    pipe->stages = calloc((size_t)pipe->info.stages, sizeof(*pipe->stages));
    if (!pipe->stages) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d stages",
                           pipe->info.stages);
    }
    list_stages(pipe, shape, parts_out);
    *part_count_out = pipe->stage_count;
    return count_stage_rows(pipe, shape, sequences);
}

size_t wefti_pipe_rows(const wefti_replica *replica, size_t tokens)
{
    const wefti_tensor_parallel *tensor = &replica->plan.tensor;
    const wefti_program parted = {.parts = tensor->parts, .part = tensor->part};
    return tensor->sequence ? wefti_program_own_rows(&parted, tokens) : tokens;
}

static weft_pipeline_config configure_pipeline(const wefti_pipe *pipe,
                                               const wefti_pipe_config *config,
                                               wefti_replica *replica)
{
    const wefti_replica_config *own = &replica->config;
    return (weft_pipeline_config){
        .size_bytes = sizeof(weft_pipeline_config),
        .schedule = pipe->schedule,
        .comm = pipe->mesh->comms[WEFTI_MESH_LINE],
        .device = own->device,
        .ledger = own->ledger,
        .rows = wefti_pipe_rows(replica, own->micro_batch *
                                             wefti_replica_length(replica)),
        .row_elems = own->shape.hidden,
        .dtype = wefti_model_dtype(&own->shape),
        .chunk_rows = config->chunk_rows,
        .calls = config->waits ? &wefti_pipe_waits : &wefti_pipe_calls,
        .context = replica,
        .compute = replica->compute,
        .stage_rows = pipe->stage_rows};
}

/* A list that splits a backward anywhere may split each. */
static wefti_stage_config
configure_stage(wefti_pipe *pipe, const wefti_parameters *plan, size_t index)
{
    const wefti_layer_run *part = &plan->parts[pipe->stages[index].part];
    return (wefti_stage_config){.plan = plan,
                                .workspace = &pipe->workspace,
                                .first_layer = part->first_layer,
                                .layers_end = part->layers_end,
                                .slots = pipe->slots,
                                .arenas = pipe->arenas,
                                .recompute = pipe->recompute,
                                .together = !wefti_pipe_schedule_has(
                                    pipe->schedule, pipe->rank, WEFT_ACTION_I),
                                .keeps = pipe->keeps_places};
}

/* Of a slot that any of the rank's stages can use. */
static size_t count_slot_elems(wefti_pipe *pipe, const wefti_parameters *plan)
{
    size_t most = 0;
    for (size_t i = 0; i < pipe->stage_count; i++) {
        wefti_stage_config config = configure_stage(pipe, plan, i);
        size_t elems = wefti_stage_slot_elems(&config);
        most = elems > most ? elems : most;
    }
    return most;
}

static weft_status alloc(const wefti_pipe *pipe, size_t elems, real **out)
{
    return wefti_storage_alloc_on(pipe->workspace.device,
                                  pipe->workspace.compute, elems, out);
}

static weft_status make_slots(wefti_pipe *pipe, const wefti_parameters *plan,
                              int count)
{
    size_t most = count_slot_elems(pipe, plan);
    pipe->arenas = calloc((size_t)count, sizeof(*pipe->arenas));
    if (!pipe->arenas) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d slots", count);
    }
    pipe->slot_bytes = most * sizeof(real);
    for (; pipe->slots < (size_t)count; pipe->slots++) {
        weft_status status = alloc(pipe, most, &pipe->arenas[pipe->slots]);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/*
 * Where activations are that OFFLOAD has put away, and what RECOMPUTE begins
 * with: on the device too, so nothing is saved by the first but slots.
 */
static weft_status make_kept(wefti_pipe *pipe, size_t input_elems, int count)
{
    size_t slot_elems = pipe->slot_bytes / sizeof(real);
    size_t elems =
        wefti_pipe_schedule_has(pipe->schedule, pipe->rank, WEFT_ACTION_OFFLOAD)
            ? slot_elems
            : 0;
    elems = input_elems > elems ? input_elems : elems;
    pipe->kept = calloc((size_t)count + 1, sizeof(*pipe->kept));
    if (!pipe->kept) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d slots", count);
    }
    pipe->kept_bytes = elems * sizeof(real);
    for (; pipe->kept_count < (size_t)count; pipe->kept_count++) {
        weft_status status = alloc(pipe, elems, &pipe->kept[pipe->kept_count]);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

static weft_status make_stages(wefti_pipe *pipe, const wefti_parameters *plan)
{
    for (size_t i = 0; i < pipe->stage_count; i++) {
        wefti_stage_config config = configure_stage(pipe, plan, i);
        weft_status status =
            wefti_stage_create(&config, &pipe->stages[i].stage);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return wefti_workspace_alloc(&pipe->workspace);
}

/* Ranks that exchange within a stage post in one order: known before it runs,
 * as else they would wait for each other. */
static weft_status agree_on_stages(const wefti_pipe *pipe)
{
    static const wefti_mesh_link links[] = {
        WEFTI_MESH_TENSOR, WEFTI_MESH_CONTEXT, WEFTI_MESH_EXPERTS};
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        weft_comm *comm = pipe->mesh->comms[links[i]];
        for (size_t k = 0; comm && k < pipe->stage_count && status == WEFT_OK;
             k++) {
            status = wefti_stage_agree(pipe->stages[k].stage, comm,
                                       wefti_mesh_class(links[i]));
        }
    }
    return status;
}

/* Whether the rank has the first or the last stage of a direction, or the one
 * where the encoder's rows and the tokens join: one that reads a batch. */
static bool has_end(const wefti_pipe *pipe)
{
    const int length = model_stages(pipe);
    bool has = false;
    for (size_t i = 0; i < pipe->stage_count; i++) {
        int stage = pipe->stages[i].number % length;
        has = has || stage == 0 || stage == length - 1 ||
              stage == pipe->encoder_stages;
    }
    return has;
}

/* What is read and handed on between passes. */
static weft_status make_buffers(wefti_pipe *pipe, const wefti_replica *replica)
{
    const wefti_model_shape *shape = &replica->config.shape;
    const wefti_pipe_batch batch = {
        .device = replica->config.device,
        .compute = replica->compute,
        .count = has_end(pipe) || replica->config.packs
                     ? wefti_replica_count_micro(replica)
                     : 1,
        .sequences = replica->config.micro_batch,
        .length = wefti_replica_length(replica),
        .stride =
            replica->config.packs ? wefti_documents_stride(shape->seq) : 0};
    const size_t tokens = batch.sequences * batch.length;
    weft_status status = wefti_pipe_batch_init(&pipe->batch, &batch);
    for (int i = 0; i < 2 && pipe->info.stages > 1 && status == WEFT_OK; i++) {
        status =
            alloc(pipe,
                  wefti_model_elems(shape, wefti_pipe_rows(replica, tokens) *
                                               shape->hidden),
                  &pipe->rows[i]);
    }
    if (status == WEFT_OK && replica->plan.copies_head) {
        status =
            alloc(pipe, replica->plan.own.vocab * shape->hidden, &pipe->tied);
    }
    return status;
}

/* slots: micro-batches at a time. */
static wefti_experts_config configure_experts(const wefti_pipe *pipe,
                                              const wefti_replica *replica,
                                              size_t slots)
{
    return (wefti_experts_config){
        .plan = &replica->plan,
        .comm = pipe->mesh->comms[WEFTI_MESH_EXPERTS],
        .device = replica->config.device,
        .compute = replica->compute,
        .tokens = wefti_pipe_rows(replica, replica->config.micro_batch *
                                               wefti_replica_length(replica)),
        .slots = slots,
        .overlaps = replica->config.expert_overlap,
        .context = (wefti_replica *)replica,
        .stop = pipe->links[WEFTI_LINK_EXPERTS].stop,
        .resume = pipe->links[WEFTI_LINK_EXPERTS].resume};
}

/* Where other ranks have some of the experts. */
static weft_status make_experts(wefti_pipe *pipe, const wefti_replica *replica)
{
    const wefti_experts_config config =
        configure_experts(pipe, replica, pipe->slots);
    pipe->workspace.loads =
        replica->config.shape.experts > 0 ? replica->sums.loads : NULL;
    if (replica->config.shape.experts == 0 ||
        wefti_experts_here(&replica->plan)) {
        return WEFT_OK;
    }
    if (wefti_pipe_schedule_has(pipe->schedule, pipe->rank,
                                WEFT_ACTION_OFFLOAD)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "parallel.schedule: OFFLOAD is not possible in this "
                           "version with parallel.expert_model_parallel_size "
                           "above 1: rows of experts stay in their slot");
    }
    weft_status status = wefti_experts_create(&config, &pipe->experts);
    pipe->workspace.experts = pipe->experts;
    return status;
}

double wefti_pipe_expert_bytes(const wefti_pipe *pipe,
                               const wefti_replica *replica, size_t slots)
{
    const wefti_experts_config config = configure_experts(pipe, replica, slots);
    return replica->config.shape.experts > 0 &&
                   !wefti_experts_here(&replica->plan)
               ? wefti_experts_bytes(&config)
               : 0;
}

weft_status wefti_pipe_estimate(const wefti_pipe *pipe,
                                const wefti_pipe_config *config,
                                wefti_replica *replica, double *bytes_out)
{
    wefti_pipe planned = *pipe;
    weft_pipeline_config executed =
        configure_pipeline(&planned, config, replica);
    weft_pipeline_peaks peaks = {.size_bytes = sizeof(peaks)};
    weft_status status = weft_pipeline_predict(&executed, pipe->rank, &peaks);
    if (status == WEFT_OK) {
        planned.workspace.device = replica->config.device;
        planned.workspace.sequences = replica->config.micro_batch;
        *bytes_out =
            (double)peaks.slots *
                (double)count_slot_elems(&planned, &replica->plan) *
                sizeof(real) +
            wefti_pipe_expert_bytes(pipe, replica, (size_t)peaks.slots) +
            (double)peaks.bytes +
            (double)wefti_context_link_bytes(&replica->plan.own,
                                             replica->config.micro_batch);
    }
    return status;
}

/* The same on all ranks that share a sequence. */
static weft_status open_link(wefti_pipe *pipe, const wefti_replica *replica)
{
    const wefti_context_link given = {
        .device = replica->config.device,
        .compute = replica->compute,
        .ledger = replica->config.ledger,
        .all = pipe->mesh->comms[WEFTI_MESH_CONTEXT]};
    if (!given.all) {
        return WEFT_OK;
    }
    pipe->workspace.link = &pipe->link;
    return wefti_context_link_open(&pipe->link, &given, &replica->plan.own,
                                   replica->config.micro_batch);
}

weft_status wefti_pipe_open(wefti_pipe *pipe, const wefti_pipe_config *config,
                            wefti_replica *replica)
{
    weft_pipeline_config executed = configure_pipeline(pipe, config, replica);
    weft_pipeline_peaks peaks = {.size_bytes = sizeof(peaks)};
    weft_status status = weft_pipeline_predict(&executed, pipe->rank, &peaks);
    if (status == WEFT_OK) {
        pipe->buffer_bytes = peaks.bytes;
        status = wefti_workspace_init(&pipe->workspace, replica->config.device,
                                      replica->compute, &replica->plan.shape,
                                      replica->config.micro_batch);
    }
    if (status == WEFT_OK) {
        pipe->workspace.links = pipe->links;
        status = wefti_pipe_links_open(replica, pipe->links);
    }
    if (status == WEFT_OK) {
        status = open_link(pipe, replica);
    }
    if (status == WEFT_OK) {
        status = make_slots(pipe, &replica->plan, peaks.slots);
    }
    if (status == WEFT_OK && replica->plan.tensor.parts > 1 && has_end(pipe)) {
        status = wefti_workspace_share(&pipe->workspace,
                                       replica->config.micro_batch *
                                           wefti_replica_length(replica),
                                       replica->plan.tensor.parts);
    }
    if (status == WEFT_OK) {
        status =
            make_kept(pipe,
                      wefti_model_elems(&replica->plan.shape,
                                        executed.rows * executed.row_elems),
                      peaks.kept);
    }
    if (status == WEFT_OK) {
        status = make_stages(pipe, &replica->plan);
    }
    if (status == WEFT_OK) {
        status = agree_on_stages(pipe);
    }
    if (status == WEFT_OK) {
        status = make_experts(pipe, replica);
    }
    if (status == WEFT_OK) {
        status = make_buffers(pipe, replica);
    }
    if (status == WEFT_OK) {
        status = wefti_pipe_reduce_open(replica);
    }
    return status == WEFT_OK ? weft_pipeline_create(&executed, &pipe->pipeline)
                             : status;
}

void wefti_pipe_fini(wefti_pipe *pipe)
{
    wefti_pipe_links_close(pipe->links); /* what is queued uses the rest */
    weft_pipeline_destroy(pipe->pipeline);
    wefti_experts_destroy(pipe->experts);
    wefti_pipe_reduce_close(pipe);
    weft_device *device = pipe->workspace.device;
    wefti_storage_free_on(device, pipe->tied);
    for (int i = 0; i < 2; i++) {
        wefti_storage_free_on(device, pipe->rows[i]);
    }
    wefti_pipe_batch_fini(&pipe->batch);
    for (size_t i = 0; i < pipe->stage_count; i++) {
        wefti_stage_destroy(pipe->stages[i].stage);
    }
    for (size_t i = 0; i < pipe->slots; i++) {
        wefti_storage_free_on(device, pipe->arenas[i]);
    }
    free(pipe->arenas);
    for (size_t i = 0; i < pipe->kept_count; i++) {
        wefti_storage_free_on(device, pipe->kept[i]);
    }
    free(pipe->kept);
    wefti_workspace_fini(&pipe->workspace);
    wefti_context_link_close(&pipe->link);
    free(pipe->stages);
    free(pipe->stage_rows);
    *pipe = (wefti_pipe){0};
}

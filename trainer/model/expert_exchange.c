/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/expert_exchange.c - turns, their batches, and the stream
 * between compute and the exchange.
 */
#include "trainer/model/expert_exchange.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/model/storage.h"
#include "weft/moe.h"

#include <stdlib.h>

/* What a layer has in a slot. */
typedef struct turn {
    weft_moe_batch batch;
    weft_event *done; /* of its last exchange */
    real *chosen;     /* ids of its last dispatch; NULL: nobody asks */
    int32_t *slots;   /* of these experts; NULL: a slot's number is its own */
} turn;

struct wefti_experts {
    wefti_experts_config config;
    weft_moe *moe;
    weft_stream *stream;  /* exchanges' */
    weft_event *computed; /* what the next of them needs */
    turn *turns;          /* [layers of the plan's parts][slots] */
    size_t turn_count;
    size_t rank; /* of comm */
    bool blocking, replays;
};

size_t wefti_experts_room(const wefti_parameters *plan, size_t tokens)
{
    const wefti_model_shape *shape = &plan->shape;
    const size_t parts = plan->expert_parts > 0 ? plan->expert_parts : 1;
    const size_t here = plan->expert_slots / parts;
    const size_t slots = shape->experts_per_token;
    size_t most = (slots < here ? slots : here) * parts;
    if (parts > 1 && shape->expert_room > 0 && shape->expert_room < most) {
        most = shape->expert_room;
    }
    return most * tokens;
}

/* A part's layers of the decoder, by its numbers: an encoder has no experts. */
static wefti_layer_run decoder_run(const wefti_parameters *plan, size_t part)
{
    const size_t before = plan->shape.encoder_layers;
    const wefti_layer_run *run = &plan->parts[part];
    if (run->layers_end <= before) {
        return (wefti_layer_run){0, 0};
    }
    return (wefti_layer_run){
        run->first_layer > before ? run->first_layer - before : 0,
        run->layers_end - before};
}

static size_t count_layers(const wefti_parameters *plan)
{
    size_t layers = 0;
    for (size_t i = 0; i < plan->part_count; i++) {
        const wefti_layer_run run = decoder_run(plan, i);
        layers += run.layers_end - run.first_layer;
    }
    return layers;
}

/* The turn of a layer of one of the plan's parts. */
static turn *find(const wefti_experts *experts, wefti_expert_turn of)
{
    const wefti_parameters *plan = experts->config.plan;
    size_t before = 0;
    for (size_t i = 0; i < plan->part_count; i++) {
        const wefti_layer_run run = decoder_run(plan, i);
        if (of.layer >= run.first_layer && of.layer < run.layers_end) {
            size_t layer = before + of.layer - run.first_layer;
            return &experts->turns[layer * experts->config.slots + of.slot];
        }
        before += run.layers_end - run.first_layer;
    }
    WEFTI_ASSERT(!"a layer of another rank");
    return NULL;
}

double wefti_experts_bytes(const wefti_experts_config *config)
{
    const wefti_model_shape *shape = &config->plan->shape;
    const double turns =
        (double)count_layers(config->plan) * (double)config->slots;
    const double row =
        (double)(shape->hidden * weft_dtype_bytes(wefti_model_dtype(shape)));
    const double room = (double)wefti_experts_room(config->plan, 1);
    return (double)config->tokens * row *
           (turns * room + 2 * (double)config->plan->expert_parts);
}

/* ---- making it ------------------------------------------------------------
 */

static size_t count_chosen(const wefti_experts *experts, size_t tokens)
{
    return tokens * experts->config.plan->shape.experts_per_token;
}

static weft_status make_slots(const wefti_experts *experts, turn *own)
{
    const size_t count = count_chosen(experts, experts->config.tokens);
    own->slots = calloc(count, sizeof(*own->slots));
    return own->slots ? WEFT_OK
                      : wefti_error(WEFT_ERR_NO_MEMORY,
                                    "no memory for slots of %zu", count);
}

static weft_status make_turns(wefti_experts *experts)
{
    const size_t count =
        count_layers(experts->config.plan) * experts->config.slots;
    weft_status status = WEFT_OK;
    experts->turns = calloc(count, sizeof(*experts->turns));
    if (!experts->turns) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu turns",
                           count);
    }
    for (; experts->turn_count < count && status == WEFT_OK;
         experts->turn_count++) {
        turn *own = &experts->turns[experts->turn_count];
        own->batch.size_bytes = sizeof(own->batch);
        status = weft_event_create(experts->config.device, &own->done);
        if (status == WEFT_OK && experts->config.plan->expert_map.parts > 0) {
            status = make_slots(experts, own);
        }
    }
    return status;
}

static weft_status make_moe(wefti_experts *experts)
{
    const wefti_experts_config *config = &experts->config;
    const wefti_model_shape *shape = &config->plan->shape;
    const weft_moe_config moe = {
        .size_bytes = sizeof(moe),
        .comm = config->comm,
        .device = config->device,
        .hidden = shape->hidden,
        .experts = (int)config->plan->expert_slots,
        .slots = (int)shape->experts_per_token,
        .tokens = config->tokens,
        .capacity = wefti_experts_room(config->plan, config->tokens),
        .dtype = wefti_model_dtype(shape),
        .dispatch_dtype =
            shape->expert_narrow ? WEFT_DTYPE_F8E4M3 : wefti_model_dtype(shape),
        .combine_dtype = shape->narrow ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32,
        .batches = (int)experts->turn_count,
        .class_id = WEFT_CLASS_EP,
        .label = "experts"};
    return weft_moe_create(&moe, &experts->moe);
}

/* An exchange each way of no rows. */
static weft_status try_turn(wefti_experts *experts, turn *own)
{
    weft_moe *moe = experts->moe;
    weft_stream *stream = experts->stream;
    weft_status status =
        weft_moe_dispatch(moe, NULL, NULL, NULL, 0, stream, &own->batch);
    void *rows = own->batch.rows;
    if (status == WEFT_OK) {
        status = weft_moe_combine(moe, &own->batch, rows, NULL, stream);
    }
    if (status == WEFT_OK) {
        status = weft_moe_combine_gradient(moe, &own->batch, NULL, rows, rows,
                                           rows, stream);
    }
    return status == WEFT_OK ? weft_moe_dispatch_gradient(moe, &own->batch,
                                                          rows, NULL, stream)
                             : status;
}

/*
 * On a device, a turn's rows can be computed with before any have come, and
 * kernels are there: the first launch of one may wait for all that is queued.
 */
static weft_status try_turns(wefti_experts *experts)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < experts->turn_count && status == WEFT_OK; i++) {
        status = try_turn(experts, &experts->turns[i]);
        if (status == WEFT_OK) {
            status = weft_stream_wait(experts->stream);
        }
    }
    return status;
}

weft_status wefti_experts_create(const wefti_experts_config *config,
                                 wefti_experts **experts_out)
{
    wefti_experts *experts = calloc(1, sizeof(*experts));
    if (!experts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for experts");
    }
    experts->config = *config;
    experts->rank = (size_t)weft_comm_get_rank(config->comm);
    weft_status status = make_turns(experts);
    if (status == WEFT_OK) {
        status = weft_event_create(config->device, &experts->computed);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(config->device, 0, &experts->stream);
    }
    if (status == WEFT_OK) {
        status = make_moe(experts);
    }
    if (status == WEFT_OK && config->compute) {
        status = try_turns(experts);
    }
    if (status != WEFT_OK) {
        wefti_experts_destroy(experts);
        return status;
    }
    *experts_out = experts;
    return WEFT_OK;
}

void wefti_experts_destroy(wefti_experts *experts)
{
    if (!experts) {
        return;
    }
    if (experts->stream) {
        (void)!weft_stream_wait(experts->stream);
    }
    weft_moe_destroy(experts->moe);
    for (size_t i = 0; i < experts->turn_count; i++) {
        weft_event_destroy(experts->turns[i].done);
        free(experts->turns[i].slots);
        wefti_storage_free_on(experts->config.device, experts->turns[i].chosen);
    }
    weft_event_destroy(experts->computed);
    weft_stream_destroy(experts->stream);
    free(experts->turns);
    free(experts);
}

/* ---- who is chosen, again -------------------------------------------------
 */

weft_status wefti_experts_record(wefti_experts *experts)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; experts && i < experts->turn_count && status == WEFT_OK;
         i++) {
        turn *own = &experts->turns[i];
        if (!own->chosen) {
            status = wefti_storage_alloc_on(
                experts->config.device, experts->config.compute,
                count_chosen(experts, experts->config.tokens), &own->chosen);
        }
    }
    return status;
}

bool wefti_experts_overlap(const wefti_experts *experts)
{
    return experts->config.overlaps;
}

void wefti_experts_set(wefti_experts *experts, bool blocking, bool replays)
{
    if (experts) {
        experts->blocking = blocking;
        experts->replays = replays;
    }
}

/* What is dispatched by: as chosen now, or then. */
static weft_status choose(const wefti_experts *experts, const turn *own,
                          size_t tokens, const int32_t **expert)
{
    if (!own->chosen) {
        return WEFT_OK;
    }
    if (experts->replays) {
        *expert = (const int32_t *)own->chosen;
        return WEFT_OK;
    }
    return weft_device_copy(experts->config.device, own->chosen, *expert,
                            count_chosen(experts, tokens) * sizeof(int32_t),
                            experts->config.compute);
}

/* Where this token's expert is: replicas take turns, from another one on each
 * rank. What is no expert stays as it is, which the dispatch finds. */
static int32_t find_slot(const wefti_experts *experts, size_t layer,
                         size_t token, int32_t expert)
{
    const wefti_expert_map *map = &experts->config.plan->expert_map;
    if (expert < 0 || (size_t)expert >= map->experts) {
        return expert < 0 ? expert : (int32_t)map->slots;
    }
    size_t count;
    const int32_t *slots =
        wefti_expert_map_slots(map, layer, (size_t)expert, &count);
    return slots[(token + experts->rank) % count];
}

/* The host computes: it may read experts now. */
static const int32_t *find_slots(const wefti_experts *experts, const turn *own,
                                 size_t layer, const int32_t *expert,
                                 size_t tokens)
{
    const size_t each = experts->config.plan->shape.experts_per_token;
    if (!own->slots) {
        return expert;
    }
    for (size_t i = 0; i < tokens * each; i++) {
        own->slots[i] = find_slot(experts, layer, i / each, expert[i]);
    }
    return own->slots;
}

/* ---- exchanges ------------------------------------------------------------
 */

/* Behind what has been computed so far. */
static weft_status begin(wefti_experts *experts)
{
    weft_status status =
        weft_event_post(experts->computed, experts->config.compute);
    return status == WEFT_OK
               ? weft_event_wait(experts->computed, experts->stream)
               : status;
}

/* Where the host computes: no compute goes on meanwhile. */
static weft_status wait_here(const wefti_experts *experts, const turn *own)
{
    const wefti_experts_config *config = &experts->config;
    if (config->stop) {
        config->stop(config->context);
    }
    weft_status status = weft_event_wait(own->done, NULL);
    if (config->resume) {
        config->resume(config->context);
    }
    return status;
}

static weft_status end(wefti_experts *experts, turn *own, weft_status status)
{
    if (status == WEFT_OK) {
        status = weft_event_post(own->done, experts->stream);
    }
    if (status != WEFT_OK || (experts->config.overlaps && !experts->blocking)) {
        return status;
    }
    return experts->config.compute
               ? weft_event_wait(own->done, experts->config.compute)
               : wait_here(experts, own);
}

weft_status wefti_experts_dispatch(wefti_experts *experts,
                                   wefti_expert_turn turn_of, const void *x,
                                   const int32_t *expert, const real *weight,
                                   size_t tokens)
{
    turn *own = find(experts, turn_of);
    weft_moe_batch_fini(experts->moe, &own->batch);
    weft_status status = choose(experts, own, tokens, &expert);
    if (status == WEFT_OK) {
        expert = find_slots(experts, own, turn_of.layer, expert, tokens);
        status = begin(experts);
    }
    return end(experts, own,
               status == WEFT_OK
                   ? weft_moe_dispatch(experts->moe, x, expert,
                                       (const float *)weight, tokens,
                                       experts->stream, &own->batch)
                   : status);
}

weft_status wefti_experts_combine(wefti_experts *experts,
                                  wefti_expert_turn turn_of, const void *y,
                                  void *out)
{
    turn *own = find(experts, turn_of);
    weft_status status = begin(experts);
    return end(experts, own,
               status == WEFT_OK ? weft_moe_combine(experts->moe, &own->batch,
                                                    y, out, experts->stream)
                                 : status);
}

weft_status wefti_experts_combine_gradient(wefti_experts *experts,
                                           wefti_expert_turn turn_of,
                                           const void *dout, const void *y,
                                           void *dy, real *dweight)
{
    turn *own = find(experts, turn_of);
    weft_status status = begin(experts);
    return end(experts, own,
               status == WEFT_OK ? weft_moe_combine_gradient(
                                       experts->moe, &own->batch, dout, y, dy,
                                       (float *)dweight, experts->stream)
                                 : status);
}

weft_status wefti_experts_dispatch_gradient(wefti_experts *experts,
                                            wefti_expert_turn turn_of,
                                            const void *drows, void *dx)
{
    turn *own = find(experts, turn_of);
    weft_status status = begin(experts);
    return end(experts, own,
               status == WEFT_OK
                   ? weft_moe_dispatch_gradient(experts->moe, &own->batch,
                                                drows, dx, experts->stream)
                   : status);
}

/* What has ended an exchange. */
weft_status wefti_experts_check(const wefti_experts *experts)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    if (!experts) {
        return WEFT_OK;
    }
    weft_status status = weft_comm_get_fault(experts->config.comm, &fault);
    return status == WEFT_OK && fault.status != WEFT_OK
               ? wefti_error(fault.status, "%s", fault.text)
               : WEFT_OK;
}

weft_status wefti_experts_await(wefti_experts *experts,
                                wefti_expert_turn turn_of, bool waits)
{
    const turn *own = find(experts, turn_of);
    weft_status status;
    if (experts->config.compute) {
        return weft_event_wait(own->done, experts->config.compute);
    }
    status = weft_event_test(own->done);
    if (status == WEFT_INPROGRESS && waits) {
        status = wait_here(experts, own);
    }
    return status == WEFT_OK ? wefti_experts_check(experts) : status;
}

const void *wefti_experts_rows(const wefti_experts *experts,
                               wefti_expert_turn turn_of)
{
    return find(experts, turn_of)->batch.rows;
}

const int32_t *wefti_experts_counts(const wefti_experts *experts,
                                    wefti_expert_turn turn_of)
{
    return find(experts, turn_of)->batch.expert_rows;
}

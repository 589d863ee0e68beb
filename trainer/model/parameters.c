/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/parameters.c - the flat layout of a model's parameters.
 */
#include "trainer/model/parameters.h"

#include "base/check.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

size_t wefti_tensor_embedding(const wefti_parameters *plan)
{
    return plan->modules[wefti_encoder_modules(&plan->shape)];
}

size_t wefti_tensor_of_layer(const wefti_parameters *plan, size_t layer)
{
    const size_t before = plan->shape.encoder_layers;
    return plan->modules[1 + layer + (layer < before ? 0 : before > 0 ? 2 : 0)];
}

size_t wefti_tensor_final_norm(const wefti_parameters *plan)
{
    return plan
        ->modules[wefti_encoder_modules(&plan->shape) + 1 + plan->shape.layers];
}

size_t wefti_tensor_bridge(const wefti_parameters *plan)
{
    return plan->modules[1 + plan->shape.encoder_layers];
}

wefti_layer_ends wefti_layer_run_ends(const wefti_model_shape *shape,
                                      const wefti_layer_run *run)
{
    const bool encoder = run->first_layer < shape->encoder_layers;
    const size_t first = encoder ? 0 : shape->encoder_layers;
    const size_t end =
        encoder ? shape->encoder_layers : wefti_model_layers(shape);
    return (wefti_layer_ends){.encoder = encoder,
                              .first = run->first_layer == first,
                              .last = run->layers_end == end};
}

size_t wefti_tensor_head(const wefti_parameters *plan)
{
    return plan->shape.tied && !plan->copies_head
               ? wefti_tensor_embedding(plan)
               : wefti_tensor_final_norm(plan) + 1;
}

/* Into how many parts a piece's rows go. */
static size_t count_parts(const wefti_tensor_piece *piece, size_t parts)
{
    return piece->units > 0 && piece->units < parts ? piece->units : parts;
}

/* Ranks in a row that have the same rows of its last piece. */
static size_t count_sharers(const wefti_tensor_info *info, size_t parts)
{
    return info->split == WEFTI_SPLIT_ROW && info->piece_count > 0
               ? parts /
                     count_parts(&info->pieces[info->piece_count - 1], parts)
               : 1;
}

size_t wefti_tensor_square_blocks(const wefti_parameters *plan,
                                  const wefti_tensor *tensor)
{
    const size_t parts = plan->tensor.parts > 1 ? plan->tensor.parts : 1;
    const size_t blocks =
        round_up(wefti_tensor_elems(&tensor->info), WEFTI_BLOCK_ELEMS) /
        WEFTI_BLOCK_ELEMS;
    /* What is shared begins with a block of its own, in each part. */
    return blocks + (count_sharers(&tensor->info, parts) > 1 ? 2 : 0);
}

static void number_blocks(wefti_parameters *plan, wefti_tensor *tensor)
{
    tensor->first_block = plan->block_count;
    plan->block_count += wefti_tensor_square_blocks(plan, tensor);
    plan->parameter_count += wefti_tensor_elems(&tensor->info);
}

/* Which part of a tensor this rank would have. */
static void find_part(const wefti_parameters_config *config,
                      wefti_tensor *tensor)
{
    const bool tensors = config->tensor.parts > 1;
    switch (tensor->info.split) {
    case WEFTI_SPLIT_NONE:
        tensor->parts = 1;
        break;
    case WEFTI_SPLIT_EXPERT:
        tensor->parts = config->expert_parts;
        tensor->part = config->expert_part;
        break;
    case WEFTI_SPLIT_ROW:
    case WEFTI_SPLIT_COLUMN:
    case WEFTI_SPLIT_VOCABULARY:
        tensor->parts = tensors ? config->tensor.parts : 1;
        tensor->part = tensors ? config->tensor.part : 0;
        break;
    }
}

/* Rows of a piece that are here. */
static size_t piece_rows(const wefti_tensor *tensor,
                         const wefti_tensor_piece *piece)
{
    return piece->rows / count_parts(piece, tensor->parts);
}

/* Where what other ranks have as well begins, and whether it is this one's. */
static void find_shared(const wefti_parameters_config *config,
                        wefti_tensor *tensor)
{
    const wefti_tensor_info *info = &tensor->info;
    const size_t tensors = config->tensor.parts > 1 ? config->tensor.parts : 1;
    tensor->sharers = info->split == WEFTI_SPLIT_NONE
                          ? tensors
                          : count_sharers(info, tensor->parts);
    tensor->counts = tensors == 1 || tensor->sharers == 1 ||
                     config->tensor.part % tensor->sharers == 0;
    tensor->shared_elems = wefti_tensor_here_elems(tensor);
    if (info->split == WEFTI_SPLIT_NONE && tensors > 1) {
        tensor->shared_elems = 0;
    } else if (tensor->sharers > 1) {
        tensor->shared_elems = 0;
        for (size_t k = 0; k < info->piece_count; k++) {
            const wefti_tensor_piece *piece = &info->pieces[k];
            tensor->shared_elems +=
                count_parts(piece, tensor->parts) == tensor->parts
                    ? piece_rows(tensor, piece) * info->columns
                    : 0;
        }
    }
}

/* Whose experts' slots may have others. */
static weft_status follow_map(const wefti_parameters *plan,
                              const wefti_parameters_config *config,
                              wefti_tensor *tensor)
{
    const wefti_tensor_info *info = &tensor->info;
    const wefti_expert_map *map = &plan->expert_map;
    if (config->expert_slots == 0) {
        return WEFT_OK;
    }
    const size_t first = tensor->part * wefti_expert_map_each(map);
    tensor->slot_elems = wefti_tensor_elems(info) / map->experts;
    if (tensor->slot_elems % WEFTI_BLOCK_ELEMS) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: experts of %zu elements: those that may move "
                           "have multiples of %d",
                           info->name, tensor->slot_elems, WEFTI_BLOCK_ELEMS);
    }
    const size_t layer = wefti_tensor_decoder_layer(plan, tensor);
    tensor->experts = wefti_expert_map_experts(map, layer) + first;
    tensor->replicas = wefti_expert_map_replicas(map, layer) + first;
    tensor->rows = info->rows / map->experts * wefti_expert_map_each(map);
    return WEFT_OK;
}

/* What of it that is. */
static weft_status split(const wefti_parameters *plan,
                         const wefti_parameters_config *config,
                         wefti_tensor *tensor)
{
    const wefti_tensor_info *info = &tensor->info;
    find_part(config, tensor);
    const size_t parts = tensor->parts;
    const bool experts = info->split == WEFTI_SPLIT_EXPERT;
    WEFTI_ASSERT(parts > 0);
    if (experts && parts > 1 && config->expert_slots == 0 &&
        (info->rows % parts != 0 ||
         wefti_tensor_elems(info) / parts % WEFTI_BLOCK_ELEMS)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %zu rows of %zu in %zu parts: allowed are "
                           "parts of whole rows and multiples of %d elements",
                           info->name, info->rows, info->columns, parts,
                           WEFTI_BLOCK_ELEMS);
    }
    const bool columns = info->split == WEFTI_SPLIT_COLUMN;
    tensor->rows = columns ? info->rows : info->rows / parts;
    if (info->split == WEFTI_SPLIT_ROW && info->piece_count > 0) {
        tensor->rows = 0;
        for (size_t k = 0; k < info->piece_count; k++) {
            tensor->rows += piece_rows(tensor, &info->pieces[k]);
        }
    }
    tensor->columns = columns ? info->columns / parts : info->columns;
    tensor->square_block = tensor->first_block;
    if (experts) {
        tensor->square_block +=
            tensor->part * tensor->rows * tensor->columns / WEFTI_BLOCK_ELEMS;
    }
    weft_status status = experts ? follow_map(plan, config, tensor) : WEFT_OK;
    find_shared(config, tensor);
    return status;
}

/* The head beside the embedding, which has its numbers. */
static void add_copy(wefti_parameters *plan)
{
    wefti_tensor *copy = &plan->tensors[plan->tensor_count++];
    *copy = plan->tensors[wefti_tensor_embedding(plan)];
    copy->copy = true;
    copy->info.module = plan->tensors[plan->tensor_count - 2].info.module;
    snprintf(copy->info.name, sizeof(copy->info.name), "head");
}

/* The list's tensors, and the copy. */
static weft_status number_tensors(wefti_parameters *plan,
                                  const wefti_parameters_config *config,
                                  const wefti_tensor_list *list)
{
    weft_status status = WEFT_OK;
    plan->tensors = calloc(list->count + 1, sizeof(*plan->tensors));
    plan->modules = calloc(list->module_count, sizeof(*plan->modules));
    if (!plan->tensors || !plan->modules) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the layout of %zu tensors",
                           list->count);
    }
    memcpy(plan->modules, list->modules,
           list->module_count * sizeof(*plan->modules));
    for (size_t i = 0; i < list->count && status == WEFT_OK; i++) {
        wefti_tensor *tensor = &plan->tensors[plan->tensor_count++];
        tensor->info = list->items[i];
        number_blocks(plan, tensor);
        status = split(plan, config, tensor);
    }
    if (plan->copies_head && status == WEFT_OK) {
        add_copy(plan);
    }
    return status;
}

/* Ends the group's open bucket, which holds used elements. */
static void close_bucket(wefti_group_plan *group, size_t used)
{
    size_t share =
        round_up(used, group->nranks * WEFTI_BLOCK_ELEMS) / group->nranks;
    group->buckets[group->bucket_count++] =
        (weft_bucket_extent){group->flat_elems, share};
    group->flat_elems += share * group->nranks;
    group->own_elems += share;
}

/*
 * When bucket number is closed. The first ones are small: their gradients are
 * final last and their parameters needed first, so nothing hides them.
 */
static size_t closing_bytes(size_t number, size_t bucket_bytes)
{
    size_t part = number < 2 ? 4 : number < 4 ? 2 : 1;
    return bucket_bytes / part;
}

/* Whether a tensor is alone in its bucket. */
static bool is_alone(const wefti_parameters *plan, size_t tensor)
{
    return plan->copies_head && (tensor == wefti_tensor_embedding(plan) ||
                                 tensor == wefti_tensor_head(plan));
}

/* Of tensors first .. end - 1 the group's, in buckets of their own. */
static void place_tensors(wefti_parameters *plan, size_t number, size_t first,
                          size_t end, size_t bucket_bytes)
{
    wefti_group_plan *group = &plan->groups[number];
    size_t used = 0; /* of the open bucket */
    for (size_t i = first; i < end; i++) {
        wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->info.group != number) {
            continue;
        }
        if (used > 0 && is_alone(plan, i)) {
            close_bucket(group, used);
            used = 0;
        }
        tensor->here = true;
        tensor->bucket = group->bucket_count;
        tensor->opens = used == 0;
        tensor->start_elems = group->flat_elems + used;
        used +=
            round_up(wefti_tensor_here_elems(tensor), WEFTI_TENSOR_ALIGN_ELEMS);
        if (is_alone(plan, i) ||
            used * sizeof(real) >=
                closing_bytes(group->bucket_count, bucket_bytes)) {
            close_bucket(group, used);
            used = 0;
        }
    }
    if (used > 0) {
        close_bucket(group, used);
    }
}

/* A part's, with its branch's ends. Of the whole chain all. */
static void find_tensors(const wefti_parameters *plan,
                         const wefti_layer_run *part, size_t *first_out,
                         size_t *end_out)
{
    const wefti_model_shape *shape = &plan->shape;
    const wefti_layer_ends ends = wefti_layer_run_ends(shape, part);
    const size_t decoder = wefti_tensor_embedding(plan);
    *first_out = !ends.first    ? wefti_tensor_of_layer(plan, part->first_layer)
                 : ends.encoder ? 0
                                : decoder;
    *end_out = part->layers_end == wefti_model_layers(shape)
                   ? plan->tensor_count
               : ends.last ? decoder
                           : wefti_tensor_of_layer(plan, part->layers_end);
}

static void place_parts(wefti_parameters *plan, size_t number,
                        size_t bucket_bytes)
{
    wefti_group_plan *group = &plan->groups[number];
    for (size_t i = 0; i < plan->part_count; i++) {
        const wefti_layer_run *part = &plan->parts[i];
        size_t first, end;
        find_tensors(plan, part, &first, &end);
        group->parts[i].first = group->bucket_count;
        place_tensors(plan, number, first, end, bucket_bytes);
        group->parts[i].end = group->bucket_count;
    }
    plan->bucket_count += group->bucket_count;
    plan->flat_elems += group->flat_elems;
    plan->own_elems += group->own_elems;
}

static weft_status take_room(wefti_parameters *plan,
                             const wefti_layer_run *parts)
{
    size_t most = plan->tensor_count; /* buckets */
    bool whole = true;
    plan->parts = calloc(plan->part_count, sizeof(*plan->parts));
    for (size_t i = 0; i < plan->group_count; i++) {
        wefti_group_plan *group = &plan->groups[i];
        group->buckets = calloc(most, sizeof(*group->buckets));
        group->parts = calloc(plan->part_count, sizeof(*group->parts));
        whole = whole && group->buckets && group->parts;
    }
    if (!plan->parts || !whole) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the layout of %zu tensors", most);
    }
    memcpy(plan->parts, parts, plan->part_count * sizeof(*parts));
    return WEFT_OK;
}

static wefti_model_shape own_shape(const wefti_parameters_config *config,
                                   const wefti_model_shape *shape)
{
    const size_t parts = config->tensor.parts > 1 ? config->tensor.parts : 1;
    wefti_model_shape own = *shape;
    own.heads /= parts;
    own.kv_heads = parts > own.kv_heads ? 1 : own.kv_heads / parts;
    own.ffn /= parts;
    own.vocab /= parts;
    return own;
}

weft_status wefti_parameters_plan_list(const wefti_parameters_config *config,
                                       const wefti_tensor_list *list,
                                       wefti_parameters *plan_out)
{
    const wefti_model_shape encoder = wefti_model_encoder(&config->shape);
    WEFTI_ASSERT(config->part_count > 0);
    *plan_out = (wefti_parameters){
        .shape = config->shape,
        .own = own_shape(config, &config->shape),
        .encoder = own_shape(config, &encoder),
        .tensor = config->tensor,
        .part_count = config->part_count,
        .group_count = list->group_count,
        .expert_parts = config->expert_parts,
        .expert_slots = config->expert_slots > 0 ? config->expert_slots
                                                 : config->shape.experts,
        .copies_head = config->shape.tied && config->cut};
    weft_status status = WEFT_OK;
    if (config->expert_slots > 0) {
        status = wefti_expert_map_init(
            &plan_out->expert_map, config->shape.layers, config->shape.experts,
            config->expert_slots, config->expert_parts);
    }
    if (status == WEFT_OK) {
        status = number_tensors(plan_out, config, list);
    }
    if (status == WEFT_OK) {
        status = take_room(plan_out, config->parts);
    }
    if (status != WEFT_OK) {
        wefti_parameters_fini(plan_out);
        return status;
    }
    for (size_t i = 0; i < plan_out->group_count; i++) {
        WEFTI_ASSERT(config->nranks[i] > 0);
        plan_out->groups[i].nranks = config->nranks[i];
        place_parts(plan_out, i, config->bucket_bytes);
    }
    return WEFT_OK;
}

weft_status wefti_parameters_plan(const wefti_model_shape *shape,
                                  size_t bucket_bytes, size_t nranks,
                                  wefti_parameters *plan_out)
{
    const wefti_layer_run whole = {.layers_end = wefti_model_layers(shape)};
    const wefti_parameters_config config = {.shape = *shape,
                                            .bucket_bytes = bucket_bytes,
                                            .nranks = {nranks, nranks},
                                            .expert_parts = 1,
                                            .parts = &whole,
                                            .part_count = 1};
    wefti_tensor_list list;
    weft_status status = wefti_tensor_list_init(&list, shape);
    if (status == WEFT_OK) {
        status = wefti_parameters_plan_list(&config, &list, plan_out);
        wefti_tensor_list_fini(&list);
    }
    return status;
}

void wefti_parameters_fini(wefti_parameters *plan)
{
    free(plan->tensors);
    free(plan->modules);
    free(plan->parts);
    wefti_expert_map_fini(&plan->expert_map);
    for (size_t i = 0; i < plan->group_count; i++) {
        free(plan->groups[i].buckets);
        free(plan->groups[i].parts);
    }
    *plan = (wefti_parameters){0};
}

size_t wefti_tensor_here_elems(const wefti_tensor *tensor)
{
    return tensor->rows * tensor->columns;
}

/* Of each piece the same part of its rows. */
static wefti_tensor_stretch find_rows(const wefti_tensor *tensor, size_t here)
{
    const wefti_tensor_info *info = &tensor->info;
    const size_t count = info->split == WEFTI_SPLIT_ROW ? info->piece_count : 0;
    size_t whole = 0, own = 0; /* where the piece begins */
    size_t rows = info->rows, parts = tensor->parts;
    for (size_t k = 0; k < count; k++) {
        rows = info->pieces[k].rows;
        parts = count_parts(&info->pieces[k], tensor->parts);
        size_t elems = rows / parts * info->columns;
        if (k + 1 == count || here < own + elems) {
            break;
        }
        own += elems;
        whole += rows * info->columns;
    }
    const size_t elems = rows / parts * info->columns;
    const size_t part = tensor->part * parts / tensor->parts;
    return (wefti_tensor_stretch){.here = here,
                                  .whole = whole + part * elems + (here - own),
                                  .elems = own + elems - here};
}

/* In the slot that the element is in. */
static wefti_tensor_stretch find_slot(const wefti_tensor *tensor, size_t here)
{
    const size_t slot = here / tensor->slot_elems;
    const size_t expert = (size_t)tensor->experts[slot];
    const size_t past = here - slot * tensor->slot_elems;
    return (wefti_tensor_stretch){.here = here,
                                  .whole = expert * tensor->slot_elems + past,
                                  .elems = tensor->slot_elems - past};
}

size_t wefti_tensor_square_block(const wefti_tensor *tensor, size_t here,
                                 size_t *end_out)
{
    if (tensor->experts) {
        const wefti_tensor_stretch slot = find_slot(tensor, here);
        *end_out = here + slot.elems;
        return tensor->first_block + slot.whole / WEFTI_BLOCK_ELEMS;
    }
    *end_out = wefti_tensor_here_elems(tensor);
    return tensor->square_block + here / WEFTI_BLOCK_ELEMS;
}

bool wefti_tensor_is_replica(const wefti_tensor *tensor, size_t here,
                             size_t *end_out)
{
    *end_out = wefti_tensor_here_elems(tensor);
    if (!tensor->experts) {
        return false;
    }
    const size_t slot = here / tensor->slot_elems;
    *end_out = (slot + 1) * tensor->slot_elems;
    return tensor->replicas[slot] > 0;
}

wefti_tensor_stretch wefti_tensor_find(const wefti_tensor *tensor, size_t here)
{
    if (tensor->experts) {
        return find_slot(tensor, here);
    }
    if (tensor->rows == tensor->info.rows &&
        tensor->columns == tensor->info.columns) {
        const size_t all = wefti_tensor_here_elems(tensor);
        return (wefti_tensor_stretch){here, here, all - here};
    }
    if (tensor->columns == tensor->info.columns) {
        return find_rows(tensor, here);
    }
    const size_t row = here / tensor->columns, column = here % tensor->columns;
    return (wefti_tensor_stretch){.here = here,
                                  .whole = row * tensor->info.columns +
                                           tensor->part * tensor->columns +
                                           column,
                                  .elems = tensor->columns - column};
}

void wefti_tensor_take(const wefti_tensor *tensor, const real *whole,
                       real *here_out)
{
    const size_t all = wefti_tensor_here_elems(tensor);
    for (size_t at = 0; at < all;) {
        const wefti_tensor_stretch next = wefti_tensor_find(tensor, at);
        memcpy(here_out + at, whole + next.whole,
               next.elems * sizeof(*here_out));
        at += next.elems;
    }
}

void wefti_tensor_put(const wefti_tensor *tensor, const real *here,
                      real *whole_out)
{
    const size_t all = wefti_tensor_here_elems(tensor);
    for (size_t at = 0, end; at < all;) {
        const wefti_tensor_stretch next = wefti_tensor_find(tensor, at);
        const bool counts = !wefti_tensor_is_replica(tensor, at, &end);
        memcpy(whole_out + next.whole, here + at,
               (counts ? next.elems : 0) * sizeof(*whole_out));
        at += next.elems;
    }
}

size_t wefti_parameters_largest(const wefti_parameters *plan)
{
    size_t most = 0;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        size_t elems = wefti_tensor_elems(&plan->tensors[i].info);
        most = elems > most ? elems : most;
    }
    return most;
}

bool wefti_tensor_cut(const wefti_parameters *plan, const wefti_tensor *tensor,
                      size_t rank, wefti_tensor_share *share_out)
{
    if (!tensor->here) {
        return false;
    }
    const wefti_group_plan *group = &plan->groups[tensor->info.group];
    const weft_bucket_extent *bucket = &group->buckets[tensor->bucket];
    size_t share = bucket->start_elems + rank * bucket->share_elems;
    size_t share_end = share + bucket->share_elems;
    size_t from = tensor->start_elems;
    size_t end = from + wefti_tensor_here_elems(tensor);
    from = from > share ? from : share;
    end = end < share_end ? end : share_end;
    if (from >= end) {
        return false;
    }
    *share_out = (wefti_tensor_share){
        .start_elems = from,
        /* Of the buckets before, each rank has the same. */
        .own_elems = bucket->start_elems / group->nranks + (from - share),
        .offset_elems = from - tensor->start_elems,
        .elems = end - from,
        .padded_elems = round_up(end - from, WEFTI_BLOCK_ELEMS)};
    return true;
}

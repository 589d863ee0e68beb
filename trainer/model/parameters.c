/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/parameters.c - the flat layout of a model's parameters.
 */
#include "trainer/model/parameters.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

size_t wefti_tensor_embedding(void)
{
    return 0;
}

size_t wefti_tensor_of_layer(const wefti_parameters *plan, size_t layer)
{
    return plan->modules[1 + layer];
}

size_t wefti_tensor_final_norm(const wefti_parameters *plan)
{
    return plan->modules[1 + plan->shape.layers];
}

size_t wefti_tensor_head(const wefti_parameters *plan)
{
    return plan->shape.tied && !plan->copies_head
               ? wefti_tensor_embedding()
               : wefti_tensor_final_norm(plan) + 1;
}

static void number_blocks(wefti_parameters *plan, wefti_tensor *tensor)
{
    size_t elems = wefti_tensor_elems(&tensor->info);
    tensor->first_block = plan->block_count;
    plan->block_count += round_up(elems, WEFTI_BLOCK_ELEMS) / WEFTI_BLOCK_ELEMS;
    plan->parameter_count += elems;
}

/* Which rows of a tensor this rank would have. */
static weft_status split(const wefti_parameters_config *config,
                         wefti_tensor *tensor)
{
    const wefti_tensor_info *info = &tensor->info;
    size_t parts = info->split == WEFTI_SPLIT_EXPERT ? config->expert_parts : 1;
    WEFTI_ASSERT(parts > 0);
    if (parts > 1 && (info->rows % parts != 0 ||
                      wefti_tensor_elems(info) / parts % WEFTI_BLOCK_ELEMS)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %zu rows of %zu in %zu parts: allowed are "
                           "parts of whole rows and multiples of %d elements",
                           info->name, info->rows, info->columns, parts,
                           WEFTI_BLOCK_ELEMS);
    }
    tensor->rows = info->rows / parts;
    tensor->first_row = parts > 1 ? config->expert_part * tensor->rows : 0;
    return WEFT_OK;
}

/* The head beside the embedding, which has its numbers. */
static void add_copy(wefti_parameters *plan)
{
    wefti_tensor *copy = &plan->tensors[plan->tensor_count++];
    *copy = plan->tensors[wefti_tensor_embedding()];
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
        status = split(config, tensor);
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
    return plan->copies_head && (tensor == wefti_tensor_embedding() ||
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

static void place_parts(wefti_parameters *plan, size_t number,
                        size_t bucket_bytes)
{
    wefti_group_plan *group = &plan->groups[number];
    for (size_t i = 0; i < plan->part_count; i++) {
        const wefti_layer_run *part = &plan->parts[i];
        size_t first = part->first_layer == 0
                           ? wefti_tensor_embedding()
                           : wefti_tensor_of_layer(plan, part->first_layer);
        size_t end = part->layers_end == plan->shape.layers
                         ? plan->tensor_count
                         : wefti_tensor_of_layer(plan, part->layers_end);
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

weft_status wefti_parameters_plan_list(const wefti_parameters_config *config,
                                       const wefti_tensor_list *list,
                                       wefti_parameters *plan_out)
{
    WEFTI_ASSERT(config->part_count > 0);
    *plan_out =
        (wefti_parameters){.shape = config->shape,
                           .part_count = config->part_count,
                           .group_count = list->group_count,
                           .expert_parts = config->expert_parts,
                           .copies_head = config->shape.tied && config->cut};
    weft_status status = number_tensors(plan_out, config, list);
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
    const wefti_layer_run whole = {.layers_end = shape->layers};
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
    for (size_t i = 0; i < plan->group_count; i++) {
        free(plan->groups[i].buckets);
        free(plan->groups[i].parts);
    }
    *plan = (wefti_parameters){0};
}

/* The standard deviation a tensor starts with. */
static double start_deviation(const wefti_parameters *plan,
                              const wefti_start *start,
                              const wefti_tensor *tensor)
{
    double by_fan_in = start->scale / sqrt((double)tensor->info.columns);
    switch (tensor->info.kind) {
    case WEFTI_TENSOR_INPUT:
        return by_fan_in;
    case WEFTI_TENSOR_OUTPUT:
        /* Two writes a layer: the residual's size stays even with depth. */
        return by_fan_in / sqrt(2.0 * (double)plan->shape.layers);
    case WEFTI_TENSOR_EMBEDDING:
        /* A tied embedding is also the head, and must guess evenly. */
        return plan->shape.tied ? start->head : start->embedding;
    case WEFTI_TENSOR_BIAS:
        return 0;
    case WEFTI_TENSOR_HEAD:
    case WEFTI_TENSOR_NORM:
        break;
    }
    return start->head;
}

void wefti_parameters_init(const wefti_parameters *plan, uint64_t seed,
                           const wefti_start *start, real *const *values_out)
{
    for (size_t i = 0; i < plan->group_count; i++) {
        memset(values_out[i], 0, plan->groups[i].flat_elems * sizeof(real));
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (!tensor->here) {
            continue;
        }
        real *values = values_out[tensor->info.group] + tensor->start_elems;
        size_t before = tensor->first_row * tensor->info.columns;
        size_t elems = wefti_tensor_here_elems(tensor);
        double deviation = start_deviation(plan, start, tensor);
        wefti_random random = wefti_random_make(
            seed, tensor->copy ? wefti_tensor_embedding() : i);
        for (size_t k = 0; k < before; k++) {
            (void)wefti_random_normal(&random);
        }
        for (size_t k = 0; k < elems; k++) {
            values[k] = tensor->info.kind == WEFTI_TENSOR_NORM
                            ? (real)1.0
                            : (real)(deviation * wefti_random_normal(&random));
        }
    }
}

size_t wefti_tensor_here_elems(const wefti_tensor *tensor)
{
    return tensor->rows * tensor->info.columns;
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
        .offset_elems = tensor->first_row * tensor->info.columns +
                        (from - tensor->start_elems),
        .elems = end - from,
        .padded_elems = round_up(end - from, WEFTI_BLOCK_ELEMS)};
    return true;
}

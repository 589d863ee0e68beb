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

size_t wefti_tensor_of_layer(size_t layer, wefti_layer_tensor which)
{
    return 1 + layer * WEFTI_LAYER_TENSORS + which;
}

size_t wefti_tensor_final_norm(const wefti_parameters *plan)
{
    return 1 + plan->shape.layers * WEFTI_LAYER_TENSORS;
}

size_t wefti_tensor_head(const wefti_parameters *plan)
{
    return plan->shape.tied && !plan->copies_head
               ? wefti_tensor_embedding()
               : wefti_tensor_final_norm(plan) + 1;
}

static void add_tensor(wefti_parameters *plan, const char *name,
                       wefti_tensor_kind kind, size_t rows, size_t columns)
{
    wefti_tensor *tensor = &plan->tensors[plan->tensor_count++];
    *tensor = (wefti_tensor){.kind = kind, .rows = rows, .columns = columns};
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->first_block = plan->block_count;
    plan->block_count +=
        round_up(rows * columns, WEFTI_BLOCK_ELEMS) / WEFTI_BLOCK_ELEMS;
    plan->parameter_count += rows * columns;
}

/* The head beside the embedding, which has its numbers. */
static void add_copy(wefti_parameters *plan)
{
    wefti_tensor *copy = &plan->tensors[plan->tensor_count++];
    *copy = plan->tensors[wefti_tensor_embedding()];
    copy->copy = true;
    snprintf(copy->name, sizeof(copy->name), "head");
}

static void add_layer(wefti_parameters *plan, size_t layer)
{
    const wefti_model_shape *shape = &plan->shape;
    size_t queries = shape->heads * shape->head_dim;
    size_t qkv = queries + 2 * shape->kv_heads * shape->head_dim;
    const struct {
        const char *name;
        wefti_tensor_kind kind;
        size_t rows, columns;
    } rows[WEFTI_LAYER_TENSORS] = {
        {"attention_norm", WEFTI_TENSOR_NORM, 1, shape->hidden},
        {"qkv", WEFTI_TENSOR_INPUT, qkv, shape->hidden},
        {"attention_out", WEFTI_TENSOR_OUTPUT, shape->hidden, queries},
        {"ffn_norm", WEFTI_TENSOR_NORM, 1, shape->hidden},
        {"gate_up", WEFTI_TENSOR_INPUT, 2 * shape->ffn, shape->hidden},
        {"down", WEFTI_TENSOR_OUTPUT, shape->hidden, shape->ffn},
    };
    for (size_t i = 0; i < WEFTI_LAYER_TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "layer%zu.%s", layer, rows[i].name);
        add_tensor(plan, name, rows[i].kind, rows[i].rows, rows[i].columns);
    }
}

static void list_tensors(wefti_parameters *plan)
{
    const wefti_model_shape *shape = &plan->shape;
    add_tensor(plan, "embedding", WEFTI_TENSOR_EMBEDDING, shape->vocab,
               shape->hidden);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        add_layer(plan, layer);
    }
    add_tensor(plan, "final_norm", WEFTI_TENSOR_NORM, 1, shape->hidden);
    if (!shape->tied) {
        add_tensor(plan, "head", WEFTI_TENSOR_HEAD, shape->vocab,
                   shape->hidden);
    } else if (plan->copies_head) {
        add_copy(plan);
    }
}

/* Ends the open bucket, which holds used elements from tensor first on. */
static void close_bucket(wefti_parameters *plan, const wefti_tensor *first,
                         size_t used)
{
    size_t share =
        round_up(used, plan->nranks * WEFTI_BLOCK_ELEMS) / plan->nranks;
    plan->buckets[plan->bucket_count] =
        (weft_bucket_extent){plan->flat_elems, share};
    plan->blocks[plan->bucket_count] = (wefti_bucket_blocks){
        first->first_block, used / WEFTI_BLOCK_ELEMS, first->copy};
    plan->bucket_count++;
    plan->flat_elems += share * plan->nranks;
    plan->own_elems += share;
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

/* Tensors first .. end - 1, in buckets of their own. */
static void place_tensors(wefti_parameters *plan, size_t first, size_t end,
                          size_t bucket_bytes)
{
    size_t used = 0;
    size_t opens = first; /* the first of the open bucket */
    for (size_t i = first; i < end; i++) {
        wefti_tensor *tensor = &plan->tensors[i];
        tensor->here = true;
        tensor->bucket = plan->bucket_count;
        tensor->start_elems = plan->flat_elems + used;
        used +=
            round_up(tensor->rows * tensor->columns, WEFTI_TENSOR_ALIGN_ELEMS);
        if (used * sizeof(real) >=
                closing_bytes(plan->bucket_count, bucket_bytes) ||
            i + 1 == end || is_alone(plan, i) || is_alone(plan, i + 1)) {
            close_bucket(plan, &plan->tensors[opens], used);
            used = 0;
            opens = i + 1;
        }
    }
}

static void place_parts(wefti_parameters *plan, size_t bucket_bytes)
{
    for (size_t i = 0; i < plan->tensor_count; i++) {
        plan->tensors[i].bucket = SIZE_MAX;
    }
    for (size_t i = 0; i < plan->part_count; i++) {
        wefti_layer_run *part = &plan->parts[i];
        size_t first = part->first_layer == 0
                           ? wefti_tensor_embedding()
                           : wefti_tensor_of_layer(part->first_layer, 0);
        size_t end = part->layers_end == plan->shape.layers
                         ? plan->tensor_count
                         : wefti_tensor_of_layer(part->layers_end, 0);
        part->first_bucket = plan->bucket_count;
        place_tensors(plan, first, end, bucket_bytes);
        part->buckets_end = plan->bucket_count;
    }
}

weft_status wefti_parameters_plan_parts(const wefti_model_shape *shape,
                                        size_t bucket_bytes, size_t nranks,
                                        const wefti_layer_run *parts,
                                        size_t part_count, bool cut,
                                        wefti_parameters *plan_out)
{
    WEFTI_ASSERT(nranks > 0);
    WEFTI_ASSERT(part_count > 0);
    size_t most = 3 + shape->layers * WEFTI_LAYER_TENSORS;
    *plan_out = (wefti_parameters){.shape = *shape,
                                   .nranks = nranks,
                                   .part_count = part_count,
                                   .copies_head = shape->tied && cut};
    plan_out->tensors = calloc(most, sizeof(*plan_out->tensors));
    plan_out->parts = calloc(part_count, sizeof(*plan_out->parts));
    plan_out->buckets = calloc(most, sizeof(*plan_out->buckets));
    plan_out->blocks = calloc(most, sizeof(*plan_out->blocks));
    if (!plan_out->tensors || !plan_out->parts || !plan_out->buckets ||
        !plan_out->blocks) {
        wefti_parameters_fini(plan_out);
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the layout of %zu tensors", most);
    }
    memcpy(plan_out->parts, parts, part_count * sizeof(*parts));
    list_tensors(plan_out);
    place_parts(plan_out, bucket_bytes);
    return WEFT_OK;
}

weft_status wefti_parameters_plan(const wefti_model_shape *shape,
                                  size_t bucket_bytes, size_t nranks,
                                  wefti_parameters *plan_out)
{
    const wefti_layer_run whole = {.layers_end = shape->layers};
    return wefti_parameters_plan_parts(shape, bucket_bytes, nranks, &whole, 1,
                                       false, plan_out);
}

void wefti_parameters_fini(wefti_parameters *plan)
{
    free(plan->tensors);
    free(plan->parts);
    free(plan->buckets);
    free(plan->blocks);
    *plan = (wefti_parameters){0};
}

/* The standard deviation a tensor starts with. */
static double start_deviation(const wefti_parameters *plan,
                              const wefti_start *start,
                              const wefti_tensor *tensor)
{
    double by_fan_in = start->scale / sqrt((double)tensor->columns);
    switch (tensor->kind) {
    case WEFTI_TENSOR_INPUT:
        return by_fan_in;
    case WEFTI_TENSOR_OUTPUT:
        /* Two writes a layer: the residual's size stays even with depth. */
        return by_fan_in / sqrt(2.0 * (double)plan->shape.layers);
    case WEFTI_TENSOR_EMBEDDING:
        /* A tied embedding is also the head, and must guess evenly. */
        return plan->shape.tied ? start->head : start->embedding;
    case WEFTI_TENSOR_HEAD:
    case WEFTI_TENSOR_NORM:
        break;
    }
    return start->head;
}

void wefti_parameters_init(const wefti_parameters *plan, uint64_t seed,
                           const wefti_start *start, real *flat_out)
{
    memset(flat_out, 0, plan->flat_elems * sizeof(*flat_out));
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (!tensor->here) {
            continue;
        }
        real *values = flat_out + tensor->start_elems;
        size_t elems = tensor->rows * tensor->columns;
        double deviation = start_deviation(plan, start, tensor);
        wefti_random random = wefti_random_make(
            seed, tensor->copy ? wefti_tensor_embedding() : i);
        for (size_t k = 0; k < elems; k++) {
            values[k] = tensor->kind == WEFTI_TENSOR_NORM
                            ? (real)1.0
                            : (real)(deviation * wefti_random_normal(&random));
        }
    }
}

size_t wefti_parameters_share(const wefti_parameters *plan, size_t bucket,
                              size_t rank)
{
    const weft_bucket_extent *extent = &plan->buckets[bucket];
    return extent->start_elems + rank * extent->share_elems;
}

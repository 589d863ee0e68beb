/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/start_values.c - what parameters begin as: noise by tensor and
 * element, wherever these are.
 */
#include "trainer/model/parameters.h"
#include "trainer/random.h"

#include <math.h>
#include <string.h>

/* Layers of the branch that a tensor is of. */
static size_t depth_of(const wefti_parameters *plan, const wefti_tensor *tensor)
{
    const size_t number = (size_t)(tensor - plan->tensors);
    return number < wefti_tensor_embedding(plan) ? plan->shape.encoder_layers
                                                 : plan->shape.layers;
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
        return by_fan_in / sqrt(2.0 * (double)depth_of(plan, tensor));
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

/* The numbers of the whole tensor come one after the other. */
static void draw(const wefti_tensor *tensor, double deviation,
                 wefti_random first, real *values)
{
    wefti_random random = first;
    const size_t all = wefti_tensor_here_elems(tensor);
    size_t drawn = 0;
    for (size_t at = 0; at < all;) {
        const wefti_tensor_stretch next = wefti_tensor_find(tensor, at);
        if (next.whole < drawn) { /* an earlier expert's, or again */
            random = first;
            drawn = 0;
        }
        for (; drawn < next.whole; drawn++) {
            (void)wefti_random_normal(&random);
        }
        for (; drawn < next.whole + next.elems; drawn++, at++) {
            values[at] = tensor->info.kind == WEFTI_TENSOR_NORM
                             ? (real)1.0
                             : (real)(deviation * wefti_random_normal(&random));
        }
    }
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
        const wefti_random random = wefti_random_make(
            seed, tensor->copy ? wefti_tensor_embedding(plan) : i);
        draw(tensor, start_deviation(plan, start, tensor), random, values);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/optimizer.c - AdamW over the pieces of tensors that a share holds.
 */
#include "trainer/optimizer.h"

#include "base/check.h"
#include "kernels/math/math_stream.h"
#include "trainer/model/storage.h"

#include <math.h>

enum { PIECE_ELEMS = 1 << 20 }; /* that is brought to the device at once */

static_assert(WEFTI_BLOCK_ELEMS == WEFTI_SUMSQ_BLOCK,
              "shares must end where blocks of the norm end");

static size_t count_arrays(const wefti_parameters *plan)
{
    return plan->shape.narrow ? 3 : 2;
}

/* No longer than a rank's share of a bucket. */
static size_t piece_of(const wefti_group_plan *group)
{
    size_t most = 0;
    for (size_t i = 0; i < group->bucket_count; i++) {
        const size_t share = group->buckets[i].share_elems;
        most = share > most ? share : most;
    }
    return most < PIECE_ELEMS ? most : PIECE_ELEMS;
}

size_t wefti_optimizer_room_bytes(const wefti_parameters *plan, size_t group)
{
    return 2 * count_arrays(plan) * piece_of(&plan->groups[group]) *
           sizeof(real);
}

static weft_status make_offloaded(wefti_optimizer *optimizer, size_t elems)
{
    const wefti_parameters *plan = optimizer->plan;
    const wefti_offload given = {.device = optimizer->device,
                                 .compute = optimizer->compute,
                                 .arrays = count_arrays(plan),
                                 .piece_elems =
                                     piece_of(&plan->groups[optimizer->group])};
    weft_status status =
        wefti_offload_create(&given, elems, &optimizer->offload);
    if (status == WEFT_OK) {
        optimizer->first = optimizer->offload->host[0];
        optimizer->second = optimizer->offload->host[1];
        optimizer->masters = optimizer->offload->host[2];
    }
    return status;
}

static weft_status make(wefti_optimizer *optimizer, size_t elems)
{
    real **arrays[] = {&optimizer->first, &optimizer->second,
                       &optimizer->masters};
    const size_t count = count_arrays(optimizer->plan);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        status = wefti_storage_alloc_on(optimizer->device, optimizer->compute,
                                        elems, arrays[i]);
    }
    return status;
}

weft_status wefti_optimizer_init(wefti_optimizer *optimizer,
                                 const wefti_optimizer *given)
{
    *optimizer = *given;
    size_t elems = given->plan->groups[given->group].own_elems;
    weft_status status = given->offloads ? make_offloaded(optimizer, elems)
                                         : make(optimizer, elems);
    if (status != WEFT_OK) {
        wefti_optimizer_fini(optimizer);
    }
    return status;
}

void wefti_optimizer_fini(wefti_optimizer *optimizer)
{
    if (!optimizer->offloads) {
        wefti_storage_free_on(optimizer->device, optimizer->first);
        wefti_storage_free_on(optimizer->device, optimizer->second);
        wefti_storage_free_on(optimizer->device, optimizer->masters);
    }
    wefti_offload_destroy(optimizer->offload);
    *optimizer = (wefti_optimizer){0};
}

double wefti_optimizer_rate(const wefti_optimizer_config *config, uint64_t step)
{
    const double least = config->min_ratio;
    if (step <= config->warmup_steps) {
        return config->lr * (double)step / (double)config->warmup_steps;
    }
    if (config->decay == WEFTI_DECAY_NONE) {
        return config->lr;
    }
    if (step >= config->steps) {
        return config->lr * least;
    }
    double way = (double)(step - config->warmup_steps) /
                 (double)(config->steps - config->warmup_steps);
    double left = config->decay == WEFTI_DECAY_LINEAR
                      ? 1 - way
                      : 0.5 * (1 + cos(3.141592653589793 * way));
    return config->lr * (least + (1 - least) * left);
}

/* Whether this rank has any of a tensor in its share of a bucket. */
static bool cut_from(const wefti_optimizer *optimizer, size_t bucket,
                     const wefti_tensor *tensor, wefti_tensor_share *own_out)
{
    return tensor->info.group == optimizer->group && tensor->bucket == bucket &&
           wefti_tensor_cut(optimizer->plan, tensor, optimizer->rank, own_out);
}

static wefti_math_tensor flat(const real *at, size_t elems)
{
    return wefti_math_flat((real *)at, WEFTI_REAL_DTYPE, elems);
}

/* Elements first .. end - 1 of what is here of a tensor, to blocks, of which
 * blocks[0] is that of element 0. */
static weft_status square_run(const wefti_optimizer *optimizer,
                              const real *here, size_t first, size_t end,
                              double *blocks)
{
    if (first >= end) {
        return WEFT_OK;
    }
    const wefti_math_tensor x = flat(here + first, end - first);
    const wefti_math_tensor sums =
        wefti_math_flat(blocks + first / WEFTI_BLOCK_ELEMS, WEFT_DTYPE_F64,
                        wefti_sumsq_blocks(end - first));
    return wefti_stream_sumsq(optimizer->compute, &sums, &x);
}

/* Where experts lie in any order: each to the blocks that are its own. */
static weft_status square_experts(const wefti_optimizer *optimizer,
                                  const wefti_tensor *tensor,
                                  const wefti_tensor_share *own,
                                  const real *here, double *blocks)
{
    const size_t end = own->offset_elems + own->elems;
    weft_status status = WEFT_OK;
    for (size_t at = own->offset_elems; at < end && status == WEFT_OK;) {
        size_t stop, slot_end;
        const size_t block = wefti_tensor_square_block(tensor, at, &stop);
        stop = stop < end ? stop : end;
        if (!wefti_tensor_is_replica(tensor, at, &slot_end)) {
            status =
                square_run(optimizer, here + at, 0, stop - at, blocks + block);
        }
        at = stop;
    }
    return status;
}

/* What others have as well has blocks of its own, behind those of the rest. */
static weft_status square_share(const wefti_optimizer *optimizer,
                                const wefti_tensor *tensor,
                                const wefti_tensor_share *own,
                                const real *gradient, double *blocks)
{
    const real *here = gradient + own->start_elems - own->offset_elems;
    if (tensor->experts) {
        return square_experts(optimizer, tensor, own, here, blocks);
    }
    const size_t first = own->offset_elems, shared = tensor->shared_elems;
    const size_t padded = first + own->padded_elems;
    const size_t end = shared < first + own->elems ? shared : padded;
    double *to = blocks + tensor->square_block;
    weft_status status = square_run(optimizer, here, first, end, to);
    return status == WEFT_OK && tensor->counts && end == shared
               ? square_run(optimizer, here, first > shared ? first : shared,
                            padded, to + (shared > 0))
               : status;
}

weft_status wefti_optimizer_square(const wefti_optimizer *optimizer,
                                   size_t bucket, const real *gradient,
                                   double *blocks)
{
    const wefti_parameters *plan = optimizer->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->tensor_count && status == WEFT_OK; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!tensor->copy && cut_from(optimizer, bucket, tensor, &own)) {
            status = square_share(optimizer, tensor, &own, gradient, blocks);
        }
    }
    return status;
}

static bool decays(const wefti_tensor *tensor)
{
    return tensor->info.kind != WEFTI_TENSOR_NORM &&
           tensor->info.kind != WEFTI_TENSOR_BIAS &&
           tensor->info.kind != WEFTI_TENSOR_EMBEDDING;
}

/* States of this rank's elements first .. end - 1, and the step at hand.
 * master: NULL where values are what is trained. */
typedef struct window {
    size_t first, end;
    real *moment, *square, *master;
    const double *factor;
    const real *gradient;
    void *values;
} window;

/* What is in the window of what this rank has of a tensor. */
static weft_status update_share(const wefti_optimizer *optimizer,
                                const wefti_tensor_share *own, const window *at,
                                const wefti_adamw_config *adamw)
{
    const size_t own_end = own->own_elems + own->padded_elems;
    const size_t first =
        own->own_elems > at->first ? own->own_elems : at->first;
    const size_t end = own_end < at->end ? own_end : at->end;
    if (first >= end) {
        return WEFT_OK;
    }
    const size_t elems = end - first, skip = first - at->first;
    const size_t start = own->start_elems + (first - own->own_elems);
    const wefti_math_tensor param =
        wefti_math_flat((uint16_t *)at->values + start, WEFT_DTYPE_BF16, elems);
    const wefti_math_tensor master = flat(
        at->master ? at->master + skip : (real *)at->values + start, elems);
    const wefti_math_tensor moment = flat(at->moment + skip, elems);
    const wefti_math_tensor square = flat(at->square + skip, elems);
    const wefti_math_tensor grad = flat(at->gradient + start, elems);
    const wefti_math_tensor scale =
        wefti_math_flat((double *)at->factor, WEFT_DTYPE_F64, 1);
    return wefti_stream_adamw(optimizer->compute, at->master ? &param : NULL,
                              &master, &moment, &square, &grad, &scale, adamw);
}

static weft_status update_window(const wefti_optimizer *optimizer,
                                 size_t bucket, const window *at,
                                 wefti_adamw_config adamw)
{
    const wefti_parameters *plan = optimizer->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->tensor_count && status == WEFT_OK; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (cut_from(optimizer, bucket, tensor, &own)) {
            adamw.weight_decay =
                decays(tensor) ? optimizer->config.weight_decay : 0.0;
            status = update_share(optimizer, &own, at, &adamw);
        }
    }
    return status;
}

/* One window after the other, whose states are brought and taken back. */
static weft_status update_offloaded(wefti_optimizer *optimizer, size_t bucket,
                                    window at, const wefti_adamw_config *adamw)
{
    wefti_offload *offload = optimizer->offload;
    const size_t end = at.end;
    weft_status status = WEFT_OK;
    for (; at.first < end && status == WEFT_OK; at.first = at.end) {
        const size_t left = end - at.first;
        const size_t elems =
            left < offload->piece_elems ? left : offload->piece_elems;
        real *arrays[WEFTI_OFFLOAD_ARRAYS_MOST] = {NULL};
        at.end = at.first + elems;
        status = wefti_offload_bring(offload, at.first, elems, arrays);
        at.moment = arrays[0];
        at.square = arrays[1];
        at.master = arrays[2];
        if (status == WEFT_OK) {
            status = update_window(optimizer, bucket, &at, *adamw);
        }
        if (status == WEFT_OK) {
            status = wefti_offload_take(offload, at.first, elems);
        }
    }
    return status;
}

weft_status wefti_optimizer_update(wefti_optimizer *optimizer, size_t bucket,
                                   uint64_t step, const double *factor,
                                   const real *gradient, void *values)
{
    const wefti_group_plan *group = &optimizer->plan->groups[optimizer->group];
    const weft_bucket_extent *extent = &group->buckets[bucket];
    const wefti_optimizer_config *config = &optimizer->config;
    const wefti_adamw_config adamw = {.lr = wefti_optimizer_rate(config, step),
                                      .beta1 = config->beta1,
                                      .beta2 = config->beta2,
                                      .eps = config->epsilon,
                                      .grad_scale = 1,
                                      .step = (int64_t)step};
    const size_t first = extent->start_elems / group->nranks;
    window at = {.first = first,
                 .end = first + extent->share_elems,
                 .factor = factor,
                 .gradient = gradient,
                 .values = values};
    if (optimizer->offload) {
        return update_offloaded(optimizer, bucket, at, &adamw);
    }
    at.moment = optimizer->first + first;
    at.square = optimizer->second + first;
    at.master = optimizer->masters ? optimizer->masters + first : NULL;
    return update_window(optimizer, bucket, &at, adamw);
}

weft_status wefti_optimizer_wait(const wefti_optimizer *optimizer)
{
    return optimizer->offload ? wefti_offload_wait(optimizer->offload)
                              : WEFT_OK;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/optimizer.c - AdamW over the pieces of tensors that a share holds.
 */
#include "trainer/optimizer.h"

#include "base/check.h"
#include "kernels/math/math_stream.h"
#include "trainer/model/storage.h"

#include <math.h>

static_assert(WEFTI_BLOCK_ELEMS == WEFTI_SUMSQ_BLOCK,
              "shares must end where blocks of the norm end");

weft_status wefti_optimizer_init(wefti_optimizer *optimizer,
                                 const wefti_optimizer *given)
{
    *optimizer = *given;
    size_t elems = given->plan->groups[given->group].own_elems;
    weft_status status = wefti_storage_alloc_on(given->device, given->compute,
                                                elems, &optimizer->first);
    if (status == WEFT_OK) {
        status = wefti_storage_alloc_on(given->device, given->compute, elems,
                                        &optimizer->second);
    }
    if (status == WEFT_OK && given->plan->shape.narrow) {
        status = wefti_storage_alloc_on(given->device, given->compute, elems,
                                        &optimizer->masters);
    }
    if (status != WEFT_OK) {
        wefti_optimizer_fini(optimizer);
    }
    return status;
}

void wefti_optimizer_fini(wefti_optimizer *optimizer)
{
    wefti_storage_free_on(optimizer->device, optimizer->first);
    wefti_storage_free_on(optimizer->device, optimizer->second);
    wefti_storage_free_on(optimizer->device, optimizer->masters);
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

/* Elements first .. end - 1 of what is here of a tensor, to blocks. */
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

/* What others have as well has blocks of its own, behind those of the rest. */
static weft_status square_share(const wefti_optimizer *optimizer,
                                const wefti_tensor *tensor,
                                const wefti_tensor_share *own,
                                const real *gradient, double *blocks)
{
    const real *here = gradient + own->start_elems - own->offset_elems;
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

weft_status wefti_optimizer_update(wefti_optimizer *optimizer, size_t bucket,
                                   uint64_t step, const double *factor,
                                   const real *gradient, void *values)
{
    const wefti_parameters *plan = optimizer->plan;
    const wefti_optimizer_config *config = &optimizer->config;
    wefti_adamw_config adamw = {.lr = wefti_optimizer_rate(config, step),
                                .beta1 = config->beta1,
                                .beta2 = config->beta2,
                                .eps = config->epsilon,
                                .grad_scale = 1,
                                .step = (int64_t)step};
    const wefti_math_tensor scale =
        wefti_math_flat((double *)factor, WEFT_DTYPE_F64, 1);
    const bool narrow = plan->shape.narrow;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->tensor_count && status == WEFT_OK; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!cut_from(optimizer, bucket, tensor, &own)) {
            continue;
        }
        adamw.weight_decay = decays(tensor) ? config->weight_decay : 0.0;
        const size_t elems = own.padded_elems;
        const wefti_math_tensor param = wefti_math_flat(
            (uint16_t *)values + own.start_elems, WEFT_DTYPE_BF16, elems);
        const wefti_math_tensor master =
            flat(narrow ? optimizer->masters + own.own_elems
                        : (real *)values + own.start_elems,
                 elems);
        const wefti_math_tensor first =
            flat(optimizer->first + own.own_elems, elems);
        const wefti_math_tensor second =
            flat(optimizer->second + own.own_elems, elems);
        const wefti_math_tensor grad = flat(gradient + own.start_elems, elems);
        status =
            wefti_stream_adamw(optimizer->compute, narrow ? &param : NULL,
                               &master, &first, &second, &grad, &scale, &adamw);
    }
    return status;
}

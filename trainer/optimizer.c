/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/optimizer.c - AdamW over the pieces of tensors that a share holds.
 */
#include "trainer/optimizer.h"

#include "base/check.h"
#include "trainer/model/storage.h"

#include <math.h>

static_assert(WEFTI_BLOCK_ELEMS == WEFTI_SUMSQ_BLOCK,
              "shares must end where blocks of the norm end");

weft_status wefti_optimizer_init(wefti_optimizer *optimizer,
                                 const wefti_parameters *plan, size_t group,
                                 size_t rank,
                                 const wefti_optimizer_config *config)
{
    *optimizer = (wefti_optimizer){.config = *config,
                                   .math = wefti_math_get(),
                                   .plan = plan,
                                   .group = group,
                                   .rank = rank};
    size_t elems = plan->groups[group].own_elems;
    weft_status status = wefti_storage_alloc(elems, &optimizer->first);
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(elems, &optimizer->second);
    }
    if (status != WEFT_OK) {
        wefti_optimizer_fini(optimizer);
    }
    return status;
}

void wefti_optimizer_fini(wefti_optimizer *optimizer)
{
    wefti_storage_free(optimizer->first);
    wefti_storage_free(optimizer->second);
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

double wefti_optimizer_clip(const wefti_optimizer_config *config, double norm)
{
    return config->clip > 0 && norm > config->clip ? config->clip / norm : 1.0;
}

/* Whether this rank has any of a tensor in its share of a bucket. */
static bool cut_from(const wefti_optimizer *optimizer, size_t bucket,
                     const wefti_tensor *tensor, wefti_tensor_share *own_out)
{
    return tensor->info.group == optimizer->group && tensor->bucket == bucket &&
           wefti_tensor_cut(optimizer->plan, tensor, optimizer->rank, own_out);
}

void wefti_optimizer_square(const wefti_optimizer *optimizer, size_t bucket,
                            const real *gradient, double *blocks)
{
    const wefti_parameters *plan = optimizer->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!tensor->copy && cut_from(optimizer, bucket, tensor, &own)) {
            optimizer->math->sumsq(blocks + tensor->first_block +
                                       own.offset_elems / WEFTI_BLOCK_ELEMS,
                                   gradient + own.start_elems,
                                   own.padded_elems);
        }
    }
}

static bool decays(const wefti_tensor *tensor)
{
    return tensor->info.kind != WEFTI_TENSOR_NORM &&
           tensor->info.kind != WEFTI_TENSOR_EMBEDDING;
}

void wefti_optimizer_update(wefti_optimizer *optimizer, size_t bucket,
                            uint64_t step, double scale, const real *gradient,
                            real *values)
{
    const wefti_parameters *plan = optimizer->plan;
    const wefti_optimizer_config *config = &optimizer->config;
    wefti_adamw_config adamw = {.lr = wefti_optimizer_rate(config, step),
                                .beta1 = config->beta1,
                                .beta2 = config->beta2,
                                .eps = config->epsilon,
                                .grad_scale = scale,
                                .step = (int64_t)step};
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        wefti_tensor_share own;
        if (!cut_from(optimizer, bucket, tensor, &own)) {
            continue;
        }
        adamw.weight_decay = decays(tensor) ? config->weight_decay : 0.0;
        optimizer->math->adamw(
            values + own.start_elems, optimizer->first + own.own_elems,
            optimizer->second + own.own_elems, gradient + own.start_elems,
            own.padded_elems, &adamw);
    }
}

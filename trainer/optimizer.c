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
                                 const wefti_parameters *plan, size_t rank,
                                 const wefti_optimizer_config *config)
{
    *optimizer = (wefti_optimizer){.config = *config,
                                   .math = wefti_math_get(),
                                   .plan = plan,
                                   .rank = rank};
    weft_status status =
        wefti_storage_alloc(plan->own_elems, &optimizer->first);
    if (status == WEFT_OK) {
        status = wefti_storage_alloc(plan->own_elems, &optimizer->second);
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

size_t wefti_optimizer_own(const wefti_optimizer *optimizer, size_t bucket)
{
    size_t start = 0;
    for (size_t i = 0; i < bucket; i++) {
        start += optimizer->plan->buckets[i].share_elems;
    }
    return start;
}

void wefti_optimizer_square(const wefti_optimizer *optimizer, size_t bucket,
                            const real *gradient, double *blocks)
{
    const wefti_parameters *plan = optimizer->plan;
    wefti_bucket_blocks range = plan->blocks[bucket];
    size_t per_share = plan->buckets[bucket].share_elems / WEFTI_BLOCK_ELEMS;
    size_t first = optimizer->rank * per_share;
    if (range.copy || first >= range.count) {
        return; /* counted by another rank; nothing but padding */
    }
    size_t left = range.count - first;
    size_t count = per_share < left ? per_share : left;
    optimizer->math->sumsq(
        blocks + range.first + first,
        gradient + wefti_parameters_share(plan, bucket, optimizer->rank),
        count * WEFTI_BLOCK_ELEMS);
}

static bool decays(const wefti_tensor *tensor)
{
    return tensor->info.kind != WEFTI_TENSOR_NORM &&
           tensor->info.kind != WEFTI_TENSOR_EMBEDDING;
}

/* Where the next tensor of the bucket begins; padding belongs to the last. */
static size_t tensor_end(const wefti_parameters *plan, size_t tensor)
{
    const wefti_tensor *own = &plan->tensors[tensor];
    if (tensor + 1 < plan->tensor_count &&
        plan->tensors[tensor + 1].bucket == own->bucket) {
        return plan->tensors[tensor + 1].start_elems;
    }
    return wefti_parameters_share(plan, own->bucket, plan->nranks);
}

void wefti_optimizer_update(wefti_optimizer *optimizer, size_t bucket,
                            uint64_t step, double scale, const real *gradient,
                            real *values)
{
    const wefti_parameters *plan = optimizer->plan;
    const wefti_optimizer_config *config = &optimizer->config;
    size_t share = wefti_parameters_share(plan, bucket, optimizer->rank);
    size_t share_end = share + plan->buckets[bucket].share_elems;
    size_t own = wefti_optimizer_own(optimizer, bucket);
    wefti_adamw_config adamw = {.lr = wefti_optimizer_rate(config, step),
                                .beta1 = config->beta1,
                                .beta2 = config->beta2,
                                .eps = config->epsilon,
                                .grad_scale = scale,
                                .step = (int64_t)step};
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->bucket != bucket) { /* another's may be in none here */
            continue;
        }
        size_t end = tensor_end(plan, i);
        size_t from = tensor->start_elems > share ? tensor->start_elems : share;
        size_t to = end < share_end ? end : share_end;
        if (from >= to) {
            continue;
        }
        adamw.weight_decay = decays(tensor) ? config->weight_decay : 0.0;
        optimizer->math->adamw(values + from,
                               optimizer->first + own + (from - share),
                               optimizer->second + own + (from - share),
                               gradient + from, to - from, &adamw);
    }
}

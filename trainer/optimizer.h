/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/optimizer.h - AdamW on this rank's shares of a group of parameters
 * (ZeRO stage 1), with warm-up, a decaying rate and clipping by the global
 * norm.
 *
 * Rates, norms and factors are computed in double; a norm, and the factor that
 * clips by it, stay in memory of the device (trainer/step_sums.h). The norm is
 * a sum over blocks of 1024 elements whose borders no layout moves, added first
 * to last: the same bits on every number of ranks, of data and of pipelines.
 *
 * Source: Loshchilov, Hutter 2019 (AdamW, arXiv 1711.05101) and 2017 (cosine,
 * arXiv 1608.03983); Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054).
 */
#ifndef TRAINER_OPTIMIZER_H
#define TRAINER_OPTIMIZER_H

#include "kernels/math/sumsq.h"
#include "trainer/model/parameters.h"
#include "trainer/optimizer_offload.h"
#include "weft/device.h"

/*
 * steps          of the whole run: the decay ends there, at min_ratio of lr.
 * warmup_steps   lr rises in a straight line over these.
 * clip           largest norm of the gradient used; 0: no limit.
 */
typedef enum wefti_decay {
    WEFTI_DECAY_COSINE, /* half a wave of it */
    WEFTI_DECAY_LINEAR,
    WEFTI_DECAY_NONE
} wefti_decay;

typedef struct wefti_optimizer_config {
    double lr;
    wefti_decay decay;
    double min_ratio;
    uint64_t warmup_steps;
    uint64_t steps;
    double weight_decay; /* not of norms and embeddings */
    double clip;
    double beta1, beta2, epsilon;
} wefti_optimizer_config;

typedef struct wefti_optimizer {
    wefti_optimizer_config config;
    weft_device *device;
    weft_stream *compute;         /* as in wefti_replica */
    const wefti_parameters *plan; /* borrowed */
    size_t group;                 /* of the plan */
    size_t rank;
    bool offloads; /* the three lie in the host's memory */
    real *first;   /* [own_elems], bucket by bucket */
    real *second;  /* [own_elems] */
    real *masters; /* [own_elems] where the model's values are bf16; or NULL */
    wefti_offload *offload; /* has them; or NULL */
} wefti_optimizer;

/*
 * wefti_optimizer_init - moments and masters, all zero; the rest is that of
 * given.
 *
 * Returns     as wefti_storage_alloc_on.
 */
WEFT_NODISCARD weft_status wefti_optimizer_init(wefti_optimizer *optimizer,
                                                const wefti_optimizer *given);
void wefti_optimizer_fini(wefti_optimizer *optimizer);

/* What a group that offloads has of the device's memory instead. */
size_t wefti_optimizer_room_bytes(const wefti_parameters *plan, size_t group);

/* The rate of step 1, 2, ... */
double wefti_optimizer_rate(const wefti_optimizer_config *config,
                            uint64_t step);

/*
 * wefti_optimizer_square - sums of squares of this rank's share of a bucket,
 * by block. Queued.
 *
 * gradient   flat
 * blocks     [plan->block_count], of the device; those of the share are written
 */
WEFT_NODISCARD weft_status
wefti_optimizer_square(const wefti_optimizer *optimizer, size_t bucket,
                       const real *gradient, double *blocks);

/*
 * wefti_optimizer_update - one step on this rank's share of a bucket. Queued.
 *
 * factor     of the gradients, of the device: as wefti_stream_clip leaves it
 * values     flat; where they are bf16, the rounding of masters
 */
WEFT_NODISCARD weft_status wefti_optimizer_update(wefti_optimizer *optimizer,
                                                  size_t bucket, uint64_t step,
                                                  const double *factor,
                                                  const real *gradient,
                                                  void *values);

/* Until moments and masters can be read and written where they lie; after what
 * is queued on compute. */
WEFT_NODISCARD weft_status
wefti_optimizer_wait(const wefti_optimizer *optimizer);

#endif

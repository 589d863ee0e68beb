/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AdamW on a flat range.
 */
#include "kernels/math/adamw.h"

#include "base/check.h"
#include "kernels/math/level.h"
#include "kernels/math/vec.h"

#include <math.h>

/* The step's constants, in the kernel's own type. */
typedef struct step {
    vec beta1, rest1, beta2, rest2;
    vec grad_scale, eps, decay;
    vec m_factor; /* lr / (1 - beta1^step) */
    vec v_factor; /* 1 / sqrt(1 - beta2^step) */
} step;

static step step_init(const wefti_adamw_config *config)
{
    double left1 = 1 - pow(config->beta1, (double)config->step);
    double left2 = 1 - pow(config->beta2, (double)config->step);

    return (step){
        .beta1 = vec_splat((real)config->beta1),
        .rest1 = vec_splat((real)(1 - config->beta1)),
        .beta2 = vec_splat((real)config->beta2),
        .rest2 = vec_splat((real)(1 - config->beta2)),
        .grad_scale = vec_splat((real)config->grad_scale),
        .eps = vec_splat((real)config->eps),
        .decay = vec_splat((real)(config->lr * config->weight_decay)),
        .m_factor = vec_splat((real)(config->lr / left1)),
        .v_factor = vec_splat((real)(1 / sqrt(left2))),
    };
}

static inline void step_lanes(const step *s, vec *param, vec *m, vec *v,
                              vec grad)
{
    vec g = s->grad_scale * grad;

    *m = s->beta1 * *m + s->rest1 * g;
    *v = s->beta2 * *v + s->rest2 * g * g;

    vec root = vec_sqrt(*v) * s->v_factor + s->eps;

    *param = *param - s->decay * *param - s->m_factor * *m / root;
}

void WEFTI_LEVEL(adamw)(real *param, real *m, real *v, const real *grad,
                        size_t elems, const wefti_adamw_config *config)
{
    WEFTI_ASSERT(config->step >= 1);

    step s = step_init(config);
    size_t i = 0;

    for (; i + LANES <= elems; i += LANES) {
        vec pi = vec_load(param + i), mi = vec_load(m + i);
        vec vi = vec_load(v + i);

        step_lanes(&s, &pi, &mi, &vi, vec_load(grad + i));
        vec_store(param + i, pi);
        vec_store(m + i, mi);
        vec_store(v + i, vi);
    }
    if (i < elems) {
        size_t rest = elems - i;
        vec pi = vec_load_part(param + i, rest);
        vec mi = vec_load_part(m + i, rest), vi = vec_load_part(v + i, rest);

        step_lanes(&s, &pi, &mi, &vi, vec_load_part(grad + i, rest));
        vec_store_part(param + i, pi, rest);
        vec_store_part(m + i, mi, rest);
        vec_store_part(v + i, vi, rest);
    }
}

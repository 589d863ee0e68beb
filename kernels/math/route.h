/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/route.h - which experts a token goes to, and by what weights.
 *
 *     affinity[t][e] = 1 / (1 + exp(-logits[t][e]))
 *     expert[t]      = the slots experts of the largest affinity + bias, best
 *                      first
 *     weight[t][s]   = affinity[t][expert[t][s]] / the sum of the slots'
 *
 * The experts are groups equal parts, in order. Where there are more than
 * group_limit, a token's experts are of the group_limit best of them; a group's
 * score is the sum of its slots / group_limit (rounded up) best ones. Of equals
 * the lower number is better. The choice has no gradient.
 *
 * logits affinity    [tokens][experts], dense
 * bias               [experts]; NULL: 0
 * expert weight      [tokens][slots]; weights are 0 where all affinities are
 *
 * Tolerance   float: 4e-7 relative; double: 1e-15.
 * Source      DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
 */
#ifndef KERNELS_MATH_ROUTE_H
#define KERNELS_MATH_ROUTE_H

#include "kernels/math/real.h"

#include <stddef.h>
#include <stdint.h>

enum { WEFTI_ROUTE_SLOTS_MOST = 32 };

typedef struct wefti_route_shape {
    size_t tokens, experts;
    size_t slots;               /* to experts of group_limit groups, and 32 */
    size_t groups, group_limit; /* 1 or more */
} wefti_route_shape;

typedef void wefti_route_forward_fn(real *affinity, int32_t *expert,
                                    real *weight, const real *logits,
                                    const real *bias,
                                    const wefti_route_shape *how);

/*
 * backward - of the logits, from dweight [tokens][slots].
 *
 * dlogits     overwritten: 0 where a token does not go.
 */
typedef void wefti_route_backward_fn(real *dlogits, const real *dweight,
                                     const real *affinity,
                                     const int32_t *expert,
                                     const wefti_route_shape *how);

#endif

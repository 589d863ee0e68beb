/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/adamw.h - one AdamW step on a flat range of parameters.
 *
 *     g = grad_scale grad[i]
 *     m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
 *     param -= lr (m / (1 - beta1^step)
 *                  / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay param)
 *
 * param m v   [elems], updated; zero m and v before step 1.
 * grad        [elems].
 *
 * Element by element: any partition of the range gives the same bits, vector
 * tails included.
 *
 * Tolerance   float: 4e-7 (|param| + lr) a step; double: 1e-15 likewise.
 * Source      Loshchilov, Hutter 2019, arXiv 1711.05101, algorithm 2.
 */
#ifndef KERNELS_MATH_ADAMW_H
#define KERNELS_MATH_ADAMW_H

#include "kernels/math/real.h"

typedef struct wefti_adamw_config {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    double grad_scale; /* clipping and averaging; 1 for none */
    int64_t step;      /* counted from 1 */
} wefti_adamw_config;

typedef void wefti_adamw_fn(real *param, real *m, real *v, const real *grad,
                            size_t elems, const wefti_adamw_config *config);

#endif

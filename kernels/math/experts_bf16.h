/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/experts_bf16.h - what experts.h says of rows, over bf16, on the
 * host: rows are widened a run of elements at a time, so that no array is
 * copied whole, computed in f32, and rounded once. Weights of slots are f32,
 * and so are gradients of an expert's matrix where the type is BF16_F32.
 */
#ifndef KERNELS_MATH_EXPERTS_BF16_H
#define KERNELS_MATH_EXPERTS_BF16_H

#include "kernels/math/math_host.h"

/* Whether it is one of theirs; and running it. */
bool wefti_experts_bf16_has(wefti_math_op op, wefti_math_type type);
void wefti_experts_bf16_run(wefti_math_op op, wefti_math_type type,
                            const wefti_math_args *args);

#endif

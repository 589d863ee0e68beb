/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_math_list.cc - the kernels of kernels/math by name.
 */
#include "kernels/math/math_launch.h"
#include "tests/simt/simt_launch.h"

/* X(op, name): of every type, of those that are wide, and of every type with
 * bf16 beside f32 as well. */
#define ALL(X, op)   X(op, f32) X(op, bf16) X(op, f64)
#define WIDE(X, op)  X(op, f32) X(op, f64)
#define MIXED(X, op) ALL(X, op) X(op, bf16_f32)

#define KERNELS(X)                                                             \
    ALL(X, fill)                                                               \
    ALL(X, scale)                                                              \
    ALL(X, add)                                                                \
    MIXED(X, copy_rows)                                                        \
    ALL(X, rmsnorm_forward)                                                    \
    ALL(X, rmsnorm_backward)                                                   \
    ALL(X, rmsnorm_dweight)                                                    \
    WIDE(X, sum_rows)                                                          \
    WIDE(X, rope_table)                                                        \
    ALL(X, rope_turn)                                                          \
    ALL(X, swiglu_forward)                                                     \
    ALL(X, swiglu_backward)                                                    \
    ALL(X, embedding_forward)                                                  \
    ALL(X, embedding_backward)                                                 \
    ALL(X, cross_entropy)                                                      \
    ALL(X, softmax_part)                                                       \
    ALL(X, cross_entropy_part)                                                 \
    MIXED(X, adamw)                                                            \
    ALL(X, sumsq)                                                              \
    X(clip, f64)                                                               \
    ALL(X, totals)                                                             \
    MIXED(X, attention_forward)                                                \
    ALL(X, attention_merge)                                                    \
    MIXED(X, attention_delta)                                                  \
    MIXED(X, attention_dq)                                                     \
    MIXED(X, attention_dkdv)                                                   \
    ALL(X, route_forward)                                                      \
    WIDE(X, route_backward)                                                    \
    X(expert_order, f64)                                                       \
    X(expert_load, f64)                                                        \
    ALL(X, expert_spread)                                                      \
    ALL(X, expert_collect)                                                     \
    ALL(X, expert_dots)                                                        \
    MIXED(X, expert_gemm)                                                      \
    ALL(X, expert_gate)                                                        \
    ALL(X, expert_gate_backward)                                               \
    MIXED(X, gemm)

/* The structure of an op's arguments: its own, or that of two. */
typedef wefti_math_attention_backward wefti_math_attention_dq;
typedef wefti_math_attention_backward wefti_math_attention_dkdv;

#define DECLARE(op, name)                                                      \
    void wefti_math_##op##_##name(const wefti_math_##op args);

extern "C" {
KERNELS(DECLARE)
}

#define NAME(op, name) SIMT_KERNEL(wefti_math_##op##_##name),

static const simt_kernel math_kernels[] = {KERNELS(NAME){nullptr, nullptr}};

SIMT_ADD(math_kernels)

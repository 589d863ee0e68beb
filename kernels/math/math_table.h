/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_table.h - all the math kernels of one machine.
 *
 * Each kernel is compiled once per instruction-set level of the processor
 * (x86-64 baseline, v3 with AVX2, v4 with AVX-512; one level elsewhere). A
 * table holds one level's kernels; callers take the best one and call through
 * it:
 *
 *     const wefti_math *math = wefti_math_get();
 *     math->rmsnorm_forward(...);
 *
 * True of every kernel: no allocation, no global state, one thread, any
 * thread; the same arguments give the same bits on the same machine (levels
 * may differ from each other in the last digits); pointers need only the
 * alignment of their element type; an empty shape is legal and does nothing.
 * Arguments are the caller's to get right: they are asserted, not reported.
 */
#ifndef KERNELS_MATH_MATH_TABLE_H
#define KERNELS_MATH_MATH_TABLE_H

#include "kernels/math/adamw.h"
#include "kernels/math/attention.h"
#include "kernels/math/cross_entropy.h"
#include "kernels/math/elementwise.h"
#include "kernels/math/embedding.h"
#include "kernels/math/experts.h"
#include "kernels/math/gemm.h"
#include "kernels/math/rmsnorm.h"
#include "kernels/math/rope.h"
#include "kernels/math/route.h"
#include "kernels/math/sumsq.h"
#include "kernels/math/swiglu.h"

/* X(name): the kernel has the type wefti_<name>_fn, stated in its header. */
#define WEFTI_MATH_LIST(X)                                                     \
    X(gemm)                                                                    \
    X(attention_forward)                                                       \
    X(attention_delta)                                                         \
    X(attention_backward)                                                      \
    X(rmsnorm_forward)                                                         \
    X(rmsnorm_backward)                                                        \
    X(rope_table)                                                              \
    X(rope_forward)                                                            \
    X(rope_backward)                                                           \
    X(swiglu_forward)                                                          \
    X(swiglu_backward)                                                         \
    X(embedding_forward)                                                       \
    X(embedding_backward)                                                      \
    X(cross_entropy)                                                           \
    X(softmax_part)                                                            \
    X(cross_entropy_part)                                                      \
    X(route_forward)                                                           \
    X(route_backward)                                                          \
    X(expert_order)                                                            \
    X(expert_load)                                                             \
    X(expert_spread)                                                           \
    X(expert_collect)                                                          \
    X(expert_dots)                                                             \
    X(expert_gemm)                                                             \
    X(expert_gate)                                                             \
    X(expert_gate_backward)                                                    \
    X(adamw)                                                                   \
    X(fill)                                                                    \
    X(scale)                                                                   \
    X(add)                                                                     \
    X(copy_rows)                                                               \
    X(add_rows)                                                                \
    X(widen_rows)                                                              \
    X(narrow_rows)                                                             \
    X(sumsq)

typedef struct wefti_math {
    const char *level; /* "base", "v3" or "v4" */
#define WEFTI_MATH_MEMBER(name) wefti_##name##_fn *name;
    WEFTI_MATH_LIST(WEFTI_MATH_MEMBER)
#undef WEFTI_MATH_MEMBER
} wefti_math;

/*
 * wefti_math_get - the kernels for this processor's best level.
 * wefti_math_at  - those of the index-th level that it can run, best first;
 *                  NULL when index is past the last.
 *
 * Threads     any.  Blocks: no.  Allocates: no.
 */
const wefti_math *wefti_math_get(void);
const wefti_math *wefti_math_at(size_t index);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_op.h - the kernels of math_launch.h as data: which arrays
 * one touches, and how much there is to do. Who has to find the arrays of a
 * launch elsewhere, or to check them, asks here: the host's side of a device
 * (math_job.c), and the CUDA driver for tests.
 */
#ifndef KERNELS_MATH_MATH_OP_H
#define KERNELS_MATH_MATH_OP_H

#include "kernels/math/adamw.h"
#include "kernels/math/math_launch.h"
#include "weft/types.h"

#include <stdbool.h>

/* X(op): wefti_math_<op>_<type> is a kernel, wefti_math_<op> its argument. */
#define WEFTI_MATH_OPS(X)                                                      \
    X(fill)                                                                    \
    X(scale)                                                                   \
    X(add)                                                                     \
    X(copy_rows)                                                               \
    X(rmsnorm_forward)                                                         \
    X(rmsnorm_backward)                                                        \
    X(rmsnorm_dweight)                                                         \
    X(sum_rows)                                                                \
    X(rope_table)                                                              \
    X(rope_turn)                                                               \
    X(swiglu_forward)                                                          \
    X(swiglu_backward)                                                         \
    X(embedding_forward)                                                       \
    X(embedding_backward)                                                      \
    X(cross_entropy)                                                           \
    X(softmax_part)                                                            \
    X(cross_entropy_part)                                                      \
    X(adamw)                                                                   \
    X(sumsq)                                                                   \
    X(clip)                                                                    \
    X(totals)                                                                  \
    X(attention_forward)                                                       \
    X(attention_merge)                                                         \
    X(attention_delta)                                                         \
    X(attention_dq)                                                            \
    X(attention_dkdv)                                                          \
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
    X(gemm)

/*
 * What the host computes in one pass, and a GPU by several kernels: no kernel
 * has these names. wefti_math_<op>, below, is the argument.
 */
#define WEFTI_MATH_HOST_OPS(X)                                                 \
    X(rmsnorm_gradients)                                                       \
    X(attention_backward)                                                      \
    X(adamw_update)

typedef enum wefti_math_op {
#define WEFTI_MATH_OP(op) WEFTI_MATH_OP_##op,
    WEFTI_MATH_OPS(WEFTI_MATH_OP) WEFTI_MATH_HOST_OPS(WEFTI_MATH_OP)
#undef WEFTI_MATH_OP
        WEFTI_MATH_OP_COUNT
} wefti_math_op;

typedef wefti_math_attention_backward wefti_math_attention_dq;
typedef wefti_math_attention_backward wefti_math_attention_dkdv;

typedef struct wefti_math_rmsnorm_gradients {
    wefti_math_rmsnorm_backward of;
    void *dweight; /* wide, added to */
} wefti_math_rmsnorm_gradients;

typedef struct wefti_math_adamw_update {
    wefti_math_adamw of; /* but for its step */
    wefti_adamw_config config;
} wefti_math_adamw_update;

/* What a kernel's name ends in. BF16_F32: what is summed up is f32. */
typedef enum wefti_math_type {
    WEFTI_MATH_F32,
    WEFTI_MATH_BF16,
    WEFTI_MATH_F64,
    WEFTI_MATH_BF16_F32,
    WEFTI_MATH_TYPE_COUNT
} wefti_math_type;

/* One array: rows of width elements, stride apart. */
typedef struct wefti_math_use {
    size_t place; /* of the pointer in the argument; NULL there: not used */
    weft_dtype dtype;
    bool reads, writes;
    size_t rows, width, stride;
    size_t step; /* elements from one unit's to the next's; 0: all share them */
} wefti_math_use;

/* What a launch may be cut into: rows, elements, blocks or sequences that know
 * nothing of each other, but that sums are added to in their order. */
typedef struct wefti_math_cut {
    size_t units;    /* 0: there is nothing to do, or it is not cut */
    size_t place;    /* of the size_t in the argument that counts them, */
    size_t per_unit; /* this much of it for each; the last has the rest */
} wefti_math_cut;

enum {
    WEFTI_MATH_USES = 9, /* of one launch, at most */
    WEFTI_MATH_NAME_BYTES = 64
};

/* Writes the arrays of a launch to uses; returns how many. */
size_t wefti_math_op_uses(wefti_math_op op, wefti_math_type type,
                          const void *args,
                          wefti_math_use uses[WEFTI_MATH_USES]);

wefti_math_cut wefti_math_op_cut(wefti_math_op op, const void *args);

/* Bytes from an array's first element to behind its last; 0: it is empty. */
size_t wefti_math_use_bytes(const wefti_math_use *use);

size_t wefti_math_op_args_bytes(wefti_math_op op);

/* How many blocks of WEFTI_MATH_THREADS would each have something to do, at
 * least 1; and their dynamic shared memory. */
size_t wefti_math_op_blocks(wefti_math_op op, wefti_math_type type,
                            const void *args);
size_t wefti_math_op_shared_bytes(wefti_math_op op, wefti_math_type type);

/* The kernel's name, and what a name is of: false, of no kernel here. */
void wefti_math_op_name(wefti_math_op op, wefti_math_type type,
                        char name_out[WEFTI_MATH_NAME_BYTES]);
bool wefti_math_op_find(const char *name, wefti_math_op *op_out,
                        wefti_math_type *type_out);

#endif

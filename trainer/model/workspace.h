/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/workspace.h - scratch memory of passes: one for all stages of a
 * rank, because a rank runs one pass at a time. The forward and the backward of
 * a pair take turns by layers; only the backward's gradient lives from one
 * layer to the next.
 */
#ifndef TRAINER_MODEL_WORKSPACE_H
#define TRAINER_MODEL_WORKSPACE_H

#include "kernels/math/math_table.h"
#include "trainer/model/parameters.h"

typedef struct wefti_workspace {
    const wefti_math *math;
    size_t sequences; /* of a micro-batch, at most */
    size_t arena_elems;
    real *arena;      /* holds all of: */
    real *rope;       /* [seq][head_dim] cosines and sines */
    real *token_loss; /* [tokens] */
    real *gradient;   /* [tokens][hidden]: of the residual */
    real *wide;       /* [tokens][max(2 ffn, qkv)] */
    real *narrow;     /* [tokens][max(hidden, heads head_dim)] */
    real *delta;      /* [tokens][heads] */
    real *attention_scratch;
} wefti_workspace;

/* Returns OK | ERR_NO_MEMORY; fini is legal in any case. */
WEFT_NODISCARD weft_status wefti_workspace_init(wefti_workspace *workspace,
                                                const wefti_model_shape *shape,
                                                size_t sequences);
void wefti_workspace_fini(wefti_workspace *workspace);

/*
 * wefti_arena_take - elems from an arena, aligned; used counts. base NULL: it
 * only counts, and returns NULL.
 */
real *wefti_arena_take(real *base, size_t *used, size_t elems);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/workspace.c - the scratch arena of a rank.
 */
#include "trainer/model/workspace.h"

#include "base/error.h"
#include "trainer/model/layer.h"
#include "trainer/model/storage.h"

real *wefti_arena_take(real *base, size_t *used, size_t elems)
{
    const size_t align = WEFTI_STORAGE_ALIGN_BYTES / sizeof(real);
    real *start = base ? base + *used : NULL;
    *used += (elems + align - 1) / align * align;
    return start;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void carve(wefti_workspace *workspace, const wefti_model_shape *shape)
{
    size_t tokens = workspace->sequences * shape->seq;
    size_t queries = shape->heads * shape->head_dim;
    size_t widest = larger(2 * shape->ffn, wefti_layer_qkv_width(shape));
    real *base = workspace->arena;
    size_t *used = &workspace->arena_elems;
    *used = 0;
    workspace->rope =
        wefti_arena_take(base, used, shape->seq * shape->head_dim);
    workspace->token_loss = wefti_arena_take(base, used, tokens);
    workspace->gradient = wefti_arena_take(base, used, tokens * shape->hidden);
    workspace->wide = wefti_arena_take(base, used, tokens * widest);
    workspace->narrow =
        wefti_arena_take(base, used, tokens * larger(shape->hidden, queries));
    workspace->delta = wefti_arena_take(base, used, tokens * shape->heads);
    workspace->attention_scratch = wefti_arena_take(
        base, used, wefti_layer_scratch_elems(shape, shape->seq));
}

weft_status wefti_workspace_init(wefti_workspace *workspace,
                                 const wefti_model_shape *shape,
                                 size_t sequences)
{
    *workspace =
        (wefti_workspace){.math = wefti_math_get(), .sequences = sequences};
    carve(workspace, shape);
    weft_status status =
        wefti_storage_alloc(workspace->arena_elems, &workspace->arena);
    if (status != WEFT_OK) {
        return status;
    }
    carve(workspace, shape);
    workspace->math->rope_table(workspace->rope, NULL, 0, shape->seq,
                                shape->head_dim, shape->rope_theta);
    return WEFT_OK;
}

void wefti_workspace_fini(wefti_workspace *workspace)
{
    wefti_storage_free(workspace->arena);
    *workspace = (wefti_workspace){0};
}

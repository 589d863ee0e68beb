/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_attention.c - attention's kernels on the pass' stream.
 */
#include "trainer/program/node_attention.h"

#include "kernels/math/math_stream.h"
#include "trainer/program/node_math.h"

#include <math.h>

typedef wefti_math_tensor tensor;

/* Rows of width elements, the next stride elements on; and side by side. */
static tensor strided(const wefti_node_args *args, const void *at, size_t rows,
                      size_t width, size_t stride)
{
    const weft_dtype dtype =
        wefti_value_dtype(args->pass->program->narrow, false);
    return (tensor){(void *)at, dtype, rows, width, stride};
}

static tensor dense(const wefti_node_args *args, const void *at, size_t rows,
                    size_t width)
{
    return strided(args, at, rows, width, width);
}

/* Of real, side by side. */
static tensor wide(const void *at, size_t rows, size_t width)
{
    return (tensor){(void *)at, WEFTI_REAL_DTYPE, rows, width, width};
}

size_t wefti_node_heads_qkv(const wefti_node_heads *heads)
{
    return (heads->heads + 2 * heads->kv_heads) * heads->head_dim;
}

size_t wefti_node_heads_out(const wefti_node_heads *heads)
{
    return heads->heads * heads->head_dim;
}

size_t wefti_node_heads_keys(const wefti_node_heads *heads)
{
    return 2 * heads->kv_heads * heads->head_dim;
}

/* Tokens of a sequence, and of all. */
static size_t length_of(const wefti_node_args *args,
                        const wefti_node_heads *heads)
{
    return args->pass->batch->length * heads->spread;
}

static size_t tokens_of(const wefti_node_args *args,
                        const wefti_node_heads *heads)
{
    return args->rows * heads->spread;
}

/* ---- whole sequences -------------------------------------------------------
 */

/* Rows of q, k and v, each a tensor of the same stride. */
typedef struct parts {
    tensor q, k, v;
} parts;

static parts parts_of(const wefti_node_args *args, const void *qkv,
                      const wefti_node_heads *heads, size_t rows)
{
    const size_t width = wefti_node_heads_qkv(heads);
    const size_t queries = wefti_node_heads_out(heads);
    const size_t keys = heads->kv_heads * heads->head_dim;
    return (parts){
        strided(args, qkv, rows, queries, width),
        strided(args, wefti_node_skip(args, qkv, queries), rows, keys, width),
        strided(args, wefti_node_skip(args, qkv, queries + keys), rows, keys,
                width)};
}

/* Attention of so many sequences, or of a document. */
static wefti_math_heads attends(const wefti_node_heads *heads, size_t sequences,
                                bool document)
{
    return (wefti_math_heads){.sequences = sequences,
                              .heads = heads->heads,
                              .kv_heads = heads->kv_heads,
                              .scale = 1.0 / sqrt((double)heads->head_dim),
                              .causal = !heads->sees_all,
                              .once = document};
}

/* Queries and keys lie side by side: one turn for all heads of a sequence. */
weft_status wefti_node_turn(const wefti_node_args *args,
                            const wefti_node_heads *heads, void *qkv, bool back)
{
    const wefti_program_pass *pass = args->pass;
    const size_t length = length_of(args, heads);
    const size_t tokens = tokens_of(args, heads);
    const size_t width = wefti_node_heads_qkv(heads);
    const size_t turned = (heads->heads + heads->kv_heads) * heads->head_dim;
    const tensor table = wide(pass->rope, length, heads->head_dim);
    weft_status status = WEFT_OK;
    for (size_t row = 0; row < tokens && status == WEFT_OK; row += length) {
        const tensor x = strided(args, wefti_node_skip(args, qkv, row * width),
                                 length, turned, width);
        status = wefti_stream_rope(pass->compute, &x, &table, back);
    }
    return status;
}

/* Rows of so many sequences side by side that are attended at once. */
typedef struct run {
    size_t first, rows, sequences;
} run;

/* Documents of packed sequences, one after the other; else all sequences. */
typedef struct runs {
    wefti_document_walk walk;
    bool over;
} runs;

static wefti_document_walk walk_of(const wefti_node_args *args,
                                   const wefti_node_heads *heads, size_t tokens)
{
    return (wefti_document_walk){.documents = &args->pass->batch->documents,
                                 .tokens = tokens,
                                 .sequences = tokens_of(args, heads) /
                                              length_of(args, heads)};
}

static runs runs_of(const wefti_node_args *args, const wefti_node_heads *heads)
{
    return (runs){.walk = walk_of(args, heads, length_of(args, heads))};
}

static bool next_run(runs *all, run *run_out)
{
    wefti_document_walk *walk = &all->walk;
    size_t sequence;
    const uint32_t *start;
    if (!walk->documents->starts) {
        *run_out = (run){0, walk->sequences * walk->tokens, walk->sequences};
        all->over = !all->over;
        return all->over;
    }
    if (!wefti_document_next(walk, &sequence, &start)) {
        return false;
    }
    *run_out =
        (run){sequence * walk->tokens + start[0], start[1] - start[0], 1};
    return true;
}

static tensor rows_of(const wefti_node_args *args, const void *at,
                      const run *own, size_t width)
{
    return dense(args, wefti_node_skip(args, at, own->first * width), own->rows,
                 width);
}

static tensor sums_of(const real *at, const run *own, size_t width)
{
    return wide(at + own->first * width, own->rows, width);
}

static parts parts_in(const wefti_node_args *args, const void *qkv,
                      const wefti_node_heads *heads, const run *own)
{
    const size_t width = wefti_node_heads_qkv(heads);
    return parts_of(args, wefti_node_skip(args, qkv, own->first * width), heads,
                    own->rows);
}

weft_status wefti_node_attention_forward(const wefti_node_args *args,
                                         const wefti_node_heads *heads,
                                         void *out, real *lse, const void *qkv)
{
    runs all = runs_of(args, heads);
    run own;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_run(&all, &own)) {
        const parts in = parts_in(args, qkv, heads, &own);
        const tensor o = rows_of(args, out, &own, wefti_node_heads_out(heads));
        const tensor sums = sums_of(lse, &own, heads->heads);
        const wefti_math_heads how =
            attends(heads, own.sequences, all.walk.documents->starts != NULL);
        status = wefti_stream_attention_forward(
            args->pass->compute, &o, &sums, &in.q, &in.k, &in.v, &how, false);
    }
    return status;
}

weft_status wefti_node_delta(const wefti_node_args *args,
                             const wefti_node_heads *heads, real *delta,
                             const void *out, const void *dout)
{
    const size_t tokens = tokens_of(args, heads);
    const tensor o = dense(args, out, tokens, wefti_node_heads_out(heads));
    const tensor above = dense(args, dout, tokens, wefti_node_heads_out(heads));
    const tensor dots = wide(delta, tokens, heads->heads);
    return wefti_stream_attention_delta(args->pass->compute, &dots, &o, &above);
}

weft_status wefti_node_attention_backward(const wefti_node_args *args,
                                          const wefti_node_heads *heads,
                                          void *dqkv, const void *dout,
                                          const void *qkv, const void *out,
                                          const real *lse, real *delta)
{
    const size_t width = wefti_node_heads_out(heads);
    runs all = runs_of(args, heads);
    run own;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_run(&all, &own)) {
        const parts in = parts_in(args, qkv, heads, &own);
        const parts d = parts_in(args, dqkv, heads, &own);
        const tensor o = rows_of(args, out, &own, width);
        const tensor above = rows_of(args, dout, &own, width);
        const tensor sums = sums_of(lse, &own, heads->heads);
        const tensor dots = sums_of(delta, &own, heads->heads);
        const wefti_math_heads how =
            attends(heads, own.sequences, all.walk.documents->starts != NULL);
        status = wefti_stream_attention_backward(
            args->pass->compute, &d.q, &d.k, &d.v, &above, &in.q, &in.k, &in.v,
            &o, &sums, &dots, &how, false);
    }
    return status;
}

/* ---- blocks of keys --------------------------------------------------------
 */

/* Sequences of which a block is taken together: all, or where it is a part of
 * their tokens one. */
typedef struct block {
    const wefti_node_args *args;
    size_t sequences, step; /* in one call; from one call to the next */
    size_t query, queries, key, keys; /* rows: from, how many */
    wefti_math_heads how;
} block;

static block block_of(const wefti_node_args *args,
                      const wefti_node_heads *heads,
                      const wefti_context_block *seen)
{
    const size_t length = length_of(args, heads);
    const size_t all = tokens_of(args, heads) / length;
    const bool whole = seen->queries == length && seen->keys == length;
    const size_t sequences = whole ? all : 1;
    block own = {.args = args,
                 .sequences = all / sequences,
                 .step = sequences * length,
                 .query = seen->query,
                 .queries = sequences * seen->queries,
                 .key = seen->key,
                 .keys = sequences * seen->keys,
                 .how = attends(heads, sequences, false)};
    own.how.causal = seen->causal;
    own.how.causal_offset = seen->offset;
    return own;
}

/* Of one sequence, and in it of one document. */
static block document_block(const wefti_node_args *args,
                            const wefti_node_heads *heads,
                            const wefti_context_block *cut)
{
    block own = {.args = args,
                 .sequences = 1,
                 .step = length_of(args, heads),
                 .query = cut->query,
                 .queries = cut->queries,
                 .key = cut->key,
                 .keys = cut->keys,
                 .how = attends(heads, 1, true)};
    own.how.causal = cut->causal;
    own.how.causal_offset = cut->offset;
    return own;
}

/* What a call has of arrays by query, and by key. */
static tensor of_queries(const block *own, size_t i, const void *at,
                         size_t width, size_t stride)
{
    const size_t first = (i * own->step + own->query) * stride;
    return strided(own->args, wefti_node_skip(own->args, at, first),
                   own->queries, width, stride);
}

/* The same of real. */
static tensor reals_of_queries(const block *own, size_t i, const real *at,
                               size_t width, size_t stride)
{
    return (tensor){(void *)(at + (i * own->step + own->query) * stride),
                    WEFTI_REAL_DTYPE, own->queries, width, stride};
}

static tensor sums_of_queries(const block *own, size_t i, const real *at)
{
    const size_t heads = own->how.heads;
    return wide(at + (i * own->step + own->query) * heads, own->queries, heads);
}

static tensor of_keys(const block *own, size_t i, const void *at,
                      const wefti_node_heads *heads, size_t stride, bool values)
{
    const size_t width = wefti_node_heads_keys(heads) / 2;
    const size_t first =
        (i * own->step + own->key) * stride + (values ? width : 0);
    return strided(own->args, wefti_node_skip(own->args, at, first), own->keys,
                   width, stride);
}

static tensor reals_of_keys(const block *own, size_t i, const real *at,
                            const wefti_node_heads *heads, size_t stride,
                            bool values)
{
    const size_t width = wefti_node_heads_keys(heads) / 2;
    return (tensor){(void *)(at + (i * own->step + own->key) * stride +
                             (values ? width : 0)),
                    WEFTI_REAL_DTYPE, own->keys, width, stride};
}

static weft_status forward_block(const block *own,
                                 const wefti_node_heads *heads, size_t i,
                                 real *out, real *lse, const void *qkv,
                                 const void *keys, bool merge)
{
    const size_t width = wefti_node_heads_out(heads);
    const tensor o = reals_of_queries(own, i, out, width, width);
    const tensor sums = sums_of_queries(own, i, lse);
    const tensor q =
        of_queries(own, i, qkv, width, wefti_node_heads_qkv(heads));
    const size_t stride = wefti_node_heads_keys(heads);
    const tensor k = of_keys(own, i, keys, heads, stride, false);
    const tensor v = of_keys(own, i, keys, heads, stride, true);
    return wefti_stream_attention_forward(own->args->pass->compute, &o, &sums,
                                          &q, &k, &v, &own->how, merge);
}

/* What the queries see of the keys, by calls: all, or document by document. */
typedef struct blocks {
    const wefti_node_args *args;
    const wefti_node_heads *heads;
    const wefti_node_seen *seen;
    wefti_document_walk walk;
    block all;
    size_t next; /* of all's sequences */
} blocks;

static blocks blocks_of(const wefti_node_args *args,
                        const wefti_node_heads *heads,
                        const wefti_node_seen *seen)
{
    return (blocks){.args = args,
                    .heads = heads,
                    .seen = seen,
                    .walk = walk_of(args, heads, seen->seq),
                    .all = block_of(args, heads, &seen->block)};
}

/* i_out: its sequence. */
static bool next_block(blocks *of, block *own_out, size_t *i_out)
{
    const wefti_node_seen *seen = of->seen;
    const uint32_t *start;
    if (!of->walk.documents->starts) {
        *own_out = of->all;
        *i_out = of->next++;
        return *i_out < of->all.sequences;
    }
    while (wefti_document_next(&of->walk, i_out, &start)) {
        const wefti_context_block cut = wefti_documents_cut(
            seen->context, seen->seq, seen->owner, &seen->block, start);
        if (cut.queries > 0) {
            *own_out = document_block(of->args, of->heads, &cut);
            return true;
        }
    }
    return false;
}

weft_status wefti_node_block_forward(const wefti_node_args *args,
                                     const wefti_node_heads *heads,
                                     const wefti_node_seen *seen, real *out,
                                     real *lse, const void *qkv,
                                     const void *keys, bool merge)
{
    blocks of = blocks_of(args, heads, seen);
    block own;
    size_t i;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_block(&of, &own, &i)) {
        status = forward_block(&own, heads, i, out, lse, qkv, keys, merge);
    }
    return status;
}

static weft_status backward_block(const block *own,
                                  const wefti_node_heads *heads, size_t i,
                                  const wefti_node_slopes *slopes,
                                  const void *qkv, const void *keys)
{
    const size_t width = wefti_node_heads_out(heads);
    const size_t row = wefti_node_heads_qkv(heads);
    const size_t stride = slopes->keys_stride;
    const tensor dq = reals_of_queries(own, i, slopes->dqkv, width, row);
    const tensor dk =
        reals_of_keys(own, i, slopes->dkeys, heads, stride, false);
    const tensor dv = reals_of_keys(own, i, slopes->dkeys, heads, stride, true);
    const tensor above = of_queries(own, i, slopes->dout, width, width);
    const tensor q = of_queries(own, i, qkv, width, row);
    const tensor k = of_keys(own, i, keys, heads, stride, false);
    const tensor v = of_keys(own, i, keys, heads, stride, true);
    const tensor sums = sums_of_queries(own, i, slopes->lse);
    const tensor dots = sums_of_queries(own, i, slopes->delta);
    return wefti_stream_attention_backward(own->args->pass->compute, &dq, &dk,
                                           &dv, &above, &q, &k, &v, NULL, &sums,
                                           &dots, &own->how, true);
}

weft_status wefti_node_block_backward(const wefti_node_args *args,
                                      const wefti_node_heads *heads,
                                      const wefti_node_seen *seen,
                                      const wefti_node_slopes *slopes,
                                      const void *qkv, const void *keys)
{
    blocks of = blocks_of(args, heads, seen);
    block own;
    size_t i;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_block(&of, &own, &i)) {
        status = backward_block(&own, heads, i, slopes, qkv, keys);
    }
    return status;
}

weft_status wefti_node_pack_keys(const wefti_node_args *args,
                                 const wefti_node_heads *heads, void *keys,
                                 const void *qkv)
{
    const size_t row = wefti_node_heads_qkv(heads);
    const size_t width = wefti_node_heads_keys(heads);
    const wefti_node_matrix from = {
        wefti_node_skip(args, qkv, wefti_node_heads_out(heads)), row};
    const wefti_node_matrix to = {keys, width};
    return wefti_node_copy_rows(args, &to, &from, tokens_of(args, heads), width,
                                false);
}

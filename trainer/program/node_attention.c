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

/* Causal attention of so many sequences. */
static wefti_math_heads causal(const wefti_node_heads *heads, size_t sequences)
{
    return (wefti_math_heads){.sequences = sequences,
                              .heads = heads->heads,
                              .kv_heads = heads->kv_heads,
                              .scale = 1.0 / sqrt((double)heads->head_dim),
                              .causal = true};
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

weft_status wefti_node_attention_forward(const wefti_node_args *args,
                                         const wefti_node_heads *heads,
                                         void *out, real *lse, const void *qkv)
{
    const size_t tokens = tokens_of(args, heads);
    const parts in = parts_of(args, qkv, heads, tokens);
    const tensor o = dense(args, out, tokens, wefti_node_heads_out(heads));
    const tensor sums = wide(lse, tokens, heads->heads);
    const wefti_math_heads how = causal(heads, tokens / length_of(args, heads));
    return wefti_stream_attention_forward(args->pass->compute, &o, &sums, &in.q,
                                          &in.k, &in.v, &how, false);
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
    const size_t tokens = tokens_of(args, heads);
    const parts in = parts_of(args, qkv, heads, tokens);
    const parts d = parts_of(args, dqkv, heads, tokens);
    const tensor o = dense(args, out, tokens, wefti_node_heads_out(heads));
    const tensor above = dense(args, dout, tokens, wefti_node_heads_out(heads));
    const tensor sums = wide(lse, tokens, heads->heads);
    const tensor dots = wide(delta, tokens, heads->heads);
    const wefti_math_heads how = causal(heads, tokens / length_of(args, heads));
    return wefti_stream_attention_backward(args->pass->compute, &d.q, &d.k,
                                           &d.v, &above, &in.q, &in.k, &in.v,
                                           &o, &sums, &dots, &how, false);
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
                 .how = causal(heads, sequences)};
    own.how.causal = seen->causal;
    own.how.causal_offset = seen->offset;
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

static tensor sums_of_queries(const block *own, size_t i, const real *at)
{
    const size_t heads = own->how.heads;
    return wide(at + (i * own->step + own->query) * heads, own->queries, heads);
}

static tensor of_keys(const block *own, size_t i, const void *at,
                      const wefti_node_heads *heads, bool values)
{
    const size_t stride = wefti_node_heads_keys(heads), width = stride / 2;
    const size_t first =
        (i * own->step + own->key) * stride + (values ? width : 0);
    return strided(own->args, wefti_node_skip(own->args, at, first), own->keys,
                   width, stride);
}

weft_status wefti_node_block_forward(const wefti_node_args *args,
                                     const wefti_node_heads *heads,
                                     const wefti_context_block *seen, void *out,
                                     real *lse, const void *qkv,
                                     const void *keys, bool merge)
{
    const size_t width = wefti_node_heads_out(heads);
    const block own = block_of(args, heads, seen);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < own.sequences && status == WEFT_OK; i++) {
        const tensor o = of_queries(&own, i, out, width, width);
        const tensor sums = sums_of_queries(&own, i, lse);
        const tensor q =
            of_queries(&own, i, qkv, width, wefti_node_heads_qkv(heads));
        const tensor k = of_keys(&own, i, keys, heads, false);
        const tensor v = of_keys(&own, i, keys, heads, true);
        status = wefti_stream_attention_forward(args->pass->compute, &o, &sums,
                                                &q, &k, &v, &own.how, merge);
    }
    return status;
}

weft_status wefti_node_block_backward(const wefti_node_args *args,
                                      const wefti_node_heads *heads,
                                      const wefti_context_block *seen,
                                      const wefti_node_slopes *slopes,
                                      const void *qkv, const void *keys)
{
    const size_t width = wefti_node_heads_out(heads);
    const size_t row = wefti_node_heads_qkv(heads);
    const block own = block_of(args, heads, seen);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < own.sequences && status == WEFT_OK; i++) {
        const tensor dq = of_queries(&own, i, slopes->dqkv, width, row);
        const tensor dk = of_keys(&own, i, slopes->dkeys, heads, false);
        const tensor dv = of_keys(&own, i, slopes->dkeys, heads, true);
        const tensor above = of_queries(&own, i, slopes->dout, width, width);
        const tensor q = of_queries(&own, i, qkv, width, row);
        const tensor k = of_keys(&own, i, keys, heads, false);
        const tensor v = of_keys(&own, i, keys, heads, true);
        const tensor sums = sums_of_queries(&own, i, slopes->lse);
        const tensor dots = sums_of_queries(&own, i, slopes->delta);
        status = wefti_stream_attention_backward(
            args->pass->compute, &dq, &dk, &dv, &above, &q, &k, &v, NULL, &sums,
            &dots, &own.how, slopes->accumulate);
    }
    return status;
}

weft_status wefti_node_pack_keys(const wefti_node_args *args,
                                 const wefti_node_heads *heads, void *keys,
                                 void *qkv, bool back)
{
    const size_t row = wefti_node_heads_qkv(heads);
    const size_t width = wefti_node_heads_keys(heads);
    const wefti_node_matrix beside = {
        wefti_node_skip(args, qkv, wefti_node_heads_out(heads)), row};
    const wefti_node_matrix alone = {keys, width};
    return wefti_node_copy_rows(args, back ? &beside : &alone,
                                back ? &alone : &beside, tokens_of(args, heads),
                                width, false);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_host.c - one op each, over real.
 */
#include "kernels/math/math_host.h"

#include "base/check.h"
#include "kernels/math/math_table.h"

#include <math.h>
#include <string.h>

static void run_fill(const wefti_math *math, const wefti_math_fill *a)
{
    math->fill(a->dst, (real)a->value, a->elems);
}

static void run_scale(const wefti_math *math, const wefti_math_scale *a)
{
    math->scale(a->dst, a->src, (real)a->factor, a->elems);
}

static void run_add(const wefti_math *math, const wefti_math_add *a)
{
    math->add(a->dst, a->a, a->b, a->elems);
}

static void run_copy_rows(const wefti_math *math, const wefti_math_copy_rows *a)
{
    (a->add ? math->add_rows : math->copy_rows)(
        a->dst, a->dst_stride, a->src, a->src_stride, a->rows, a->width);
}

static void run_rmsnorm_forward(const wefti_math *math,
                                const wefti_math_rmsnorm_forward *a)
{
    math->rmsnorm_forward(a->y, a->rstd, a->x, a->weight, a->rows, a->width,
                          (real)a->eps);
}

static void run_rmsnorm_gradients(const wefti_math *math,
                                  const wefti_math_rmsnorm_gradients *a)
{
    math->rmsnorm_backward(a->of.dx, a->dweight, a->of.dy, a->of.x,
                           a->of.weight, a->of.rstd, a->of.rows, a->of.width,
                           a->of.accumulate != 0);
}

static void run_rope_table(const wefti_math *math,
                           const wefti_math_rope_table *a)
{
    math->rope_table(a->table, a->positions, a->first, a->tokens, a->head_size,
                     a->theta);
}

static void run_rope_turn(const wefti_math *math, const wefti_math_rope_turn *a)
{
    (a->backward ? math->rope_backward : math->rope_forward)(
        a->x, a->table, a->tokens, a->heads, a->head_size, a->x_stride);
}

static void run_swiglu_forward(const wefti_math *math,
                               const wefti_math_swiglu_forward *a)
{
    math->swiglu_forward(a->out, a->gate, a->up, a->rows, a->width, a->stride);
}

static void run_swiglu_backward(const wefti_math *math,
                                const wefti_math_swiglu_backward *a)
{
    math->swiglu_backward(a->dgate, a->dup, a->dout, a->gate, a->up, a->rows,
                          a->width, a->stride);
}

static void run_embedding_forward(const wefti_math *math,
                                  const wefti_math_embedding_forward *a)
{
    math->embedding_forward(a->out, a->table, a->ids, a->tokens, a->vocab,
                            a->width);
}

static void run_embedding_backward(const wefti_math *math,
                                   const wefti_math_embedding_backward *a)
{
    math->embedding_backward(a->dtable, a->dout, a->ids, a->tokens, a->vocab,
                             a->width);
}

static void run_cross_entropy(const wefti_math *math,
                              const wefti_math_cross_entropy *a)
{
    math->cross_entropy(a->loss, a->dlogits, a->logits, a->targets, a->tokens,
                        a->vocab, (real)a->scale);
}

static void run_adamw_update(const wefti_math *math,
                             const wefti_math_adamw_update *a)
{
    wefti_adamw_config config = a->config;
    if (a->of.grad_factor) {
        config.grad_scale *= *a->of.grad_factor;
    }
    math->adamw(a->of.master, a->of.m, a->of.v, a->of.grad, a->of.elems,
                &config);
    if (a->of.param && a->of.elems > 0) {
        memcpy(a->of.param, a->of.master, a->of.elems * sizeof(real));
    }
}

static void run_sumsq(const wefti_math *math, const wefti_math_sumsq *a)
{
    math->sumsq(a->partials, a->x, a->elems);
}

static void run_clip(const wefti_math *math, const wefti_math_clip *a)
{
    double norm = sqrt(wefti_sumsq_reduce(a->partials, a->count)) * a->scale;
    (void)math;
    *a->norm = norm;
    *a->factor = a->most > 0 && norm > a->most ? a->most / norm : 1;
}

/* One sequence. */
static wefti_attention shape_of(const wefti_math_attention_shape *s)
{
    return (wefti_attention){.q_tokens = s->q_tokens,
                             .kv_tokens = s->kv_tokens,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .head_size = s->head_size,
                             .q_stride = s->q_stride,
                             .kv_stride = s->kv_stride,
                             .o_stride = s->o_stride,
                             .scale = (real)s->scale,
                             .causal = s->causal != 0,
                             .causal_offset = (ptrdiff_t)s->causal_offset};
}

static void run_attention_forward(const wefti_math *math,
                                  const wefti_math_attention_forward *a,
                                  real *scratch)
{
    const wefti_math_attention_shape *s = &a->shape;
    const wefti_attention one = shape_of(s);
    for (size_t n = 0; n < s->sequences; n++) {
        size_t q = n * s->q_tokens, kv = n * s->kv_tokens * s->kv_stride;
        math->attention_forward(
            (real *)a->o + q * s->o_stride, (real *)a->lse + q * s->heads,
            (const real *)a->q + q * s->q_stride, (const real *)a->k + kv,
            (const real *)a->v + kv, &one, a->merge != 0, scratch);
    }
}

/* One head of one token: weights of the two results, by their sums of exps. */
static void merge_head(real *o, real *lse, const real *other_o, real other_lse,
                       size_t head_size)
{
    real top = *lse > other_lse ? *lse : other_lse;
    if (top == -(real)INFINITY) {
        return;
    }
    double mine = exp((double)(*lse - top));
    double others = exp((double)(other_lse - top)), sum = mine + others;
    for (size_t d = 0; d < head_size; d++) {
        o[d] =
            (real)((mine * (double)o[d] + others * (double)other_o[d]) / sum);
    }
    *lse = (real)((double)top + log(sum));
}

static void run_attention_merge(const wefti_math *math,
                                const wefti_math_attention_merge *a)
{
    (void)math;
    for (size_t t = 0; t < a->tokens; t++) {
        for (size_t h = 0; h < a->heads; h++) {
            size_t at = t * a->o_stride + h * a->head_size;
            merge_head((real *)a->o + at, (real *)a->lse + t * a->heads + h,
                       (const real *)a->other_o + at,
                       ((const real *)a->other_lse)[t * a->heads + h],
                       a->head_size);
        }
    }
}

static void run_attention_delta(const wefti_math *math,
                                const wefti_math_attention_delta *a)
{
    const wefti_attention shape = {.q_tokens = a->tokens,
                                   .heads = a->heads,
                                   .head_size = a->head_size,
                                   .o_stride = a->o_stride};
    math->attention_delta(a->delta, a->o, a->dout, &shape);
}

static void clear_rows(real *at, size_t rows, size_t width, size_t stride)
{
    for (size_t row = 0; row < rows; row++) {
        memset(at + row * stride, 0, width * sizeof(real));
    }
}

static void run_attention_backward(const wefti_math *math,
                                   const wefti_math_attention_backward *a,
                                   real *scratch)
{
    const wefti_math_attention_shape *s = &a->shape;
    const wefti_attention one = shape_of(s);
    const size_t keys = s->sequences * s->kv_tokens;
    if (!a->accumulate) {
        clear_rows(a->dq, s->sequences * s->q_tokens, s->heads * s->head_size,
                   s->q_stride);
        clear_rows(a->dk, keys, s->kv_heads * s->head_size, s->kv_stride);
        clear_rows(a->dv, keys, s->kv_heads * s->head_size, s->kv_stride);
    }
    for (size_t n = 0; n < s->sequences; n++) {
        size_t t = n * s->q_tokens, q = t * s->q_stride;
        size_t kv = n * s->kv_tokens * s->kv_stride;
        math->attention_backward(
            (real *)a->dq + q, (real *)a->dk + kv, (real *)a->dv + kv,
            (const real *)a->dout + t * s->o_stride, (const real *)a->q + q,
            (const real *)a->k + kv, (const real *)a->v + kv,
            (const real *)a->lse + t * s->heads,
            (const real *)a->delta + t * s->heads, &one, scratch);
    }
}

static void run_gemm(const wefti_math *math, const wefti_math_gemm *a)
{
    math->gemm(a->transpose_a != 0, a->transpose_b != 0, a->m, a->n, a->k,
               (real)a->alpha, a->a, a->lda ? a->lda : 1, a->b,
               a->ldb ? a->ldb : 1, (real)a->beta, a->c, a->ldc);
}

size_t wefti_math_host_scratch_elems(wefti_math_op op,
                                     const wefti_math_args *args)
{
    wefti_attention shape;
    if (op == WEFTI_MATH_OP_attention_forward) {
        shape = shape_of(&args->attention_forward.shape);
    } else if (op == WEFTI_MATH_OP_attention_backward) {
        shape = shape_of(&args->attention_backward.shape);
    } else {
        return 0;
    }
    return wefti_attention_scratch_elems(&shape);
}

void wefti_math_host_run(wefti_math_op op, const wefti_math_args *args,
                         real *scratch)
{
    const wefti_math *math = wefti_math_get();
    switch (op) {
#define RUN(op)                                                                \
    case WEFTI_MATH_OP_##op:                                                   \
        run_##op(math, &args->op);                                             \
        break
        RUN(fill);
        RUN(scale);
        RUN(add);
        RUN(copy_rows);
        RUN(rmsnorm_forward);
        RUN(rmsnorm_gradients);
        RUN(rope_table);
        RUN(rope_turn);
        RUN(swiglu_forward);
        RUN(swiglu_backward);
        RUN(embedding_forward);
        RUN(embedding_backward);
        RUN(cross_entropy);
        RUN(adamw_update);
        RUN(sumsq);
        RUN(clip);
        RUN(attention_merge);
        RUN(attention_delta);
        RUN(gemm);
#undef RUN
    case WEFTI_MATH_OP_attention_forward:
        run_attention_forward(math, &args->attention_forward, scratch);
        break;
    case WEFTI_MATH_OP_attention_backward:
        run_attention_backward(math, &args->attention_backward, scratch);
        break;
    default:
        WEFTI_ASSERT(!"an op of several kernels, by one of them");
    }
}

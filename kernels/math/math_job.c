/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_job.c - the host's kernels behind the arguments of
 * math_launch.h. A job owns all that it needs when it is posted, so that
 * running it can not fail.
 */
#include "kernels/math/math_job.h"

#include "base/check.h"
#include "base/error.h"
#include "base/small_float.h"
#include "kernels/math/gemm_bf16.h"
#include "kernels/math/math_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef union any_args {
#define ANY(op) wefti_math_##op op;
    WEFTI_MATH_OPS(ANY) WEFTI_MATH_HOST_OPS(ANY)
#undef ANY
} any_args;

typedef struct job {
    wefti_math_op op;
    wefti_math_type type;
    any_args args; /* with pointers of the host's */
    size_t use_count;
    wefti_math_use uses[WEFTI_MATH_USES];
    uint16_t *narrow[WEFTI_MATH_USES]; /* bf16 arrays; NULL: of other types */
    real *wide[WEFTI_MATH_USES];       /* what stands for them */
    real *scratch;                     /* of attention */
} job;

/* ---- one op each, over real ------------------------------------------------
 */

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

/* ---- jobs ------------------------------------------------------------------
 */

static void run_op(const job *of)
{
    const wefti_math *math = wefti_math_get();
    switch (of->op) {
#define RUN(op)                                                                \
    case WEFTI_MATH_OP_##op:                                                   \
        run_##op(math, &of->args.op);                                          \
        break
        RUN(fill);
        RUN(scale);
        RUN(add);
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
        run_attention_forward(math, &of->args.attention_forward, of->scratch);
        break;
    case WEFTI_MATH_OP_attention_backward:
        run_attention_backward(math, &of->args.attention_backward, of->scratch);
        break;
    default:
        WEFTI_ASSERT(!"an op of several kernels, by one of them");
    }
}

/* Whose kernel reads bf16 itself. */
static bool is_product_of_bf16(const job *of)
{
    return of->op == WEFTI_MATH_OP_gemm &&
           (of->type == WEFTI_MATH_BF16 || of->type == WEFTI_MATH_BF16_F32);
}

static void widen_rows(const job *of, size_t i)
{
    const wefti_math_use *u = &of->uses[i];
    for (size_t row = 0; row < u->rows; row++) {
        for (size_t at = row * u->stride; at < row * u->stride + u->width;
             at++) {
            of->wide[i][at] = (real)wefti_bf16_widen(of->narrow[i][at]);
        }
    }
}

static void narrow_rows(const job *of, size_t i)
{
    const wefti_math_use *u = &of->uses[i];
    for (size_t row = 0; row < u->rows; row++) {
        for (size_t at = row * u->stride; at < row * u->stride + u->width;
             at++) {
            of->narrow[i][at] = wefti_bf16_narrow((float)of->wide[i][at]);
        }
    }
}

static void free_job(job *freed)
{
    for (size_t i = 0; i < freed->use_count; i++) {
        free(freed->wide[i]);
    }
    free(freed->scratch);
    free(freed);
}

static void run_job(void *arg)
{
    job *of = arg;
    for (size_t i = 0; i < of->use_count; i++) {
        if (of->wide[i] && of->uses[i].reads) {
            widen_rows(of, i);
        }
    }
    if (is_product_of_bf16(of)) {
        wefti_gemm_bf16(&of->args.gemm, of->type == WEFTI_MATH_BF16_F32);
    } else {
        run_op(of);
    }
    for (size_t i = 0; i < of->use_count; i++) {
        if (of->wide[i] && of->uses[i].writes) {
            narrow_rows(of, i);
        }
    }
    free_job(of);
}

static bool has_type(wefti_math_op op, wefti_math_type type)
{
    if (op == WEFTI_MATH_OP_clip) {
        return true; /* double in every build */
    }
    return WEFTI_REAL_DTYPE == WEFT_DTYPE_F64 ? type == WEFTI_MATH_F64
                                              : type != WEFTI_MATH_F64;
}

/* Where the array is for the host; of bf16 a copy stands for it. */
static weft_status place(job *of, size_t i, const weft_stream *stream,
                         const char *name)
{
    char *field = (char *)&of->args + of->uses[i].place;
    const size_t bytes = wefti_math_use_bytes(&of->uses[i]);
    void *at, *found;
    memcpy(&at, field, sizeof(at));
    if (!at || bytes == 0) {
        return WEFT_OK;
    }
    weft_status status = wefti_stream_place(stream, name, at, bytes, &found);
    if (status == WEFT_OK && of->uses[i].dtype == WEFT_DTYPE_BF16 &&
        !is_product_of_bf16(of)) {
        of->narrow[i] = found;
        of->wide[i] = malloc(bytes / sizeof(uint16_t) * sizeof(real));
        if (!of->wide[i]) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "%s: no memory for %zu bytes in f32", name,
                               bytes / sizeof(uint16_t) * sizeof(real));
        }
        found = of->wide[i];
    }
    memcpy(field, &found, sizeof(found));
    return status;
}

static weft_status find_scratch(job *of, const char *name)
{
    wefti_attention shape;
    if (of->op == WEFTI_MATH_OP_attention_forward) {
        shape = shape_of(&of->args.attention_forward.shape);
    } else if (of->op == WEFTI_MATH_OP_attention_backward) {
        shape = shape_of(&of->args.attention_backward.shape);
    } else {
        return WEFT_OK;
    }
    const size_t elems = wefti_attention_scratch_elems(&shape);
    of->scratch = calloc(elems, sizeof(real));
    return of->scratch
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "%s: no memory for %zu elements of scratch", name,
                             elems);
}

weft_status wefti_math_job_post(weft_stream *stream, wefti_math_op op,
                                wefti_math_type type, const void *args)
{
    char name[WEFTI_MATH_NAME_BYTES];
    wefti_math_op_name(op, type, name);
    if (!has_type(op, type)) {
        return wefti_error(
            WEFT_ERR_UNSUPPORTED,
            "%s: this build's kernels of the host are for " WEFTI_REAL_NAME,
            name);
    }
    job *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: no memory for its launch",
                           name);
    }
    made->op = op;
    made->type = type;
    memcpy(&made->args, args, wefti_math_op_args_bytes(op));
    made->use_count = wefti_math_op_uses(op, type, &made->args, made->uses);
    weft_status status = find_scratch(made, name);
    for (size_t i = 0; i < made->use_count && status == WEFT_OK; i++) {
        status = place(made, i, stream, name);
    }
    if (status == WEFT_OK) {
        status = wefti_stream_compute(stream, run_job, made);
    }
    if (status < 0) {
        free_job(made);
    }
    return status;
}

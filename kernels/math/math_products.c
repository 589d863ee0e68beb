/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_products.c - attention and matrix products of
 * math_stream.h.
 */
#include "kernels/math/math_post.h"

#include "base/error.h"

#include <limits.h>

typedef wefti_math_tensor tensor;
typedef wefti_math_want want;
typedef wefti_math_types types;

/* The shape of q and k, as far as it makes sense; the rest check() finds. */
static weft_status find_shape(const char *op, const wefti_math_heads *heads,
                              const types *t, const tensor *q, const tensor *k,
                              const tensor *o, wefti_math_attention_shape *out)
{
    const size_t most = t->own == WEFT_DTYPE_F64 ? WEFTI_MATH_HEAD_MOST / 2
                                                 : WEFTI_MATH_HEAD_MOST;
    if (!k || !o) {
        return wefti_error(WEFT_ERR_INVALID, "%s: %s: allowed is a tensor", op,
                           k ? "o or dout is NULL" : "k is NULL");
    }
    if (heads->heads == 0 || heads->kv_heads == 0 || heads->sequences == 0 ||
        heads->heads % heads->kv_heads != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %zu sequences, %zu heads, %zu of keys: allowed "
                           "is 1 or more, and whole groups of heads",
                           op, heads->sequences, heads->heads, heads->kv_heads);
    }
    const size_t head = q->width / heads->heads;
    if (head == 0 || head > most || q->width % heads->heads != 0 ||
        q->rows % heads->sequences != 0 || k->rows % heads->sequences != 0) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s: q of [%zu][%zu] and k of %zu rows, %zu heads, %zu sequences: "
            "allowed is whole heads, of at most %zu elements, and whole "
            "sequences",
            op, q->rows, q->width, k->rows, heads->heads, heads->sequences,
            most);
    }
    *out = (wefti_math_attention_shape){.sequences = heads->sequences,
                                        .q_tokens = q->rows / heads->sequences,
                                        .kv_tokens = k->rows / heads->sequences,
                                        .heads = heads->heads,
                                        .kv_heads = heads->kv_heads,
                                        .head_size = head,
                                        .q_stride = q->stride,
                                        .kv_stride = k->stride,
                                        .o_stride = o->stride,
                                        .scale = heads->scale,
                                        .causal = heads->causal,
                                        .causal_offset = heads->causal_offset};
    return WEFT_OK;
}

static wefti_attention_call call_of(const wefti_math_attention_shape *s)
{
    return (wefti_attention_call){.sequences = s->sequences,
                                  .q_tokens = s->q_tokens,
                                  .kv_tokens = s->kv_tokens,
                                  .heads = s->heads,
                                  .kv_heads = s->kv_heads,
                                  .head_size = s->head_size,
                                  .q_stride = s->q_stride,
                                  .kv_stride = s->kv_stride,
                                  .o_stride = s->o_stride,
                                  .scale = s->scale,
                                  .causal = s->causal != 0};
}

/* By a library of the device's, where it has one that does it: of bf16 all
 * over, if nothing was there before. */
static weft_status attend(weft_stream *stream, const types *t,
                          const wefti_attention_call *call,
                          int64_t causal_offset, bool *queued_out)
{
    *queued_out = false;
    return t->type == WEFTI_MATH_BF16 && call->q_tokens > 0 &&
                   call->kv_tokens > 0 && (!call->causal || causal_offset == 0)
               ? wefti_stream_attend(stream, call, queued_out)
               : WEFT_OK;
}

static weft_status post_forward(weft_stream *stream, const types *t,
                                const wefti_math_attention_forward *args,
                                bool once)
{
    wefti_attention_call call = call_of(&args->shape);
    bool queued = false;
    weft_status status = WEFT_OK;
    call.o = args->o;
    call.lse = args->lse;
    call.q = args->q;
    call.k = args->k;
    call.v = args->v;
    if (!args->merge && !once) {
        status = attend(stream, t, &call, args->shape.causal_offset, &queued);
    }
    return status < 0 || queued
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_attention_forward,
                                 t->type, args);
}

weft_status wefti_stream_attention_forward(weft_stream *stream, const tensor *o,
                                           const tensor *lse, const tensor *q,
                                           const tensor *k, const tensor *v,
                                           const wefti_math_heads *heads,
                                           bool merge)
{
    static const char op[] = "attention_forward";
    types t;
    wefti_math_attention_shape s;
    weft_status status = FIND_TYPES(op, q, o, &t);
    if (status == WEFT_OK) {
        status = find_shape(op, heads, &t, q, k, o, &s);
    }
    if (status < 0) {
        return status;
    }
    const size_t keys = s.kv_heads * s.head_size;
    const want wants[] = {STRIDED(q, t.own, q->rows, q->width),
                          STRIDED(o, t.mixed, q->rows, q->width),
                          DENSE(lse, t.wide, q->rows, s.heads),
                          STRIDED(k, t.own, k->rows, keys),
                          SPACED(v, t.own, k->rows, keys, k->stride)};
    status = CHECK(op, wants);
    if (status < 0) {
        return status;
    }
    const wefti_math_attention_forward args = {o->at, lse->at, q->at, k->at,
                                               v->at, s,       merge};
    return post_forward(stream, &t, &args, heads->once);
}

weft_status wefti_stream_attention_merge(weft_stream *stream, const tensor *o,
                                         const tensor *lse,
                                         const tensor *other_o,
                                         const tensor *other_lse)
{
    static const char op[] = "attention_merge";
    types t;
    weft_status status = FIND_TYPES(op, o, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t heads = lse ? lse->width : 0;
    const size_t head = heads ? o->width / heads : 0;
    const want wants[] = {DENSE(lse, t.wide, o->rows, heads),
                          STRIDED(o, t.own, o->rows, heads * head),
                          SPACED(other_o, t.own, o->rows, o->width, o->stride),
                          DENSE(other_lse, t.wide, o->rows, heads)};
    status = CHECK(op, wants);
    if (status < 0) {
        return status;
    }
    const wefti_math_attention_merge args = {
        o->at,   lse->at, other_o->at, other_lse->at,
        o->rows, heads,   head,        o->stride};
    return wefti_math_post(stream, WEFTI_MATH_OP_attention_merge, t.type,
                           &args);
}

weft_status wefti_stream_attention_delta(weft_stream *stream,
                                         const tensor *delta, const tensor *o,
                                         const tensor *dout)
{
    static const char op[] = "attention_delta";
    types t;
    weft_status status = FIND_TYPES(op, dout, o, &t);
    if (status < 0) {
        return status;
    }
    const size_t heads = delta ? delta->width : 0;
    const size_t head = heads ? dout->width / heads : 0;
    const want wants[] = {
        DENSE(delta, t.wide, dout->rows, heads),
        STRIDED(dout, t.own, dout->rows, heads * head),
        SPACED(o, t.mixed, dout->rows, dout->width, dout->stride)};
    status = CHECK(op, wants);
    if (status < 0) {
        return status;
    }
    const wefti_math_attention_delta args = {
        delta->at, o->at, dout->at, dout->rows, heads, head, dout->stride};
    return wefti_math_post(stream, WEFTI_MATH_OP_attention_delta, t.type,
                           &args);
}

/* As a whole; o of bf16. */
static weft_status attend_backward(weft_stream *stream, const types *t,
                                   const wefti_math_attention_backward *args,
                                   void *o, bool *queued_out)
{
    wefti_attention_call call = call_of(&args->shape);
    call.o = o;
    call.lse = (void *)args->lse;
    call.q = args->q;
    call.k = args->k;
    call.v = args->v;
    call.dout = args->dout;
    call.dq = args->dq;
    call.dk = args->dk;
    call.dv = args->dv;
    call.delta = (void *)args->delta;
    return attend(stream, t, &call, args->shape.causal_offset, queued_out);
}

static weft_status post_backward(weft_stream *stream, const types *t,
                                 const wefti_math_attention_backward *args)
{
    if (wefti_stream_computes(stream)) {
        return wefti_math_post(stream, WEFTI_MATH_OP_attention_backward,
                               t->type, args);
    }
    weft_status status =
        wefti_math_post(stream, WEFTI_MATH_OP_attention_dq, t->type, args);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_attention_dkdv,
                                        t->type, args);
}

weft_status wefti_stream_attention_backward(
    weft_stream *stream, const tensor *dq, const tensor *dk, const tensor *dv,
    const tensor *dout, const tensor *q, const tensor *k, const tensor *v,
    const tensor *o, const tensor *lse, const tensor *delta,
    const wefti_math_heads *heads, bool accumulate)
{
    static const char op[] = "attention_backward";
    types t;
    wefti_math_attention_shape s;
    weft_status status = FIND_TYPES(op, q, dq, &t);
    if (status == WEFT_OK) {
        status = find_shape(op, heads, &t, q, k, dout, &s);
    }
    if (status < 0) {
        return status;
    }
    const size_t keys = s.kv_heads * s.head_size;
    const bool is_wide = o && o->dtype == t.wide;
    const want wants[] = {STRIDED(q, t.own, q->rows, q->width),
                          STRIDED(k, t.own, k->rows, keys),
                          SPACED(v, t.own, k->rows, keys, k->stride),
                          STRIDED(dout, t.own, q->rows, q->width),
                          {"o", o, is_wide ? t.wide : t.own, q->rows, q->width,
                           true, false, dout->stride},
                          DENSE(lse, t.wide, q->rows, s.heads),
                          DENSE(delta, t.wide, q->rows, s.heads),
                          SPACED(dq, t.mixed, q->rows, q->width, q->stride),
                          SPACED(dk, t.mixed, k->rows, keys, k->stride),
                          SPACED(dv, t.mixed, k->rows, keys, k->stride)};
    status = CHECK(op, wants);
    if (status < 0) {
        return status;
    }
    const wefti_math_attention_backward args = {
        dq->at, dk->at,  dv->at,    dout->at, q->at,     k->at,
        v->at,  lse->at, delta->at, s,        accumulate};
    bool queued = false;
    if (o && o->dtype == WEFT_DTYPE_BF16 && !accumulate && !heads->once) {
        status = attend_backward(stream, &t, &args, o->at, &queued);
    }
    if (status == WEFT_OK && o && !queued) {
        status = wefti_stream_attention_delta(stream, delta, o, dout);
    }
    return status < 0 || queued ? status : post_backward(stream, &t, &args);
}

/* By a library of the device's, where it has one that does it. */
static weft_status post_product(weft_stream *stream, const types *t,
                                const wefti_math_gemm *args)
{
    const wefti_product product = {.c = args->c,
                                   .a = args->a,
                                   .b = args->b,
                                   .dtype = t->own,
                                   .c_dtype = t->mixed,
                                   .m = args->m,
                                   .n = args->n,
                                   .k = args->k,
                                   .lda = args->lda,
                                   .ldb = args->ldb,
                                   .ldc = args->ldc,
                                   .alpha = args->alpha,
                                   .beta = args->beta,
                                   .transpose_a = args->transpose_a != 0,
                                   .transpose_b = args->transpose_b != 0};
    bool queued = false;
    weft_status status = WEFT_OK;
    if (args->m > 0 && args->n > 0 && args->k > 0) {
        status = wefti_stream_multiply(stream, &product, &queued);
    }
    return status < 0 || queued
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_gemm, t->type, args);
}

weft_status wefti_stream_gemm(weft_stream *stream, const tensor *c,
                              const tensor *a, bool transpose_a,
                              const tensor *b, bool transpose_b, double alpha,
                              double beta)
{
    types t;
    weft_status status = FIND_TYPES("gemm", a, c, &t);
    if (status < 0) {
        return status;
    }
    const size_t m = transpose_a ? a->width : a->rows;
    const size_t k = transpose_a ? a->rows : a->width;
    const size_t n = c ? c->width : 0;
    const want wants[] = {
        STRIDED(a, t.own, a->rows, a->width), STRIDED(c, t.mixed, m, n),
        STRIDED(b, t.own, transpose_b ? n : k, transpose_b ? k : n)};
    status = CHECK("gemm", wants);
    if (status < 0) {
        return status;
    }
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX || a->stride > INT_MAX ||
        b->stride > INT_MAX || c->stride > INT_MAX) {
        return wefti_error(WEFT_ERR_INVALID,
                           "gemm: %zu x %zu x %zu, rows %zu, %zu, %zu elements "
                           "apart: allowed is at most %d",
                           m, n, k, a->stride, b->stride, c->stride, INT_MAX);
    }
    const wefti_math_gemm args = {
        c->at,     a->at,     b->at, m,    n,           k,          a->stride,
        b->stride, c->stride, alpha, beta, transpose_a, transpose_b};
    return post_product(stream, &t, &args);
}

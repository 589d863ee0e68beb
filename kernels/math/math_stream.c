/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_stream.c - checks of tensors, and the arguments of
 * math_launch.h made of them; those of attention and products are in
 * math_products.c.
 */
#include "kernels/math/math_stream.h"

#include "kernels/math/cross_entropy.h"
#include "kernels/math/math_launch.h"
#include "kernels/math/math_post.h"
#include "kernels/math/sumsq.h"

#include <math.h>

typedef wefti_math_tensor tensor;
typedef wefti_math_want want;
typedef wefti_math_types types;

static void *at(const tensor *of)
{
    return of ? of->at : NULL;
}

/* ---- elementwise -----------------------------------------------------------
 */

weft_status wefti_stream_fill(weft_stream *stream, const tensor *dst,
                              double value)
{
    types t;
    weft_status status = FIND_TYPES("fill", dst, NULL, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {DENSE(dst, t.own, 1, dst->width)};
    const wefti_math_fill args = {dst->at, value, dst->width};
    status = CHECK("fill", wants);
    return status < 0
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_fill, t.type, &args);
}

weft_status wefti_stream_scale(weft_stream *stream, const tensor *dst,
                               const tensor *src, double factor)
{
    types t;
    weft_status status = FIND_TYPES("scale", dst, NULL, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {DENSE(dst, t.own, 1, dst->width),
                          DENSE(src, t.own, 1, dst->width)};
    const wefti_math_scale args = {dst->at, at(src), factor, dst->width};
    status = CHECK("scale", wants);
    return status < 0
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_scale, t.type, &args);
}

weft_status wefti_stream_add(weft_stream *stream, const tensor *dst,
                             const tensor *a, const tensor *b)
{
    types t;
    weft_status status = FIND_TYPES("add", dst, NULL, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {DENSE(dst, t.own, 1, dst->width),
                          DENSE(a, t.own, 1, dst->width),
                          DENSE(b, t.own, 1, dst->width)};
    const wefti_math_add args = {dst->at, at(a), at(b), dst->width};
    status = CHECK("add", wants);
    return status < 0
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_add, t.type, &args);
}

weft_status wefti_stream_copy_rows(weft_stream *stream, const tensor *dst,
                                   const tensor *src, bool add)
{
    types t;
    weft_status status = FIND_TYPES("copy_rows", dst, src, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {STRIDED(dst, t.own, dst->rows, dst->width),
                          STRIDED(src, t.mixed, dst->rows, dst->width)};
    const wefti_math_copy_rows args = {dst->at,     at(src),
                                       dst->rows,   dst->width,
                                       dst->stride, src ? src->stride : 0,
                                       add};
    status = CHECK("copy_rows", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_copy_rows, t.type,
                                        &args);
}

/* ---- rmsnorm ---------------------------------------------------------------
 */

weft_status wefti_stream_rmsnorm_forward(weft_stream *stream, const tensor *y,
                                         const tensor *rstd, const tensor *x,
                                         const tensor *weight, double eps)
{
    types t;
    weft_status status = FIND_TYPES("rmsnorm_forward", y, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = y->rows, width = y->width;
    const want wants[] = {
        DENSE(y, t.own, rows, width), OPTIONAL(rstd, t.wide, 1, rows),
        DENSE(x, t.own, rows, width), DENSE(weight, t.own, 1, width)};
    const wefti_math_rmsnorm_forward args = {y->at, at(rstd), at(x), at(weight),
                                             rows,  width,    eps};
    status = CHECK("rmsnorm_forward", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_rmsnorm_forward,
                                        t.type, &args);
}

/* Partial sums of dweight read dy before dx may take its place. */
static weft_status launch_gradients(weft_stream *stream, const types *t,
                                    const wefti_math_rmsnorm_gradients *all,
                                    void *partials)
{
    const wefti_math_rmsnorm_backward *of = &all->of;
    const wefti_math_rmsnorm_dweight dweight = {partials, of->dy,   of->x,
                                                of->rstd, of->rows, of->width};
    const wefti_math_sum_rows sum = {all->dweight, partials,
                                     wefti_math_dweight_partials(of->rows),
                                     of->width};
    weft_status status = wefti_math_post(stream, WEFTI_MATH_OP_rmsnorm_dweight,
                                         t->type, &dweight);
    if (status == WEFT_OK) {
        status =
            wefti_math_post(stream, WEFTI_MATH_OP_sum_rows, t->wide_type, &sum);
    }
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_rmsnorm_backward,
                                        t->type, of);
}

weft_status wefti_stream_rmsnorm_backward(weft_stream *stream, const tensor *dx,
                                          const tensor *dweight,
                                          const tensor *dy, const tensor *x,
                                          const tensor *weight,
                                          const tensor *rstd, bool accumulate,
                                          const tensor *scratch)
{
    types t;
    weft_status status = FIND_TYPES("rmsnorm_backward", dx, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = dx->rows, width = dx->width;
    const want wants[] = {
        DENSE(dx, t.own, rows, width),
        DENSE(dweight, t.wide, 1, width),
        DENSE(dy, t.own, rows, width),
        DENSE(x, t.own, rows, width),
        DENSE(weight, t.own, 1, width),
        DENSE(rstd, t.wide, 1, rows),
        DENSE(scratch, t.wide, wefti_math_dweight_partials(rows), width)};
    const wefti_math_rmsnorm_gradients args = {.of = {dx->at, at(dy), at(x),
                                                      at(weight), at(rstd),
                                                      rows, width, accumulate},
                                               .dweight = at(dweight)};
    status = CHECK("rmsnorm_backward", wants);
    return status < 0 ? status
           : wefti_stream_computes(stream)
               ? wefti_math_post(stream, WEFTI_MATH_OP_rmsnorm_gradients,
                                 t.type, &args)
               : launch_gradients(stream, &t, &args, scratch->at);
}

/* ---- rope ------------------------------------------------------------------
 */

weft_status wefti_stream_rope_table(weft_stream *stream, const tensor *table,
                                    const tensor *positions, int64_t first,
                                    double theta)
{
    types t;
    weft_status status = FIND_TYPES("rope_table", table, NULL, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {
        DENSE(table, t.wide, table->rows, table->width / 2 * 2),
        OPTIONAL(positions, WEFT_DTYPE_I32, 1, table->rows)};
    const wefti_math_rope_table args = {table->at,   at(positions), first,
                                        table->rows, table->width,  theta};
    status = CHECK("rope_table", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_rope_table,
                                        t.type, &args);
}

weft_status wefti_stream_rope(weft_stream *stream, const tensor *x,
                              const tensor *table, bool backward)
{
    types t;
    weft_status status = FIND_TYPES("rope", x, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t head = table ? table->width : 0;
    const size_t heads = head ? x->width / head : 0;
    const want wants[] = {DENSE(table, t.wide, x->rows, head / 2 * 2),
                          STRIDED(x, t.own, x->rows, heads * head)};
    const wefti_math_rope_turn args = {x->at, at(table), x->rows, heads,
                                       head,  x->stride, backward};
    status = CHECK("rope", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_rope_turn, t.type,
                                        &args);
}

/* ---- swiglu ----------------------------------------------------------------
 */

weft_status wefti_stream_swiglu_forward(weft_stream *stream, const tensor *out,
                                        const tensor *gate, const tensor *up)
{
    types t;
    weft_status status = FIND_TYPES("swiglu_forward", out, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = out->rows, width = out->width;
    const size_t stride = gate ? gate->stride : 0;
    const want wants[] = {DENSE(out, t.own, rows, width),
                          STRIDED(gate, t.own, rows, width),
                          SPACED(up, t.own, rows, width, stride)};
    const wefti_math_swiglu_forward args = {out->at, at(gate), at(up),
                                            rows,    width,    stride};
    status = CHECK("swiglu_forward", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_swiglu_forward,
                                        t.type, &args);
}

weft_status wefti_stream_swiglu_backward(weft_stream *stream,
                                         const tensor *dgate, const tensor *dup,
                                         const tensor *dout, const tensor *gate,
                                         const tensor *up)
{
    types t;
    weft_status status = FIND_TYPES("swiglu_backward", dout, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = dout->rows, width = dout->width;
    const size_t stride = gate ? gate->stride : 0;
    const want wants[] = {DENSE(dout, t.own, rows, width),
                          STRIDED(gate, t.own, rows, width),
                          SPACED(up, t.own, rows, width, stride),
                          SPACED(dgate, t.own, rows, width, stride),
                          SPACED(dup, t.own, rows, width, stride)};
    const wefti_math_swiglu_backward args = {
        at(dgate), at(dup), dout->at, at(gate), at(up), rows, width, stride};
    status = CHECK("swiglu_backward", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_swiglu_backward,
                                        t.type, &args);
}

/* ---- tokens ----------------------------------------------------------------
 */

weft_status wefti_stream_embedding_forward(weft_stream *stream,
                                           const tensor *out,
                                           const tensor *table,
                                           const tensor *ids)
{
    types t;
    weft_status status = FIND_TYPES("embedding_forward", out, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t vocab = table ? table->rows : 0;
    const want wants[] = {DENSE(out, t.own, out->rows, out->width),
                          DENSE(table, t.own, vocab, out->width),
                          DENSE(ids, WEFT_DTYPE_I32, 1, out->rows)};
    const wefti_math_embedding_forward args = {out->at,   at(table),  at(ids),
                                               out->rows, out->width, vocab};
    status = CHECK("embedding_forward", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_embedding_forward,
                                        t.type, &args);
}

weft_status wefti_stream_embedding_backward(weft_stream *stream,
                                            const tensor *dtable,
                                            const tensor *dout,
                                            const tensor *ids)
{
    types t;
    weft_status status = FIND_TYPES("embedding_backward", dout, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t vocab = dtable ? dtable->rows : 0;
    const want wants[] = {DENSE(dout, t.own, dout->rows, dout->width),
                          DENSE(dtable, t.wide, vocab, dout->width),
                          DENSE(ids, WEFT_DTYPE_I32, 1, dout->rows)};
    const wefti_math_embedding_backward args = {
        at(dtable), dout->at, at(ids), dout->rows, dout->width, vocab};
    status = CHECK("embedding_backward", wants);
    return status < 0
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_embedding_backward,
                                 t.type, &args);
}

weft_status wefti_stream_cross_entropy(weft_stream *stream, const tensor *loss,
                                       const tensor *dlogits,
                                       const tensor *logits,
                                       const tensor *targets, double scale)
{
    types t;
    weft_status status = FIND_TYPES("cross_entropy", logits, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = logits->rows, vocab = logits->width;
    const want wants[] = {DENSE(logits, t.own, tokens, vocab),
                          DENSE(loss, t.wide, 1, tokens),
                          OPTIONAL(dlogits, t.own, tokens, vocab),
                          DENSE(targets, WEFT_DTYPE_I32, 1, tokens)};
    const wefti_math_cross_entropy args = {
        at(loss), at(dlogits), logits->at, at(targets), tokens, vocab, scale};
    status = CHECK("cross_entropy", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_cross_entropy,
                                        t.type, &args);
}

weft_status wefti_stream_softmax_part(weft_stream *stream,
                                      const tensor *summary,
                                      const tensor *logits,
                                      const tensor *targets)
{
    types t;
    weft_status status = FIND_TYPES("softmax_part", logits, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = logits->rows, vocab = logits->width;
    const want wants[] = {
        DENSE(logits, t.own, tokens, vocab),
        DENSE(summary, t.wide, tokens, WEFTI_CROSS_ENTROPY_SUMMARY),
        DENSE(targets, WEFT_DTYPE_I32, 1, tokens)};
    const wefti_math_softmax_part args = {at(summary), logits->at, at(targets),
                                          tokens, vocab};
    status = CHECK("softmax_part", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_softmax_part,
                                        t.type, &args);
}

weft_status wefti_stream_cross_entropy_part(weft_stream *stream,
                                            const tensor *loss,
                                            const tensor *dlogits,
                                            const tensor *logits,
                                            const tensor *targets,
                                            const tensor *parts, double scale)
{
    types t;
    weft_status status = FIND_TYPES("cross_entropy_part", logits, NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = logits->rows, vocab = logits->width;
    const size_t count = parts ? parts->rows : 0;
    const size_t elems = tokens * WEFTI_CROSS_ENTROPY_SUMMARY;
    const want wants[] = {DENSE(logits, t.own, tokens, vocab),
                          DENSE(loss, t.wide, 1, tokens),
                          OPTIONAL(dlogits, t.own, tokens, vocab),
                          DENSE(targets, WEFT_DTYPE_I32, 1, tokens),
                          STRIDED(parts, t.wide, count, elems)};
    status = CHECK("cross_entropy_part", wants);
    if (status < 0) {
        return status;
    }
    const wefti_math_cross_entropy_part args = {
        at(loss), at(dlogits),   logits->at, at(targets), at(parts),
        count,    parts->stride, tokens,     vocab,       scale};
    return wefti_math_post(stream, WEFTI_MATH_OP_cross_entropy_part, t.type,
                           &args);
}

/* ---- the step --------------------------------------------------------------
 */

static wefti_math_adamw_step step_of(const wefti_adamw_config *config)
{
    const double left1 = 1 - pow(config->beta1, (double)config->step);
    const double left2 = 1 - pow(config->beta2, (double)config->step);
    return (wefti_math_adamw_step){.beta1 = config->beta1,
                                   .rest1 = 1 - config->beta1,
                                   .beta2 = config->beta2,
                                   .rest2 = 1 - config->beta2,
                                   .grad_scale = config->grad_scale,
                                   .eps = config->eps,
                                   .decay = config->lr * config->weight_decay,
                                   .m_factor = config->lr / left1,
                                   .v_factor = 1 / sqrt(left2)};
}

weft_status wefti_stream_adamw(weft_stream *stream, const tensor *param,
                               const tensor *master, const tensor *m,
                               const tensor *v, const tensor *grad,
                               const tensor *grad_factor,
                               const wefti_adamw_config *config)
{
    types t;
    weft_status status = FIND_TYPES("adamw", grad, NULL, &t);
    if (status == WEFT_OK && param) {
        status = FIND_TYPES("adamw", param, grad, &t);
    }
    if (status < 0) {
        return status;
    }
    const size_t elems = grad->width;
    const want wants[] = {OPTIONAL(param, t.own, 1, elems),
                          DENSE(master, t.wide, 1, elems),
                          DENSE(m, t.wide, 1, elems),
                          DENSE(v, t.wide, 1, elems),
                          DENSE(grad, t.mixed, 1, elems),
                          OPTIONAL(grad_factor, WEFT_DTYPE_F64, 1, 1)};
    const wefti_math_adamw_update args = {
        .of = {at(param), at(master), at(m), at(v), grad->at, at(grad_factor),
               elems, step_of(config)},
        .config = *config};
    status = CHECK("adamw", wants);
    return status < 0 ? status
           : wefti_stream_computes(stream)
               ? wefti_math_post(stream, WEFTI_MATH_OP_adamw_update, t.type,
                                 &args)
               : wefti_math_post(stream, WEFTI_MATH_OP_adamw, t.type, &args.of);
}

weft_status wefti_stream_sumsq(weft_stream *stream, const tensor *partials,
                               const tensor *x)
{
    types t;
    weft_status status = FIND_TYPES("sumsq", x, NULL, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {
        DENSE(x, t.own, 1, x->width),
        DENSE(partials, WEFT_DTYPE_F64, 1, wefti_sumsq_blocks(x->width))};
    const wefti_math_sumsq args = {at(partials), x->at, x->width};
    status = CHECK("sumsq", wants);
    return status < 0
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_sumsq, t.type, &args);
}

weft_status wefti_stream_clip(weft_stream *stream, const tensor *norm,
                              const tensor *factor, const tensor *partials,
                              double scale, double most)
{
    const size_t count = partials ? partials->width : 0;
    const want wants[] = {DENSE(norm, WEFT_DTYPE_F64, 1, 1),
                          DENSE(factor, WEFT_DTYPE_F64, 1, 1),
                          DENSE(partials, WEFT_DTYPE_F64, 1, count)};
    const wefti_math_clip args = {at(norm), at(factor), at(partials),
                                  count,    scale,      most};
    weft_status status = CHECK("clip", wants);
    return status < 0 ? status
                      : wefti_math_post(stream, WEFTI_MATH_OP_clip,
                                        WEFTI_MATH_F64, &args);
}

weft_status wefti_stream_totals(weft_stream *stream, const tensor *totals,
                                const tensor *x)
{
    types t;
    weft_status status = FIND_TYPES("totals", x, NULL, &t);
    if (status < 0) {
        return status;
    }
    const want wants[] = {DENSE(x, t.own, x->rows, x->width),
                          DENSE(totals, WEFT_DTYPE_F64, 1, x->rows)};
    const wefti_math_totals args = {at(totals), x->at, x->rows, x->width};
    status = CHECK("totals", wants);
    return status < 0
               ? status
               : wefti_math_post(stream, WEFTI_MATH_OP_totals, t.type, &args);
}

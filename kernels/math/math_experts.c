/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_experts.c - routes, rows by expert and what experts compute
 * of them: checks of tensors, and the arguments of math_launch.h made of them.
 */
#include "kernels/math/experts.h"

#include "base/error.h"
#include "kernels/math/math_launch.h"
#include "kernels/math/math_post.h"
#include "kernels/math/route.h"

typedef wefti_math_tensor tensor;
typedef wefti_math_want want;
typedef wefti_math_types types;

static void *at(const tensor *of)
{
    return of ? of->at : NULL;
}

/* The types of a call, by the tensor that the others follow. */
static weft_status find_types(const char *op, const char *name,
                              const tensor *own, types *types_out)
{
    return wefti_math_find_types(op, name, own, NULL, types_out);
}

static weft_status post(weft_stream *stream, wefti_math_op op, const char *name,
                        const types *t, const want *wants, size_t count,
                        const void *args)
{
    weft_status status = wefti_math_check(name, wants, count);
    return status < 0 ? status : wefti_math_post(stream, op, t->type, args);
}

#define POST(op, t, wants, args)                                               \
    post(stream, WEFTI_MATH_OP_##op, #op, t, wants,                            \
         sizeof(wants) / sizeof((wants)[0]), args)

/* ---- routes ---------------------------------------------------------------
 */

static weft_status check_route(const wefti_math_routing *how, size_t experts,
                               size_t slots)
{
    const size_t limit =
        how->group_limit < how->groups ? how->group_limit : how->groups;
    const size_t reach = how->groups ? experts / how->groups * limit : 0;
    return how->groups == 0 || limit == 0 || experts % how->groups != 0 ||
                   slots > reach || slots > WEFTI_ROUTE_SLOTS_MOST
               ? wefti_error(WEFT_ERR_INVALID,
                             "route_forward: %zu slots, %zu experts in %zu "
                             "groups of which %zu: allowed are equal groups, "
                             "and no more slots than their experts, or %d",
                             slots, experts, how->groups, how->group_limit,
                             WEFTI_ROUTE_SLOTS_MOST)
               : WEFT_OK;
}

weft_status wefti_stream_route_forward(weft_stream *stream,
                                       const tensor *affinity,
                                       const tensor *expert,
                                       const tensor *weight,
                                       const tensor *logits, const tensor *bias,
                                       const wefti_math_routing *how)
{
    types t;
    weft_status status = find_types("route_forward", bias ? "bias" : "logits",
                                    bias ? bias : logits, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = logits ? logits->rows : 0;
    const size_t experts = logits ? logits->width : 0;
    const size_t slots = expert ? expert->width : 0;
    const want wants[] = {DENSE(affinity, t.wide, tokens, experts),
                          DENSE(expert, WEFT_DTYPE_I32, tokens, slots),
                          DENSE(weight, t.wide, tokens, slots),
                          DENSE(logits, t.wide, tokens, experts),
                          OPTIONAL(bias, t.own, 1, experts)};
    const wefti_math_route_forward args = {
        at(affinity), at(expert), at(weight), at(logits),  at(bias),
        tokens,       experts,    slots,      how->groups, how->group_limit};
    status = check_route(how, experts, slots);
    return status < 0 ? status : POST(route_forward, &t, wants, &args);
}

weft_status wefti_stream_route_backward(weft_stream *stream,
                                        const tensor *dlogits,
                                        const tensor *dweight,
                                        const tensor *affinity,
                                        const tensor *expert)
{
    types t;
    weft_status status = find_types("route_backward", "dlogits", dlogits, &t);
    if (status < 0 || t.own != t.wide) {
        return status < 0 ? status
                          : wefti_error(WEFT_ERR_UNSUPPORTED,
                                        "route_backward: dlogits is bf16: "
                                        "there are kernels for f32 and f64");
    }
    const size_t tokens = dlogits->rows, experts = dlogits->width;
    const size_t slots = expert ? expert->width : 0;
    const want wants[] = {DENSE(dlogits, t.own, tokens, experts),
                          DENSE(dweight, t.own, tokens, slots),
                          DENSE(affinity, t.own, tokens, experts),
                          DENSE(expert, WEFT_DTYPE_I32, tokens, slots)};
    const wefti_math_route_backward args = {
        dlogits->at, at(dweight), at(affinity), at(expert),
        tokens,      experts,     slots};
    return POST(route_backward, &t, wants, &args);
}

/* ---- rows -----------------------------------------------------------------
 */

/* Of kernels that have no reals. */
static const types whole = {.type = WEFTI_MATH_F64};

weft_status wefti_stream_expert_order(weft_stream *stream, const tensor *counts,
                                      const tensor *place, const tensor *expert)
{
    const size_t tokens = expert ? expert->rows : 0;
    const size_t slots = expert ? expert->width : 0;
    const size_t experts = counts ? counts->width : 0;
    const want wants[] = {DENSE(counts, WEFT_DTYPE_I32, 1, experts),
                          DENSE(place, WEFT_DTYPE_I32, tokens, slots),
                          DENSE(expert, WEFT_DTYPE_I32, tokens, slots)};
    const wefti_math_expert_order args = {at(counts), at(place), at(expert),
                                          tokens,     slots,     experts};
    return POST(expert_order, &whole, wants, &args);
}

weft_status wefti_stream_expert_load(weft_stream *stream, const tensor *load,
                                     const tensor *expert)
{
    const size_t tokens = expert ? expert->rows : 0;
    const size_t slots = expert ? expert->width : 0;
    const size_t experts = load ? load->width : 0;
    const want wants[] = {DENSE(load, WEFT_DTYPE_F64, 1, experts),
                          DENSE(expert, WEFT_DTYPE_I32, tokens, slots)};
    const wefti_math_expert_load args = {at(load), at(expert), tokens, slots,
                                         experts};
    return POST(expert_load, &whole, wants, &args);
}

weft_status wefti_stream_expert_spread(weft_stream *stream, const tensor *rows,
                                       const tensor *x, const tensor *place,
                                       const tensor *weight)
{
    types t;
    weft_status status = find_types("expert_spread", "rows", rows, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = place ? place->rows : 0, width = rows->width;
    const size_t slots = place ? place->width : 0;
    const want wants[] = {DENSE(rows, t.own, rows->rows, width),
                          DENSE(x, t.own, tokens, width),
                          DENSE(place, WEFT_DTYPE_I32, tokens, slots),
                          OPTIONAL(weight, t.wide, tokens, slots)};
    const wefti_math_expert_spread args = {rows->at,   at(x),     at(place),
                                           at(weight), tokens,    slots,
                                           width,      rows->rows};
    return POST(expert_spread, &t, wants, &args);
}

weft_status wefti_stream_expert_collect(weft_stream *stream, const tensor *x,
                                        const tensor *rows, const tensor *place,
                                        const tensor *weight)
{
    types t;
    weft_status status = find_types("expert_collect", "x", x, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = place ? place->rows : 0, width = x->width;
    const size_t slots = place ? place->width : 0;
    const size_t room = rows ? rows->rows : 0;
    const want wants[] = {DENSE(x, t.own, tokens, width),
                          DENSE(rows, t.own, room, width),
                          DENSE(place, WEFT_DTYPE_I32, tokens, slots),
                          OPTIONAL(weight, t.wide, tokens, slots)};
    const wefti_math_expert_collect args = {
        x->at, at(rows), at(place), at(weight), tokens, slots, width, room};
    return POST(expert_collect, &t, wants, &args);
}

weft_status wefti_stream_expert_dots(weft_stream *stream, const tensor *dweight,
                                     const tensor *rows, const tensor *dx,
                                     const tensor *place)
{
    types t;
    weft_status status = find_types("expert_dots", "dx", dx, &t);
    if (status < 0) {
        return status;
    }
    const size_t tokens = place ? place->rows : 0;
    const size_t slots = place ? place->width : 0;
    const size_t width = dx->width, room = rows ? rows->rows : 0;
    const want wants[] = {DENSE(dweight, t.wide, tokens, slots),
                          DENSE(rows, t.own, room, width),
                          DENSE(dx, t.own, tokens, width),
                          DENSE(place, WEFT_DTYPE_I32, tokens, slots)};
    const wefti_math_expert_dots args = {
        at(dweight), at(rows), dx->at, at(place), tokens, slots, width, room};
    return POST(expert_dots, &t, wants, &args);
}

/* ---- experts --------------------------------------------------------------
 */

weft_status wefti_stream_expert_gemm(weft_stream *stream,
                                     wefti_expert_product product,
                                     const tensor *x, const tensor *y,
                                     const tensor *weight, const tensor *counts)
{
    types t;
    const bool sums = product == WEFTI_EXPERT_WEIGHTS;
    weft_status status =
        wefti_math_find_types("expert_gemm", "x", x, sums ? weight : NULL, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = x->rows, inputs = x->width;
    const size_t outputs = y ? y->width : 0;
    const size_t experts = counts ? counts->width : 0;
    const want wants[] = {DENSE(x, t.own, rows, inputs),
                          DENSE(y, t.own, rows, outputs),
                          DENSE(weight, t.mixed, experts * outputs, inputs),
                          DENSE(counts, WEFT_DTYPE_I32, 1, experts)};
    const wefti_math_expert_gemm args = {x->at,      at(y),   at(weight),
                                         at(counts), experts, inputs,
                                         outputs,    rows,    product};
    return POST(expert_gemm, &t, wants, &args);
}

weft_status wefti_stream_expert_gate(weft_stream *stream, const tensor *out,
                                     const tensor *gate_up,
                                     const tensor *counts)
{
    types t;
    weft_status status = find_types("expert_gate", "out", out, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = out->rows, width = out->width;
    const size_t experts = counts ? counts->width : 0;
    const want wants[] = {DENSE(out, t.own, rows, width),
                          DENSE(gate_up, t.own, rows, 2 * width),
                          DENSE(counts, WEFT_DTYPE_I32, 1, experts)};
    const wefti_math_expert_gate args = {out->at, at(gate_up), at(counts),
                                         experts, width,       rows};
    return POST(expert_gate, &t, wants, &args);
}

weft_status wefti_stream_expert_gate_backward(weft_stream *stream,
                                              const tensor *d_gate_up,
                                              const tensor *dout,
                                              const tensor *gate_up,
                                              const tensor *counts)
{
    types t;
    weft_status status = find_types("expert_gate_backward", "dout", dout, &t);
    if (status < 0) {
        return status;
    }
    const size_t rows = dout->rows, width = dout->width;
    const size_t experts = counts ? counts->width : 0;
    const want wants[] = {DENSE(d_gate_up, t.own, rows, 2 * width),
                          DENSE(dout, t.own, rows, width),
                          DENSE(gate_up, t.own, rows, 2 * width),
                          DENSE(counts, WEFT_DTYPE_I32, 1, experts)};
    const wefti_math_expert_gate_backward args = {
        at(d_gate_up), dout->at, at(gate_up), at(counts), experts, width, rows};
    return POST(expert_gate_backward, &t, wants, &args);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_experts.c - kernels of experts, queued on the pass'
 * stream.
 */
#include "trainer/program/node_experts.h"

typedef wefti_math_tensor tensor;

static tensor dense(const real *at, size_t rows, size_t width)
{
    return wefti_math_rows((real *)at, WEFTI_REAL_DTYPE, rows, width);
}

/* Whole numbers, kept in values, whose elements are no smaller. */
static tensor whole(const void *at, size_t rows, size_t width)
{
    return wefti_math_rows((void *)at, WEFT_DTYPE_I32, rows, width);
}

weft_status wefti_node_route_forward(const wefti_node_args *args,
                                     const wefti_node_route *route)
{
    const size_t tokens = args->rows;
    const tensor affinity = dense(route->affinity, tokens, route->experts);
    const tensor expert = whole(route->expert, tokens, route->slots);
    const tensor weight = dense(route->weight, tokens, route->slots);
    const tensor logits = dense(route->logits, tokens, route->experts);
    const tensor bias = dense(route->bias, 1, route->experts);
    return wefti_stream_route_forward(args->pass->compute, &affinity, &expert,
                                      &weight, &logits, &bias, &route->how);
}

weft_status wefti_node_route_backward(const wefti_node_args *args,
                                      const wefti_node_route *route,
                                      real *d_logits, const real *d_weight,
                                      double *load)
{
    const size_t tokens = args->rows;
    const tensor affinity = dense(route->affinity, tokens, route->experts);
    const tensor expert = whole(route->expert, tokens, route->slots);
    const tensor d_weights = dense(d_weight, tokens, route->slots);
    const tensor slopes = dense(d_logits, tokens, route->experts);
    const tensor loads = wefti_math_flat(load, WEFT_DTYPE_F64, route->experts);
    weft_status status = wefti_stream_route_backward(
        args->pass->compute, &slopes, &d_weights, &affinity, &expert);
    return status == WEFT_OK && load
               ? wefti_stream_expert_load(args->pass->compute, &loads, &expert)
               : status;
}

weft_status wefti_node_order(const wefti_node_args *args,
                             const wefti_node_places *own)
{
    const tensor counts = whole(own->rows.counts, 1, own->rows.experts);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor expert = whole(own->expert, args->rows, own->slots);
    return wefti_stream_expert_order(args->pass->compute, &counts, &place,
                                     &expert);
}

weft_status wefti_node_spread(const wefti_node_args *args,
                              const wefti_node_places *own, real *rows,
                              const real *x)
{
    const tensor there = dense(rows, own->rows.room, own->width);
    const tensor here = dense(x, args->rows, own->width);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor weight = dense(own->weight, args->rows, own->slots);
    return wefti_stream_expert_spread(args->pass->compute, &there, &here,
                                      &place, own->weight ? &weight : NULL);
}

weft_status wefti_node_collect(const wefti_node_args *args,
                               const wefti_node_places *own, real *x,
                               const real *rows)
{
    const tensor there = dense(rows, own->rows.room, own->width);
    const tensor here = dense(x, args->rows, own->width);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor weight = dense(own->weight, args->rows, own->slots);
    return wefti_stream_expert_collect(args->pass->compute, &here, &there,
                                       &place, own->weight ? &weight : NULL);
}

weft_status wefti_node_dots(const wefti_node_args *args,
                            const wefti_node_places *own, real *d_weight,
                            const real *rows, const real *dx)
{
    const tensor there = dense(rows, own->rows.room, own->width);
    const tensor here = dense(dx, args->rows, own->width);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor dots = dense(d_weight, args->rows, own->slots);
    return wefti_stream_expert_dots(args->pass->compute, &dots, &there, &here,
                                    &place);
}

weft_status wefti_node_expert_gemm(const wefti_node_args *args,
                                   const wefti_node_expert_map *map,
                                   wefti_expert_product product, const real *x,
                                   const real *y, const real *weight)
{
    const wefti_node_rows_by_expert *rows = &map->rows;
    const tensor in = dense(x, rows->room, map->inputs);
    const tensor out = dense(y, rows->room, map->outputs);
    const tensor matrix =
        dense(weight, rows->experts * map->outputs, map->inputs);
    const tensor counts = whole(rows->counts, 1, rows->experts);
    return wefti_stream_expert_gemm(args->pass->compute, product, &in, &out,
                                    &matrix, &counts);
}

weft_status wefti_node_gate_forward(const wefti_node_args *args,
                                    const wefti_node_rows_by_expert *rows,
                                    real *out, const real *gate_up,
                                    size_t width)
{
    const tensor gated = dense(out, rows->room, width);
    const tensor both = dense(gate_up, rows->room, 2 * width);
    const tensor counts = whole(rows->counts, 1, rows->experts);
    return wefti_stream_expert_gate(args->pass->compute, &gated, &both,
                                    &counts);
}

weft_status wefti_node_gate_backward(const wefti_node_args *args,
                                     const wefti_node_rows_by_expert *rows,
                                     real *d_gate_up, const real *dout,
                                     const real *gate_up, size_t width)
{
    const tensor slopes = dense(d_gate_up, rows->room, 2 * width);
    const tensor above = dense(dout, rows->room, width);
    const tensor both = dense(gate_up, rows->room, 2 * width);
    const tensor counts = whole(rows->counts, 1, rows->experts);
    return wefti_stream_expert_gate_backward(args->pass->compute, &slopes,
                                             &above, &both, &counts);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_experts.c - kernels of experts, queued on the pass'
 * stream.
 */
#include "trainer/program/node_experts.h"

typedef wefti_math_tensor tensor;

/* Of the program's type; and of real. */
static tensor dense(const wefti_node_args *args, const void *at, size_t rows,
                    size_t width)
{
    return wefti_math_rows(
        (void *)at, wefti_value_dtype(args->pass->program->narrow, false), rows,
        width);
}

static tensor wide(const real *at, size_t rows, size_t width)
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
    const tensor affinity = wide(route->affinity, tokens, route->experts);
    const tensor expert = whole(route->expert, tokens, route->slots);
    const tensor weight = wide(route->weight, tokens, route->slots);
    const tensor logits = wide(route->logits, tokens, route->experts);
    const tensor bias = dense(args, route->bias, 1, route->experts);
    return wefti_stream_route_forward(args->pass->compute, &affinity, &expert,
                                      &weight, &logits, &bias, &route->how);
}

weft_status wefti_node_route_backward(const wefti_node_args *args,
                                      const wefti_node_route *route,
                                      real *d_logits, const real *d_weight,
                                      double *load)
{
    const size_t tokens = args->rows;
    const tensor affinity = wide(route->affinity, tokens, route->experts);
    const tensor expert = whole(route->expert, tokens, route->slots);
    const tensor d_weights = wide(d_weight, tokens, route->slots);
    const tensor slopes = wide(d_logits, tokens, route->experts);
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
                              const wefti_node_places *own, void *rows,
                              const void *x)
{
    const tensor there = dense(args, rows, own->rows.room, own->width);
    const tensor here = dense(args, x, args->rows, own->width);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor weight = wide(own->weight, args->rows, own->slots);
    return wefti_stream_expert_spread(args->pass->compute, &there, &here,
                                      &place, own->weight ? &weight : NULL);
}

weft_status wefti_node_collect(const wefti_node_args *args,
                               const wefti_node_places *own, void *x,
                               const void *rows)
{
    const tensor there = dense(args, rows, own->rows.room, own->width);
    const tensor here = dense(args, x, args->rows, own->width);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor weight = wide(own->weight, args->rows, own->slots);
    return wefti_stream_expert_collect(args->pass->compute, &here, &there,
                                       &place, own->weight ? &weight : NULL);
}

weft_status wefti_node_dots(const wefti_node_args *args,
                            const wefti_node_places *own, real *d_weight,
                            const void *rows, const void *dx)
{
    const tensor there = dense(args, rows, own->rows.room, own->width);
    const tensor here = dense(args, dx, args->rows, own->width);
    const tensor place = whole(own->place, args->rows, own->slots);
    const tensor dots = wide(d_weight, args->rows, own->slots);
    return wefti_stream_expert_dots(args->pass->compute, &dots, &there, &here,
                                    &place);
}

weft_status wefti_node_expert_gemm(const wefti_node_args *args,
                                   const wefti_node_expert_map *map,
                                   wefti_expert_product product, const void *x,
                                   const void *y, const void *weight)
{
    const wefti_node_rows_by_expert *rows = &map->rows;
    const tensor in = dense(args, x, rows->room, map->inputs);
    const tensor out = dense(args, y, rows->room, map->outputs);
    const size_t outputs = rows->experts * map->outputs;
    const tensor matrix = product == WEFTI_EXPERT_WEIGHTS
                              ? wide(weight, outputs, map->inputs)
                              : dense(args, weight, outputs, map->inputs);
    const tensor counts = whole(rows->counts, 1, rows->experts);
    return wefti_stream_expert_gemm(args->pass->compute, product, &in, &out,
                                    &matrix, &counts);
}

weft_status wefti_node_gate_forward(const wefti_node_args *args,
                                    const wefti_node_rows_by_expert *rows,
                                    void *out, const void *gate_up,
                                    size_t width)
{
    const tensor gated = dense(args, out, rows->room, width);
    const tensor both = dense(args, gate_up, rows->room, 2 * width);
    const tensor counts = whole(rows->counts, 1, rows->experts);
    return wefti_stream_expert_gate(args->pass->compute, &gated, &both,
                                    &counts);
}

weft_status wefti_node_gate_backward(const wefti_node_args *args,
                                     const wefti_node_rows_by_expert *rows,
                                     void *d_gate_up, const void *dout,
                                     const void *gate_up, size_t width)
{
    const tensor slopes = dense(args, d_gate_up, rows->room, 2 * width);
    const tensor above = dense(args, dout, rows->room, width);
    const tensor both = dense(args, gate_up, rows->room, 2 * width);
    const tensor counts = whole(rows->counts, 1, rows->experts);
    return wefti_stream_expert_gate_backward(args->pass->compute, &slopes,
                                             &above, &both, &counts);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_experts.h - the kernels of a mixture of experts as nodes
 * call them, like those of node_math.h: tokens are the rows of the call, rows
 * those of experts (kernels/math/experts.h), of which counts says how many
 * there are. Rows and x are of the program's type; routes are real.
 */
#ifndef TRAINER_PROGRAM_NODE_EXPERTS_H
#define TRAINER_PROGRAM_NODE_EXPERTS_H

#include "kernels/math/experts.h"
#include "kernels/math/math_stream.h"
#include "trainer/program/program_run.h"

/* Where a token goes: expert and, with all experts here, place [tokens][slots]
 * of int32_t. */
typedef struct wefti_node_route {
    size_t experts, slots;
    wefti_math_routing how;
    real *logits, *affinity; /* [tokens][experts] */
    real *expert, *weight;   /* [tokens][slots] */
    const void *bias;        /* [experts], of the program's type */
} wefti_node_route;

WEFT_NODISCARD weft_status wefti_node_route_forward(
    const wefti_node_args *args, const wefti_node_route *route);
/* Also counts the tokens of each expert: load [experts]. */
WEFT_NODISCARD weft_status wefti_node_route_backward(
    const wefti_node_args *args, const wefti_node_route *route, real *d_logits,
    const real *d_weight, double *load);

/* The rows of the experts that are here, and room for so many. */
typedef struct wefti_node_rows_by_expert {
    const int32_t *counts; /* [experts] */
    size_t experts, room;
} wefti_node_rows_by_expert;

/* All experts are here: rows there, and back. */
typedef struct wefti_node_places {
    wefti_node_rows_by_expert rows;
    const real *expert;
    real *place;
    const real *weight; /* NULL: 1 */
    size_t slots, width;
} wefti_node_places;

WEFT_NODISCARD weft_status wefti_node_order(const wefti_node_args *args,
                                            const wefti_node_places *own);
WEFT_NODISCARD weft_status wefti_node_spread(const wefti_node_args *args,
                                             const wefti_node_places *own,
                                             void *rows, const void *x);
WEFT_NODISCARD weft_status wefti_node_collect(const wefti_node_args *args,
                                              const wefti_node_places *own,
                                              void *x, const void *rows);
WEFT_NODISCARD weft_status wefti_node_dots(const wefti_node_args *args,
                                           const wefti_node_places *own,
                                           real *d_weight, const void *rows,
                                           const void *dx);

/* x, y or weight is written (wefti_expert_product), a gradient, which is real.
 */
typedef struct wefti_node_expert_map {
    wefti_node_rows_by_expert rows;
    size_t inputs, outputs;
} wefti_node_expert_map;

WEFT_NODISCARD weft_status wefti_node_expert_gemm(
    const wefti_node_args *args, const wefti_node_expert_map *map,
    wefti_expert_product product, const void *x, const void *y,
    const void *weight);

/* As wefti_node_swiglu_forward and _backward. */
WEFT_NODISCARD weft_status wefti_node_gate_forward(
    const wefti_node_args *args, const wefti_node_rows_by_expert *rows,
    void *out, const void *gate_up, size_t width);
WEFT_NODISCARD weft_status wefti_node_gate_backward(
    const wefti_node_args *args, const wefti_node_rows_by_expert *rows,
    void *d_gate_up, const void *dout, const void *gate_up, size_t width);

#endif

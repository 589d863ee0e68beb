/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/shared_nodes.c - what ranks that share a layer exchange around
 * its matrices.
 *
 * Each has some outputs of the first matrix and the same inputs of the last, so
 * in between there is nothing to exchange. The last one's products are summed:
 *
 *   rows shared    norm | gather .. qkv .. out .. scatter | add    F
 *                  norm | scatter ........... gather               I
 *   not shared     norm .......... qkv .. out .. sum      | add    F
 *                  norm | sum                                      I
 *
 * In B the weights of the block come before its norm: what the norm waits for
 * is under way meanwhile. So the norm is in a block of its own, before.
 *
 * Source: Shoeybi et al. 2019 (arXiv 1909.08053); Korthikanti et al. 2022
 * (sequence parallelism, arXiv 2205.05198).
 */
#include "kernels/math/math_stream.h"
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_comm.h"
#include "trainer/program/node_math.h"

bool wefti_builder_shares(const wefti_builder *builder)
{
    return builder->plan->tensor.parts > 1;
}

bool wefti_builder_shares_rows(const wefti_builder *builder)
{
    return wefti_builder_shares(builder) && builder->plan->tensor.sequence;
}

size_t wefti_builder_add_own(wefti_builder *builder, const char *name,
                             size_t width)
{
    size_t value = wefti_program_add_value(builder->program, name, width, true);
    return wefti_builder_shares_rows(builder)
               ? wefti_program_cut_value(builder->program, value)
               : value;
}

size_t wefti_builder_add_residual(wefti_builder *builder, const char *name)
{
    return wefti_builder_add_own(builder, name, builder->plan->shape.hidden);
}

/* ---- before the first matrix ----------------------------------------------
 */

static const wefti_exchange gather_rows = {
    WEFTI_EXCHANGE_GATHER, WEFTI_EXCHANGE_SCATTER, WEFTI_LINK_TENSOR, true};
static const wefti_exchange sum_gradient = {
    WEFTI_EXCHANGE_NONE, WEFTI_EXCHANGE_SUM, WEFTI_LINK_TENSOR, false};

wefti_map_input wefti_append_entry(wefti_builder *builder,
                                   wefti_node_rows rows_of, size_t normed,
                                   size_t d_normed)
{
    wefti_program *program = builder->program;
    const size_t hidden = builder->plan->shape.hidden;
    const bool rows = wefti_builder_shares_rows(builder);
    wefti_map_input input = {normed, d_normed, rows_of};
    if (!wefti_builder_shares(builder)) {
        return input;
    }
    if (rows) {
        input.x = wefti_program_add_value(program, "gathered", hidden, true);
        input.rows = WEFTI_BY_PARTS;
    }
    input.dx = wefti_program_add_value(program, "d.gathered", hidden, true);
    const wefti_exchange *what = rows ? &gather_rows : &sum_gradient;
    const wefti_exchange_values values = {normed, d_normed, input.x, input.dx};
    size_t operation = wefti_append_post(program, "enter", what, &values);
    wefti_program_begin_block(program, builder->block->name, builder->layer);
    wefti_program_go_within(program);
    wefti_append_await(program, "enter", what, &values, operation);
    return input;
}

/* ---- behind the last matrix -----------------------------------------------
 */

static const wefti_exchange scatter_rows = {
    WEFTI_EXCHANGE_SCATTER, WEFTI_EXCHANGE_GATHER, WEFTI_LINK_TENSOR, false};
static const wefti_exchange scatter_parts = {
    WEFTI_EXCHANGE_SCATTER, WEFTI_EXCHANGE_GATHER, WEFTI_LINK_TENSOR, true};
static const wefti_exchange sum_products = {
    WEFTI_EXCHANGE_SUM, WEFTI_EXCHANGE_NONE, WEFTI_LINK_TENSOR, false};

void wefti_append_leave(wefti_builder *builder, wefti_node_rows rows,
                        size_t partial, size_t kept, size_t sum)
{
    const wefti_exchange *what = !wefti_builder_shares_rows(builder)
                                     ? &sum_products
                                 : rows == WEFTI_BY_PARTS ? &scatter_parts
                                                          : &scatter_rows;
    const wefti_exchange_values values = {partial, kept, sum,
                                          builder->d_residual};
    size_t operation =
        wefti_append_post(builder->program, "leave", what, &values);
    wefti_append_await(builder->program, "leave", what, &values, operation);
}

enum { SUM, BEFORE, AFTER, DAFTER, KEPT };

static weft_status add_forward(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_add(args, v[AFTER], v[BEFORE], v[SUM],
                          args->rows * args->widths[SUM]);
}

/* The residual's gradient will change: it is kept for W. */
static weft_status add_inputs(const wefti_node_args *args)
{
    return wefti_node_copy(args, args->values[KEPT], args->values[DAFTER],
                           args->rows * args->widths[KEPT]);
}

void wefti_append_shared_residual(wefti_builder *builder, const char *label,
                                  size_t x, size_t dx)
{
    wefti_program *program = builder->program;
    const size_t hidden = builder->plan->shape.hidden;
    const bool rows = wefti_builder_shares_rows(builder);
    const size_t before = builder->residual;
    size_t partial = wefti_program_add_value(program, "partial", hidden, true);
    size_t kept = wefti_program_add_value(program, "d.residual", hidden, true);
    size_t sum = wefti_builder_add_residual(builder, "sum");
    builder->residual = wefti_builder_add_residual(builder, "residual");
    const wefti_node_rows turns = rows ? WEFTI_BY_PARTS : WEFTI_WHOLE;
    wefti_append_linear(builder, label, turns, x, dx, partial, kept);
    wefti_append_leave(builder, turns, partial, kept, sum);
    wefti_program_add_node(
        program,
        &(wefti_node){
            .label = "add",
            .calls = {add_forward, rows ? NULL : add_inputs},
            .of_part = rows,
            .by_rows = true,
            .operands = {[SUM] = {sum, WEFTI_F_READS},
                         [BEFORE] = {before, WEFTI_F_READS},
                         [AFTER] = {builder->residual, WEFTI_F_WRITES},
                         [DAFTER] = {builder->d_residual, WEFTI_I_READS},
                         [KEPT] = {kept, WEFTI_I_WRITES}},
            .operand_count = 5});
}

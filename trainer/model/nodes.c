/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/nodes.c - nodes that several blocks have.
 */
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_math.h"

/* ---- RMSNorm --------------------------------------------------------------
 */

enum {
    NORM_X,
    NORM_Y,
    NORM_RSTD,
    NORM_DY,
    NORM_DX,
    NORM_DWEIGHT,
    NORM_PARTIALS
};

static weft_status norm_forward(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_norm_forward(args, v[NORM_Y], v[NORM_RSTD], v[NORM_X],
                                   args->parameters[0], args->widths[NORM_X]);
}

/* The weights' gradient is the sum over all chunks, kept for W. */
static weft_status norm_backward(const wefti_node_args *args, bool adds)
{
    void *const *v = args->values;
    const wefti_node_norm norm = {args->parameters[0], v[NORM_RSTD],
                                  v[NORM_DWEIGHT], v[NORM_PARTIALS],
                                  args->widths[NORM_X]};
    weft_status status =
        args->first == 0 ? wefti_node_clear(args, v[NORM_DWEIGHT], norm.width)
                         : WEFT_OK;
    return status == WEFT_OK
               ? wefti_node_norm_backward(args, &norm, v[NORM_DX], v[NORM_DY],
                                          v[NORM_X], adds)
               : status;
}

static weft_status norm_inputs(const wefti_node_args *args)
{
    return norm_backward(args, true);
}

static weft_status norm_first_inputs(const wefti_node_args *args)
{
    return norm_backward(args, false);
}

static weft_status norm_weights(const wefti_node_args *args)
{
    return wefti_node_copy_sum(args, args->gradients[0],
                               args->values[NORM_DWEIGHT],
                               args->widths[NORM_DWEIGHT]);
}

size_t wefti_append_norm(wefti_builder *builder, wefti_node_rows rows,
                         size_t d_normed, bool first)
{
    wefti_program *program = builder->program;
    const size_t hidden = builder->plan->shape.hidden;
    const bool part = wefti_builder_shares_rows(builder);
    size_t normed = wefti_builder_add_residual(builder, "normed");
    size_t rstd = wefti_program_add_wide(program, "rstd", 1, true);
    size_t dweight = wefti_program_add_wide(program, "d.norm", hidden, false);
    size_t partials = wefti_program_add_partials(program, "d.norm.partials",
                                                 hidden, WEFTI_NODE_NORM_ROWS);
    if (part) {
        (void)wefti_program_cut_value(program, rstd);
        (void)wefti_program_cut_value(program, partials);
    }
    wefti_program_add_node(
        program,
        &(wefti_node){
            .label = "norm",
            .calls = {norm_forward, first ? norm_first_inputs : norm_inputs,
                      norm_weights},
            .by_rows = rows == WEFTI_BY_ROWS,
            .of_part = part,
            .effort = WEFTI_EFFORT_NORM,
            .operands =
                {[NORM_X] = {builder->residual, WEFTI_F_READS | WEFTI_I_READS},
                 [NORM_Y] = {normed, WEFTI_F_WRITES},
                 [NORM_RSTD] = {rstd, WEFTI_F_WRITES | WEFTI_I_READS},
                 [NORM_DY] = {d_normed, WEFTI_I_READS},
                 [NORM_DX] = {builder->d_residual,
                              (first ? 0 : WEFTI_I_READS) | WEFTI_I_WRITES},
                 [NORM_DWEIGHT] = {dweight, WEFTI_I_WRITES | WEFTI_W_READS},
                 [NORM_PARTIALS] = {partials, WEFTI_I_WRITES}},
            .operand_count = 7,
            .parameters = {wefti_builder_take_tensor(builder)},
            .parameter_count = 1});
    return normed;
}

/* ---- linear maps ----------------------------------------------------------
 */

enum { MAP_X, MAP_DX, MAP_Y, MAP_DY, MAP_BEFORE, MAP_DAFTER };

static wefti_node_linear map_of(const wefti_node_args *args)
{
    return (wefti_node_linear){args->parameters[0], args->widths[MAP_Y],
                               args->widths[MAP_X]};
}

static weft_status map_forward(const wefti_node_args *args)
{
    const wefti_node_linear map = map_of(args);
    const size_t y = args->node->operands[MAP_Y].value;
    return wefti_node_linear_forward(
        args, &map, args->values[MAP_X], args->values[MAP_Y],
        args->pass->program->values[y].wide, false);
}

static weft_status map_inputs(const wefti_node_args *args)
{
    const wefti_node_linear map = map_of(args);
    return wefti_node_linear_inputs(args, &map, args->values[MAP_DY],
                                    args->values[MAP_DX]);
}

static weft_status map_weights(const wefti_node_args *args)
{
    const wefti_node_linear map = map_of(args);
    return wefti_node_linear_weights(args, &map, args->values[MAP_DY],
                                     args->values[MAP_X], args->gradients[0]);
}

void wefti_append_linear(wefti_builder *builder, const char *label,
                         wefti_node_rows rows, size_t x, size_t dx, size_t y,
                         size_t dy)
{
    wefti_node_parameter weight = wefti_builder_take_tensor(builder);
    /* A tied head: its embedding reports it. */
    weight.shared = weight.tensor == wefti_tensor_embedding(builder->plan);
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = label,
            .calls = {map_forward, map_inputs, map_weights},
            .by_rows = rows == WEFTI_BY_ROWS || rows == WEFTI_BY_PARTS,
            .by_parts = rows == WEFTI_BY_PARTS,
            .of_part = rows == WEFTI_OWN && wefti_builder_shares_rows(builder),
            .operands = {[MAP_X] = {x, WEFTI_F_READS | WEFTI_W_READS},
                         [MAP_DX] = {dx, WEFTI_I_WRITES},
                         [MAP_Y] = {y, WEFTI_F_WRITES},
                         [MAP_DY] = {dy, WEFTI_I_READS | WEFTI_W_READS}},
            .operand_count = 4,
            .parameters = {weight},
            .parameter_count = 1});
}

static weft_status residual_forward(const wefti_node_args *args)
{
    const wefti_node_linear map = map_of(args);
    weft_status status =
        wefti_node_copy(args, args->values[MAP_Y], args->values[MAP_BEFORE],
                        args->rows * map.outputs);
    return status == WEFT_OK
               ? wefti_node_linear_forward(args, &map, args->values[MAP_X],
                                           args->values[MAP_Y], false, true)
               : status;
}

/* The residual's gradient will change: it is kept for W. */
static weft_status residual_inputs(const wefti_node_args *args)
{
    const wefti_node_linear map = map_of(args);
    weft_status status =
        wefti_node_copy(args, args->values[MAP_DY], args->values[MAP_DAFTER],
                        args->rows * map.outputs);
    return status == WEFT_OK ? map_inputs(args) : status;
}

void wefti_append_residual(wefti_builder *builder, const char *label,
                           wefti_node_rows rows, size_t x, size_t dx)
{
    size_t before = builder->residual;
    if (rows != WEFTI_OWN && wefti_builder_shares(builder)) {
        wefti_append_shared_residual(builder, label, x, dx);
        return;
    }
    size_t kept = wefti_builder_add_residual(builder, "d.residual");
    builder->residual = wefti_builder_add_residual(builder, "residual");
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = label,
            .calls = {residual_forward, residual_inputs, map_weights},
            .by_rows = rows == WEFTI_BY_ROWS,
            .of_part = wefti_builder_shares_rows(builder),
            .operands = {[MAP_X] = {x, WEFTI_F_READS | WEFTI_W_READS},
                         [MAP_DX] = {dx, WEFTI_I_WRITES},
                         [MAP_Y] = {builder->residual, WEFTI_F_WRITES},
                         [MAP_DY] = {kept, WEFTI_I_WRITES | WEFTI_W_READS},
                         [MAP_BEFORE] = {before, WEFTI_F_READS},
                         [MAP_DAFTER] = {builder->d_residual, WEFTI_I_READS}},
            .operand_count = 6,
            .parameters = {wefti_builder_take_tensor(builder)},
            .parameter_count = 1});
}

/* ---- edges ----------------------------------------------------------------
 */

enum { EDGE_X, EDGE_DX };

/* Rows that have come are here from now on. */
static weft_status take_in(const wefti_node_args *args, size_t operand)
{
    const wefti_stage_port *port = &args->pass->input;
    const size_t width = args->widths[operand];
    weft_status status =
        port->hook.call
            ? port->hook.call(port->hook.context, args->first + args->rows)
            : WEFT_OK;
    const void *rows = wefti_node_skip(args, port->rows, args->first * width);
    return status == WEFT_OK ? wefti_node_copy(args, args->values[operand],
                                               rows, args->rows * width)
                             : status;
}

static weft_status give_out(const wefti_node_args *args, size_t operand)
{
    const wefti_stage_port *port = &args->pass->output;
    const size_t width = args->widths[operand];
    weft_status status = wefti_node_copy(
        args, wefti_node_skip(args, port->rows, args->first * width),
        args->values[operand], args->rows * width);
    return status == WEFT_OK && port->hook.call
               ? port->hook.call(port->hook.context, args->first + args->rows)
               : status;
}

static weft_status receive_forward(const wefti_node_args *args)
{
    return take_in(args, EDGE_X);
}

static weft_status receive_inputs(const wefti_node_args *args)
{
    return give_out(args, EDGE_DX);
}

static weft_status send_forward(const wefti_node_args *args)
{
    return give_out(args, EDGE_X);
}

static weft_status send_inputs(const wefti_node_args *args)
{
    return take_in(args, EDGE_DX);
}

void wefti_append_receive(wefti_builder *builder)
{
    builder->residual = wefti_builder_add_residual(builder, "residual");
    builder->d_residual = wefti_builder_add_residual(builder, "d.residual.sum");
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .kind = WEFTI_NODE_AWAIT,
            .class_id = WEFT_CLASS_PP,
            .label = "receive",
            .calls = {receive_forward, receive_inputs},
            .by_rows = true,
            .of_part = wefti_builder_shares_rows(builder),
            .operands = {[EDGE_X] = {builder->residual, WEFTI_F_WRITES},
                         [EDGE_DX] = {builder->d_residual, WEFTI_I_READS}},
            .operand_count = 2});
}

void wefti_append_send(wefti_builder *builder)
{
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .kind = WEFTI_NODE_POST,
            .class_id = WEFT_CLASS_PP,
            .label = "send",
            .calls = {send_forward, send_inputs},
            .by_rows = true,
            .of_part = wefti_builder_shares_rows(builder),
            .operands = {[EDGE_X] = {builder->residual, WEFTI_F_READS},
                         [EDGE_DX] = {builder->d_residual, WEFTI_I_WRITES}},
            .operand_count = 2});
}

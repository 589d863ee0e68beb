/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_ffn.c - the feed-forward block, gated by SiLU.
 *
 *   residual --+--> norm --> gate, up --> silu(gate) up --> down --+-->
 * residual
 *              +--------------------------------------------------+
 *
 * Source: Touvron et al. 2023 (LLaMA, arXiv 2302.13971).
 */
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_math.h"

enum { GATE_UP, DGATE_UP, GATED, DGATED };

static void list(wefti_tensor_list *tensors, const wefti_model_shape *shape,
                 size_t layer)
{
    const size_t hidden = shape->hidden, ffn = shape->ffn;
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "ffn_norm",
                             .kind = WEFTI_TENSOR_NORM,
                             .columns = hidden,
                             .pieces = {{"post_attention_layernorm", 1}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){
            .name = "gate_up",
            .kind = WEFTI_TENSOR_INPUT,
            .columns = hidden,
            .split = WEFTI_SPLIT_ROW,
            .pieces = {{"mlp.gate_proj", ffn}, {"mlp.up_proj", ffn}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "down",
                             .kind = WEFTI_TENSOR_OUTPUT,
                             .columns = ffn,
                             .split = WEFTI_SPLIT_COLUMN,
                             .pieces = {{"mlp.down_proj", hidden}}});
}

static weft_status forward(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_swiglu_forward(args, v[GATED], v[GATE_UP],
                                     args->widths[GATED]);
}

static weft_status inputs(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_swiglu_backward(args, v[DGATE_UP], v[DGATED], v[GATE_UP],
                                      args->widths[GATED]);
}

static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const size_t ffn = builder->shape->ffn;
    size_t d_normed = wefti_builder_add_residual(builder, "d.normed");
    size_t gate_up = wefti_program_add_value(program, "gate_up", 2 * ffn, true);
    size_t d_gate_up =
        wefti_program_add_value(program, "d.gate_up", 2 * ffn, true);
    size_t gated = wefti_program_add_value(program, "gated", ffn, true);
    size_t d_gated = wefti_program_add_value(program, "d.gated", ffn, true);
    size_t normed = wefti_append_norm(builder, WEFTI_WHOLE, d_normed, false);
    wefti_map_input in =
        wefti_append_entry(builder, WEFTI_WHOLE, normed, d_normed);
    wefti_append_linear(builder, "gate_up", in.rows, in.x, in.dx, gate_up,
                        d_gate_up);
    wefti_program_add_node(
        program,
        &(wefti_node){
            .label = "swiglu",
            .calls = {forward, inputs},
            .by_rows = true,
            .effort = WEFTI_EFFORT_ELEMENTS,
            .operands = {[GATE_UP] = {gate_up, WEFTI_F_READS | WEFTI_I_READS},
                         [DGATE_UP] = {d_gate_up,
                                       WEFTI_I_WRITES | WEFTI_IN_PLACE},
                         [GATED] = {gated, WEFTI_F_WRITES},
                         [DGATED] = {d_gated, WEFTI_I_READS}},
            .operand_count = 4});
    wefti_append_residual(builder, "down", WEFTI_BY_ROWS, gated, d_gated);
}

const wefti_model_block wefti_ffn_block = {"ffn", list, append, "ffn_in"};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_attention.c - causal attention with grouped queries.
 *
 *   residual --+--> norm --> qkv --> rope, attend --> out --+--> residual
 *              +--------------------------------------------+
 *
 * What attends is in attend.h.
 *
 * The halves of a head that the rotary embedding turns are its first and its
 * second half of rows, as in Hugging Face's Llama (rotate_half): rows need no
 * other order there.
 *
 * Source: Touvron et al. 2023 (LLaMA, arXiv 2302.13971); Ainslie et al. 2023
 * (grouped queries, arXiv 2305.13245).
 */
#include "trainer/model/attend.h"

static void list(wefti_tensor_list *tensors, const wefti_model_shape *shape,
                 size_t layer)
{
    const size_t hidden = shape->hidden;
    const size_t queries = shape->heads * shape->head_dim;
    const size_t keys = shape->kv_heads * shape->head_dim;
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "attention_norm",
                             .kind = WEFTI_TENSOR_NORM,
                             .columns = hidden,
                             .pieces = {{"input_layernorm", 1}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){
            .name = "qkv",
            .kind = WEFTI_TENSOR_INPUT,
            .columns = hidden,
            .split = WEFTI_SPLIT_ROW,
            .pieces = {{"self_attn.q_proj", queries},
                       {"self_attn.k_proj", keys, shape->kv_heads},
                       {"self_attn.v_proj", keys, shape->kv_heads}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "attention_out",
                             .kind = WEFTI_TENSOR_OUTPUT,
                             .columns = queries,
                             .split = WEFTI_SPLIT_COLUMN,
                             .pieces = {{"self_attn.o_proj", hidden}}});
}

static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const wefti_model_shape *shape = builder->shape;
    const wefti_node_heads heads = wefti_attend_all_heads(shape);
    const size_t width = wefti_node_heads_qkv(&heads);
    const size_t queries = wefti_node_heads_out(&heads);
    size_t d_normed = wefti_builder_add_residual(builder, "d.normed");
    size_t qkv = wefti_program_add_value(program, "qkv", width, true);
    size_t dqkv = wefti_program_add_value(program, "d.qkv", width, true);
    size_t out = wefti_program_add_value(program, "attended", queries, true);
    size_t dout = wefti_program_add_value(program, "d.attended", queries, true);
    size_t normed = wefti_append_norm(builder, WEFTI_BY_ROWS, d_normed, false);
    wefti_map_input in =
        wefti_append_entry(builder, WEFTI_BY_ROWS, normed, d_normed);
    wefti_append_linear(builder, "qkv", in.rows, in.x, in.dx, qkv, dqkv);
    wefti_append_attend(builder, &(wefti_attend_values){qkv, dqkv, out, dout});
    wefti_append_residual(builder, "out", WEFTI_WHOLE, out, dout);
}

const wefti_model_block wefti_attention_block = {"attention", list, append,
                                                 "attention_in"};

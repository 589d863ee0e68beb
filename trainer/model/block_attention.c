/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_attention.c - causal attention with grouped queries.
 *
 *   residual --+--> norm --> qkv --> rope, attend --> out --+--> residual
 *              +--------------------------------------------+
 *
 * The halves of a head that the rotary embedding turns are its first and its
 * second half of rows, as in Hugging Face's Llama (rotate_half): rows need no
 * other order there.
 *
 * Source: Touvron et al. 2023 (LLaMA, arXiv 2302.13971); Ainslie et al. 2023
 * (grouped queries, arXiv 2305.13245).
 */
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_math.h"

static wefti_node_heads heads_of(const wefti_model_shape *shape)
{
    return (wefti_node_heads){shape->heads, shape->kv_heads, shape->head_dim};
}

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
        &(wefti_tensor_info){.name = "qkv",
                             .kind = WEFTI_TENSOR_INPUT,
                             .columns = hidden,
                             .split = WEFTI_SPLIT_ROW,
                             .pieces = {{"self_attn.q_proj", queries},
                                        {"self_attn.k_proj", keys},
                                        {"self_attn.v_proj", keys}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "attention_out",
                             .kind = WEFTI_TENSOR_OUTPUT,
                             .columns = queries,
                             .split = WEFTI_SPLIT_COLUMN,
                             .pieces = {{"self_attn.o_proj", hidden}}});
}

enum { QKV, DQKV, OUT, DOUT, LSE, DELTA, DQKV_SUM };

static weft_status forward(const wefti_node_args *args)
{
    const wefti_node_heads heads = heads_of(args->node->context);
    void *const *v = args->values;
    return wefti_node_attention_forward(args, &heads, v[OUT], v[LSE], v[QKV]);
}

/* Summed up beside qkv, which is read all along, then written over it. */
static weft_status inputs(const wefti_node_args *args)
{
    const wefti_node_heads heads = heads_of(args->node->context);
    void *const *v = args->values;
    weft_status status = wefti_node_attention_backward(
        args, &heads, v[DQKV_SUM], v[DOUT], v[QKV], v[OUT], v[LSE], v[DELTA]);
    return status == WEFT_OK ? wefti_node_copy(args, v[DQKV], v[DQKV_SUM],
                                               args->rows * args->widths[DQKV])
                             : status;
}

static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const wefti_model_shape *shape = &builder->plan->shape;
    const wefti_node_heads heads = heads_of(shape);
    const size_t width = wefti_node_heads_qkv(&heads);
    const size_t queries = wefti_node_heads_out(&heads);
    size_t d_normed =
        wefti_program_add_value(program, "d.normed", shape->hidden, true);
    size_t qkv = wefti_program_add_value(program, "qkv", width, true);
    size_t dqkv = wefti_program_add_value(program, "d.qkv", width, true);
    size_t out = wefti_program_add_value(program, "attended", queries, true);
    size_t dout = wefti_program_add_value(program, "d.attended", queries, true);
    size_t lse = wefti_program_add_wide(program, "lse", shape->heads, true);
    size_t delta = wefti_program_add_wide(program, "delta", shape->heads, true);
    size_t sum = wefti_program_add_value(program, "d.qkv.sum", width, true);
    size_t normed = wefti_append_norm(builder, WEFTI_BY_ROWS, d_normed, false);
    wefti_append_linear(builder, "qkv", WEFTI_BY_ROWS, normed, d_normed, qkv,
                        dqkv);
    wefti_program_add_node(
        program,
        &(wefti_node){
            .label = "attend",
            .calls = {forward, inputs},
            .context = shape,
            .operands = {[QKV] = {qkv, WEFTI_F_READS | WEFTI_F_WRITES |
                                           WEFTI_I_READS},
                         [DQKV] = {dqkv, WEFTI_I_WRITES | WEFTI_IN_PLACE},
                         [OUT] = {out, WEFTI_F_WRITES | WEFTI_I_READS},
                         [DOUT] = {dout, WEFTI_I_READS},
                         [LSE] = {lse, WEFTI_F_WRITES | WEFTI_I_READS},
                         [DELTA] = {delta, WEFTI_I_WRITES},
                         [DQKV_SUM] = {sum, WEFTI_I_WRITES}},
            .operand_count = 7});
    wefti_append_residual(builder, "out", WEFTI_WHOLE, out, dout);
}

const wefti_model_block wefti_attention_block = {"attention", list, append};

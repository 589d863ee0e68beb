/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_embedding.c - tokens to the residual stream's first rows.
 */
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_math.h"

enum { X, DX_SUM, DX };

static void list(wefti_tensor_list *tensors, const wefti_model_shape *shape,
                 size_t layer)
{
    (void)layer;
    wefti_tensor_list_add(
        tensors, &(wefti_tensor_info){
                     .name = "embedding",
                     .kind = WEFTI_TENSOR_EMBEDDING,
                     .rows = shape->vocab,
                     .columns = shape->hidden,
                     .dtype = WEFTI_REAL_DTYPE,
                     .split = WEFTI_SPLIT_VOCABULARY,
                     .pieces = {{"model.embed_tokens.weight", shape->vocab}},
                     .piece_count = 1});
}

static weft_status forward(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    return wefti_node_embedding_forward(args, args->values[X],
                                        args->parameters[0], shape->vocab,
                                        shape->hidden);
}

static weft_status inputs(const wefti_node_args *args)
{
    return wefti_node_copy(args, args->values[DX], args->values[DX_SUM],
                           args->rows * args->widths[DX]);
}

/* The head's share is in it already. */
static weft_status tied_weights(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    return wefti_node_embedding_backward(args, args->gradients[0],
                                         args->values[DX], shape->vocab,
                                         shape->hidden);
}

static weft_status weights(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    weft_status status = wefti_node_clear(args, args->gradients[0],
                                          shape->vocab * shape->hidden);
    return status == WEFT_OK ? tied_weights(args) : status;
}

/*
 * Where ranks share the vocabulary, a token's row is one rank's, and zero on
 * the others until they are summed.
 */
static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const wefti_parameters *plan = builder->plan;
    const bool tied = builder->tensor == wefti_tensor_embedding(plan) &&
                      builder->tensor == wefti_tensor_head(plan);
    const bool shares = wefti_builder_shares(builder);
    builder->residual = wefti_builder_add_residual(builder, "residual");
    builder->d_residual = wefti_builder_add_residual(builder, "d.residual.sum");
    const size_t hidden = plan->shape.hidden;
    size_t kept = wefti_program_add_value(program, "d.residual", hidden, true);
    size_t embedded =
        shares ? wefti_program_add_value(program, "embedded", hidden, true)
               : builder->residual;
    wefti_program_add_node(
        program,
        &(wefti_node){
            .label = "embed",
            .calls = {forward,
                      wefti_builder_shares_rows(builder) ? NULL : inputs,
                      tied ? tied_weights : weights},
            .context = builder->shape,
            .operands = {[X] = {embedded, WEFTI_F_WRITES},
                         [DX_SUM] = {builder->d_residual, WEFTI_I_READS},
                         [DX] = {kept, WEFTI_I_WRITES | WEFTI_W_READS}},
            .operand_count = 3,
            .parameters = {wefti_builder_take_tensor(builder)},
            .parameter_count = 1});
    if (shares) {
        wefti_append_leave(builder, WEFTI_WHOLE, embedded, kept,
                           builder->residual);
    }
}

const wefti_model_block wefti_embedding_block = {"embedding", list, append,
                                                 NULL};

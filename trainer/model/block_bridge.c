/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_bridge.c - the encoder's end: from its residual stream to
 * the decoder's, by a norm and a matrix.
 *
 *   residual --> norm --> bridge --> sent to the decoder's first stage
 *
 * Source: Liu et al. 2023 (LLaVA, arXiv 2304.08485), section 4.1: one matrix
 * between what an encoder gives and what a language model reads.
 */
#include "trainer/model/model_blocks.h"

static void list(wefti_tensor_list *tensors, const wefti_model_shape *shape,
                 size_t layer)
{
    (void)layer;
    wefti_tensor_list_add(tensors,
                          &(wefti_tensor_info){.name = "norm",
                                               .kind = WEFTI_TENSOR_NORM,
                                               .rows = 1,
                                               .columns = shape->hidden,
                                               .dtype = WEFTI_REAL_DTYPE,
                                               .pieces = {{"norm.weight", 1}},
                                               .piece_count = 1});
    wefti_tensor_list_add(
        tensors,
        &(wefti_tensor_info){.name = "bridge",
                             .kind = WEFTI_TENSOR_INPUT,
                             .rows = shape->hidden,
                             .columns = shape->hidden,
                             .dtype = WEFTI_REAL_DTYPE,
                             .pieces = {{"bridge.weight", shape->hidden}},
                             .piece_count = 1});
}

/* What it has made is the stage's residual then, and is sent. */
static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const size_t hidden = builder->shape->hidden;
    size_t d_normed = wefti_builder_add_residual(builder, "d.normed");
    size_t made = wefti_program_add_value(program, "bridged", hidden, true);
    size_t d_made = wefti_program_add_value(program, "d.bridged", hidden, true);
    size_t normed = wefti_append_norm(builder, WEFTI_BY_ROWS, d_normed, true);
    wefti_append_linear(builder, "bridge", WEFTI_BY_ROWS, normed, d_normed,
                        made, d_made);
    builder->residual = made;
    builder->d_residual = d_made;
}

const wefti_model_block wefti_bridge_block = {"bridge", list, append, NULL};

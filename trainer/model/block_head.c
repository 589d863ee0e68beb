/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_head.c - the model's end: residual stream to logits.
 *
 * Between F and the backward the loss turns the logits into their gradient, in
 * place (wefti_stage_measure).
 */
#include "trainer/model/model_blocks.h"

static void list(wefti_tensor_list *tensors, const wefti_model_shape *shape,
                 size_t layer)
{
    (void)layer;
    wefti_tensor_list_add(
        tensors, &(wefti_tensor_info){.name = "final_norm",
                                      .kind = WEFTI_TENSOR_NORM,
                                      .rows = 1,
                                      .columns = shape->hidden,
                                      .dtype = WEFTI_REAL_DTYPE,
                                      .pieces = {{"model.norm.weight", 1}},
                                      .piece_count = 1});
    if (!shape->tied) {
        wefti_tensor_list_add(
            tensors,
            &(wefti_tensor_info){.name = "head",
                                 .kind = WEFTI_TENSOR_HEAD,
                                 .rows = shape->vocab,
                                 .columns = shape->hidden,
                                 .dtype = WEFTI_REAL_DTYPE,
                                 .split = WEFTI_SPLIT_VOCABULARY,
                                 .pieces = {{"lm_head.weight", shape->vocab}},
                                 .piece_count = 1});
    }
}

/* The last residual's place in the builder is that of the logits, then. */
static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    size_t d_normed = wefti_builder_add_residual(builder, "d.normed");
    size_t logits = wefti_program_add_value(program, "logits",
                                            builder->plan->own.vocab, true);
    size_t normed = wefti_append_norm(builder, WEFTI_WHOLE, d_normed, true);
    wefti_map_input in =
        wefti_append_entry(builder, WEFTI_WHOLE, normed, d_normed);
    builder->tensor = wefti_tensor_head(builder->plan);
    wefti_append_linear(builder, "head", in.rows, in.x, in.dx, logits, logits);
    wefti_program_set_outside(program, logits);
    builder->residual = logits;
}

const wefti_model_block wefti_head_block = {"head", list, append, "head_in"};

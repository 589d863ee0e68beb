/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/model_blocks.c - which blocks a layer has, and a stage of them.
 */
#include "trainer/model/model_blocks.h"

#include <stdio.h>

const wefti_model_block *const *
wefti_layer_blocks(const wefti_model_shape *shape)
{
#define ROW(name) &wefti_##name##_block,
    static const wefti_model_block *const dense[] = {WEFTI_LAYER_BLOCK_LIST(ROW)
                                                         NULL};
    static const wefti_model_block *const experts[] = {
        WEFTI_EXPERT_LAYER_BLOCK_LIST(ROW) NULL};
#undef ROW
    return shape->experts > 0 ? experts : dense;
}

void wefti_layer_list_tensor(wefti_tensor_list *list, size_t layer,
                             const wefti_tensor_info *info)
{
    wefti_tensor_info whole = *info;
    whole.dtype = WEFTI_REAL_DTYPE;
    snprintf(whole.name, sizeof(whole.name), "layer%u.%.16s", (unsigned)layer,
             info->name);
    for (size_t k = 0; k < WEFTI_TENSOR_PIECES_MOST && info->pieces[k].rows > 0;
         k++) {
        snprintf(whole.pieces[k].name, sizeof(whole.pieces[k].name),
                 "model.layers.%u.%.32s.weight", (unsigned)layer,
                 info->pieces[k].name);
        whole.rows += info->pieces[k].rows;
        whole.piece_count++;
    }
    wefti_tensor_list_add(list, &whole);
}

wefti_node_parameter wefti_builder_take_tensor(wefti_builder *builder)
{
    size_t number = builder->tensor++;
    const wefti_tensor *tensor = &builder->plan->tensors[number];
    return (wefti_node_parameter){.tensor = number,
                                  .group = tensor->info.group,
                                  .start_elems = tensor->start_elems};
}

static void begin(wefti_builder *builder, const wefti_model_block *block,
                  size_t layer)
{
    const bool enters = block->entry && wefti_builder_shares(builder);
    builder->block = block;
    builder->layer = layer;
    wefti_program_begin_block(builder->program,
                              enters ? block->entry : block->name, layer);
}

static void append(wefti_builder *builder, const wefti_model_block *block,
                   size_t layer)
{
    begin(builder, block, layer);
    block->append(builder);
}

/* Layer's blocks; with the stage's edges in the first and the last of them. */
static void append_layer(wefti_builder *builder, size_t layer, bool receives,
                         bool sends)
{
    const wefti_model_block *const *blocks =
        wefti_layer_blocks(&builder->plan->shape);
    builder->tensor = wefti_tensor_of_layer(builder->plan, layer);
    for (const wefti_model_block *const *block = blocks; *block; block++) {
        begin(builder, *block, layer);
        if (block != blocks) {
            wefti_program_go_on(builder->program);
        }
        if (receives && block == blocks) {
            wefti_append_receive(builder);
        }
        (*block)->append(builder);
        if (sends && !block[1]) {
            wefti_append_send(builder);
        }
    }
}

void wefti_stage_append(wefti_program *program, const wefti_parameters *plan,
                        size_t first_layer, size_t layers_end,
                        size_t *logits_out)
{
    const bool first = first_layer == 0;
    const bool last = layers_end == plan->shape.layers;
    wefti_builder builder = {.program = program, .plan = plan};
    program->narrow = plan->shape.narrow;
    if (wefti_builder_shares_rows(&builder)) {
        program->parts = plan->tensor.parts;
        program->part = plan->tensor.part;
    }
    if (first) {
        append(&builder, &wefti_embedding_block, 0);
    }
    for (size_t i = first_layer; i < layers_end; i++) {
        append_layer(&builder, i, !first && i == first_layer,
                     !last && i + 1 == layers_end);
    }
    if (last) {
        builder.tensor = wefti_tensor_final_norm(plan);
        append(&builder, &wefti_head_block, 0);
        *logits_out = builder.residual;
    }
}

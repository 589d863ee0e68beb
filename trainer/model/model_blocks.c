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
                 "model.layers.%u.%.32s%s", (unsigned)layer,
                 info->pieces[k].name,
                 info->kind == WEFTI_TENSOR_BIAS ? "" : ".weight");
        whole.rows += info->pieces[k].rows;
        whole.piece_count++;
    }
    whole.rows *= info->repeats > 0 ? info->repeats : 1;
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

/* Layer's blocks, of the chain; with the stage's edges in the first and the
 * last of them. */
static void append_layer(wefti_builder *builder, size_t layer, bool receives,
                         bool sends)
{
    const wefti_model_block *const *blocks = wefti_layer_blocks(builder->shape);
    builder->tensor = wefti_tensor_of_layer(builder->plan, layer);
    layer -= builder->shape->sees_all ? 0 : builder->plan->shape.encoder_layers;
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

/* What is before a branch's first layer. */
static void append_beginning(wefti_builder *builder, bool encoder)
{
    const wefti_parameters *plan = builder->plan;
    const bool joins = !encoder && plan->shape.encoder_layers > 0;
    builder->tensor = encoder ? 0 : wefti_tensor_embedding(plan);
    append(builder, joins ? &wefti_join_block : &wefti_embedding_block, 0);
}

/* What is behind its last one. */
static void append_end(wefti_builder *builder, bool encoder, size_t *logits_out)
{
    const wefti_parameters *plan = builder->plan;
    builder->tensor =
        encoder ? wefti_tensor_bridge(plan) : wefti_tensor_final_norm(plan);
    append(builder, encoder ? &wefti_bridge_block : &wefti_head_block, 0);
    if (encoder) {
        wefti_append_send(builder);
    } else {
        *logits_out = builder->residual;
    }
}

void wefti_stage_append(wefti_program *program, const wefti_parameters *plan,
                        size_t first_layer, size_t layers_end,
                        size_t *logits_out)
{
    const wefti_layer_run run = {first_layer, layers_end};
    const wefti_layer_ends ends = wefti_layer_run_ends(&plan->shape, &run);
    wefti_builder builder = {.program = program,
                             .plan = plan,
                             .shape =
                                 ends.encoder ? &plan->encoder : &plan->own};
    program->narrow = plan->shape.narrow;
    if (wefti_builder_shares_rows(&builder)) {
        program->parts = plan->tensor.parts;
        program->part = plan->tensor.part;
    }
    if (ends.first) {
        append_beginning(&builder, ends.encoder);
    }
    for (size_t i = first_layer; i < layers_end; i++) {
        append_layer(&builder, i, !ends.first && i == first_layer,
                     !ends.last && i + 1 == layers_end);
    }
    if (ends.last) {
        append_end(&builder, ends.encoder, logits_out);
    }
}

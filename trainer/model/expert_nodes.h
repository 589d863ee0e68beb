/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/expert_nodes.h - what the files of a mixture of experts share:
 * block_experts.c, and expert_nodes.c, which has the nodes whose rows go from
 * one rank to another.
 */
#ifndef TRAINER_MODEL_EXPERT_NODES_H
#define TRAINER_MODEL_EXPERT_NODES_H

#include "trainer/model/expert_exchange.h"
#include "trainer/model/model_blocks.h"
#include "trainer/program/node_experts.h"

/* The values of a layer's block. */
typedef struct wefti_expert_values {
    size_t normed, d_normed, d_rows_x, d_router_x, d_shared_x;
    size_t logits, d_logits, affinity, expert, weight, d_weight;
    size_t place, counts, rows, d_rows;
    size_t gate_up, d_gate_up, gated, d_gated, y, d_y, combined;
} wefti_expert_values;

/*
 * Rows to their experts: first, and arrived. Where all experts are here, F is
 * the first node's alone, and I the second's.
 */
void wefti_append_dispatch(wefti_builder *builder, const wefti_expert_values *v,
                           size_t operation, bool first);

/* What experts made, weighted and summed: first, and combined; likewise. */
void wefti_append_combine(wefti_builder *builder, const wefti_expert_values *v,
                          size_t operation, bool first);

/* ---- what nodes know ------------------------------------------------------
 */

static inline const wefti_parameters *
wefti_expert_plan(const wefti_node_args *args)
{
    return args->node->context;
}

static inline size_t wefti_expert_layer(const wefti_node_args *args)
{
    return args->pass->program->blocks[args->node->block].layer;
}

static inline wefti_expert_turn
wefti_expert_turn_of(const wefti_node_args *args)
{
    return (wefti_expert_turn){wefti_expert_layer(args), args->pass->slot};
}

/* counts: the value's, where all experts are here. */
static inline wefti_node_rows_by_expert
wefti_expert_rows_of(const wefti_node_args *args, const real *counts)
{
    const wefti_parameters *plan = wefti_expert_plan(args);
    const wefti_program *program = args->pass->program;
    const size_t tokens =
        args->node->of_part
            ? wefti_program_part_rows(program, program->rows_most)
            : program->rows_most;
    const int32_t *from =
        wefti_experts_here(plan)
            ? (const int32_t *)counts
            : wefti_experts_counts(args->pass->experts,
                                   wefti_expert_turn_of(args));
    return (wefti_node_rows_by_expert){from,
                                       plan->expert_slots / plan->expert_parts,
                                       wefti_experts_room(plan, tokens)};
}

#endif

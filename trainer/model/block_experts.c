/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/block_experts.c - a mixture of experts in the feed-forward's
 * place, of models that have them.
 *
 *   residual -+-> norm -+-> router --> choice, weights ----------+
 *             |         |                 |                      |
 *             |         +--> dispatch ----+--> experts --> combine --> + -->
 *             |         +--> shared experts -----------------------> +
 *             +---------------------------------------------------> +
 *
 * Where a rank has all experts, dispatch and combine are kernels. Else they go
 * to other ranks (trainer/model/expert_exchange.h), and what lies between the
 * POST and its AWAIT runs beside them: the shared experts' halves.
 *
 * What an expert computes has as many rows as tokens come to it. There is room
 * for all that can come, or for as many as the shape says.
 *
 * Ranks that share the residual's rows work each on its own, with nothing to
 * exchange but rows of experts: all matrices are whole, or other experts'.
 *
 * Source: DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437, section 2.1.2).
 */
#include "trainer/model/expert_nodes.h"
#include "trainer/program/node_math.h"

static void list_shared(wefti_tensor_list *tensors,
                        const wefti_model_shape *shape, size_t layer)
{
    const size_t ffn = shape->shared_experts * shape->ffn;
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "shared_gate_up",
                             .kind = WEFTI_TENSOR_INPUT,
                             .columns = shape->hidden,
                             .pieces = {{"mlp.shared_experts.gate_proj", ffn},
                                        {"mlp.shared_experts.up_proj", ffn}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){
            .name = "shared_down",
            .kind = WEFTI_TENSOR_OUTPUT,
            .columns = ffn,
            .pieces = {{"mlp.shared_experts.down_proj", shape->hidden}}});
}

/* In the order in which nodes take them. */
static void list(wefti_tensor_list *tensors, const wefti_model_shape *shape,
                 size_t layer)
{
    const size_t hidden = shape->hidden, experts = shape->experts;
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "ffn_norm",
                             .kind = WEFTI_TENSOR_NORM,
                             .columns = hidden,
                             .pieces = {{"post_attention_layernorm", 1}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "router",
                             .kind = WEFTI_TENSOR_INPUT,
                             .columns = hidden,
                             .pieces = {{"mlp.gate", experts}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){
            .name = "router_bias",
            .kind = WEFTI_TENSOR_BIAS,
            .columns = experts,
            .pieces = {{"mlp.gate.e_score_correction_bias", 1}}});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "experts_gate_up",
                             .kind = WEFTI_TENSOR_INPUT,
                             .columns = hidden,
                             .split = WEFTI_SPLIT_EXPERT,
                             .group = WEFTI_TENSOR_GROUP_EXPERTS,
                             .pieces = {{"mlp.experts.#.gate_proj", shape->ffn},
                                        {"mlp.experts.#.up_proj", shape->ffn}},
                             .repeats = experts});
    wefti_layer_list_tensor(
        tensors, layer,
        &(wefti_tensor_info){.name = "experts_down",
                             .kind = WEFTI_TENSOR_OUTPUT,
                             .columns = shape->ffn,
                             .split = WEFTI_SPLIT_EXPERT,
                             .group = WEFTI_TENSOR_GROUP_EXPERTS,
                             .pieces = {{"mlp.experts.#.down_proj", hidden}},
                             .repeats = experts});
    if (shape->shared_experts > 0) {
        list_shared(tensors, shape, layer);
    }
}

/* ---- the slopes of what reads the norm ------------------------------------
 */

enum { SUM, OF_ROWS, OF_ROUTER, OF_SHARED };

static weft_status sum_inputs(const wefti_node_args *args)
{
    void *const *v = args->values;
    const size_t elems = args->rows * args->widths[SUM];
    weft_status status =
        wefti_node_add(args, v[SUM], v[OF_ROWS], v[OF_ROUTER], elems);
    return status == WEFT_OK && args->node->operand_count > OF_SHARED
               ? wefti_node_add(args, v[SUM], v[SUM], v[OF_SHARED], elems)
               : status;
}

static void append_sum(wefti_builder *builder, size_t sum, size_t of_rows,
                       size_t of_router, size_t of_shared)
{
    const bool shared = builder->plan->shape.shared_experts > 0;
    wefti_program_add_node(
        builder->program,
        &(wefti_node){.label = "slopes",
                      .calls = {NULL, sum_inputs},
                      .of_part = wefti_builder_shares_rows(builder),
                      .operands = {[SUM] = {sum, WEFTI_I_WRITES},
                                   [OF_ROWS] = {of_rows, WEFTI_I_READS},
                                   [OF_ROUTER] = {of_router, WEFTI_I_READS},
                                   [OF_SHARED] = {of_shared, WEFTI_I_READS}},
                      .operand_count = shared ? 4 : 3});
}

/* ---- the choice -----------------------------------------------------------
 */

enum { LOGITS, DLOGITS, AFFINITY, EXPERT, WEIGHT, DWEIGHT, DLOGITS_SUM };

static wefti_node_route route_of(const wefti_node_args *args)
{
    const wefti_model_shape *shape = &wefti_expert_plan(args)->shape;
    void *const *v = args->values;
    return (wefti_node_route){
        .experts = shape->experts,
        .slots = shape->experts_per_token,
        .how = {shape->expert_groups ? shape->expert_groups : 1,
                shape->group_limit ? shape->group_limit : 1},
        .logits = v[LOGITS],
        .affinity = v[AFFINITY],
        .expert = v[EXPERT],
        .weight = v[WEIGHT],
        .bias = args->parameters[0]};
}

static weft_status choose_forward(const wefti_node_args *args)
{
    const wefti_node_route route = route_of(args);
    return wefti_node_route_forward(args, &route);
}

static weft_status choose_inputs(const wefti_node_args *args)
{
    const wefti_node_route route = route_of(args);
    double *loads = args->pass->loads;
    void *const *v = args->values;
    const bool rounds = args->node->operand_count > DLOGITS_SUM;
    real *slopes = v[rounds ? DLOGITS_SUM : DLOGITS];
    weft_status status = wefti_node_route_backward(
        args, &route, slopes, v[DWEIGHT],
        loads ? loads + wefti_expert_layer(args) * route.experts : NULL);
    const wefti_node_matrix to = {v[DLOGITS], route.experts};
    const wefti_node_matrix from = {slopes, route.experts};
    return status == WEFT_OK && rounds
               ? wefti_node_round_rows(args, &to, &from, args->rows,
                                       route.experts, false)
               : status;
}

/* Balance alone moves the bias. */
static weft_status choose_weights(const wefti_node_args *args)
{
    return wefti_node_clear(args, args->gradients[0],
                            wefti_expert_plan(args)->shape.experts);
}

/* ---- experts --------------------------------------------------------------
 */

enum { IN, DIN, MADE, DMADE, COUNTED };

static weft_status multiply(const wefti_node_args *args,
                            wefti_expert_product product, const void *x,
                            const void *y, const void *weight)
{
    const wefti_parameters *plan = wefti_expert_plan(args);
    const size_t room = wefti_experts_room(plan, 1);
    const wefti_node_expert_map map = {
        wefti_expert_rows_of(args, args->values[COUNTED]),
        args->widths[IN] / room, args->widths[MADE] / room};
    return wefti_node_expert_gemm(args, &map, product, x, y, weight);
}

/* What came from other ranks lies where it came. */
static const void *input_of(const wefti_node_args *args)
{
    return args->node->operands[IN].use
               ? args->values[IN]
               : wefti_experts_rows(args->pass->experts,
                                    wefti_expert_turn_of(args));
}

static weft_status map_forward(const wefti_node_args *args)
{
    return multiply(args, WEFTI_EXPERT_FORWARD, input_of(args),
                    args->values[MADE], args->parameters[0]);
}

static weft_status map_inputs(const wefti_node_args *args)
{
    return multiply(args, WEFTI_EXPERT_INPUTS, args->values[DIN],
                    args->values[DMADE], args->parameters[0]);
}

static weft_status map_weights(const wefti_node_args *args)
{
    return multiply(args, WEFTI_EXPERT_WEIGHTS, input_of(args),
                    args->values[DMADE], args->gradients[0]);
}

static void append_map(wefti_builder *builder, const char *label, size_t in,
                       size_t din, size_t made, size_t dmade, size_t counts,
                       bool has_input)
{
    const unsigned counted = wefti_experts_here(builder->plan)
                                 ? WEFTI_F_READS | WEFTI_I_READS | WEFTI_W_READS
                                 : 0;
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = label,
            .calls = {map_forward, map_inputs, map_weights},
            .context = builder->plan,
            .of_part = wefti_builder_shares_rows(builder),
            .of_others = !wefti_experts_here(builder->plan),
            .operands = {[IN] = {in,
                                 has_input ? WEFTI_F_READS | WEFTI_W_READS : 0},
                         [DIN] = {din, WEFTI_I_WRITES},
                         [MADE] = {made, WEFTI_F_WRITES},
                         [DMADE] = {dmade, WEFTI_I_READS | WEFTI_W_READS},
                         [COUNTED] = {counts, counted}},
            .operand_count = 5,
            .parameters = {wefti_builder_take_tensor(builder)},
            .parameter_count = 1});
}

enum { GATE_UP, DGATE_UP, GATED, DGATED, GATE_COUNTS };

static weft_status gate_forward(const wefti_node_args *args)
{
    void *const *v = args->values;
    const wefti_node_rows_by_expert rows =
        wefti_expert_rows_of(args, v[GATE_COUNTS]);
    return wefti_node_gate_forward(args, &rows, v[GATED], v[GATE_UP],
                                   wefti_expert_plan(args)->shape.ffn);
}

static weft_status gate_inputs(const wefti_node_args *args)
{
    void *const *v = args->values;
    const wefti_node_rows_by_expert rows =
        wefti_expert_rows_of(args, v[GATE_COUNTS]);
    return wefti_node_gate_backward(args, &rows, v[DGATE_UP], v[DGATED],
                                    v[GATE_UP],
                                    wefti_expert_plan(args)->shape.ffn);
}

static weft_status swiglu_forward(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_swiglu_forward(args, v[GATED], v[GATE_UP],
                                     args->widths[GATED]);
}

static weft_status swiglu_inputs(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_swiglu_backward(args, v[DGATE_UP], v[DGATED], v[GATE_UP],
                                      args->widths[GATED]);
}

/* Of experts, which have counts, or of the shared ones. */
static void append_gate(wefti_builder *builder, const wefti_expert_values *v,
                        bool shared)
{
    const unsigned counted = !shared && wefti_experts_here(builder->plan)
                                 ? WEFTI_F_READS | WEFTI_I_READS
                                 : 0;
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = shared ? "shared_swiglu" : "swiglu",
            .calls = {shared ? swiglu_forward : gate_forward,
                      shared ? swiglu_inputs : gate_inputs},
            .context = builder->plan,
            .of_part = wefti_builder_shares_rows(builder),
            .of_others = !shared && !wefti_experts_here(builder->plan),
            .operands = {[GATE_UP] = {v->gate_up,
                                      WEFTI_F_READS | WEFTI_I_READS},
                         [DGATE_UP] = {v->d_gate_up,
                                       WEFTI_I_WRITES | WEFTI_IN_PLACE},
                         [GATED] = {v->gated, WEFTI_F_WRITES},
                         [DGATED] = {v->d_gated, WEFTI_I_READS},
                         [GATE_COUNTS] = {v->counts, counted}},
            .operand_count = 5});
}

/* ---- the sum ---------------------------------------------------------------
 */

enum { BEFORE, ADDED, AFTER };

static weft_status add_forward(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_node_add(args, v[AFTER], v[BEFORE], v[ADDED],
                          args->rows * args->widths[AFTER]);
}

static void append_add(wefti_builder *builder, size_t added)
{
    const size_t before = builder->residual;
    builder->residual = wefti_builder_add_residual(builder, "residual");
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = "add",
            .calls = {add_forward},
            .of_part = wefti_builder_shares_rows(builder),
            .operands = {[BEFORE] = {before, WEFTI_F_READS},
                         [ADDED] = {added, WEFTI_F_READS},
                         [AFTER] = {builder->residual, WEFTI_F_WRITES}},
            .operand_count = 3});
}

/* ---- the block ------------------------------------------------------------
 */

static size_t add(wefti_builder *builder, const char *name, size_t width)
{
    return wefti_builder_add_own(builder, name, width);
}

/* Routes are real. */
static size_t add_wide(wefti_builder *builder, const char *name, size_t width)
{
    size_t value = wefti_program_add_wide(builder->program, name, width, true);
    return wefti_builder_shares_rows(builder)
               ? wefti_program_cut_value(builder->program, value)
               : value;
}

static wefti_expert_values add_values(wefti_builder *builder)
{
    const wefti_model_shape *shape = &builder->plan->shape;
    const size_t hidden = shape->hidden, ffn = shape->ffn;
    const size_t slots = shape->experts_per_token;
    const size_t room = wefti_experts_room(builder->plan, 1);
    return (wefti_expert_values){
        .d_normed = add(builder, "d.normed", hidden),
        .d_rows_x = add(builder, "d.dispatched", hidden),
        .d_router_x = add(builder, "d.routed", hidden),
        .d_shared_x = add(builder, "d.shared", hidden),
        .logits = add_wide(builder, "logits", shape->experts),
        .d_logits = add(builder, "d.logits", shape->experts),
        .affinity = add_wide(builder, "affinity", shape->experts),
        .expert = add_wide(builder, "expert", slots),
        .weight = add_wide(builder, "weight", slots),
        .d_weight = add_wide(builder, "d.weight", slots),
        .place = add_wide(builder, "place", slots),
        .counts = wefti_program_add_wide(builder->program, "counts",
                                         shape->experts, false),
        .rows = add(builder, "rows", room * hidden),
        .d_rows = add(builder, "d.rows", room * hidden),
        .gate_up = add(builder, "gate_up", room * 2 * ffn),
        .d_gate_up = add(builder, "d.gate_up", room * 2 * ffn),
        .gated = add(builder, "gated", room * ffn),
        .d_gated = add(builder, "d.gated", room * ffn),
        .y = add(builder, "made", room * hidden),
        .d_y = add(builder, "d.made", room * hidden),
        .combined = add(builder, "combined", hidden)};
}

static wefti_expert_values add_shared_values(wefti_builder *builder)
{
    const wefti_model_shape *shape = &builder->plan->shape;
    const size_t ffn = shape->shared_experts * shape->ffn;
    return (wefti_expert_values){
        .gate_up = add(builder, "shared_gate_up", 2 * ffn),
        .d_gate_up = add(builder, "d.shared_gate_up", 2 * ffn),
        .gated = add(builder, "shared_gated", ffn),
        .d_gated = add(builder, "d.shared_gated", ffn)};
}

static void append_choice(wefti_builder *builder, const wefti_expert_values *v)
{
    const bool rounds = builder->plan->shape.narrow;
    const size_t slopes =
        rounds ? add_wide(builder, "d.logits.sum", builder->plan->shape.experts)
               : v->d_logits;
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = "choose",
            .calls = {choose_forward, choose_inputs, choose_weights},
            .context = builder->plan,
            .of_part = wefti_builder_shares_rows(builder),
            .operands = {[LOGITS] = {v->logits, WEFTI_F_READS},
                         [DLOGITS] = {v->d_logits, WEFTI_I_WRITES},
                         [AFFINITY] = {v->affinity,
                                       WEFTI_F_WRITES | WEFTI_I_READS},
                         [EXPERT] = {v->expert, WEFTI_F_WRITES | WEFTI_I_READS},
                         [WEIGHT] = {v->weight, WEFTI_F_WRITES},
                         [DWEIGHT] = {v->d_weight, WEFTI_I_READS},
                         [DLOGITS_SUM] = {slopes, WEFTI_I_WRITES}},
            .operand_count = rounds ? 7 : 6,
            .parameters = {wefti_builder_take_tensor(builder)},
            .parameter_count = 1});
}

/* Tensors are taken in the order in which they are listed: the shared ones are
 * the last, but computed before and behind the others. */
static void append(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    wefti_expert_values v = add_values(builder);
    const bool shares = builder->plan->shape.shared_experts > 0;
    const wefti_expert_values shared = shares ? add_shared_values(builder) : v;
    const bool here = wefti_experts_here(builder->plan);
    const size_t to = here ? 0 : wefti_program_add_operation(program);
    const size_t back = here ? 0 : wefti_program_add_operation(program);
    v.normed = wefti_append_norm(builder, WEFTI_OWN, v.d_normed, false);
    append_sum(builder, v.d_normed, v.d_rows_x, v.d_router_x, v.d_shared_x);
    wefti_append_linear(builder, "router", WEFTI_OWN, v.normed, v.d_router_x,
                        v.logits, v.d_logits);
    append_choice(builder, &v);
    const size_t routed = builder->tensor;
    wefti_append_dispatch(builder, &v, to, true);
    if (shares) {
        builder->tensor = routed + 2;
        wefti_append_linear(builder, "shared_gate_up", WEFTI_OWN, v.normed,
                            v.d_shared_x, shared.gate_up, shared.d_gate_up);
        append_gate(builder, &shared, true);
        builder->tensor = routed;
    }
    wefti_append_dispatch(builder, &v, to, false);
    append_map(builder, "gate_up", v.rows, v.d_rows, v.gate_up, v.d_gate_up,
               v.counts, here);
    append_gate(builder, &v, false);
    append_map(builder, "down", v.gated, v.d_gated, v.y, v.d_y, v.counts, true);
    wefti_append_combine(builder, &v, back, true);
    if (shares) {
        builder->tensor = routed + 3;
        wefti_append_residual(builder, "shared_down", WEFTI_OWN, shared.gated,
                              shared.d_gated);
    }
    wefti_append_combine(builder, &v, back, false);
    append_add(builder, v.combined);
}

const wefti_model_block wefti_experts_block = {"experts", list, append, NULL};

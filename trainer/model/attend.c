/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/attend.c - which nodes attend, and those for whole sequences.
 */
#include "trainer/model/attend.h"

#include "trainer/program/node_math.h"

wefti_node_heads wefti_attend_all_heads(const wefti_model_shape *shape)
{
    return (wefti_node_heads){shape->heads, shape->kv_heads, shape->head_dim, 1,
                              shape->sees_all};
}

/* Where a place has more ranks than keys have heads, some have the same. */
wefti_node_heads wefti_attend_heads(const wefti_model_shape *shape)
{
    const size_t ulysses = wefti_context_ulysses(&shape->context);
    const size_t keys = shape->kv_heads / ulysses;
    return (wefti_node_heads){shape->heads / ulysses, keys > 0 ? keys : 1,
                              shape->head_dim, ulysses, shape->sees_all};
}

void wefti_append_core(wefti_builder *builder,
                       const wefti_attend_values *values,
                       const wefti_node *node)
{
    wefti_program *program = builder->program;
    const wefti_model_shape *shape = builder->shape;
    const wefti_node_heads heads = wefti_attend_heads(shape);
    const size_t sums = heads.spread * heads.heads;
    const size_t width = heads.spread * wefti_node_heads_qkv(&heads);
    const bool rings = wefti_context_ring(&shape->context) > 1;
    const bool rounds = rings && shape->narrow;
    wefti_operand operands[] = {
        [WEFTI_ATTEND_QKV] = {values->qkv, WEFTI_F_READS | WEFTI_I_READS},
        [WEFTI_ATTEND_DQKV] = {values->dqkv, WEFTI_I_WRITES | WEFTI_IN_PLACE},
        [WEFTI_ATTEND_OUT] = {values->out, WEFTI_F_WRITES | WEFTI_I_READS},
        [WEFTI_ATTEND_DOUT] = {values->dout, WEFTI_I_READS},
        [WEFTI_ATTEND_LSE] = {wefti_program_add_wide(program, "lse", sums,
                                                     true),
                              WEFTI_F_WRITES | WEFTI_I_READS},
        [WEFTI_ATTEND_DELTA] = {wefti_program_add_wide(program, "delta", sums,
                                                       true),
                                WEFTI_I_WRITES},
        [WEFTI_ATTEND_DQKV_SUM] = {(rings ? wefti_program_add_wide
                                          : wefti_program_add_value)(
                                       program, "d.qkv.sum", width, true),
                                   WEFTI_I_WRITES},
        [WEFTI_ATTEND_OUT_SUM] = {0, WEFTI_F_WRITES}};
    wefti_node own = *node;
    own.label = "attend";
    own.context = shape;
    own.operand_count = WEFTI_ATTEND_OUT_SUM + (rounds ? 1 : 0);
    if (rounds) {
        operands[WEFTI_ATTEND_OUT_SUM].value = wefti_program_add_wide(
            program, "attended.sum",
            heads.spread * wefti_node_heads_out(&heads), true);
    }
    for (size_t i = 0; i < own.operand_count; i++) {
        own.operands[i] = operands[i];
    }
    wefti_program_add_node(program, &own);
}

/* ---- whole sequences ------------------------------------------------------
 */

static weft_status forward(const wefti_node_args *args)
{
    const wefti_node_heads heads = wefti_attend_heads(args->node->context);
    void *const *v = args->values;
    return wefti_node_attention_forward(args, &heads, v[WEFTI_ATTEND_OUT],
                                        v[WEFTI_ATTEND_LSE],
                                        v[WEFTI_ATTEND_QKV]);
}

/* Summed up beside qkv, which is read all along, then written over it. */
static weft_status inputs(const wefti_node_args *args)
{
    const wefti_node_heads heads = wefti_attend_heads(args->node->context);
    void *const *v = args->values;
    real *sum = v[WEFTI_ATTEND_DQKV_SUM];
    weft_status status = wefti_node_attention_backward(
        args, &heads, sum, v[WEFTI_ATTEND_DOUT], v[WEFTI_ATTEND_QKV],
        v[WEFTI_ATTEND_OUT], v[WEFTI_ATTEND_LSE], v[WEFTI_ATTEND_DELTA]);
    if (status == WEFT_OK) {
        status = wefti_node_turn(args, &heads, sum, true);
    }
    return status == WEFT_OK
               ? wefti_node_copy(args, v[WEFTI_ATTEND_DQKV], sum,
                                 args->rows * args->widths[WEFTI_ATTEND_DQKV])
               : status;
}

static bool applies(const wefti_context *context)
{
    return wefti_context_ring(context) == 1;
}

static void append(wefti_builder *builder, const wefti_attend_values *values)
{
    wefti_append_core(builder, values,
                      &(wefti_node){.calls = {forward, inputs},
                                    .effort = WEFTI_EFFORT_ATTENTION});
}

static const wefti_attend_core whole = {applies, append};

/* ---- all of them ----------------------------------------------------------
 */

/* Forwards a node of its own: attention runs again from what it has turned. */
static weft_status turn(const wefti_node_args *args)
{
    const wefti_node_heads heads = wefti_attend_heads(args->node->context);
    return wefti_node_turn(args, &heads, args->values[WEFTI_ATTEND_QKV], false);
}

static void append_turn(wefti_builder *builder, size_t qkv)
{
    wefti_program_add_node(
        builder->program,
        &(wefti_node){
            .label = "rope",
            .calls = {turn},
            .context = builder->shape,
            .effort = WEFTI_EFFORT_ELEMENTS,
            .operands = {[WEFTI_ATTEND_QKV] = {qkv,
                                               WEFTI_F_READS | WEFTI_F_WRITES}},
            .operand_count = 1});
}

static const wefti_attend_core *const cores[] = {&whole, &wefti_attend_ring};

static wefti_attend_values add_values(wefti_builder *builder)
{
    wefti_program *program = builder->program;
    const wefti_node_heads heads = wefti_attend_heads(builder->shape);
    const size_t width = heads.spread * wefti_node_heads_qkv(&heads);
    const size_t queries = heads.spread * wefti_node_heads_out(&heads);
    return (wefti_attend_values){
        .qkv = wefti_program_add_value(program, "qkv.place", width, true),
        .dqkv = wefti_program_add_value(program, "d.qkv.place", width, true),
        .out =
            wefti_program_add_value(program, "attended.place", queries, true),
        .dout = wefti_program_add_value(program, "d.attended.place", queries,
                                        true)};
}

void wefti_append_attend(wefti_builder *builder,
                         const wefti_attend_values *values)
{
    const wefti_context *context = &builder->shape->context;
    const bool exchanges = wefti_context_ulysses(context) > 1;
    wefti_attend_values inner = *values;
    size_t core = 0;
    if (exchanges) {
        inner = add_values(builder);
        wefti_append_heads(builder, values, &inner);
    }
    append_turn(builder, inner.qkv);
    while (!cores[core]->applies(context)) {
        core++;
    }
    cores[core]->append(builder, &inner);
    if (exchanges) {
        wefti_append_tokens(builder, &inner, values);
    }
}

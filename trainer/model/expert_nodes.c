/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/expert_nodes.c - rows to experts, and what these made of them
 * back: kernels, or messages of trainer/model/expert_exchange.h.
 */
#include "trainer/model/expert_nodes.h"

/* ---- rows to experts, and back --------------------------------------------
 */

enum { X, DX, TO, BY, PLACE, COUNTS, ROWS, DROWS };

static wefti_node_places places_of(const wefti_node_args *args)
{
    void *const *v = args->values;
    return (wefti_node_places){.rows = wefti_expert_rows_of(args, v[COUNTS]),
                               .expert = v[TO],
                               .place = v[PLACE],
                               .slots = args->widths[TO],
                               .width = args->widths[X]};
}

static weft_status dispatch_here(const wefti_node_args *args)
{
    const wefti_node_places places = places_of(args);
    weft_status status = wefti_node_order(args, &places);
    return status == WEFT_OK
               ? wefti_node_spread(args, &places, args->values[ROWS],
                                   args->values[X])
               : status;
}

static weft_status return_here(const wefti_node_args *args)
{
    const wefti_node_places places = places_of(args);
    return wefti_node_collect(args, &places, args->values[DX],
                              args->values[DROWS]);
}

/* ---- calls, noted ---------------------------------------------------------
 */

/* Whether an exchange is noted, and what its turn is. */
static wefti_score *begin_call(const wefti_node_args *args)
{
    wefti_score *score =
        args->pass->links ? args->pass->links[WEFTI_LINK_EXPERTS].score : NULL;
    wefti_score_begin(score);
    return score;
}

/* Of a turn one exchange is under way at a time. */
static void note(const wefti_node_args *args, wefti_score *score,
                 wefti_score_kind kind)
{
    enum { SLOTS_MOST = 1 << 16 };
    const wefti_expert_turn turn = wefti_expert_turn_of(args);
    wefti_score_note_down(
        score, &(wefti_score_note){
                   .kind = kind,
                   .class_id = WEFT_CLASS_EP,
                   .label = args->node->label,
                   .of = args->pass->experts,
                   .number = turn.layer * SLOTS_MOST + turn.slot,
                   .chunk = kind == WEFTI_SCORE_POST ? 1 : WEFTI_SCORE_ALL});
}

/* Other ranks take no part in a rehearsal: rows are those that there were. */
static weft_status post(const wefti_node_args *args,
                        weft_status (*exchange)(const wefti_node_args *args))
{
    wefti_score *score = begin_call(args);
    note(args, score, WEFTI_SCORE_POST);
    note(args, score, WEFTI_SCORE_SERIAL);
    if (score && !wefti_experts_overlap(args->pass->experts)) {
        note(args, score, WEFTI_SCORE_AWAIT);
    }
    weft_status status = wefti_node_exchanges(args->pass, WEFTI_LINK_EXPERTS)
                             ? exchange(args)
                             : WEFT_OK;
    wefti_score_end(score);
    return status;
}

static weft_status await(const wefti_node_args *args)
{
    wefti_score *score = begin_call(args);
    note(args, score, WEFTI_SCORE_AWAIT);
    weft_status status =
        wefti_node_exchanges(args->pass, WEFTI_LINK_EXPERTS)
            ? wefti_experts_await(args->pass->experts,
                                  wefti_expert_turn_of(args), args->waits)
            : WEFT_OK;
    wefti_score_end(score);
    return status;
}

static weft_status send_rows(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_experts_dispatch(args->pass->experts,
                                  wefti_expert_turn_of(args), v[X],
                                  (const int32_t *)v[TO], v[BY], args->rows);
}

static weft_status dispatch(const wefti_node_args *args)
{
    return post(args, send_rows);
}

static weft_status send_slopes(const wefti_node_args *args)
{
    return wefti_experts_dispatch_gradient(
        args->pass->experts, wefti_expert_turn_of(args), args->values[DROWS],
        args->values[DX]);
}

static weft_status return_rows(const wefti_node_args *args)
{
    return post(args, send_slopes);
}

void wefti_append_dispatch(wefti_builder *builder, const wefti_expert_values *v,
                           size_t operation, bool first)
{
    const bool here = wefti_experts_here(builder->plan);
    const unsigned f = first || !here ? WEFTI_F_READS : 0;
    const unsigned i = !first || !here ? WEFTI_I_READS : 0;
    wefti_node node = {
        .label = first ? "dispatch" : "arrive",
        .context = builder->plan,
        .of_part = wefti_builder_shares_rows(builder),
        .operands = {[X] = {v->normed, f},
                     [DX] = {v->d_rows_x, first ? i : WEFTI_I_WRITES},
                     [TO] = {v->expert, f},
                     [BY] = {v->weight, here ? 0 : f},
                     [PLACE] = {v->place,
                                first ? WEFTI_F_WRITES : WEFTI_I_READS},
                     [COUNTS] = {v->counts, first ? WEFTI_F_WRITES : 0},
                     [ROWS] = {v->rows, first ? WEFTI_F_WRITES : 0},
                     [DROWS] = {v->d_rows, i}},
        .operand_count = 8};
    if (here) {
        node.calls[first ? WEFTI_CALL_FORWARD : WEFTI_CALL_INPUTS] =
            first ? dispatch_here : return_here;
    } else {
        node.kind = first ? WEFTI_NODE_POST : WEFTI_NODE_AWAIT;
        node.class_id = WEFT_CLASS_EP;
        node.operation = operation;
        node.calls[WEFTI_CALL_FORWARD] = first ? dispatch : await;
        node.calls[WEFTI_CALL_INPUTS] = first ? await : return_rows;
        node.operands[PLACE].use = 0;
        node.operands[COUNTS].use = 0;
        node.operands[ROWS].use = 0;
    }
    wefti_program_add_node(builder->program, &node);
}

/* ---- what experts made, weighted ------------------------------------------
 */

enum { Y, DY, OUT, DOUT, OF, WITH, DWITH };

static wefti_node_places made_places(const wefti_node_args *args)
{
    void *const *v = args->values;
    return (wefti_node_places){.rows = wefti_expert_rows_of(args, NULL),
                               .place = v[OF],
                               .weight = v[WITH],
                               .slots = args->widths[WITH],
                               .width = args->widths[OUT]};
}

static weft_status combine_here(const wefti_node_args *args)
{
    const wefti_node_places places = made_places(args);
    return wefti_node_collect(args, &places, args->values[OUT],
                              args->values[Y]);
}

/* dy takes the place of y, which the products still need. */
static weft_status part_here(const wefti_node_args *args)
{
    const wefti_node_places places = made_places(args);
    void *const *v = args->values;
    weft_status status =
        wefti_node_dots(args, &places, v[DWITH], v[Y], v[DOUT]);
    return status == WEFT_OK ? wefti_node_spread(args, &places, v[DY], v[DOUT])
                             : status;
}

static weft_status send_made(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_experts_combine(args->pass->experts,
                                 wefti_expert_turn_of(args), v[Y], v[OUT]);
}

static weft_status combine(const wefti_node_args *args)
{
    return post(args, send_made);
}

static weft_status send_made_slopes(const wefti_node_args *args)
{
    void *const *v = args->values;
    return wefti_experts_combine_gradient(args->pass->experts,
                                          wefti_expert_turn_of(args), v[DOUT],
                                          v[Y], v[DY], v[DWITH]);
}

static weft_status part(const wefti_node_args *args)
{
    return post(args, send_made_slopes);
}

void wefti_append_combine(wefti_builder *builder, const wefti_expert_values *v,
                          size_t operation, bool first)
{
    const bool here = wefti_experts_here(builder->plan);
    const unsigned ends = here ? 0 : WEFTI_I_READS; /* an AWAIT, in I */
    wefti_node node =
        {.label = first ? "combine" : "combined",
         .context = builder->plan,
         .of_part = wefti_builder_shares_rows(builder),
         .operands =
             {[Y] = {v->y, first ? WEFTI_F_READS
                                 : WEFTI_I_READS | (here ? 0 : WEFTI_F_READS)},
              [DY] = {v->d_y, first ? ends : WEFTI_I_WRITES | WEFTI_IN_PLACE},
              [OUT] = {v->combined, first  ? WEFTI_F_WRITES
                                    : here ? 0
                                           : WEFTI_F_READS},
              [DOUT] = {builder->d_residual, first ? ends : WEFTI_I_READS},
              [OF] = {v->place,
                      here ? first ? WEFTI_F_READS : WEFTI_I_READS : 0},
              [WITH] = {v->weight, here ? first ? WEFTI_F_READS : WEFTI_I_READS
                                        : 0},
              [DWITH] = {v->d_weight, first ? ends : WEFTI_I_WRITES}},
         .operand_count = 7};
    if (here) {
        node.calls[first ? WEFTI_CALL_FORWARD : WEFTI_CALL_INPUTS] =
            first ? combine_here : part_here;
    } else {
        node.kind = first ? WEFTI_NODE_POST : WEFTI_NODE_AWAIT;
        node.class_id = WEFT_CLASS_EP;
        node.operation = operation;
        node.calls[WEFTI_CALL_FORWARD] = first ? combine : await;
        node.calls[WEFTI_CALL_INPUTS] = first ? await : part;
    }
    wefti_program_add_node(builder->program, &node);
}

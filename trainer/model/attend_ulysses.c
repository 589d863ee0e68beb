/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/attend_ulysses.c - the ranks of a place exchange heads for
 * tokens: each attends with some of the heads, over all that the place has.
 *
 *   all heads, own tokens --cut--> all-to-all --join--> own heads, all tokens
 *                         <-join--            <--cut---
 *
 * Members of a place lie in the order of their tokens. Keys that have fewer
 * heads than a place has ranks go to several of them, whose gradients are
 * summed.
 *
 * Source: Jacobs et al. 2023 (Ulysses, arXiv 2309.14509).
 */
#include "trainer/model/attend.h"
#include "trainer/model/context_link.h"
#include "trainer/program/node_comm.h"
#include "trainer/program/node_math.h"
#include "weft/op.h"

enum { FROM, DFROM, TO, DTO, SENT, RECEIVED };

/* The parts of a row: so many heads, of queries and maybe of keys, values. */
typedef struct cut_row {
    size_t heads[3];
    size_t count, head_dim, members;
} cut_row;

static size_t width_of(const cut_row *of, size_t members)
{
    size_t heads = 0;
    for (size_t i = 0; i < of->count; i++) {
        const size_t own = of->heads[i] / members;
        heads += own > 0 ? own : 1;
    }
    return heads * of->head_dim;
}

/* Between rows of all heads and [members][rows][a member's heads]. */
static weft_status cut(const wefti_node_args *args, const cut_row *of,
                       void *rows, void *cuts, bool back)
{
    const size_t all = width_of(of, 1), own = width_of(of, of->members);
    weft_status status = WEFT_OK;
    for (size_t m = 0; m < of->members; m++) {
        void *its = wefti_node_skip(args, cuts, m * args->rows * own);
        void *part = rows;
        for (size_t i = 0; i < of->count && status == WEFT_OK; i++) {
            const size_t heads = of->heads[i], first = m * heads / of->members;
            const size_t count = heads > of->members ? heads / of->members : 1;
            const bool again = back && m * heads % of->members != 0;
            const wefti_node_matrix whole = {
                wefti_node_skip(args, part, first * of->head_dim), all};
            const wefti_node_matrix piece = {its, own};
            status = wefti_node_copy_rows(args, back ? &whole : &piece,
                                          back ? &piece : &whole, args->rows,
                                          count * of->head_dim, again);
            its = wefti_node_skip(args, its, count * of->head_dim);
            part = wefti_node_skip(args, part, heads * of->head_dim);
        }
    }
    return status;
}

/* Between [members][sequences][tokens] and [sequences][members][tokens]. */
static weft_status join(const wefti_node_args *args, const cut_row *of,
                        void *members, void *sequences, bool back)
{
    const size_t length = args->pass->batch->length;
    const size_t width = length * width_of(of, of->members);
    const size_t count = args->rows / length;
    weft_status status = WEFT_OK;
    for (size_t m = 0; m < of->members && status == WEFT_OK; m++) {
        const wefti_node_matrix its = {
            wefti_node_skip(args, members, m * count * width), width};
        const wefti_node_matrix all = {
            wefti_node_skip(args, sequences, m * width), of->members * width};
        status = wefti_node_copy_rows(args, back ? &its : &all,
                                      back ? &all : &its, count, width, false);
    }
    return status;
}

static weft_status exchange(const wefti_node_args *args, const cut_row *of,
                            const void *sent, void *received)
{
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLTOALL,
                        .send = sent,
                        .recv = received,
                        .count = args->rows * width_of(of, of->members),
                        .dtype = wefti_model_dtype(args->node->context),
                        .class_id = WEFT_CLASS_CP,
                        .label = args->node->label};
    if (!args->pass->links) {
        return wefti_node_copy(args, received, sent, of->members * op.count);
    }
    wefti_score *score = args->pass->links[WEFTI_LINK_CONTEXT].score;
    weft_status status = WEFT_OK;
    wefti_score_begin(score);
    wefti_score_inline(score, WEFT_CLASS_CP, args->node->label, args->node, 0);
    /* compute alone: no copy in its place */
    if (wefti_node_exchanges(args->pass, WEFTI_LINK_CONTEXT)) {
        wefti_node_stop(args->pass, WEFTI_LINK_CONTEXT);
        status = weft_op_post(&op, 0, args->pass->link->ulysses,
                              args->pass->compute);
        wefti_node_resume(args->pass, WEFTI_LINK_CONTEXT);
    }
    wefti_score_end(score);
    return status;
}

/* Own tokens of all heads, rows, become all tokens of own heads, place. */
static weft_status spread(const wefti_node_args *args, const cut_row *of,
                          void *rows, void *place)
{
    void *sent = args->values[SENT], *received = args->values[RECEIVED];
    const bool joins = args->rows > args->pass->batch->length;
    if (args->pass->idle) {
        return exchange(args, of, sent, received);
    }
    weft_status status = cut(args, of, rows, sent, false);
    if (status == WEFT_OK) {
        status = exchange(args, of, sent, joins ? received : place);
    }
    return status == WEFT_OK && joins ? join(args, of, received, place, false)
                                      : status;
}

static weft_status collect(const wefti_node_args *args, const cut_row *of,
                           void *place, void *rows)
{
    void *sent = args->values[SENT], *received = args->values[RECEIVED];
    const bool joins = args->rows > args->pass->batch->length;
    if (args->pass->idle) {
        return exchange(args, of, sent, received);
    }
    weft_status status = joins ? join(args, of, sent, place, true) : WEFT_OK;
    if (status == WEFT_OK) {
        status = exchange(args, of, joins ? sent : place, received);
    }
    return status == WEFT_OK ? cut(args, of, rows, received, true) : status;
}

/* ---- the nodes ------------------------------------------------------------
 */

static cut_row row_of(const wefti_model_shape *shape, bool keys)
{
    const wefti_node_heads all = wefti_attend_all_heads(shape);
    return (cut_row){.heads = {all.heads, all.kv_heads, all.kv_heads},
                     .count = keys ? 3 : 1,
                     .head_dim = all.head_dim,
                     .members = wefti_context_ulysses(&shape->context)};
}

static weft_status heads_forward(const wefti_node_args *args)
{
    const cut_row of = row_of(args->node->context, true);
    return spread(args, &of, args->values[FROM], args->values[TO]);
}

static weft_status heads_inputs(const wefti_node_args *args)
{
    const cut_row of = row_of(args->node->context, true);
    return collect(args, &of, args->values[DTO], args->values[DFROM]);
}

static weft_status tokens_forward(const wefti_node_args *args)
{
    const cut_row of = row_of(args->node->context, false);
    return collect(args, &of, args->values[FROM], args->values[TO]);
}

static weft_status tokens_inputs(const wefti_node_args *args)
{
    const cut_row of = row_of(args->node->context, false);
    return spread(args, &of, args->values[DTO], args->values[DFROM]);
}

/* A node, from one value to another, and their gradients; of what rows, and
 * what its two buffers are called. */
static void append(wefti_builder *builder, const wefti_node *node, bool keys,
                   const char *const names[2], const size_t values[4])
{
    wefti_program *program = builder->program;
    const wefti_model_shape *shape = builder->shape;
    const cut_row of = row_of(shape, keys);
    const size_t width = of.members * width_of(&of, of.members);
    wefti_node own = *node;
    own.kind = WEFTI_NODE_EXCHANGE;
    own.class_id = WEFT_CLASS_CP;
    own.context = shape;
    own.operands[FROM] = (wefti_operand){values[FROM], WEFTI_F_READS};
    own.operands[DFROM] = (wefti_operand){values[DFROM], WEFTI_I_WRITES};
    own.operands[TO] = (wefti_operand){values[TO], WEFTI_F_WRITES};
    own.operands[DTO] = (wefti_operand){values[DTO], WEFTI_I_READS};
    own.operands[SENT] =
        (wefti_operand){wefti_program_add_value(program, names[0], width, true),
                        WEFTI_F_WRITES | WEFTI_I_WRITES};
    own.operands[RECEIVED] =
        (wefti_operand){wefti_program_add_value(program, names[1], width, true),
                        WEFTI_F_WRITES | WEFTI_I_WRITES};
    own.operand_count = RECEIVED + 1;
    wefti_program_add_node(program, &own);
}

void wefti_append_heads(wefti_builder *builder, const wefti_attend_values *from,
                        const wefti_attend_values *to)
{
    append(
        builder,
        &(wefti_node){.label = "heads", .calls = {heads_forward, heads_inputs}},
        true, (const char *const[2]){"heads.sent", "heads.received"},
        (size_t[4]){[FROM] = from->qkv,
                    [DFROM] = from->dqkv,
                    [TO] = to->qkv,
                    [DTO] = to->dqkv});
}

void wefti_append_tokens(wefti_builder *builder,
                         const wefti_attend_values *from,
                         const wefti_attend_values *to)
{
    append(builder,
           &(wefti_node){.label = "tokens",
                         .calls = {tokens_forward, tokens_inputs}},
           false, (const char *[2]){"tokens.sent", "tokens.received"},
           (size_t[4]){[FROM] = from->out,
                       [DFROM] = from->dout,
                       [TO] = to->out,
                       [DTO] = to->dout});
}

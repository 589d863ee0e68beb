/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_order.c - a program's nodes as the steps of each
 * pass.
 */
#include "trainer/program/program_order.h"

#include "base/error.h"

#include <stdlib.h>

/* Whether W of a node that runs again has nothing to do in B: I has done it. */
static bool is_done_in_b(const wefti_node *node)
{
    return node->again && node->calls[WEFTI_CALL_INPUTS];
}

/* Whether node goes on with the step. */
static bool joins(const wefti_program *program, const wefti_program_step *step,
                  const wefti_node *node)
{
    return step->by_rows && node->by_rows && node->of_part == step->of_part &&
           node->by_parts == step->by_parts && node->block == step->block &&
           node->again == step->again &&
           is_done_in_b(node) == is_done_in_b(&program->nodes[step->first]);
}

static bool posts(const wefti_node *node, wefti_call call)
{
    return wefti_node_kind_in(node, call) == WEFTI_NODE_POST;
}

static void add(wefti_program *program, wefti_call call, size_t index)
{
    wefti_order *order = &program->orders[call];
    const wefti_node *node = &program->nodes[index];
    if (!node->calls[call]) {
        return;
    }
    wefti_program_step *last =
        order->count ? &order->steps[order->count - 1] : NULL;
    if (last && joins(program, last, node)) {
        last->first = index < last->first ? index : last->first;
        last->end = index >= last->end ? index + 1 : last->end;
        last->posts = last->posts || posts(node, call);
        return;
    }
    order->steps[order->count++] = (wefti_program_step){
        .call = call,
        .first = index,
        .end = index + 1,
        .by_rows = node->by_rows && (node->again || call != WEFTI_CALL_WEIGHTS),
        .of_part = node->of_part,
        .by_parts =
            node->by_parts && (node->again || call != WEFTI_CALL_WEIGHTS),
        .posts = posts(node, call),
        .again = node->again,
        .block = node->block};
}

/* Steps of both halves, by blocks from the last to the first. */
static void merge(wefti_program *program)
{
    const wefti_order *inputs = &program->orders[WEFTI_CALL_INPUTS];
    const wefti_order *weights = &program->orders[WEFTI_CALL_WEIGHTS];
    wefti_order *both = &program->orders[WEFTI_ORDER_BACKWARD];
    size_t i = 0, w = 0;
    for (size_t block = program->block_count; block-- > 0;) {
        while (i < inputs->count && inputs->steps[i].block == block) {
            both->steps[both->count++] = inputs->steps[i++];
        }
        while (w < weights->count && weights->steps[w].block == block) {
            both->steps[both->count++] = weights->steps[w++];
        }
    }
}

weft_status wefti_program_order(wefti_program *program)
{
    for (size_t i = 0; i < WEFTI_ORDERS; i++) {
        size_t most = 2 * program->node_count + 1;
        program->orders[i] =
            (wefti_order){calloc(most, sizeof(wefti_program_step)), 0};
        if (!program->orders[i].steps) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "no memory for a program of %zu steps", most);
        }
    }
    for (size_t i = 0; i < program->node_count; i++) {
        add(program, WEFTI_CALL_FORWARD, i);
    }
    for (size_t i = program->node_count; i > 0; i--) {
        add(program, WEFTI_CALL_INPUTS, i - 1);
        add(program, WEFTI_CALL_WEIGHTS, i - 1);
    }
    merge(program);
    return WEFT_OK;
}

void wefti_program_order_trim(wefti_program *program)
{
    wefti_order *both = &program->orders[WEFTI_ORDER_BACKWARD];
    for (size_t i = 0; i < both->count; i++) {
        wefti_program_step *step = &both->steps[i];
        if (step->call == WEFTI_CALL_WEIGHTS && step->again &&
            is_done_in_b(&program->nodes[step->first])) {
            step->end = step->first;
        }
    }
}

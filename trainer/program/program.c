/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program.c - lists that blocks append to.
 */
#include "trainer/program/program.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>

enum { ROOM_AT_FIRST = 16 };

wefti_node_kind wefti_node_kind_in(const wefti_node *node, wefti_call call)
{
    if (call == WEFTI_CALL_FORWARD || node->again ||
        node->kind == WEFTI_NODE_COMPUTE || node->kind == WEFTI_NODE_EXCHANGE) {
        return node->kind;
    }
    return node->kind == WEFTI_NODE_POST ? WEFTI_NODE_AWAIT : WEFTI_NODE_POST;
}

bool wefti_node_posts(const wefti_node *node, wefti_call call,
                      weft_class class_id)
{
    const wefti_node_kind kind = wefti_node_kind_in(node, call);
    return node->calls[call] && node->class_id == class_id &&
           (kind == WEFTI_NODE_POST || kind == WEFTI_NODE_EXCHANGE);
}

/* Room for one more of a list that doubles: items, or where they moved to. */
static void *make_room(wefti_program *program, void *items, size_t count,
                       size_t item_bytes)
{
    bool full = count == 0 || (count >= ROOM_AT_FIRST &&
                               (count & (count - 1)) == 0); /* a power of 2 */
    if (!full || program->status != WEFT_OK) {
        return items;
    }
    size_t room = count < ROOM_AT_FIRST ? ROOM_AT_FIRST : 2 * count;
    void *moved = realloc(items, room * item_bytes);
    if (!moved) {
        program->status = wefti_error(WEFT_ERR_NO_MEMORY,
                                      "no memory for a program of %zu", room);
        return items;
    }
    return moved;
}

void wefti_program_begin_block(wefti_program *program, const char *name,
                               size_t layer)
{
    program->blocks = make_room(program, program->blocks, program->block_count,
                                sizeof(*program->blocks));
    if (program->status == WEFT_OK) {
        program->blocks[program->block_count++] =
            (wefti_block_mark){.name = name, .layer = layer};
    }
}

void wefti_program_go_on(wefti_program *program)
{
    if (program->status == WEFT_OK) {
        program->blocks[program->block_count - 1].goes_on = true;
    }
}

void wefti_program_go_within(wefti_program *program)
{
    if (program->status == WEFT_OK) {
        program->blocks[program->block_count - 1].within = true;
    }
}

static size_t add_value(wefti_program *program, const wefti_value *value)
{
    program->values = make_room(program, program->values, program->value_count,
                                sizeof(*program->values));
    if (program->status != WEFT_OK) {
        return 0;
    }
    program->values[program->value_count] = *value;
    program->values[program->value_count].block = program->block_count - 1;
    return program->value_count++;
}

size_t wefti_program_add_value(wefti_program *program, const char *name,
                               size_t width, bool by_row)
{
    return add_value(program, &(wefti_value){.name = name,
                                             .width = width,
                                             .by_row = by_row,
                                             .rows = 1});
}

size_t wefti_program_add_wide(wefti_program *program, const char *name,
                              size_t width, bool by_row)
{
    return add_value(program, &(wefti_value){.name = name,
                                             .width = width,
                                             .by_row = by_row,
                                             .rows = 1,
                                             .wide = true});
}

size_t wefti_program_add_partials(wefti_program *program, const char *name,
                                  size_t width, size_t rows)
{
    return add_value(program, &(wefti_value){.name = name,
                                             .width = width,
                                             .by_row = true,
                                             .rows = rows,
                                             .wide = true});
}

size_t wefti_program_cut_value(wefti_program *program, size_t value)
{
    if (program->status == WEFT_OK) {
        program->values[value].of_part = program->parts > 1;
    }
    return value;
}

size_t wefti_program_part_rows(const wefti_program *program, size_t rows)
{
    size_t parts = program->parts > 0 ? program->parts : 1;
    return (rows + parts - 1) / parts;
}

size_t wefti_program_own_rows(const wefti_program *program, size_t rows)
{
    size_t most = wefti_program_part_rows(program, rows);
    size_t before = program->part * most;
    size_t left = rows > before ? rows - before : 0;
    return left < most ? left : most;
}

void wefti_program_set_outside(wefti_program *program, size_t value)
{
    if (program->status == WEFT_OK) {
        program->values[value].outside = true;
    }
}

void wefti_program_add_node(wefti_program *program, const wefti_node *node)
{
    WEFTI_ASSERT(node->operand_count <= WEFTI_NODE_OPERANDS);
    WEFTI_ASSERT(node->parameter_count <= WEFTI_NODE_PARAMETERS);
    program->nodes = make_room(program, program->nodes, program->node_count,
                               sizeof(*program->nodes));
    if (program->status == WEFT_OK) {
        wefti_node *own = &program->nodes[program->node_count++];
        *own = *node;
        own->block = own->origin = program->block_count - 1;
    }
}

size_t wefti_program_add_operation(wefti_program *program)
{
    return ++program->operation_count;
}

const wefti_node *wefti_program_step_node(const wefti_program *program,
                                          const wefti_program_step *step,
                                          size_t i)
{
    return &program
                ->nodes[step->call == WEFTI_CALL_FORWARD ? step->first + i
                                                         : step->end - 1 - i];
}

void wefti_program_fini(wefti_program *program)
{
    for (size_t i = 0; i < WEFTI_ORDERS; i++) {
        free(program->orders[i].steps);
    }
    free(program->values);
    free(program->nodes);
    free(program->blocks);
    *program = (wefti_program){0};
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/recompute.c - what is dropped, and the copies of nodes that
 * make it again.
 */
#include "trainer/program/recompute.h"

#include "base/error.h"

#include <stdlib.h>

/* Of a value. */
typedef struct value_state {
    size_t first, end;  /* nodes that use it */
    size_t last_writer; /* in F */
    bool changes;       /* is written after F too */
    bool written, dropped;
    bool needed[WEFTI_CALLS]; /* of what is dropped, by I and by W */
    bool copied;
    size_t copy; /* its number */
} value_state;

typedef struct node_state {
    bool may_run;
    bool runs[WEFTI_CALLS];
} node_state;

typedef struct rebuild {
    wefti_program *program;
    size_t first, end; /* nodes of the unit: a block, or a layer's blocks */
    value_state *values;
    node_state *nodes;
    size_t *operations; /* [operation]: of the copies; 0: none yet */
    wefti_node *fresh;
    size_t count;
} rebuild;

/* ---- what is dropped ------------------------------------------------------
 */

static void note_use(rebuild *own, size_t number, size_t operand)
{
    const wefti_program *program = own->program;
    const wefti_node *node = &program->nodes[number];
    const size_t value = node->operands[operand].value;
    value_state *state = &own->values[value];
    state->first = state->end > 0 ? state->first : number;
    state->end = number + 1;
    if (node->calls[WEFTI_CALL_FORWARD] &&
        wefti_node_writes(node, operand, WEFTI_CALL_FORWARD)) {
        state->written = true;
        state->last_writer = number;
    }
    for (size_t call = WEFTI_CALL_INPUTS; call < WEFTI_CALLS; call++) {
        state->changes = state->changes || program->values[value].outside ||
                         (node->calls[call] &&
                          wefti_node_writes(node, operand, (wefti_call)call));
    }
}

static bool is_named(const wefti_program *program, const wefti_node *node)
{
    static const wefti_recompute from[] = {
        [WEFTI_EFFORT_MOST] = WEFTI_RECOMPUTE_FULL,
        [WEFTI_EFFORT_NORM] = WEFTI_RECOMPUTE_NORMS,
        [WEFTI_EFFORT_ELEMENTS] = WEFTI_RECOMPUTE_SELECTIVE,
        [WEFTI_EFFORT_ATTENTION] = WEFTI_RECOMPUTE_SELECTIVE};
    bool is_edge = node->kind != WEFTI_NODE_COMPUTE && node->operation == 0;
    return node->calls[WEFTI_CALL_FORWARD] && !is_edge &&
           program->recompute >= from[node->effort];
}

/* Whether nodes of the unit alone use a value, and what has written it may run
 * again. */
static bool may_be_dropped(const rebuild *own, size_t value)
{
    const value_state *state = &own->values[value];
    if (!state->written || state->changes || state->first < own->first ||
        state->end > own->end) {
        return false;
    }
    for (size_t i = own->first; i < own->end; i++) {
        const wefti_node *node = &own->program->nodes[i];
        for (size_t k = 0; k < node->operand_count; k++) {
            if (node->operands[k].value == value && !own->nodes[i].may_run &&
                node->calls[WEFTI_CALL_FORWARD] &&
                wefti_node_writes(node, k, WEFTI_CALL_FORWARD)) {
                return false;
            }
        }
    }
    return true;
}

/* Whether what a node reads is there when it runs again. */
static bool finds_all(const rebuild *own, size_t number)
{
    const wefti_node *node = &own->program->nodes[number];
    for (size_t k = 0; k < node->operand_count; k++) {
        const value_state *state = &own->values[node->operands[k].value];
        bool changed =
            state->changes || (state->written && state->last_writer >= number);
        if (wefti_node_reads(node, k, WEFTI_CALL_FORWARD) && !state->dropped &&
            changed) {
            return false;
        }
    }
    return true;
}

/* Elements of a row that a node reads of what is kept; that it writes. */
static size_t count_elems(const rebuild *own, size_t number, bool writes)
{
    const wefti_node *node = &own->program->nodes[number];
    size_t sum = 0;
    for (size_t k = 0; k < node->operand_count; k++) {
        const size_t value = node->operands[k].value;
        if (writes ? wefti_node_writes(node, k, WEFTI_CALL_FORWARD)
                   : wefti_node_reads(node, k, WEFTI_CALL_FORWARD) &&
                         !own->values[value].dropped) {
            sum += own->program->values[value].width;
        }
    }
    return sum;
}

/* Where W comes long after I, what it begins with has to stay until then: it
 * must not be more than what is made of it. */
static bool is_worth_it(const rebuild *own, size_t number)
{
    return own->program->together ||
           count_elems(own, number, false) <= count_elems(own, number, true);
}

static void drop_values(rebuild *own)
{
    for (size_t i = own->first; i < own->end; i++) {
        const wefti_node *node = &own->program->nodes[i];
        for (size_t k = 0; k < node->operand_count; k++) {
            const size_t value = node->operands[k].value;
            own->values[value].dropped = may_be_dropped(own, value);
        }
    }
}

/* What one node cannot make again is kept, and so on. */
static void find_dropped(rebuild *own)
{
    bool changed = true;
    for (size_t i = own->first; i < own->end; i++) {
        own->nodes[i].may_run = is_named(own->program, &own->program->nodes[i]);
    }
    while (changed) {
        changed = false;
        drop_values(own);
        for (size_t i = own->first; i < own->end; i++) {
            if (own->nodes[i].may_run &&
                !(finds_all(own, i) && is_worth_it(own, i))) {
                own->nodes[i].may_run = false;
                changed = true;
            }
        }
    }
}

/* ---- who makes it again ---------------------------------------------------
 */

/* Whether a node makes what a call needs, or is a half of what does. */
static bool is_needed(const rebuild *own, size_t number, wefti_call call)
{
    const wefti_program *program = own->program;
    const wefti_node *node = &program->nodes[number];
    for (size_t k = 0; k < node->operand_count; k++) {
        if (wefti_node_writes(node, k, WEFTI_CALL_FORWARD) &&
            own->values[node->operands[k].value].needed[call]) {
            return true;
        }
    }
    for (size_t i = own->first; node->operation && i < own->end; i++) {
        if (program->nodes[i].operation == node->operation &&
            own->nodes[i].runs[call]) {
            return true;
        }
    }
    return false;
}

static void need_operands(rebuild *own, const wefti_node *node,
                          wefti_call reads, wefti_call call)
{
    for (size_t k = 0; node->calls[reads] && k < node->operand_count; k++) {
        value_state *value = &own->values[node->operands[k].value];
        if (wefti_node_reads(node, k, reads) && value->dropped) {
            value->needed[call] = true;
        }
    }
}

static void find_runs(rebuild *own, wefti_call call)
{
    const wefti_program *program = own->program;
    bool changed = true;
    for (size_t i = own->first; i < own->end; i++) {
        need_operands(own, &program->nodes[i], call, call);
    }
    while (changed) {
        changed = false;
        for (size_t i = own->end; i-- > own->first;) {
            node_state *node = &own->nodes[i];
            if (node->may_run && !node->runs[call] && is_needed(own, i, call)) {
                node->runs[call] = changed = true;
                need_operands(own, &program->nodes[i], WEFTI_CALL_FORWARD,
                              call);
            }
        }
    }
}

/* ---- their copies ---------------------------------------------------------
 */

static size_t copy_value(rebuild *own, size_t number)
{
    wefti_program *program = own->program;
    value_state *state = &own->values[number];
    if (!state->copied) {
        wefti_value value = program->values[number];
        value.again = true;
        state->copy = wefti_program_add_value(program, value.name, value.width,
                                              value.by_row);
        state->copied = true;
        if (program->status == WEFT_OK) {
            program->values[state->copy] = value;
        }
    }
    return state->copy;
}

/* As F uses an operand, in the calls that the copy has. */
static unsigned use_again(const wefti_node *copy, unsigned use)
{
    const unsigned forward = use & (WEFTI_F_READS | WEFTI_F_WRITES);
    return (copy->calls[WEFTI_CALL_INPUTS] ? forward * WEFTI_I_READS : 0) |
           (copy->calls[WEFTI_CALL_WEIGHTS] ? forward * WEFTI_W_READS : 0);
}

static void copy_operands(rebuild *own, wefti_node *copy)
{
    for (size_t k = 0; k < copy->operand_count; k++) {
        wefti_operand *operand = &copy->operands[k];
        const value_state *state = &own->values[operand->value];
        bool made = operand->use & WEFTI_F_WRITES ||
                    (operand->use & WEFTI_F_READS && state->dropped);
        operand->use = use_again(copy, operand->use);
        operand->value =
            made ? copy_value(own, operand->value) : operand->value;
    }
}

/* Behind the unit, in its last block. */
static void copy_node(rebuild *own, size_t number)
{
    wefti_program *program = own->program;
    const wefti_node *node = &program->nodes[number];
    const bool *runs = own->nodes[number].runs;
    wefti_node copy = *node;
    copy.again = true;
    copy.block = program->nodes[own->end - 1].block;
    copy.calls[WEFTI_CALL_FORWARD] = NULL;
    copy.calls[WEFTI_CALL_INPUTS] =
        runs[WEFTI_CALL_INPUTS] ? node->calls[WEFTI_CALL_FORWARD] : NULL;
    copy.calls[WEFTI_CALL_WEIGHTS] =
        runs[WEFTI_CALL_WEIGHTS] &&
                !(program->together && runs[WEFTI_CALL_INPUTS])
            ? node->calls[WEFTI_CALL_FORWARD]
            : NULL;
    if (copy.operation && !own->operations[copy.operation]) {
        own->operations[copy.operation] = wefti_program_add_operation(program);
    }
    copy.operation = copy.operation ? own->operations[copy.operation] : 0;
    for (size_t k = 0; k < copy.parameter_count; k++) {
        copy.parameters[k].shared = true; /* the node reports it */
    }
    copy_operands(own, &copy);
    own->fresh[own->count++] = copy;
}

/* I and W of a node that uses what is dropped, on the copies. */
static wefti_node read_copies(rebuild *own, const wefti_node *node)
{
    wefti_node back = *node;
    back.calls[WEFTI_CALL_FORWARD] = NULL;
    for (size_t k = 0; k < back.operand_count; k++) {
        wefti_operand *operand = &back.operands[k];
        operand->use &= ~(unsigned)(WEFTI_F_READS | WEFTI_F_WRITES);
        if (own->values[operand->value].copied) {
            operand->value = copy_value(own, operand->value);
        }
    }
    return back;
}

static bool uses_copies(const rebuild *own, const wefti_node *node)
{
    for (size_t k = 0; k < node->operand_count; k++) {
        if (own->values[node->operands[k].value].copied) {
            return true;
        }
    }
    return false;
}

static void append_node(rebuild *own, size_t number)
{
    wefti_node *node = &own->fresh[own->count++];
    *node = own->program->nodes[number];
    if (uses_copies(own, node)) {
        own->fresh[own->count] = read_copies(own, node);
        for (size_t call = WEFTI_CALL_INPUTS; call < WEFTI_CALLS; call++) {
            node->calls[call] = NULL;
        }
        own->count++;
    }
}

static bool runs_again(const rebuild *own, size_t number)
{
    const bool *runs = own->nodes[number].runs;
    return runs[WEFTI_CALL_INPUTS] || runs[WEFTI_CALL_WEIGHTS];
}

/* The backward takes nodes from the last to the first: so do the copies stand,
 * behind all others. */
static void rebuild_unit(rebuild *own)
{
    find_dropped(own);
    find_runs(own, WEFTI_CALL_INPUTS);
    find_runs(own, WEFTI_CALL_WEIGHTS);
    for (size_t i = own->first; i < own->end; i++) {
        for (size_t k = 0;
             runs_again(own, i) && k < own->program->nodes[i].operand_count;
             k++) {
            const wefti_operand *operand = &own->program->nodes[i].operands[k];
            if (own->values[operand->value].dropped &&
                operand->use & WEFTI_F_WRITES) {
                (void)copy_value(own, operand->value);
            }
        }
    }
    for (size_t i = own->first; i < own->end; i++) {
        append_node(own, i);
    }
    for (size_t i = own->end; i-- > own->first;) {
        if (runs_again(own, i)) {
            copy_node(own, i);
        }
    }
}

/* Where the unit ends that begins with a node. */
static size_t find_end(const wefti_program *program, size_t first)
{
    size_t end = first;
    size_t block = program->nodes[first].block;
    for (; end < program->node_count; end++) {
        const size_t next = program->nodes[end].block;
        const wefti_block_mark *mark = &program->blocks[next];
        const bool goes_on =
            mark->within ||
            (program->recompute == WEFTI_RECOMPUTE_FULL && mark->goes_on);
        if (next != block && !goes_on) {
            break;
        }
        block = next;
    }
    return end;
}

static void rebuild_all(rebuild *own)
{
    wefti_program *program = own->program;
    for (size_t i = 0; i < program->node_count; i++) {
        for (size_t k = 0; k < program->nodes[i].operand_count; k++) {
            note_use(own, i, k);
        }
    }
    while (own->end < program->node_count) {
        own->first = own->end;
        own->end = find_end(program, own->first);
        rebuild_unit(own);
    }
}

weft_status wefti_program_recompute(wefti_program *program)
{
    if (program->status != WEFT_OK ||
        program->recompute == WEFTI_RECOMPUTE_NONE) {
        return program->status;
    }
    /* A node, its backward apart, and its copy. */
    rebuild own = {
        .program = program,
        .values = calloc(program->value_count + 1, sizeof(*own.values)),
        .nodes = calloc(program->node_count + 1, sizeof(*own.nodes)),
        .operations =
            calloc(program->operation_count + 1, sizeof(*own.operations)),
        .fresh = calloc(3 * program->node_count + 1, sizeof(*own.fresh))};
    if (own.values && own.nodes && own.operations && own.fresh) {
        rebuild_all(&own);
        free(program->nodes);
        program->nodes = own.fresh;
        program->node_count = own.count;
    } else {
        program->status = wefti_error(WEFT_ERR_NO_MEMORY,
                                      "no memory for a program of %zu nodes",
                                      3 * program->node_count);
        free(own.fresh);
    }
    free(own.values);
    free(own.nodes);
    free(own.operations);
    return program->status;
}

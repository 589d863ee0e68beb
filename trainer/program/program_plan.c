/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_plan.c - lives, and the regions laid out by them.
 */
#include "trainer/program/program_plan.h"

#include "base/error.h"
#include "trainer/program/program_order.h"
#include "trainer/program/recompute.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 }; /* a cache line */

/* A free place between those taken. */
typedef struct gap {
    size_t start, elems;
} gap;

/* One region while it is laid out. */
typedef struct place_list {
    gap *gaps; /* by start; apart */
    size_t count;
    size_t end; /* of all that was ever taken */
} place_list;

typedef struct sweep {
    wefti_program *program;
    place_list arenas[WEFTI_REGIONS];
    size_t step;   /* counted through F, I and W, or of B */
    bool backward; /* of B: values of that region; else all others */
} sweep;

static bool is_swept(const sweep *own, const wefti_value *value)
{
    return (value->region == WEFTI_REGION_BACKWARD) == own->backward;
}

/* ---- places ---------------------------------------------------------------
 */

static void remove_gap(place_list *list, size_t i)
{
    list->count--;
    memmove(list->gaps + i, list->gaps + i + 1,
            (list->count - i) * sizeof(*list->gaps));
}

/* The smallest gap that fits; else at the end. */
static size_t take(place_list *list, size_t elems)
{
    size_t best = list->count;
    for (size_t i = 0; i < list->count; i++) {
        if (list->gaps[i].elems >= elems &&
            (best == list->count ||
             list->gaps[i].elems < list->gaps[best].elems)) {
            best = i;
        }
    }
    const gap *last = list->count ? &list->gaps[list->count - 1] : NULL;
    if (best == list->count && last && last->start + last->elems == list->end) {
        size_t start = last->start;
        list->count--;
        list->end = start + elems;
        return start;
    }
    if (best == list->count) {
        list->end += elems;
        return list->end - elems;
    }
    size_t start = list->gaps[best].start;
    list->gaps[best].start += elems;
    list->gaps[best].elems -= elems;
    if (list->gaps[best].elems == 0) {
        remove_gap(list, best);
    }
    return start;
}

static void give_back(place_list *list, size_t start, size_t elems)
{
    size_t i = 0;
    while (i < list->count && list->gaps[i].start < start) {
        i++;
    }
    memmove(list->gaps + i + 1, list->gaps + i,
            (list->count - i) * sizeof(*list->gaps));
    list->gaps[i] = (gap){start, elems};
    list->count++;
    if (i + 1 < list->count && start + elems == list->gaps[i + 1].start) {
        list->gaps[i].elems += list->gaps[i + 1].elems;
        remove_gap(list, i + 1);
    }
    if (i > 0 && list->gaps[i - 1].start + list->gaps[i - 1].elems == start) {
        list->gaps[i - 1].elems += list->gaps[i].elems;
        remove_gap(list, i);
    }
}

/* ---- lives ----------------------------------------------------------------
 */

typedef void visit_fn(sweep *own, const wefti_program_step *step,
                      const wefti_node *node, size_t operand);

static void visit_step(sweep *own, const wefti_program_step *step,
                       visit_fn *visit)
{
    for (size_t i = step->first; i < step->end; i++) {
        const wefti_node *node = &own->program->nodes[i];
        for (size_t k = 0; node->calls[step->call] && k < node->operand_count;
             k++) {
            const wefti_value *value =
                &own->program->values[node->operands[k].value];
            if (is_swept(own, value) &&
                (wefti_node_reads(node, k, step->call) ||
                 wefti_node_writes(node, k, step->call))) {
                visit(own, step, node, k);
            }
        }
    }
}

static void extend_life(sweep *own, const wefti_program_step *step,
                        const wefti_node *node, size_t operand)
{
    wefti_value *value = &own->program->values[node->operands[operand].value];
    (void)step;
    if (!value->used) {
        value->used = true;
        value->life.first = own->step;
    }
    value->life.last = own->step;
}

/* In which pass a step is. */
static wefti_call call_of(const wefti_program *program, size_t step)
{
    size_t call = WEFTI_CALL_FORWARD;
    while (step >= program->orders[call].count) {
        step -= program->orders[call++].count;
    }
    return (wefti_call)call;
}

/* The step-th of F, I and W. */
static const wefti_program_step *step_of(const wefti_program *program,
                                         size_t step)
{
    size_t call = call_of(program, step);
    for (size_t i = 0; i < call; i++) {
        step -= program->orders[i].count;
    }
    return &program->orders[call].steps[step];
}

/* Whether a step may be left before its end, at an AWAIT among its rows. */
static bool may_be_left(const wefti_program *program,
                        const wefti_program_step *step)
{
    for (size_t i = step->first; step->by_rows && i < step->end; i++) {
        const wefti_node *node = &program->nodes[i];
        if (node->operation > 0 && node->calls[step->call] &&
            wefti_node_kind_in(node, step->call) == WEFTI_NODE_AWAIT) {
            return true;
        }
    }
    return false;
}

/* Whether a value is needed within B of a block, and no longer. */
static bool is_of_backward(const wefti_program *program,
                           const wefti_value *value)
{
    return value->again ||
           (program->recompute != WEFTI_RECOMPUTE_NONE && program->together &&
            call_of(program, value->life.first) == WEFTI_CALL_INPUTS &&
            call_of(program, value->life.last) == WEFTI_CALL_WEIGHTS);
}

/* Within a step, within a pass, or longer. */
static wefti_region find_region(const wefti_program *program,
                                const wefti_value *value)
{
    static const wefti_region of_pass[] = {
        WEFTI_REGION_FORWARD, WEFTI_REGION_INPUTS, WEFTI_REGION_WEIGHTS};
    const wefti_life *life = &value->life;
    wefti_call first = call_of(program, life->first);
    if (is_of_backward(program, value)) {
        return WEFTI_REGION_BACKWARD;
    }
    if (life->first == life->last) {
        return may_be_left(program, step_of(program, life->first))
                   ? of_pass[first]
                   : WEFTI_REGION_SCRATCH;
    }
    return first == call_of(program, life->last) ? of_pass[first]
                                                 : WEFTI_REGION_SLOT;
}

/* ---- the sweep ------------------------------------------------------------
 */

/* Whether another node of the step uses a value. */
static bool is_used_beside(const wefti_program *program,
                           const wefti_program_step *step,
                           const wefti_node *node, size_t value)
{
    for (size_t i = step->first; i < step->end; i++) {
        const wefti_node *other = &program->nodes[i];
        for (size_t k = 0; other != node && k < other->operand_count; k++) {
            if (other->operands[k].value == value) {
                return true;
            }
        }
    }
    return false;
}

/* Whether value is written where the operand before it ends, row for row. */
static bool takes_over(const sweep *own, const wefti_program_step *step,
                       const wefti_node *node, size_t operand,
                       const wefti_value *value)
{
    if (!(node->operands[operand].use & WEFTI_IN_PLACE)) {
        return false;
    }
    size_t number = node->operands[operand - 1].value;
    const wefti_value *before = &own->program->values[number];
    return before->life.first < own->step && before->life.last == own->step &&
           before->region == value->region && before->width == value->width &&
           before->by_row == value->by_row && before->wide == value->wide &&
           before->of_part == value->of_part && !before->is_taken_over &&
           !is_used_beside(own->program, step, node, number);
}

/* All parts together have room for as many rows each as the first. */
static size_t count_rows(const wefti_program *program, const wefti_value *value)
{
    const size_t parts = program->parts > 0 ? program->parts : 1;
    const size_t rows = wefti_program_part_rows(program, program->rows_most);
    return value->of_part ? rows : rows * parts;
}

static void place(sweep *own, const wefti_program_step *step,
                  const wefti_node *node, size_t operand)
{
    const size_t align = ALIGN_BYTES / sizeof(real);
    wefti_program *program = own->program;
    wefti_value *value = &program->values[node->operands[operand].value];
    if (value->life.first != own->step || value->elems) {
        return;
    }
    value->of_chunk = step->by_rows && value->life.first == value->life.last;
    const size_t most = count_rows(program, value);
    const size_t chunk = wefti_program_chunk_rows(program);
    size_t rows = !value->by_row                    ? 1
                  : value->of_chunk && most > chunk ? chunk
                                                    : most;
    rows = (rows - 1) / value->rows + 1;
    const size_t bytes =
        rows * value->width *
        weft_dtype_bytes(wefti_value_dtype(program->narrow, value->wide));
    value->elems = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * align;
    if (takes_over(own, step, node, operand, value)) {
        wefti_value *before =
            &program->values[node->operands[operand - 1].value];
        value->start_elems = before->start_elems;
        before->is_taken_over = true;
    } else {
        value->start_elems = take(&own->arenas[value->region], value->elems);
    }
}

static void release(sweep *own, const wefti_program_step *step,
                    const wefti_node *node, size_t operand)
{
    wefti_value *value = &own->program->values[node->operands[operand].value];
    (void)step;
    if (value->life.last == own->step && !value->is_taken_over &&
        !value->is_released && !own->program->keeps) {
        value->is_released = true;
        give_back(&own->arenas[value->region], value->start_elems,
                  value->elems);
    }
}

static void visit_order(sweep *own, size_t number, visit_fn *visit,
                        visit_fn *leave)
{
    const wefti_order *order = &own->program->orders[number];
    for (size_t i = 0; i < order->count; i++, own->step++) {
        visit_step(own, &order->steps[i], visit);
        if (leave) {
            visit_step(own, &order->steps[i], leave);
        }
    }
}

static void visit_all(sweep *own, visit_fn *visit, visit_fn *leave)
{
    own->step = 0;
    own->backward = false;
    for (size_t call = 0; call < WEFTI_CALLS; call++) {
        visit_order(own, call, visit, leave);
    }
}

static void visit_backward(sweep *own, visit_fn *visit, visit_fn *leave)
{
    own->step = 0;
    own->backward = true;
    visit_order(own, WEFTI_ORDER_BACKWARD, visit, leave);
}

static weft_status lay_out(sweep *own)
{
    wefti_program *program = own->program;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < WEFTI_REGIONS && status == WEFT_OK; i++) {
        own->arenas[i].gaps = calloc(program->value_count + 1, sizeof(gap));
        if (!own->arenas[i].gaps) {
            status =
                wefti_error(WEFT_ERR_NO_MEMORY, "no memory to plan %zu values",
                            program->value_count);
        }
    }
    if (status == WEFT_OK) {
        visit_all(own, place, release);
        visit_backward(own, place, release);
    }
    for (size_t i = 0; i < WEFTI_REGIONS; i++) {
        program->elems[i] = own->arenas[i].end;
        free(own->arenas[i].gaps);
    }
    return status;
}

/* Those of B are counted anew, through its own steps. */
static void find_lives(sweep *own)
{
    wefti_program *program = own->program;
    visit_all(own, extend_life, NULL);
    for (size_t i = 0; i < program->value_count; i++) {
        wefti_value *value = &program->values[i];
        value->region =
            value->used ? find_region(program, value) : WEFTI_REGION_SCRATCH;
        value->used = value->used && value->region != WEFTI_REGION_BACKWARD;
    }
    visit_backward(own, extend_life, NULL);
}

weft_status wefti_program_plan(wefti_program *program, size_t rows_most)
{
    sweep own = {.program = program};
    weft_status status = wefti_program_recompute(program);
    if (status == WEFT_OK) {
        status = wefti_program_order(program);
    }
    if (status != WEFT_OK) {
        return status;
    }
    program->rows_most = rows_most;
    find_lives(&own);
    status = lay_out(&own);
    wefti_program_order_trim(program);
    return status;
}

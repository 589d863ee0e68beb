/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_print.c - nodes and values, a line each.
 */
#include "trainer/program/program_print.h"

#include "trainer/program/program_check.h"

static const char *const kinds[] = {"COMPUTE", "POST", "AWAIT", "EXCHANGE"};
static const char *const regions[WEFTI_REGIONS] = {
    "slot", "forward", "inputs", "weights", "backward", "scratch"};

static void print_block(const wefti_program *program, size_t block, FILE *file)
{
    const wefti_block_mark *mark = &program->blocks[block];
    fprintf(file, "%s.%zu.", mark->name, mark->layer);
}

static void print_values(
    const wefti_program *program, const wefti_node *node, wefti_call call,
    bool (*uses)(const wefti_node *node, size_t i, wefti_call call), FILE *file)
{
    for (size_t i = 0; i < node->operand_count; i++) {
        const wefti_value *value = &program->values[node->operands[i].value];
        if (uses(node, i, call)) {
            fputc(' ', file);
            if (value->block != node->origin) {
                print_block(program, value->block, file);
            }
            fputs(value->name, file);
        }
    }
}

static void print_node(const wefti_program *program, const wefti_node *node,
                       const wefti_program_step *step, size_t number,
                       FILE *file)
{
    const wefti_node_kind kind = wefti_node_kind_in(node, step->call);
    fprintf(file, "%s %zu %s ", wefti_order_text(step->call), number,
            kinds[kind]);
    print_block(program, node->origin, file);
    fputs(node->label, file);
    if (kind != WEFTI_NODE_COMPUTE) {
        fprintf(file, " %s", weft_class_text(node->class_id));
    }
    fprintf(file, "%s%s%s:", node->again ? " again" : "",
            step->of_part ? " of part" : "",
            step->by_parts  ? " by parts"
            : step->by_rows ? " by rows"
                            : "");
    print_values(program, node, step->call, wefti_node_reads, file);
    fputs(" ->", file);
    print_values(program, node, step->call, wefti_node_writes, file);
    fputc('\n', file);
}

/* A step counted through F, I and W, or one of B, as "I 4". */
static void print_step(const wefti_program *program, wefti_region region,
                       size_t step, FILE *file)
{
    size_t call = region == WEFTI_REGION_BACKWARD ? WEFTI_ORDER_BACKWARD : 0;
    while (step >= program->orders[call].count) {
        step -= program->orders[call++].count;
    }
    fprintf(file, "%s %zu", wefti_order_text(call), step);
}

static void print_value(const wefti_program *program, const wefti_value *value,
                        FILE *file)
{
    fputs("value ", file);
    print_block(program, value->block, file);
    fprintf(file, "%s%s: %s at %zu, %zu bytes of %s, ", value->name,
            value->again ? " again" : "", regions[value->region],
            value->start_elems * sizeof(real), value->elems * sizeof(real),
            weft_dtype_text(wefti_value_dtype(program->narrow, value->wide)));
    print_step(program, value->region, value->life.first, file);
    fputs(" to ", file);
    print_step(program, value->region, value->life.last, file);
    fputc('\n', file);
}

void wefti_program_print(const wefti_program *program, FILE *file)
{
    fputs("bytes:", file);
    for (size_t i = 0; i < WEFTI_REGIONS; i++) {
        fprintf(file, " %s %zu", regions[i], program->elems[i] * sizeof(real));
    }
    fputc('\n', file);
    for (size_t call = 0; call < WEFTI_CALLS; call++) {
        const wefti_order *order = &program->orders[call];
        for (size_t s = 0; s < order->count; s++) {
            const wefti_program_step *step = &order->steps[s];
            for (size_t i = 0; i < step->end - step->first; i++) {
                const wefti_node *node =
                    wefti_program_step_node(program, step, i);
                if (node->calls[call]) {
                    print_node(program, node, step, s, file);
                }
            }
        }
    }
    for (size_t i = 0; i < program->value_count; i++) {
        if (program->values[i].used) {
            print_value(program, &program->values[i], file);
        }
    }
}

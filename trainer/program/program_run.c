/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_run.c - steps, chunks, calls.
 */
#include "trainer/program/program_run.h"

#include "base/clock.h"

void *wefti_program_at(const wefti_program_pass *pass, size_t value)
{
    const wefti_value *own = &pass->program->values[value];
    real *region = pass->regions[own->region];
    return region ? region + own->start_elems : NULL;
}

/* Rows that the nodes of a step are called for together. */
typedef struct row_run {
    size_t first, rows;
    bool begins, ends;
} row_run;

/* Of an element. */
static size_t bytes_of(const wefti_program *program, bool wide)
{
    return weft_dtype_bytes(wefti_value_dtype(program->narrow, wide));
}

static weft_status call_node(const wefti_program_pass *pass,
                             const wefti_node *node, wefti_call call,
                             const row_run *run, bool waits)
{
    const size_t first = run->first;
    wefti_node_args args = {.pass = pass,
                            .node = node,
                            .first = first,
                            .rows = run->rows,
                            .begins = run->begins,
                            .ends = run->ends,
                            .waits = waits};
    for (size_t i = 0; i < node->operand_count; i++) {
        const wefti_value *value =
            &pass->program->values[node->operands[i].value];
        size_t skipped =
            value->by_row && !value->of_chunk ? first * value->width : 0;
        char *start = wefti_program_at(pass, node->operands[i].value);
        args.values[i] =
            start ? start + skipped * bytes_of(pass->program, value->wide)
                  : NULL;
        args.widths[i] = value->width;
    }
    for (size_t i = 0; i < node->parameter_count; i++) {
        const wefti_node_parameter *own = &node->parameters[i];
        real *gradients = pass->gradients[own->group];
        args.parameters[i] = (const char *)pass->parameters[own->group] +
                             own->start_elems * bytes_of(pass->program, false);
        args.gradients[i] = gradients ? gradients + own->start_elems : NULL;
    }
    return node->calls[call](&args);
}

/* Tells a hook of the step's parameters, each by one node. */
static weft_status report(const wefti_program_pass *pass,
                          const wefti_program_step *step,
                          weft_status (*call)(void *context, size_t tensor))
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; call && i < step->end - step->first; i++) {
        const wefti_node *node =
            wefti_program_step_node(pass->program, step, i);
        size_t count = node->calls[step->call] ? node->parameter_count : 0;
        for (size_t k = 0; k < count && status == WEFT_OK; k++) {
            if (!node->parameters[k].shared) {
                status = call(pass->hooks->context, node->parameters[k].tensor);
            }
        }
    }
    return status;
}

static weft_status run_chunk(const wefti_program_pass *pass,
                             const wefti_program_step *step, const row_run *run,
                             bool waits, wefti_program_mark *mark)
{
    weft_status status = WEFT_OK;
    while (mark->done < step->end - step->first) {
        const wefti_node *node =
            wefti_program_step_node(pass->program, step, mark->done);
        /* Ranks exchange parts without rows, too. */
        const bool runs =
            (run->rows > 0 || node->operation > 0 || node->of_others) &&
            !(pass->idle && node->kind == WEFTI_NODE_COMPUTE);
        if (node->calls[step->call] && runs) {
            status = call_node(pass, node, step->call, run, waits);
        }
        if (status != WEFT_OK) {
            return status;
        }
        mark->done++;
    }
    return WEFT_OK;
}

/* Those that a step has of the batch. */
static size_t count_rows(const wefti_program_pass *pass,
                         const wefti_program_step *step)
{
    const size_t rows = pass->batch->sequences * pass->batch->length;
    return step->of_part ? wefti_program_own_rows(pass->program, rows) : rows;
}

/* The run at mark, of all rows; what it adds to mark. */
static row_run find_run(const wefti_program_pass *pass,
                        const wefti_program_step *step, size_t all,
                        const wefti_program_mark *mark, size_t *adds_out)
{
    const wefti_program *program = pass->program;
    const size_t at = mark->first, parts = program->parts;
    if (!step->by_parts) {
        const size_t left = all - at;
        const size_t most =
            step->by_rows ? wefti_program_chunk_rows(program) : all;
        *adds_out = left < most ? left : most;
        return (row_run){at, *adds_out, at == 0, *adds_out == left};
    }
    const size_t most = wefti_program_part_rows(program, all);
    const size_t turn = step->posts ? at + 1 : parts - at;
    const size_t first = (program->part + turn) % parts * most;
    const size_t left = all > first ? all - first : 0;
    *adds_out = 1;
    return (row_run){first, left < most ? left : most, at == 0,
                     at + 1 == parts};
}

static weft_status run_step(const wefti_program_pass *pass,
                            const wefti_program_step *step, bool waits,
                            wefti_program_mark *mark)
{
    const wefti_model_hooks *hooks = pass->hooks;
    size_t all = count_rows(pass, step);
    const size_t end = step->by_parts ? pass->program->parts : all;
    weft_status status = WEFT_OK;
    if (hooks && step->call == WEFTI_CALL_FORWARD && !mark->begun) {
        status = report(pass, step, hooks->use);
    }
    mark->begun = true;
    if (status != WEFT_OK) {
        return status;
    }
    do { /* once without rows: other ranks may have some */
        size_t adds;
        const row_run run = find_run(pass, step, all, mark, &adds);
        status = run_chunk(pass, step, &run, waits, mark);
        if (status == WEFT_OK) {
            mark->first += adds;
            mark->done = 0;
        }
    } while (status == WEFT_OK && mark->first < end);
    if (status == WEFT_OK && hooks && step->call == WEFTI_CALL_WEIGHTS) {
        status = report(pass, step, hooks->finish);
    }
    return status;
}

weft_status wefti_program_step_run(const wefti_program_pass *pass,
                                   const wefti_program_step *step, bool waits,
                                   wefti_program_mark *mark)
{
    if (!step->again || !pass->again_ns) {
        return run_step(pass, step, waits, mark);
    }
    const int64_t begin_ns = wefti_clock_ns();
    weft_status status = run_step(pass, step, waits, mark);
    *pass->again_ns += wefti_clock_ns() - begin_ns;
    return status;
}

weft_status wefti_program_run(const wefti_program_pass *pass,
                              const wefti_order *order)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < order->count && status == WEFT_OK; i++) {
        wefti_program_mark mark = {0};
        status = wefti_program_step_run(pass, &order->steps[i], true, &mark);
    }
    return status;
}

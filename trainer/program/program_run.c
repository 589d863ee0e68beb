/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/program_run.c - steps, chunks, calls.
 */
#include "trainer/program/program_run.h"

void *wefti_program_at(const wefti_program_pass *pass, size_t value)
{
    const wefti_value *own = &pass->program->values[value];
    real *region = pass->regions[own->region];
    return region ? region + own->start_elems : NULL;
}

/* Of an element. */
static size_t bytes_of(const wefti_program *program, bool wide)
{
    return weft_dtype_bytes(wefti_value_dtype(program->narrow, wide));
}

static weft_status call_node(const wefti_program_pass *pass,
                             const wefti_node *node, wefti_call call,
                             size_t first, size_t rows, bool waits)
{
    wefti_node_args args = {.pass = pass,
                            .node = node,
                            .first = first,
                            .rows = rows,
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
        for (size_t k = 0; k < node->parameter_count && status == WEFT_OK;
             k++) {
            if (!node->parameters[k].shared) {
                status = call(pass->hooks->context, node->parameters[k].tensor);
            }
        }
    }
    return status;
}

static weft_status run_chunk(const wefti_program_pass *pass,
                             const wefti_program_step *step, size_t rows,
                             bool waits, wefti_program_mark *mark)
{
    weft_status status = WEFT_OK;
    while (mark->done < step->end - step->first) {
        const wefti_node *node =
            wefti_program_step_node(pass->program, step, mark->done);
        if (node->calls[step->call]) {
            status =
                call_node(pass, node, step->call, mark->first, rows, waits);
        }
        if (status != WEFT_OK) {
            return status;
        }
        mark->done++;
    }
    return WEFT_OK;
}

weft_status wefti_program_step_run(const wefti_program_pass *pass,
                                   const wefti_program_step *step, bool waits,
                                   wefti_program_mark *mark)
{
    const wefti_model_hooks *hooks = pass->hooks;
    size_t all = pass->batch->sequences * pass->batch->length;
    size_t most = step->by_rows ? WEFTI_PROGRAM_CHUNK_ROWS : all;
    weft_status status = WEFT_OK;
    if (hooks && step->call == WEFTI_CALL_FORWARD && !mark->begun) {
        status = report(pass, step, hooks->use);
    }
    mark->begun = true;
    while (status == WEFT_OK && mark->first < all) {
        size_t left = all - mark->first;
        size_t rows = left < most ? left : most;
        status = run_chunk(pass, step, rows, waits, mark);
        if (status == WEFT_OK) {
            mark->first += rows;
            mark->done = 0;
        }
    }
    if (status == WEFT_OK && hooks && step->call == WEFTI_CALL_WEIGHTS) {
        status = report(pass, step, hooks->finish);
    }
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

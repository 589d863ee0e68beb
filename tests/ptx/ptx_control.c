/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_control.c - branches, calls, ends. Each sets where its lanes
 * go on; a branch's other lanes are at the next instruction already.
 */
#include "tests/ptx/ptx_machine.h"

#include <string.h>

bool ptx_run_branch(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    PTX_EACH_LANE(lane, lanes)
    {
        warp->pc[lane] = now->target;
    }
    return true;
}

bool ptx_run_branch_table(ptx_warp *warp, const ptx_instruction *now,
                          uint32_t lanes)
{
    const ptx_program *program = warp->block->program;
    const ptx_table *table = &program->tables.at[now->target];
    if (!ptx_need_known(warp, now, ptx_source(now, 0), lanes, "the index")) {
        return false;
    }
    PTX_EACH_LANE(lane, lanes)
    {
        uint64_t index = ptx_read(warp, ptx_source(now, 0), lane);
        if (index >= table->count) {
            return ptx_stop(warp, now, lane, "index %llu of %u labels",
                            (unsigned long long)index, table->count);
        }
        warp->pc[lane] = program->places.at[table->first + index];
    }
    return true;
}

/* Copies a thread's .param variable to another one of the same size. */
static void copy_param(ptx_warp *warp, unsigned lane, uint32_t to,
                       uint32_t from)
{
    const ptx_program *program = warp->block->program;
    const ptx_variable *target = &program->variables.at[to];
    const ptx_variable *source = &program->variables.at[from];
    size_t base = lane * program->private_bytes;
    size_t at = base + (target->address - PTX_PRIVATE_BEGIN);
    size_t by = base + (source->address - PTX_PRIVATE_BEGIN);
    memcpy(warp->private_data + at, warp->private_data + by, target->bytes);
    memcpy(warp->private_states + at, warp->private_states + by, target->bytes);
}

bool ptx_run_call(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    const ptx_program *program = warp->block->program;
    const ptx_call *call = &program->calls.at[now->target];
    const ptx_function *called = &program->functions.at[call->function];
    PTX_EACH_LANE(lane, lanes)
    {
        unsigned depth = warp->depth[lane];
        for (unsigned i = 0; i < depth; i++) {
            uint32_t at = warp->calls[lane][i];
            uint32_t other = program->code.at[at].target;
            if (program->calls.at[other].function == call->function) {
                return ptx_stop(warp, now, lane, "a call of '%s' within itself",
                                called->name);
            }
        }
        if (depth == PTX_CALLS) {
            return ptx_stop(warp, now, lane, "more than %d calls under way",
                            PTX_CALLS);
        }
        for (uint32_t i = called->results; i < called->params; i++) {
            copy_param(warp, lane, called->first_param + i, call->variables[i]);
        }
        warp->calls[lane][depth] = warp->pc[lane];
        warp->depth[lane]++;
        warp->pc[lane] = called->begin;
    }
    return true;
}

bool ptx_run_return(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    const ptx_program *program = warp->block->program;
    uint32_t ends = 0;
    PTX_EACH_LANE(lane, lanes)
    {
        if (warp->depth[lane] == 0) {
            ends |= UINT32_C(1) << lane;
            continue;
        }
        uint32_t at = warp->calls[lane][--warp->depth[lane]];
        const ptx_call *call = &program->calls.at[program->code.at[at].target];
        const ptx_function *called = &program->functions.at[call->function];
        for (uint32_t i = 0; i < called->results; i++) {
            copy_param(warp, lane, call->variables[i], called->first_param + i);
        }
        warp->pc[lane] = at + 1;
    }
    return ends == 0 || ptx_warp_end(warp, now, ends);
}

bool ptx_run_exit(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    return ptx_warp_end(warp, now, lanes);
}

bool ptx_run_trap(ptx_warp *warp, const ptx_instruction *now, uint32_t lanes)
{
    return ptx_stop(warp, now, (unsigned)__builtin_ctz(lanes), "a trap");
}

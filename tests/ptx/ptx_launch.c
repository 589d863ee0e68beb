/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_launch.c - a launch: its memory, its blocks one after another.
 */
#include "tests/ptx/ptx_fault.h"
#include "tests/ptx/ptx_machine.h"

#include <stdlib.h>
#include <string.h>

/* Memory that a block has; made once for a launch, set anew for each block. */
typedef struct memory {
    uint32_t slots;
    size_t private_bytes; /* of all threads */
    uint64_t *registers;
    uint32_t *known;
    unsigned char *private_data, *private_states, *fresh_states;
    ptx_warp *warps;
    ptx_range *ranges;
} memory;

static void *get(size_t bytes)
{
    void *made = calloc(1, bytes + 1);
    if (!made) {
        abort();
    }
    return made;
}

static const ptx_function *find_kernel(const ptx_program *program,
                                       const char *name)
{
    for (uint32_t i = 0; i < program->functions.count; i++) {
        const ptx_function *function = &program->functions.at[i];
        if (function->is_kernel && function->defined &&
            strcmp(function->name, name) == 0) {
            return function;
        }
    }
    return NULL;
}

static bool check_shape(const ptx_function *kernel, const ptx_config *config)
{
    const unsigned *grid = config->grid, *size = config->block;
    uint64_t threads = (uint64_t)size[0] * size[1] * size[2];
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0 ||
        size[0] > PTX_THREADS_MAX || size[1] > PTX_THREADS_MAX ||
        size[2] > 64 || threads > PTX_THREADS_MAX) {
        return ptx_fault_set("%s: a grid of 1 block or more, and 1 to %d "
                             "threads a block",
                             kernel->name, PTX_THREADS_MAX);
    }
    if (kernel->threads_max != 0 && threads > kernel->threads_max) {
        return ptx_fault_set("%s: %llu threads a block, .maxntid allows %u",
                             kernel->name, (unsigned long long)threads,
                             kernel->threads_max);
    }
    if (kernel->threads_exact[0] != 0 &&
        memcmp(kernel->threads_exact, size, 3 * sizeof(*size)) != 0) {
        return ptx_fault_set("%s: .reqntid wants another block", kernel->name);
    }
    return true;
}

static int compare_ranges(const void *left, const void *right)
{
    const ptx_range *a = left, *b = right;
    uintptr_t at = (uintptr_t)a->at, by = (uintptr_t)b->at;
    return (at > by) - (at < by);
}

/* The launch's ranges and the module's own variables, sorted; empty ones and
 * what lies in another one left out. */
static void sort_ranges(ptx_block *block, memory *has)
{
    const ptx_program *program = block->program;
    size_t count = 0;
    has->ranges = get((block->config->range_count + program->variables.count) *
                      sizeof(*has->ranges));
    for (size_t i = 0; i < block->config->range_count; i++) {
        if (block->config->ranges[i].bytes != 0) {
            has->ranges[count++] = block->config->ranges[i];
        }
    }
    for (uint32_t i = 0; i < program->variables.count; i++) {
        const ptx_variable *one = &program->variables.at[i];
        if (one->space == PTX_GLOBAL) {
            has->ranges[count++] = (ptx_range){
                (const void *)(uintptr_t)one->address, one->bytes, true};
        }
    }
    qsort(has->ranges, count, sizeof(*has->ranges), compare_ranges);
    block->ranges = has->ranges;
    block->range_count = count;
}

static bool check_ranges(const ptx_block *block)
{
    for (size_t i = 0; i + 1 < block->range_count; i++) {
        const ptx_range *now = &block->ranges[i];
        if ((uintptr_t)now->at + now->bytes >
            (uintptr_t)block->ranges[i + 1].at) {
            return ptx_fault_set("%s: ranges that overlap at %p",
                                 block->kernel->name, now[1].at);
        }
    }
    return true;
}

/* The kernel's arguments, as it reads them. */
static void pack_params(ptx_block *block, void **params)
{
    const ptx_function *kernel = block->kernel;
    block->params = (ptx_segment){.begin = PTX_PARAM_BEGIN,
                                  .bytes = kernel->param_bytes,
                                  .data = get(kernel->param_bytes)};
    for (uint32_t i = 0; i < kernel->params; i++) {
        const ptx_variable *one =
            &block->program->variables.at[kernel->first_param + i];
        memcpy(block->params.data + (one->address - PTX_PARAM_BEGIN), params[i],
               one->bytes);
    }
}

static ptx_segment shared_segment(uint64_t begin, size_t bytes)
{
    return (ptx_segment){.begin = begin,
                         .bytes = bytes,
                         .data = get(bytes),
                         .states = get(bytes),
                         .touches = get(bytes * sizeof(ptx_touches)),
                         .writable = true};
}

/* The states of a space's variables, those of other kernels left out. */
static void mark_variables(const ptx_block *block, unsigned char *states,
                           uint64_t begin, ptx_space space)
{
    const ptx_program *program = block->program;
    for (uint32_t i = 0; i < program->variables.count; i++) {
        const ptx_variable *one = &program->variables.at[i];
        const ptx_function *owner = one->owner == PTX_NOWHERE
                                        ? NULL
                                        : &program->functions.at[one->owner];
        bool visible = !owner || !owner->is_kernel || owner == block->kernel;
        bool is_private = one->space == PTX_LOCAL || one->space == PTX_PARAM;
        if (visible && one->address >= begin &&
            (space == PTX_SHARED ? one->space == PTX_SHARED && one->bytes != 0
                                 : is_private)) {
            memset(states + (one->address - begin), PTX_UNKNOWN, one->bytes);
        }
    }
}

static void make_memory(ptx_block *block, memory *has)
{
    ptx_program *program = block->program;
    has->slots = program->called_slots + block->kernel->slots;
    has->private_bytes = program->private_bytes * block->warp_count * PTX_LANES;
    size_t slots = (size_t)has->slots * block->warp_count;
    has->registers = get(slots * PTX_LANES * sizeof(*has->registers));
    has->known = get(slots * sizeof(*has->known));
    has->private_data = get(has->private_bytes);
    has->private_states = get(has->private_bytes);
    has->fresh_states = get(program->private_bytes);
    has->warps = get(block->warp_count * sizeof(*has->warps));
    mark_variables(block, has->fresh_states, PTX_PRIVATE_BEGIN, PTX_LOCAL);
    block->warps = has->warps;
    block->shared = shared_segment(PTX_SHARED_BEGIN, program->shared_bytes);
    block->dynamic =
        shared_segment(PTX_SHARED_DYNAMIC, block->config->shared_bytes);
    block->constants = (ptx_segment){.begin = PTX_CONST_BEGIN,
                                     .bytes = program->const_bytes,
                                     .data = program->const_data};
}

static void free_segment(ptx_segment *segment)
{
    free(segment->data);
    free(segment->states);
    free(segment->touches);
}

static void free_memory(ptx_block *block, memory *has)
{
    free(has->registers);
    free(has->known);
    free(has->private_data);
    free(has->private_states);
    free(has->fresh_states);
    free(has->warps);
    free(has->ranges);
    free_segment(&block->shared);
    free_segment(&block->dynamic);
    free(block->params.data);
}

/* Nothing is known but what the launch brings. */
static void reset_shared(const ptx_block *block, ptx_segment *segment)
{
    memset(segment->data, PTX_POISON, segment->bytes);
    memset(segment->touches, 0, segment->bytes * sizeof(*segment->touches));
    if (segment == &block->dynamic) {
        memset(segment->states, PTX_UNKNOWN, segment->bytes);
    } else {
        memset(segment->states, PTX_OUTSIDE, segment->bytes);
        mark_variables(block, segment->states, segment->begin, PTX_SHARED);
    }
}

static void reset_block(ptx_block *block, memory *has)
{
    size_t slots = (size_t)has->slots * block->warp_count;
    size_t each = block->program->private_bytes;
    memset(has->registers, PTX_POISON,
           slots * PTX_LANES * sizeof(*has->registers));
    memset(has->known, 0, slots * sizeof(*has->known));
    memset(has->private_data, PTX_POISON, has->private_bytes);
    memset(has->warps, 0, block->warp_count * sizeof(*has->warps));
    memset(block->barriers, 0, sizeof(block->barriers));
    block->epoch = 1;
    reset_shared(block, &block->shared);
    reset_shared(block, &block->dynamic);
    for (unsigned w = 0; w < block->warp_count; w++) {
        ptx_warp *warp = &block->warps[w];
        unsigned lanes = block->threads - w * PTX_LANES;
        warp->block = block;
        warp->number = w;
        warp->runs =
            lanes >= PTX_LANES ? UINT32_MAX : (UINT32_C(1) << lanes) - 1;
        warp->epoch = 1;
        warp->registers = has->registers + (size_t)w * has->slots * PTX_LANES;
        warp->known = has->known + (size_t)w * has->slots;
        warp->private_data = has->private_data + each * w * PTX_LANES;
        warp->private_states = has->private_states + each * w * PTX_LANES;
        for (unsigned lane = 0; lane < PTX_LANES; lane++) {
            warp->pc[lane] = block->kernel->begin;
            memcpy(warp->private_states + lane * each, has->fresh_states, each);
        }
    }
}

static bool run_block(ptx_block *block)
{
    for (;;) {
        bool ran = false;
        for (unsigned w = 0; w < block->warp_count; w++) {
            if (block->warps[w].runs != 0) {
                ran = true;
                if (!ptx_warp_run(&block->warps[w])) {
                    return false;
                }
            }
        }
        if (!ran) {
            return ptx_block_stuck(block);
        }
    }
}

static bool run_grid(ptx_block *block, memory *has)
{
    const unsigned *grid = block->config->grid;
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks; i++) {
        block->index[0] = (unsigned)(i % grid[0]);
        block->index[1] = (unsigned)(i / grid[0] % grid[1]);
        block->index[2] = (unsigned)(i / grid[0] / grid[1]);
        reset_block(block, has);
        if (!run_block(block)) {
            return false;
        }
    }
    return true;
}

int ptx_launch(ptx_program *program, const char *kernel,
               const ptx_config *config, void **params)
{
    ptx_block block = {.program = program, .config = config};
    memory has = {0};
    block.kernel = find_kernel(program, kernel);
    if (!block.kernel) {
        ptx_fault_set("%s: no such kernel in %s", kernel, program->name);
        return -1;
    }
    if (!check_shape(block.kernel, config)) {
        return -1;
    }
    block.threads = config->block[0] * config->block[1] * config->block[2];
    block.warp_count = (block.threads + PTX_LANES - 1) / PTX_LANES;
    sort_ranges(&block, &has);
    if (!check_ranges(&block)) {
        free(has.ranges);
        return -1;
    }
    pack_params(&block, params);
    make_memory(&block, &has);
    bool ok = run_grid(&block, &has);
    free_memory(&block, &has);
    return ok ? 0 : -1;
}

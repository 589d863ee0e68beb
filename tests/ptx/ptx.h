/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx.h - runs PTX on the host, as nvcc wrote it, for tests in C.
 * docs/testing.md says what it finds and what it cannot.
 *
 * Blocks run one after another, warps in turn from one wait to the next, and
 * within a warp those threads whose instruction comes first in the text. What
 * the interpreter does not know it refuses by line when it reads the text.
 *
 * Source: NVIDIA, "Parallel Thread Execution ISA", version 9.0.
 */
#ifndef TESTS_PTX_PTX_H
#define TESTS_PTX_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ptx_program ptx_program;

/*
 * ptx_program_create - reads one module.
 *
 * name  what faults call it; copied, as text is.
 *
 * Returns     the program, or NULL: ptx_fault says what line is wrong, and how.
 */
ptx_program *ptx_program_create(const char *name, const char *text);

/* NULL is legal. */
void ptx_program_destroy(ptx_program *program);

/* Name of kernel number i, or NULL after the last one. */
const char *ptx_program_kernel(const ptx_program *program, size_t i);

/* Memory of the host that a launch may access as global. */
typedef struct ptx_range {
    const void *at;
    size_t bytes; /* may be 0 */
    bool writable;
} ptx_range;

typedef struct ptx_config {
    unsigned grid[3], block[3];
    size_t shared_bytes; /* dynamic shared memory, to the byte */
    const ptx_range *ranges;
    size_t range_count;
    uint64_t step_limit; /* instructions of all warps; 0: 2^30 */
} ptx_config;

/*
 * ptx_launch - runs a kernel to its end.
 *
 * params  a pointer to each of its arguments.
 *
 * Returns     0, or -1: nothing was run, or the kernel stopped where it broke
 *             a rule; ptx_fault says which, and where.
 * Threads     a program has one launch at a time.
 */
int ptx_launch(ptx_program *program, const char *kernel,
               const ptx_config *config, void **params);

/* Why this thread's last call failed. Of a launch: kernel, block, thread, file
 * and line, the instruction, and the rule. */
const char *ptx_fault(void);

#endif

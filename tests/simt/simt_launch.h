/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_launch.h - runs kernels of .cu files on the host, for tests
 * in C. docs/testing.md says what the emulation finds and what it cannot.
 *
 * Blocks run one after another, their threads as fibers, one at a time, until
 * each waits or ends.
 */
#ifndef TESTS_SIMT_SIMT_LAUNCH_H
#define TESTS_SIMT_SIMT_LAUNCH_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <type_traits>
#include <utility>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* In which order threads run, and blocks. RANDOM: drawn anew for each round
 * from one wait to the next; atomics then may hand over, too. */
typedef enum simt_order {
    SIMT_FORWARD,
    SIMT_REVERSE,
    SIMT_RANDOM,
    SIMT_ORDER_COUNT
} simt_order;

typedef struct simt_config {
    unsigned grid[3], block[3]; /* each at least 1; 1024 threads a block */
    size_t shared_bytes;        /* dynamic shared memory, to the byte */
    simt_order order;
    uint64_t seed; /* of RANDOM */
} simt_config;

/*
 * simt_launch - runs a kernel to its end.
 *
 * kernel  its name, of those that were added.
 * params  a pointer to each of its arguments.
 *
 * Returns     0, or -1: the kernel broke a rule of the machine, and stopped
 *             there; simt_fault says which, and where.
 * Threads     one launch at a time in the process.
 */
int simt_launch(const char *kernel, const simt_config *config, void **params);

/* What stopped the last launch: kernel, block, thread, file:line, rule. */
const char *simt_fault(void);

typedef struct simt_kernel {
    const char *name;
    void (*call)(void **params);
} simt_kernel;

/* Kernels of a program, the last name being NULL; it may have several lists. */
typedef struct simt_list {
    const simt_kernel *kernels;
    struct simt_list *next;
} simt_list;

void simt_add(simt_list *list);                 /* before main: SIMT_ADD */
const simt_kernel *simt_find(const char *name); /* NULL: there is none */
const simt_kernel *simt_at(size_t index);       /* NULL: past the last */

#ifdef __cplusplus
}

/* Adds a list of a file, as the program or library is loaded. */
struct simt_adder {
    simt_list list;
    explicit simt_adder(const simt_kernel *kernels) : list{kernels, nullptr}
    {
        simt_add(&list);
    }
};
#define SIMT_ADD(kernels) static simt_adder kernels##_adder(kernels);

/* An entry of a list: {"name", simt_call<name>}. */
template <class... Args, size_t... At>
void simt_call_with(void (*kernel)(Args...), void **params,
                    std::index_sequence<At...>)
{
    kernel(*static_cast<std::remove_const_t<Args> *>(params[At])...);
}

template <class... Args>
void simt_call_any(void (*kernel)(Args...), void **params)
{
    simt_call_with(kernel, params, std::index_sequence_for<Args...>());
}

template <auto kernel> void simt_call(void **params)
{
    simt_call_any(kernel, params);
}

#define SIMT_KERNEL(name)                                                      \
    {                                                                          \
#name, simt_call < name>                                               \
    }
#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/wire_launch.h - runs a kernel of kernels/wire for
 * test_wire_kernels.c: as C++ (wire_launch_simt.c), or its PTX
 * (tests/ptx/wire_launch_ptx.c).
 */
#ifndef TESTS_SIMT_WIRE_LAUNCH_H
#define TESTS_SIMT_WIRE_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that the kernel may access. */
typedef struct wire_range {
    const void *at;
    size_t bytes;
    bool writable;
} wire_range;

/* In a shape of launch.h that is drawn from the seed. What the kernel does
 * wrong fails the test. */
void wire_launch(const char *kernel, void *args, const wire_range *ranges,
                 size_t range_count, uint64_t *seed);

/* How often test_wire_kernels.c runs all its cases, drawn anew. */
unsigned wire_launch_rounds(void);

#endif

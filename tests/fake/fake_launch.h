/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_launch.h - arguments of weft's kernels, for fake_module.c.
 */
#ifndef TESTS_FAKE_FAKE_LAUNCH_H
#define TESTS_FAKE_FAKE_LAUNCH_H

#include "tests/fake/fake.h"

#include "kernels/math/math_op.h"
#include "kernels/wire/launch.h"

enum { FAKE_LAUNCH_BYTES = sizeof(wefti_reduce_args) }; /* of the largest */

/* The ranges that a running kernel uses. */
typedef struct fake_uses {
    int ordinal;
    const char *kernel;
    bool failed; /* an address was illegal */
    unsigned count, capacity;
    fake_range **ranges;
    void *pieces; /* of a packing kernel, with addresses of the fake's */
} fake_uses;

/* How many bytes of arguments a kernel has; 0: there is none of this name. */
size_t fake_args_bytes(const char *kernel);

/*
 * fake_args_translate - changes device addresses in args to where the fake
 * finds the memory, after a check of each range that the kernel will access:
 * whole within an allocation that the device may access.
 *
 * Returns false, with a line said, if one is not; fake_args_done in any case.
 */
bool fake_args_translate(fake_uses *uses, void *args);
void fake_args_done(fake_uses *uses);

#endif

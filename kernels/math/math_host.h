/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_host.h - the host's kernels (math_table.h) behind the
 * arguments of math_launch.h.
 */
#ifndef KERNELS_MATH_MATH_HOST_H
#define KERNELS_MATH_MATH_HOST_H

#include "kernels/math/math_op.h"
#include "kernels/math/real.h"

/* The argument of any op. */
typedef union wefti_math_args {
#define WEFTI_MATH_ARGS(op) wefti_math_##op op;
    WEFTI_MATH_OPS(WEFTI_MATH_ARGS) WEFTI_MATH_HOST_OPS(WEFTI_MATH_ARGS)
#undef WEFTI_MATH_ARGS
} wefti_math_args;

/* Elements of scratch that wefti_math_host_run needs, zeroed. */
size_t wefti_math_host_scratch_elems(wefti_math_op op,
                                     const wefti_math_args *args);

/* Here and now, on arrays of real in host memory. */
void wefti_math_host_run(wefti_math_op op, const wefti_math_args *args,
                         real *scratch);

#endif

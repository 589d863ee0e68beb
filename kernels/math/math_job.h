/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_job.h - a launch of math_launch.h by the host's kernels,
 * for devices that compute by the host's code.
 */
#ifndef KERNELS_MATH_MATH_JOB_H
#define KERNELS_MATH_MATH_JOB_H

#include "device/device.h"
#include "kernels/math/math_op.h"

/*
 * wefti_math_job_post - as a launch of the op's kernel would: in stream order,
 * with these arguments, which are copied.
 *
 * The host computes in the type that it was built over (real.h), and bf16 where
 * that is f32: products by gemm_bf16.h; others by pieces of whole rows (of
 * attention: sequences), which are widened, computed in f32, and rounded once.
 * A job has copies of one piece; its bits are those of all rows at once.
 *
 * Returns     OK | ERR_UNSUPPORTED (a type that this build has no kernels for)
 *             | ERR_INVALID (no memory of the device) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_math_job_post(weft_stream *stream,
                                               wefti_math_op op,
                                               wefti_math_type type,
                                               const void *args);

#endif

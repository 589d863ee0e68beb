/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_post.h - what the calls of math_stream.h share: the types
 * of a call, the check of its tensors, and its way onto the stream.
 */
#ifndef KERNELS_MATH_MATH_POST_H
#define KERNELS_MATH_MATH_POST_H

#include "kernels/math/math_op.h"
#include "kernels/math/math_stream.h"

typedef struct wefti_math_types {
    wefti_math_type type, wide_type; /* of the kernel; of one over wide */
    weft_dtype own, mixed, wide;
} wefti_math_types;

/* What a tensor has to be. */
typedef struct wefti_math_want {
    const char *name;
    const wefti_math_tensor *tensor;
    weft_dtype dtype;
    size_t rows, width;
    bool optional; /* may be NULL */
    bool strided;  /* any stride that is not below its width */
    size_t stride; /* this one; 0: rows follow each other */
} wefti_math_want;

/*
 * wefti_math_find_types - by the dtype of own, which the error calls name, and
 * of mixed, f32 or the same; NULL: the same.
 *
 * Returns     OK | ERR_INVALID (own is NULL, or of a type that kernels have
 *             not).
 */
WEFT_NODISCARD weft_status wefti_math_find_types(const char *op,
                                                 const char *name,
                                                 const wefti_math_tensor *own,
                                                 const wefti_math_tensor *mixed,
                                                 wefti_math_types *types_out);

/* Returns OK | ERR_INVALID: the first tensor that is not as it has to be. */
WEFT_NODISCARD weft_status wefti_math_check(const char *op,
                                            const wefti_math_want *wants,
                                            size_t count);

/* ---- for the two files that check ------------------------------------------
 */

/* Rows next to each other; the same, or NULL; of any stride; of this one. */
#define DENSE(name, dtype, rows, width)                                        \
    {                                                                          \
#name, name, dtype, rows, width, false, false, 0                       \
    }
#define OPTIONAL(name, dtype, rows, width)                                     \
    {                                                                          \
#name, name, dtype, rows, width, true, false, 0                        \
    }
#define STRIDED(name, dtype, rows, width)                                      \
    {                                                                          \
#name, name, dtype, rows, width, false, true, 0                        \
    }
#define SPACED(name, dtype, rows, width, stride)                               \
    {                                                                          \
#name, name, dtype, rows, width, false, false, stride                  \
    }

#define CHECK(op, wants)                                                       \
    wefti_math_check(op, wants, sizeof(wants) / sizeof((wants)[0]))

/* The types of a call, by the tensor that all others follow. */
#define FIND_TYPES(op, tensor, mixed, types_out)                               \
    wefti_math_find_types(op, #tensor, tensor, mixed, types_out)

/* ---------------------------------------------------------------------------
 */

/* A launch, or a job, by what the stream's device is; args is copied. */
WEFT_NODISCARD weft_status wefti_math_post(weft_stream *stream,
                                           wefti_math_op op,
                                           wefti_math_type type,
                                           const void *args);

#endif

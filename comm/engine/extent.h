/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/extent.h - which bytes of its buffers one rank uses in an
 * operation.
 */
#ifndef COMM_ENGINE_EXTENT_H
#define COMM_ENGINE_EXTENT_H

#include "comm/pattern/shape.h"
#include "weft/op.h"

#include <stdbool.h>

/*
 * Of one buffer: the bytes from the first element used to behind the last, as
 * offsets from its start (equal: none is used), and where this rank's own part
 * begins, or its only one.
 */
typedef struct wefti_span {
    size_t first_byte, end_byte;
    size_t own_byte;
} wefti_span;

typedef struct wefti_extent {
    wefti_span send, recv;
} wefti_extent;

/*
 * wefti_extent_measure - op as rank of nranks uses it.
 *
 * Returns     OK | ERR_INVALID: counts are missing, contradict each other,
 *             exceed memory, or parts of recv overlap; the text names which.
 */
WEFT_NODISCARD weft_status wefti_extent_measure(const weft_op *op,
                                                const wefti_role *role,
                                                int rank, int nranks,
                                                wefti_extent *extent_out);

/*
 * wefti_extent_copy_counts - v forms: op's arrays, its displs completed, into
 * room, size_t [4][nranks], which op then points to.
 */
void wefti_extent_copy_counts(weft_op *op, size_t *room, int nranks);

/* Whether the bytes of the two buffers lie apart. */
bool wefti_extent_is_apart(const weft_op *op, const wefti_extent *extent);

/* Whether send and recv lie as the collective's in-place form has them. */
bool wefti_extent_is_in_place(const weft_op *op, const wefti_shape *shape,
                              const wefti_extent *extent);

#endif

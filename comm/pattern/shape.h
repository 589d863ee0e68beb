/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/shape.h - what each collective moves, whatever the algorithm:
 * who has a send and a receive buffer, and whether it is one piece or has a
 * part for each rank.
 */
#ifndef COMM_PATTERN_SHAPE_H
#define COMM_PATTERN_SHAPE_H

#include "base/check.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * sends, receives   who has the buffer.
 * send_parts        the send buffer has a part for each rank; else it goes
 *                   whole to the rank that receives.
 * recv_parts        the receive buffer has a part from each rank.
 * varied            each part has a length and a place of its own (v forms).
 * reduces           what comes from all ranks is added up.
 * rooted            root is part of what must agree.
 * stepwise          never rides in the entries by which ranks meet.
 */
typedef enum wefti_who {
    WEFTI_WHO_NOBODY,
    WEFTI_WHO_ROOT,
    WEFTI_WHO_ALL
} wefti_who;

typedef struct wefti_shape {
    wefti_who sends, receives;
    bool send_parts, recv_parts;
    bool varied, reduces, rooted, stepwise;
} wefti_shape;

extern const wefti_shape wefti_shapes[WEFT_COLLECTIVE_COUNT];

/* Never NULL; a send only sends, a receive only receives. */
static inline const wefti_shape *wefti_shape_get(weft_collective collective)
{
    WEFTI_ASSERT((unsigned)collective < WEFT_COLLECTIVE_COUNT);
    return &wefti_shapes[collective];
}

/* Whether it is one of a program's own: kernels/wire knows no arithmetic for
 * it. */
static inline bool wefti_redop_is_user(weft_redop redop)
{
    return (unsigned)redop >= WEFT_REDOP_USER &&
           (unsigned)redop < WEFT_REDOP_USER_END;
}

/*
 * The same for a reduction that kernels/wire does not know, which goes step by
 * step at any size. A collective that reduces.
 */
const wefti_shape *wefti_shape_get_stepwise(weft_collective collective);

/* Whether rank is among those. */
static inline bool wefti_who_has(wefti_who who, int rank, int root)
{
    return who == WEFTI_WHO_ALL || (who == WEFTI_WHO_ROOT && rank == root);
}

/* Whether anything of rank `from` ends up on rank `to`. */
static inline bool wefti_shape_moves(const wefti_shape *shape, int root,
                                     int from, int to)
{
    return wefti_who_has(shape->sends, from, root) &&
           wefti_who_has(shape->receives, to, root);
}

/*
 * A collective as one rank takes part in it: looked up once when it is posted,
 * for small operations are as fast as what they do not look up again.
 *
 * sends, receives   whether the rank has that buffer.
 * elem_bytes        of an element of its type.
 */
typedef struct wefti_role {
    const wefti_shape *shape;
    size_t elem_bytes;
    bool sends, receives;
} wefti_role;

static inline wefti_role wefti_role_of(weft_collective collective,
                                       weft_dtype dtype, int root, int rank)
{
    const wefti_shape *shape = wefti_shape_get(collective);
    return (wefti_role){.shape = shape,
                        .elem_bytes = weft_dtype_bytes(dtype),
                        .sends = wefti_who_has(shape->sends, rank, root),
                        .receives = wefti_who_has(shape->receives, rank, root)};
}

/*
 * Elements of an even buffer: count for each rank where it has parts and the
 * rank has one; a whole one counts on every rank, whichever looks at it.
 */
static inline size_t wefti_role_send_elems(const wefti_role *role, size_t count,
                                           int nranks)
{
    return !role->shape->send_parts ? count
           : role->sends            ? count * (size_t)nranks
                                    : 0;
}

static inline size_t wefti_role_recv_elems(const wefti_role *role, size_t count,
                                           int nranks)
{
    return !role->shape->recv_parts ? count
           : role->receives         ? count * (size_t)nranks
                                    : 0;
}

#endif

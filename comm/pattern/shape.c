/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/shape.c - one row for each collective.
 */
#include "comm/pattern/shape.h"

#define NOBODY WEFTI_WHO_NOBODY
#define ROOT   WEFTI_WHO_ROOT
#define ALL    WEFTI_WHO_ALL

enum { WHOLE = false, PARTS = true };
enum { EVEN = false, VARIED = true };

/* sends, receives, of what in send and recv, varied, reduces, rooted, stepwise:
 * the sizes of v forms are not every rank's to know */
const wefti_shape wefti_shapes[WEFT_COLLECTIVE_COUNT] = {
    [WEFT_COLLECTIVE_BARRIER] = {NOBODY, NOBODY, WHOLE, WHOLE, EVEN, 0, 0, 0},
    [WEFT_COLLECTIVE_ALLREDUCE] = {ALL, ALL, WHOLE, WHOLE, EVEN, 1, 0, 0},
    [WEFT_COLLECTIVE_REDUCE] = {ALL, ROOT, WHOLE, WHOLE, EVEN, 1, 1, 0},
    [WEFT_COLLECTIVE_ALLGATHER] = {ALL, ALL, WHOLE, PARTS, EVEN, 0, 0, 0},
    [WEFT_COLLECTIVE_REDUCESCATTER] = {ALL, ALL, PARTS, WHOLE, EVEN, 1, 0, 0},
    [WEFT_COLLECTIVE_BROADCAST] = {ROOT, ALL, WHOLE, WHOLE, EVEN, 0, 1, 0},
    [WEFT_COLLECTIVE_ALLTOALL] = {ALL, ALL, PARTS, PARTS, EVEN, 0, 0, 0},
    [WEFT_COLLECTIVE_ALLTOALLV] = {ALL, ALL, PARTS, PARTS, VARIED, 0, 0, 1},
    [WEFT_COLLECTIVE_GATHER] = {ALL, ROOT, WHOLE, PARTS, EVEN, 0, 1, 0},
    [WEFT_COLLECTIVE_GATHERV] = {ALL, ROOT, WHOLE, PARTS, VARIED, 0, 1, 1},
    [WEFT_COLLECTIVE_SCATTER] = {ROOT, ALL, PARTS, WHOLE, EVEN, 0, 1, 0},
    [WEFT_COLLECTIVE_SCATTERV] = {ROOT, ALL, PARTS, WHOLE, VARIED, 0, 1, 1},
    [WEFT_COLLECTIVE_ALLGATHERV] = {ALL, ALL, WHOLE, PARTS, VARIED, 0, 0, 1},
    [WEFT_COLLECTIVE_REDUCESCATTERV] = {ALL, ALL, PARTS, WHOLE, VARIED, 1, 0,
                                        1},
    [WEFT_COLLECTIVE_SEND] = {ALL, NOBODY, WHOLE, WHOLE, EVEN, 0, 0, 0},
    [WEFT_COLLECTIVE_RECV] = {NOBODY, ALL, WHOLE, WHOLE, EVEN, 0, 0, 0},
};

static const wefti_shape stepwise[] = {
    [WEFT_COLLECTIVE_ALLREDUCE] = {ALL, ALL, WHOLE, WHOLE, EVEN, 1, 0, 1},
    [WEFT_COLLECTIVE_REDUCE] = {ALL, ROOT, WHOLE, WHOLE, EVEN, 1, 1, 1},
    [WEFT_COLLECTIVE_REDUCESCATTER] = {ALL, ALL, PARTS, WHOLE, EVEN, 1, 0, 1},
};

const wefti_shape *wefti_shape_get_stepwise(weft_collective collective)
{
    const wefti_shape *shape = wefti_shape_get(collective);
    WEFTI_ASSERT(shape->reduces);
    return shape->stepwise ? shape : &stepwise[collective];
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/all_reduce_op.h - a sum in place, of the class of gradients.
 */
#ifndef TESTS_COMM_ALL_REDUCE_OP_H
#define TESTS_COMM_ALL_REDUCE_OP_H

#include "weft/weft.h"

static inline weft_op all_reduce_op(void *data, size_t count, weft_dtype dtype)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = WEFT_COLLECTIVE_ALLREDUCE,
                     .send = data,
                     .recv = data,
                     .count = count,
                     .dtype = dtype,
                     .redop = WEFT_REDOP_SUM};
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/part_values.h - what one rank has for another, and what comes of
 * it reduced, for any type.
 *
 * Element i of what `from` has for `to` is the whole number (31 salt + 7 from +
 * 17 to + 3 (i mod 1009)) mod 127, as its type holds it; mod 13 where parts are
 * reduced, so that a result is one of 13, which the kernels' reference
 * computes.
 */
#ifndef TESTS_COMM_PART_VALUES_H
#define TESTS_COMM_PART_VALUES_H

#include "weft/types.h"

enum { PART_VALUES_KINDS = 127, PART_VALUES_FEW = 13, PART_VALUES_RANKS = 16 };

/* salt, redop and kinds (one of the two above) may change at any time. */
typedef struct part_values {
    weft_dtype dtype;
    weft_redop redop;
    int nranks;
    unsigned salt;
    size_t kinds;
    size_t elem_bytes;
    unsigned char held[PART_VALUES_KINDS * 8];
} part_values;

void part_values_init(part_values *made, weft_dtype dtype, int nranks);

void part_values_fill(const part_values *made, unsigned char *at, int from,
                      int to, size_t elems);

/* What all ranks have for `to`, reduced. */
void part_values_reduce(const part_values *made, unsigned char *at, int to,
                        size_t elems);

/* What rank multiplies its parts of a pre-multiplied sum by: 1 + rank % 3. */
void part_values_scale(const part_values *made, unsigned char *at, int rank);

#endif

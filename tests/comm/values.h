/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/values.h - what every rank puts in, and what must come out, for
 * any type and reduction, to the bit.
 *
 * Rank r holds at element i the whole number (salt + 7 r + 3 (i mod 1009)) mod
 * 13 as its type holds it, so any element takes one of 13 values and so does
 * any result, which the kernels' reference computes (tests/kernels).
 */
#ifndef TESTS_COMM_VALUES_H
#define TESTS_COMM_VALUES_H

#include "weft/types.h"

enum { VALUES_KINDS = 13, VALUES_RANKS = 64 };

typedef struct values {
    weft_dtype dtype;
    weft_redop redop;
    int nranks;
    unsigned salt;
    size_t elem_bytes;
    unsigned char held[VALUES_KINDS * 8];
    unsigned char reduced[VALUES_KINDS * 8];
    unsigned char scale[8]; /* rank's, for PREMULSUM: 1 + rank % 3 */
} values;

/* nranks up to VALUES_RANKS; redop applies to dtype. */
void values_init(values *made, weft_dtype dtype, weft_redop redop, int rank,
                 int nranks, unsigned salt);

/* What rank puts in: its elements first .. first + elems. */
void values_fill(const values *made, unsigned char *at, int rank, size_t first,
                 size_t elems);

/* What the reduction over all ranks gives there. */
void values_expect(const values *made, unsigned char *at, size_t first,
                   size_t elems);

#endif

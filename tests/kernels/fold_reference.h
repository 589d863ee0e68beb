/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/fold_reference.h - what a fold must give, one element at a
 * time by plain recursion, and the inputs to try it on.
 */
#ifndef TESTS_KERNELS_FOLD_REFERENCE_H
#define TESTS_KERNELS_FOLD_REFERENCE_H

#include "weft/types.h"

/* wefti_fold, by definition. */
void reference_fold(unsigned char *dst, const unsigned char *const *sources,
                    size_t count, size_t elems, weft_dtype dtype,
                    weft_redop redop);

/* To bf16 by looking at both neighbours, not by adding and shifting. */
uint16_t reference_round(float value);

float reference_float(uint32_t bits);

/*
 * Ordinary numbers of mixed sign and size, so that the order of sums matters;
 * one in eight is a zero, infinity, NaN with a payload, denormal, tie or
 * extreme. at may have any alignment.
 */
void reference_fill(unsigned char *at, size_t elems, weft_dtype dtype,
                    uint64_t *seed);

#endif

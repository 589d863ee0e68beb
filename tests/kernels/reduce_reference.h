/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/reduce_reference.h - what weft/types.h promises, computed one
 * element at a time in double or 128-bit integers, and the inputs to try it on.
 */
#ifndef TESTS_KERNELS_REDUCE_REFERENCE_H
#define TESTS_KERNELS_REDUCE_REFERENCE_H

#include "weft/types.h"

/* wefti_reduce, by definition. */
void reference_reduce(unsigned char *dst, const unsigned char *const *sources,
                      size_t count, size_t elems, weft_dtype dtype,
                      weft_redop redop);

/*
 * The sum of two levels: hosts[i] is source i's host, numbered from 0 in the
 * order of their first sources. Each host's sum is rounded to dtype.
 */
void reference_reduce_hosts(unsigned char *dst,
                            const unsigned char *const *sources,
                            const int *hosts, size_t count, size_t elems,
                            weft_dtype dtype, weft_redop redop);

/* wefti_scale, by definition. */
void reference_scale(unsigned char *dst, const unsigned char *src,
                     const unsigned char *scalar, size_t elems,
                     weft_dtype dtype);

/* One element as a double (exact but for large 64-bit integers). */
double reference_value(const unsigned char *at, weft_dtype dtype);

/* value as an element: floats to nearest even, integers cut to the type. */
void reference_store(unsigned char *at, double value, weft_dtype dtype);

/*
 * Ordinary numbers of mixed sign and size, so that the order of sums matters;
 * one in sixteen is a zero, infinity, NaN with a payload, denormal, tie or
 * extreme. at may have any alignment.
 */
void reference_fill(unsigned char *at, size_t elems, weft_dtype dtype,
                    uint64_t *seed);

#endif

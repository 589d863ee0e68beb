/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/sums.h - what a sum over the ranks of this program's worlds must
 * be, whichever of them share memory (tests/comm/spread.h).
 */
#ifndef TESTS_COMM_SUMS_H
#define TESTS_COMM_SUMS_H

#include "weft/types.h"

/* As reference_reduce of one level or two; the environment's WEFT_SUM_FLAT=on
 * makes it one. sources: of at most 64 ranks. */
void sums_reference(unsigned char *dst, const unsigned char *const *sources,
                    int nranks, size_t elems, weft_dtype dtype,
                    weft_redop redop);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/roofline.h - what one core of this machine can do at most, as
 * measured here and now.
 */
#ifndef TESTS_KERNELS_ROOFLINE_H
#define TESTS_KERNELS_ROOFLINE_H

#include "kernels/math/real.h"

/*
 * Operations a second (a multiply-add is two) of multiply-adds on registers,
 * at the widest vectors this processor has: the best of several short runs.
 */
double roofline_flops(void);

/* The same with the vectors of 16 bytes that every processor has. */
double roofline_base_flops(void);

/*
 * Bytes a second, reads plus writes, of copying between two halves of a
 * working set of this size: the best of several runs.
 */
double roofline_bandwidth(size_t working_set_bytes);

/* Seconds that this thread has run: what others use does not count. */
double roofline_clock(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/numbers.h - medians, and the processor's handling of denormals.
 */
#ifndef TRAINER_NUMBERS_H
#define TRAINER_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

/* The median of count > 0 values, which are sorted in place. */
double wefti_numbers_median(double *values, size_t count);

/*
 * wefti_numbers_flush_denormals - the calling thread takes denormal numbers
 * for zero from now on, where the processor can: they must not slow down one
 * of two runs that are compared. Returns what restore takes.
 */
uint32_t wefti_numbers_flush_denormals(void);
void wefti_numbers_restore(uint32_t before);

#endif

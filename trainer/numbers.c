/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/numbers.c - medians, denormals.
 */
#include "trainer/numbers.h"

#include <stdlib.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

double wefti_numbers_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 ? values[count / 2]
                     : (values[count / 2 - 1] + values[count / 2]) / 2;
}

#if defined(__SSE__)
uint32_t wefti_numbers_flush_denormals(void)
{
    const uint32_t flush_results = 0x8000, flush_operands = 0x0040;
    uint32_t before = _mm_getcsr();
    _mm_setcsr(before | flush_results | flush_operands);
    return before;
}

void wefti_numbers_restore(uint32_t before)
{
    _mm_setcsr(before);
}
#else
uint32_t wefti_numbers_flush_denormals(void)
{
    return 0;
}

void wefti_numbers_restore(uint32_t before)
{
    (void)before;
}
#endif

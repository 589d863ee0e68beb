/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/blas_lock.h - one thread at a time inside the BLAS library.
 *
 * OpenBLAS built without threads ("serial") also lacks the locks around its
 * buffers: two threads of one process that multiply at once now and then share
 * one, and both results are wrong. Ranks that are threads must take turns; a
 * rank that is a process pays for a lock that nobody contends.
 *
 * Source: OpenBLAS, driver/others/memory.c: alloc_lock exists only with SMP or
 * USE_LOCKING.
 */
#ifndef KERNELS_MATH_BLAS_LOCK_H
#define KERNELS_MATH_BLAS_LOCK_H

void wefti_blas_lock(void);
void wefti_blas_unlock(void);

/* The kernels it has chosen for this processor, such as "Haswell". */
const char *wefti_blas_get_kernel(void);

#endif
